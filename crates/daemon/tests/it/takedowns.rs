//! Denied info hashes: lists with error texts of their own, comments of entries, the number of
//! refused announces, and open connections of HTTP.

use std::fs;
use std::io::Write;
use std::path::Path;

use onrush_proto::InfoHash;
use onrush_testing::tls::{Issued, client};

use crate::harness::messages::{LIST_CHANGED, PURGED_ONE};
use crate::harness::{Daemon, Launch, eventually, free_address, leecher, random_hash, seeder};
use crate::http::{Connection, announce, await_sum, check_sums, get};
use crate::https::{ask, certificate_keys, connect_by};
use crate::websocket::{Browser, json};

const COURT: &str = "court order, see https://t.example/c";

/// A daemon with two lists in this directory, which holds its state too, and further tables.
fn start(directory: &Path, tables: &str) -> Daemon {
    let [abuse, court] = ["abuse.txt", "court.txt"].map(|name| directory.join(name));
    let court = format!("{}: {COURT}", court.display());
    let config = format!(
        "publish_lists = true\n[access]\nmode = \"deny\"\nerror = \"denied\"\n\
         files = [{abuse:?}, {court:?}]\n{tables}"
    );
    let launch = Launch::on_loopback().flag("--state-dir", directory.join("state"));
    launch.flags(&["--workers", "2"]).admin_api(&config).serve()
}

/// Refusals of the parts of the list since the start.
fn refused(daemon: &Daemon) -> [u64; 2] {
    let parts = &daemon.call("GET", "/api/v1/list", "").json()["parts"];
    ["abuse.txt", "court.txt"].map(|name| {
        let part = parts.as_array().unwrap().iter().find(|part| part["name"] == name).unwrap();
        part["refused"].as_u64().unwrap()
    })
}

/// The error texts of these info hashes.
fn errors<const N: usize>(daemon: &Daemon, hashes: [InfoHash; N]) -> [String; N] {
    let client = daemon.client();
    hashes.map(|hash| client.announce_refused(&leecher(hash, 4_002)))
}

#[test]
fn each_list_refuses_with_its_text_and_is_counted() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let [abused, ordered, added] = [(); 3].map(|()| random_hash());
    fs::write(directory.join("abuse.txt"), format!("{abused} # 2026-11-22 abuse@ 4711\n")).unwrap();
    fs::write(directory.join("court.txt"), format!("# orders\n{ordered}\n")).unwrap();
    let mut daemon = start(directory, "");
    let reason = ["list", "add", &added.to_string(), "--reason", "letter 7"];
    daemon.ctl(&reason).prints(&["1 changed", "deny list has 3 "]);
    daemon.line_with(LIST_CHANGED, &[&format!("added {added}"), "letter 7"]);
    assert_eq!(errors(&daemon, [abused, ordered, added]), ["denied", COURT, "denied"]);
    eventually("refusals are counted", || refused(&daemon) == [2, 1]);
    let [abuse, court] = ["abuse.txt", "court.txt"].map(|name| directory.join(name));
    let [abuse, court] = [abuse.to_str().unwrap(), court.to_str().unwrap()];
    // The files are checked together; the entry of the request stays.
    daemon.ctl(&["list", "check", abuse, court]).prints(&["3 info hashes: 0 added, 0 removed"]);
    daemon.ctl(&["list", "check", court]).prints(&["2 info hashes: 0 added, 1 removed"]);
    let metrics = daemon.metrics();
    let of = |list| metrics.sum("onrush_list_refused_announces_total", &[list]);
    assert_eq!([of("abuse.txt"), of("court.txt")], [2.0, 1.0]);
    daemon.ctl(&["list", "show"]).prints(&["\nabuse.txt ", "\ncourt.txt "]);
    for (hash, parts) in [
        (abused, ["not served (abuse.txt)", ": 2026-11-22 abuse@ 4711"]),
        (ordered, ["not served (court.txt)", "is listed"]),
        (added, ["not served (abuse.txt)", " letter 7"]),
    ] {
        daemon.ctl(&["list", "show", &hash.to_string()]).prints(&parts);
    }
    let exported = daemon.ctl(&["list", "export"]);
    let comment = format!("{abused} # 2026-11-22 abuse@ 4711");
    exported.prints(&[&comment, &ordered.to_string(), &format!("{added} # 20")]);
    let published = daemon.get("/lists").body;
    assert!(published.contains(&abused.to_string()), "{published}");
    assert!(!published.contains("4711") && !published.contains("letter"), "{published}");
    daemon.stop();
    // The file of another list gets the entry; the texts are those from before.
    let daemon = start(directory, "");
    assert_eq!(errors(&daemon, [added, ordered]), ["denied", COURT]);
    daemon.ctl(&["list", "show", &added.to_string()]).prints(&[" letter 7"]);
    fs::write(directory.join("court.txt"), format!("{ordered}\n{added} # order 8\n")).unwrap();
    daemon.ctl(&["reload"]).prints(&[]);
    assert_eq!(errors(&daemon, [added, ordered]), [COURT, COURT]);
    daemon.ctl(&["list", "show", &added.to_string()]).prints(&["court.txt", ": order 8"]);
    eventually("refusals are counted since the start", || refused(&daemon) == [1, 3]);
}

#[test]
fn open_connections_of_http_follow_the_list_the_purge_and_a_block() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    for list in ["abuse.txt", "court.txt"] {
        fs::write(directory.join(list), "").unwrap();
    }
    let issued = Issued::of(&["t.example"]);
    let [http, https] = [(); 2].map(|()| free_address());
    let keys = certificate_keys(&issued, directory);
    let table = format!("[http]\nkeep_alive = 300\nlisten = [\"{http}\"]\n");
    let mut daemon = start(directory, &format!("{table}tls_listen = [\"{https}\"]\n{keys}"));
    let tls = client(&[&issued]);
    let mut open = [(http, None), (https, Some(&tls))].map(|(at, tls)| connect_by(at, tls));
    let mut browser = Browser::over(Box::new(Connection::to(http).0.into_inner()));
    let (hash, source) = (random_hash(), "127.0.0.1");
    let target = announce(hash, 7_001, "&left=0");
    let scrape = target.replace("/announce", "/scrape");
    let named = hash.to_string();
    // A peer that does not announce again.
    daemon.client().announce(&seeder(hash, 7_002));
    open.iter_mut().for_each(|it| assert!(ask(it, &target).starts_with(b"d8:completei2e")));
    assert_eq!(browser.announce(&json(hash), r#""left":1"#), [0, 1]);
    daemon.ctl(&["list", "add", &named]).prints(&["1 changed"]);
    for connection in &mut open {
        assert_eq!(ask(connection, &target), b"d14:failure reason6:deniede");
    }
    browser.send(&json(hash), r#""left":1"#).unwrap();
    assert_eq!(browser.next().1["failure reason"], "denied");
    daemon.line(PURGED_ONE);
    for connection in &mut open {
        let counts = b"d8:completei0e10:downloadedi0e10:incompletei0eeee";
        assert!(ask(connection, &scrape).ends_with(counts));
    }
    daemon.ctl(&["list", "remove", &named]).prints(&["1 changed"]);
    open.iter_mut().for_each(|it| assert!(ask(it, &target).starts_with(b"d8:completei1e")));
    daemon.ctl(&["block", source]).prints(&[source]);
    for connection in &mut open {
        connection.0.get_mut().write_all(get(&target).as_bytes()).unwrap();
        assert!(connection.next_reply().is_none());
    }
    browser.send(&json(hash), r#""left":1"#).unwrap();
    assert!(browser.has_ended());
    for transport in ["http", "https", "ws"] {
        for reason in ["forbidden", "blocked"] {
            let labels = format!("transport=\"{transport}\",reason=\"{reason}\"");
            await_sum(&daemon, "refused_requests_total", &labels, 1);
        }
    }
    await_sum(&daemon, "closed_connections_total", "cause=\"blocked\"", 3);
    check_sums(&daemon);
}
