//! Files, flags and hosts in, settings or problems out.

mod keys;
mod reload;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Parser;
use onrush_config::settings::{Access, Listen, LogFormat};
use onrush_config::{Flags, Host, Problems, Settings, print_config, reference};
use onrush_tracker::limits::{AnnounceSettings, Placement, WebLimits, WebTorrentLimits};
use onrush_tracker::proxies::ClientAddress;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    flags: Flags,
}

#[test]
fn an_empty_file_gives_the_documented_defaults() {
    let defaults = settings("");
    let port = |address: &str, optional| Listen { address: address.parse().unwrap(), optional };
    assert_eq!(defaults.listen, [port("0.0.0.0:6969", false), port("[::]:6969", true)]);
    assert_eq!(defaults.placement, Placement::Colocated { workers: 4 });
    assert_eq!((&defaults.pin, defaults.spin), (&Some(vec![0, 1, 2, 3]), Duration::ZERO));
    let announce = AnnounceSettings {
        interval: 1800,
        interval_jitter_percent: 5,
        default_peers: 50,
        max_peers_v4: 200,
        max_peers_v6: 67,
        peer_lifetime: 3600,
        completed_retention: 24 * 3600,
    };
    assert_eq!((&defaults.announce, defaults.overload.longest_interval), (&announce, 3600));
    let limits = &defaults.limits;
    assert_eq!((limits.peers, limits.batches_in_flight), (20_000_000, 32));
    assert_eq!(defaults.admin.listen, Some(port("127.0.0.1:6970", true)));
    assert_eq!(defaults.state_dir.as_deref(), Some(Path::new("/home/op/.local/state/onrush")));
    let empty = [&defaults.user, &defaults.group].iter().all(|name| name.is_none());
    assert!(empty && defaults.access == Access::Open);
    assert!(defaults.blocked.is_empty() && defaults.blocked_file.is_none());
    assert_eq!(settings("\u{feff}# nothing\r\n[announce]\r\n"), defaults);
    assert_eq!(Settings::load(&flags(&[]), &host(4)).unwrap().0, defaults);
    assert_eq!(settings(&print_config()), defaults);
}

#[test]
fn limits_of_sources_follow_the_limit_of_peers() {
    for (text, in_all) in [
        ("", 100_000),
        ("[limits]\npeers = 2_000_000\n", 20_000),
        ("[limits]\npeers = 1_000\n", 64),
        ("[limits]\npeers = 1_000\nsource_peers = 0\n", 0),
    ] {
        assert_eq!(settings(text).limits.source_peers, Some(in_all), "{text}");
    }
    let wrong = problems("[limits]\ntrusted_sources = [\"127.0.0.0/8\", \"192.0.2.1/24\"]\n");
    let place = "onrush.toml:2:35: `limits.trusted_sources";
    assert!(wrong.contains(place) && wrong.contains("192.0.2.0/24 or a longer prefix"), "{wrong}");
}

#[test]
fn the_committed_file_and_reference_are_those_of_the_declarations() {
    let files = [("config/onrush.toml", print_config()), ("docs/CONFIGURATION.md", reference())];
    for (path, text) in files {
        if std::env::var_os("ONRUSH_BLESS").is_some() {
            fs::write(top(path), &text).unwrap();
        }
        let committed = fs::read_to_string(top(path)).unwrap_or_default();
        let command = "ONRUSH_BLESS=1 cargo test -p onrush-config";
        assert!(committed == text, "{path} is out of date; this writes it anew:\n  {command}");
    }
}

#[test]
fn the_file_for_48_vcpus_is_valid_on_such_a_host() {
    let big = Host { memory: Some(96 << 30), ..host(48) };
    let text = fs::read_to_string(top("config/epyc-48.toml")).unwrap();
    let (settings, notices) =
        with(&text, &[], &big).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(notices, [""; 0]);
    assert_eq!(settings.placement, Placement::Split { socket_workers: 42, swarm_workers: 6 });
    assert_eq!(settings.pin, Some((0..48).collect()));
    assert!(settings.refuse_bogons);
    assert!(settings.socket.receive_buffer > self::settings("").socket.receive_buffer);
    assert_eq!(settings.user.as_deref(), Some("onrush"));

    let small = with(&text, &[], &host(4)).unwrap_err().to_string();
    assert!(small.contains("48 workers") && small.contains("4 vCPUs"), "{small}");
}

/// Each contradiction: a file, the place and key of the problem, and a part of its text.
const CONTRADICTIONS: &[(&str, &str, &str)] = &[
    ("[announce]\ninterval = 1800\npeer_lifetime = 1200", "3:17: `announce.peer_lifetime`", "1890"),
    ("[announce]\npeer_lifetime = 1889", "2:17: `announce.peer_lifetime`", "1890"),
    (
        "[announce]\ninterval = 43200\ninterval_jitter_percent = 50\npeer_lifetime = 64799",
        "4:17: `announce.peer_lifetime`",
        "64800",
    ),
    ("[announce]\ndefault_peers = 80\nmax_peers_v4 = 40", "2:17: `announce.default_peers`", "40"),
    ("[workers]\nplacement = 'split'\nsocket = 3", "3:10: `workers.socket`", "3 socket workers"),
    ("[workers]\nplacement = 'split'\nswarm = 3", "3:9: `workers.swarm`", "3 swarm workers"),
    ("[workers]\nplacement = 'split'\nsocket = 4\ntotal = 4", "3:10: `workers.socket`", "4 of 4"),
    (
        "[workers]\nplacement = 'split'\nsocket = 3\nswarm = 1\ntotal = 5",
        "5:9: `workers.total`",
        "found 5",
    ),
    ("[workers]\nplacement = 'split'\ntotal = 1", "3:9: `workers.total`", "found 1"),
    ("[workers]\nplacement = 'colocated'\nswarm = 3", "3:9: `workers.swarm`", "= \"split\""),
    ("[workers]\nsocket = 3", "2:10: `workers.socket`", "= \"split\""),
    ("[workers]\npin = [0, 1]", "2:7: `workers.pin`", "found 2 vCPUs for 4 workers"),
    ("[workers]\npin = [0, 1, 2, 9]", "2:7: `workers.pin`", "vCPU 9"),
    ("[workers]\ntotal = 5\npin = \"on\"", "3:7: `workers.pin`", "4 vCPUs"),
    ("listen = ['[::1]:80', '[::1]:81', '[::1]:80']", "1:35: `listen.2`", "[::1]:80 "),
    ("listen = [\":80\",\n\"[::]:80\"]", "2:1: `listen.1`", "[::]:80 "),
    ("listen = []", "1:10: `listen`", "a list of 0"),
    ("xdp = { interfaces = ['a', 'b', 'a'] }", "1:33: `xdp.interfaces.2`", "a is listed twice"),
    ("xdp = { interfaces = ['a b'] }", "1:23: `xdp.interfaces`", "ip link"),
    ("xdp.ring = 2000", "1:12: `xdp.ring`", "write 2048"),
    ("xdp.required = true", "1:16: `xdp.required`", "`xdp.interfaces` is empty"),
    ("http.listen = [':80', '0.0.0.0:80']", "1:23: `http.listen.1`", "0.0.0.0:80 "),
    ("http.listen = [':80', ':6970']", "1:23: `http.listen.1`", "127.0.0.1:6970 is the address"),
    (
        "http = { listen = [':80'], tls_listen = [':443', '[::1]:80'], certificates = ['/c'], \
         keys = ['/k'] }",
        "1:50: `http.tls_listen.1`",
        "[::]:80 is the address of HTTP",
    ),
    (
        "http = { tls_listen = [':6970'], certificates = ['/c'], keys = ['/k'] }",
        "1:24: `http.tls_listen.0`",
        "127.0.0.1:6970 is the address",
    ),
    (
        "http = { listen = [':80'], buffer_memory = 1_048_576, workers = 2 }\n[webtorrent]\n\
         max_message = 262_145",
        "1:44: `http.buffer_memory`",
        "524288",
    ),
    ("http.tls_listen = [':443']", "1:19: `http.tls_listen`", "needs a certificate"),
    ("http.certificates = ['/c']", "1:21: `http.certificates`", "1 certificate and 0 keys"),
    (
        "http = { certificates = ['/c', '/d'], keys = ['/k'] }",
        "1:46: `http.keys`",
        "2 certificates and 1 key",
    ),
    ("http.keys = ['k']", "1:14: `http.keys`", "absolute"),
    ("[limits]\nbatches_in_flight = 7", "2:21: `limits.batches_in_flight`", "4 workers"),
    (
        "[access]\ninfo_hashes = [\"0123456789abcdef0123456789abcdef01234567\"]",
        "2:15: `access.info_hashes`",
        "\"open\"",
    ),
    ("[access]\nmode = \"allow\"", "2:8: `access.mode`", "allow"),
    ("[access]\nfiles = ['/a']", "2:9: `access.files`", "\"open\""),
    ("access = { mode = 'deny', files = ['/a/x', '/b/x'] }", "1:44: `access.files.1`", "name x"),
    ("[access]\nmode = 'allow'\nfiles = ['/a: why']", "3:10: `access.files.0`", "`error`"),
    ("group = \"www\"", "1:9: `group`", "user"),
];

#[test]
fn contradictions_are_reported_at_the_key_to_change() {
    for (text, place, part) in CONTRADICTIONS {
        let found = problems(text);
        assert!(found.starts_with(&format!("onrush.toml:{place}: ")), "{text}\n{found}");
        assert!(found.contains(part) && count(&found) == 1, "{text}\n{found}");
    }
}

#[test]
fn keys_of_other_trackers_are_translated() {
    let text = problems("[access]\nallow = []\ndeny = []\n");
    assert!(text.contains("`access.allow`") && text.contains("mode = \"allow\""), "{text}");
    assert!(text.contains("`access.deny`") && text.contains("mode = \"deny\""), "{text}");
    assert!(count(&text) == 2, "{text}");
    let text = problems("[http]\nport = 80\nmax_connections = 9\nkeepalive = 1\n");
    for part in ["or in [http] for HTTP", "`connections` in [http]", "did you mean `keep_alive`?"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn web_workers_share_the_limits_of_http() {
    let limits = WebLimits {
        keep_alive: 15,
        timeout: 10,
        connections: 16_384,
        connections_per_source: 64,
        buffer_memory: 64 << 20,
        webtorrent: Some(WebTorrentLimits {
            interval: 120,
            max_offers: 10,
            max_message: 1 << 16,
            memberships: 1_024,
        }),
    };
    let off = settings("").http;
    assert_eq!((off.listen, off.workers, off.limits), (Vec::new(), 1, limits));
    let http = |text: &str, vcpus| with(text, &[], &host(vcpus)).unwrap().0.http;
    assert_eq!([1, 8, 9, 48].map(|vcpus| http("", vcpus).workers), [1, 1, 2, 6]);
    let three = http("[http]\nworkers = 3\nconnections = 100\nbuffer_memory = '1MiB'\n", 1);
    let share = WebLimits { connections: 34, buffer_memory: 349_526, ..limits };
    assert_eq!((three.workers, three.limits), (3, share));
    assert_eq!(http("[webtorrent]\nenabled = false", 1).limits.webtorrent, None);
}

#[test]
fn proxies_are_addresses_and_blocks() {
    let off = settings("").http.proxies;
    assert_eq!((off.addresses.len(), off.client_address), (0, ClientAddress::XForwardedFor));
    for by in ClientAddress::ALL {
        let keys = "proxies = ['192.0.2.0/24', '::1', '127.0.0.1']";
        let text = format!("[http]\nlisten = [':80']\n{keys}\nclient_address = '{}'", by.name());
        let settings = settings(&text);
        let proxies = &settings.http.proxies;
        assert_eq!((proxies.addresses.len(), proxies.client_address), (3, *by));
        for (ip, is_proxy) in [("192.0.2.9", true), ("::1", true), ("192.0.3.1", false)] {
            assert_eq!(proxies.contain(ip.parse().unwrap()), is_proxy, "{ip}");
        }
        let summary = settings.summary(&host(4));
        assert!(summary.contains("3 blocks") && summary.contains(by.name()), "{summary}");
    }
    for text in ["proxies = ['proxy.example']", "client_address = 'x'", "proxies = ['1.1.1.1/8']"] {
        assert_eq!(count(&problems(&format!("[http]\n{text}\n"))), 1, "{text}");
    }
}

#[test]
fn a_rejected_value_causes_no_further_problems() {
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
fn placement_follows_keys_and_flags() {
    let placement = |text: &str, flags: &[&str], vcpus: usize| {
        with(text, flags, &host(vcpus)).unwrap_or_else(|p| panic!("{p}")).0.placement
    };
    let split = |socket_workers, swarm_workers| Placement::Split { socket_workers, swarm_workers };
    let colocated = |workers| Placement::Colocated { workers };
    let kinds = "[workers]\nplacement = \"split\"\nsocket = 5\nswarm = 3\n";
    assert_eq!(placement("", &[], 1), colocated(1));
    assert_eq!(placement("", &[], 13), colocated(13));
    assert_eq!(placement("", &[], 14), split(12, 2));
    assert_eq!(placement("", &[], 16), split(14, 2));
    assert_eq!(placement("", &[], 48), split(42, 6));
    assert_eq!(placement("", &["--workers", "3"], 48), colocated(3));
    assert_eq!(placement("", &["--placement", "colocated"], 48), colocated(48));
    assert_eq!(placement("", &["--placement", "split"], 1), split(1, 1));
    assert_eq!(placement("", &["--placement", "split", "--workers", "8"], 4), split(7, 1));
    assert_eq!(placement(kinds, &[], 4), split(5, 3));
    assert_eq!(placement(kinds, &["--placement", "split"], 4), split(5, 3));
    let rest = "[workers]\nplacement = \"split\"\ntotal = 8\nswarm = 3";
    assert_eq!(placement(rest, &[], 4), split(5, 3));
    for (flags, part) in [
        (["--workers", "4"], "--workers: `workers.total`: found 4, but the sum"),
        (["--placement", "colocated"], "3:10: `workers.socket`: this key needs"),
    ] {
        let wrong = with(kinds, &flags, &host(4)).unwrap_err().to_string();
        assert!(wrong.contains(part), "{part}: {wrong}");
    }
    let quota = Host { cpu_quota: Some(2_000), ..host(48) };
    assert_eq!(with("", &[], &quota).unwrap().0.placement, colocated(2));
}

#[test]
fn workers_are_pinned_if_there_are_enough_vcpus() {
    let pin = |text: &str, host: &Host| with(text, &[], host).unwrap().0.pin;
    let some = Host { vcpus: vec![2, 3, 6, 7], ..Host::default() };
    assert_eq!(pin("", &some), Some(vec![2, 3, 6, 7]));
    assert_eq!(pin("[workers]\ntotal = 2", &some), Some(vec![2, 3]));
    assert_eq!(pin("[workers]\ntotal = 5", &some), None);
    assert_eq!(pin("[workers]\npin = \"off\"", &some), None);
    assert_eq!(pin("[workers]\ntotal = 3\npin = [7, 6, 2, 3]", &some), Some(vec![7, 6, 2]));
    let quota = Host { cpu_quota: Some(2_000), ..some.clone() };
    assert_eq!(pin("", &quota), None, "processes under a quota share the first vCPUs");
    assert_eq!(pin("[workers]\npin = \"on\"", &quota), Some(vec![2, 3]));
    let half = Host { cpu_quota: Some(3_500), ..some.clone() };
    assert_eq!(pin("", &half), None, "the quota withholds half a vCPU");
    let roomy = Host { cpu_quota: Some(4_000), ..some.clone() };
    assert_eq!(pin("", &roomy), Some(vec![2, 3, 6, 7]), "the quota withholds nothing");
    assert_eq!(pin("", &Host::default()), None, "vCPUs are unknown");
}

#[test]
fn only_many_split_and_pinned_workers_poll() {
    let spin = |text: &str, host: &Host| with(text, &[], host).unwrap().0.spin.as_micros();
    let split = "[workers]\nplacement = \"split\"\n";
    assert_eq!(spin("", &host(4)), 0);
    assert_eq!(spin(split, &host(13)), 0);
    assert_eq!(spin(split, &host(14)), 20);
    assert_eq!(spin(&format!("{split}pin = \"off\""), &host(16)), 0, "vCPUs are shared");
    assert_eq!(spin("[workers]\nplacement = \"colocated\"", &host(16)), 0, "rarely woken");
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
    // Lists of usable vCPUs are in ascending order.
    let summary = settings("").summary(&cores);
    assert!(summary.contains("6 usable: 0-5"), "{summary}");
    let text = with("[workers]\ntotal = 1\npin = [9]", &[], &cores).unwrap_err().to_string();
    assert!(text.contains("0-5"), "{text}");
}

#[test]
fn the_summary_reports_the_effect_on_this_host() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(&file, "[workers]\ntotal = 2\npin = [1, 3, 0]\n").unwrap();
    let (vcpus, home) = ((0..4).collect(), Some("/home/op".into()));
    let host = Host { vcpus, home, ..Host::default() };
    let flags = Flags { config: Some(file.path().into()), ..Flags::default() };
    let (settings, notices) = Settings::load(&flags, &host).unwrap();
    let report = settings.summary(&host);
    let row = |name: &str| {
        let of =
            |line: &str| line.trim_start().strip_prefix(name).map(|rest| rest.trim().to_owned());
        report.lines().find_map(of).unwrap_or_else(|| panic!("no {name} in\n{report}"))
    };
    for (name, values) in [
        ("listen ", ["0.0.0.0:6969", "[::]:6969"].as_slice()),
        ("http ", &["off"]),
        ("workers ", &["2 colocated", "vCPU 1,3"]),
        ("vCPUs ", &["4 usable: 0-3"]),
        ("announce ", &["1800 s", "5 %", "3600 s", "200 peers", "67 "]),
        ("limits ", &["20,000,000 peers", "1.19 GiB"]),
        ("access ", &[]),
        ("state ", &["/home/op/.local/state/onrush"]),
        ("admin ", &["http://127.0.0.1:6970", "admin.token_file"]),
    ] {
        let row = row(name);
        values.iter().for_each(|value| assert!(row.contains(value), "{value}: {row}"));
    }
    assert!(notices.iter().any(|note| note.contains("workers.pin")), "{notices:?}");
    let served = self::settings("http = { listen = [':80'], workers = 2 }").summary(&host);
    for part in ["0.0.0.0:80, [::]:80 ", "2 web workers", "8,192 connections", "; WebTorrent\n"] {
        assert!(served.contains(part), "{part}: {served}");
    }
    let off = "webtorrent.enabled = false\nhttp.listen = [':80']";
    assert!(!self::settings(off).summary(&host).contains("WebTorrent"));
    let https = self::settings(
        "http = { tls_listen = [':443'], certificates = ['/c', '/d'], keys = ['/k', '/l'] }",
    );
    let line = https.summary(&host);
    assert!(line.contains(" HTTPS at 0.0.0.0:443, [::]:443 "), "{line}");
    assert!(line.contains("2 certificates; 1 web worker "), "{line}");
    let pairs = [("/c", "/k"), ("/d", "/l")].map(|(c, k)| (c.into(), k.into()));
    assert_eq!(https.http.certificates, pairs);
    let by_systemd = self::settings("http = { certificates = ['/c'], keys = ['/k'] }");
    assert_eq!(by_systemd.http.certificates, pairs[..1], "for a passed socket");
}

#[test]
fn flags_override_the_file_and_are_named_in_problems() {
    let file = "listen = [\"127.0.0.1:1\"]\nstate_dir = \"/file\"\n[log]\nlevel = \"warn\"\n";
    let two = ["--listen", ":80", "--listen", "[::1]:81"];
    let log = ["--log-level", "trace", "--log-format", "json"];
    let flags = [&two[..], &["--state-dir", "here"], &log[..]].concat();
    let (settings, _) = with(file, &flags, &host(4)).unwrap();
    let shown: Vec<_> =
        settings.listen.iter().map(|l| (l.address.to_string(), l.optional)).collect();
    let expected = [("0.0.0.0:80", false), ("[::]:80", true), ("[::1]:81", false)];
    assert_eq!(shown, expected.map(|(address, optional)| (address.to_owned(), optional)));
    let both = ["--http", ":80", "--http", "[::1]:81"];
    let http = with("[http]\nlisten = ['127.0.0.1:1']\n", &both, &host(4)).unwrap().0.http;
    assert_eq!(http.listen, settings.listen);
    let over_tls = "http = { certificates = ['/c'], keys = ['/k'] }";
    let http = with(over_tls, &["--https", ":80", "--https", "[::1]:81"], &host(4)).unwrap().0.http;
    assert_eq!(http.tls_listen, settings.listen);
    let here = std::env::current_dir().unwrap().join("here");
    assert_eq!(settings.state_dir, Some(here), "relative to the current directory");
    let log = &settings.log;
    assert_eq!((log.level, log.format), (log::LevelFilter::Trace, LogFormat::Json));

    let wrong = with("", &["--listen", "6969", "--listen", "0.0.0.0:6969"], &host(4)).unwrap_err();
    let wrong = wrong.to_string();
    assert!(wrong.starts_with("--listen: `listen.1`: 0.0.0.0:6969 "), "{wrong}");
    assert_eq!(count(&wrong), 1, "{wrong}");
    let wrong = with("", &["--placement", "split", "--workers", "1"], &host(4)).unwrap_err();
    assert!(wrong.to_string().starts_with("--workers: `workers.total`: found 1"), "{wrong}");
    let pinned = with("[workers]\npin = [0]\ntotal = 1", &["--workers", "2"], &host(4));
    let pinned = pinned.unwrap_err().to_string();
    assert!(pinned.contains("onrush.toml:2:7: `workers.pin`: found 1 vCPU for 2"), "{pinned}");
}

#[test]
fn state_dir_is_by_flag_then_file_then_environment() {
    let systemd = Host { state_directory: Some("/var/lib/onrush:/b".into()), ..host(4) };
    let dir = |text, flags| with(text, flags, &systemd).unwrap().0.state_dir.unwrap();
    assert_eq!(dir("", &[]), Path::new("/var/lib/onrush"));
    assert_eq!(dir("state_dir = \"/srv\"", &[]), Path::new("/srv"));
    assert_eq!(dir("state_dir = \"/srv\"", &["--state-dir", "/flag"]), Path::new("/flag"));
    assert_eq!(with("", &[], &Host::default()).unwrap().0.state_dir, None);
}

/// Sockets have paths of at most 107 bytes (unix(7)).
#[test]
fn a_state_directory_that_is_too_long_for_sockets_is_an_error() {
    let directory = |length: usize| format!("state_dir = \"/{}\"", "d".repeat(length - 1));
    assert!(with(&directory(94), &[], &host(4)).is_ok());
    let problems = problems(&directory(95));
    for part in ["onrush.toml:1:13: `state_dir`: ", "95 bytes", "more than 94"] {
        assert!(problems.contains(part), "{problems}");
    }
    let long: OsString = format!("/{}", "d".repeat(94)).into();
    let systemd = Host { state_directory: Some(long.clone()), ..host(4) };
    let problems = with("", &[], &systemd).unwrap_err().to_string();
    assert!(problems.contains("`state_dir`: ") && problems.contains("95 bytes"), "{problems}");
    let user = notices("", &[], &Host { home: Some(long), ..host(4) });
    assert!(user.len() == 1 && user[0].contains("shorter path"), "{user:?}");
}

#[test]
fn memory_limits_the_default_number_of_peers() {
    let small = Host { memory: Some(1 << 30), ..host(4) };
    assert_eq!(with("", &[], &small).unwrap().0.limits.peers, (1 << 30) / 2 / 64);
    let text = "[limits]\npeers = 20_000_000";
    assert_eq!(with(text, &[], &small).unwrap().0.limits.peers, 20_000_000);
    let all = notices(text, &[], &small);
    let parts = ["limits.peers, 20,000,000,", "1.19 GiB", "1 GiB"];
    assert!(all.len() == 1 && parts.iter().all(|part| all[0].contains(part)), "{all:?}");
}

#[test]
fn questionable_settings_are_notices() {
    let hash = "\"0123456789abcdef0123456789abcdef01234567\"";
    for (text, part) in [
        ("[workers]\ntotal = 9".to_owned(), "4 vCPUs"),
        ("[workers]\npin = [0, 0, 1, 2]".to_owned(), "workers.pin"),
        ("[workers]\ntotal = 2\npin = [0, 1, 2, 3]".to_owned(), "2-3"),
        ("[http]\nlisten = [':80']\nclient_address = 'forwarded'".to_owned(), "http.proxies"),
        (
            "[http]\ntimeout = 9\nconnections = 9\nkeep_alive = 15".to_owned(),
            "http.connections, http.timeout;",
        ),
        (
            "http = { listen = [':80'], certificates = ['/c'], keys = ['/k'], timeout = 9 }".into(),
            "http.tls_listen these keys have no effect unless systemd passes a socket named tls: \
             http.certificates, http.keys;",
        ),
        ("[admin]\nlisten = \"0.0.0.0:6970\"".to_owned(), "\"127.0.0.1:6970\""),
        ("[admin]\nlisten = \"[::]:70\"\ntoken_file = \"/t\"".to_owned(), "token"),
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
fn values_in_range_are_kept_and_defaults_follow_them() {
    let text = "[announce]\ninterval = 30_000\n[connection]\nvalidity = 3600\n";
    let settings = settings(text);
    assert_eq!((settings.announce.interval, settings.announce.peer_lifetime), (30_000, 60_000));
    assert_eq!((settings.overload.longest_interval, settings.connection.validity), (43_200, 3600));
}

#[test]
fn times_and_sizes_may_have_units() {
    let text = "[announce]\ninterval = \"45m\"\npeer_lifetime = \"1h35m\"\n\
                [socket]\nreceive_buffer = \"8MiB\"\n[snapshot]\nevery = \"5min\"\n";
    let settings = settings(text);
    assert_eq!((settings.announce.interval, settings.announce.peer_lifetime), (2_700, 5_700));
    assert_eq!(settings.socket.receive_buffer, 8 << 20);
    assert_eq!(settings.snapshot.every.as_secs(), 300);
    for (text, found) in [
        ("[announce]\ninterval = \"10s\"", "found \"10s\", expected an integer from 60 to"),
        ("[announce]\ninterval = \"100ms\"", "write seconds, or a time like \"90s\""),
        ("[announce]\ninterval = \"1800\"", "without quotes"),
        ("[socket]\nreceive_buffer = \"8M\"", "write bytes, or a size like \"512KiB\""),
        ("[announce]\ninterval_jitter_percent = \"5%\"", "without a unit"),
    ] {
        let problems = problems(text);
        assert!(problems.contains(found) && count(&problems) == 1, "{problems}");
    }
}

#[test]
fn words_of_other_programs_are_recognized() {
    for (level, meant) in [("warning", "warn"), ("Warning", "warn"), ("critical", "error")] {
        let problems = problems(&format!("[log]\nlevel = \"{level}\""));
        assert!(problems.contains(&format!("did you mean \"{meant}\"?")), "{problems}");
    }
}

#[test]
fn both_meanings_of_an_ipv6_address_without_brackets_are_offered() {
    let problems = problems("listen = [\"2001:db8::1:6969\"]");
    for offered in ["`[2001:db8::1]:6969`", "`[2001:db8::1:6969]:6969`"] {
        assert!(problems.contains(offered), "{problems}");
    }
    let unambiguous = self::problems("listen = [\"2001:db8::ffff\"]");
    assert!(!unambiguous.contains("brackets"), "{unambiguous}");
}

fn host(vcpus: usize) -> Host {
    Host { vcpus: (0..vcpus).collect(), home: Some("/home/op".into()), ..Host::default() }
}

fn flags(flags: &[&str]) -> Flags {
    Cli::try_parse_from(["onrush"].iter().chain(flags)).unwrap_or_else(|e| panic!("{e}")).flags
}

fn with(text: &str, given: &[&str], host: &Host) -> Result<(Settings, Vec<String>), Problems> {
    Settings::parse("onrush.toml", text, &flags(given), host)
}

fn settings(text: &str) -> Settings {
    with(text, &[], &host(4)).unwrap_or_else(|problems| panic!("{problems}")).0
}

fn problems(text: &str) -> String {
    with(text, &[], &host(4)).expect_err(text).to_string()
}

/// The number of problems, in the last line.
fn count(text: &str) -> usize {
    let last = text.lines().last().unwrap();
    let number = last.split_once(" problem").unwrap_or_else(|| panic!("{text}")).0;
    number.parse().unwrap_or_else(|_| panic!("{text}"))
}

/// The notices of a valid configuration.
fn notices(text: &str, flags: &[&str], host: &Host) -> Vec<String> {
    with(text, flags, host).unwrap_or_else(|problems| panic!("{problems}")).1
}

/// A file of the repository.
fn top(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}
