//! `onrush probe` against trackers, silent ports and wrong URLs. Its reports are unit tests, and
//! trackers with faults are in `crates/verify/tests`.

use std::net::UdpSocket;

use crate::harness::{Ended, Launch, random_hash};

fn probe(arguments: &[&str]) -> Ended {
    Launch::new(&["probe"]).flags(arguments).run()
}

#[test]
fn a_name_is_probed_over_each_family_and_leaves_no_peer() {
    let daemon = Launch::on_loopback().serve();
    // `localhost` may have one family only in the hosts file of a machine.
    let [v4, v6] = [0, 1].map(|family| daemon.addresses()[family].to_string());
    for url in [format!("udp://{v4}/announce"), v6] {
        let ended = probe(&[&url]);
        ended.prints(&["\nOK: "]);
        let steps = ended.output.lines().filter_map(|line| line.strip_prefix("    "));
        let names: Vec<_> = steps.filter_map(|step| step.split_whitespace().next()).collect();
        assert_eq!(names, ["connect", "announce", "scrape"], "{ended:?}");
    }
    let hash = random_hash();
    probe(&[&v4, "--info-hash", &hash.to_string()]).prints(&[]);
    let counts = daemon.client().counts(hash);
    assert_eq!((counts.seeders, counts.leechers), (0, 0));
}

#[test]
fn limits_and_failures_have_the_exit_status_of_a_monitoring_plugin() {
    let daemon = Launch::on_loopback().serve();
    let address = daemon.address().to_string();
    let impossible = "0.000001";
    for (arguments, code, word) in [
        (&["--format", "nagios"][..], 0, "OK: IPv4: "),
        (&["--format", "nagios", "--warning", impossible], 1, "WARNING: "),
        (&["--format", "nagios", "-w", impossible, "-c", impossible], 2, "CRITICAL: "),
        (&["--format", "nagios", "-6"], 3, "UNKNOWN: "),
    ] {
        let ended = probe(&[&[address.as_str()], arguments].concat());
        ended.exits(code, &[]);
        assert!(ended.output.starts_with(word), "{ended:?}");
        assert_eq!(ended.output.lines().count(), 1, "{ended:?}");
    }
    daemon.stop();

    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    assert_critical(&[&address, "--timeout", "1"], "connect   failed: no reply to ");
    drop(silent);
    assert_critical(&[&address], "connect   failed: nothing listens there");
}

#[track_caller]
fn assert_critical(arguments: &[&str], part: &str) {
    let ended = probe(arguments);
    assert!(ended.code == Some(2) && ended.output.contains(part), "{ended:?}");
}

#[test]
fn a_refused_info_hash_is_a_failure_of_the_announce() {
    let hash = random_hash().to_string();
    let access = format!("[access]\nmode = \"allow\"\ninfo_hashes = [\"{hash}\"]\n");
    let daemon = Launch::on_loopback().config(&access).serve();
    let address = daemon.address().to_string();
    assert_critical(&[&address], "announce  failed: an error to ");
    probe(&[&address, "--info-hash", &hash]).prints(&[]);
}

#[test]
fn a_wrong_url_is_unknown_and_says_what_is_expected() {
    for (url, expected) in [
        ("http://127.0.0.1:6969/announce", "udp://HOST:PORT/announce"),
        ("tracker.invalid:6969", "`tracker.invalid`"),
        ("127.0.0.1", "no port"),
    ] {
        let ended = probe(&[url]);
        ended.exits(3, &[expected]);
        assert_eq!(ended.output, "");
    }
    probe(&["127.0.0.1:1", "--warning", "fast"]).exits(2, &[]);
}
