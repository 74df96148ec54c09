//! The start: log lines, and errors with their remedies.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};

use onrush_net::affinity;

use crate::harness::messages::{READY, SERVES};
use crate::harness::{Client, Launch, eventually, free_address, in_own_network};

#[test]
fn by_default_port_6969_of_both_families_is_served() {
    in_own_network(&[], || {
        let daemon = Launch::new(&[]).serve();
        let expected = ["0.0.0.0:6969", "[::]:6969"].map(|address| address.parse().unwrap());
        assert_eq!(daemon.addresses(), expected);
        for address in ["127.0.0.1:6969", "127.1.2.3:6969", "[::1]:6969"] {
            Client::new(address.parse().unwrap()).connect_and_check();
        }
        let state = daemon.home().join(".local/state/onrush");
        // With the build, as in `--version`.
        let printed = Launch::new(&["--version"]).run().output;
        let serves = format!(" {printed}{SERVES}0.0.0.0:6969");
        daemon.stop().exits(0, &[&serves, ":6969/announce", state.to_str().unwrap()]);
    });
}

#[test]
fn an_address_for_http_is_logged_and_its_page_has_all_announce_urls() {
    let http = free_address();
    let daemon = Launch::on_loopback().flag("--http", http.to_string()).serve();
    let mut stream = TcpStream::connect(http).unwrap();
    stream.write_all(b"GET / HTTP/1.0\r\nHost: t.example\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    assert!(page.contains("http://t.example/announce\n"), "{page}");
    for address in daemon.addresses() {
        assert!(page.contains(&format!("udp://t.example:{}/announce\n", address.port())), "{page}");
    }
    let ended = daemon.stop();
    ended.has_line(SERVES, &[&format!(" and http://{http}")]);
    ended.has_line(READY, &[&format!(" or http://<this host>:{}/announce ", http.port())]);
}

#[test]
fn an_address_for_http_in_use_is_named_with_its_key() {
    let theirs = TcpListener::bind("127.0.0.1:0").unwrap();
    let http = theirs.local_addr().unwrap();
    let refusal = format!("1:16: `http.listen.0`: {http} is taken by ");
    let launch = Launch::on_loopback().config(&format!("http.listen = [\"{http}\"]\n"));
    launch.start().refusal(&[&refusal]);
}

#[test]
fn workers_are_pinned_as_logged() {
    let vcpu = *affinity::allowed().unwrap().last().unwrap();
    let config = format!("[workers]\nplacement = \"colocated\"\ntotal = 1\npin = [{vcpu}]\n");
    let http = free_address().to_string();
    let daemon = Launch::on_loopback().config(&config).flag("--http", http).serve();
    // A worker that replies has already set its name and its vCPU.
    daemon.check();
    let allowed = daemon.threads("Cpus_allowed_list");
    assert!(allowed.contains(&("worker-0".to_owned(), vcpu.to_string())), "{allowed:?}");
    let of_web = allowed.iter().find(|(name, _)| name == "web-0").unwrap();
    assert_eq!(of_web.1, daemon.status("Cpus_allowed_list"), "a web worker is not pinned");
    daemon.stop().has_line("1 colocated", &[&format!("vCPU {vcpu}")]);
}

#[test]
fn threads_are_named_by_their_kind() {
    let config = "[workers]\nplacement = \"split\"\nsocket = 2\nswarm = 3\npin = \"off\"\n";
    let daemon = Launch::on_loopback().config(config).serve();
    // A thread sets its name at its start, which may be after other workers reply.
    eventually("the threads are named", || {
        daemon.check();
        let threads = daemon.threads("Pid").into_iter().map(|(name, _)| name);
        let kinds = ["socket-", "swarm-"];
        let mut names: Vec<_> =
            threads.filter(|name| kinds.iter().any(|kind| name.starts_with(kind))).collect();
        names.sort();
        names == ["socket-0", "socket-1", "swarm-0", "swarm-1", "swarm-2"]
    });
    daemon.stop().exits(0, &["2 socket workers, 3 swarm workers"]);
}

#[test]
fn an_address_in_use_is_named_with_the_remedy() {
    let first = Launch::on_loopback().serve();
    let remedy = format!("systemctl status {}", first.pid());
    for address in first.addresses() {
        let (address, free) = (address.to_string(), free_address().to_string());
        let flags = ["--listen", &free, "--listen", &address, "--listen", "[::1]:0"];
        Launch::new(&flags).start().refusal(&[&format!("{address} is taken"), &remedy]);
        // The other addresses are free again after the failure.
        UdpSocket::bind(&free).unwrap();
    }
    first.check();
}

/// A low port without the capability, and an address of another host.
#[test]
fn an_address_that_cannot_be_bound_names_the_remedy() {
    let [capability, unit] =
        ["setcap cap_net_bind_service=+ep", "AmbientCapabilities=CAP_NET_BIND_SERVICE"];
    in_own_network(&[], || {
        for (address, parts) in [
            ("127.0.0.1:81", ["127.0.0.1:81", capability, unit]),
            ("[::1]:81", ["[::1]:81", capability, unit]),
            // Reserved for documentation (RFC 5737, RFC 3849).
            ("192.0.2.7:6969", ["192.0.2.7", "`ip addr`", "net.ipv4.ip_nonlocal_bind"]),
            ("[2001:db8::7]:6969", ["2001:db8::7", "`ip addr`", "net.ipv6.ip_nonlocal_bind"]),
        ] {
            Launch::new(&["--listen", address]).run_as_nobody().start().refusal(&parts);
        }
    });
}

#[test]
fn without_ipv6_the_tracker_warns_and_serves_ipv4() {
    in_own_network(&[], || {
        fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1").unwrap();
        let mut daemon = Launch::new(&[]).start();
        daemon.line_with("[::]:6969", &[" WARN ", "sysctl -w net.ipv6.conf.all.disable_ipv6=0"]);
        assert_eq!(daemon.serving(), ["0.0.0.0:6969".parse().unwrap()]);
        Client::new("127.0.0.1:6969".parse().unwrap()).connect_and_check();
        daemon.stop();
        // A configured IPv6 address is required.
        Launch::new(&["--listen", "[::1]:6969"]).start().refusal(&["::1"]);
        Launch::new(&["--listen", "[::]:6969"]).start().refusal(&["IPv6", "[::]:6969"]);
    });
}

#[test]
fn a_clamped_buffer_causes_a_warning_with_the_sysctl() {
    // The largest value of the keys, above the limit of any host, which applies without
    // CAP_NET_ADMIN.
    let requested = (1 << 30) - 1;
    let config = format!("[socket]\nreceive_buffer = {requested}\nsend_buffer = {requested}\n");
    let daemon = Launch::on_loopback().run_as_nobody().config(&config).serve();
    for address in daemon.addresses() {
        for (direction, sysctl) in [("receive", "rmem_max"), ("send", "wmem_max")] {
            let remedy = format!("sysctl -w net.core.{sysctl}={requested}");
            let parts = [" WARN ", direction, &address.to_string(), &remedy];
            let warns = |line: &String| parts.iter().all(|part| line.contains(part));
            assert!(daemon.log().iter().any(warns), "{parts:?}: {:?}", daemon.log());
        }
    }
    daemon.check();
}
