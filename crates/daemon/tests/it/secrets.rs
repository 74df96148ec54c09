//! Snapshots and the dumps of upgrades contain no secret.

use std::fs;

use crossbeam_channel::Receiver;
use onrush_net::Socket;
use onrush_net::memory::{Conditions, Endpoint as Client, Network};
use onrush_proto::{Announce, InfoHash};
use onrush_store::snapshot::encode::Encoder;
use onrush_store::snapshot::write::{SnapshotWriter, write_all};
use onrush_testing::memory_tracker::{TestTracker, announce, at, connect, send, settings};
use onrush_tracker::assemble::Secrets;
use onrush_tracker::connection::{Key, Keys};
use onrush_tracker::orders::Orders;
use onrush_tracker::stream::ShardStream;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::harness::mode;

/// Length of a piece of a secret; shorter pieces would be found by chance.
const PIECE: usize = 4;

/// Serves swarms of one to 200 peers, then writes a snapshot and a dump; both, and the secrets.
fn written() -> ([Vec<u8>; 2], Vec<Vec<u8>>) {
    let mut rng = SmallRng::seed_from_u64(1);
    let keys = Keys { current: Key(rng.random()), previous: Some(Key(rng.random())), next: None };
    let (shard_key, table_key, seed) = (rng.random(), rng.random(), rng.random());
    let secrets = Secrets { keys, shard_key, table_key, seed };
    let text = "[workers]\nplacement = \"colocated\"\ntotal = 3\n\
                [limits]\nsource_peers_per_swarm = 0\n";
    let network = Network::new(1, Conditions::default());
    let mut world = TestTracker::new(&settings(text), &secrets, &network, |socket| socket);
    let mut client = network.bind(&["198.51.100.1:6881".parse().unwrap()]).unwrap();
    let id = connect(&mut world, &mut client, 0, at(1_000));
    for swarm in 0..40u8 {
        for peer in 0..if swarm == 7 { 200 } else { u16::from(swarm % 9) + 1 } {
            let port = 6_000 + peer;
            announce_once(&mut world, &mut client, &Announce { port, ..announce(id, name(swarm)) });
        }
    }
    let dump = dumped(&mut world);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("onrush.snapshot");
    let shards = world.workers.iter_mut().map(|it| it.swarm_side.take().unwrap().shard).collect();
    write_all(&path, shards, at(1_010), &mut || {}).unwrap();
    assert_eq!(mode(&path), 0o600);
    let words = |bytes: fn(u32) -> [u8; 4]| secrets.shard_key.map(bytes).as_flattened().to_vec();
    let secrets = vec![
        secrets.keys.current.0.to_vec(),
        secrets.keys.previous.unwrap().0.to_vec(),
        secrets.table_key.to_vec(),
        words(u32::to_be_bytes),
        words(u32::to_le_bytes),
        seed.to_be_bytes().to_vec(),
        id.0.to_be_bytes().to_vec(),
    ];
    ([fs::read(&path).unwrap(), dump], secrets)
}

fn name(swarm: u8) -> InfoHash {
    InfoHash([swarm.wrapping_mul(37) ^ 0x5A; 20])
}

fn announce_once(world: &mut TestTracker<Client>, client: &mut Client, announce: &Announce<'_>) {
    let mut bytes = [0; 98];
    announce.write(&mut bytes);
    send(client, 0, &bytes);
    world.settle(at(1_001));
    assert_eq!(client.receive(8).unwrap().iter().count(), 1, "one reply");
}

/// The dump that a successor receives from running workers.
fn dumped(world: &mut TestTracker<Client>) -> Vec<u8> {
    let orders = Orders::new(
        &world.workers[0].mailboxes,
        world.workers.len(),
        world.workers[0].owners.clone(),
    );
    let mut blocks = ShardStream::start(&orders, Encoder::default).unwrap();
    world.settle(at(1_010));
    let mut writer = SnapshotWriter::begin(Vec::new(), at(1_010).unix).unwrap();
    while let Some(block) = blocks.next_by(Receiver::recv).unwrap() {
        writer.block(&block).unwrap();
    }
    writer.end(at(1_010).unix).unwrap().0
}

/// Whether the bytes contain a piece of a secret: plain, reversed, or in hexadecimal.
fn contains_piece_of(bytes: &[u8], secret: &[u8]) -> bool {
    let hex: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
    let backwards: Vec<u8> = secret.iter().rev().copied().collect();
    let digits = [hex.to_ascii_uppercase(), hex].map(String::into_bytes);
    let there = |piece: &[u8]| bytes.windows(piece.len()).any(|window| window == piece);
    [secret, &backwards].iter().any(|it| it.windows(PIECE).any(there))
        || digits.iter().any(|it| it.windows(2 * PIECE).any(there))
}

#[test]
fn snapshots_and_upgrade_dumps_contain_no_secret() {
    let (files, secrets) = written();
    for (number, secret) in secrets.iter().enumerate() {
        for (what, bytes) in ["snapshot", "dump"].iter().zip(&files) {
            assert!(bytes.len() > 4_000, "{} bytes of {what}", bytes.len());
            assert!(!contains_piece_of(bytes, secret), "secret {number} in the {what}");
            // The search finds a piece that is present.
            let middle = secret.len() / 2;
            let leaky = [bytes, &secret[middle - 2..middle + 2], bytes].concat();
            assert!(contains_piece_of(&leaky, secret));
        }
    }
}
