//! `onrush-load transport` as two processes.

use std::process::Output;

use onrush_load::transport::TransportReport;

use super::command::{command, stderr, stdout};
use super::terminal::Terminal;
use super::ws_server::{WsFault, WsServer};

/// A small load over this transport.
fn run(stack: &str, more: &str) -> Output {
    let mut command = command();
    command.args(["transport", "--stack", stack, "--quiet"]);
    command.args("--preset 3x7 --ramp-factor 1000 --seconds 0.5".split(' '));
    command.args(more.split_whitespace()).output().unwrap()
}

/// Every stack establishes its connections, opens its streams, and returns what was written.
#[track_caller]
fn all_echoes_are_right(stack: &str) {
    let output = run(stack, "--json -");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let report: TransportReport = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((report.wrong, report.lost_connections), (0, 0), "{}", stderr(&output));
    assert!(report.right > 0 && report.due >= 21, "{report:?}");
    assert!(report.connect.max > 0.0 && report.round_trip.max >= report.round_trip.p50);
    for side in [report.server, report.client] {
        assert!(side.rss > 0 && side.peak_rss >= side.rss && side.refused == 0, "{side:?}");
    }
    let last = report.series.last().unwrap();
    assert_eq!((last.connections, last.streams), (3, 21));
    let phases: Vec<_> = report.series.iter().map(|interval| interval.phase.as_str()).collect();
    assert!(phases.contains(&"ramp") && phases.contains(&"measure"), "{phases:?}");
    assert!(stderr(&output).contains("us per echo"), "the table: {}", stderr(&output));
}

#[test]
fn echoes_over_tcp() {
    all_echoes_are_right("tcp");
}

#[test]
fn echoes_over_tls() {
    all_echoes_are_right("tls");
}

#[test]
fn echoes_over_quic() {
    all_echoes_are_right("quic");
}

/// Each side checks the other's certificate, and messages open the channels.
#[test]
fn echoes_over_webrtc() {
    all_echoes_are_right("webrtc");
}

#[test]
fn offers_and_answers_pass_through_a_tracker() {
    let tracker = WsServer::start(WsFault::Nothing);
    let output = run("webrtc", &format!("--json - --signal {}", tracker.server.url()));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let report: TransportReport = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report.right > 0 && report.wrong == 0, "{report:?}");
}

/// A tracker that puts its own certificate into answers.
#[test]
fn a_changed_answer_is_noticed() {
    let tracker = WsServer::start(WsFault::AnswerCertificate);
    let output = run("webrtc", &format!("--signal {}", tracker.server.url()));
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    let named = "the certificate is not that of the description";
    assert!(stderr(&output).contains(named), "{}", stderr(&output));
}

#[test]
fn a_tracker_that_is_not_there_is_named() {
    let output = run("webrtc", "--signal ws://127.0.0.1:1/");
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("--signal ws://127.0.0.1:1/"), "{}", stderr(&output));
}

#[test]
fn reports_are_files_and_loss_has_a_bound() {
    let dir = tempfile::tempdir().unwrap();
    let [json, html] = ["a.json", "a.html"].map(|name| dir.path().join(name));
    let output = run("tcp", &format!("--json {} --html {}", json.display(), html.display()));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("transport         tcp"), "{}", stdout(&output));
    let report: TransportReport = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    assert!(report.command.starts_with("onrush-load transport --stack tcp"), "{report:?}");
    let page = std::fs::read_to_string(html).unwrap();
    assert!(
        page.contains("tcp under load: 3 connections of 7 streams") && !page.contains("<script")
    );
    assert_eq!(page.matches("<svg").count(), 5);
}

#[test]
fn a_file_that_cannot_be_written_prevents_the_run() {
    let output = run("tcp", "--html /nowhere/a.html");
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("cannot write /nowhere/a.html"), "{}", stderr(&output));
}

#[test]
fn an_interrupted_run_reports() {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("a.json");
    let mut load = command();
    load.args("transport --stack tcp --preset 2x2 --ramp-factor 1000".split(' '));
    load.args("--seconds 3600 --json".split(' ')).arg(&json);
    let mut terminal = Terminal::start(&mut load, true);
    terminal.wait_for("measure");
    // Ctrl-C.
    terminal.press(&[3]);
    let status = terminal.end();
    assert_eq!(status.code(), Some(0), "{status}");
    let report: TransportReport = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    assert!(report.warnings.iter().any(|text| text.contains("ended early")), "{report:?}");
    assert!(report.right > 0 && report.seconds < 3600.0, "{report:?}");
}

#[test]
fn the_server_is_not_for_people() {
    let output = command().args(["transport", "--serve"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
}
