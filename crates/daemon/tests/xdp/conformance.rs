//! Every check of crates/verify, over a link with the program and the queues.

use std::net::SocketAddr;
use std::time::Duration;

use onrush_verify::reachability::REACH_TIMEOUT;
use onrush_verify::report::CheckOutcome;
use onrush_verify::{VerifySettings, verify};

use crate::harness::{eventually, run};
use crate::link::{PORT, XDP, frames, launch, metrics, with_program_of_clients};
use crate::sandbox::{CLIENTS, TRACKER};

/// Connects are answered by the program, then by the workers.
#[test]
fn every_check_of_verify_passes_past_the_network_stack() {
    let others = [["10.9.0.3", "10.9.0.4"], ["fd09::3", "fd09::4"]];
    with_program_of_clients(|hosts| {
        hosts.on_clients(|| {
            let all = others.as_flattened();
            all.iter().for_each(|ip| run(&format!("ip address add {ip}/24 dev clients")));
        });
        for by in ["driver", "workers"] {
            let xdp = XDP.replace("\"driver\"", &format!("\"{by}\""));
            let trusted = "[limits]\ntrusted_sources = [\"10.9.0.0/24\", \"fd09::/64\"]\n";
            let tables = format!("{xdp}{trusted}");
            let daemon = launch("", &tables).serve();
            for family in [0, 1] {
                let address =
                    |family: usize| SocketAddr::new(TRACKER[family].parse().unwrap(), PORT);
                let own = [&[CLIENTS[family]][..], &others[family]].concat();
                let settings = VerifySettings {
                    target: address(family),
                    also: Some(address(1 - family)),
                    sources: own.iter().map(|ip| ip.parse().unwrap()).collect(),
                    hashes: Vec::new(),
                    timeout: Duration::from_secs(1),
                    only: None,
                    reach_timeout: REACH_TIMEOUT,
                };
                let report = hosts.on_clients(|| verify(&settings).unwrap());
                let counts = CheckOutcome::ALL.map(|outcome| (outcome, report.count(outcome)));
                let passed = report.count(CheckOutcome::Pass);
                assert!(passed > 40 && passed == report.checks.len(), "{counts:?}: {report:?}");
            }
            let answered = frames(&daemon, "answered");
            assert_eq!(answered > 0, by == "driver");
            let received = || {
                let sum = |name: &str| metrics(&daemon).sum(&format!("onrush_{name}_total"), &[]);
                (sum("xdp_queue_received_datagrams") as u64, frames(&daemon, "redirected"))
            };
            eventually("the queues have all that the program redirects", || {
                let (received, redirected) = received();
                received > 0 && received == redirected
            });
            assert_eq!(frames(&daemon, "passed"), 0);
            daemon.stop();
        }
    });
}
