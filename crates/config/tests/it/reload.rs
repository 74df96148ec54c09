//! Which changes of the file apply on a reload.

use onrush_config::reload::{Changes, KeyChange};

use super::{host, settings};

fn changes(running: &str, read: &str) -> Changes {
    Changes::new(&settings(running), settings(read), &host(4)).unwrap()
}

fn keys(changes: &[KeyChange]) -> Vec<&str> {
    changes.iter().map(|change| change.key.as_str()).collect()
}

#[test]
fn an_unchanged_file_changes_nothing() {
    let same = changes("", "");
    assert_eq!(same.settings, settings(""));
    assert!(same.changed.is_empty() && same.restart.is_empty());
}

#[test]
fn keys_that_need_a_restart_are_named_and_keep_their_values() {
    let running = "[announce]\ninterval = 900\n";
    let read = "listen = [\":7000\"]\n[workers]\nspin = 5\n[announce]\ninterval = 600\n\
                [limits]\npeers = 5000\n[log]\nlevel = \"debug\"\n";
    let changes = changes(running, read);
    assert_eq!(keys(&changes.restart), ["listen", "workers.spin", "limits.peers"]);
    assert_eq!(keys(&changes.changed), ["announce.interval", "log.level"]);
    let (running, now) = (settings(running), changes.settings);
    assert_eq!((now.listen, now.limits, now.spin), (running.listen, running.limits, running.spin));
    assert_eq!((now.announce.interval, now.announce.peer_lifetime), (600, 1200));
}

#[test]
fn a_value_that_is_in_effect_already_is_not_a_change() {
    let explicit = "[workers]\ntotal = 4\n[announce]\ninterval = 1800\npeer_lifetime = 3600\n\
                    [access]\nblocked = []\n";
    let same = changes("", explicit);
    assert!(same.changed.is_empty() && same.restart.is_empty(), "{same:?}");
}

#[test]
fn keys_that_only_make_sense_together_are_all_named() {
    let list = "[access]\nmode = \"deny\"\n\
                info_hashes = [\"0123456789abcdef0123456789abcdef01234567\"]\n";
    let keys_of_list = ["access.mode", "access.info_hashes"];
    assert_eq!(keys(&changes("", list).changed), keys_of_list);
    let kinds = "[workers]\nplacement = \"split\"\nsocket = 3\nswarm = 1\n";
    let restart = ["workers.placement", "workers.socket", "workers.swarm"];
    assert_eq!(keys(&changes("", kinds).restart), restart);
}

#[test]
fn a_second_reload_is_compared_with_the_first() {
    let first = changes("", "listen = [\":1\"]\n[log]\nlevel = \"warn\"\n");
    let read = settings("listen = [\":1\"]\n");
    let second = Changes::new(&first.settings, read, &host(4)).unwrap();
    assert_eq!((keys(&second.changed), keys(&second.restart)), (vec!["log.level"], vec!["listen"]));
}

#[test]
fn a_change_has_the_old_and_the_new_value() {
    let hashes: Vec<String> = (0..5).map(|number| format!("{number:040}")).collect();
    let list = format!("[access]\nmode = \"deny\"\ninfo_hashes = {hashes:?}\n");
    let read = format!("[announce]\ninterval = 2400\n[limits]\npeers = 5000\n{list}");
    let Changes { changed, restart, .. } = changes("", &read);
    let shown =
        |changes: &[KeyChange]| changes.iter().map(KeyChange::to_string).collect::<Vec<_>>();
    let expected = [
        "announce.interval: 1800 -> 2400",
        "access.mode: \"open\" -> \"deny\"",
        "access.info_hashes: [] -> 5 entries",
    ];
    assert_eq!(shown(&changed), expected);
    assert_eq!(shown(&restart), ["limits.peers: unset -> 5000"]);
}
