//! Network namespaces of tests.

use std::panic::resume_unwind;
use std::process::Command;
use std::thread;

use nix::sched::{CloneFlags, unshare};

use crate::harness::require_root;

/// Runs a test on a thread in a network namespace of its own, where all ports are free and the
/// loopback interface has `addresses` besides 127.0.0.1 and ::1. Threads, child processes and
/// sockets of the test are in the namespace too; the host's own network is not changed.
pub(crate) fn in_own_network<T: Send>(addresses: &[&str], test: impl FnOnce() -> T + Send) -> T {
    in_namespace(CloneFlags::CLONE_NEWNET, || {
        run("ip link set lo up");
        for address in addresses {
            // Without duplicate address detection the address can be used at once.
            let usable_at_once = if address.contains(':') { " nodad" } else { "" };
            run(&format!("ip address add {address} dev lo{usable_at_once}"));
        }
        test()
    })
}

/// Runs a test on a thread in a namespace of its own.
pub(crate) fn in_namespace<T: Send>(kind: CloneFlags, test: impl FnOnce() -> T + Send) -> T {
    require_root("creates a namespace");
    let inside = || {
        unshare(kind).expect("root may create namespaces (CAP_SYS_ADMIN)");
        test()
    };
    thread::scope(|scope| scope.spawn(inside).join().unwrap_or_else(|e| resume_unwind(e)))
}

/// Runs a command line; its parts have no spaces.
#[track_caller]
pub(crate) fn run(line: &str) {
    output(line);
}

/// Runs a command line, and returns its output.
#[track_caller]
pub(crate) fn output(line: &str) -> String {
    let mut parts = line.split_whitespace();
    let output = Command::new(parts.next().unwrap()).args(parts).output();
    let output = output.unwrap_or_else(|error| panic!("{line}: {error} (see scripts/test)"));
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
