//! Network namespaces of tests.

use std::panic::resume_unwind;
use std::process::Command;
use std::thread;

use nix::sched::{CloneFlags, unshare};

use crate::harness::process::require_root;

/// Runs a test on a thread in a network namespace of its own, where all ports are free and the
/// loopback interface has `addresses` besides 127.0.0.1 and ::1. Threads, child processes and
/// sockets of the test are in the namespace too; the host's own network is not changed.
pub(crate) fn in_own_network<T: Send>(addresses: &[&str], test: impl FnOnce() -> T + Send) -> T {
    require_root("creates a network namespace");
    let in_namespace = || {
        unshare(CloneFlags::CLONE_NEWNET).expect("root may create namespaces (CAP_SYS_ADMIN)");
        ip("link set lo up");
        for address in addresses {
            // Without duplicate address detection the address can be used at once.
            let usable_at_once = if address.contains(':') { " nodad" } else { "" };
            ip(&format!("address add {address} dev lo{usable_at_once}"));
        }
        test()
    };
    thread::scope(|scope| scope.spawn(in_namespace).join().unwrap_or_else(|e| resume_unwind(e)))
}

/// Runs `ip` in the thread's network namespace.
pub(crate) fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status();
    assert!(status.expect("`ip` is installed (package iproute2)").success(), "ip {arguments}");
}
