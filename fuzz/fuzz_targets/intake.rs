//! Arbitrary datagrams from several sources to a whole tracker, with valid connection ids inserted:
//! no panic; at most one reply to each, none longer than its datagram unless the source has proven
//! its address, and errors to proven sources only; every datagram is answered or refused.
#![no_main]

use std::net::SocketAddr;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use onrush_config::Settings;
use onrush_net::memory::{Conditions, Endpoint, Network, Options};
use onrush_net::{Reply, Return, Socket};
use onrush_proto::{Connect, Family, Response, TransactionId};
use onrush_testing::memory_tracker::{
    COLOCATED, SPLIT, TRACKER_V4, TRACKER_V6, TestTracker, at, secrets, settings,
};
use onrush_tracker::refusal::{Refusal, UdpRefusal};

const SOURCES: [&str; 5] = [
    "198.51.100.1:3000",
    "198.51.100.2:1",
    "[2001:db8::2]:3000",
    "[2001:db8:1::2]:53",
    "10.0.0.1:6881",
];

/// Both placements, with limits that a few requests reach, and a list of the info hash of zeros.
static SETTINGS: LazyLock<[Settings; 2]> = LazyLock::new(|| {
    [SPLIT, COLOCATED].map(|placement| {
        settings(&format!(
            "{placement}\n[limits]\nbatches_in_flight = 6\nbatch_requests = 2\n\
             scrapes_in_flight = 1\npeers = 1000\n\
             [access]\nmode = \"deny\"\ninfo_hashes = [\"{}\"]\n",
            "0".repeat(40)
        ))
    })
});

/// Takes the next byte of the input.
fn byte(input: &mut &[u8]) -> Option<u8> {
    let (first, rest) = input.split_first()?;
    *input = rest;
    Some(*first)
}

struct Clients {
    endpoint: Endpoint,
    families: Vec<Family>,
    /// The ids issued to each source.
    ids: Vec<Vec<[u8; 8]>>,
    sent: u64,
}

impl Clients {
    fn send(&mut self, source: usize, bytes: &[u8]) {
        let tracker = match self.families[source] {
            Family::V4 => TRACKER_V4,
            Family::V6 => TRACKER_V6,
        };
        let to = Return::to(tracker.parse().unwrap(), source as u16);
        self.endpoint.send(std::iter::once(Reply { bytes, to: &to }));
        self.sent += 1;
    }

    /// Checks the replies to one datagram.
    fn check(&mut self, source: usize, datagram: &[u8]) {
        let proven = datagram.get(..8).is_some_and(|id| self.ids[source].iter().any(|it| it == id));
        let received = self.endpoint.receive(8).unwrap();
        let mut issued = None;
        assert!(received.len() <= 1, "{} replies to one datagram", received.len());
        for (bytes, slot) in received.iter() {
            assert_eq!(usize::from(slot.reply_to.socket()), source, "to another source");
            let reply = Response::parse(bytes, self.families[source]).expect("a valid reply");
            assert_eq!(reply.transaction_id().0.to_be_bytes(), datagram[12..16]);
            match reply {
                Response::Connect(response) => issued = Some(response.connection_id.0),
                _ => assert!(proven, "{bytes:02x?} to a source that has proven nothing"),
            }
            assert!(proven || bytes.len() <= datagram.len(), "amplified: {bytes:02x?}");
        }
        self.ids[source].extend(issued.map(u64::to_be_bytes));
    }
}

fuzz_target!(|input: &[u8]| {
    let mut input = input;
    let Some(first) = byte(&mut input) else { return };
    let settings = &SETTINGS[usize::from(first & 1)];
    let options = Options { in_flight: 64, receive_buffer: 32, batch: 16, blocking: false };
    let network = Network::with_options(1, Conditions::default(), options);
    let mut tracker = TestTracker::new(settings, &secrets(1), &network, |endpoint| endpoint);
    let addresses = SOURCES.map(|source| source.parse::<SocketAddr>().unwrap());
    let mut clients = Clients {
        endpoint: network.bind(&addresses).unwrap(),
        families: addresses.iter().map(|address| Family::of(address.ip())).collect(),
        ids: vec![Vec::new(); SOURCES.len()],
        sent: 0,
    };
    let mut second = 1;
    // A datagram: source and what to insert, seconds since the one before, length, bytes.
    while let (Some(kind), Some(pause), Some(len)) =
        (byte(&mut input), byte(&mut input), byte(&mut input))
    {
        let source = usize::from(kind & 7) % SOURCES.len();
        second += u64::from(pause >> 4);
        let len = (usize::from(len) * 8).min(input.len());
        let (bytes, rest) = input.split_at(len);
        input = rest;
        let mut datagram = bytes.to_vec();
        if kind & 0x08 != 0 && clients.ids[source].is_empty() {
            let mut connect = [0; 16];
            Connect { transaction_id: TransactionId(second as u32) }.write(&mut connect);
            clients.send(source, &connect);
            tracker.settle(at(second));
            clients.check(source, &connect);
        }
        // An id of this source or, with the next bit, of another one.
        let of = (source + usize::from(kind >> 4 & 1)) % SOURCES.len();
        if kind & 0x08 != 0
            && let (Some(id), Some(place)) = (clients.ids[of].last(), datagram.get_mut(..8))
        {
            place.copy_from_slice(id);
            if let Some(action) = datagram.get_mut(8..11) {
                action.fill(0);
            }
        }
        clients.send(source, &datagram);
        tracker.settle(at(second));
        clients.check(source, &datagram);
    }
    let summary = tracker.summary();
    let replies: u64 = summary.replies.iter().sum();
    let silent = Refusal::ALL.iter().filter(|refusal| refusal.text().is_none());
    let silent: u64 = silent.map(|refusal| summary.refused_for(*refusal)).sum::<u64>()
        + UdpRefusal::ALL.iter().map(|it| summary.refused_by_udp[*it as usize]).sum::<u64>();
    assert_eq!(summary.datagrams, clients.sent);
    assert_eq!(replies + silent, clients.sent);
    for side in tracker.workers.iter().filter_map(|worker| worker.swarm_side.as_ref()) {
        side.shard.check();
    }
});
