//! A daemon that starts as root and changes its user: privileges after the change, and actions
//! before it.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use nix::unistd::{Gid, Group};

use crate::harness::messages::{AS_ROOT, NO_STATE};
use crate::harness::{Client, Daemon, Launch, in_own_network, mode, nobody, require_root};

/// Ports below 1024 are bound before.
#[test]
fn all_threads_change_user_and_drop_all_capabilities() {
    // Owners of sockets are found by port, so no other program may have a socket here.
    in_own_network(&[], || {
        let account = nobody();
        // Root's group exists on every host, and the account `nobody` is not a member.
        let root = Gid::from_raw(0);
        let group = format!("group = \"{}\"\n", Group::from_gid(root).unwrap().unwrap().name);
        for (placement, group, gid) in [
            ("colocated", "", account.gid),
            ("split", "", account.gid),
            ("colocated", group.as_str(), root),
        ] {
            let workers = format!("[workers]\nplacement = \"{placement}\"\ntotal = 3\n");
            let config = format!("user = \"nobody\"\n{group}{workers}");
            let daemon = Launch::new(&["--listen", ":80"]).config(&config).serve();
            assert!(daemon.threads("Uid").len() >= 4, "three workers and the main thread");
            assert_every_thread(&daemon, "Uid", &four(account.uid.as_raw()));
            assert_every_thread(&daemon, "Gid", &four(gid.as_raw()));
            assert_every_thread(&daemon, "Groups", &gid.to_string());
            for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
                assert_every_thread(&daemon, set, "0000000000000000");
            }
            assert_eq!(socket_owners(80), [account.uid.to_string()].into());
            assert_eq!(daemon.addresses().len(), 2);
            for address in ["127.0.0.1:80", "[::1]:80"] {
                Client::new(address.parse().unwrap()).connect_and_check();
            }
        }
    });
}

#[test]
fn the_state_directory_belongs_to_the_configured_user() {
    require_root("changes user");
    let account = nobody();
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let directory = place.path().join("lib/onrush");
    let started = || {
        let launch = Launch::on_loopback().flag("--state-dir", &directory);
        launch.config("user = \"nobody\"\n").serve()
    };
    assert!(!started().stop().text().contains(NO_STATE));
    for (path, expected) in [(directory.clone(), 0o700), (directory.join("connection.key"), 0o600)]
    {
        assert_eq!(mode(&path), expected, "{}", path.display());
        let owner = fs::metadata(&path).unwrap();
        let expected = (account.uid.as_raw(), account.gid.as_raw());
        assert_eq!((owner.uid(), owner.gid()), expected, "{}", path.display());
    }
    let parent = mode(directory.parent().unwrap());
    assert_eq!(parent & 0o111, 0o111, "other users can traverse the directory");
    // The second start uses the existing directory.
    let key = fs::read(directory.join("connection.key")).unwrap();
    started().stop();
    assert_eq!(fs::read(directory.join("connection.key")).unwrap(), key);
}

#[test]
fn running_as_root_without_a_user_causes_a_warning() {
    require_root("runs the daemon as root");
    let mut daemon = Launch::on_loopback().start();
    daemon.line_with(AS_ROOT, &[" WARN ", "user"]);
    daemon.serving();
}

#[test]
fn a_change_of_user_needs_root() {
    let launch = Launch::on_loopback().run_as_nobody().config("user = \"root\"\n");
    launch.start().refusal(&["`root`", "start as root"]);
    // A daemon already running as the configured user needs no change.
    Launch::on_loopback().run_as_nobody().config("user = \"nobody\"\n").serve().stop();
}

fn assert_every_thread(daemon: &Daemon, field: &str, expected: &str) {
    for (name, value) in daemon.threads(field) {
        assert_eq!(value, expected, "{field} of {name}");
    }
}

/// Real, effective, saved and file system id, in the format of /proc.
fn four(id: u32) -> String {
    [id; 4].map(|id| id.to_string()).join("\t")
}

/// Owners of the UDP sockets at a port in this thread's network namespace: field 7 of
/// /proc/net/udp.
fn socket_owners(port: u16) -> std::collections::BTreeSet<String> {
    let read = |file| fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap();
    let port = format!(":{port:04X}");
    let lines = read("udp") + &read("udp6");
    let fields = lines.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let ours = fields.filter(|fields| fields.get(1).is_some_and(|local| local.ends_with(&port)));
    ours.map(|fields| fields[7].to_owned()).collect()
}
