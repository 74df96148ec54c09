//! `onrush-load ws` and this tracker: every message is right and every offer is delivered, over
//! WebSocket with TLS and without. Faults: `crates/load/tests/it/ws.rs`.

use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;

use clap::Parser as _;
use onrush_load::args::{Args, Command, WsArgs};
use onrush_load::plan::{Kind, Plan, Population};
use onrush_load::report::Report;
use onrush_load::run::over_ws;
use onrush_load::sources;
use onrush_testing::tls::{Issued, PKCS_ECDSA_P256_SHA256};

use crate::http::serve;
use crate::https::launch;

fn parsed(targets: &[String], more: &str) -> WsArgs {
    let command = ["onrush-load", "ws", "--quiet"];
    let targets = targets.iter().flat_map(|target| ["-t", target]);
    let words = command.into_iter().chain(targets).chain(more.split_whitespace());
    match Args::try_parse_from(words).unwrap().command {
        Some(Command::Ws(args)) => *args,
        other => panic!("{other:?}"),
    }
}

/// A run in which no reply comes too late.
const SHORT: &str = "--warmup 0 --duration 0.5 --timeout 60";

/// A short run whose messages are all right, also where nothing is defined.
#[track_caller]
fn right(targets: &[String], more: &str) -> Report {
    let args = parsed(targets, more);
    let profile = args.profile().unwrap();
    let addresses: Vec<_> = args.target.iter().map(|url| url.address).collect();
    let routed = |target: SocketAddr| Some(target.ip());
    let sources = sources::addresses(&addresses, &[], args.sources(), routed);
    let target = args.target(sources).unwrap();
    let connections = target.settings.connections as u32;
    let population = Population::of_connections(&profile.swarms, connections, 5);
    let plan = Plan::new(profile, population, 5);
    let (settings, stop) = (args.run_settings(5), AtomicBool::new(false));
    let report = over_ws(&plan, &target, &settings, &stop, Vec::new()).unwrap();
    let shown = || format!("{more}\n{}", report.to_table());
    assert_eq!((report.wrong.len(), report.differs.len()), (0, 0), "{}", shown());
    let announces = report.kinds.iter().find(|kind| kind.kind == Kind::Announce).unwrap();
    assert!(announces.right >= 16, "{}", shown());
    assert_eq!((announces.right, announces.lost), (announces.requests, 0), "{}", shown());
    let ws = report.ws.as_ref().unwrap();
    assert_eq!((ws.failed, ws.offers.late), (0, 0), "{}", shown());
    report
}

/// All offers that are due are delivered, and their answers return.
#[track_caller]
fn complete(report: &Report) {
    let ws = report.ws.as_ref().unwrap();
    let shown = || report.to_table();
    assert!(ws.offers.due > 20, "{}", shown());
    assert_eq!(
        (ws.offers.arrived, ws.answers.arrived),
        (ws.offers.due, ws.answers.due),
        "{}",
        shown()
    );
}

#[test]
fn messages_over_websocket_are_right() {
    let (_daemon, addresses) = serve("");
    let targets = addresses.map(|address| format!("ws://{address}/"));
    for more in [
        "--connections 16",
        "--connections 24 --workers 2 --offers 10 --set swarms.mean=20 --answers 40",
        "--connections 8 --rate 300 --profile scrape-heavy --sdp 100-6000",
    ] {
        complete(&right(&targets, &format!("{SHORT} {more}")));
    }
    let line = "--connections 16 --disconnects 10 --warmup 0 --duration 0.5 --timeout 5";
    let ended = right(&targets, line).ws.unwrap();
    assert!(ended.disconnected > 0 && ended.opened > ended.disconnected, "{ended:?}");
}

#[test]
fn messages_over_websocket_by_tls_are_right() {
    let issued = Issued::with(&["localhost"], &PKCS_ECDSA_P256_SHA256, 2100);
    let (launch, [address, _]) = launch(&issued, "");
    let daemon = launch.serve();
    let directory = tempfile::tempdir().unwrap();
    issued.write(directory.path(), "ca").unwrap();
    let ca = directory.path().join("ca.crt");
    let targets = [format!("wss://localhost:{}/", address.port())];
    complete(&right(&targets, &format!("{SHORT} --connections 16 --ca {}", ca.display())));
    let idle = right(&targets, "--idle 100 --duration 4 --timeout 60").ws.unwrap();
    assert_eq!((idle.opened, idle.idle.unwrap().held), (100, 100));
    drop(daemon);
}
