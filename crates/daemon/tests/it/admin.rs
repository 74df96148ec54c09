//! The admin side of a running daemon over HTTP: metrics and statistics agree with the traffic, the
//! token is required, and what the admin API changes. The server itself: onrush-control.

use std::fs;
use std::net::TcpListener;

use onrush_proto::{Event, InfoHash};

use crate::harness::messages::{ADMIN_LISTENS, NO_ADMIN, PURGED_ONE};
use crate::harness::{
    Client, Daemon, Launch, TOKEN, TOKEN_FILE, eventually, in_own_network, leecher, random_hash,
    request, seeder,
};

/// A daemon with two workers and the admin API.
fn serve(tables: &str) -> Daemon {
    Launch::on_loopback().flag("--workers", "2").admin_api(tables).serve()
}

#[test]
fn metrics_and_statistics_agree_with_the_traffic() {
    let daemon = serve("");
    let hash = random_hash();
    let mut bytes_out = 0;
    for ((address, seeders), endpoint) in daemon.addresses().iter().zip([3, 2]).zip([6, 18]) {
        let client = Client::new(*address).connected();
        let mut announces: Vec<_> =
            (0..seeders).map(|port| seeder(hash, 5_000 + port).event(Event::Started)).collect();
        announces.push(leecher(hash, 6_000).event(Event::Started));
        // A partial seed (BEP 21).
        announces.push(leecher(hash, 6_001).event(Event::Paused));
        let lists = announces.iter().map(|announce| client.announce(announce).peers.len());
        bytes_out += lists.map(|peers| 20 + endpoint * peers).sum::<usize>();
        client.scrape(&[hash]);
        bytes_out += 16 + (8 + 12);
    }
    let mut last = 0.0;
    eventually("nine peers are reported", || {
        let now = daemon.metrics();
        let requests = now.sum("onrush_requests_total", &[]);
        assert!(requests >= last, "counters never decrease");
        last = requests;
        now.sum("onrush_peers", &[]) == 9.0
    });
    let shown = daemon.metrics();
    let is =
        |name, parts: &[&str], value| assert_eq!(shown.sum(name, parts), value, "{name} {parts:?}");
    for (family, announces) in [("family=\"ipv4\"", 5.0), ("family=\"ipv6\"", 4.0)] {
        for (kind, count) in [("connect", 1.0), ("announce", announces), ("scrape", 1.0)] {
            let kind = format!("kind=\"{kind}\"");
            is("onrush_requests_total", &[&kind, family], count);
            is("onrush_replies_total", &[&kind, family], count);
        }
        is("onrush_received_datagrams_total", &[family], announces + 2.0);
        let bytes = 16.0 + 98.0 * announces + (16.0 + 20.0);
        is("onrush_received_bytes_total", &[family], bytes);
        is("onrush_announces_total", &["event=\"started\"", family], announces - 1.0);
        is("onrush_announces_total", &["event=\"paused\"", family], 1.0);
        is("onrush_announces_total", &[family], announces);
        is("onrush_peers", &["role=\"seeder\"", family], announces - 2.0);
        is("onrush_peers", &["role=\"leecher\"", family], 2.0);
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

    // Prometheus accepts it beside other formats.
    let accept = "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n";
    let page = request(daemon.admin(), "GET", "/metrics", accept, "").unwrap();
    assert!(page.head.contains("text/plain; version=0.0.4"), "{}", page.head);
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
        response.fails(401, &["admin.token_file"]);
        assert!(!response.body.contains(TOKEN));
    }
    assert_eq!(daemon.call("GET", path, "").status, 200);
    daemon.stop();
    let without_token = Launch::on_loopback().admin().serve();
    without_token.call("GET", path, "").fails(403, &["admin.token_file"]);
}

#[test]
fn swarms_are_looked_up_and_wrong_requests_name_what_is_right() {
    let daemon = serve("");
    let client = daemon.client();
    let base32 = "AAAQEAYEAUDAOCAJBIFQYDIOB4IBCEQT";
    let hash = InfoHash(std::array::from_fn(|byte| byte as u8));
    client.announce(&seeder(hash, 8_000));
    client.announce(&leecher(hash, 7_000));
    let get = |path: &str| daemon.call("GET", path, "");
    for name in [hash.to_string(), base32.to_owned()] {
        let one = get(&format!("/api/v1/swarm/{name}")).json();
        assert_eq!((&one["seeders"], &one["leechers"]), (&1.into(), &1.into()), "{one:#}");
        assert_eq!(one["info_hash"], hash.to_string());
    }
    assert_eq!(get(&format!("/api/v1/swarm/{}", random_hash())).status, 404);
    for (path, part) in [
        ("/api/v1/swarm/abc", "40 hexadecimal digits"),
        ("/api/v1/swarms/top?by=size", "peers|seeders|leechers|completed"),
        ("/api/v1/swarms/top?limit=0", "from 1 to 1000"),
    ] {
        get(path).fails(400, &[part]);
    }
    daemon.get("/helth").fails(404, &["/health"]);
    daemon.call("POST", "/health", "").fails(405, &["/openapi.json"]);
    // There is no list to change.
    daemon.change_list("POST", &[hash]).fails(409, &["access.mode"]);
}

#[test]
fn a_list_change_applies_at_once_and_purges_its_swarm() {
    let mut daemon = serve("max_body = 1024\n[access]\nmode = \"deny\"\n");
    let client = daemon.client();
    let (hash, kept) = (random_hash(), random_hash());
    for hash in [hash, kept] {
        client.announce(&seeder(hash, 4_001));
    }
    let added = daemon.change_list("POST", &[hash, hash]).json();
    let expected = serde_json::json!({"mode": "deny", "entries": 1, "changed": 1, "lasting": true});
    assert_eq!(added, expected);
    let error = client.announce_refused(&leecher(hash, 4_002));
    assert_eq!(error, "info hash is not allowed on this tracker");
    assert_eq!([hash, kept].map(|hash| client.counts(hash).seeders), [0, 1]);
    let entry = daemon.call("GET", &format!("/api/v1/list/{hash}"), "").json();
    assert_eq!((&entry["listed"], &entry["served"]), (&true.into(), &false.into()));
    daemon.line(PURGED_ONE);
    assert_eq!(daemon.change_list("DELETE", &[hash]).json()["entries"], 0);
    let peers = client.announce(&leecher(hash, 4_002)).peers;
    assert_eq!(peers, [], "the swarm starts empty");

    for (body, part) in [
        ("{\"info_hashes\": [\"abc\"]}", "\"abc\""),
        ("{\"hashes\": []}", "{\"info_hashes\""),
        ("nonsense", "{\"info_hashes\""),
    ] {
        daemon.call("POST", "/api/v1/list", body).fails(400, &[part]);
    }
    daemon.change_list("POST", &[hash; 50]).fails(413, &["admin.max_body"]);
    assert_eq!(daemon.call("GET", "/api/v1/list", "").json()["entries"], 0);
}

#[test]
fn a_reload_reports_changed_keys_and_errors() {
    let daemon = Launch::on_loopback().admin_api("").serve();
    let reload = || daemon.call("POST", "/api/v1/reload", "");
    let stats_for = |host| {
        request(daemon.admin(), "GET", &format!("http://{host}/stats.json"), "", "").unwrap()
    };
    stats_for("tracker.example").fails(421, &["admin.hosts"]);
    let hosts = "hosts = [\"tracker.example\"]\n";
    daemon.configure(&format!("{TOKEN_FILE}{hosts}[socket]\nbatch = 64\n"));
    let response = reload();
    assert_eq!(response.status, 200, "{}", response.body);
    let report = response.json();
    assert_eq!(report["changed"][0], "admin.hosts", "{report:#}");
    assert_eq!(report["restart"][0], "socket.batch", "{report:#}");
    assert_eq!(stats_for("tracker.example").status, 200);

    daemon.configure(&format!("{TOKEN_FILE}[announce]\nintervall = 900\n"));
    reload().fails(422, &["`announce.intervall`"]);

    // A reload reads the token too; an invalid token leaves the former one in force.
    daemon.configure(TOKEN_FILE);
    let token = daemon.home().join("token");
    fs::write(&token, "short").unwrap();
    reload().fails(422, &[]);
    fs::write(&token, "another-token-of-the-tests").unwrap();
    assert_eq!(reload().status, 200);
    assert_eq!(reload().status, 401);
}

#[test]
fn a_default_admin_address_in_use_is_a_warning() {
    in_own_network(&[], || {
        let _taken = TcpListener::bind("127.0.0.1:6970").unwrap();
        let mut daemon = Launch::on_loopback().configured_admin().serve();
        daemon.wait_for_line(NO_ADMIN);
        daemon.check();
        let ended = daemon.stop();
        ended.has_line(NO_ADMIN, &["admin.listen: 127.0.0.1:6970"]);
        assert!(!ended.text().contains(ADMIN_LISTENS), "{ended:?}");
    });
}
