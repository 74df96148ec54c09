//! The cost of a request for `/metrics` and `/stats.json` to the admin thread, by the number of
//! workers. `cargo run --release -p onrush-lab --bin page_cost [WORKERS]...`;
//! `scripts/bench-observe` runs it beside the whole daemon.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use onrush_config::Settings;
use onrush_control::api::stats::Stats;
use onrush_control::metrics::prometheus;
use onrush_control::metrics::snapshot::StatsSnapshot;
use onrush_tracker::member::{Member, Role};
use onrush_tracker::metrics::WorkerMetrics;

/// How long each page is written repeatedly.
const FOR: Duration = Duration::from_millis(500);

fn main() {
    let mut numbers: Vec<usize> = std::env::args()
        .skip(1)
        .map(|number| number.parse().expect("a number of workers"))
        .collect();
    if numbers.is_empty() {
        numbers = vec![2, 48];
    }
    println!(
        "{:>8} {:>14} {:>10} {:>14} {:>10}",
        "workers", "/metrics us", "bytes", "/stats.json us", "bytes"
    );
    for workers in numbers {
        let members: Arc<[Member]> =
            (0..workers).map(|n| Member::new(Role::Both, n, Arc::new(counted()))).collect();
        let text = cost(|| prometheus::write(&snapshot(&members)));
        let json =
            cost(|| serde_json::to_string(&Stats::of(&snapshot(&members))).expect("plain values"));
        println!("{workers:>8} {:>14.0} {:>10} {:>14.0} {:>10}", text.0, text.1, json.0, json.1);
    }
}

/// Microseconds per page, and its length.
fn cost(mut page: impl FnMut() -> String) -> (f64, usize) {
    let (start, mut pages, mut len) = (Instant::now(), 0u32, 0);
    while start.elapsed() < FOR {
        len = black_box(page()).len();
        pages += 1;
    }
    (start.elapsed().as_secs_f64() * 1e6 / f64::from(pages), len)
}

/// Counters of a worker that has run for days: numbers of the greatest length.
fn counted() -> WorkerMetrics {
    let metrics = WorkerMetrics::default();
    for incoming in [&metrics.incoming.v4, &metrics.incoming.v6] {
        let counters =
            [&incoming.datagrams, &incoming.bytes, &incoming.announces, &incoming.connects];
        let all = counters
            .into_iter()
            .chain(&incoming.refused)
            .chain(&incoming.refused_by_udp)
            .chain(&incoming.events);
        all.chain(&incoming.clients).for_each(|counter| counter.set(12_345_678_901));
    }
    (0..40).for_each(|power| metrics.turn_times.observe(1 << power));
    (0..11).for_each(|power| metrics.receives.observe(1 << power));
    metrics
}

fn snapshot(members: &Arc<[Member]>) -> StatsSnapshot {
    StatsSnapshot::of_members(members.clone(), Settings::for_test(""))
}
