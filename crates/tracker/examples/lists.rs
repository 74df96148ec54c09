//! What a list of info hashes costs: reading and sorting it, bytes per hash, and nanoseconds per look-up,
//! cold and warm, of hashes that are listed and of strangers.
//!
//!     cargo run --release -p onrush --example lists [MILLIONS]
//!
//! Cold look-ups come one after the other, each of a hash that nothing was done with for at least 256 MiB of
//! other memory; each waits for the one before it, as nothing overlaps in a single request. What the loop itself
//! costs (the hashes come from memory too) is measured with a look-up left out, and subtracted.

use std::hint::black_box;
use std::io::Write as _;
use std::time::{Duration, Instant};

use onrush::access::AccessList;
use onrush::settings::{Access, Listed};
use onrush_proto::InfoHash;
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};

/// More than the caches of any processor hold.
const POLLUTION: usize = 256 << 20;
const LOOK_UPS: usize = 20_000;

fn main() {
    let millions: f64 = std::env::args().nth(1).map_or(1.0, |text| text.parse().expect("a number"));
    let mut rng = SmallRng::seed_from_u64(1);
    let hashes: Vec<InfoHash> =
        (0..(millions * 1e6) as usize).map(|_| InfoHash(rng.random())).collect();
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    let text: String = hashes.iter().map(|hash| format!("{hash}\n")).collect();
    file.write_all(text.as_bytes()).expect("it can be written");
    drop(text);
    let listed = Listed { hashes: Vec::new(), file: Some(file.path().to_owned()) };
    let start = Instant::now();
    let list = AccessList::load(&Access::Deny(listed), hashes.len()).expect("it is a list");
    println!("{} hashes read and sorted in {:.2} s", list.len(), start.elapsed().as_secs_f64());
    let AccessList::Deny(inside) = &list else { unreachable!("a deny list was asked for") };
    println!("{:.1} bytes per hash", inside.bytes() as f64 / inside.len() as f64);

    let strangers: Vec<InfoHash> = (0..LOOK_UPS).map(|_| InfoHash(rng.random())).collect();
    let known: Vec<InfoHash> =
        (0..LOOK_UPS).map(|_| hashes[rng.random_range(0..hashes.len())]).collect();
    drop(hashes);
    let mut pollution = vec![1u8; POLLUTION];
    println!("{:<12}{:>12}{:>12}", "", "cold, ns", "warm, ns");
    for (name, asked) in [("strangers", &strangers), ("listed", &known)] {
        let cold = per_look_up(&list, asked, 5, || pollute(&mut pollution));
        // So few that all that they touch stays in the nearest caches.
        let warm = per_look_up(&list, &asked[..64], 5_000, || {});
        println!("{name:<12}{cold:>12.1}{warm:>12.1}");
    }
}

/// Nanoseconds of a look-up, each beginning when the one before it has ended: the least of several `times`, after
/// `before`, without what the same loop takes that looks nothing up.
fn per_look_up(
    list: &AccessList,
    asked: &[InfoHash],
    times: usize,
    mut before: impl FnMut(),
) -> f64 {
    let (mut with, mut without) = (Duration::MAX, Duration::MAX);
    for _ in 0..times {
        before();
        // Read once, so that the hashes asked for are not what is waited for.
        black_box(asked.iter().map(|hash| u64::from(hash.0[0])).sum::<u64>());
        with = with.min(time(asked, |hash| list.permits(hash)));
        without = without.min(time(asked, |hash| hash.0[19] == 0));
    }
    with.saturating_sub(without).as_nanos() as f64 / asked.len() as f64
}

fn time(asked: &[InfoHash], look_up: impl Fn(InfoHash) -> bool) -> Duration {
    let start = Instant::now();
    let mut before = 0;
    for at in 0..asked.len() {
        // Which hash comes next depends on the answer (never, but the processor cannot know), so that
        // no two look-ups overlap.
        let hash = asked[at + (before & 2)];
        before = usize::from(black_box(look_up(black_box(hash))));
    }
    black_box(before);
    start.elapsed()
}

fn pollute(memory: &mut [u8]) {
    memory.iter_mut().step_by(64).for_each(|byte| *byte = byte.wrapping_add(1));
    black_box(memory);
}
