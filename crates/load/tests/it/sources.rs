//! Requests from thousands of source addresses, each with a socket of its own.

use std::process::Command;

use super::command::{command, report, stderr};
use super::counted::Counted;
use super::faulty::{Fault, Server};
use super::namespace::{in_a_namespace, ip};

/// Datagrams of a run: more than a connect of each source.
const DATAGRAMS: usize = 8000;

/// Runs with these arguments.
fn load<'c>(command: &'c mut Command, target: &str, more: &str) -> &'c mut Command {
    let more = more.split_whitespace();
    command.arg(target).args("--in-flight 64 --swarms 5000 --quiet".split(' ')).args(more)
}

/// A shell that executes the command after `before`.
pub(crate) fn limited(before: &str) -> Command {
    let mut shell = Command::new("sh");
    let script = format!("{before} \"$0\" \"$@\"");
    shell.args(["-c", script.as_str(), env!("CARGO_BIN_EXE_onrush-load")]);
    shell
}

/// So many open files at most, also for root, which may exceed the limit with CAP_SYS_RESOURCE.
pub(crate) fn hard_limit(files: u32) -> String {
    format!("ulimit -n {files} && exec setpriv --bounding-set=-sys_resource")
}

/// The soft limit of descriptors is raised to the hard limit.
#[test]
fn thousands_of_sources_need_no_ulimit() {
    let tracker = Counted::start(Fault::Nothing);
    let mut limited = limited("ulimit -S -n 1024 && exec");
    let run = load(&mut limited, &tracker.server.targets()[0], "--sources 3000 --json -");
    let output = tracker.run(run, DATAGRAMS);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let report = report(&output);
    assert_eq!((report.setup.sources, report.setup.sockets), ([3000, 0], 3000));
    assert!(report.right_replies() > 0);
}

#[test]
fn a_hard_limit_is_reported_with_a_remedy() {
    let tracker = Server::start(Fault::Nothing);
    let mut limited = limited(&hard_limit(1024));
    let run = load(&mut limited, &tracker.targets()[0], "--sources 3000 --workers 2");
    let output = run.output().unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("6000 sockets") && said.contains("ulimit -n 6064"), "{said}");
}

/// A network namespace with a route of a /64 to the loopback interface: its addresses need not be
/// added one by one.
#[test]
fn a_thousand_addresses_of_ipv6() {
    in_a_namespace("sources::a_thousand_addresses_of_ipv6", || {
        ip("link set lo up");
        ip("-6 route add local fd00::/64 dev lo");
        // The addresses are local by the route but not assigned (Linux, ip-sysctl.rst).
        std::fs::write("/proc/sys/net/ipv6/ip_nonlocal_bind", "1").unwrap();
        let tracker = Counted::start(Fault::Nothing);
        let more = "--source fd00::1-fd00::3e8 --json -";
        let mut command = command();
        let run = load(&mut command, &tracker.server.targets()[1], more);
        let output = tracker.run(run, DATAGRAMS);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let report = report(&output);
        assert_eq!((report.setup.sources, report.setup.sockets), ([0, 1000], 1000));
        assert!(report.right_replies() > 0);
    });
}
