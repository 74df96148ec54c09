//! A small disk of a test.

use std::panic::resume_unwind;
use std::path::Path;
use std::process::Command;
use std::thread;

use nix::sched::{CloneFlags, unshare};

use crate::harness::process::require_root;

/// Runs a test on a thread in a mount namespace of its own, where `directory` is a disk of 512 KiB.
/// Threads and child processes of the test are in the namespace too.
pub(crate) fn with_small_disk_at(directory: &Path, test: impl FnOnce() + Send) {
    require_root("creates a mount namespace");
    let in_namespace = || {
        unshare(CloneFlags::CLONE_NEWNS).expect("root may create namespaces (CAP_SYS_ADMIN)");
        let mount = |arguments: &[&str], directory: &Path| {
            let status = Command::new("mount").args(arguments).arg(directory).status();
            assert!(status.expect("`mount` of util-linux").success(), "mount {arguments:?}");
        };
        // Mounts of this namespace do not appear in the host's.
        mount(&["--make-rprivate"], Path::new("/"));
        mount(&["-t", "tmpfs", "-o", "size=512k,mode=700", "tmpfs"], directory);
        test();
    };
    thread::scope(|scope| scope.spawn(in_namespace).join().unwrap_or_else(|e| resume_unwind(e)));
}
