//! The cost model of large hosts: invariants of its arithmetic, and agreement of its dependents
//! (the page, the configuration for 48 vCPUs, `auto`) with it.

use std::fs;
use std::path::{Path, PathBuf};

use crate::model::{
    Assumed, CLASSIC, Host, PUBLISHED, REAL, aquatic, best_split, colocated, colocated_relieved,
    crossover, crowding, split, split_costs, swarm_load,
};
use onrush_config::Settings;
use onrush_config::{Flags, placement};
use onrush_tracker::limits::Placement;

use crate::page;

#[test]
fn the_page_shows_what_the_program_computes() {
    let page = fs::read_to_string(top("docs/benchmarks/scaling-model.md")).unwrap();
    let renewed = page::with_tables(&page, &page::tables()).expect("the page has its marks");
    let again = "cargo run --release -p onrush-lab --bin scaling -- --write";
    assert!(page == renewed, "docs/benchmarks/scaling-model.md is old: {again}");
    let picture = fs::read_to_string(top("docs/benchmarks/scaling-model.svg")).unwrap();
    assert!(picture == page::picture(), "docs/benchmarks/scaling-model.svg is old: {again}");
}

#[test]
fn the_configuration_for_48_vcpus_is_the_best_split() {
    let text = fs::read_to_string(top("config/epyc-48.toml")).unwrap();
    let host = onrush_config::Host { vcpus: (0..48).collect(), ..onrush_config::Host::default() };
    let (settings, _) = Settings::parse("epyc-48.toml", &text, &Flags::default(), &host)
        .unwrap_or_else(|problems| panic!("{problems}"));
    let (swarm_workers, _) = best_split(Host::whole(48), &REAL).unwrap();
    let socket_workers = 48 - swarm_workers;
    assert_eq!(settings.placement, Placement::Split { socket_workers, swarm_workers });
    assert_eq!(settings.socket.batch as f64, REAL.batch, "the model counts with this");
}

#[test]
fn auto_follows_the_model() {
    assert_eq!(crossover(&REAL, 48), Some(placement::SPLIT_FROM));
    for vcpus in (placement::SPLIT_FROM..=48).step_by(2) {
        let Placement::Split { swarm_workers, .. } = placement::auto(vcpus) else {
            panic!("{vcpus} vCPUs are not split");
        };
        let host = Host::whole(vcpus);
        let (best, most) = best_split(host, &REAL).unwrap();
        let got = split(host, &REAL, swarm_workers);
        assert!(
            got >= 0.95 * most,
            "{vcpus} vCPUs: {swarm_workers} swarm workers give {got}, {best} give {most}"
        );
    }
    let of_48 = best_split(Host::whole(48), &REAL).unwrap().0;
    let expected = Placement::Split { socket_workers: 48 - of_48, swarm_workers: of_48 };
    assert_eq!(placement::auto(48), expected);
}

#[test]
fn more_vcpus_give_more() {
    let kinds: [(&str, Vec<Host>); 2] = [
        ("one a core", (1..=24).map(Host::one_a_core).collect()),
        ("whole", (1..=24).map(|cores| Host::whole(2 * cores)).collect()),
    ];
    for assumed in [CLASSIC, REAL] {
        for (kind, hosts) in &kinds {
            for pair in hosts.windows(2) {
                let (small, large) = (pair[0], pair[1]);
                let gives = |host| {
                    let most = best_split(host, &assumed).map_or(0.0, |(_, most)| most);
                    (colocated(host, &assumed), colocated_relieved(host, &assumed), most)
                };
                let ((a, b, c), (d, e, f)) = (gives(small), gives(large));
                assert!(a < d && b < e && c < f, "{kind}: {small:?} to {large:?}");
            }
        }
    }
}

#[test]
fn no_more_time_is_spent_than_available() {
    for vcpus in (2..=48).step_by(2) {
        for assumed in [CLASSIC, REAL, Assumed { smt: 2.0, ..REAL }] {
            let (whole, alone) = (Host::whole(vcpus), Host::one_a_core(vcpus));
            for host in [whole, alone] {
                for swarm_workers in 1..vcpus {
                    let costs = split_costs(host, &assumed, swarm_workers);
                    let spent = split(host, &assumed, swarm_workers)
                        * (costs.socket_side + costs.swarm_side)
                        / 1e9;
                    assert!(spent <= vcpus as f64, "{host:?} {swarm_workers}: {spent} vCPUs");
                    let load = swarm_load(host, &assumed, swarm_workers);
                    assert!(load <= assumed.swarm_load * 1.000_001, "{host:?}: {load}");
                }
            }
            // Two threads with twice the throughput of one are two cores.
            if assumed.smt == 2.0 && crowding(whole.cores) == crowding(vcpus) {
                assert!(colocated(whole, &assumed) >= colocated(alone, &assumed) * 0.999_999);
            }
        }
    }
}

#[test]
fn higher_costs_give_less() {
    let host = Host::whole(48);
    let even = Assumed { hot: 0.0, ..REAL };
    assert!(colocated(host, &REAL) < colocated(host, &even));
    assert!(colocated(host, &REAL) < colocated_relieved(host, &REAL), "that is what relief is for");
    assert!(colocated_relieved(host, &REAL) < colocated(host, &even), "but it takes hops");
    let missteered = Assumed { steered: 0.5, ..even };
    assert!(colocated(host, &missteered) < colocated(host, &even));
    for swarm_workers in 1..47 {
        let (few, more) =
            (split_costs(host, &REAL, swarm_workers), split_costs(host, &REAL, swarm_workers + 1));
        assert!(few.requests >= more.requests, "a batch falls into more messages");
        assert!(few.socket_side <= more.socket_side && few.swarm_side <= more.swarm_side);
        let small = Assumed { batch: 16.0, ..REAL };
        assert!(split_costs(host, &small, swarm_workers).socket_side > few.socket_side);
        let apart = Assumed { sockets: 2.0, ..REAL };
        assert!(split_costs(host, &apart, swarm_workers).socket_side > few.socket_side);
    }
    assert_eq!(best_split(Host::one_a_core(1), &REAL), None, "a split takes two");
}

#[test]
fn published_results_are_reproduced() {
    for (vcpus, replies, busy) in PUBLISHED {
        let in_use = aquatic(Host::one_a_core(vcpus)) * busy / vcpus as f64;
        let off = in_use / replies;
        assert!((0.95..=1.01).contains(&off), "{vcpus} vCPUs: {in_use} for {replies}");
    }
    for cores in 1..60 {
        assert!(crowding(cores) <= crowding(cores + 1));
    }
    assert_eq!(crowding(1), 1.0);
}

fn top(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}
