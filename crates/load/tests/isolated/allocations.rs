//! A warmed-up run allocates nothing per request.

use std::net::SocketAddr;
use std::time::Duration;

use onrush_load::generator::Generator;
use onrush_load::plan::population::{Addresses, Population};
use onrush_load::plan::{Kind, Plan, Profile, profile::Swarms};
use onrush_load::sources::routes;
use onrush_load::worker::{LoadSettings, Pace, Window, Worker as _};
use onrush_net::memory::{Endpoint, Network};
use onrush_net::{Reply, Socket};
use onrush_proto::Family;

use super::faulty::{Fault, Tracker};

fn respond(host: &mut Endpoint, tracker: &mut Tracker) {
    loop {
        let batch = host.receive(64).unwrap();
        if batch.is_empty() {
            break;
        }
        let replies: Vec<_> = batch
            .iter()
            .flat_map(|(bytes, slot)| {
                tracker
                    .answer(bytes, slot.source)
                    .into_iter()
                    .map(move |reply| (reply, slot.reply_to))
            })
            .collect();
        host.send(replies.iter().map(|(bytes, to)| Reply { bytes, to }));
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
    let settings = LoadSettings { pace: Pace::InFlight(128), ..LoadSettings::default() };
    let window = Window { start: 0, end: 10_000_000_000 };
    let bound: Vec<SocketAddr> = sources.iter().map(|ip| SocketAddr::new(*ip, 0)).collect();
    let socket = network.bind(&bound).unwrap();
    let mut generator = Generator::new(socket, &plan, routes, settings, 0, window);
    let clock = || network.now().as_nanos() as u64;
    let mut tracker = Tracker::new(Fault::Nothing);
    let mut turns = |count: u32| {
        let mut allocations = 0;
        for _ in 0..count {
            let counted = allocation_counter::measure(|| {
                generator.turn(&clock).unwrap();
            });
            allocations += counted.count_total;
            respond(&mut host, &mut tracker);
            network.advance(Duration::from_micros(100));
        }
        (generator.counts().tally.kinds[Kind::Announce as usize].right, allocations)
    };
    let (before, _) = turns(100);
    let (after, allocations) = turns(1000);
    assert!(after > before + 20_000, "{} announces", after - before);
    assert_eq!(allocations, 0);
}
