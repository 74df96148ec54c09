//! Upgrades on a host that may give a process no CPU time for seconds.

use std::time::{Duration, Instant};

use crate::harness::messages::{SUCCESSOR_FAILED, UPGRADE_DONE, UPGRADE_RUNNING};
use crate::harness::{Daemon, TIMEOUT};

/// Pause between looks at the log.
const LOOK: Duration = Duration::from_millis(5);

/// Upgrades a daemon. The handoff to a successor that gets no CPU time for seconds fails, and the
/// predecessor serves on: then an operator asks again.
pub(crate) fn upgrade(daemon: &mut Daemon) {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        daemon.skip();
        let begin = daemon.log().len();
        daemon.signal("USR2");
        let mut logged = |parts: &[&str]| {
            daemon.read_until(Instant::now() + LOOK);
            daemon.log()[begin..].iter().any(|line| parts.iter().any(|part| line.contains(part)))
        };
        while !logged(&[UPGRADE_DONE, SUCCESSOR_FAILED, UPGRADE_RUNNING]) {
            assert!(Instant::now() < deadline, "no upgrade within {TIMEOUT:?}");
        }
        if logged(&[UPGRADE_DONE]) {
            daemon.upgraded();
            return;
        }
    }
}
