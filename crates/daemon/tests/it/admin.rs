//! The admin side of a running daemon over HTTP: metrics and statistics agree with the traffic, the
//! token is required, and slow clients do not block others.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use crate::harness::client::Client;
use crate::harness::http::{TOKEN, request};
use crate::harness::messages::{ADMIN_LISTENS, NO_ADMIN, PURGED_ONE};
use crate::harness::network::in_own_network;
use crate::harness::packets::{PAUSED, STARTED, leecher, random_hash, seeder};
use crate::harness::process::{Daemon, Launch, TOKEN_FILE, eventually};

/// A daemon in either placement, with the admin API.
fn both(tables: &str, test: impl Fn(Daemon)) {
    for placement in ["colocated", "split"] {
        let launch = Launch::on_loopback().flag("--workers", "2").flag("--placement", placement);
        test(launch.admin_api(tables).serve());
    }
}

#[test]
fn metrics_and_statistics_agree_with_the_traffic() {
    both("", |daemon| {
        let hash = random_hash();
        let mut bytes_out = 0;
        for ((address, seeders), endpoint) in daemon.addresses().iter().zip([3, 2]).zip([6, 18]) {
            let mut client = Client::new(*address);
            client.connect();
            let mut announces: Vec<_> =
                (0..seeders).map(|port| seeder(hash, 5_000 + port).event(STARTED)).collect();
            announces.push(leecher(hash, 6_000).event(STARTED));
            // A partial seed (BEP 21).
            announces.push(leecher(hash, 6_001).event(PAUSED));
            let lists = announces.iter().map(|announce| client.announce(announce).peers.len());
            bytes_out += lists.map(|peers| 20 + endpoint * peers).sum::<usize>();
            client.scrape(&[hash]);
            bytes_out += 16 + (8 + 12);
        }
        eventually("nine peers are reported", || daemon.metrics().sum("onrush_peers", &[]) == 9.0);
        let shown = daemon.metrics();
        let is = |name, parts: &[&str], value| {
            assert_eq!(shown.sum(name, parts), value, "{name} {parts:?}")
        };
        for (family, announces) in [("family=\"ipv4\"", 5.0), ("family=\"ipv6\"", 4.0)] {
            is("onrush_requests_total", &["kind=\"connect\"", family], 1.0);
            is("onrush_requests_total", &["kind=\"announce\"", family], announces);
            is("onrush_requests_total", &["kind=\"scrape\"", family], 1.0);
            is("onrush_received_datagrams_total", &[family], announces + 2.0);
            let bytes = 16.0 + 98.0 * announces + (16.0 + 20.0);
            is("onrush_received_bytes_total", &[family], bytes);
            is("onrush_announces_total", &["event=\"started\"", family], announces - 1.0);
            is("onrush_announces_total", &["event=\"paused\"", family], 1.0);
            is("onrush_announces_total", &[family], announces);
            is("onrush_peers", &["role=\"seeder\"", family], announces - 2.0);
            is("onrush_peers", &["role=\"leecher\"", family], 2.0);
            is("onrush_replies_total", &["kind=\"connect\"", family], 1.0);
            is("onrush_replies_total", &["kind=\"announce\"", family], announces);
            is("onrush_replies_total", &["kind=\"scrape\"", family], 1.0);
            is("onrush_replies_total", &["kind=\"error\"", family], 0.0);
        }
        is("onrush_sent_datagrams_total", &[], 13.0);
        is("onrush_sent_bytes_total", &[], bytes_out as f64);
        is("onrush_refused_requests_total", &[], 0.0);
        is("onrush_swarms", &["state=\"active\""], 1.0);
        is("onrush_file_writes_total", &[], 0.0);
        // Every datagram belongs to a batch.
        is("onrush_batch_datagrams_sum", &[], 13.0);
        assert!(shown.sum("onrush_turn_duration_seconds_count", &[]) >= 4.0);
        assert!(shown.sum("onrush_receive_buffer_bytes", &[]) > 0.0);
        assert!(shown.sum("process_resident_memory_bytes", &[]) > 1e6);

        let stats = daemon.get("/stats.json").json();
        assert_eq!(stats["totals"]["announces"], 9, "{stats:#}");
        assert_eq!(stats["totals"]["peers"], 9, "{stats:#}");
        assert_eq!(stats["totals"]["events"]["paused"], 2, "{stats:#}");
        assert_eq!(stats["families"]["ipv6"]["events"]["started"], 3, "{stats:#}");
        assert_eq!(stats["workers"].as_array().unwrap().len(), 2, "{stats:#}");
        assert_eq!(stats["stage"], "serving");
        daemon.stop();
    });
}

#[test]
fn health_and_readiness_have_status_codes_and_states() {
    both("", |daemon| {
        let health = daemon.get("/health");
        assert_eq!((health.status, health.json()["status"].as_str()), (200, Some("ok")));
        let ready = daemon.get("/ready");
        assert_eq!((ready.status, ready.json()["stage"].as_str()), (200, Some("serving")));
        assert!(daemon.get("/helth").error(404).contains("/health"));
        assert!(daemon.call("POST", "/health", "").error(405).contains("/openapi.json"));
        daemon.stop();
    });
}

#[test]
fn openmetrics_is_served_on_request() {
    let daemon = Launch::on_loopback().admin().serve();
    let accept = "Accept: application/openmetrics-text;version=1.0.0\r\n";
    let newer = request(daemon.admin(), "GET", "/metrics", accept, "").unwrap();
    assert!(newer.head.contains("application/openmetrics-text"), "{}", newer.head);
    let older = daemon.get("/metrics");
    assert!(older.head.contains("text/plain; version=0.0.4"), "{}", older.head);
    assert!(newer.body.ends_with("# EOF\n") && !older.body.contains("# EOF"), "{}", older.body);
    daemon.stop();
}

#[test]
fn without_a_token_file_the_admin_api_names_the_key() {
    let daemon = Launch::on_loopback().admin().serve();
    let error = daemon.call("GET", "/api/v1/swarms/top", "").error(403);
    assert!(error.contains("admin.token_file"), "{error}");
    daemon.stop();
}

#[test]
fn the_admin_api_requires_the_token() {
    let daemon = Launch::on_loopback().admin_api("").serve();
    let path = "/api/v1/swarms/top";
    for headers in
        ["", "Authorization: Bearer of-the-tests-012345678X\r\n", "Authorization: Basic dTpw\r\n"]
    {
        let response = request(daemon.admin(), "GET", path, headers, "").unwrap();
        let head = response.head.to_lowercase();
        assert!(head.contains("www-authenticate: bearer"), "{head}");
        assert!(response.error(401).contains("admin.token_file"), "{headers:?}");
        assert!(!response.body.contains(TOKEN));
    }
    assert_eq!(daemon.call("GET", path, "").status, 200);
    daemon.stop();
}

#[test]
fn swarms_are_looked_up_and_ranked() {
    both("", |daemon| {
        let client = daemon.client();
        let hashes: Vec<_> = (0..5).map(|_| random_hash()).collect();
        for (at, hash) in (0..).zip(&hashes) {
            (0..=at).for_each(|port| drop(client.announce(&leecher(*hash, 7_000 + port))));
        }
        client.announce(&seeder(hashes[0], 8_000));
        let get = |path: &str| daemon.call("GET", path, "");
        let one = get(&format!("/api/v1/swarm/{}", hashes[0])).json();
        assert_eq!((&one["seeders"], &one["leechers"]), (&1.into(), &1.into()), "{one:#}");
        assert_eq!(one["info_hash"], hashes[0].to_string());
        let base32 = String::from_utf8(hashes[4].to_base32().to_vec()).unwrap();
        assert_eq!(get(&format!("/api/v1/swarm/{base32}")).json()["leechers"], 5);

        let top = get("/api/v1/swarms/top?by=leechers&limit=2").json();
        let swarms = top["swarms"].as_array().unwrap();
        let names: Vec<&str> = swarms.iter().map(|s| s["info_hash"].as_str().unwrap()).collect();
        assert_eq!(names, [hashes[4].to_string(), hashes[3].to_string()], "{top:#}");
        assert_eq!(top["examined"], 5);

        assert_eq!(get(&format!("/api/v1/swarm/{}", random_hash())).status, 404);
        for (path, part) in [
            ("/api/v1/swarm/abc", "40 hexadecimal digits"),
            ("/api/v1/swarms/top?by=size", "peers|seeders|leechers|completed"),
            ("/api/v1/swarms/top?limit=0", "from 1 to 1000"),
        ] {
            let error = get(path).error(400);
            assert!(error.contains(part), "{error}");
        }
        daemon.stop();
    });
}

#[test]
fn a_list_change_applies_at_once_and_purges_its_swarm() {
    both("[access]\nmode = \"deny\"\n", |mut daemon| {
        let client = daemon.client();
        let (hash, kept) = (random_hash(), random_hash());
        for hash in [hash, kept] {
            client.announce(&seeder(hash, 4_001));
        }
        let added = daemon.change_list("POST", &[hash, hash]);
        assert_eq!(added.status, 200, "{}", added.body);
        let added = added.json();
        assert_eq!((&added["mode"], &added["entries"]), (&"deny".into(), &1.into()), "{added:#}");
        assert_eq!((&added["changed"], &added["lasting"]), (&1.into(), &true.into()), "{added:#}");
        let error = client.announce_refused(&leecher(hash, 4_002));
        assert_eq!(error, "info hash is not allowed on this tracker");
        assert_eq!([hash, kept].map(|hash| client.counts(hash).seeders), [0, 1]);
        let entry = daemon.call("GET", &format!("/api/v1/list/{hash}"), "").json();
        assert_eq!((&entry["listed"], &entry["served"]), (&true.into(), &false.into()));
        assert_eq!(daemon.call("GET", "/api/v1/list", "").json()["entries"], 1);
        daemon.line(PURGED_ONE);

        let removed = daemon.change_list("DELETE", &[hash]).json();
        let (entries, changed) = (&removed["entries"], &removed["changed"]);
        assert_eq!((entries, changed), (&0.into(), &1.into()), "{removed:#}");
        let peers = client.announce(&leecher(hash, 4_002)).peers;
        assert_eq!(peers, [], "the swarm starts empty");

        for (body, part) in [
            ("{\"info_hashes\": [\"abc\"]}", "\"abc\""),
            ("{\"hashes\": []}", "{\"info_hashes\""),
            ("nonsense", "{\"info_hashes\""),
        ] {
            let error = daemon.call("POST", "/api/v1/list", body).error(400);
            assert!(error.contains(part), "{error}");
        }
        daemon.stop();
    });
}

#[test]
fn without_a_list_a_change_is_a_conflict() {
    let daemon = Launch::on_loopback().admin_api("").serve();
    let error = daemon.change_list("POST", &[random_hash()]).error(409);
    assert!(error.contains("access.mode"), "{error}");
    daemon.stop();
}

#[test]
fn an_export_needs_the_token_and_a_configured_file() {
    let path = "/api/v1/export";
    let daemon = Launch::on_loopback().admin_api("").serve();
    request(daemon.admin(), "POST", path, "", "").unwrap().error(401);
    assert_eq!(daemon.call("GET", path, "").status, 405);
    let error = daemon.call("POST", path, "").error(409);
    assert!(error.contains("export.file"), "{error}");
    // The remedy of the error works.
    daemon.configure(&format!("{TOKEN_FILE}[export]\nfile = \"HOME/scrape.bencode\"\n"));
    let file = daemon.home().join("scrape.bencode");
    assert_eq!(daemon.call("POST", "/api/v1/reload", "").status, 200);
    let response = daemon.call("POST", path, "");
    assert_eq!(response.status, 200, "{}", response.body);
    assert_eq!(fs::read(&file).unwrap(), b"d5:filesdee");
    let written = response.json();
    assert_eq!((&written["swarms"], &written["bytes"]), (&0.into(), &11.into()), "{written:#}");
    // A rename onto a directory fails.
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    let error = daemon.call("POST", path, "").error(500);
    assert!(error.contains("scrape.bencode"), "{error}");
    daemon.stop();
}

#[test]
fn a_reload_reports_changed_keys_and_errors() {
    let daemon = Launch::on_loopback().admin_api("").serve();
    let reload = || daemon.call("POST", "/api/v1/reload", "");
    daemon.configure(&format!("{TOKEN_FILE}[announce]\ninterval = 900\n[socket]\nbatch = 64\n"));
    let response = reload();
    assert_eq!(response.status, 200, "{}", response.body);
    let report = response.json();
    assert_eq!(report["changed"][0], "announce.interval", "{report:#}");
    assert_eq!(report["restart"][0], "socket.batch", "{report:#}");

    daemon.configure(&format!("{TOKEN_FILE}[announce]\nintervall = 900\n"));
    let error = reload().error(422);
    assert!(error.contains("`announce.intervall`"), "{error}");

    // A reload reads the token too; an invalid token leaves the former one in force.
    daemon.configure(TOKEN_FILE);
    let token = daemon.home().join("token");
    fs::write(&token, "short").unwrap();
    reload().error(422);
    fs::write(&token, "another-token-of-the-tests").unwrap();
    assert_eq!(reload().status, 200);
    assert_eq!(reload().status, 401);
    daemon.stop();
}

/// The page of another host, whose name resolves to the address of the admin side, reads nothing.
#[test]
fn requests_for_other_hosts_are_refused_until_they_are_configured() {
    let daemon = Launch::on_loopback().admin_api("").serve();
    let get = |host: &str| {
        let mut stream = TcpStream::connect(daemon.admin()).unwrap();
        let end = "Connection: close\r\n\r\n";
        write!(stream, "GET /stats.json HTTP/1.1\r\nHost: {host}\r\n{end}").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    let refused = get("tracker.example.org:6970");
    assert!(refused.starts_with("HTTP/1.1 421 ") && refused.contains("admin.hosts"), "{refused}");
    assert!(!refused.contains("peers"), "{refused}");
    daemon.configure(&format!("{TOKEN_FILE}hosts = [\"tracker.example.org\"]\n"));
    let report = daemon.call("POST", "/api/v1/reload", "").json();
    assert_eq!(report["changed"][0], "admin.hosts", "{report:#}");
    assert!(get("tracker.example.org:6970").starts_with("HTTP/1.1 200 "));
    assert!(get("evil.example").starts_with("HTTP/1.1 421 "));
    daemon.stop();
}

#[test]
fn a_body_that_is_too_long_is_refused() {
    let tables = "max_body = 1024\n[access]\nmode = \"deny\"\n";
    let daemon = Launch::on_loopback().admin_api(tables).serve();
    let hashes: Vec<_> = (0..50).map(|_| random_hash()).collect();
    let error = daemon.change_list("POST", &hashes).error(413);
    assert!(error.contains("admin.max_body"), "{error}");
    assert_eq!(daemon.call("GET", "/api/v1/list", "").json()["entries"], 0);
    daemon.stop();
}

#[test]
fn a_default_admin_address_in_use_is_a_warning() {
    in_own_network(&[], || {
        let _taken = TcpListener::bind("127.0.0.1:6970").unwrap();
        let mut daemon = Launch::on_loopback().configured_admin().serve();
        daemon.wait_for_line(NO_ADMIN);
        daemon.check();
        let ended = daemon.stop().text();
        let warning = ended.lines().find(|line| line.contains(NO_ADMIN)).unwrap();
        assert!(warning.contains("admin.listen: 127.0.0.1:6970"), "{warning}");
        assert!(!ended.contains(ADMIN_LISTENS), "{ended}");
    });
}

#[test]
fn metrics_are_monotonic_under_load() {
    both("", |daemon| {
        let client = daemon.client();
        let hash = random_hash();
        let load = thread::spawn(move || {
            (0..2_000).for_each(|at| drop(client.announce(&leecher(hash, 10_000 + at % 50))));
        });
        let announces = || daemon.metrics().sum("onrush_requests_total", &["kind=\"announce\""]);
        let mut last = 0.0;
        while !load.is_finished() {
            let now = announces();
            assert!(now >= last, "counters never decrease");
            last = now;
        }
        load.join().unwrap();
        assert!(last > 0.0 && announces() >= 2_000.0, "{last}");
        daemon.stop();
    });
}
