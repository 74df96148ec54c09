//! The command against a small tracker that counts: each attack is sent as asked, every datagram is
//! accounted for, and the exit status tells whether the bounds hold.

use std::net::SocketAddr;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use onrush_load::attack::{AttackReport, FloodReport};

use crate::faulty::Fault;
use crate::namespace::{in_a_namespace, ip};
use crate::tracker::Counting;

/// Sources of IPv6, which are local or lead nowhere, beside 127/8.
fn network() {
    ip("link set lo up");
    ip("route add local fd79::/32 dev lo");
    ip("route add local fd80::/32 dev lo");
    std::fs::write("/proc/sys/net/ipv6/ip_nonlocal_bind", "1").unwrap();
}

/// Datagrams of an attack: 200 per second for 2 s, or for a burst of 0.12 s.
const FLOOD: u64 = 400;
const BURST: u64 = 24;

/// Rates at which no buffer overflows while the tracker, the load tester or both stand still for a
/// second: the usual limit of a receive buffer is some 500 small datagrams.
fn run(targets: &[SocketAddr], line: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_onrush-load"))
        .arg("attack")
        .args(targets.iter().map(|target| format!("--target={target}")))
        .args(line.split_whitespace())
        .args("--honest 150 --duration 2 --warmup 0.5 --swarms 200 --quiet".split(' '))
        .args("--newcomers-from 127.2.0.0/16 --newcomers-from fd79::/32".split(' '))
        .output()
        .unwrap()
}

fn error(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// An attack on a tracker with this fault; the report is on standard output.
#[track_caller]
fn attack(tracker: &Counting, line: &str) -> (Output, AttackReport) {
    let from = match line.starts_with("random") || line.starts_with("hot") {
        true => "--attack-from 127.3.0.0/16 --attack-from fd80::/32",
        false => "--attack-from 127.64.0.0/10 --attack-from fd80::/32",
    };
    let line = format!("{line} {from} --attack 200 --admin {} --json -", tracker.admin);
    let output = run(&tracker.targets, &line);
    let report = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|cause| panic!("{line}: {cause}\n{}", error(&output)));
    (output, report)
}

/// Runs these attacks; all datagrams are accounted for, and honest clients are served.
#[track_caller]
fn all_is_accounted_for(names: &[&str]) {
    network();
    for name in names {
        let tracker = Counting::start(Fault::Nothing, false);
        let (output, report) = attack(&tracker, &format!("{name} --timeout 60"));
        assert_eq!(output.status.code(), Some(0), "{name}: {}", error(&output));
        let conservation = report.conservation.unwrap();
        assert_eq!(conservation.lost_on_the_way(), 0, "{conservation:?}");
        assert_eq!(conservation.lost_in_the_tracker(), 0, "{conservation:?}");
        let checksums = if *name == "bad-checksums" { report.flood.sent } else { 0 };
        assert_eq!(conservation.dropped["checksum"], checksums, "{name}");
        let silent = matches!(*name, "guessed-ids" | "junk");
        assert_eq!(conservation.refused["silent"] >= report.flood.sent, silent, "{name}");
        // A busy host is late, but does not catch up with the attack.
        let due = if *name == "bursts" { BURST } else { FLOOD };
        let FloodReport { sent, skipped, refused, .. } = report.flood;
        assert_eq!(sent + skipped + refused, due, "{name}: {:?}", report.flood);
        for of in [report.established, report.newcomers] {
            assert_eq!(of.answered, of.requests, "{name}: {of:?}");
        }
        assert_eq!(report.newcomers.requests, 100, "{name}");
        assert!(report.established.requests > 150, "{name}: {:?}", report.established);
        assert_eq!(report.wrong_replies, 0, "{name}");
    }
}

#[test]
fn spoofed_requests_are_accounted_for() {
    in_a_namespace("attack::spoofed_requests_are_accounted_for", || {
        all_is_accounted_for(&["connects", "guessed-ids", "junk"]);
    });
}

#[test]
fn wrong_checksums_and_bursts_are_accounted_for() {
    in_a_namespace("attack::wrong_checksums_and_bursts_are_accounted_for", || {
        all_is_accounted_for(&["bad-checksums", "bursts"]);
    });
}

#[test]
fn requests_of_proven_sources_are_accounted_for() {
    in_a_namespace("attack::requests_of_proven_sources_are_accounted_for", || {
        all_is_accounted_for(&["random-hashes", "hot-hash"]);
    });
}

#[test]
fn one_prefix_and_scrapes_are_accounted_for() {
    in_a_namespace("attack::one_prefix_and_scrapes_are_accounted_for", || {
        all_is_accounted_for(&["one-prefix", "scrapes"]);
    });
}

/// Lost requests, and datagrams that the tracker does not count.
#[test]
fn what_does_not_hold_is_named_and_exits_with_1() {
    in_a_namespace("attack::what_does_not_hold_is_named_and_exits_with_1", || {
        network();
        let tracker = Counting::start(Fault::LosesDatagrams, false);
        let bounds = "--min-established 99 --min-newcomers 99.9 --max-p99 60000";
        // 500 newcomers: the tracker drops requests of some of them in any order of datagrams.
        let line = format!("connects --newcomers 500 {bounds}");
        let (output, report) = attack(&tracker, &line);
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(report.tracker.unwrap().step, [3.0, 3.0]);
        let failures = report.failures.join("\n");
        for (named, expected) in [("established", true), ("newcomers", true), ("p99", false)] {
            assert_eq!(failures.contains(named), expected, "{named}: {failures}");
        }
        assert!(report.established.percent() < 95.0);
        let tracker = Counting::start(Fault::Nothing, true);
        let (output, report) = attack(&tracker, "connects");
        assert_eq!(output.status.code(), Some(1));
        assert!(report.conservation.unwrap().lost_on_the_way() > 0);
        assert!(error(&output).contains("sent differs from received + dropped"));
    });
}

/// A part of an attack is no evidence, and neither is one beside no honest load.
#[test]
fn an_interrupted_attack_fails() {
    in_a_namespace("attack::an_interrupted_attack_fails", || {
        network();
        let tracker = Counting::start(Fault::Nothing, false);
        let running = Command::new(env!("CARGO_BIN_EXE_onrush-load"))
            .args("attack hot-hash --warmup 0.5 --duration 120 --swarms 200".split(' '))
            .args("--honest 500 --attack 500".split(' '))
            .arg(format!("--target={}", tracker.targets[0]))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // Honest clients send less than a third of these before the attack.
        let end = Instant::now() + Duration::from_secs(60);
        while tracker.received() < 1_500 {
            assert!(Instant::now() < end, "nothing more was sent");
            std::thread::yield_now();
        }
        let sent = Command::new("kill").args(["-INT", &running.id().to_string()]).status();
        assert!(sent.unwrap().success());
        let output = running.wait_with_output().unwrap();
        let table = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(1), "{}{table}", error(&output));
        assert!(table.contains("shorter --duration"), "{table}");

        // The only newcomer is due in the warm-up.
        let output =
            run(&tracker.targets[..1], "hot-hash --attack 200 --newcomers 0.1 --timeout 60");
        let table = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(1), "{table}{}", error(&output));
        assert!(table.contains("raise --newcomers"), "{table}");
    });
}

/// Before anything is sent: the target would not answer.
#[test]
fn spoofed_sources_are_refused_with_a_way_out() {
    in_a_namespace("attack::spoofed_sources_are_refused_with_a_way_out", || {
        ip("link set lo up");
        ip("link add out type veth peer name other");
        ip("addr add 192.0.2.1/24 dev out");
        ip("link set other up");
        ip("link set out up");
        let nobody = ["127.0.0.1:1".parse().unwrap()];
        let silent = run(&nobody, "connects");
        assert_eq!(silent.status.code(), Some(3), "{}", error(&silent));
        assert!(error(&silent).contains("--target"), "{}", error(&silent));
        ip("route add default via 192.0.2.2");
        for name in ["connects", "guessed-ids", "junk", "bad-checksums", "bursts"] {
            let output = run(&nobody, name);
            assert_eq!(output.status.code(), Some(2), "{name}: {}", error(&output));
            assert!(error(&output).contains("ip route del default"), "{}", error(&output));
        }
        let named = run(&[], "connects --target udp://localhost:1/announce");
        assert_eq!(named.status.code(), Some(2), "{}", error(&named));
        let own = run(&nobody, "scrapes");
        assert_eq!(own.status.code(), Some(3), "{}", error(&own));
    });
}

/// The host's namespace, or that in which the tests run.
#[test]
fn spoofed_sources_are_refused_outside_of_a_namespace() {
    let nobody = ["127.0.0.1:1".parse().unwrap()];
    let tracker = Counting::start(Fault::Nothing, false);
    let targets =
        if std::fs::read_link("/proc/1/ns/net").is_ok() { nobody } else { [tracker.targets[0]] };
    let output = run(&targets, "connects");
    assert_eq!(output.status.code(), Some(2), "{}", error(&output));
    assert!(error(&output).contains("unshare --map-root-user --net"), "{}", error(&output));
    let named = run(&[], "connects --target localhost:1");
    assert_eq!(named.status.code(), Some(2), "{}", error(&named));
    assert!(error(&named).contains("unshare --map-root-user --net"), "{}", error(&named));
}
