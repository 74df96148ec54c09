//! The floor: the cost of a request and its reply without any processing.
//!
//! It uses the tracker's own network backend, with the same socket options, buffers and batch, and
//! the same loop, but only receives, swaps addresses and sends. A connect gets 16 bytes, an
//! announce a prepared reply of `--reply-bytes` with its transaction id and the announcer's count,
//! a scrape zeros, and a request without the connection id nothing. The same `onrush-load` drives a
//! tracker and its floor; the difference is the tracker's own cost. Without peers in the replies
//! they are right, as for lone peers, and the cost of a run is the kernel's and the load tester's.
//!
//! ```text
//! cargo run --release -p onrush-lab --bin floor -- --listen 127.0.0.1:6999 --reply-bytes 20 &
//! target/release/onrush-load --target 127.0.0.1:6999 --tracker-pid $!
//! ```
//!
//! From 26 bytes on the reply has peers that never announced: pass `--strangers` to the load
//! tester.

use std::net::SocketAddr;
use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Parser;
use onrush_net::bind::{Address, Buffers, bind_group};
use onrush_net::mio::{Backend, Options};
use onrush_net::{Reply, Return, Socket, affinity, bind};
use onrush_proto::announce::{AnnounceHead, HEAD_LEN};
use onrush_proto::connect::{self, ConnectResponse, MAGIC};
use onrush_proto::{ConnectionId, TransactionId, announce, scrape};

/// The only connection id.
const ID: u64 = 0x0123_4567_89AB_CDEF;
/// Bytes of an IPv4 peer.
const PEER: usize = 6;
/// The bytes left to download in an announce; 0 makes a seeder.
const LEFT: Range<usize> = 64..72;
/// The counts of leechers and seeders in an announce reply.
const COUNTS: Range<usize> = 12..20;
/// Bytes of the largest reply: 200 peers.
const LARGEST: usize = HEAD_LEN + 200 * PEER;
const _: () = assert!(LARGEST >= scrape::HEAD_LEN + scrape::COUNTS_LEN * scrape::MAX_HASHES);
/// The tracker's default buffer sizes.
const BUFFERS: Buffers = Buffers { receive: 4 << 20, send: 1 << 20 };

/// Answers requests of a UDP tracker without processing them.
#[derive(Parser, Debug)]
#[command(name = "floor", max_term_width = 100)]
struct Args {
    /// The address to listen on; with the wildcard address of a family each datagram comes with its
    /// local address (IP_PKTINFO) and each reply is sent from it.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:6999")]
    listen: SocketAddr,

    /// Bytes of a reply to an announce: 20 for the head and 6 per peer.
    #[arg(long, value_name = "N", default_value_t = HEAD_LEN, value_parser = reply_bytes)]
    reply_bytes: usize,

    /// The vCPU to run on.
    #[arg(long, value_name = "CPU")]
    pin: Option<usize>,
}

fn reply_bytes(text: &str) -> Result<usize, String> {
    let bytes: usize = text.parse().map_err(|_| format!("`{text}` is no number"))?;
    let whole = bytes >= HEAD_LEN && (bytes - HEAD_LEN).is_multiple_of(PEER) && bytes <= LARGEST;
    whole.then_some(bytes).ok_or_else(|| format!("not {HEAD_LEN} + {PEER} n, at most {LARGEST}"))
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let options = bind::Options { workers: 1, buffers: BUFFERS, probe: true };
    let address = Address { address: args.listen, optional: false };
    let mut group = bind_group(&[address], &options)?;
    group.notices.iter().for_each(|notice| eprintln!("{notice}"));
    args.pin.map_or(Ok(()), affinity::pin_current_thread)?;
    let mut backend = Backend::new(group.workers.remove(0), Options::default())?;
    eprintln!("ready");
    serve(&mut backend, args.reply_bytes)
}

/// The loop.
fn serve(backend: &mut Backend, reply_bytes: usize) -> anyhow::Result<()> {
    let batch = Options::default().batch;
    let answers = Answers::new(reply_bytes);
    let mut bytes = vec![answers.announce; batch];
    let mut ways: Vec<(u32, Return)> = Vec::with_capacity(batch);
    let mut second = Instant::now();
    loop {
        let received = backend.receive(batch)?;
        if received.is_empty() {
            backend.wait(Duration::from_millis(250)).context("waiting")?;
            continue;
        }
        for (datagram, slot) in received.iter() {
            let len = answers.write(datagram, &mut bytes[ways.len()]);
            if len > 0 {
                ways.push((len as u32, slot.reply_to));
            }
        }
        let replies = ways.iter().zip(&bytes);
        backend
            .send(replies.map(|((len, to), bytes)| Reply { bytes: &bytes[..*len as usize], to }));
        ways.clear();
        // Like a tracker, reads the time once per turn and the kernel's drops once a second.
        if second.elapsed() >= Duration::from_secs(1) {
            second = Instant::now();
            let _ = backend.dropped();
        }
    }
}

/// The prepared replies.
struct Answers {
    connect: [u8; connect::RESPONSE_LEN],
    announce: [u8; LARGEST],
    announce_len: usize,
    /// The counts where the announcer is a leecher.
    counts_of_leecher: [u8; 8],
}

impl Answers {
    /// Prepares replies, with `announce_len` bytes for an announce.
    fn new(announce_len: usize) -> Self {
        let transaction_id = TransactionId(0);
        let mut connect = [0; connect::RESPONSE_LEN];
        ConnectResponse { transaction_id, connection_id: ConnectionId(ID) }.write(&mut connect);
        let peers = (announce_len - HEAD_LEN) / PEER;
        // As many as are listed, and the announcer, here a seeder.
        let head =
            AnnounceHead { transaction_id, interval: 1800, leechers: peers as u32, seeders: 1 };
        let mut announce = [0; LARGEST];
        head.write(announce.first_chunk_mut().expect("room for any reply"));
        for (number, peer) in announce[HEAD_LEN..announce_len].chunks_mut(PEER).enumerate() {
            let [.., high, low] = (number as u32 + 1).to_be_bytes();
            // From a network without clients of a load tester (RFC 2544).
            peer.copy_from_slice(&[198, 18, high, low, 0x1A, 0xE1]);
        }
        let counts_of_leecher = (u64::from(head.leechers) + 1) << 32;
        Self { connect, announce, announce_len, counts_of_leecher: counts_of_leecher.to_be_bytes() }
    }

    /// Writes the reply to a datagram over an earlier one and returns its length; 0 for no reply.
    #[inline]
    fn write(&self, datagram: &[u8], into: &mut [u8; LARGEST]) -> usize {
        let Some(head) = datagram.first_chunk::<16>() else { return 0 };
        let [id @ .., a0, a1, a2, a3, _, _, _, _] = *head;
        let action = u32::from_be_bytes([a0, a1, a2, a3]);
        let len = match (action, u64::from_be_bytes(id)) {
            (connect::ACTION, MAGIC) => {
                into[..self.connect.len()].copy_from_slice(&self.connect);
                self.connect.len()
            }
            (announce::ACTION, ID) => {
                into[..self.announce_len].copy_from_slice(&self.announce[..self.announce_len]);
                if datagram.get(LEFT).is_some_and(|left| left != [0; 8]) {
                    into[COUNTS].copy_from_slice(&self.counts_of_leecher);
                }
                self.announce_len
            }
            (scrape::ACTION, ID) => {
                let hashes = (datagram.len() - head.len()) / 20;
                let len = scrape::HEAD_LEN + scrape::COUNTS_LEN * hashes.min(scrape::MAX_HASHES);
                into[..4].copy_from_slice(&action.to_be_bytes());
                into[scrape::HEAD_LEN..len].fill(0);
                len
            }
            _ => return 0,
        };
        into[4..8].copy_from_slice(&head[12..]);
        len
    }
}
