//! Properties of every declared key.

use onrush_config::keys::SCHEMA;
use onrush_config::{Problem, Problems, Settings, print_config};
use onrush_toml_keys::{Absent, Key, Kind};
use proptest::prelude::*;

use super::{host, with};

#[test]
fn every_key_can_be_set_and_changes_the_settings() {
    let defaults = Settings { values: Default::default(), ..super::settings("") };
    for (path, key) in SCHEMA.leaves() {
        let text = changed(&path, key);
        let settings = Settings { values: Default::default(), ..super::settings(&text) };
        assert_ne!(settings, defaults, "{path} changes nothing");
    }
}

#[test]
fn every_default_and_example_is_a_value_of_its_key() {
    for (path, key) in SCHEMA.leaves() {
        let value = match key.absent {
            Absent::Default(value) | Absent::Derived { example: value, .. } => value,
            Absent::Base => panic!("{path} has no default"),
        };
        let text = setting(&path, value);
        let found = reported(&text).into_iter().find(|problem| problem.contains(", expected "));
        assert_eq!(found, None, "{text}");
        assert!(key.doc.trim().ends_with('.'), "{path} has no documentation");
    }
    assert!(print_config().lines().all(|line| line.chars().count() <= 100));
}

/// The types of the fields hold what the keys accept.
#[test]
fn both_ends_of_every_range_are_accepted_and_no_more() {
    let mut tried = 0;
    for (path, key) in SCHEMA.leaves() {
        let Kind::Integer(range, _) = &key.kind else { continue };
        let (least, most) = (range.start(), range.end());
        tried += 1;
        for value in [least, most] {
            let text = setting(&path, &value.to_string()) + needed_by(&path);
            assert_eq!(reported(&text), [""; 0], "{text}");
        }
        for value in [least - 1, most + 1] {
            let text = setting(&path, &value.to_string()) + needed_by(&path);
            let problems = reported(&text);
            assert_eq!(problems.len(), 1, "{text}\n{problems:?}");
            let place = format!("onrush.toml:2:{}: `{path}`: ", key.name.len() + 4);
            assert!(problems[0].starts_with(&place), "{text}\n{problems:?}");
        }
    }
    assert!(tried > 15, "only {tried} keys are integers");
}

#[test]
fn every_key_rejects_a_date_and_a_table() {
    for (path, _) in SCHEMA.leaves() {
        for value in ["1979-05-27", "{}"] {
            let problems = reported(&setting(&path, value));
            assert_eq!(problems.len(), 1, "{problems:?}");
            let parts = [&format!(": `{path}`: "), ", expected "];
            assert!(parts.iter().all(|part| problems[0].contains(*part)), "{}", problems[0]);
        }
    }
}

#[test]
fn every_mistyped_key_is_recognized() {
    for (path, key) in SCHEMA.leaves() {
        let text = setting(&format!("{path}x"), "1");
        let problem = &reported(&text)[0];
        assert!(problem.contains(&format!("did you mean `{}`?", key.name)), "{text}\n{problem}");
    }
}

proptest! {
    #[test]
    fn no_change_of_the_default_file_is_a_panic(
        at in any::<prop::sample::Index>(),
        length in 0usize..30,
        text in "[a-z_.=\\[\\]{}\"'# \\n0-9:/-]{0,20}",
    ) {
        let lines = print_config();
        let lines = lines.lines().filter(|line| !line.starts_with("# ") || line.contains(" = "));
        let lines = lines.flat_map(|line| [line, "\n"]);
        let mut file: Vec<char> = lines.flat_map(str::chars).collect();
        let at = at.index(file.len());
        let end = (at + length).min(file.len());
        file.splice(at..end, text.chars());
        reported(&file.into_iter().collect::<String>());
    }
}

fn reported(text: &str) -> Vec<String> {
    let problems = with(text, &[], &host(4)).err();
    problems.iter().flat_map(Problems::iter).map(Problem::to_string).collect()
}

/// A file with HTTPS.
const HTTPS: &str = "[http]\ntls_listen = [':443']\ncertificates = ['/crt']\nkeys = ['/key']\n";

/// A file that sets one key.
fn setting(path: &str, value: &str) -> String {
    match path.rsplit_once('.') {
        None => format!("{path} = {value}\n"),
        Some((table, key)) => format!("[{table}]\n{key} = {value}\n"),
    }
}

/// A file that sets a key to a value other than its default, with the keys that this needs.
fn changed(path: &str, key: &Key) -> String {
    let hashes = "info_hashes = [\"0123456789abcdef0123456789abcdef01234567\"]\n";
    match path {
        "listen" => "listen = [\"127.0.0.1:7000\"]".to_owned(),
        "http.listen" => "[http]\nlisten = [\"127.0.0.1:7000\"]".to_owned(),
        "http.tls_listen" | "http.certificates" | "http.keys" => HTTPS.to_owned(),
        "xdp.interfaces" => setting(path, "[\"eth0\"]"),
        "xdp.ring" => setting(path, "4096"),
        "xdp.required" => setting(path, "true") + "interfaces = [\"eth0\"]\n",
        "http.workers" => setting(path, "2"),
        "http.proxies" => setting(path, "[\"192.0.2.0/24\"]"),
        "group" => "user = \"onrush\"\ngroup = \"www\"".to_owned(),
        "workers.total" => "[workers]\ntotal = 3".to_owned(),
        "workers.socket" => "[workers]\nplacement = \"split\"\nsocket = 2\ntotal = 4".to_owned(),
        "workers.swarm" => "[workers]\nplacement = \"split\"\nswarm = 2\ntotal = 4".to_owned(),
        "workers.pin" => "[workers]\npin = [3, 2, 1, 0]".to_owned(),
        "announce.peer_lifetime" => "[announce]\npeer_lifetime = 4000".to_owned(),
        "overload.longest_interval" => "[overload]\nlongest_interval = 5400\n".to_owned(),
        "access.mode" => format!("[access]\nmode = \"allow\"\n{hashes}"),
        "access.info_hashes" => format!("[access]\nmode = \"deny\"\n{hashes}"),
        "access.files" => "[access]\nmode = \"deny\"\nfiles = [\"/list: why\"]\n".to_owned(),
        "access.error" => "[access]\nmode = \"deny\"\nerror = \"why\"\n".to_owned(),
        "access.blocked" => "[access]\nblocked = [\"192.0.2.0/24\"]\n".to_owned(),
        "admin.hosts" => "[admin]\nhosts = [\"tracker.example.org\"]\n".to_owned(),
        "limits.peers" => "[limits]\npeers = 12345".to_owned(),
        "limits.trusted_sources" => setting(path, "[]"),
        path => match (key.absent, &key.kind) {
            (Absent::Derived { example, .. }, _) => setting(path, example),
            (_, Kind::Word(words)) => setting(path, &format!("{:?}", words[1])),
            (Absent::Default("true"), _) => setting(path, "false"),
            (Absent::Default("false"), _) => setting(path, "true"),
            (Absent::Default(default), Kind::Integer(range, _)) => {
                let least = range.start();
                let value = if least.to_string() == default { range.end() } else { least };
                setting(path, &value.to_string()) + needed_by(path)
            }
            other => panic!("{path}: no other value is known for {other:?}"),
        },
    }
}

/// The keys that the ends of a key's range need.
fn needed_by(path: &str) -> &'static str {
    match path {
        "announce.interval" | "announce.interval_jitter_percent" => "peer_lifetime = 65536\n",
        "announce.peer_lifetime" => "interval = 60\ninterval_jitter_percent = 0\n",
        "overload.longest_interval" => "[announce]\ninterval = 60\n",
        "limits.batches_in_flight" => "[workers]\ntotal = 1\n",
        "workers.socket" | "workers.swarm" => "placement = \"split\"\ntotal = 1024\n",
        _ => "",
    }
}
