//! `onrush-load http` and this tracker: every reply is right, over HTTP and HTTPS, with connections
//! that are kept or not. Faults: `crates/load/tests/it/http.rs`.

use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;

use clap::Parser as _;
use onrush_load::args::{Args, Command, HttpArgs};
use onrush_load::plan::{Kind, Plan, Population};
use onrush_load::report::Report;
use onrush_load::run::over_http;
use onrush_load::sources;
use onrush_testing::tls::{Issued, PKCS_ECDSA_P256_SHA256};

use crate::http::serve;
use crate::https::launch;

fn parsed(targets: &[String], more: &str) -> HttpArgs {
    let command =
        ["onrush-load", "http", "--quiet", "--duration=0.5", "--warmup=0", "--timeout=60"];
    let targets = targets.iter().flat_map(|target| ["-t", target]);
    let words = command.into_iter().chain(targets).chain(more.split_whitespace());
    match Args::try_parse_from(words).unwrap().command {
        Some(Command::Http(args)) => *args,
        other => panic!("{other:?}"),
    }
}

/// A short run.
fn run(targets: &[String], more: &str) -> Report {
    let args = parsed(targets, more);
    let (profile, target) = (args.profile().unwrap(), args.target().unwrap());
    let addresses: Vec<_> = args.target.iter().map(|url| url.address).collect();
    let routed = |target: SocketAddr| Some(target.ip());
    let sources = sources::addresses(&addresses, &[], args.sources(), routed);
    let population = Population::new(&profile.swarms, profile.v6, sources, 5, false);
    let plan = Plan::new(profile, population, 5);
    let (settings, stop) = (args.run_settings(5), AtomicBool::new(false));
    over_http(&plan, &target, &settings, &stop, Vec::new()).unwrap()
}

/// A run whose replies are all right, also where the BEPs leave a matter open.
#[track_caller]
fn right(targets: &[String], more: &str) -> Report {
    let report = run(targets, more);
    let shown = || format!("{more}\n{}", report.to_table());
    assert_eq!((report.wrong.len(), report.differs.len()), (0, 0), "{}", shown());
    let announces = report.kinds.iter().find(|kind| kind.kind == Kind::Announce).unwrap();
    assert!(announces.right > 20, "{}", shown());
    assert_eq!((announces.right, announces.lost), (announces.requests, 0), "{}", shown());
    assert_eq!(report.http.as_ref().unwrap().failed, 0, "{}", shown());
    report
}

#[test]
fn replies_over_http_are_right() {
    let (_daemon, addresses) = serve("");
    let targets = addresses.map(|address| format!("http://{address}/announce"));
    for more in [
        "--connections 16 --swarms 100 --lists 30",
        "--connections 4 --pipeline 16 --set swarms.mean=30 --swarms 20",
        "--connections 16 --keep-alive off --profile scrape-heavy --workers 2",
        "--connections 8 --rate 500 --profile abuse --swarms 100",
    ] {
        let report = right(&targets, more);
        let kept = !more.contains("off");
        let opened = report.http.unwrap().opened;
        assert_eq!(opened <= 16, kept, "{opened}: {more}");
    }
}

#[test]
fn replies_over_https_are_right() {
    let issued = Issued::with(&["localhost"], &PKCS_ECDSA_P256_SHA256, 2100);
    let (launch, [address, _]) = launch(&issued, "");
    let daemon = launch.serve();
    let directory = tempfile::tempdir().unwrap();
    issued.write(directory.path(), "ca").unwrap();
    let ca = directory.path().join("ca.crt");
    let targets = [format!("https://localhost:{}/announce", address.port())];
    let report = right(&targets, "--preset published-2022 --swarms 100");
    let http = report.http.unwrap();
    assert!(http.opened > 20 && http.resumed == 0, "{http:?}");
    assert!(http.handshake.p50 > 0.0 && http.handshake.p50 < report.latency.max);
    let kept = format!("--connections 8 --pipeline 4 --ca {}", ca.display());
    assert_eq!(right(&targets, &kept).http.unwrap().opened, 8);
    let resumed = right(&targets, "--connections 8 --keep-alive off --resume").http.unwrap();
    assert!(resumed.resumed > 0 && resumed.resumed < resumed.opened, "{resumed:?}");
    drop(daemon);
}

/// A certificate of another authority is refused, and that is reported.
#[test]
fn a_certificate_is_verified_where_it_is_to_be() {
    let (issued, other) = (Issued::of(&["localhost"]), Issued::of(&["localhost"]));
    let (launch, [address, _]) = launch(&issued, "");
    let _daemon = launch.serve();
    let directory = tempfile::tempdir().unwrap();
    other.write(directory.path(), "other").unwrap();
    let ca = directory.path().join("other.crt");
    let targets = [format!("https://localhost:{}/announce", address.port())];
    let report = run(&targets, &format!("--connections 2 --ca {}", ca.display()));
    assert_eq!(report.right_replies(), 0);
    let failure = report.http.unwrap().failure.unwrap();
    assert!(failure.contains("certificate"), "{failure}");
}
