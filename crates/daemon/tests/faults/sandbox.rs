//! Changes that tests make in namespaces of their own: networks of two hosts, firewalls, disks.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use nix::sched::{CloneFlags, setns, unshare};
use tempfile::TempDir;

use crate::harness::{Daemon, eventually, in_namespace, run};

/// The program before a daemon in which a system call fails with this error, in each thread the
/// calls with the numbers `when` (strace(1)). The tracer is another process (-D), so that the
/// daemon is the test's child.
pub(crate) fn failing(call: &str, error: &str, when: &str) -> Vec<String> {
    let inject = format!("inject={call}:error={error}:when={when}");
    let options = ["strace", "-D", "-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={call}")];
    options.into_iter().chain(["-e", &inject]).map(str::to_owned).collect()
}

/// Runs `action` while every thread of the daemon is stopped.
pub(crate) fn while_stopped(daemon: &Daemon, action: impl FnOnce()) {
    daemon.signal("STOP");
    // A thread stops when it is next scheduled, and a CONT before that cancels the STOP.
    eventually("all threads are stopped", || {
        daemon.threads("State").iter().all(|(_, state)| state == "T (stopped)")
    });
    action();
    daemon.signal("CONT");
}

/// The address of the tracker's host over both families, and that of the clients' host.
pub(crate) const TRACKER: [&str; 2] = ["10.9.0.1", "fd09::1"];
/// See [`TRACKER`].
pub(crate) const CLIENTS: [&str; 2] = ["10.9.0.2", "fd09::2"];

/// The host of the tracker and that of its clients, joined by a link of two queues: interface
/// `tracker` of the one is connected with interface `clients` of the other.
pub(crate) struct Hosts {
    tracker: File,
    clients: File,
}

impl Hosts {
    /// Runs a test on a thread on the tracker's host.
    pub(crate) fn with<T: Send>(test: impl FnOnce(&Self) -> T + Send) -> T {
        in_namespace(CloneFlags::CLONE_NEWNET, || {
            let clients = Self::network();
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            let tracker = Self::network();
            let hosts = Self { tracker, clients };
            let there = format!("/proc/{}/fd/{}", std::process::id(), hosts.clients.as_raw_fd());
            let queues = "numtxqueues 2 numrxqueues 2";
            let peer = format!("clients {queues} netns {there}");
            run(&format!("ip link add name tracker {queues} type veth peer name {peer}"));
            hosts.set_up("tracker", TRACKER);
            hosts.on_clients(|| hosts.set_up("clients", CLIENTS));
            test(&hosts)
        })
    }

    /// The network of this thread.
    fn network() -> File {
        File::open("/proc/thread-self/ns/net").unwrap()
    }

    /// Sets up the loopback interface and this one, with an address of each family, usable at once.
    pub(crate) fn set_up(&self, device: &str, [v4, v6]: [&str; 2]) {
        run("ip link set lo up");
        run(&format!("ip link set {device} up"));
        run(&format!("ip address replace {v4}/24 dev {device}"));
        run(&format!("ip address replace {v6}/64 dev {device} nodad"));
    }

    /// Runs an action on the clients' host: sockets that it opens stay there.
    pub(crate) fn on_clients<T>(&self, action: impl FnOnce() -> T) -> T {
        setns(self.clients.as_fd(), CloneFlags::CLONE_NEWNET).unwrap();
        let result = action();
        setns(self.tracker.as_fd(), CloneFlags::CLONE_NEWNET).unwrap();
        result
    }
}

/// A small disk, which the processes started by its thread see.
pub(crate) struct Disk {
    directory: TempDir,
    /// Where a mount is prepared.
    mount: TempDir,
}

impl Disk {
    /// Runs a test on a thread with a disk of 1 MiB.
    pub(crate) fn with<T: Send>(test: impl FnOnce(&Self) -> T + Send) -> T {
        in_namespace(CloneFlags::CLONE_NEWNS, || {
            run("mount --make-rprivate /");
            let [directory, mount] = [(); 2].map(|()| tempfile::tempdir().unwrap());
            let disk = Self { directory, mount };
            run(&format!("mount -t tmpfs -o size=1m,mode=700 tmpfs {}", disk.path().display()));
            let result = test(&disk);
            run(&format!("umount --lazy {}", disk.path().display()));
            result
        })
    }

    /// Where it is mounted.
    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }
}

/// Faults of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiskFault {
    /// It has no room.
    Full,
    /// It is mounted for reading only.
    ReadOnly,
}

/// Writes as far as the disk has room.
fn fill(disk: &Disk) {
    let filler = disk.path().join("filler");
    let mut filler = File::options().create(true).append(true).open(filler).unwrap();
    // Longer than the disk.
    let _ = filler.write_all(&vec![0; 2 << 20]);
}

impl DiskFault {
    /// Part of the system's text of the error.
    pub(crate) fn error(self) -> &'static str {
        match self {
            Self::Full => "No space left",
            Self::ReadOnly => "Read-only",
        }
    }

    /// The disk refuses from now on.
    pub(crate) fn begin(self, disk: &Disk) {
        let path = disk.path().display();
        match self {
            Self::Full => fill(disk),
            Self::ReadOnly => {
                // A mount over it, as open files prevent the change of the first. It is ready when
                // it gets there, as they would prevent the change of this one too.
                let mount = disk.mount.path().display();
                run(&format!("mount --bind {path} {mount}"));
                run(&format!("mount -o remount,bind,ro {mount}"));
                run(&format!("mount --move {mount} {path}"));
            }
        }
    }

    /// The disk refuses on, after a write that has begun before and has left its room.
    pub(crate) fn hold(self, disk: &Disk) {
        if self == Self::Full {
            fill(disk);
        }
    }

    /// The disk accepts again.
    pub(crate) fn end(self, disk: &Disk) {
        match self {
            Self::Full => fs::remove_file(disk.path().join("filler")).unwrap(),
            // At once, also while a process looks for a file in it.
            Self::ReadOnly => run(&format!("umount --lazy {}", disk.path().display())),
        }
    }
}
