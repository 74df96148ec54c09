//! The admin side of a running daemon over HTTP: metrics and statistics agree with the traffic, the
//! token is required, and slow clients do not block others.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use onrush_proto::Event;
use serde_json::Value;

use crate::harness::client::{AnnounceParams, Client, leecher, random_hash, seeder};
use crate::harness::messages::{ADMIN_LISTENS, NO_ADMIN, PURGED_ONE};
use crate::harness::network::{Ipv6, in_own_network};
use crate::harness::process::{Daemon, Launch, TIMEOUT};

const TOKEN: &str = "of-the-tests-0123456789";

/// An HTTP response.
#[derive(Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl HttpResponse {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    fn error(&self) -> String {
        self.json()["error"].as_str().expect("an error message").to_owned()
    }
}

/// Sends one request on a connection of its own.
fn request(http: SocketAddr, method: &str, path: &str, headers: &str) -> HttpResponse {
    let mut stream = TcpStream::connect(http).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n{headers}\r\n")
        .unwrap();
    read(stream)
}

fn read(mut stream: TcpStream) -> HttpResponse {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) =
        text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no response: {text:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let body = match head.to_lowercase().contains("transfer-encoding: chunked") {
        true => unchunked(body),
        false => body.to_owned(),
    };
    HttpResponse { status, head: head.to_owned(), body }
}

fn unchunked(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((length, rest)) = body.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).unwrap();
        whole.push_str(&rest[..length]);
        body = rest[length..].strip_prefix("\r\n").unwrap_or("");
    }
    whole
}

pub(crate) fn get(http: SocketAddr, path: &str) -> HttpResponse {
    request(http, "GET", path, "")
}

fn admin(http: SocketAddr, method: &str, path: &str) -> HttpResponse {
    request(http, method, path, &format!("Authorization: Bearer {TOKEN}\r\n"))
}

/// The samples of a page of metrics, by name with labels.
pub(crate) fn samples(page: &str) -> BTreeMap<String, f64> {
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| line.rsplit_once(' ').unwrap())
        .map(|(name, value)| (name.to_owned(), value.parse().unwrap()))
        .collect()
}

/// All samples of a name whose labels have these parts, together.
pub(crate) fn sum(samples: &BTreeMap<String, f64>, name: &str, parts: &[&str]) -> f64 {
    let of = |full: &&String| {
        full.split('{').next() == Some(name) && parts.iter().all(|part| full.contains(part))
    };
    let found: Vec<f64> =
        samples.iter().filter(|(full, _)| of(full)).map(|(_, value)| *value).collect();
    assert!(!found.is_empty(), "no {name} with {parts:?} in {samples:#?}");
    found.iter().sum()
}

/// Polls until the condition holds: gauges of shards are updated once a second.
pub(crate) fn eventually(what: &str, mut is: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !is() {
        assert!(Instant::now() < deadline, "{what}");
    }
}

/// A file with the token, and a configuration that names it.
fn with_token(tables: &str) -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let file: PathBuf = directory.path().join("token");
    std::fs::write(&file, format!("{TOKEN}\n")).unwrap();
    (directory, format!("[admin]\ntoken_file = {file:?}\n{tables}"))
}

/// A daemon in either placement, with the admin API.
fn both(tables: &str, test: impl Fn(Daemon)) {
    for placement in ["colocated", "split"] {
        let (_token, config) = with_token(tables);
        let launch = Launch::on_loopback().flag("--workers", "2").flag("--placement", placement);
        test(launch.http().config(&config).start());
    }
}

#[test]
fn metrics_and_statistics_agree_with_the_traffic() {
    both("", |mut daemon| {
        let addresses = daemon.serving();
        let http = daemon.http();
        let hash = random_hash();
        let mut bytes_out = 0;
        for ((address, seeders), endpoint) in addresses.iter().zip([3, 2]).zip([6, 18]) {
            let mut client = Client::new(*address);
            client.connect();
            let mut announces: Vec<AnnounceParams> =
                (0..seeders).map(|port| seeder(5_000 + port)).collect();
            announces.push(leecher(6_000));
            // A partial seed (BEP 21).
            announces.push(AnnounceParams { event: Event::Paused, ..leecher(6_001) });
            let lists = announces.iter().map(|params| client.announce(hash, *params).peers.len());
            bytes_out += lists.map(|peers| 20 + endpoint * peers).sum::<usize>();
            client.scrape(&[hash]);
            bytes_out += 16 + (8 + 12);
        }
        let mut shown = BTreeMap::new();
        eventually("nine peers are reported", || {
            shown = samples(&get(http, "/metrics").body);
            sum(&shown, "onrush_peers", &[]) == 9.0
        });
        let is = |name, parts: &[&str], value| {
            assert_eq!(sum(&shown, name, parts), value, "{name} {parts:?}")
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
        assert!(sum(&shown, "onrush_turn_duration_seconds_count", &[]) >= 4.0);
        assert!(sum(&shown, "onrush_receive_buffer_bytes", &[]) > 0.0);
        assert!(sum(&shown, "process_resident_memory_bytes", &[]) > 1e6);

        let stats = get(http, "/stats.json").json();
        assert_eq!(stats["totals"]["announces"], 9, "{stats:#}");
        assert_eq!(stats["totals"]["peers"], 9, "{stats:#}");
        assert_eq!(stats["totals"]["events"]["paused"], 2, "{stats:#}");
        assert_eq!(stats["families"]["ipv6"]["events"]["started"], 3, "{stats:#}");
        assert_eq!(stats["workers"].as_array().unwrap().len(), 2, "{stats:#}");
        assert_eq!(stats["stage"], "serving");
        daemon.stop();
    });
}

/// A full disk shows in the metrics before the snapshot is needed.
#[test]
fn written_and_failed_files_are_counted() {
    let state = tempfile::tempdir().unwrap();
    let place = state.path().join("state");
    std::fs::create_dir(&place).unwrap();
    let mut daemon = Launch::on_loopback()
        .flag("--admin", "127.0.0.1:0")
        .flag("--state-dir", &place)
        .config("[snapshot]\nevery = 1\n")
        .start();
    daemon.serving();
    let http = daemon.http();
    let writes = |outcome: &str| {
        let shown = samples(&get(http, "/metrics").body);
        let outcome = format!("outcome=\"{outcome}\"");
        sum(&shown, "onrush_file_writes_total", &["file=\"snapshot\"", &outcome])
    };
    eventually("a snapshot is written", || writes("written") >= 1.0);
    let stats = get(http, "/stats.json").json();
    let snapshot = &stats["files"]["snapshot"];
    assert!(snapshot["bytes"].as_u64() > Some(0), "{stats:#}");
    assert!(snapshot["last"].as_f64() > stats["started"].as_f64().map(|at| at - 1.0), "{stats:#}");
    assert_eq!(stats["files"]["export"]["last"], serde_json::Value::Null);
    let failed = writes("failed");
    // A temporary file created meanwhile makes the removal fail once.
    eventually("the directory is removed", || std::fs::remove_dir_all(&place).is_ok());
    eventually("a snapshot fails", || writes("failed") > failed);
}

#[test]
fn refusals_and_software_are_shown_by_name() {
    both("[access]\nmode = \"deny\"\n", |mut daemon| {
        let address = daemon.serving()[0];
        let http = daemon.http();
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(b"no request", address).unwrap();
        let mut client = Client::new(address);
        client.connect();
        client.announce(random_hash(), leecher(6_000));
        // Another worker may have received the packet.
        eventually("a short packet is counted", || {
            let shown = samples(&get(http, "/metrics").body);
            sum(&shown, "onrush_refused_requests_total", &["reason=\"short\""]) == 1.0
        });
        let page = get(http, "/metrics").body;
        let shown = samples(&page);
        // The first announce of a worker and family is sampled.
        assert_eq!(sum(&shown, "onrush_sampled_announces_total", &[]), 1.0, "{page}");
        let stats = get(http, "/stats.json").json();
        assert_eq!(stats["list"]["mode"], "deny");
        assert_eq!(stats["clients"]["software"].as_array().unwrap().len(), 1, "{stats:#}");
        daemon.stop();
    });
}

#[test]
fn health_and_readiness_have_status_codes_and_states() {
    both("", |mut daemon| {
        daemon.serving();
        let http = daemon.http();
        let health = get(http, "/health");
        assert_eq!((health.status, health.json()["status"].as_str()), (200, Some("ok")));
        let ready = get(http, "/ready");
        assert_eq!((ready.status, ready.json()["stage"].as_str()), (200, Some("serving")));
        let nothing = get(http, "/helth");
        assert_eq!(nothing.status, 404);
        assert!(nothing.error().contains("/health"), "{}", nothing.error());
        let wrong = request(http, "POST", "/health", "Content-Length: 0\r\n");
        assert_eq!(wrong.status, 405);
        assert!(wrong.error().contains("/openapi.json"));
        daemon.stop();
    });
}

#[test]
fn openmetrics_is_served_on_request() {
    let mut daemon = Launch::on_loopback().http().start();
    daemon.serving();
    let newer = request(
        daemon.http(),
        "GET",
        "/metrics",
        "Accept: application/openmetrics-text;version=1.0.0\r\n",
    );
    assert!(newer.head.contains("application/openmetrics-text"), "{}", newer.head);
    assert!(
        newer.body.ends_with("# EOF\n") && newer.body.contains("# TYPE onrush_requests counter\n")
    );
    let older = get(daemon.http(), "/metrics");
    assert!(older.head.contains("text/plain; version=0.0.4"), "{}", older.head);
    assert!(
        older.body.contains("# TYPE onrush_requests_total counter\n")
            && !older.body.contains("# EOF")
    );
    assert_eq!(samples(&older.body).len(), samples(&newer.body).len());
    daemon.stop();
}

#[test]
fn without_a_token_file_the_admin_api_names_the_key() {
    let mut daemon = Launch::on_loopback().http().start();
    daemon.serving();
    let response = admin(daemon.http(), "GET", "/api/v1/swarms/top");
    assert_eq!(response.status, 403);
    assert!(response.error().contains("admin.token_file"), "{}", response.error());
    daemon.stop();
}

#[test]
fn the_admin_api_requires_the_token() {
    let (_token, config) = with_token("");
    let mut daemon = Launch::on_loopback().http().config(&config).start();
    daemon.serving();
    let http = daemon.http();
    let path = "/api/v1/swarms/top";
    for headers in
        ["", "Authorization: Bearer of-the-tests-012345678X\r\n", "Authorization: Basic dTpw\r\n"]
    {
        let response = request(http, "GET", path, headers);
        assert_eq!(response.status, 401, "{headers:?}");
        assert!(
            response.head.to_lowercase().contains("www-authenticate: bearer"),
            "{}",
            response.head
        );
        assert!(response.error().contains("admin.token_file"), "{}", response.error());
        assert!(!response.body.contains(TOKEN));
    }
    assert_eq!(admin(http, "GET", path).status, 200);
    daemon.stop();
}

#[test]
fn swarms_are_looked_up_and_ranked() {
    both("", |mut daemon| {
        let mut client = Client::new(daemon.serving()[0]);
        let http = daemon.http();
        client.connect();
        let hashes: Vec<_> = (0..5).map(|_| random_hash()).collect();
        for (at, hash) in hashes.iter().enumerate() {
            (0..=at as u16).for_each(|port| drop(client.announce(*hash, leecher(7_000 + port))));
        }
        client.announce(hashes[0], seeder(8_000));
        let one = admin(http, "GET", &format!("/api/v1/swarm/{}", hashes[0])).json();
        assert_eq!((&one["seeders"], &one["leechers"]), (&1.into(), &1.into()), "{one:#}");
        assert_eq!(one["info_hash"], hashes[0].to_string());
        let base32 = String::from_utf8(hashes[4].to_base32().to_vec()).unwrap();
        assert_eq!(admin(http, "GET", &format!("/api/v1/swarm/{base32}")).json()["leechers"], 5);

        let top = admin(http, "GET", "/api/v1/swarms/top?by=leechers&limit=2").json();
        let names: Vec<&str> = top["swarms"]
            .as_array()
            .unwrap()
            .iter()
            .map(|s| s["info_hash"].as_str().unwrap())
            .collect();
        assert_eq!(names, [hashes[4].to_string(), hashes[3].to_string()], "{top:#}");
        assert_eq!(top["looked_at"], 5);

        let unknown = admin(http, "GET", &format!("/api/v1/swarm/{}", random_hash()));
        assert_eq!(unknown.status, 404);
        for (path, part) in [
            ("/api/v1/swarm/abc", "40 hexadecimal digits"),
            ("/api/v1/swarms/top?by=size", "peers|seeders|leechers|completed"),
            ("/api/v1/swarms/top?limit=0", "from 1 to 1000"),
        ] {
            let response = admin(http, "GET", path);
            assert_eq!(response.status, 400, "{}", response.body);
            assert!(response.error().contains(part), "{}", response.error());
        }
        daemon.stop();
    });
}

#[test]
fn the_list_is_public_only_when_configured() {
    let hash = random_hash();
    let deny = format!("[access]\nmode = \"deny\"\ninfo_hashes = [\"{hash}\"]\n");
    for (publish, status) in [("", 404), ("[admin]\npublish_lists = true\n", 200)] {
        let mut daemon = Launch::on_loopback().http().config(&format!("{publish}{deny}")).start();
        daemon.serving();
        let response = get(daemon.http(), "/lists");
        assert_eq!(response.status, status, "{}", response.body);
        if status == 200 {
            let (head, list) = response.body.split_once('\n').unwrap();
            assert!(head.starts_with("# deny: ") && head.contains('1'), "{head}");
            assert_eq!(list, format!("{hash}\n"));
        } else {
            assert!(response.error().contains("admin.publish_lists"), "{}", response.error());
        }
        daemon.stop();
    }
}

/// One request with a body, and the token.
fn send(http: SocketAddr, method: &str, path: &str, body: &str) -> HttpResponse {
    let mut stream = TcpStream::connect(http).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\
         Authorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    read(stream)
}

#[test]
fn a_list_change_applies_at_once_and_purges_its_swarm() {
    both("[access]\nmode = \"deny\"\n", |mut daemon| {
        let mut client = Client::new(daemon.serving()[0]);
        let http = daemon.http();
        client.connect();
        let hash = random_hash();
        client.announce(hash, seeder(4_001));
        let body = format!("{{\"info_hashes\": [\"{hash}\", \"{hash}\"]}}");
        let added = send(http, "POST", "/api/v1/list", &body);
        assert_eq!(added.status, 200, "{}", added.body);
        let added = added.json();
        assert_eq!((&added["mode"], &added["entries"]), (&"deny".into(), &1.into()), "{added:#}");
        let error = client.announce_refused(hash, leecher(4_002));
        assert_eq!(error, "info hash is not allowed on this tracker");
        let entry = admin(http, "GET", &format!("/api/v1/list/{hash}")).json();
        assert_eq!((&entry["listed"], &entry["served"]), (&true.into(), &false.into()));
        assert_eq!(admin(http, "GET", "/api/v1/list").json()["entries"], 1);
        daemon.line(PURGED_ONE);

        let removed = send(http, "DELETE", "/api/v1/list", &body).json();
        assert_eq!(
            (&removed["entries"], &removed["changed"]),
            (&0.into(), &1.into()),
            "{removed:#}"
        );
        assert_eq!(client.announce(hash, leecher(4_002)).peers, []);

        for (body, part) in [
            ("{\"info_hashes\": [\"abc\"]}", "\"abc\""),
            ("{\"hashes\": []}", "{\"info_hashes\""),
            ("nonsense", "{\"info_hashes\""),
        ] {
            let response = send(http, "POST", "/api/v1/list", body);
            assert_eq!(response.status, 400, "{}", response.body);
            assert!(response.error().contains(part), "{}", response.error());
        }
        daemon.stop();
    });
}

#[test]
fn without_a_list_a_change_is_a_conflict() {
    both("", |mut daemon| {
        daemon.serving();
        let body = format!("{{\"info_hashes\": [\"{}\"]}}", random_hash());
        let response = send(daemon.http(), "POST", "/api/v1/list", &body);
        assert_eq!(response.status, 409, "{}", response.body);
        assert!(response.error().contains("access.mode"), "{}", response.error());
        daemon.stop();
    });
}

#[test]
fn an_export_needs_the_token_and_a_configured_file() {
    let (token, config) = with_token("");
    let file = token.path().join("scrape.bencode");
    let path = "/api/v1/export";
    let mut daemon = Launch::on_loopback().http().config(&config).start();
    daemon.serving();
    let http = daemon.http();
    assert_eq!(request(http, "POST", path, "Content-Length: 0\r\n").status, 401);
    assert_eq!(admin(http, "GET", path).status, 405);
    let response = send(http, "POST", path, "");
    assert_eq!(response.status, 409, "{}", response.body);
    assert!(response.error().contains("export.file"), "{}", response.error());
    // The remedy of the error works.
    let named = format!("{config}[export]\nfile = {file:?}\n");
    std::fs::write(daemon.home().join("onrush.toml"), named).unwrap();
    assert_eq!(send(http, "POST", "/api/v1/reload", "").status, 200);
    let response = send(http, "POST", path, "");
    assert_eq!(response.status, 200, "{}", response.body);
    assert_eq!(std::fs::read(&file).unwrap(), b"d5:filesdee");
    let written = response.json();
    assert_eq!((&written["swarms"], &written["bytes"]), (&0.into(), &11.into()), "{written:#}");
    // A rename onto a directory fails.
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    let response = send(http, "POST", path, "");
    assert_eq!(response.status, 500, "{}", response.body);
    assert!(response.error().contains("scrape.bencode"), "{}", response.error());
    daemon.stop();
}

#[test]
fn a_reload_reports_changed_keys_and_errors() {
    let (token, config) = with_token("");
    let mut daemon = Launch::on_loopback().http().config(&config).start();
    daemon.serving();
    let http = daemon.http();
    let file = daemon.home().join("onrush.toml");
    let rest = "[announce]\ninterval = 900\n[socket]\nbatch = 64\n";
    std::fs::write(&file, format!("{config}{rest}")).unwrap();
    let response = send(http, "POST", "/api/v1/reload", "");
    assert_eq!(response.status, 200, "{}", response.body);
    let report = response.json();
    assert_eq!(report["changed"][0], "announce.interval", "{report:#}");
    assert_eq!(report["restart"][0], "socket.batch", "{report:#}");

    std::fs::write(&file, format!("{config}[announce]\nintervall = 900\n")).unwrap();
    let response = send(http, "POST", "/api/v1/reload", "");
    assert_eq!(response.status, 422, "{}", response.body);
    assert!(response.error().contains("`announce.intervall`"), "{}", response.error());

    // A reload reads the token too; an invalid token leaves the former one in force.
    std::fs::write(&file, &config).unwrap();
    std::fs::write(token.path().join("token"), "short").unwrap();
    let response = send(http, "POST", "/api/v1/reload", "");
    assert_eq!(response.status, 422, "{}", response.body);
    std::fs::write(token.path().join("token"), "another-token-of-the-tests").unwrap();
    assert_eq!(send(http, "POST", "/api/v1/reload", "").status, 200);
    assert_eq!(send(http, "POST", "/api/v1/reload", "").status, 401);
    daemon.stop();
}

/// Connections that send nothing or half a request, or do not read, do not block others and are
/// closed after the time-out.
#[test]
fn slow_clients_do_not_block_others_and_are_disconnected() {
    let config = "[admin]\nconnections = 8\ntimeout = 5\n";
    let mut daemon = Launch::on_loopback().http().config(config).start();
    daemon.serving();
    let http = daemon.http();
    let mut slow: Vec<TcpStream> = (0..7).map(|_| TcpStream::connect(http).unwrap()).collect();
    for stream in &mut slow[..4] {
        stream.write_all(b"GET /metrics HT").unwrap();
    }
    assert_eq!(get(http, "/health").status, 200, "a further connection is accepted");

    let eighth = TcpStream::connect(http).unwrap();
    eventually("a connection above the limit gets status 503", || {
        let mut stream = TcpStream::connect(http).unwrap();
        let mut text = String::new();
        // A reset may overtake the response.
        let _ = stream.set_read_timeout(Some(Duration::from_millis(200)));
        let _ = stream.read_to_string(&mut text);
        text.starts_with("HTTP/1.1 503 ") && text.contains("admin.connections")
    });
    drop(eighth);
    for mut stream in slow {
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let mut rest = Vec::new();
        // Closed, with or without a response.
        let _ = stream.read_to_end(&mut rest);
    }
    eventually("connections are accepted again", || {
        let mut stream = TcpStream::connect(http).unwrap();
        write!(stream, "GET /health HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text);
        text.starts_with("HTTP/1.1 200 ")
    });
    daemon.stop();
}

#[test]
fn a_body_that_is_too_long_is_refused() {
    let (_token, config) = with_token("max_body = 1024\n[access]\nmode = \"deny\"\n");
    let mut daemon = Launch::on_loopback().http().config(&config).start();
    daemon.serving();
    let hashes: Vec<String> = (0..50).map(|_| format!("\"{}\"", random_hash())).collect();
    let body = format!("{{\"info_hashes\": [{}]}}", hashes.join(","));
    let response = send(daemon.http(), "POST", "/api/v1/list", &body);
    assert_eq!(response.status, 413, "{}", response.body);
    assert!(response.error().contains("admin.max_body"), "{}", response.error());
    assert_eq!(admin(daemon.http(), "GET", "/api/v1/list").json()["entries"], 0);
    daemon.stop();
}

#[test]
fn a_configured_admin_address_in_use_ends_the_start() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let refused = Launch::on_loopback().flag("--admin", &address).start().refusal();
    assert!(refused.contains(&format!("admin.listen: {address} ")), "{refused}");
    assert!(refused.contains("ss -ltnp"), "{refused}");
}

#[test]
fn a_default_admin_address_in_use_is_a_warning() {
    in_own_network(Ipv6::On, || {
        let _taken = TcpListener::bind("127.0.0.1:6970").unwrap();
        let mut daemon = Launch::on_loopback().configured_admin().start();
        let address = daemon.serving()[0];
        daemon.wait_for_line(NO_ADMIN);
        Client::new(address).connect_and_check();
        let ended = daemon.stop().text();
        let warning = ended.lines().find(|line| line.contains(NO_ADMIN)).unwrap();
        assert!(warning.contains("admin.listen: 127.0.0.1:6970"), "{warning}");
        assert!(!ended.contains(ADMIN_LISTENS), "{ended}");
    });
}

#[test]
fn a_missing_token_file_ends_the_start() {
    let ended = Launch::on_loopback()
        .http()
        .config("[admin]\ntoken_file = \"/nonexistent/token\"\n")
        .start()
        .end();
    assert_eq!(ended.code, Some(2), "{}", ended.text());
    assert!(ended.text().contains("admin.token_file: /nonexistent/token"), "{}", ended.text());
}

#[test]
fn metrics_are_monotonic_under_load() {
    both("", |mut daemon| {
        let address = daemon.serving()[0];
        let http = daemon.http();
        let hash = random_hash();
        let load = std::thread::spawn(move || {
            let mut client = Client::new(address);
            client.connect();
            (0..2_000).for_each(|at| drop(client.announce(hash, leecher(10_000 + at % 50))));
        });
        let (mut last, mut scrapes) = (0.0, 0);
        while !load.is_finished() {
            let page = get(http, "/metrics");
            assert_eq!(page.status, 200);
            let announces =
                sum(&samples(&page.body), "onrush_requests_total", &["kind=\"announce\""]);
            assert!(announces >= last, "counters never decrease");
            (last, scrapes) = (announces, scrapes + 1);
        }
        load.join().unwrap();
        assert!(scrapes > 0);
        let page = get(http, "/metrics").body;
        let announces = sum(&samples(&page), "onrush_requests_total", &["kind=\"announce\""]);
        assert!(announces >= 2_000.0, "{announces}");
        daemon.stop();
    });
}
