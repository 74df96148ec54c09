//! What the two processes of an upgrade say to each other: JSON behind its length, on a Unix socket.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;

use serde::{Deserialize, Serialize};

use crate::overload::Promise;

/// The version of this conversation. Another one is not understood.
pub const PROTOCOL: u32 = 2;

/// Bytes of a word at most.
const LONGEST: usize = 1 << 20;

/// What is said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Word {
    /// New: what is there? Nothing is to be done about it.
    Look,
    /// New: may I follow you?
    Ask {
        /// Which conversation this is.
        protocol: u32,
        /// Which build it is.
        version: String,
    },
    /// Old: this is what there is.
    Offer(Offer),
    /// Old: no, and why not.
    Refusal(String),
    /// New: let me have the peers; I shall take these of the offered addresses.
    Go {
        /// For each address whether it is served on.
        keeps: Vec<bool>,
    },
    /// New: I have them, and nothing is left to be done.
    Ready,
    /// Old: the sockets are yours.
    Yours {
        /// What clients were told that the new process has to keep.
        promise: Option<Promise>,
    },
    /// New: they are mine.
    Mine,
}

/// What an old process has to give.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// Which build it is.
    pub version: String,
    /// Its process id.
    pub process: u32,
    /// The addresses that it serves.
    pub addresses: Vec<SocketAddr>,
    /// Sockets of each, which come behind this, address by address and in the order of their group.
    pub sockets: Vec<usize>,
    /// Whether a service manager has opened them, so that it says which there are.
    pub passed: bool,
    /// The multipliers by which the kernel steers.
    pub shard_key: [u32; 5],
    /// What clients were told so far.
    pub promise: Option<Promise>,
    /// Where it serves HTTP, or waits to; builds from before this was told do not say.
    #[serde(default)]
    pub http: Option<Vec<SocketAddr>>,
}

impl Offer {
    /// Whether this process may be why nobody else can serve HTTP at `address`, so that it is free when this one has gone.
    pub fn may_hold(&self, address: SocketAddr) -> bool {
        let meets = |other: &SocketAddr| {
            let (one, other_ip) = (address.ip().to_canonical(), other.ip().to_canonical());
            let any = one.is_unspecified() || other_ip.is_unspecified();
            other.port() == address.port() && (any || one == other_ip)
        };
        self.http.as_ref().is_none_or(|http| http.iter().any(meets))
    }
}

/// Says something.
///
/// # Errors
/// When the other side is gone.
pub fn say(mut stream: &UnixStream, word: &Word) -> io::Result<()> {
    let text = serde_json::to_vec(word).map_err(io::Error::other)?;
    let mut bytes = (text.len() as u32).to_be_bytes().to_vec();
    bytes.extend_from_slice(&text);
    stream.write_all(&bytes)
}

/// Hears the next thing that is said. Reads not a byte more.
///
/// # Errors
/// When the other side is gone, or says nothing that is known.
pub fn hear(mut stream: &UnixStream) -> io::Result<Word> {
    let mut len = [0; 4];
    stream.read_exact(&mut len)?;
    let len = u32::from_be_bytes(len) as usize;
    if len > LONGEST {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a word that is too long"));
    }
    let mut text = vec![0; len];
    stream.read_exact(&mut text)?;
    serde_json::from_slice(&text).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// What is wrong with a word that was not expected.
pub fn unexpected(word: &Word) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("it said {word:?} out of turn"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_heard() {
        let (here, there) = UnixStream::pair().unwrap();
        let offer = Offer {
            version: "0.1.0".into(),
            process: 77,
            addresses: vec!["127.0.0.1:6969".parse().unwrap(), "[::1]:6969".parse().unwrap()],
            sockets: vec![3, 2],
            passed: true,
            shard_key: [1, 2, 3, 4, u32::MAX],
            promise: Some(Promise { lifetime: 7200, seconds: 3780 }),
            http: Some(vec!["127.0.0.1:6970".parse().unwrap()]),
        };
        let words = [
            Word::Ask { protocol: PROTOCOL, version: "x".into() },
            Word::Offer(offer),
            Word::Refusal("no".into()),
            Word::Go { keeps: vec![true, false] },
            Word::Yours { promise: None },
            Word::Mine,
        ];
        words.iter().for_each(|word| say(&here, word).unwrap());
        (&here).write_all(b"\0\0\0\x03").and_then(|()| (&here).write_all(b"\"?\"")).unwrap();
        (&here).write_all(&u32::MAX.to_be_bytes()).unwrap();
        words.iter().for_each(|word| assert_eq!(hear(&there).unwrap(), *word));
        assert!(hear(&there).is_err() && hear(&there).is_err());
    }

    #[test]
    fn an_address_is_held_by_who_listens_there_or_at_a_wildcard_of_its_port() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let held = |http: Option<&str>, address: &str| {
            let offer = r#"{"version":"x","process":7,"addresses":[],"sockets":[],"passed":false,
                            "shard_key":[1,2,3,4,5],"promise":null}"#;
            let mut offer: Offer = serde_json::from_str(offer).unwrap();
            assert_eq!(offer.http, None, "a build that does not tell is understood");
            offer.http = http.map(|http| http.split_whitespace().map(at).collect());
            offer.may_hold(at(address))
        };
        for (http, address, may) in [
            (Some("127.0.0.1:6970"), "127.0.0.1:6970", true),
            (Some("127.0.0.1:6970"), "127.0.0.1:6971", false),
            (Some("127.0.0.1:6970"), "127.0.0.2:6970", false),
            (Some("127.0.0.1:6970"), "0.0.0.0:6970", true),
            (Some("[::]:6970"), "127.0.0.1:6970", true),
            (Some("[::ffff:127.0.0.1]:6970"), "127.0.0.1:6970", true),
            (Some(""), "127.0.0.1:6970", false),
            (None, "127.0.0.1:6970", true),
        ] {
            assert_eq!(held(http, address), may, "{http:?} {address}");
        }
    }
}
