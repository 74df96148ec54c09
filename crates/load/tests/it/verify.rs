//! `onrush-load verify` as a command. The checks have their tests in `crates/verify`.

use std::process::Output;

use onrush_verify::report::{CheckOutcome, Conformance};

use super::command::{command, stderr, stdout};
use super::faulty::{Fault, Server};
use super::http_server::{HttpServer, Wire};

fn verify(arguments: &[&str]) -> Output {
    command().arg("verify").args(arguments).output().unwrap()
}

fn report(output: &Output) -> Conformance {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", stderr(output)))
}

#[test]
fn a_conforming_tracker_exits_with_0_and_the_list_on_standard_error() {
    let server = Server::start(Fault::Nothing);
    let target = server.addresses[0].to_string();
    let output = verify(&[&target, "--only", "connect", "--strict", "--json", "-"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let report = report(&output);
    assert!(report.checks.iter().all(|row| row.id.starts_with("connect")));
    assert!(report.checks.len() > 5 && stderr(&output).contains("connect-reply"));
}

#[test]
fn a_difference_exits_with_1_in_strict_mode_only() {
    let server = Server::start(Fault::IdPerPort);
    let target = server.addresses[0].to_string();
    let strict = verify(&[&target, "--only", "connect", "--strict", "--json", "-"]);
    assert_eq!(strict.status.code(), Some(1));
    assert_eq!(report(&strict).count(CheckOutcome::Differs), 1);
    let output = verify(&[&target, "--only", "connect"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(stdout(&output).contains("1 differs"));
}

#[test]
fn a_failure_exits_with_1() {
    let server = Server::start(Fault::LongConnect);
    let output = verify(&[&server.addresses[0].to_string(), "--only", "connect"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
}

#[test]
fn given_info_hashes_are_used() {
    let server = Server::start(Fault::Nothing);
    let target = server.addresses[0].to_string();
    let (one, two) = ("01".repeat(20), "02".repeat(20));
    let hashes = ["--info-hash", one.as_str(), "--info-hash", two.as_str()];
    let arguments = [&[target.as_str(), "--only", "scrape", "--json", "-"][..], &hashes].concat();
    let report = report(&verify(&arguments));
    // This check needs two hashes, and one more is reserved for the large swarm.
    assert_eq!(report.row("scrape-several").unwrap().outcome, CheckOutcome::Skipped);
    assert_eq!(report.row("scrape-order").unwrap().outcome, CheckOutcome::Pass);
}

#[test]
fn a_target_that_does_not_answer_exits_with_2() {
    // No process binds this port.
    let output = verify(&["127.0.0.1:1"]);
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("127.0.0.1:1") && message.contains("ss -lun"), "{message}");
    assert!(!message.contains("--target"), "a flag of other commands: {message}");
}

#[test]
fn an_announce_url_is_a_target() {
    let server = Server::start(Fault::Nothing);
    let url = format!("udp://localhost:{}/announce", server.addresses[0].port());
    let output = verify(&[&url, "--only", "connect"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

/// The scheme of the URL decides what is checked.
#[test]
fn a_url_of_http_is_checked_over_http() {
    let server = HttpServer::start(Fault::Nothing, Wire::Right);
    let url = server.server.target().replace("--target=", "");
    let output = verify(&[&url, "--only", "peers", "--strict", "--json", "-"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let report = report(&output);
    assert_eq!((report.target.as_str(), report.datagrams), (url.as_str(), 0));
    assert!(report.connections > 0 && report.row("numwant-exact").is_some());
    let server = HttpServer::start(Fault::ListsTwice, Wire::Right);
    let url = server.server.target().replace("--target=", "");
    assert_eq!(verify(&[&url, "--only", "peers"]).status.code(), Some(1));
    let closed = verify(&["ws://127.0.0.1:1/announce"]);
    assert_eq!(closed.status.code(), Some(2));
    assert!(stderr(&closed).contains("takes no connection"), "{}", stderr(&closed));
}
