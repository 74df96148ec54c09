//! Round trips of snapshots over any number of shards; damage anywhere is detected.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crossbeam_channel::bounded;
use onrush_proto::{Endpoint, InfoHash};
use onrush_swarm::{Moment, PeerView, Shard, ShardMap, ShardSettings};
use proptest::prelude::*;
use tempfile::TempDir;

use super::encode::Encoder;
use super::format::{self, Damage};
use super::load::{LoadError, LoadOptions, Loaded, ReadError, Unread, load, load_at_start, verify};
use super::write::{write_all, write_file};
use crate::lists::access_list;
use onrush_config::settings::{Access, Listed};
use onrush_tracker::access::AccessList;
use onrush_tracker::clock::Now;
use onrush_tracker::lanes::ShardTask;
use onrush_tracker::stream::{Part, StreamTask};

const LIFETIME: u32 = 3600;
/// `limits.peers`.
const LIMIT: u64 = 1_000_000;
const NOW: Now = Now { moment: Moment(1 << 20), unix: 1_800_000_000 };

/// A swarm of the naive model: `completed`, seconds since its last peer left, peers with age and
/// kind.
type Swarm = (u32, Option<u32>, Peers);
type Peers = BTreeMap<Endpoint, (u32, bool)>;
type Model = BTreeMap<InfoHash, Swarm>;

fn shards(number: usize) -> Vec<Shard> {
    let settings = ShardSettings { peer_lifetime: LIFETIME, ..ShardSettings::default() };
    (0..number).map(|n| Shard::new(settings, [n as u8 + 1; 16], n as u64)).collect()
}

fn map(shards: usize) -> ShardMap {
    ShardMap::new([0x9E37_79B1, 3, 5, 7, 0x85EB_CA77 ^ shards as u32], shards as u16)
}

fn options(shards: usize) -> LoadOptions<'static> {
    LoadOptions { map: map(shards), access: &AccessList::Open, now: NOW, extra_age: 0 }
}

/// The path of a snapshot in a directory of its own.
fn path() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(super::FILE);
    (directory, path)
}

fn endpoint() -> impl Strategy<Value = Endpoint> {
    prop_oneof![
        3 => (0u32..3_000, 1u16..4).prop_map(|(ip, port)| Endpoint::v4(Ipv4Addr::from(ip), port)),
        1 => (0u128..3_000, 1u16..4).prop_map(|(ip, port)| Endpoint::v6(Ipv6Addr::from(ip), port)),
    ]
}

fn model() -> impl Strategy<Value = Model> {
    let peers = |number: Range<usize>| {
        let peer = (0u32..LIFETIME / 8, any::<bool>()).prop_map(|(age, seeder)| (age * 8, seeder));
        proptest::collection::btree_map(endpoint(), peer, number)
    };
    let swarm = prop_oneof![
        12 => (0u32..9, peers(1..40)).prop_map(|(completed, peers)| (completed, None, peers)),
        1 => (0u32..9, peers(200..900)).prop_map(|(completed, peers)| (completed, None, peers)),
        3 => (1u32..9, 0u32..80_000).prop_map(|(c, idle)| (c, Some(idle), BTreeMap::new())),
    ];
    proptest::collection::btree_map(any::<[u8; 20]>().prop_map(InfoHash), swarm, 0..30)
}

/// Shards with the swarms of a model.
fn filled(model: &Model, number: usize) -> Vec<Shard> {
    let (mut shards, map) = (shards(number), map(number));
    let mut idle: Vec<_> = Vec::new();
    for (info_hash, (completed, idle_for, peers)) in model {
        let shard = &mut shards[map.shard_of(info_hash)];
        if let Some(idle_for) = idle_for {
            idle.push((*idle_for, *info_hash, *completed));
            continue;
        }
        let peers =
            peers.iter().map(|(&endpoint, &(age, seeder))| PeerView { endpoint, seeder, age });
        shard.restore(*info_hash, *completed, peers, NOW.moment);
    }
    idle.sort_unstable_by(|a, b| b.cmp(a));
    for (idle_for, info_hash, completed) in idle {
        let shard = &mut shards[map.shard_of(&info_hash)];
        assert!(shard.restore_idle(info_hash, completed, idle_for, NOW.moment));
    }
    shards
}

/// The model of the swarms in shards.
fn seen(shards: &[Shard], now: Now) -> Model {
    let mut model = Model::new();
    for swarm in shards.iter().flat_map(|shard| shard.swarms(now.moment)) {
        let peers =
            swarm.peers.iter().map(|peer| (peer.endpoint, (peer.age, peer.seeder))).collect();
        let before = model.insert(swarm.info_hash, (swarm.completed, swarm.idle_for, peers));
        assert_eq!(before, None, "a swarm is in one shard");
    }
    model
}

fn loaded(path: &Path, number: usize, now: Now) -> (Result<Loaded, LoadError>, Model) {
    let mut shards = shards(number);
    let options = LoadOptions { now, ..options(number) };
    let loaded = load(path, shards.iter_mut().collect(), LIMIT, options, &mut || {});
    shards.iter().for_each(Shard::check);
    (loaded, seen(&shards, now))
}

/// A swarm of `peers` peers.
fn crowd(peers: u32) -> (InfoHash, (u32, Option<u32>, Peers)) {
    let peers = (0..peers).map(|n| (Endpoint::v4(Ipv4Addr::from(n), 1_000), (0, n % 2 == 0)));
    (InfoHash([9; 20]), (0, None, peers.collect()))
}

/// The bytes of a snapshot with a swarm of every form.
fn sample() -> Vec<u8> {
    let mut model = Model::new();
    let peer =
        |n: u32| (Endpoint::v4(Ipv4Addr::from(n), 6_881), (n % 450 * 8, n.is_multiple_of(2)));
    let v6 = |n: u128| (Endpoint::v6(Ipv6Addr::from(n), 6_881), (8, true));
    model.insert(InfoHash([1; 20]), (3, None, (0..2).map(peer).collect()));
    model.insert(InfoHash([2; 20]), (0, None, (0..9).map(peer).chain((0..3).map(v6)).collect()));
    model.insert(InfoHash([3; 20]), (7, Some(99), BTreeMap::new()));
    bytes(filled(&model, 2))
}

fn bytes(shards: Vec<Shard>) -> Vec<u8> {
    let (_directory, path) = path();
    write_all(&path, shards, NOW, &mut || {}).unwrap();
    fs::read(&path).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// The swarms of some shards, written and loaded into another number of shards, are the same.
    #[test]
    fn a_snapshot_round_trips(model in model(), before in 1usize..4, after in 1usize..5) {
        let (_directory, path) = path();
        let written = write_all(&path, filled(&model, before), NOW, &mut || {}).unwrap();
        let peers: usize = model.values().map(|(_, _, peers)| peers.len()).sum();
        prop_assert_eq!(written.counts.v4 + written.counts.v6, peers as u64);
        prop_assert_eq!(written.bytes, fs::metadata(&path).unwrap().len());
        prop_assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let (result, got) = loaded(&path, after, NOW);
        let result = result.unwrap();
        prop_assert_eq!((result.peers.stored, result.age), (peers as u64, 0));
        prop_assert_eq!(got, model);
    }

    /// Downtime adds to the age of peers and expires some.
    #[test]
    fn downtime_ages_peers(model in model(), down in 0u32..1_000) {
        let down = down * 8;
        let (_directory, path) = path();
        write_all(&path, filled(&model, 1), NOW, &mut || {}).unwrap();
        let later = Now { moment: Moment(1 << 21), unix: NOW.unix + u64::from(down) };
        let (result, got) = loaded(&path, 2, later);
        prop_assert_eq!(result.unwrap().age, u64::from(down));
        for (name, (completed, idle_for, peers)) in &model {
            let live: BTreeMap<_, _> = peers.iter()
                .map(|(peer, (age, seeder))| (*peer, (age + down, *seeder)))
                .filter(|(_, (age, _))| *age <= LIFETIME).collect();
            // Idle since its last peer left or expired.
            let youngest = peers.values().map(|(age, _)| *age).min();
            let idle = match (idle_for, youngest) {
                _ if !live.is_empty() => None,
                (Some(idle_for), _) => Some(idle_for + down),
                (None, youngest) => Some((youngest.unwrap() + down).saturating_sub(LIFETIME)),
            };
            let kept = idle.is_none_or(|idle| *completed > 0 && idle < 86_400);
            let expected = kept.then_some((*completed, idle, live));
            prop_assert_eq!(got.get(name), expected.as_ref());
        }
    }

    /// Arbitrary bytes neither cause a panic nor an allocation larger than a block.
    #[test]
    fn arbitrary_bytes_are_refused(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..300),
        whole: bool,
    ) {
        if whole {
            let mut file = format::head(1).to_vec();
            file.append(&mut bytes);
            bytes = file;
        }
        let verified = verify(bytes.as_slice(), &mut || {});
        prop_assert!(verified.is_err());
    }
}

#[test]
fn every_changed_byte_is_detected() {
    let sample = sample();
    assert_eq!(verify(sample.as_slice(), &mut || {}).unwrap().v4, 11);
    for at in 0..sample.len() {
        for bits in [1, 0x80, 0xFF] {
            let mut changed = sample.clone();
            changed[at] ^= bits;
            let Err(ReadError::Damage(_)) = verify(changed.as_slice(), &mut || {}) else {
                panic!("byte {at} changed by {bits:#x} is not detected");
            };
        }
    }
}

#[test]
fn every_truncation_is_detected() {
    let mut sample = sample();
    for len in 0..sample.len() {
        let Err(ReadError::Damage(damage)) = verify(&sample[..len], &mut || {}) else {
            panic!("{len} of {} bytes are not detected", sample.len());
        };
        let expected = if len == 0 { Damage::Truncated } else { damage };
        assert_eq!(damage, expected);
    }
    sample.push(0);
    assert!(matches!(
        verify(sample.as_slice(), &mut || {}),
        Err(ReadError::Damage(Damage::TrailingBytes))
    ));
}

#[test]
fn another_version_is_an_error_that_names_both() {
    let mut head = format::head(7);
    head[17] = 9;
    let checksum = crc32fast::hash(&head[..28]);
    head[28..].copy_from_slice(&checksum.to_be_bytes());
    let error = verify(head.as_slice(), &mut || {}).unwrap_err().to_string();
    assert!(error.contains("version 9") && error.contains("reads version 1"), "{error}");
}

#[test]
fn a_damaged_file_is_renamed_and_changes_no_shard() {
    let (_directory, path) = path();
    let mut damaged = sample();
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    for content in [b"something else".to_vec(), Vec::new(), damaged] {
        fs::write(&path, &content).unwrap();
        let mut shards = shards(1);
        let warning =
            load_at_start(&path, shards.iter_mut().collect(), LIMIT, options(1), &mut || {});
        let warning = warning.unwrap().unwrap();
        let aside = format!("{}.damaged-{}", path.display(), NOW.unix);
        assert!(warning.contains(&aside), "{warning}");
        assert!(!path.exists());
        assert_eq!(fs::read(&aside).unwrap(), content);
        assert_eq!(shards[0].totals().peers() + shards[0].totals().idle_swarms, 0);
    }
    assert_eq!(
        load_at_start(&path, Vec::new(), LIMIT, options(1), &mut || {}),
        Ok(None),
        "no file"
    );
}

/// Such a file may hold all peers: a directory, a link, a pipe, or a file of another user.
#[test]
fn a_file_that_cannot_be_read_stays_in_its_place() {
    let without_rights = |run: &mut (dyn FnMut() + Send)| {
        let run = || {
            caps::clear(None, caps::CapSet::Effective).unwrap();
            run();
        };
        std::thread::scope(|scope| scope.spawn(run).join().unwrap());
    };
    let plant: [fn(&Path); 4] = [
        |path| fs::create_dir(path).unwrap(),
        |path| std::os::unix::fs::symlink("elsewhere", path).unwrap(),
        |path| nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap(),
        |path| {
            fs::write(path, sample()).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o000)).unwrap();
        },
    ];
    for plant in plant {
        let (directory, path) = path();
        plant(&path);
        without_rights(&mut || {
            let unread =
                load_at_start(&path, Vec::new(), LIMIT, options(1), &mut || {}).unwrap_err();
            assert_eq!(Unread::at(&path).as_ref(), Some(&unread));
            let text = unread.to_string();
            assert!(text.contains(path.to_str().unwrap()) && text.contains("restart"), "{text}");
            assert!(unread.is_there());
            assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
            fs::rename(&path, directory.path().join("away")).unwrap();
            assert!(!unread.is_there() && Unread::at(&path).is_none());
        });
    }
}

#[test]
fn an_error_of_writing_names_the_file_and_a_full_disk_its_room() {
    let (_directory, path) = path();
    fs::write(&path, sample()).unwrap();
    let text = |kind: ErrorKind| {
        let error = write_file(&path, NOW.unix, |_| Err(kind.into())).unwrap_err();
        assert_eq!(error.kind(), kind);
        error.to_string()
    };
    let former = format!("of {} bytes", sample().len());
    for (kind, full) in [(ErrorKind::StorageFull, true), (ErrorKind::Interrupted, false)] {
        let text = text(kind);
        assert!(text.contains(path.to_str().unwrap()), "{text}");
        assert_eq!(text.contains(&former), full, "{text}");
    }
    assert_eq!(fs::read(&path).unwrap(), sample());
}

#[test]
fn a_clock_set_back_does_not_age_peers() {
    let (_directory, path) = path();
    fs::write(&path, sample()).unwrap();
    let (result, _) = loaded(&path, 1, Now { unix: NOW.unix - 100_000, ..NOW });
    let result = result.unwrap();
    assert_eq!((result.age, result.peers.stored, result.peers.expired), (0, 14, 0));
}

#[test]
fn refused_swarms_are_not_loaded() {
    let (_directory, path) = path();
    fs::write(&path, sample()).unwrap();
    let listed = Listed { hashes: vec![InfoHash([2; 20]), InfoHash([3; 20])], ..Listed::default() };
    let access = access_list(&Access::Deny(listed), 0, &mut || {}).unwrap();
    let mut shards = shards(1);
    let options = LoadOptions { access: &access, ..options(1) };
    let result = load(&path, shards.iter_mut().collect(), LIMIT, options, &mut || {}).unwrap();
    assert_eq!((result.forbidden, result.peers.stored), (2, 2));
}

/// A full tracker is loaded by another number of shards, over which its peers do not spread evenly:
/// most are of one swarm. Some were replaced after they had been written.
#[test]
fn a_full_tracker_fits_into_another_number_of_shards() {
    const LIMIT: u64 = 3_000;
    const RECORDS: u64 = LIMIT + 20;
    let (_directory, path) = path();
    let peer = |n: u32| [(Endpoint::v4(Ipv4Addr::from(n), 1_000), (0, true))].into();
    let single = |n: u32| (InfoHash(std::array::from_fn(|at| n.to_be_bytes()[at % 4])), peer(n));
    let singles = (0..RECORDS as u32 - 2_000).map(single);
    let mut model: Model = singles.map(|(hash, peers)| (hash, (0, None, peers))).collect();
    model.extend([crowd(2_000)]);
    fs::write(&path, bytes(filled(&model, 3))).unwrap();
    for number in [1, 2, 5] {
        let max_peers = LIMIT / number;
        let settings = ShardSettings { max_peers, ..ShardSettings::default() };
        let mut shards: Vec<_> = (0..number).map(|n| Shard::new(settings, [1; 16], n)).collect();
        let load = |shards: &mut [Shard], limit| {
            let all = shards.iter_mut().collect();
            load(&path, all, limit, options(number as usize), &mut || {}).unwrap().peers
        };
        // The operator has lowered the limit.
        let lowered = load(&mut shards, LIMIT / 2);
        assert!(lowered.full >= RECORDS - LIMIT, "{lowered:?}");
        assert!(shards.iter().all(|shard| shard.totals().peers() <= max_peers));
        let loaded = load(&mut shards, LIMIT);
        assert_eq!((loaded.stored, loaded.full), (RECORDS, 0), "{number} shards");
        shards.iter().for_each(Shard::check);
    }
}

/// On disk: 32 bytes per swarm, 8 per IPv4 peer, 20 per IPv6 peer, and at most 2 % more.
#[test]
fn a_snapshot_is_compact() {
    let mut model = Model::new();
    for swarm in 0..2_000u32 {
        let mut name = [7; 20];
        name[..4].copy_from_slice(&swarm.to_be_bytes());
        let v4 = (0..2).map(|n| (Endpoint::v4(Ipv4Addr::from(n), 1_000), (0, true)));
        let v6 = (0..1).map(|n| (Endpoint::v6(Ipv6Addr::from(n), 1_000), (0, true)));
        model.insert(InfoHash(name), (0, None, v4.chain(v6).collect()));
    }
    model.extend([crowd(50_000)]);
    let len = bytes(filled(&model, 2)).len();
    let least = 2_001 * 32 + 54_000 * 8 + 2_000 * 20;
    assert!((least..least + least / 50).contains(&len), "{len} bytes, {least} at least");
}

/// A full channel pauses the dump of a running shard, not its worker.
#[test]
fn a_dump_continues_after_a_full_channel() {
    let mut shard = filled(&Model::from([crowd(60_000)]), 1).remove(0);
    let (to, parts) = bounded(1);
    let mut dump = StreamTask::new(Encoder::default(), to);
    let (mut blocks, mut peers, mut waited) = (0, 0, 0);
    let mut later = NOW;
    loop {
        // More steps than a message needs, without a receive.
        let steps = (0..200).take_while(|_| dump.step(&mut shard, later)).count();
        assert_eq!(dump.is_waiting(), steps == 200);
        waited += usize::from(steps == 200);
        later.moment = later.moment.after(100);
        match parts.try_recv() {
            Ok(Part::Message(block)) => (blocks, peers) = (blocks + 1, peers + block.counts.v4),
            Ok(Part::End) => break,
            Err(error) => panic!("after {blocks} blocks: {error}"),
        }
    }
    assert!(blocks > 2 && waited > 2, "{blocks} blocks, waited {waited} times");
    assert_eq!(peers, 60_000);
}

/// Other tasks wait behind a dump: one whose messages are not received ends.
#[test]
fn a_dump_ends_when_its_messages_are_not_received() {
    let mut shard = filled(&Model::from([crowd(60_000)]), 1).remove(0);
    let (to, parts) = bounded(1);
    let mut dump = StreamTask::new(Encoder::default(), to);
    let mut now = NOW;
    let mut seconds = 0;
    while (0..200).all(|_| dump.step(&mut shard, now)) {
        now.moment = now.moment.after(1);
        seconds += 1;
    }
    assert!((60..200).contains(&seconds), "after {seconds} s");
    drop(dump);
    assert!(matches!(parts.recv(), Ok(Part::Message(_))));
    assert!(parts.recv().is_err(), "no end of the shard is sent");
}
