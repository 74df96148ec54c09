//! Connect: the key of connection ids is stored in a file, so that ids are valid on every host with
//! the same file. (Restarts and the file's mode: module `state`.)

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use onrush_proto::ScrapeCounts;

use crate::harness::client::transaction;
use crate::harness::packets::{hash, scrape};
use crate::harness::tracker::{LOOPBACK, RunningTracker, TrackerConfig};

/// Connect: a start with another state directory, and so with another key, refuses the ids.
#[test]
fn ids_of_another_key_are_ignored() {
    for config in TrackerConfig::both() {
        let id = config.start().client("127.0.0.1").id;
        assert_refuses(&config.start(), "127.0.0.1", id);
    }
}

/// Connect: hosts with the same key accept each other's ids.
#[test]
fn hosts_with_one_key_file_accept_each_others_ids() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("shared.key");
    for config in TrackerConfig::both() {
        let config = config.tables(&key_table(&file));
        let (first, second) = (config.start(), config.start());
        for ip in LOOPBACK {
            assert_accepts(&second, ip, first.client(ip).id);
            assert_accepts(&first, ip, second.client(ip).id);
        }
    }
}

/// Connect: the key file holds the current, the previous and the next key, so that keys can be
/// rotated across hosts: ids of each are accepted, new ids use the current key.
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
    let first = write("first.key", &format!("current {old}\nnext {new}\n"));
    let during = write("during.key", &format!("current {new}\nprevious {old}\n"));
    let after = write("after.key", &format!("current {new}\n"));
    for config in TrackerConfig::both() {
        let [before, first, during, after] =
            [&before, &first, &during, &after].map(|table| config.clone().tables(table).start());
        for ip in LOOPBACK {
            let (old_id, new_id) = (before.client(ip).id, during.client(ip).id);
            assert_accepts(&during, ip, old_id);
            assert_accepts(&during, ip, new_id);
            assert_accepts(&after, ip, new_id);
            assert_refuses(&after, ip, old_id);
            assert_refuses(&before, ip, new_id);
            // A host with the next key accepts ids of the steps before and after.
            assert_accepts(&first, ip, old_id);
            assert_accepts(&first, ip, new_id);
            assert_accepts(&before, ip, first.client(ip).id);
        }
    }
}

fn key_table(file: &Path) -> String {
    format!("[connection]\nkey_file = {file:?}")
}

fn assert_accepts(tracker: &RunningTracker, ip: &str, id: u64) {
    let client = tracker.unconnected_client(ip).with_id(id);
    assert_eq!(client.counts(hash(1)), ScrapeCounts::default());
}

fn assert_refuses(tracker: &RunningTracker, ip: &str, id: u64) {
    let request = scrape(id, transaction(), &[hash(1)]);
    tracker.assert_ignored(&tracker.client(ip), &request, "connection_id");
}
