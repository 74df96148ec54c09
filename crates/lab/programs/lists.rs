//! The cost of a list of info hashes: reading and sorting it, bytes per hash, and nanoseconds per
//! lookup, cold and warm, of hashes that are listed and hashes that are not.
//!
//!     cargo run --release -p onrush-lab --bin lists [MILLIONS]
//!
//! Lookups run in sequence; before cold ones 256 MiB of other memory are touched. "In batches" is
//! the worker's way: it reads ahead for the datagrams of a batch, then looks each one up and
//! branches on the result; the time covers both. "Alone" is a lookup without read-ahead. With
//! "waiting", the next hash depends on the previous result, so that no two lookups overlap; a
//! worker never does that. The cost of the loop and of a call with a hash is measured with an empty
//! function, and subtracted.

use std::hint::black_box;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use onrush_config::settings::{Access, Listed};
use onrush_config::values::ListFile;
use onrush_proto::InfoHash;
use onrush_tracker::access::AccessList;
use onrush_tracker::access::addresses::{AddressBlock, AddressSet};
use onrush_tracker::access::bogon::is_bogon;
use onrush_tracker::access::overlay::ListChange;
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};

/// More than the caches of any processor hold.
const POLLUTION: usize = 256 << 20;
const LOOK_UPS: usize = 20_000;
/// Datagrams per batch under load (`socket.batch`).
const BATCH: usize = 128;

fn main() {
    let millions: f64 = std::env::args().nth(1).map_or(1.0, |text| text.parse().expect("a number"));
    let mut rng = SmallRng::seed_from_u64(1);
    let hashes: Vec<InfoHash> =
        (0..(millions * 1e6) as usize).map(|_| InfoHash(rng.random())).collect();
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    let text: String = hashes.iter().map(|hash| format!("{hash}\n")).collect();
    file.write_all(text.as_bytes()).expect("write the file");
    drop(text);
    let files = vec![ListFile { path: file.path().to_owned(), error: None }];
    let listed = Listed { files, ..Listed::default() };
    let start = Instant::now();
    let list = onrush_store::lists::access_list(&Access::Deny(listed), hashes.len(), &mut || {})
        .expect("a valid list");
    println!("{} hashes read and sorted in {:.2} s", list.len(), start.elapsed().as_secs_f64());
    let inside = list.set().expect("the configuration has a deny list");
    println!("{:.1} bytes per hash", inside.bytes() as f64 / inside.len() as f64);

    let strangers: Vec<InfoHash> = (0..LOOK_UPS).map(|_| InfoHash(rng.random())).collect();
    let known: Vec<InfoHash> =
        (0..LOOK_UPS).map(|_| hashes[rng.random_range(0..hashes.len())]).collect();
    drop(hashes);
    let mut pollution = vec![1u8; POLLUTION];
    println!("{:<36}{:>12}{:>12}", "", "cold, ns", "warm, ns");
    let changed = with_changes(&list, &mut rng);
    for (name, asked) in [("strangers", &strangers), ("listed", &known)] {
        for (how, ahead, waiting, list) in [
            ("in batches", true, false, &list),
            ("alone", false, false, &list),
            ("in batches, waiting", true, true, &list),
            ("alone, waiting", false, true, &list),
            ("in batches, after changes", true, false, &changed),
        ] {
            let loops = Loop { list, ahead, waiting };
            print(&format!("{name}, {how}"), asked, &mut pollution, |asked| loops.times(asked));
        }
    }
    sources(&mut rng, &mut pollution);
}

/// The list after a thousand additions and a thousand removals.
fn with_changes(list: &AccessList, rng: &mut SmallRng) -> AccessList {
    let added = (0..1_000).map(|_| ListChange::new(InfoHash(rng.random()), true));
    let all = list.set().expect("the configuration has a deny list").iter();
    let removed = all.step_by((list.len() / 1_000).max(1)).take(1_000);
    let removed = removed.map(|hash| ListChange::new(InfoHash(*hash), false));
    list.with(&added.chain(removed).collect::<Vec<_>>())
}

/// Lookups of sources, each waiting for the previous one.
fn sources(rng: &mut SmallRng, pollution: &mut [u8]) {
    let asked: Vec<Ipv4Addr> = (0..LOOK_UPS).map(|_| Ipv4Addr::from_bits(rng.random())).collect();
    println!("{:<36}{:>12}{:>12}", "sources", "cold, ns", "warm, ns");
    for ranges in [100, 1_000, 200_000] {
        let blocks = (0..ranges).map(|_| {
            let first = rng.random::<u32>() & !255;
            AddressBlock::V4(Ipv4Addr::from_bits(first), Ipv4Addr::from_bits(first | 255))
        });
        let list = AddressSet::new(blocks.collect::<Vec<_>>());
        let name = format!("{} ranges", list.len());
        row(&name, &asked, pollution, |source| list.contains_v4(source));
    }
    row("bogons", &asked, pollution, |source| is_bogon(source.into()));
}

fn row(name: &str, asked: &[Ipv4Addr], pollution: &mut [u8], look_up: impl Fn(Ipv4Addr) -> bool) {
    let loops = |asked: &[Ipv4Addr]| {
        black_box(asked.iter().map(|source| u64::from(source.to_bits())).sum::<u64>());
        [time(asked, &look_up), time(asked, |source| source.to_bits() == 1)]
    };
    print(name, asked, pollution, loops);
}

/// Prints the nanoseconds per lookup of a loop with lookups less those of the same loop without
/// them, cold and warm. `loops` reads `asked` once, so that fetching it is not measured, then runs
/// both loops.
fn print<T>(name: &str, asked: &[T], pollution: &mut [u8], loops: impl Fn(&[T]) -> [Duration; 2]) {
    let per_look_up = |asked: &[T], times, before: &mut dyn FnMut()| {
        let mut least = [Duration::MAX; 2];
        for _ in 0..times {
            before();
            let taken = loops(asked);
            least = std::array::from_fn(|at| least[at].min(taken[at]));
        }
        let [with, without] = least;
        with.saturating_sub(without).as_nanos() as f64 / asked.len() as f64
    };
    let cold = per_look_up(asked, 5, &mut || pollute(pollution));
    // So few that all the memory they touch stays in the nearest caches.
    let warm = per_look_up(&asked[..64], 5_000, &mut || {});
    println!("{name:<36}{cold:>12.1}{warm:>12.1}");
}

fn time(asked: &[Ipv4Addr], look_up: impl Fn(Ipv4Addr) -> bool) -> Duration {
    let (start, mut before) = (Instant::now(), 0);
    for at in 0..asked.len() - 2 {
        let source = *black_box(&asked[at + (before & 2)]);
        before = black_box(usize::from(look_up(source)));
    }
    black_box(before);
    start.elapsed()
}

/// A sequence of lookups.
struct Loop<'a> {
    list: &'a AccessList,
    /// Whether the memory of a batch is read ahead.
    ahead: bool,
    /// Whether each lookup waits for the result of the previous one.
    waiting: bool,
}

impl Loop<'_> {
    /// The times of the loop with lookups and without them.
    fn times(&self, asked: &[InfoHash]) -> [Duration; 2] {
        black_box(asked.iter().map(|hash| u64::from(hash.0[0])).sum::<u64>());
        let with = self.time(asked, |hash| self.list.permits(hash));
        [with, Self { ahead: false, ..*self }.time(asked, nothing)]
    }

    fn time(&self, asked: &[InfoHash], look_up: impl Fn(InfoHash) -> bool) -> Duration {
        let start = Instant::now();
        let (mut before, mut yes) = (0, 0);
        for batch in asked.chunks(BATCH) {
            if self.ahead {
                let mut names = [&[0; 20]; BATCH];
                names.iter_mut().zip(batch).for_each(|(name, hash)| *name = &hash.0);
                self.list.prefetch(&names[..batch.len()]);
            }
            for at in 0..batch.len() {
                // It never changes the next hash, but neither compiler nor processor can know that.
                let hash = *black_box(&batch[at + (before & 2)]);
                if self.waiting {
                    before = black_box(usize::from(look_up(hash)));
                } else if look_up(hash) {
                    yes += 1;
                    black_box(&mut yes);
                }
            }
        }
        black_box((before, yes));
        start.elapsed()
    }
}

/// Has the signature of a lookup.
#[inline(never)]
fn nothing(info_hash: InfoHash) -> bool {
    info_hash.0[19] == 0
}

fn pollute(memory: &mut [u8]) {
    memory.iter_mut().step_by(64).for_each(|byte| *byte = byte.wrapping_add(1));
    black_box(memory);
}
