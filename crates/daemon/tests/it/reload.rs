//! SIGHUP: a valid configuration applies at once, an invalid one changes nothing.

use std::fs;
use std::io::Write;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::harness::client::Client;
use crate::harness::messages::{PURGED_ONE, RELOAD_REJECTED, RELOADED};
use crate::harness::packets::{connect, leecher, random_hash, seeder};
use crate::harness::process::{Daemon, Launch, SetOnDrop, TOKEN_FILE, eventually, free_address};

const LISTEN: &str = "listen = [\"127.0.0.1:0\"]\n";

/// Starts a daemon with `LISTEN`, this configuration and its admin side, in each placement.
fn daemons(config: &str) -> impl Iterator<Item = Daemon> {
    ["colocated", "split"].into_iter().map(move |placement| {
        let launch = Launch::new(&["--workers", "3", "--placement", placement]).admin();
        launch.config(&format!("{LISTEN}{config}")).serve()
    })
}

/// Writes `LISTEN` and this configuration to the daemon's file, and sends HUP.
fn reload(daemon: &Daemon, config: &str) {
    daemon.configure(&format!("{LISTEN}{config}"));
    daemon.signal("HUP");
}

/// Waits for a reload that has changed these keys.
fn applied(daemon: &mut Daemon, keys: &str) {
    let line = daemon.line(RELOADED);
    assert!(keys.split(", ").all(|key| line.contains(key)), "{line}");
}

/// Old and new values, the entries of a list, and who has requested the reload.
#[test]
fn the_log_has_what_a_reload_changes_and_for_whom() {
    let directory = tempfile::tempdir().unwrap();
    let list = directory.path().join("list");
    let hashes = [(); 6].map(|()| random_hash().to_string());
    fs::write(&list, hashes[..2].join("\n")).unwrap();
    let config = |interval| {
        format!(
            "{LISTEN}{TOKEN_FILE}[announce]\ninterval = {interval}\n[access]\nmode = \"deny\"\n\
             files = [{list:?}]\n"
        )
    };
    let mut daemon = Launch::new(&[]).admin().config(&config(1800)).serve();
    daemon.configure(&config(2400));
    daemon.signal("HUP");
    daemon.line_with(RELOADED, &["SIGHUP", "announce.interval: 1800 -> 2400"]);

    fs::write(&list, hashes[1..].join("\n")).unwrap();
    assert_eq!(daemon.call("POST", "/api/v1/reload", "").status, 200);
    let line = daemon.line("list of info hashes");
    assert!(line.contains(&format!("removed {}", hashes[0])), "{line}");
    assert_eq!(hashes[2..].iter().filter(|hash| line.contains(*hash)).count(), 3, "{line}");
    assert!(line.contains("and 1 more") && !line.contains(&hashes[1]), "{line}");
    daemon.line_with(RELOADED, &["127.0.0.1:", "access.files"]);

    daemon.configure("nonsense\n");
    assert_eq!(daemon.call("POST", "/api/v1/reload", "").status, 422);
    daemon.line_with(RELOAD_REJECTED, &["127.0.0.1:"]);
    daemon.stop();
}

/// The list file may change while the configuration file does not.
#[test]
fn a_list_file_is_reloaded_or_kept_when_invalid() {
    for mut daemon in daemons("") {
        let client = daemon.client();
        let (first, second) = (random_hash(), random_hash());
        for hash in [first, second] {
            client.announce(&seeder(hash, 4_001));
        }
        let file = daemon.home().join("denied.txt");
        fs::write(&file, format!("# denied\n{first}  # by letter of today\n")).unwrap();
        let deny = format!("[access]\nmode = \"deny\"\nfiles = [{file:?}]\n");
        reload(&daemon, &deny);
        applied(&mut daemon, "access");
        daemon.line(PURGED_ONE);
        client.announce_refused(&leecher(first, 4_002));
        client.announce(&leecher(second, 4_002));

        fs::write(&file, format!("{first}\n{second}\n")).unwrap();
        daemon.signal("HUP");
        applied(&mut daemon, "access.files");
        daemon.line(PURGED_ONE);
        client.announce_refused(&leecher(second, 4_002));

        fs::write(&file, format!("{second}\nnonsense\n")).unwrap();
        daemon.signal("HUP");
        daemon.line("denied.txt:2: \"nonsense\"");
        client.announce_refused(&leecher(first, 4_002));
        fs::remove_file(&file).unwrap();
        daemon.signal("HUP");
        daemon.line("denied.txt");
        client.announce_refused(&leecher(first, 4_002));
        daemon.stop();
    }
}

/// A file that is read while it is written may lack most of its entries.
#[test]
fn a_list_that_lost_most_of_its_entries_needs_force() {
    let directory = tempfile::tempdir().unwrap();
    let (list, blocked) = (directory.path().join("list"), directory.path().join("blocked"));
    let denied = random_hash();
    let write = |hashes: usize, ranges: usize| {
        let others: String = (1..hashes).map(|_| format!("{}\n", random_hash())).collect();
        let first = if hashes > 0 { format!("{denied}\n") } else { String::new() };
        fs::write(&list, first + &others).unwrap();
        let ranges: String = (0..ranges).map(|n| format!("198.51.{n}.0/25\n")).collect();
        fs::write(&blocked, ranges).unwrap();
    };
    write(300, 200);
    let access = format!("mode = \"deny\"\nfiles = [{list:?}]\nblocked_file = {blocked:?}\n");
    let launch = Launch::new(&["--listen", "127.0.0.1:0"]);
    let mut daemon = launch.admin_api(&format!("[access]\n{access}")).serve();
    let client = daemon.client();
    for (hashes, ranges, what) in [(0, 200, ["300", "0 "]), (300, 99, ["200", "99 "])] {
        write(hashes, ranges);
        daemon.signal("HUP");
        daemon.line(RELOAD_REJECTED);
        daemon.line_with("reload --force", &what);
        let error = daemon.call("POST", "/api/v1/reload", "").error(422);
        assert!(error.contains("--force"), "{error}");
        daemon.line("reload --force");
        client.announce_refused(&leecher(denied, 4_002));
    }
    // Half is accepted, and the log has both numbers.
    write(150, 100);
    daemon.skip();
    daemon.signal("HUP");
    daemon.line(RELOADED);
    for (name, before, now) in [("info hashes", 300, 150), ("blocked addresses", 200, 100)] {
        let both = |line: &&String| {
            line.contains(name)
                && line.contains(&format!(" {before} "))
                && line.contains(&format!(" {now} "))
        };
        assert_eq!(daemon.log().iter().filter(both).count(), 1, "{:?}", daemon.log());
    }
    client.announce_refused(&leecher(denied, 4_002));
    // Half of a half is compared with the whole.
    write(80, 100);
    let refused = daemon.call("POST", "/api/v1/reload", "").error(422);
    assert!(refused.contains(" 80 ") && refused.contains(" 300 "), "{refused}");
    write(0, 0);
    daemon.ctl(&["reload"]).exits(1, &["--force"]);
    assert_eq!(daemon.call("POST", "/api/v1/reload?forced=1", "").status, 400);
    let forced = daemon.ctl(&["reload", "--force"]);
    assert_eq!(forced.code, Some(0), "{}", forced.text());
    client.announce(&leecher(denied, 4_002));
    // The next list is compared with the forced one.
    write(9, 9);
    assert_eq!(daemon.call("POST", "/api/v1/reload", "").status, 200);
    daemon.stop();
}

/// Entries that were removed on request are not missing from a file that lacks them, too.
#[test]
fn a_list_that_follows_its_removed_entries_is_accepted() {
    let directory = tempfile::tempdir().unwrap();
    let list = directory.path().join("list");
    let hashes: Vec<_> = (0..20).map(|_| random_hash()).collect();
    let write = |number: usize| {
        let text: String = hashes[..number].iter().map(|hash| format!("{hash}\n")).collect();
        fs::write(&list, text).unwrap();
    };
    write(20);
    let access = format!("[access]\nmode = \"deny\"\nfiles = [{list:?}]\n");
    // Without a state directory changes are not in a journal.
    let daemon = Launch::new(&["--listen", "127.0.0.1:0"]).admin_api(&access).serve();
    let removed: Vec<String> = hashes[8..].iter().map(ToString::to_string).collect();
    let mut command = vec!["list", "remove"];
    command.extend(removed.iter().map(String::as_str));
    let changed = daemon.ctl(&command);
    assert_eq!(changed.code, Some(0), "{}", changed.text());
    for (number, status) in [(20, 200), (8, 200), (3, 422)] {
        write(number);
        let reloaded = daemon.call("POST", "/api/v1/reload", "");
        assert_eq!(reloaded.status, status, "{number}: {}", reloaded.body);
    }
    daemon.stop();
}

/// Half of a file cannot be told from a shorter list, but the half of that half can be.
#[test]
fn a_list_that_is_rewritten_in_place_never_loses_most_of_its_entries() {
    let directory = tempfile::tempdir().unwrap();
    let list = directory.path().join("list");
    let hashes: Vec<_> = (0..60_000).map(|_| random_hash()).collect();
    let text: String = hashes.iter().map(|hash| format!("{hash}\n")).collect();
    fs::write(&list, &text).unwrap();
    let access = format!("[access]\nmode = \"deny\"\nfiles = [{list:?}]\n");
    let launch = Launch::new(&["--listen", "127.0.0.1:0"]);
    let daemon = launch.admin_api(&access).serve();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        // Also when an assertion fails: the scope waits for the thread.
        let _ends = SetOnDrop(&done);
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let (first, second) = text.split_at(text.len() / 2 / 41 * 41);
                let mut file = fs::File::create(&list).unwrap();
                file.write_all(first.as_bytes()).unwrap();
                thread::yield_now();
                file.write_all(second.as_bytes()).unwrap();
            }
        });
        for _ in 0..20 {
            let reloaded = daemon.call("POST", "/api/v1/reload", "");
            assert!([200, 422].contains(&reloaded.status), "{}", reloaded.body);
            let entries = daemon.call("GET", "/api/v1/list", "").json()["entries"].as_u64();
            assert!(entries.is_some_and(|entries| entries >= 30_000), "{entries:?}");
        }
    });
    assert_eq!(daemon.call("POST", "/api/v1/reload", "").status, 200);
    daemon.stop();
}

#[test]
fn keys_that_need_an_upgrade_are_named_and_unchanged() {
    for mut daemon in daemons("") {
        reload(&daemon, "[limits]\npeers = 5000\n[socket]\nbatch = 64\n[log]\ntotals_every = 0\n");
        applied(&mut daemon, "log.totals_every");
        daemon.line_with("onrush ctl upgrade", &["socket.batch", "limits.peers"]);
        daemon.check();
        reload(&daemon, "");
        applied(&mut daemon, "log.totals_every");
        daemon.stop();
    }
}

#[test]
fn a_wrong_file_is_rejected_and_reported_with_its_place() {
    for mut daemon in daemons("[announce]\nmax_peers_v4 = 1\ndefault_peers = 1\n") {
        let client = daemon.client();
        let hash = random_hash();
        (4_001..4_004).for_each(|port| drop(client.announce(&seeder(hash, port))));
        reload(&daemon, "[announce]\nmax_peers_v4 = 9\nintervall = 900\n");
        daemon.line(RELOAD_REJECTED);
        daemon.line("onrush.toml:4:1: `announce.intervall`");
        assert_eq!(client.announce(&leecher(hash, 4_009)).peers.len(), 1);
        fs::remove_file(daemon.home().join("onrush.toml")).unwrap();
        daemon.signal("HUP");
        daemon.line("onrush.toml");
        assert_eq!(client.announce(&leecher(hash, 4_009)).peers.len(), 1);
        reload(&daemon, "");
        applied(&mut daemon, "announce.default_peers, announce.max_peers_v4");
        assert_eq!(client.announce(&leecher(hash, 4_009)).peers.len(), 3);
        daemon.stop();
    }
}

#[test]
fn the_level_of_the_log_changes() {
    let address = free_address();
    let config = |level| format!("listen = [\"{address}\"]\n[log]\nlevel = \"{level}\"\n");
    let mut daemon = Launch::new(&[]).config(&config("warn")).start();
    Client::new(address).await_tracker();
    daemon.configure(&config("info"));
    daemon.signal("HUP");
    applied(&mut daemon, "log.level");
    daemon.stop();
}

/// Reloads that overlap end with the last state of the file.
#[test]
fn after_many_reloads_the_last_file_applies() {
    for daemon in daemons("") {
        let client = daemon.client();
        let hash = random_hash();
        (4_001..4_008).for_each(|port| drop(client.announce(&seeder(hash, port))));
        for most in 1..=6 {
            let config = format!("[announce]\nmax_peers_v4 = {most}\ndefault_peers = {most}\n");
            reload(&daemon, &config);
        }
        eventually("the last file is in force", || {
            client.announce(&leecher(hash, 4_009)).peers.len() == 6
        });
        daemon.stop();
    }
}

/// Asserts that a connect gets no reply and is counted as refused for this reason.
fn assert_unanswered(daemon: &Daemon, client: &Client, reason: &str) {
    let labels = format!("reason=\"{reason}\"");
    let refused = || daemon.metrics().sum("onrush_refused_requests_total", &[&labels]);
    let before = refused();
    client.send(&connect(1));
    eventually(&format!("{reason} is counted"), || refused() > before);
    assert!(!client.has_datagram(), "{reason}");
}

#[test]
fn blocked_and_bogon_sources_follow_a_reload() {
    for mut daemon in daemons("") {
        let address = daemon.address();
        let mut other = Client::new(address);
        let mut client = Client::at(Ipv4Addr::new(127, 0, 0, 9).into(), address);
        client.connect();
        let file = daemon.home().join("blocked.txt");
        fs::write(&file, "127.0.0.9  # why\n").unwrap();
        let blocked = format!("[access]\nblocked_file = {file:?}\n");
        reload(&daemon, &blocked);
        applied(&mut daemon, "access.blocked");
        assert_unanswered(&daemon, &client, "blocked");
        other.connect();

        fs::write(&file, "127.0.0.9\nnonsense\n").unwrap();
        daemon.signal("HUP");
        daemon.line("blocked.txt:2: \"nonsense\"");
        assert_unanswered(&daemon, &client, "blocked");

        fs::write(&file, "192.0.2.1\n").unwrap();
        daemon.signal("HUP");
        applied(&mut daemon, "access.blocked_file");
        client.connect();

        reload(&daemon, "[access]\nblocked = [\"127.0.0.8/31\"]\n");
        applied(&mut daemon, "access.blocked");
        assert_unanswered(&daemon, &client, "blocked");
        other.connect();

        reload(&daemon, "[access]\nrefuse_bogons = true\n");
        applied(&mut daemon, "access.blocked, access.refuse_bogons");
        assert_unanswered(&daemon, &client, "bogon");
        assert_unanswered(&daemon, &other, "bogon");
        reload(&daemon, "");
        applied(&mut daemon, "access.refuse_bogons");
        client.connect_and_check();
        daemon.stop();
    }
}

#[test]
fn publishing_the_list_follows_a_reload() {
    for mut daemon in daemons("") {
        let hash = random_hash();
        let deny = format!("[access]\nmode = \"deny\"\ninfo_hashes = [\"{hash}\"]\n");
        reload(&daemon, &deny);
        applied(&mut daemon, "access");
        assert!(daemon.get("/lists").error(404).contains("admin.publish_lists"));
        reload(&daemon, &format!("{deny}[admin]\npublish_lists = true\n"));
        applied(&mut daemon, "admin.publish_lists");
        let response = daemon.get("/lists");
        let (head, list) = response.body.split_once('\n').unwrap();
        assert!(head.starts_with("# deny: ") && head.contains('1'), "{head}");
        assert_eq!((response.status, list), (200, format!("{hash}\n").as_str()));
        reload(&daemon, &deny);
        applied(&mut daemon, "admin.publish_lists");
        assert_eq!(daemon.get("/lists").status, 404);
        daemon.stop();
    }
}
