//! In steady state a shard allocates nothing: announces of known peers, scrapes, unknown info
//! hashes, peers and swarms that are removed and added again, sweeps without expired peers.

use onrush_proto::announce::HEAD_LEN;
use onrush_proto::{Endpoint, Event, InfoHash, TransactionId};
use onrush_swarm::{Announce, Moment, Shard, ShardBatch, ShardSettings};

/// Swarms and their peers: within the entry, in a block, in chunks.
const SWARMS: [(u8, u32); 6] = [(1, 1), (2, 2), (3, 9), (4, 100), (5, 500), (6, 20_000)];

fn shard() -> Shard {
    let settings =
        ShardSettings { max_peers: 100_000, max_idle_swarms: 100, ..ShardSettings::default() };
    Shard::new(settings, [3; 16], 4)
}

fn announce(swarm: u8, number: u32, event: Event) -> Announce {
    let [a, b, c, d] = number.to_be_bytes();
    let endpoint = if number.is_multiple_of(3) && swarm > 2 {
        let mut row = [0x20; 18];
        row[10..14].copy_from_slice(&[a, b, c, d]);
        Endpoint::V6(row)
    } else {
        Endpoint::V4([a, b, c, d, 0x1A, 0xE1])
    };
    Announce {
        info_hash: InfoHash([swarm; 20]),
        endpoint,
        event,
        seeder: number.is_multiple_of(2),
        want: 60,
        transaction_id: TransactionId(number),
    }
}

/// Serves all requests of `fill`, in batches.
fn serve(
    shard: &mut Shard,
    batch: &mut ShardBatch<(), ()>,
    announces: impl Iterator<Item = Announce>,
) {
    for announce in announces {
        if batch.push_announce(announce, ()).is_err() {
            shard.serve(batch, Moment(100));
            assert_eq!(batch.replies().count(), batch.announces().len());
            batch.clear();
            batch.push_announce(announce, ()).unwrap();
        }
        // A known info hash and an unknown one.
        let _ = batch.push_scrape(&[announce.info_hash.0], ());
        let _ = batch.push_scrape(&[[0xFF; 20]], ());
    }
    shard.serve(batch, Moment(100));
    batch.clear();
}

fn all_peers(event: Event) -> impl Iterator<Item = Announce> {
    SWARMS
        .into_iter()
        .flat_map(move |(swarm, peers)| (0..peers).map(move |peer| announce(swarm, peer, event)))
}

/// One peer in twenty stops and returns; of the smallest swarms all peers, except one that keeps a
/// block allocated.
fn churn(event: Event) -> impl Iterator<Item = Announce> {
    all_peers(event).filter(|announce| match announce.info_hash.0[0] {
        1 | 2 => true,
        _ => announce.transaction_id.0 % 20 == 0,
    })
}

#[test]
fn nothing_is_allocated_in_steady_state() {
    let mut shard = shard();
    let mut batch = ShardBatch::new(64, 64, 64 * (HEAD_LEN + 60 * 18));
    serve(&mut shard, &mut batch, all_peers(Event::Started));
    // One round, so that all memory is allocated.
    serve(&mut shard, &mut batch, churn(Event::Stopped));
    serve(&mut shard, &mut batch, churn(Event::Started));
    let peers = shard.totals().peers();

    let steady = allocation_counter::measure(|| {
        for _ in 0..3 {
            serve(&mut shard, &mut batch, all_peers(Event::None));
            serve(&mut shard, &mut batch, churn(Event::Stopped));
            serve(&mut shard, &mut batch, churn(Event::Started));
            assert!(shard.sweep(Moment(101), usize::MAX).pass_finished);
        }
    });
    assert_eq!((shard.totals().peers(), shard.totals().expired), (peers, 0));
    assert_eq!(steady.count_total, 0, "{steady:?}");
}

#[test]
fn growth_allocates_far_less_than_once_per_peer() {
    let mut shard = shard();
    let mut batch = ShardBatch::new(64, 0, 64 * (HEAD_LEN + 60 * 18));
    let growth = allocation_counter::measure(|| {
        serve(&mut shard, &mut batch, all_peers(Event::Started));
    });
    let peers = shard.totals().peers();
    assert!(growth.count_total < peers / 2, "{growth:?} for {peers} peers");
    assert!(growth.count_total > 0, "allocations are counted");
}
