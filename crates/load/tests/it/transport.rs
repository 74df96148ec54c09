//! `onrush-load transport` as two processes. Through a real tracker:
//! `crates/daemon/tests/it/load_transport.rs`.

use std::env;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::process::{Command, Output, Stdio};
use std::thread;

use onrush_load::transport::TransportReport;

use super::command::{command, stderr, stdout};
use super::terminal::Terminal;
use super::ws_server::{WsFault, WsServer};

/// A load over this transport, whose connections and streams begin almost at once.
fn load(stack: &str, preset: &str, more: &str) -> Command {
    let mut command = command();
    command.args(["transport", "--stack", stack, "--preset", preset, "--quiet"]);
    command.args(["--ramp-factor", "1000"]).args(more.split_whitespace());
    command
}

/// A small load over this transport.
fn run(stack: &str, more: &str) -> Output {
    load(stack, "3x7", more).args(["--seconds", "0.5"]).output().unwrap()
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

/// The presets, whose rate is not reached everywhere. scripts/libp2p-test runs them over WebRTC:
/// 500 handshakes of that take a debug build longer than a connection may.
#[track_caller]
fn runs(preset: &str, [connections, streams]: [u32; 2]) {
    let output = load("tcp", preset, "--seconds 1 --json -").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let report: TransportReport = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report.right > 0 && report.wrong == 0, "{}", stderr(&output));
    let last = report.series.last().unwrap();
    assert_eq!((last.connections, last.streams), (connections, streams));
    assert!(report.due > u64::from(streams), "{}", stderr(&output));
}

#[test]
fn few_connections_of_many_streams() {
    runs("10x1000", [10, 10_000]);
}

#[test]
fn many_connections_of_fewer_streams() {
    runs("100x100", [100, 10_000]);
}

#[test]
fn connections_of_a_data_channel_each() {
    runs("webtorrent", [500, 500]);
}

/// In the environment of a server with this fault.
const FAULT: &str = "ONRUSH_TEST_TRANSPORT_FAULT";

/// The exit status: the first that applies of a wrong echo, no echo, and too few.
#[test]
fn wrong_and_missing_echoes_have_their_exit_status() {
    let this = env::current_exe().unwrap();
    let start = |fault: &str, more: &str| {
        let server = format!("env {FAULT}={fault} {}", this.display());
        let server = format!("{server} --exact --nocapture transport::a_server_with_a_fault");
        let mut command = load("tcp", "2x2", more);
        command.args(["--seconds", "0.5", "--server", &server]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let started = [
        ("wrong", "--max-loss 0", 1, "its bytes differ"),
        ("silent", "--max-loss 0", 3, "no echo came"),
        ("half", "--max-loss 40", 4, "50.000 % of echoes did not come"),
        ("half", "--max-loss 60", 0, "did not come in time"),
    ]
    .map(|(fault, more, status, named)| (fault, start(fault, more), status, named));
    for (fault, run, status, named) in started {
        let output = run.wait_with_output().unwrap();
        let said = stdout(&output) + &stderr(&output);
        assert_eq!(output.status.code(), Some(status), "{fault}: {said}");
        assert!(said.contains(named), "{fault}: {said}");
    }
}

/// The server of the test above, as a process: it has the messages of `onrush-load`'s, and returns
/// bytes as they are, which are the frames that it has got.
#[test]
fn a_server_with_a_fault() {
    let Ok(fault) = env::var(FAULT) else { return };
    let mut client = UnixStream::from(io::stdin().as_fd().try_clone_to_owned().unwrap());
    let messages = BufReader::new(client.try_clone().unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let (stream, fault) = (stream.unwrap(), fault.clone());
            thread::spawn(move || echo(stream, &fault, number));
        }
    });
    let replies = [
        format!(r#"{{"ready":{{"address":"{address}","certificate":[]}}}}"#),
        r#"{"finished":{"refused":0,"unsent":0}}"#.into(),
    ];
    // To the start and to the end.
    for (reply, message) in replies.into_iter().zip(messages.lines()) {
        message.unwrap();
        writeln!(client, "{reply}").unwrap();
    }
}

/// Returns what a connection receives, with the fault.
fn echo(mut stream: TcpStream, fault: &str, connection: usize) {
    // A block of 1,024 bytes behind its header.
    const FRAME: usize = 1030;
    let (mut bytes, mut position) = ([0; FRAME], 0);
    while let Ok(count @ 1..) = stream.read(&mut bytes[..FRAME - position]) {
        let byte = 500_usize.wrapping_sub(position);
        if fault == "wrong" && byte < count {
            bytes[byte] ^= 1;
        }
        position = (position + count) % FRAME;
        if fault == "wrong" || (fault == "half" && connection == 0) {
            stream.write_all(&bytes[..count]).unwrap();
        }
    }
}

/// A ping is no message, also as the first one.
#[test]
fn offers_and_answers_pass_through_a_tracker() {
    let tracker = WsServer::start(WsFault::Pings);
    let output = run("webrtc", &format!("--json - --signal {}", tracker.server.url()));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let report: TransportReport = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report.right > 0 && report.wrong == 0, "{report:?}");
}

/// A tracker that puts its own certificate into offers or answers: the side that gets them tells.
#[test]
fn changed_offers_and_answers_are_noticed() {
    for (fault, side) in [(WsFault::AnswerCertificate, ""), (WsFault::OfferCertificate, "server: ")]
    {
        let tracker = WsServer::start(fault);
        let output = run("webrtc", &format!("--signal {}", tracker.server.url()));
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(3), "{fault:?}: {said}");
        let named = format!("{side}the certificate is not that of the description");
        assert!(said.contains(&named), "{fault:?}: {said}");
    }
}

#[test]
fn a_tracker_that_is_not_there_is_named() {
    let output = run("webrtc", "--signal ws://127.0.0.1:1/");
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("--signal ws://127.0.0.1:1/"), "{}", stderr(&output));
}

#[test]
fn reports_are_files() {
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
