//! The cost of issuing and of accepting a connection id.
//!
//! `cargo bench -p onrush-lab --bench connection_ids`; `-- --test` runs everything once.

use std::hint::black_box;
use std::net::IpAddr;

use criterion::{Criterion, criterion_group, criterion_main};
use onrush_proto::ConnectionId;
use onrush_tracker::connection::{ConnectionIds, Key, Keys};

criterion_group!(benches, connection_ids);
criterion_main!(benches);

const VALIDITY: u32 = 120;
/// In the middle of a bucket of [`VALIDITY`]: no allowance for clock differences is needed.
const NOW: u64 = 1_800_000_060;

fn connection_ids(criterion: &mut Criterion) {
    let key = |byte| Key([byte; 16]);
    let alone = Keys { current: key(1), previous: None, next: None };
    let rotated = Keys { current: key(1), previous: Some(key(2)), next: None };
    let mut group = criterion.benchmark_group("connection ids");
    for (family, ip) in [("v4", "198.51.100.7"), ("v6", "2001:db8::7")] {
        let ip: IpAddr = ip.parse().expect("an address");
        let mut ids = ConnectionIds::new(&alone, VALIDITY);
        ids.prepare(NOW);
        group.bench_function(format!("issue {family}"), |bencher| {
            bencher.iter(|| ids.issue(black_box(ip), NOW));
        });
        let fresh = ids.issue(ip, NOW);
        let before = ids.issue(ip, NOW - u64::from(VALIDITY));
        for (name, id, good) in [
            ("a fresh one", fresh, true),
            ("one of the bucket before", before, true),
            ("none for a bad one", ConnectionId(fresh.0 ^ 1), false),
        ] {
            assert_eq!(ids.accepts(id, ip, NOW), good, "{name}");
            group.bench_function(format!("accept {family}: {name}"), |bencher| {
                bencher.iter(|| ids.accepts(black_box(id), black_box(ip), NOW));
            });
        }
        let mut after = ConnectionIds::new(&rotated, VALIDITY);
        after.prepare(NOW);
        group.bench_function(format!("accept {family}: while two keys count"), |bencher| {
            bencher.iter(|| after.accepts(black_box(fresh), black_box(ip), NOW));
        });
    }
    group.finish();
}
