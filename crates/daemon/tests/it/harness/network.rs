//! Network namespaces of tests.

use std::fs;
use std::panic::resume_unwind;
use std::process::Command;
use std::thread;

use nix::sched::{CloneFlags, unshare};

use crate::harness::process::require_root;

/// Whether the namespace has IPv6.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ipv6 {
    On,
    Off,
}

/// Runs a test on a thread in a network namespace of its own, with only a loopback interface and
/// all ports free. Its threads, child processes and sockets are in the namespace too.
pub(crate) fn in_own_network<T: Send>(ipv6: Ipv6, test: impl FnOnce() -> T + Send) -> T {
    require_root("creates a network namespace");
    let life = || {
        unshare(CloneFlags::CLONE_NEWNET).expect("root may create namespaces (CAP_SYS_ADMIN)");
        if ipv6 == Ipv6::Off {
            fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1").unwrap();
        }
        let up = Command::new("ip").args(["link", "set", "lo", "up"]).status();
        assert!(up.expect("`ip` is installed (package iproute2)").success());
        test()
    };
    thread::scope(|scope| scope.spawn(life).join().unwrap_or_else(|panic| resume_unwind(panic)))
}
