//! The time to write and to load the peers of a large tracker, and their size on disk: `cargo run
//! --release -p onrush-lab --bin snapshot [PEERS [SHARDS [DIRECTORY]]]`, by default 5 million peers
//! in two shards, two per swarm.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Instant;

use onrush_lab::population::info_hash;
use onrush_proto::Endpoint;
use onrush_store::snapshot::load::{LoadOptions, load};
use onrush_store::snapshot::write::write_all;
use onrush_swarm::{PeerView, Shard, ShardMap, ShardSettings};
use onrush_tracker::access::AccessList;
use onrush_tracker::clock::Clock;

/// Peers per swarm.
const EACH: u64 = 2;

fn shards(number: usize, peers: u64) -> Vec<Shard> {
    let settings = ShardSettings {
        peer_lifetime: 3600,
        max_peers: peers,
        max_idle_swarms: 1_000_000,
        ..ShardSettings::default()
    };
    (0..number).map(|n| Shard::new(settings, [n as u8 + 1; 16], n as u64)).collect()
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default| arguments.next().map_or(default, |it| it.parse().expect("a number"));
    let (peers, count) = (number(5_000_000), number(2) as usize);
    let directory = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let path = directory.join(format!("onrush-example-{}.snapshot", std::process::id()));
    let (clock, map) = (Clock::start(), ShardMap::new([1, 3, 5, 7, 9], count as u16));

    let mut full = shards(count, peers);
    let began = Instant::now();
    for swarm in 0..peers / EACH {
        let (name, now) = (info_hash(swarm as u32), clock.now().moment);
        let peer_views = (0..EACH).map(|peer| PeerView {
            endpoint: Endpoint::v4(Ipv4Addr::from((swarm * EACH + peer) as u32), 6_881),
            seeder: peer == 0,
            age: (swarm % 1_800) as u32,
        });
        full[map.shard_of(&name)].restore(name, swarm as u32 % 7, peer_views, now);
    }
    println!("filled:  {peers} peers in {:.2} s", began.elapsed().as_secs_f64());

    let written = write_all(&path, full, clock.now(), &mut || {}).expect("write the file");
    let seconds = written.seconds;
    let per_peer =
        (written.bytes as f64 - 32.0 * written.counts.records as f64) / written.counts.v4 as f64;
    println!("written: {written} ({seconds:.2} s with fsync)");
    println!("on disk: {per_peer:.2} bytes per IPv4 peer beside 32 per swarm");

    let mut empty = shards(count, peers);
    let options = LoadOptions { map, access: &AccessList::Open, now: clock.now(), extra_age: 0 };
    let began = Instant::now();
    let loaded = load(&path, empty.iter_mut().collect(), peers, options, &mut || {});
    println!(
        "loaded:  {} in {:.2} s",
        loaded.expect("a complete snapshot"),
        began.elapsed().as_secs_f64()
    );
    std::fs::remove_file(&path).expect("remove the file");
    // Skips freeing the process's memory piece by piece.
    std::mem::forget(empty);
}
