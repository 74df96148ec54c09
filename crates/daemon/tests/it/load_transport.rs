//! `onrush-load transport` whose offers and answers pass through this tracker. Its transports, and
//! faults of trackers: `crates/load/tests/it/transport.rs`.

use std::env;
use std::sync::atomic::AtomicBool;

use clap::Parser as _;
use onrush_load::args::{Args, Command};
use onrush_load::transport::{serve as serve_transport, transport};

use crate::http::serve;

/// In the environment of the server's process.
const SERVES: &str = "ONRUSH_TEST_TRANSPORT_SERVES";

/// The tracker remembers four offers of the client to the server, which is the only other member of
/// the swarm: all connections come about, although they begin almost at once.
#[test]
fn more_offers_than_a_tracker_remembers_pass_through_it() {
    const CONNECTIONS: u32 = 40;
    let (_daemon, [address, _]) = serve("");
    let this = env::current_exe().unwrap();
    let server = format!("env {SERVES}=1 {} --exact --nocapture {SERVER}", this.display());
    let size = format!("--preset {CONNECTIONS}x1 --ramp-factor 1000 --seconds 0.5");
    let words = ["onrush-load", "transport", "--stack", "webrtc", "--quiet", "--server", &server];
    let signal = format!("--signal=ws://{address}/");
    let words = words.into_iter().chain(size.split(' ')).chain([signal.as_str()]);
    let args = match Args::try_parse_from(words).unwrap().command {
        Some(Command::Transport(args)) => args,
        other => panic!("{other:?}"),
    };
    args.check().unwrap();
    let report = transport(&args, &AtomicBool::new(false)).unwrap().unwrap();
    let last = report.series.last().unwrap();
    assert_eq!((last.connections, report.lost_connections), (CONNECTIONS, 0));
    assert!(report.right > 0 && report.wrong == 0, "{}", report.to_table());
}

/// The name of the test below.
const SERVER: &str = "load_transport::the_server_of_a_transport";

/// The process of the server, which is this program, as `onrush-load` is another package.
#[test]
fn the_server_of_a_transport() {
    if env::var_os(SERVES).is_some() {
        serve_transport().unwrap();
    }
}
