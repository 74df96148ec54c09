//! The time of a list of checks.

use std::time::Duration;

use onrush_proto::InfoHash;
use onrush_verify::{VerifySettings, verify};

use super::faulty::{Fault, Server};

/// A run ends within a minute whatever the tracker answers, also where checks wait for hashes.
#[test]
fn a_tracker_that_answers_connects_only_is_reported_in_time() {
    let server = Server::start(Fault::OnlyConnects);
    for hashes in [Vec::new(), vec![InfoHash([1; 20]), InfoHash([2; 20])]] {
        let settings = VerifySettings {
            target: server.addresses[0],
            also: server.addresses.get(1).copied(),
            sources: Vec::new(),
            hashes,
            timeout: Duration::from_millis(500),
            only: None,
            reach_timeout: Duration::from_secs(3),
        };
        let report = verify(&settings).unwrap();
        assert!(report.has_failed(false));
        assert!(report.seconds < 45.0, "{} s", report.seconds);
    }
}
