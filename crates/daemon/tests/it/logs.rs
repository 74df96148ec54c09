//! Log levels, the lines of each level, and the absence of client addresses.

use onrush_proto::InfoHash;

use crate::harness::messages::{READY, RELOAD_REJECTED, RELOADED, STOPPED};
use crate::harness::{Client, Launch, free_address, leecher, random_hash, seeder, transaction};

/// A client address that occurs nowhere else in the log.
const SOURCE: &str = "127.83.21.9";

/// The levels as printed in log lines, the most severe first. No line has the level trace.
const LEVELS: [&str; 4] = [" ERROR ", " WARN ", " INFO ", " DEBUG "];

#[test]
fn a_level_logs_its_lines_and_more_severe_ones() {
    // A missing state directory is logged as a warning, an invalid packet at debug.
    for (word, shown) in [("error", 1), ("warn", 2), ("info", 3), ("debug", 4), ("trace", 4)] {
        let address = free_address();
        // One worker takes the packets in order.
        let daemon = Launch::new(&["--workers", "1", "--state-dir", "/proc/nope"])
            .flag("--listen", address.to_string())
            .flag("--log-level", word)
            .start();
        let mut client = Client::new(address).connected_later();
        client.connect_and_check();
        client.send(b"junk");
        client.connect_and_check();
        let ended = daemon.stop();
        let levels: Vec<_> = LEVELS.iter().map(|level| ended.text().contains(level)).collect();
        let expected: Vec<_> = (0..4).map(|at| at > 0 && at < shown).collect();
        assert_eq!(levels, expected, "{word}: {}", ended.text());
    }
}

/// Whatever an entry consists of, and from the first one to the last message.
#[test]
fn json_is_an_object_per_entry() {
    let taken = free_address();
    let config = format!("listen = [\"{taken}\"]\n[log]\nformat = \"json\"\n");
    let mut daemon = Launch::new(&[]).config(&config).start();
    Client::new(taken).connected_later();
    daemon.configure("[announce]\nintervall = 900\n");
    daemon.signal("HUP");
    let rejected = json(&daemon.line(RELOAD_REJECTED));
    assert_eq!(rejected["level"], "error");
    let message = rejected["message"].as_str().unwrap();
    assert!(message.contains("onrush.toml:2:1: ") && message.lines().count() > 3, "{message}");

    // A start that fails.
    let again = Launch::new(&["--log-level", "off"]).config(&config).run();
    assert_eq!((again.code, again.log.len()), (Some(1), 1), "{again:?}");
    let last = json(&again.log[0]);
    assert!(last["message"].as_str().unwrap().contains(&taken.to_string()), "{last}");
    let wrong = ["--log-format", "json", "--config", "/nowhere"];
    let wrong = Launch::new(&wrong).run();
    assert_eq!((wrong.code, wrong.log.len()), (Some(2), 1), "{wrong:?}");
    assert_eq!(json(&wrong.log[0])["level"], "error");

    daemon.configure(&config.replace("json", "text"));
    daemon.signal("HUP");
    daemon.line(RELOADED);
    let ended = daemon.stop();
    let (objects, rest): (Vec<String>, Vec<String>) =
        ended.log.into_iter().partition(|line| line.starts_with('{'));
    let all = objects.iter().map(|line| json(line)).all(|entry| {
        let has = |key: &str| entry[key].as_str().is_some_and(|text| !text.is_empty());
        ["time", "level", "module", "message"].iter().all(|key| has(key)) && entry["pid"].is_u64()
    });
    assert!(all && objects.len() > 5, "{objects:#?}");
    assert!(rest.iter().any(|line| line.contains(STOPPED)), "{rest:#?}");
}

fn json(line: &str) -> serde_json::Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

#[test]
fn client_addresses_are_logged_on_request_and_at_no_level_without() {
    for (is_on, log_table) in [(true, "addresses = true\n"), (false, "")] {
        let forbidden = random_hash();
        let config = format!(
            "[access]\nmode = \"deny\"\ninfo_hashes = [\"{forbidden}\"]\n[log]\nlevel = \"trace\"\n\
             {log_table}"
        );
        let daemon = Launch::on_loopback().config(&config).serve();
        let clients = [0, 1].map(|family| {
            let source = [SOURCE, "::1"][family].parse().unwrap();
            let mut client = Client::at(source, daemon.addresses()[family]);
            send_every_kind_of_request(&mut client, forbidden);
            client
        });
        let log = daemon.stop().log;
        // Lines of the start contain the tracker's own addresses.
        let start = log.iter().position(|line| line.contains(READY)).unwrap();
        let log = &log[start + 1..];
        let is_logged =
            |parts: &[&str]| log.iter().any(|line| parts.iter().all(|part| line.contains(part)));
        for address in clients.map(|client| client.address()) {
            let (address, port) = (address.to_string(), format!(":{}", address.port()));
            assert!(is_on || !is_logged(&[SOURCE]) && !is_logged(&[&port]), "{log:?}");
            for what in ["refused (short)", "refused (forbidden)"] {
                assert_eq!(is_logged(&[what, &address]), is_on, "{what} {address}: {log:?}");
            }
        }
    }
}

/// The log may be a file on a full disk, or a pipe without a reader.
#[test]
fn an_unwritable_log_does_not_stop_the_daemon() {
    let address = free_address();
    let flags = ["--listen", &address.to_string(), "--log-level", "trace"];
    let daemon = Launch::new(&flags).start_with_a_full_disk();
    let mut client = Client::new(address).connected_later();
    client.connect_and_check();
    daemon.signal("HUP");
    client.connect_and_check();
    // A second instance cannot log the cause of its failure, but exits with the right code.
    assert_eq!(Launch::new(&flags).start_with_a_full_disk().end().code, Some(1));
    let wrong = Launch::new(&["--config", "/nowhere"]).start_with_a_full_disk();
    assert_eq!(wrong.end().code, Some(2));
}

fn send_every_kind_of_request(client: &mut Client, forbidden: InfoHash) {
    client.send(b"short");
    client.send(&[7; 100]);
    client.connect();
    client.send(&leecher(random_hash(), 1000).bytes(1, transaction()));
    client.check_swarm();
    client.announce_refused(&seeder(forbidden, 1000));
    client.announce_refused(&seeder(random_hash(), 0));
    // A socket is read in order, so earlier packets are processed before these replies; announces
    // of many swarms reach every worker.
    for _ in 0..64 {
        client.announce(&seeder(random_hash(), 1000));
    }
    client.connect();
}
