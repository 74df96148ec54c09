//! Connect: the key of ids lives in a file, so that they outlast the process and are good on
//! every host that has the same file.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::support::client::transaction;
use super::support::packets::{Counts, hash, scrape};
use super::support::served::{Plan, Served};

/// Connect: the key lives in the state directory, created 0600 on first start.
#[test]
fn the_key_file_is_private() {
    for plan in Plan::both() {
        let tracker = plan.start();
        let file = tracker.state_dir().join("connection.key");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o600);
        let text = fs::read_to_string(&file).unwrap();
        let current = text.lines().find_map(|line| line.strip_prefix("current ")).unwrap();
        assert_eq!(current.len(), 32, "16 bytes in hexadecimal digits");
        let other = plan.start();
        let other = fs::read_to_string(other.state_dir().join("connection.key")).unwrap();
        assert_ne!(text, other, "every tracker makes its own");
    }
}

/// Connect: a restart accepts the ids already handed out.
#[test]
fn ids_survive_a_restart() {
    for plan in Plan::both() {
        let tracker = plan.start();
        let before = ["127.0.0.1", "127.8.8.8", "::1"].map(|ip| (ip, tracker.client(ip).id));
        let tracker = tracker.restart();
        for (ip, id) in before {
            assert_accepts(&tracker, ip, id);
        }
    }
}

/// Connect: without the key, ids are worth nothing: the same start on another directory refuses
/// them.
#[test]
fn ids_of_another_key_are_ignored() {
    for plan in Plan::both() {
        let id = plan.start().client("127.0.0.1").id;
        assert_refuses(&plan.start(), "127.0.0.1", id);
    }
}

/// Connect: a second host given the same key accepts the ids of the first, and the other way.
#[test]
fn hosts_with_one_key_file_accept_each_others_ids() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("shared.key");
    for plan in Plan::both() {
        let plan = plan.tables(&key_table(&file));
        let (first, second) = (plan.start(), plan.start());
        for ip in ["127.0.0.1", "::1"] {
            assert_accepts(&second, ip, first.client(ip).id);
            assert_accepts(&first, ip, second.client(ip).id);
        }
    }
}

/// Connect: the key file holds the current and the previous key, so that keys can be rotated
/// across hosts: ids of either are accepted, new ones are of the current.
#[test]
fn keys_can_be_rotated() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let file = directory.path().join(name);
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        key_table(&file)
    };
    let (old, new) = ("00112233445566778899aabbccddeeff", "0123456789abcdef0123456789abcdef");
    let before = write("before.key", &format!("current {old}\n"));
    let during = write("during.key", &format!("current {new}\nprevious {old}\n"));
    let after = write("after.key", &format!("current {new}\n"));
    for plan in Plan::both() {
        let [before, during, after] =
            [&before, &during, &after].map(|table| plan.clone().tables(table).start());
        for ip in ["127.0.0.1", "::1"] {
            let (old_id, new_id) = (before.client(ip).id, during.client(ip).id);
            assert_accepts(&during, ip, old_id);
            assert_accepts(&during, ip, new_id);
            assert_accepts(&after, ip, new_id);
            assert_refuses(&after, ip, old_id);
            assert_refuses(&before, ip, new_id);
        }
    }
}

fn key_table(file: &Path) -> String {
    format!("[connection]\nkey_file = {file:?}")
}

fn assert_accepts(tracker: &Served, ip: &str, id: u64) {
    let client = tracker.stranger(ip).with_id(id);
    assert_eq!(client.counts(hash(1)), Counts::default());
}

fn assert_refuses(tracker: &Served, ip: &str, id: u64) {
    let request = scrape(id, transaction(), &[hash(1)]);
    tracker.client(ip).is_ignored(tracker, &request, "connection_id");
}
