//! `onrush ctl top-sources`: a flood of one network is named and blocked, and what a request may
//! be.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;

use crate::harness::flood::{NETWORK, during_a_flood};
use crate::harness::{Daemon, Launch, TOKEN, connect, eventually};

const PATH: &str = "/api/v1/sources/top?seconds=1";
/// Requests of a second that show the sources of all.
const ENOUGH: u64 = 200;

fn launch() -> Daemon {
    Launch::on_loopback().flags(&["--workers", "2"]).admin_api("").serve()
}

/// The report of `top-sources` for a second that has enough requests. On a host without CPU time a
/// second may have none.
#[track_caller]
fn top(daemon: &Daemon, flags: &[&str]) -> Value {
    let flags = [&["--json", "top-sources", "--seconds", "1"], flags].concat();
    let mut found = Value::Null;
    eventually("a second has enough requests", || {
        let ended = daemon.ctl(&flags);
        ended.prints(&[]);
        found = ended.json();
        found["sampled"].as_u64() > Some(ENOUGH)
    });
    found
}

/// From the name of a network to its block: its connects are answered before, and refused after,
/// while those of others are answered all the time. How accurate the shares are is tested in
/// `tests/timed/top_sources.rs`, and the table in `crates/commands/src/ctl/sources/tests.rs`.
#[test]
fn a_flood_of_one_network_is_named_first_and_a_block_ends_it() {
    let daemon = launch();
    during_a_flood(&daemon, &connect(9), || {
        let shown = top(&daemon, &["--by", "24"]);
        assert_eq!(shown["sources"][0]["source"], NETWORK, "{shown:#}");
        assert!(shown["unverified"] == true && shown["kind"] == "all", "{shown:#}");
        let mut ports: Vec<_> = daemon.addresses().iter().map(SocketAddr::port).collect();
        ports.sort_unstable();
        assert_eq!(shown["ports"], serde_json::json!(ports));
        // Only connects were sent, whose sources may be forged.
        let flags = ["--json", "top-sources", "--seconds", "1", "--kind", "announce"];
        let announces = daemon.ctl(&flags).json();
        assert!(announces["unverified"] == false, "{announces:#}");
        assert_eq!(announces["sources"], serde_json::json!([]));

        let of = |kind: &str| top(&daemon, &["--by", "24", "--kind", kind])["sources"].take();
        assert_eq!(of("connect")[0]["source"], NETWORK);
        daemon.ctl(&["block", NETWORK, "--for", "1h", "--reason", "flood"]).prints(&[]);
        // A worker without CPU time applies it later.
        eventually("no connect of the network is answered", || {
            of("connect").as_array().unwrap().iter().all(|of| of["source"] != NETWORK)
        });
        let refused = of("refused");
        assert!(refused[0]["source"] == NETWORK && refused[0]["share"] == 1.0, "{refused:#}");
        eventually("the refused connects are counted", || {
            let blocks = daemon.ctl(&["--json", "blocks"]).json();
            blocks["blocks"][0]["refused"].as_u64() > Some(100)
        });
    });
}

/// A connection whose request samples for 60 seconds.
fn sampling(daemon: &Daemon) -> TcpStream {
    let begin = || {
        let mut stream = TcpStream::connect(daemon.admin()).unwrap();
        let head = format!(
            "GET /api/v1/sources/top?seconds=60 HTTP/1.1\r\nHost: localhost\r\nAuthorization: \
             Bearer {TOKEN}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream
    };
    let mut stream = begin();
    eventually("the request samples", || {
        if daemon.call("GET", PATH, "").status == 409 {
            return true;
        }
        // The other request was first.
        stream = begin();
        false
    });
    stream
}

/// A stop does not wait for the end of a sample.
#[test]
fn one_request_at_a_time_samples_and_ends_with_its_connection_or_a_stop() {
    let daemon = launch();
    let first = sampling(&daemon);
    daemon.call("GET", PATH, "").fails(409, &["60 s"]);
    daemon.ctl(&["top-sources", "--seconds", "1"]).exits(1, &["try again"]);
    drop(first);
    eventually("the first request has ended", || daemon.call("GET", PATH, "").status == 200);
    let mut second = sampling(&daemon);
    daemon.stop();
    // A complete sample would have been answered.
    let mut answer = Vec::new();
    let _ = second.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer);
    assert!(!answer.contains(" 200 "), "{answer}");
}

#[test]
fn a_wrong_request_is_refused_with_the_values_that_are_right() {
    let daemon = launch();
    for (query, part) in [
        ("seconds=0", "from 1 to 60"),
        ("seconds=61", "from 1 to 60"),
        ("limit=0", "from 1 to 1000"),
        ("limit=1001", "from 1 to 1000"),
        ("by=32", "by=ip|24|48|64"),
        ("kind=scrape", "kind=all|connect|announce|refused"),
        ("second=1", "seconds=1 to 60"),
    ] {
        daemon.call("GET", &format!("/api/v1/sources/top?{query}"), "").fails(400, &[part]);
    }
    assert_eq!(daemon.get("/api/v1/sources/top").status, 401);
}
