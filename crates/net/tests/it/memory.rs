//! The in-memory network's own behaviour: all events follow from the seed, time is virtual, and
//! groups are steered as in the kernel.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use onrush_net::memory::{Choice, Conditions, Endpoint, Network, Options};
use onrush_net::{Drops, Reply, Return, Socket};

const MS: Duration = Duration::from_millis(1);

const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 6969);

fn at(address: &str) -> SocketAddr {
    address.parse().unwrap()
}

/// A server at [`SERVER`] and a client.
fn pair(network: &Network) -> (Endpoint, Endpoint) {
    (network.bind(&[SERVER]).unwrap(), network.bind(&[at("10.0.0.2:0")]).unwrap())
}

/// Sends one byte per number.
fn send(from: &mut Endpoint, to: SocketAddr, numbers: std::ops::Range<u8>) -> u64 {
    let to = Return::to(to, 0);
    let bytes: Vec<_> = numbers.map(|number| [number]).collect();
    from.send(bytes.iter().map(|bytes| Reply { bytes, to: &to })).datagrams
}

/// The first bytes of the available datagrams.
fn receive(endpoint: &mut Endpoint) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        let batch = endpoint.receive(usize::MAX).unwrap();
        if batch.is_empty() {
            return all;
        }
        all.extend(batch.iter().map(|(bytes, _)| bytes[0]));
    }
}

/// A faulty network, and which datagrams arrive when.
fn events(seed: u64) -> Vec<(Duration, Vec<u8>)> {
    let conditions =
        Conditions { loss: 0.2, duplicates: 0.1, delay: 5 * MS..=50 * MS, reordering: 0.1 };
    let network = Network::new(seed, conditions);
    let (mut server, mut client) = pair(&network);
    send(&mut client, SERVER, 0..250);
    let mut story = Vec::new();
    while let Some(next) = network.next_arrival() {
        network.advance(next - network.now());
        story.push((network.now(), receive(&mut server)));
    }
    let counts = network.counts();
    assert_eq!(counts.sent, 250);
    assert_eq!(counts.delivered, counts.sent - counts.lost + counts.duplicated);
    story
}

#[test]
fn all_events_follow_from_the_seed() {
    assert_eq!(events(7), events(7));
    assert_ne!(events(7), events(8));
}

#[test]
fn loss_duplicates_and_reordering_have_their_probabilities() {
    let story = events(1);
    let order: Vec<u8> = story.iter().flat_map(|(_, numbers)| numbers.clone()).collect();
    let mut distinct = order.clone();
    distinct.sort();
    let duplicates = order.len() - {
        distinct.dedup();
        distinct.len()
    };
    assert!((170..230).contains(&distinct.len()), "{} of 250 arrived", distinct.len());
    assert!((8..45).contains(&duplicates), "{duplicates} twice");
    assert!(!order.is_sorted());
    let (first, last) = (story[0].0, story[story.len() - 1].0);
    assert!(first >= 5 * MS && last <= 50 * MS + 101 * MS, "{first:?} {last:?}");
}

#[test]
fn nothing_arrives_before_it_is_due() {
    let network = Network::new(1, Conditions { delay: 30 * MS..=30 * MS, ..Conditions::default() });
    let (mut server, mut client) = pair(&network);
    send(&mut client, SERVER, 0..3);
    assert_eq!(network.next_arrival(), Some(30 * MS));
    network.advance(29 * MS);
    assert_eq!(receive(&mut server), []);
    send(&mut client, SERVER, 3..5);
    network.advance(MS);
    assert_eq!(receive(&mut server), [0, 1, 2]);
    network.advance(100 * MS);
    assert_eq!(receive(&mut server), [3, 4], "a constant delay keeps the order");
    assert_eq!((network.now(), network.next_arrival()), (130 * MS, None));
}

#[test]
fn a_group_is_steered_by_content_and_falls_back_to_the_source() {
    let network = Network::new(1, Conditions::default());
    let steer = |payload: &[u8], _: SocketAddr| match payload[0] {
        255 => None,
        first => Some(usize::from(first) % 5),
    };
    let mut group = network.bind_group(&[SERVER], 4, &Choice::By(Arc::new(steer))).unwrap();
    let mut client = network.bind(&[at("10.0.0.2:0")]).unwrap();
    send(&mut client, SERVER, 0..4);
    for (number, worker) in group.iter_mut().enumerate() {
        assert_eq!(receive(worker), [number as u8]);
    }
    // A number without a worker, or no number: by source, so the datagrams of one client are at one
    // worker, and those of many clients are at all of them.
    let spread = |client: &mut Endpoint, group: &mut [Endpoint], number: u8| -> Vec<usize> {
        (0..10).for_each(|_| _ = send(client, SERVER, number..number + 1));
        group.iter_mut().map(|worker| receive(worker).len()).collect()
    };
    for number in [4, 254] {
        assert!(spread(&mut client, &mut group, number).contains(&10));
    }
    let mut all = [0; 4];
    for _ in 0..100 {
        let mut client = network.bind(&[at("10.0.0.3:0")]).unwrap();
        for (sum, count) in all.iter_mut().zip(spread(&mut client, &mut group, 4)) {
            *sum += count;
        }
    }
    assert!(all.iter().all(|count| (100..500).contains(count)), "{all:?}");
}

#[test]
fn dropped_workers_free_their_addresses() {
    let network = Network::new(1, Conditions::default());
    let address = at("[2001:db8::1]:6969");
    let group = network.bind_group(&[address], 2, &Choice::BySource).unwrap();
    let mut client = network.bind(&[at("[2001:db8::2]:0")]).unwrap();
    assert!(network.bind(&[address]).is_err());
    send(&mut client, address, 0..10);
    drop(group);
    send(&mut client, address, 0..3);
    assert_eq!(network.counts().unreachable, 3);
    let mut again = network.bind(&[address]).unwrap();
    send(&mut client, address, 5..6);
    assert_eq!(receive(&mut again), [5], "their buffers are discarded");
}

#[test]
fn capacities_are_bounded_and_drops_are_counted() {
    let options = Options { in_flight: 10, receive_buffer: 4, ..Options::default() };
    let conditions = Conditions { delay: MS..=MS, ..Conditions::default() };
    let network = Network::with_options(1, conditions, options);
    let (mut server, mut client) = pair(&network);
    let to = Return::to(SERVER, 0);
    for round in 1..=3 {
        let sent = client.send((0..25).map(|_| Reply { bytes: b"x", to: &to }));
        assert_eq!((sent.datagrams, sent.blocked()), (10, 15));
        network.advance(MS);
        assert_eq!(receive(&mut server).len(), 4);
        assert_eq!(server.dropped(), Drops { full_buffer: round * 6, ..Drops::default() });
        assert_eq!(network.counts().dropped, round * 6);
    }
}

#[test]
fn waiting_is_instant_unless_blocking() {
    let network = Network::new(1, Conditions::default());
    let mut server = network.bind(&[SERVER]).unwrap();
    let start = std::time::Instant::now();
    server.wait(Duration::from_secs(120)).unwrap();
    assert!(start.elapsed() < Duration::from_secs(60));
}

#[test]
fn nothing_is_allocated_in_a_faulty_network() {
    let conditions = Conditions { loss: 0.1, duplicates: 0.2, delay: MS..=9 * MS, reordering: 0.3 };
    let network = Network::new(3, conditions);
    let (mut server, mut client) = pair(&network);
    let to = Return::to(SERVER, 0);
    let mut arrived = 0;
    let counted = allocation_counter::measure(|| {
        for _ in 0..50 {
            client.send((0..100).map(|_| Reply { bytes: &[1; 98], to: &to }));
            network.advance(2 * MS);
            arrived += server.receive(usize::MAX).unwrap().len();
        }
    });
    assert!(arrived > 4000, "{arrived}");
    assert_eq!(counted.count_total, 0, "{counted:?}");
}
