//! Filters over real sockets of both families: the kernel queues exactly the datagrams that
//! [`Filter::passes`] accepts, and counts the others as drops.

use std::net::{SocketAddr, UdpSocket};

use onrush_net::Socket;
use onrush_net::bind::{Address, Buffers, Options, bind_group};
use onrush_net::filter::{Check, Filter, Kind};
use onrush_net::mio::{self, Backend};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

const HEAD: [u32; 2] = [0x417, 0x2710_1980];

fn filter(rng: &mut SmallRng) -> Filter {
    let tag = Check::Tag { at: 4, valid: rng.random_range(1..16) };
    Filter {
        kind_at: 8,
        kinds: [
            Kind { value: 0, min_len: 16, check: Check::Head(HEAD) },
            Kind { value: 1, min_len: 98, check: tag },
            Kind { value: 2, min_len: 16, check: tag },
        ],
    }
}

/// A server on an address of each family.
fn server() -> (Backend, Vec<SocketAddr>) {
    let addresses = ["127.0.0.1:0", "[::1]:0"]
        .map(|address| Address { address: address.parse().unwrap(), optional: false });
    let buffers = Buffers { receive: 1 << 20, send: 0 };
    let mut group = bind_group(&addresses, &Options { workers: 1, buffers, probe: true }).unwrap();
    let backend = Backend::new(group.workers.remove(0), mio::Options::default()).unwrap();
    (backend, group.addresses)
}

/// Payloads that begin as a kind does, most of them otherwise random.
fn payload(rng: &mut SmallRng) -> Vec<u8> {
    let mut payload: Vec<u8> = (0..rng.random_range(0..140)).map(|_| rng.random()).collect();
    if payload.len() >= 12 {
        payload[8..12].copy_from_slice(&rng.random_range(0..4u32).to_be_bytes());
        if rng.random_ratio(2, 3) {
            payload[..4].copy_from_slice(&HEAD[0].to_be_bytes());
            payload[4..8].copy_from_slice(&HEAD[1].to_be_bytes());
        }
    }
    payload
}

fn received(server: &mut Backend) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        let batch = server.receive(128).unwrap();
        if batch.is_empty() {
            return all;
        }
        all.extend(batch.iter().map(|(bytes, _)| bytes.to_vec()));
    }
}

#[test]
fn the_kernel_queues_what_the_function_accepts() {
    let mut rng = SmallRng::seed_from_u64(1);
    let (mut server, addresses) = server();
    let mut dropped = 0;
    for round in 0..20 {
        let filter = filter(&mut rng);
        server.set_filter(Some(&filter)).unwrap();
        for &to in &addresses {
            let client = UdpSocket::bind((to.ip(), 0)).unwrap();
            let from = client.local_addr().unwrap();
            let sent: Vec<_> = (0..60).map(|_| payload(&mut rng)).collect();
            for payload in &sent {
                client.send_to(payload, to).unwrap();
            }
            let expected: Vec<_> =
                sent.iter().filter(|payload| filter.passes(payload, from)).cloned().collect();
            assert_eq!(received(&mut server), expected, "round {round}, {from}");
            dropped += (sent.len() - expected.len()) as u64;
            assert_eq!(server.dropped().all(), dropped);
        }
    }
    assert!(dropped > 1_000, "{dropped}");
    // Without a filter everything arrives.
    server.set_filter(None).unwrap();
    server.set_filter(None).unwrap();
    for &to in &addresses {
        let any = if to.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" };
        UdpSocket::bind(any).unwrap().send_to(b"", to).unwrap();
    }
    assert_eq!(received(&mut server).len(), 2);
    assert_eq!(server.dropped().all(), dropped);
}
