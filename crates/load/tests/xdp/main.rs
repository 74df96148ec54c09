//! `onrush-load --xdp` over a pair of veth devices, each in a network namespace of its own. It
//! needs root: scripts/xdp-test.

#[allow(dead_code, reason = "this program uses a part")]
#[path = "../it/command.rs"]
mod command;
#[path = "../../../verify/tests/it/faulty.rs"]
mod faulty;
#[allow(dead_code, reason = "this program uses a part")]
#[path = "../../../net/tests/xdp/link.rs"]
mod link;

use std::process::{Command, Output};

use onrush_net::xdp::Mode;

use command::{report, stderr};
use faulty::Server;
use link::Link;

/// The client's device.
const DEVICE: &str = "onrush1";

/// Runs a command with these arguments in the client's namespace.
fn run(link: &Link, command: &mut Command, line: &str) -> Output {
    link.in_the_clients_namespace(|| command.args(line.split(' ')).output()).unwrap()
}

/// Each worker reads one queue. What arrives on the other one reaches its UDP sockets.
#[test]
fn a_load_by_two_queues_gets_every_reply() {
    let link = Link::new(Mode::Native, 2);
    let tracker = Server::at(["127.0.0.1", "::1"].map(|loopback| link.server_ip(loopback)));
    // Without a program the tracker's device takes no live frames.
    let _passing = link.program([]);
    for (option, sent_by) in [("", "AF_XDP at"), (" --live-frames", "an XDP program at")] {
        // Fewer requests in flight than a veth device has room for.
        let line = format!(
            "--xdp {DEVICE} --source 11.0.0.1-11.0.0.16 --source fd00:2::1 --workers 2 --in-flight \
             64 --swarms 500 --duration 1 --warmup 0.2 --timeout 60 --quiet --json -{option}"
        );
        let mut load = command::command();
        let output = run(&link, load.args(tracker.targets()), &line);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let report = report(&output);
        assert_eq!((report.loss_percent, report.late, report.not_sent), (0.0, 0, 0), "{report:?}");
        assert!(report.right_replies() > 1_000, "{report:?}");
        let numbers: Vec<_> = report.queues.iter().map(|queue| queue.queue).collect();
        assert_eq!(numbers, [0, 1]);
        for queue in &report.queues {
            assert!(queue.received > 0 && queue.sent > 0, "{queue:?}");
            assert_eq!((queue.blocked, queue.dropped), (0, 0), "{queue:?}");
        }
        // All but those of the first moments.
        let (sent, all) = (report.queues.iter().map(|queue| queue.sent), report.datagrams_sent);
        let sent: u64 = sent.sum();
        assert!(sent <= all && sent * 10 > all * 9, "{report:?}");
        let table = String::from_utf8_lossy(&output.stderr);
        assert!(table.contains(&format!("{sent_by} {DEVICE}, native")), "{table}");
    }
}

#[test]
fn what_prevents_it_is_named() {
    let link = Link::new(Mode::Native, 1);
    let tracker = Server::at(["127.0.0.1", "::1"].map(|loopback| link.server_ip(loopback)));
    let program = env!("CARGO_BIN_EXE_onrush-load");
    let without = format!("setpriv --bounding-set=-net_raw {program}");
    for (command, line, parts) in [
        (program, "--xdp onrush9", &["there is no interface onrush9", "ip link"][..]),
        (without.as_str(), "--xdp onrush1", &["needs CAP_NET_RAW: start as root"]),
        (program, "--xdp onrush1 --workers 2", &["queues, and onrush1 has 1", "ethtool"]),
    ] {
        let mut words = command.split(' ').chain(line.split(' '));
        let mut command = Command::new(words.next().unwrap());
        let output = run(&link, command.args(words), &tracker.targets()[0]);
        assert_eq!(output.status.code(), Some(2), "{line}: {}", stderr(&output));
        for part in parts {
            assert!(stderr(&output).contains(part), "{line}: {}", stderr(&output));
        }
    }
}
