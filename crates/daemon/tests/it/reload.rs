//! SIGHUP and `onrush ctl reload` with files on a disk: a valid configuration applies at once, an
//! invalid one changes nothing. The effect of each key, the log, and overlapping reloads are tested
//! in `src/supervise/tests.rs`.

use std::fs;
use std::net::Ipv4Addr;

use crate::harness::messages::{PURGED_ONE, RELOAD_REJECTED, RELOADED};
use crate::harness::{Client, Launch, TOKEN_FILE, leecher, random_hash, seeder};

/// Lists of info hashes and of sources change while the configuration file does not.
#[test]
fn lists_follow_their_files_and_a_wrong_or_missing_file_changes_nothing() {
    let mut daemon = Launch::on_loopback().admin_api("").serve();
    let (client, home) = (daemon.client(), daemon.home().to_owned());
    let mut source = Client::at(Ipv4Addr::new(127, 0, 0, 9).into(), daemon.address());
    let [first, second] = [(); 2].map(|()| random_hash());
    [first, second].iter().for_each(|hash| drop(client.announce(&seeder(*hash, 4_001))));
    daemon.get("/lists").fails(404, &["admin.publish_lists"]);
    fs::write(home.join("denied"), format!("# denied\n{first}  # by letter of today\n")).unwrap();
    fs::write(home.join("blocked"), "127.0.0.9  # why\n").unwrap();
    daemon.configure(&format!(
        "{TOKEN_FILE}publish_lists = true\n[access]\nmode = \"deny\"\n\
         files = [\"HOME/denied\"]\nblocked_file = \"HOME/blocked\"\n"
    ));
    daemon.signal("HUP");
    daemon.line(PURGED_ONE);
    client.announce_refused(&leecher(first, 4_002));
    client.announce(&leecher(second, 4_002));
    let blocked = ["reason=\"blocked\""];
    let refused = || daemon.metrics().sum("onrush_refused_requests_total", &blocked) as u64;
    source.assert_blocked(refused);

    fs::write(home.join("denied"), format!("{second}\n")).unwrap();
    fs::write(home.join("blocked"), "192.0.2.1\n").unwrap();
    daemon.signal("HUP");
    daemon.line_with(RELOADED, &["access.files", "access.blocked_file"]);
    client.announce(&leecher(first, 4_002));
    source.connect();
    for (name, wrong, problem) in [
        ("denied", "nonsense\n", "denied:1: \"nonsense\""),
        ("blocked", "127.0.0.9\nnonsense\n", "blocked:2: \"nonsense\""),
        ("onrush.toml", "[announce]\n  intervall = 900\n", "onrush.toml:2:3: `announce.intervall`"),
    ] {
        let path = home.join(name);
        let right = fs::read(&path).unwrap();
        fs::write(&path, wrong).unwrap();
        daemon.signal("HUP");
        daemon.line(RELOAD_REJECTED);
        daemon.line(problem);
        fs::remove_file(&path).unwrap();
        daemon.signal("HUP");
        daemon.line(RELOAD_REJECTED);
        daemon.line(name);
        client.announce_refused(&leecher(second, 4_002));
        source.connect();
        fs::write(&path, right).unwrap();
    }
    let published = daemon.get("/lists").body;
    let (head, list) = published.split_once('\n').unwrap();
    assert!(head.starts_with("# deny: ") && head.contains('1'), "{head}");
    assert_eq!(list, format!("{second}\n"));

    // An empty list needs force.
    fs::write(home.join("denied"), "").unwrap();
    daemon.ctl(&["reload"]).exits(1, &["--force"]);
    assert_eq!(daemon.call("POST", "/api/v1/reload?forced=1", "").status, 400);
    daemon.ctl(&["reload", "--force"]).prints(&[]);
    client.announce(&leecher(second, 4_002));
}
