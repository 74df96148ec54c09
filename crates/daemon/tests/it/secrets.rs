//! Snapshots and the dumps of upgrades contain no secret, and do not depend on the number of
//! shards.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use crossbeam_channel::never;
use onrush_net::memory::{Conditions, Endpoint as Client, Network};
use onrush_net::{Reply, Return, Socket};
use onrush_proto::{Announce, InfoHash};
use onrush_store::snapshot::encode::Encoder;
use onrush_store::snapshot::format::{BLOCK_HEAD_LEN, BlockHead, HEAD_LEN, Peers, Records};
use onrush_store::snapshot::write::SnapshotWriter;
use onrush_store::snapshot::write::write_all;
use onrush_store::stream::ShardStream;
use onrush_testing::memory_tracker::{TRACKER_V4, TestTracker, announce, at, connect, settings};
use onrush_tracker::assemble::Secrets;
use onrush_tracker::connection::{Key, Keys};
use onrush_tracker::orders::Orders;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

/// Length of a piece of a secret; shorter pieces would be found by chance.
const PIECE: usize = 4;

/// The files that a tracker writes, and its secrets.
struct Written {
    dump: Vec<u8>,
    snapshot: Vec<u8>,
    mode: u32,
    secrets: Vec<Vec<u8>>,
}

/// Serves swarms of one to 200 peers, then writes a snapshot and a dump.
fn written(workers: usize, seed: u64) -> Written {
    let mut rng = SmallRng::seed_from_u64(seed);
    let keys = Keys { current: Key(rng.random()), previous: Some(Key(rng.random())) };
    let (shard_key, table_key, seed) = (rng.random(), rng.random(), rng.random());
    let secrets = Secrets { keys, shard_key, table_key, seed };
    let text = format!("[workers]\nplacement = \"colocated\"\ntotal = {workers}\n");
    let network = Network::new(1, Conditions::default());
    let mut world = TestTracker::new(&settings(&text), &secrets, &network, |socket| socket);
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
    let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
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
    Written { dump, snapshot: fs::read(&path).unwrap(), mode, secrets }
}

fn name(swarm: u8) -> InfoHash {
    InfoHash([swarm.wrapping_mul(37) ^ 0x5A; 20])
}

fn announce_once(world: &mut TestTracker<Client>, client: &mut Client, announce: &Announce<'_>) {
    let mut bytes = [0; 98];
    announce.write(&mut bytes);
    let to = Return::to(TRACKER_V4.parse().unwrap(), 0);
    client.send(std::iter::once(Reply { bytes: &bytes, to: &to }));
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
    while let Some(block) = blocks.next::<()>(&never()).unwrap() {
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

type Swarms = BTreeMap<InfoHash, (u32, Vec<Vec<u8>>)>;

/// The swarms of a snapshot, without lengths, checksums and times.
fn swarms(mut bytes: &[u8]) -> Swarms {
    let mut swarms = Swarms::new();
    bytes = &bytes[HEAD_LEN..];
    loop {
        let (head, rest) = bytes.split_first_chunk::<BLOCK_HEAD_LEN>().unwrap();
        let head = BlockHead::read(*head).unwrap();
        let (block, rest) = rest.split_at(head.len);
        assert_eq!(head.unix, at(1_010).unix);
        if head.is_end {
            assert!(rest.is_empty());
            return swarms;
        }
        for record in Records::new(block) {
            let record = record.unwrap();
            let Peers::Rows(v4, v6) = record.peers else { panic!("a swarm without peers") };
            let (completed, peers) = swarms.entry(record.info_hash).or_default();
            *completed = record.completed;
            peers.extend(v4.iter().map(|row| row.to_vec()));
            peers.extend(v6.iter().map(|row| row.to_vec()));
            peers.sort();
        }
        bytes = rest;
    }
}

#[test]
fn snapshots_and_upgrade_dumps_contain_no_secret() {
    let written = written(3, 1);
    assert_eq!(written.mode, 0o600);
    for (number, secret) in written.secrets.iter().enumerate() {
        for (what, bytes) in [("snapshot", &written.snapshot), ("dump", &written.dump)] {
            assert!(bytes.len() > 4_000, "{} bytes of {what}", bytes.len());
            assert!(!contains_piece_of(bytes, secret), "secret {number} in the {what}");
            // The search finds a piece that is present.
            let middle = secret.len() / 2;
            let leaky = [bytes, &secret[middle - 2..middle + 2], bytes].concat();
            assert!(contains_piece_of(&leaky, secret));
        }
    }
}

#[test]
fn snapshots_do_not_depend_on_secrets_or_shards() {
    let (one, three) = (written(1, 2), written(3, 3));
    assert_ne!(one.secrets, three.secrets);
    let expected = swarms(&one.snapshot);
    assert_eq!((expected.len(), expected[&name(7)].1.len()), (40, 200));
    for bytes in [&one.dump, &three.snapshot, &three.dump] {
        assert_eq!(swarms(bytes), expected);
    }
}
