//! The configuration from outside: files and flags in, settings or exact error texts out.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{CommandFactory, Parser};
use onrush::cli::{Cli, Task};
use onrush_config::Settings;
use onrush_config::file::{Config, Problems, print_config};
use onrush_config::settings::{
    Access, AdminSettings, Blocked, ConnectionSettings, ExportSettings, Host, Limits, Listen,
    LogSettings, Notice, OverloadSettings, ScrapeSettings, SnapshotSettings, SocketSettings,
};
use onrush_tracker::limits::{AnnounceSettings, Placement};

#[test]
fn an_empty_file_gives_the_documented_defaults() {
    assert_eq!(settings(""), defaults());
    assert_eq!(settings("\u{feff}# nothing\r\n[announce]\r\n"), defaults());
    assert_eq!(
        Settings::resolve(Config::default(), &args(&[]).flags, &host(4)).unwrap().0,
        defaults()
    );
}

#[test]
fn the_printed_defaults_change_nothing() {
    assert_eq!(settings(&print_config()), defaults());
}

#[test]
fn the_shipped_file_is_what_is_printed() {
    let file = fs::read_to_string(shipped("onrush.toml")).unwrap();
    assert!(
        file == print_config(),
        "config/onrush.toml is not what the table of keys says; renew it by\n  \
         cargo run -- --print-config > config/onrush.toml"
    );
}

#[test]
fn the_file_for_48_vcpus_is_valid_on_such_a_host() {
    let big = Host { memory: Some(96 << 30), ..host(48) };
    let text = fs::read_to_string(shipped("epyc-48.toml")).unwrap();
    let (settings, notices) =
        with(&text, &[], &big).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(notices, []);
    assert_eq!(settings.placement, Placement::Split { socket_workers: 42, swarm_workers: 6 });
    assert_eq!(settings.pin, Some((0..48).collect()));
    assert!(settings.refuse_bogons);
    assert!(settings.socket.receive_buffer > defaults().socket.receive_buffer);
    assert_eq!(settings.user.as_deref(), Some("onrush"));

    let small = with(&text, &[], &host(4)).unwrap_err().to_string();
    assert!(small.contains("48 workers") && small.contains("4 vCPUs"), "{small}");
}

#[test]
fn an_unknown_key_is_reported_with_place_and_suggestion() {
    let text = problems("[announce]\nintervall = 1800\n");
    let parts =
        ["`announce.intervall`", "\n  2 | intervall = 1800\n    | ^^^^^^^^^\n", "`interval`"];
    assert_report(&text, &[("onrush.toml:2:1: ", &parts)]);
}

#[test]
fn a_value_out_of_range_gets_range_unit_and_default() {
    let text = problems("# my tracker\n\n  [announce]\n  max_peers_v4 = 2_000 # many\n");
    let excerpt = "\n  4 |   max_peers_v4 = 2_000 # many\n    |                  ^^^^^\n";
    let parts = ["`announce.max_peers_v4`", "2000", "1 to 200 (peers)", excerpt, "default is 200"];
    assert_report(&text, &[("onrush.toml:4:18: ", &parts)]);
}

#[test]
fn all_problems_come_in_one_run_in_the_order_of_the_file() {
    let file = "\
refuse_bogons = true
port = 6969
[anounce]
interval = \"30m\"
peer_lifetime = 1200
[log]
level = \"inof\"
";
    let expected: [(&str, &[&str]); 5] = [
        ("onrush.toml:1:1: ", &["`refuse_bogons`", "[access]"]),
        ("onrush.toml:2:1: ", &["`port`", "`listen = [\":6969\"]`"]),
        ("onrush.toml:3:2: ", &["`anounce`", "[announce]"]),
        ("onrush.toml:4:12: ", &["`announce.interval`", "\"30m\"", "60 to 43200 (seconds)"]),
        ("onrush.toml:7:9: ", &["`log.level`", "\"inof\"", "\"trace\"", "\"info\"?"]),
    ];
    assert_report(&problems(file), &expected);
}

#[test]
fn each_line_that_is_not_toml_is_reported() {
    let text = problems("[announce]\ninterval =\n[log]\nlevel = info\n[scrape\n");
    let expected: [(&str, &[&str]); 3] = [
        ("onrush.toml:2:11: ", &["`interval = ...`"]),
        ("onrush.toml:4:9: ", &["\"info\""]),
        ("onrush.toml:5:8: ", &["https://toml.io"]),
    ];
    assert_report(&text, &expected);
    let twice = problems("[scrape]\nmax_hashes = 1\nmax_hashes = 2\n");
    assert!(twice.contains("onrush.toml:3:1: "), "{twice}");
    let twice = problems("[scrape]\n[log]\n[scrape]\n");
    assert!(twice.contains("onrush.toml:3:"), "{twice}");
}

/// Each contradiction: a file, where it is reported, under which key, and a part of the text.
const CONTRADICTIONS: &[(&str, &str, &str)] = &[
    ("[announce]\ninterval = 1800\npeer_lifetime = 1200", "3:17: `announce.peer_lifetime`", "1890"),
    ("[announce]\npeer_lifetime = 1889", "2:17: `announce.peer_lifetime`", "1890"),
    (
        "[announce]\ninterval = 43200\ninterval_jitter_percent = 50\npeer_lifetime = 64799",
        "4:17: `announce.peer_lifetime`",
        "64800",
    ),
    ("[announce]\ndefault_peers = 80\nmax_peers_v4 = 40", "2:17: `announce.default_peers`", "40"),
    ("[workers]\nplacement = \"split\"\nsocket = 3", "3:10: `workers.socket`", "3 socket workers"),
    ("[workers]\nplacement = \"split\"\nswarm = 3", "3:9: `workers.swarm`", "3 swarm workers"),
    (
        "[workers]\nplacement = \"split\"\nsocket = 4\ntotal = 4",
        "3:10: `workers.socket`",
        "4 of 4 workers",
    ),
    (
        "[workers]\nplacement = \"split\"\nsocket = 3\nswarm = 1\ntotal = 5",
        "5:9: `workers.total`",
        "found 5",
    ),
    ("[workers]\nplacement = \"split\"\ntotal = 1", "3:9: `workers.total`", "found 1"),
    (
        "[workers]\nplacement = \"colocated\"\nswarm = 3",
        "3:9: `workers.swarm`",
        "`placement = \"split\"`",
    ),
    ("[workers]\nsocket = 3", "2:10: `workers.socket`", "`placement = \"split\"`"),
    ("[workers]\npin = [0, 1]", "2:7: `workers.pin`", "found 2 vCPUs for 4 workers"),
    ("[workers]\npin = [0, 1, 2, 9]", "2:7: `workers.pin`", "vCPU 9"),
    ("[workers]\ntotal = 5\npin = \"on\"", "3:7: `workers.pin`", "4 vCPUs"),
    (
        "listen = [\"127.0.0.1:80\", \"127.0.0.1:81\", \"127.0.0.1:80\"]",
        "1:43: `listen`",
        "127.0.0.1:80 ",
    ),
    ("listen = [\":80\",\n\"[::]:80\"]", "2:1: `listen`", "[::]:80 "),
    ("listen = []", "1:10: `listen`", "empty list"),
    ("[limits]\nbatches_in_flight = 7", "2:21: `limits.batches_in_flight`", "4 workers"),
    (
        "[access]\ninfo_hashes = [\"0123456789abcdef0123456789abcdef01234567\"]",
        "2:15: `access.info_hashes`",
        "\"open\"",
    ),
    ("[access]\nmode = \"allow\"", "2:8: `access.mode`", "allow"),
    ("group = \"www\"", "1:9: `group`", "user"),
];

#[test]
fn contradictions_are_errors_at_the_key_to_change() {
    for (text, place, part) in CONTRADICTIONS {
        let found = problems(text);
        assert!(found.starts_with(&format!("onrush.toml:{place}: ")), "{text}\n{found}");
        assert!(found.contains(part) && count(&found) == 1, "{text}\n{found}");
    }
}

#[test]
fn allow_and_deny_lists_both_are_two_problems() {
    let text = problems("[access]\nallow = []\ndeny = []\n");
    assert!(text.contains("`access.allow`") && text.contains("mode = \"allow\""), "{text}");
    assert!(text.contains("`access.deny`") && text.contains("mode = \"deny\""), "{text}");
    assert!(count(&text) == 2, "{text}");
}

/// Each kind of wrong value: a file, what is found, and a part of the help.
const WRONG_KINDS: &[(&str, &str, &str)] = &[
    ("listen = \":6969\"", "found \":6969\"", "[\":6969\"]"),
    ("listen = [6969]", "found 6969", "\":6969\""),
    ("listen = [\"localhost:6969\"]", "found \"localhost:6969\"", "`192.0.2.1:6969`"),
    ("listen = [\"::1\"]", "found \"::1\"", "`[::1]:6969`"),
    ("state_dir = \"var/lib\"", "found \"var/lib\"", "`/`"),
    ("state_dir = 5", "found 5", "$STATE_"),
    ("user = \"\"", "found \"\"", "without this key"),
    ("announce = 5", "`announce`: found an integer", "`[announce]`"),
    ("[[announce]]", "`announce`: found a list", "`[announce]`"),
    ("[announce.interval]", "`announce.interval`: found a table", "1800"),
    ("[announce]\ninterval = 1800.5", "found 1800.5", "1800"),
    ("[announce]\ninterval = \"1800\"", "found \"1800\"", "without quotes"),
    ("[announce]\ninterval = -1", "found -1", "1800"),
    ("[announce]\ninterval = 99999999999999999999", "found 99999999999999999999", "1800"),
    ("[announce]\ninterval = 0xfffff", "found 0xfffff", "1800"),
    ("[announce]\ninterval = 1979-05-27", "found the date 1979-05-27", "1800"),
    ("[socket]\nsteering = \"true\"", "found \"true\"", "quotes"),
    ("[socket]\nsteering = 1", "found 1", "true"),
    ("[workers]\nplacement = \"splitt\"", "\"auto\", \"split\"", "\"split\"?"),
    ("[workers]\npin = true", "\"auto\", \"on\", \"off\"", "\"on\""),
    ("[workers]\npin = [\"0\"]", "found \"0\"", "without quotes"),
    ("[access]\ninfo_hashes = [\"abc\"]", "found \"abc\"", "40 hexadecimal digits"),
    ("[log.extra]\nlevel = 1", "`log.extra`", "`level`"),
    ("[log]\nscrape = 1", "`log.scrape`", "[scrape]"),
    ("[web]", "`web`", "[workers], [socket]"),
];

#[test]
fn values_of_a_wrong_kind_are_reported_with_a_remedy() {
    for (text, found, help) in WRONG_KINDS {
        let problem = problems(text);
        assert!(problem.contains(found), "{text}\n{problem}");
        let last = problem.lines().find(|line| line.starts_with("  help: ")).unwrap();
        assert!(last.contains(help), "{text}\n{problem}");
        assert_eq!(count(&problem), 1, "{text}\n{problem}");
    }
}

#[test]
fn a_wrong_value_is_reported_once() {
    for text in [
        "[announce]\ninterval = \"x\"\npeer_lifetime = 100",
        "[workers]\nplacement = \"x\"\nsocket = 3\nswarm = 1",
        "[workers]\nplacement = \"split\"\nsocket = 0",
        "[workers]\ntotal = 5000\npin = \"on\"",
        "[access]\nmode = \"alow\"\ninfo_hashes = [\"0123456789abcdef0123456789abcdef01234567\"]",
        "[access]\nmode = \"allow\"\ninfo_hashes = [\"x\"]",
        "user = 5\ngroup = \"www\"",
    ] {
        assert_eq!(count(&problems(text)), 1, "{}", problems(text));
    }
}

#[test]
fn a_long_list_of_problems_is_cut_and_counted() {
    let entries = "\"x\",\n".repeat(500);
    let text = problems(&format!("[access]\nmode = \"deny\"\ninfo_hashes = [\n{entries}]"));
    assert!(text.contains("\n500 problems ") && text.contains(" 40 "));
    assert_eq!(text.matches("onrush.toml:").count(), 40);
    assert!(text.contains("onrush.toml:4:1: ") && text.contains("onrush.toml:43:1: "));
}

/// Quadratic in the number of problems, the longest file would take days.
#[test]
fn many_problems_are_counted_in_linear_time() {
    let start = Instant::now();
    let lines = problems(&"a=\n".repeat(200_000));
    assert!(lines.contains("\n200000 problems "), "{}", &lines[lines.len() - 100..]);
    let one_line = problems(&format!("[access]\ninfo_hashes = [{}]", "\"x\",".repeat(100_000)));
    assert!(one_line.contains("\n100000 problems "), "{}", &one_line[one_line.len() - 100..]);
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
}

#[test]
fn files_that_cannot_be_read_are_problems_too() {
    let dir = tempfile::tempdir().unwrap();
    let load = |name: &str| Config::load(&dir.path().join(name)).unwrap_err().to_string();
    assert!(
        load("missing.toml").contains("missing.toml: ")
            && load("missing.toml").contains("No such file")
    );
    fs::write(dir.path().join("latin1.toml"), b"# ok\nuser = \"J\xf6rg\"\n").unwrap();
    let latin1 = load("latin1.toml");
    assert!(latin1.contains("latin1.toml:2:10: ") && latin1.contains("0xf6"), "{latin1}");
    let long = fs::File::create(dir.path().join("long.toml")).unwrap();
    long.set_len(onrush_config::file::MAX_FILE_LEN + 1).unwrap();
    assert!(load("long.toml").contains("16777216 bytes"));
    assert!(load("").contains("directory"), "a directory");
}

#[test]
fn placement_follows_what_is_given() {
    let placement = |text: &str, flags: &[&str], vcpus: usize| {
        with(text, flags, &host(vcpus)).unwrap_or_else(|p| panic!("{p}")).0.placement
    };
    let split = |socket_workers, swarm_workers| Placement::Split { socket_workers, swarm_workers };
    let colocated = |workers| Placement::Colocated { workers };
    let kinds = "[workers]\nplacement = \"split\"\nsocket = 5\nswarm = 3\n";
    assert_eq!(placement("", &[], 1), colocated(1));
    assert_eq!(placement("", &[], 13), colocated(13));
    assert_eq!(placement("", &[], 48), split(42, 6));
    assert_eq!(placement("", &["--workers", "3"], 48), colocated(3));
    assert_eq!(placement("", &["--placement", "colocated"], 48), colocated(48));
    assert_eq!(placement("", &["--placement", "split"], 1), split(1, 1));
    assert_eq!(placement("", &["--placement", "split", "--workers", "8"], 4), split(7, 1));
    assert_eq!(placement(kinds, &[], 4), split(5, 3));
    assert_eq!(placement(kinds, &["--placement", "split"], 4), split(5, 3));
    assert_eq!(placement(kinds, &["--placement", "colocated"], 4), colocated(8));
    assert_eq!(placement(kinds, &["--placement", "auto"], 4), colocated(8));
    assert_eq!(placement(kinds, &["--workers", "4"], 4), split(3, 1));
    let rest = "[workers]\nplacement = \"split\"\ntotal = 8\nswarm = 3";
    assert_eq!(placement(rest, &[], 4), split(5, 3));
    let all = notices(kinds, &["--workers", "4"], &host(4));
    assert!(all.len() == 1 && all[0].contains("--workers"), "{all:?}");
    assert!(all[0].contains("workers.socket") && all[0].contains("workers.swarm"), "{all:?}");
    let quota = Host { cpu_quota: Some(2_000), ..host(48) };
    assert_eq!(with("", &[], &quota).unwrap().0.placement, colocated(2));
}

#[test]
fn pinning_is_on_when_there_are_enough_vcpus() {
    let pin = |text: &str, host: &Host| with(text, &[], host).unwrap().0.pin;
    let some = Host { vcpus: vec![2, 3, 6, 7], ..Host::default() };
    assert_eq!(pin("", &some), Some(vec![2, 3, 6, 7]));
    assert_eq!(pin("[workers]\ntotal = 2", &some), Some(vec![2, 3]));
    assert_eq!(pin("[workers]\ntotal = 5", &some), None);
    assert_eq!(pin("[workers]\npin = \"off\"", &some), None);
    assert_eq!(pin("[workers]\ntotal = 3\npin = [7, 6, 2, 3]", &some), Some(vec![7, 6, 2]));
    let quota = Host { cpu_quota: Some(2_000), ..some.clone() };
    assert_eq!(pin("", &quota), None, "others have the same quota and the same first vCPUs");
    assert_eq!(pin("[workers]\npin = \"on\"", &quota), Some(vec![2, 3]));
    let half = Host { cpu_quota: Some(3_500), ..some.clone() };
    assert_eq!(pin("", &half), None, "half a vCPU is taken away");
    let roomy = Host { cpu_quota: Some(4_000), ..some.clone() };
    assert_eq!(pin("", &roomy), Some(vec![2, 3, 6, 7]), "a quota that takes nothing away");
    assert_eq!(pin("", &Host::default()), None, "no vCPU is known");
}

#[test]
fn spinning_is_for_many_split_workers_on_vcpus_of_their_own() {
    let spin = |text: &str, host: &Host| with(text, &[], host).unwrap().0.spin.as_micros();
    let split = "[workers]\nplacement = \"split\"\n";
    assert_eq!(spin("", &host(4)), 0);
    assert_eq!(spin(split, &host(13)), 0);
    assert_eq!(spin(split, &host(14)), 20);
    assert_eq!(spin(&format!("{split}pin = \"off\""), &host(16)), 0, "others need the vCPUs");
    assert_eq!(spin("[workers]\nplacement = \"colocated\"", &host(16)), 0, "rarely rung");
    assert_eq!(spin(&format!("{split}spin = 0"), &host(16)), 0);
    assert_eq!(spin("[workers]\nspin = 1000", &host(4)), 1000);
}

#[test]
fn workers_take_vcpus_in_the_order_of_the_host() {
    // Three cores of two threads, numbered in pairs: a core each before the second threads.
    let cores = Host { vcpus: vec![0, 2, 4, 1, 3, 5], ..Host::default() };
    let pin = |text: &str| with(text, &[], &cores).unwrap().0.pin.unwrap();
    assert_eq!(pin(""), [0, 2, 4, 1, 3, 5]);
    assert_eq!(pin("[workers]\ntotal = 3"), [0, 2, 4]);
    assert_eq!(pin("[workers]\ntotal = 4\npin = \"on\""), [0, 2, 4, 1]);
    let split = "[workers]\nplacement = \"split\"\nsocket = 2\nswarm = 2\n";
    assert_eq!(pin(split), [0, 2, 4, 1], "socket workers first");
    // Where the order means nothing, they are listed as people read them.
    let summary = settings("").summary(&cores);
    assert!(summary.contains("6 usable: 0-5"), "{summary}");
    let text = with("[workers]\ntotal = 1\npin = [9]", &[], &cores).unwrap_err().to_string();
    assert!(text.contains("0-5"), "{text}");
}

#[test]
fn flags_override_the_file_and_are_named_in_problems() {
    let file = "listen = [\"127.0.0.1:1\"]\nstate_dir = \"/file\"\n[log]\nlevel = \"warn\"\n";
    let two = ["--listen", ":80", "--listen", "[::1]:81"];
    let flags = [&two[..], &["--state-dir", "here", "--log-level", "trace"]].concat();
    let (settings, _) = with(file, &flags, &host(4)).unwrap();
    let shown: Vec<_> =
        settings.listen.iter().map(|l| (l.address.to_string(), l.optional)).collect();
    let expected = [("0.0.0.0:80", false), ("[::]:80", true), ("[::1]:81", false)];
    assert_eq!(shown, expected.map(|(address, optional)| (address.to_owned(), optional)));
    let here = std::env::current_dir().unwrap().join("here");
    assert_eq!(settings.state_dir, Some(here), "relative to where the flag was given");
    assert_eq!(settings.log.level, log::LevelFilter::Trace);

    let wrong = with("", &["--listen", "6969", "--listen", "0.0.0.0:6969"], &host(4)).unwrap_err();
    let wrong = wrong.to_string();
    assert!(wrong.starts_with("--listen: `listen`: 0.0.0.0:6969 "), "{wrong}");
    assert_eq!(count(&wrong), 1, "{wrong}");
    let wrong = with("", &["--placement", "split", "--workers", "1"], &host(4)).unwrap_err();
    assert!(wrong.to_string().starts_with("--workers: `workers.total`: found 1"), "{wrong}");
    let pinned = with("[workers]\npin = [0]\ntotal = 1", &["--workers", "2"], &host(4));
    let pinned = pinned.unwrap_err().to_string();
    assert!(pinned.contains("onrush.toml:2:7: `workers.pin`: found 1 vCPU for 2"), "{pinned}");
}

#[test]
fn the_file_overrides_the_environments_state_directory() {
    let systemd = Host { state_directory: Some("/var/lib/onrush:/b".into()), ..host(4) };
    let dir = |text, flags| with(text, flags, &systemd).unwrap().0.state_dir.unwrap();
    assert_eq!(dir("", &[]), Path::new("/var/lib/onrush"));
    assert_eq!(dir("state_dir = \"/srv\"", &[]), Path::new("/srv"));
    assert_eq!(dir("state_dir = \"/srv\"", &["--state-dir", "/flag"]), Path::new("/flag"));
    assert_eq!(with("", &[], &Host::default()).unwrap().0.state_dir, None);
}

#[test]
fn memory_bounds_the_default_and_warns_of_more() {
    let small = Host { memory: Some(1 << 30), ..host(4) };
    assert_eq!(with("", &[], &small).unwrap().0.limits.peers, (1 << 30) / 2 / 64);
    let text = "[limits]\npeers = 20_000_000";
    assert_eq!(with(text, &[], &small).unwrap().0.limits.peers, 20_000_000);
    let all = notices(text, &[], &small);
    let parts = ["limits.peers = 20000000", "1.3 GB", "1.1 GB"];
    assert!(all.len() == 1 && parts.iter().all(|part| all[0].contains(part)), "{all:?}");
}

#[test]
fn unusual_valid_settings_are_notices() {
    let hash = "\"0123456789abcdef0123456789abcdef01234567\"";
    for (text, part) in [
        ("[workers]\ntotal = 9".to_owned(), "4 vCPUs"),
        ("[workers]\npin = [0, 0, 1, 2]".to_owned(), "workers.pin"),
        ("[workers]\ntotal = 2\npin = [0, 1, 2, 3]".to_owned(), "2-3"),
        ("[access]\nmode = \"deny\"".to_owned(), "access"),
        (
            format!("[access]\nmode = \"deny\"\ninfo_hashes = [{hash}, {hash}]"),
            "access.info_hashes",
        ),
    ] {
        let all = notices(&text, &[], &host(4));
        assert!(all.len() == 1 && all[0].contains(part), "{text}\n{all:?}");
    }
}

#[test]
fn check_config_prints_the_settings_on_this_host() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.toml");
    fs::write(&path, "[workers]\ntotal = 2\npin = [1, 3, 0]\n").unwrap();
    let name = path.to_str().unwrap();
    let Ok(Task::Show(report)) = args(&["--config", name, "--check-config"]).task(&host(4)) else {
        panic!("a right file is not shown");
    };
    let row = |name: &str| {
        let of =
            |line: &str| line.trim_start().strip_prefix(name).map(|rest| rest.trim().to_owned());
        report.lines().find_map(of).unwrap_or_else(|| panic!("no {name} in\n{report}"))
    };
    assert!(report.contains(name), "{report}");
    for (name, values) in [
        ("listen ", ["0.0.0.0:6969", "[::]:6969"].as_slice()),
        ("workers ", &["2 colocated", "vCPU 1,3"]),
        ("vCPUs ", &["4 usable: 0-3"]),
        ("announce ", &["1800 s", "5 %", "3600 s", "200 peers", "67 "]),
        ("limits ", &["20000000 peers", "1.3 GB"]),
        ("access ", &[]),
        ("state ", &["/home/op/.local/state/onrush"]),
        ("http ", &["http://127.0.0.1:6970", "admin.token_file"]),
        ("Note: ", &["workers.pin", " 0 "]),
    ] {
        let row = row(name);
        values.iter().for_each(|value| assert!(row.contains(value), "{value}: {row}"));
    }
    fs::write(&path, "[workers]\ntotl = 2\n").unwrap();
    let problems = args(&["--config", name, "--check-config"]).task(&host(4)).unwrap_err();
    assert!(problems.to_string().contains("`total`"));
}

#[test]
fn the_command_line_gives_the_task() {
    assert!(matches!(args(&[]).task(&host(4)), Ok(Task::Serve(..))));
    let Ok(Task::Show(text)) = args(&["--print-config"]).task(&host(4)) else { panic!("no text") };
    assert_eq!(text, print_config());
}

#[test]
fn wrong_flags_are_reported_with_a_remedy() {
    let wrong = |flags: &[&str]| {
        let error = Cli::try_parse_from(["onrush"].iter().chain(flags)).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        error.to_string()
    };
    assert!(wrong(&["--listen", "1.2.3.4"]).contains("`1.2.3.4:6969`"));
    assert!(wrong(&["--workers", "0"]).contains("1..=1024"));
    assert!(wrong(&["--workers", "1025"]).contains("1..=1024"));
    assert!(wrong(&["--workers", "x"]).contains("--workers"));
    assert!(wrong(&["--placement", "spilt"]).contains("auto, split, colocated"));
    assert!(wrong(&["--log-level", "loud"]).contains("off, error"));
    assert!(wrong(&["--state-dir", ""]).contains("--state-dir"));
    assert!(wrong(&["--print-config", "--check-config"]).contains("--print-config"));
    assert!(wrong(&["--confg", "x"]).contains("--config"));
}

#[test]
fn help_has_examples_and_exit_codes() {
    Cli::command().debug_assert();
    let help = Cli::command().term_width(100).render_long_help().to_string();
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "udp://HOST:6969/announce",
        "`192.0.2.1:6969` and `[2001:db8::1]:6969`",
        "Examples:",
        "--print-config > onrush.toml",
        "Exit codes:",
    ] {
        assert!(help.contains(part), "{part} is missing in\n{help}");
    }
}

fn host(vcpus: usize) -> Host {
    Host { vcpus: (0..vcpus).collect(), home: Some("/home/op".into()), ..Host::default() }
}

fn args(flags: &[&str]) -> Cli {
    Cli::try_parse_from(["onrush"].iter().chain(flags)).unwrap()
}

fn with(text: &str, flags: &[&str], host: &Host) -> Result<(Settings, Vec<Notice>), Problems> {
    Settings::resolve(Config::parse("onrush.toml", text), &args(flags).flags, host)
}

fn settings(text: &str) -> Settings {
    with(text, &[], &host(4)).unwrap_or_else(|problems| panic!("{problems}")).0
}

/// Each problem in turn, by where it starts and what it contains, and the count in the last line.
#[track_caller]
fn assert_report(text: &str, expected: &[(&str, &[&str])]) {
    let blocks: Vec<&str> = text.split("\n\n").collect();
    assert_eq!(blocks.len(), expected.len() + 1, "{text}");
    for (block, (place, parts)) in blocks.iter().zip(expected) {
        assert!(block.starts_with(place), "{place}\n{text}");
        parts.iter().for_each(|part| assert!(block.contains(part), "{part}\n{text}"));
    }
    assert_eq!(count(text), expected.len(), "{text}");
}

/// The number of problems, in the last line.
fn count(text: &str) -> usize {
    let last = text.lines().last().unwrap();
    let number = last.split_once(" problem").unwrap_or_else(|| panic!("{text}")).0;
    number.parse().unwrap_or_else(|_| panic!("{text}"))
}

fn problems(text: &str) -> String {
    with(text, &[], &host(4)).expect_err(text).to_string()
}

/// The notices of a configuration that is right.
fn notices(text: &str, flags: &[&str], host: &Host) -> Vec<String> {
    let (_, notices) = with(text, flags, host).unwrap_or_else(|problems| panic!("{problems}"));
    notices.iter().map(Notice::to_string).collect()
}

fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config").join(name)
}

/// What the documentation promises, written out a second time on purpose.
fn defaults() -> Settings {
    let port = |address: &str, optional| Listen { address: address.parse().unwrap(), optional };
    Settings {
        listen: vec![port("0.0.0.0:6969", false), port("[::]:6969", true)],
        sockets_passed: false,
        placement: Placement::Colocated { workers: 4 },
        pin: Some(vec![0, 1, 2, 3]),
        spin: Duration::ZERO,
        socket: SocketSettings {
            receive_buffer: 4 << 20,
            send_buffer: 1 << 20,
            batch: 128,
            steering: true,
        },
        announce: AnnounceSettings {
            interval: 1800,
            interval_jitter_percent: 5,
            default_peers: 50,
            max_peers_v4: 200,
            max_peers_v6: 67,
            peer_lifetime: 3600,
            completed_retention: 24 * 3600,
        },
        scrape: ScrapeSettings { max_hashes: 74 },
        connection: ConnectionSettings { validity: 120, key_file: None },
        overload: OverloadSettings { drop_share: 5, longest_interval: 3600 },
        limits: Limits {
            peers: 20_000_000,
            idle_swarms: 1_000_000,
            batches_in_flight: 32,
            batch_requests: 128,
            scrapes_in_flight: 1024,
            warnings_per_minute: 10,
            list_entries: 20_000_000,
        },
        access: Access::Open,
        blocked: Blocked::default(),
        refuse_bogons: false,
        user: None,
        group: None,
        state_dir: Some("/home/op/.local/state/onrush".into()),
        export: ExportSettings { file: None, every: Duration::from_secs(3600) },
        snapshot: SnapshotSettings { enabled: true, every: Duration::from_secs(600) },
        admin: AdminSettings {
            listen: Some(port("127.0.0.1:6970", true)),
            token_file: None,
            publish_lists: false,
            connections: 64,
            max_body: 1 << 20,
            timeout: Duration::from_secs(10),
        },
        log: LogSettings {
            level: log::LevelFilter::Info,
            totals_every: Duration::from_secs(60),
            addresses: false,
        },
    }
}

/// A vertical tab behind a number is no TOML, but its parser hands the number on with it.
#[test]
fn control_characters_of_a_number_are_not_shown_as_they_are() {
    for text in ["[limits]\nidle_swarms = 1_000_000\u{b}", "[limits]\nidle_swarms = 1_00\u{b}0_000"]
    {
        let shown = with(text, &[], &host(4)).unwrap_err().to_string();
        assert!(shown.contains("limits.idle_swarms"), "{shown}");
        assert!(!shown.contains('\u{b}'), "{shown:?}");
    }
}
