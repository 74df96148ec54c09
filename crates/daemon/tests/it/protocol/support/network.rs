//! A network namespace with further addresses, for one thread and its threads and processes.

use std::process::Command;
use std::thread;

use nix::sched::{CloneFlags, unshare};

/// Runs `test` on a thread in a network namespace whose loopback interface has `addresses` besides
/// 127.0.0.1 and ::1. Needs root; the host's own network is not changed.
pub(crate) fn in_network_with(addresses: &[impl AsRef<str> + Sync], test: impl FnOnce() + Send) {
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).unwrap_or_else(|error| {
                panic!("network namespace (CAP_SYS_ADMIN; scripts/test provides it): {error}")
            });
            ip(&["link", "set", "lo", "up"]);
            for address in addresses.iter().map(AsRef::as_ref) {
                match address.contains(':') {
                    true => ip(&["-6", "address", "add", address, "dev", "lo", "nodad"]),
                    false => ip(&["address", "add", address, "dev", "lo"]),
                }
            }
            test();
        });
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

/// Runs `ip` in the thread's network namespace.
fn ip(arguments: &[&str]) {
    let output = Command::new("ip")
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("this test needs `ip` (Debian: iproute2): {error}"));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {}: {text}", arguments.join(" "));
}
