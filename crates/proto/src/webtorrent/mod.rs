//! WebTorrent: peers in browsers find each other through a tracker by JSON messages over WebSocket.
//! There is no BEP; the messages are those of bittorrent-tracker (npm) and of libtorrent.
//!
//! ```text
//! in   {"action":"announce","info_hash":H,"peer_id":P,"left":9,"event":"started","numwant":5,
//!       "offers":[{"offer":{"type":"offer","sdp":"v=0..."},"offer_id":O},...]}
//!      {"action":"announce","info_hash":H,"peer_id":P,
//!       "answer":{"type":"answer","sdp":"v=0..."},"to_peer_id":P,"offer_id":O}
//!      {"action":"scrape","info_hash":H or [H,...]}
//! out  {"action":"announce","info_hash":H,"interval":120,"complete":1,"incomplete":2}
//!      {"action":"announce","info_hash":H,"peer_id":P,"offer_id":O,"offer":{...}}
//!      {"action":"announce","info_hash":H,"peer_id":P,"offer_id":O,"answer":{...}}
//!      {"action":"scrape","files":{H:{"complete":1,"incomplete":2,"downloaded":3},...}}
//!      {"action":"announce","info_hash":H,"failure reason":"..."}
//! ```
//!
//! Info hashes (H), peer ids (P) and offer ids (O) are strings of 20 characters up to U+00FF, one
//! for each byte. A tracker passes on offers and answers byte for byte.

pub mod client;
mod message;
mod read;
mod reply;

pub use message::{Announce, Answer, BadMessage, Limits, Message, Offer, Rejected, parse};
pub use reply::{write_answer, write_counts, write_failure, write_offer, write_scrape};

/// The action of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Announces a peer, with offers or an answer to one.
    Announce,
    /// Asks for counts.
    Scrape,
}

impl Action {
    /// Its name in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Announce => "announce",
            Self::Scrape => "scrape",
        }
    }
}

/// The id of an offer: the client that sent the offer knows by it which of its offers an answer is
/// for. libtorrent takes 20 bytes only, and all clients send as many.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct OfferId(pub [u8; 20]);
