//! HTTPS over real sockets: announces on UDP's swarms, and certificates that are replaced. Each
//! rule in detail: crates/web/tests.

use std::fs;
use std::io::{BufReader, ErrorKind, Read, Write};
use std::net::{Ipv6Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;

use onrush_testing::bad_requests::bad_requests;
use onrush_testing::tls::{Issued, PKCS_RSA_SHA256, client, client_1_2};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::harness::messages::{RELOAD_REJECTED, RELOADED};
use crate::harness::{
    Client, Daemon, Launch, TOKEN_FILE, eventually, free_address, leecher, random_hash,
};
use crate::http::{Connection, announce, await_sum, check_sums, closed, get, only, refused, sum};
use crate::proxies::BINARY_HEADER;

pub(crate) type Tls = StreamOwned<ClientConnection, TcpStream>;

/// The keys of the configuration.
const CONFIG: &str = "[http]\nkeep_alive = 300\ncertificates = [\"HOME/t.crt\"]\n\
                      keys = [\"HOME/t.key\"]\n";

/// The keys of a configuration with the files of a certificate, which are written here.
pub(crate) fn certificate_keys(issued: &Issued, directory: &Path) -> String {
    issued.write(directory, "t").unwrap();
    let [certificate, key] = ["t.crt", "t.key"].map(|name| directory.join(name));
    format!("certificates = [{certificate:?}]\nkeys = [{key:?}]\n")
}

/// A daemon with HTTPS on one port of 127.0.0.1 and of ::1, and with these files.
fn serve(issued: &Issued) -> (Daemon, [SocketAddr; 2]) {
    let (launch, addresses) = launch(issued, "");
    (launch.serve(), addresses)
}

/// The same before its start. `more` may begin with further keys of `[http]`.
pub(crate) fn launch(issued: &Issued, more: &str) -> (Launch, [SocketAddr; 2]) {
    let v4 = free_address();
    let addresses = [v4, SocketAddr::from((Ipv6Addr::LOCALHOST, v4.port()))];
    let [first, second] = addresses.map(|address| address.to_string());
    let launch = Launch::on_loopback().flags(&["--https", &first, "--https", &second]);
    let launch = launch.admin_api(&format!("{CONFIG}{more}"));
    issued.write(launch.config_path().parent().unwrap(), "t").unwrap();
    (launch, addresses)
}

pub(crate) fn connect(address: SocketAddr, config: &Arc<ClientConfig>) -> Connection<Tls> {
    over(Connection::to(address), config)
}

/// TLS over a connection.
fn over(plain: Connection, config: &Arc<ClientConfig>) -> Connection<Tls> {
    let stream = plain.0.into_inner();
    let name = ServerName::try_from("t.example").unwrap();
    let tls = ClientConnection::new(config.clone(), name).unwrap();
    Connection(BufReader::new(StreamOwned::new(tls, stream)))
}

/// TCP, with TLS or without.
pub(crate) trait Wire: Read + Write + Send {}

impl<T: Read + Write + Send> Wire for T {}

/// A connection with TLS by this configuration, or without TLS.
pub(crate) fn connect_by(
    address: SocketAddr,
    tls: Option<&Arc<ClientConfig>>,
) -> Connection<Box<dyn Wire>> {
    let stream: Box<dyn Wire> = match tls {
        Some(config) => Box::new(connect(address, config).0.into_inner()),
        None => Box::new(Connection::to(address).0.into_inner()),
    };
    Connection(BufReader::new(stream))
}

/// The body of the reply to a GET, which has status 200.
#[track_caller]
pub(crate) fn ask<S: Read + Write>(connection: &mut Connection<S>, target: &str) -> Vec<u8> {
    connection.0.get_mut().write_all(get(target).as_bytes()).unwrap();
    let (status, body) = connection.next_reply().expect("a reply");
    assert_eq!(status, 200, "{target}: {}", String::from_utf8_lossy(&body));
    body
}

fn certificate(connection: &Connection<Tls>) -> CertificateDer<'static> {
    connection.0.get_ref().conn.peer_certificates().expect("a certificate")[0].clone()
}

#[test]
fn peers_over_https_and_over_udp_find_each_other() {
    let issued = Issued::of(&["t.example"]);
    let (daemon, https) = serve(&issued);
    let configs = [client(&[&issued]), client_1_2(&[&issued])];
    for ((udp, https), config) in daemon.addresses().iter().zip(https).zip(configs) {
        let (hash, udp) = (random_hash(), Client::new(*udp).connected());
        let [first, second] = [7_001, 7_002].map(|port| SocketAddr::new(https.ip(), port));
        let mut web = connect(https, &config);
        let seeder = announce(hash, first.port(), "&left=0");
        ask(&mut web, &seeder);
        let reply = udp.announce(&leecher(hash, second.port()));
        assert_eq!((reply.counts(), reply.peers), ((1, 1), vec![first]));
        let both = ask(&mut web, &seeder);
        assert!(both.ends_with(&only(second)), "{both:?}");
        let page = String::from_utf8(ask(&mut web, "/")).unwrap();
        assert!(page.contains("<pre>\nhttps://t/announce\nudp://t:"), "{page}");
    }
    await_sum(&daemon, "requests_total", "transport=\"https\"", 6);
    await_sum(&daemon, "connections", "transport=\"http\"", 0);
    await_sum(&daemon, "handshakes_total", "result=\"full\"", 2);
    let expiry = sum(&daemon, "certificate_expiry_timestamp_seconds", "t.crt\"");
    assert_eq!(expiry, 4_102_444_800, "the beginning of 2100");
    check_sums(&daemon);
}

/// Replies that depend on the settings. The checks of crates/verify know no settings.
#[test]
fn settings_show_in_the_replies_over_http_and_https() {
    let issued = Issued::of(&["t.example"]);
    let tables = "[announce]\ninterval = 1000\ninterval_jitter_percent = 0\n\
                  [scrape]\nmax_hashes = 2\n[limits]\nscrapes_in_flight = 1\n";
    let (launch, [https, _]) = launch(&issued, tables);
    let http = free_address();
    let daemon = launch.flag("--http", http.to_string()).serve();
    let tls = client(&[&issued]);
    let mut open = [(http, None), (https, Some(&tls))].map(|(at, tls)| connect_by(at, tls));
    let [a, b, c] = ["a", "b", "c"].map(|letter| letter.repeat(20));
    let scrape = format!("/scrape?info_hash={c}&info_hash={a}&info_hash={a}&info_hash={b}");
    let none = "d8:completei0e10:downloadedi0e10:incompletei0ee";
    let files = format!("d5:filesd20:{a}{none}20:{c}{none}ee");
    for web in &mut open {
        let reply = ask(web, &announce(random_hash(), 7_001, ""));
        let reply = String::from_utf8_lossy(&reply);
        assert!(reply.contains("8:intervali1000e12:min intervali500e"), "{reply}");
        assert_eq!(String::from_utf8(ask(web, &scrape)).unwrap(), files);
    }
    eventually("of two scrapes at once the second is refused", || {
        daemon.signal("STOP");
        for web in &mut open {
            web.0.get_mut().write_all(get(&scrape).as_bytes()).unwrap();
        }
        daemon.signal("CONT");
        let replies = open.each_mut().map(|web| web.next_reply().expect("a reply").1);
        // Minutes (BEP 31).
        let is_busy = |it: &&Vec<u8>| it.ends_with(b"8:retry ini5ee");
        let busy = replies.iter().filter(is_busy).count();
        assert_eq!(replies.iter().filter(|it| **it == files.as_bytes()).count(), 2 - busy);
        busy > 0
    });
    assert!(refused(&daemon, "busy") > 0);
    check_sums(&daemon);
}

#[test]
fn a_client_without_tls_is_told_to_use_it() {
    let (daemon, [address, _]) = serve(&Issued::of(&["t.example"]));
    for input in [&get("/announce"), "PROXY TCP4 198.51.100.7 127.0.0.1 1234 443\r\n"] {
        let mut client = Connection::to(address);
        client.send(input);
        let (status, body) = client.next_reply().expect("a reply");
        let text = String::from_utf8(body).unwrap();
        assert!(status == 400 && text.contains("https://"), "{input}: {status} {text}");
        client.ends();
    }
    await_sum(&daemon, "refused_requests_total", "reason=\"no_tls\"", 2);
    check_sums(&daemon);
}

fn handshakes(daemon: &Daemon, result: &str) -> u64 {
    sum(daemon, "handshakes_total", &format!("result=\"{result}\""))
}

/// Sends what is no handshake: the reply is an alert, and the connection ends.
fn get_alert(address: SocketAddr, input: &[u8]) {
    let (mut client, mut alert) = (Connection::to(address), Vec::new());
    client.send(input);
    client.0.read_to_end(&mut alert).unwrap();
    assert_eq!((alert[0], alert.len()), (21, 7), "an alert: {alert:?}");
}

#[test]
fn what_is_no_handshake_ends_only_its_connection() {
    let issued = Issued::of(&["t.example"]);
    let (daemon, [v4, v6]) = serve(&issued);
    let mut honest = connect(v6, &client(&[&issued]));
    ask(&mut honest, "/health");

    get_alert(v4, b"\x16\x03\x01\0\x05no TLS");
    await_sum(&daemon, "closed_connections_total", "cause=\"tls_error\"", 1);

    let mut distrusts = connect(v4, &client(&[&Issued::of(&["t.example"])]));
    let error = distrusts.0.get_mut().write_all(get("/health").as_bytes()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
    await_sum(&daemon, "closed_connections_total", "cause=\"tls_error\"", 2);

    ask(&mut honest, "/health");
    assert_eq!((handshakes(&daemon, "failed"), handshakes(&daemon, "full")), (2, 1));
    await_sum(&daemon, "connections", "", 1);
    check_sums(&daemon);
}

#[test]
fn a_handshake_or_a_head_that_never_ends_is_closed() {
    let (launch, [https, _]) = launch(&Issued::of(&["t.example"]), "timeout = 1\n");
    let http = free_address();
    let daemon = launch.flag("--http", http.to_string()).serve();
    for (address, begin) in [(https, "\x16\x03\x01\x02\0\x01\0\x01\x7C\x03\x03"), (http, "GET /")] {
        let mut slow = Connection::to(address);
        slow.send(begin);
        slow.times_out();
    }
    await_sum(&daemon, "closed_connections_total", "cause=\"timeout\"", 2);
    assert_eq!(handshakes(&daemon, "failed"), 1);
    check_sums(&daemon);
}

#[test]
fn what_is_no_request_over_tls_ends_only_its_connection() {
    let issued = Issued::of(&["t.example"]);
    let (daemon, [v4, v6]) = serve(&issued);
    let config = client(&[&issued]);
    let mut honest = connect(v6, &config);
    ask(&mut honest, "/health");
    let inputs = bad_requests();
    for (input, status, reason) in &inputs {
        let before = refused(&daemon, reason);
        let mut client = connect(v4, &config);
        // Bytes behind the refused request are not parsed.
        client.0.get_mut().write_all((input.clone() + &get("/health")).as_bytes()).unwrap();
        assert_eq!(client.next_reply().unwrap().0, *status, "{input:.50}");
        client.ends();
        assert_eq!(refused(&daemon, reason), before + 1, "{reason}");
    }
    ask(&mut honest, "/health");
    let all = inputs.len() as u64;
    await_sum(&daemon, "requests_total", "transport=\"https\"", all + 2);
    await_sum(&daemon, "refused_requests_total", "transport=\"https\"", all);
    await_sum(&daemon, "closed_connections_total", "cause=\"bad_request\"", all);
    // All others have a ticket of the first one.
    assert_eq!((handshakes(&daemon, "resumed"), handshakes(&daemon, "full")), (all, 1));
    check_sums(&daemon);
}

#[test]
fn a_reload_that_blocks_a_source_applies_to_its_open_connections() {
    let issued = Issued::of(&["t.example"]);
    let (mut daemon, [v4, v6]) = serve(&issued);
    let config = client(&[&issued]);
    let [mut honest, mut blocked] = [v4, v6].map(|address| connect(address, &config));
    let target = announce(random_hash(), 7_001, "");
    for open in [&mut honest, &mut blocked] {
        ask(open, &target);
    }
    daemon.configure(&format!("{TOKEN_FILE}{CONFIG}[access]\nblocked = [\"::1\"]\n"));
    daemon.signal("HUP");
    daemon.line(RELOADED);
    eventually("a request is not served any more", || {
        blocked.0.get_mut().write_all(get(&target).as_bytes()).unwrap();
        blocked.next_reply().is_none()
    });
    await_sum(&daemon, "closed_connections_total", "cause=\"blocked\"", 1);
    // Without a handshake.
    assert!(Connection::to(v6).has_ended());
    await_sum(&daemon, "closed_connections_total", "cause=\"blocked\"", 2);
    assert_eq!(refused(&daemon, "blocked"), 1);
    assert_eq!((handshakes(&daemon, "failed"), handshakes(&daemon, "full")), (0, 2));
    ask(&mut honest, &target);
    daemon.ctl(&["block", "127.0.0.1"]);
    eventually("the block applies", || {
        honest.0.get_mut().write_all(get(&target).as_bytes()).unwrap();
        honest.next_reply().is_none()
    });
    assert_eq!(daemon.ctl(&["--json", "blocks"]).json()["blocks"][0]["refused"], 1);
    daemon.configure(&format!("{TOKEN_FILE}{CONFIG}[access]\nrefuse_bogons = true\n"));
    daemon.signal("HUP");
    daemon.line(RELOADED);
    eventually("bogons are closed", || {
        drop(Connection::to(v6));
        closed(&daemon, "bogon") > 0
    });
    Connection::to(v6).ends();
    check_sums(&daemon);
}

#[test]
fn a_header_of_a_proxy_comes_before_tls() {
    let issued = Issued::of(&["t.example"]);
    let keys = "proxies = [\"127.0.0.1\"]\nclient_address = \"proxy-protocol\"\n";
    let (launch, [v4, v6]) = launch(&issued, keys);
    let daemon = launch.serve();
    let (config, hash) = (client(&[&issued]), random_hash());
    let proxy = Connection::to(v4);
    proxy.send(BINARY_HEADER);
    ask(&mut over(proxy, &config), &announce(hash, 7_001, "&left=0"));
    let peers = daemon.client().announce(&leecher(hash, 7_002)).peers;
    assert_eq!(peers, ["203.0.113.9:7001".parse().unwrap()]);
    // Of others a header is no handshake, and a proxy without one is closed.
    get_alert(v6, BINARY_HEADER);
    await_sum(&daemon, "closed_connections_total", "cause=\"tls_error\"", 1);
    let without = Connection::to(v4);
    without.send(b"\x16\x03\x01\x02\0\x01");
    await_sum(&daemon, "closed_connections_total", "cause=\"proxy_header\"", 1);
    assert_eq!((handshakes(&daemon, "failed"), handshakes(&daemon, "full")), (1, 1));
    ask(&mut connect(v6, &config), "/health");
    check_sums(&daemon);
}

#[test]
fn a_reload_replaces_the_certificate_of_new_connections() {
    let [old, new] = [(); 2].map(|()| Issued::of(&["t.example"]));
    let (mut daemon, [address, _]) = serve(&old);
    let config = client(&[&old, &new]);
    let mut first = connect(address, &config);
    ask(&mut first, "/health");
    assert_eq!(certificate(&first), old.der);

    // The key is that of another certificate.
    fs::write(daemon.home().join("t.key"), &new.key).unwrap();
    daemon.signal("HUP");
    daemon.wait_for_line(RELOAD_REJECTED);
    daemon.wait_for_line(&format!("`http.keys.0`: {}", daemon.home().join("t.key").display()));
    let mut second = connect(address, &config);
    ask(&mut second, "/health");
    assert_eq!(certificate(&second), old.der, "nothing has changed");

    new.write(daemon.home(), "t").unwrap();
    daemon.signal("HUP");
    daemon.line(RELOADED);
    // Not resumed: a ticket would not show the new certificate.
    let mut third = connect(address, &client(&[&old, &new]));
    ask(&mut third, "/health");
    assert_eq!(certificate(&third), new.der);
    for open in [&mut first, &mut second] {
        ask(open, "/health");
        assert_eq!(certificate(open), old.der, "open connections go on");
    }
    check_sums(&daemon);
}

#[test]
fn a_bad_pair_is_refused_with_its_place() {
    let (launch, _) = launch(&Issued::of(&["t.example"]), "");
    let home = launch.config_path().parent().unwrap().to_owned();
    fs::write(home.join("t.key"), Issued::of(&["t.example"]).key).unwrap();
    let place = "onrush.toml:6:9: `http.keys.0`";
    launch.start().refusal(&[place, "not that of the certificate"]);
}

#[test]
fn the_check_of_a_configuration_reads_the_certificates() {
    let issued = Issued::with(&["t.example"], &PKCS_RSA_SHA256, 2030);
    let (launch, _) = launch(&issued, "");
    let rsa = launch.flags(&["--check-config"]).run();
    rsa.prints(&["HTTPS at 127.0.0.1:", "1 certificate;", "RSA key of 2048 bits"]);
    let (launch, _) = self::launch(&issued, "");
    launch.serve().stop().has_line("RSA key of 2048 bits", &["t.crt"]);
    let (launch, _) = self::launch(&issued, "");
    let home = launch.config_path().parent().unwrap().to_owned();
    fs::remove_file(home.join("t.crt")).unwrap();
    let lost = launch.flags(&["--check-config"]).run();
    lost.exits(2, &["`http.certificates.0`", "t.crt: cannot be read", "privkey.pem"]);
    // For a socket of systemd, which the check does not have.
    let launch = Launch::on_loopback().flags(&["--check-config"]).admin_api(CONFIG);
    let noted = launch.run();
    noted.prints(&["unless systemd passes a socket named tls", "t.crt: cannot be read"]);
}
