//! A warmed-up run allocates nothing per request.

use std::net::SocketAddr;
use std::time::Duration;

use onrush_load::generator::{Generator, Pace, Settings, Window};
use onrush_load::plan::population::{Addresses, Population};
use onrush_load::plan::{Kind, Plan, Profile, profile::Swarms};
use onrush_load::sources::routes;
use onrush_net::memory::{Endpoint, Network};
use onrush_net::{Reply, Return, Socket};
use onrush_proto::announce::{AnnounceHead, HEAD_LEN};
use onrush_proto::connect::ConnectResponse;
use onrush_proto::{ConnectionId, Family, Request, scrape};

/// A buffer for any reply of [`answer`].
type Buffer = [u8; scrape::HEAD_LEN + scrape::COUNTS_LEN * scrape::MAX_HASHES];

/// Right replies of a tracker without state: every peer is alone.
fn answer(datagram: &[u8], into: &mut Buffer) -> usize {
    match Request::parse(datagram) {
        Ok(Request::Connect(connect)) => {
            let transaction_id = connect.transaction_id;
            let reply = ConnectResponse { transaction_id, connection_id: ConnectionId(1) };
            reply.write(into.first_chunk_mut().unwrap());
            16
        }
        Ok(Request::Announce(announce)) if announce.connection_id == ConnectionId(1) => {
            let seeders = u32::from(announce.left == 0);
            let transaction_id = announce.transaction_id;
            AnnounceHead { transaction_id, interval: 1800, leechers: 1 - seeders, seeders }
                .write(into.first_chunk_mut().unwrap());
            HEAD_LEN
        }
        Ok(Request::Scrape(request)) if request.connection_id == ConnectionId(1) => {
            scrape::write_head(request.transaction_id, into.first_chunk_mut().unwrap());
            let len = scrape::HEAD_LEN + scrape::COUNTS_LEN * request.info_hashes().len();
            into[scrape::HEAD_LEN..len].fill(0);
            len
        }
        _ => 0,
    }
}

fn respond(host: &mut Endpoint, buffers: &mut [Buffer; 64], lengths: &mut Vec<(usize, Return)>) {
    loop {
        lengths.clear();
        let batch = host.receive(buffers.len()).unwrap();
        if batch.is_empty() {
            break;
        }
        for (datagram, slot) in batch.iter() {
            let len = answer(datagram, &mut buffers[lengths.len()]);
            if len > 0 {
                lengths.push((len, slot.reply_to));
            }
        }
        let replies = lengths.iter().zip(&*buffers);
        host.send(replies.map(|((len, to), bytes)| Reply { bytes: &bytes[..*len], to }));
    }
}

#[test]
fn requests_allocate_nothing() {
    let network = Network::new(1, Default::default());
    let target: SocketAddr = "10.0.0.1:6969".parse().unwrap();
    let targets = [target];
    let mut host = network.bind(&targets).unwrap();
    let sources: Vec<_> = (1..=8u8).map(|n| [10, 0, 1, n].into()).collect();
    let addresses = Addresses::new(&sources);
    let routes =
        (0..8).flat_map(|n| routes(&addresses, &targets, Family::V4, n, n as u16)).collect();
    let profile = Profile::real();
    let swarms = Swarms { count: 10_000, ..profile.swarms };
    let plan = Plan::new(profile, Population::new(&swarms, 0.0, addresses, 1, false), 1);
    let settings = Settings { pace: Pace::InFlight(128), ..Settings::default() };
    let window = Window { start: 0, end: 10_000_000_000 };
    let bound: Vec<SocketAddr> = sources.iter().map(|ip| SocketAddr::new(*ip, 0)).collect();
    let socket = network.bind(&bound).unwrap();
    let mut generator = Generator::new(socket, &plan, routes, settings, window);
    let clock = || network.now().as_nanos() as u64;
    let (mut buffers, mut lengths) = ([[0; _]; 64], Vec::with_capacity(64));
    let mut turns = |count: u32| {
        for _ in 0..count {
            generator.turn(&clock).unwrap();
            respond(&mut host, &mut buffers, &mut lengths);
            network.advance(Duration::from_micros(100));
        }
        generator.tally().kinds[Kind::Announce as usize].right
    };
    let before = turns(100);
    let mut after = 0;
    let counted = allocation_counter::measure(|| after = turns(1000));
    assert!(after > before + 20_000, "{} announces", after - before);
    assert_eq!(counted.count_total, 0, "{counted:?}");
}
