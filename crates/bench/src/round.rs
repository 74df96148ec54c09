//! One round: start the tracker, wait until it answers, warm up, measure, stop.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use onrush_load::process::Memory;
use onrush_verify::probe::{Step, probe};
use tempfile::TempDir;

use crate::contender::{Setup, WHITELIST};
use crate::load::Load;
use crate::prepare::Prepared;
use crate::process::{Child, Stop, Stopped, must_be_free};
use crate::record::{Case, Measured, RoundOutcome, Share};

/// How long a tracker may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// The time of each request that finds out whether a whitelist is in force.
const PROBE_TIMEOUT: Duration = Duration::from_millis(400);
/// Interval between these requests, where they are refused.
const RETRY: Duration = Duration::from_millis(50);

/// The context of all rounds.
pub struct Rounds<'a> {
    /// The plan, and its programs.
    pub prepared: &'a Prepared,
    /// The stop flag.
    pub stop: &'a Stop,
}

impl Rounds<'_> {
    /// Runs one round of one case; `peers` are those of a reply of the floor. A failure of the
    /// tracker or of its load is a result.
    ///
    /// # Errors
    /// [`Stopped`], and a port that is in use.
    pub fn round(&self, round: u32, case: &Case, peers: usize) -> anyhow::Result<RoundOutcome> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.prepared.plan.settings.port));
        must_be_free(address, self.stop)?;
        match self.measure(round, case, address, peers) {
            Ok(measured) => Ok(RoundOutcome::Measured(Box::new(measured))),
            Err(error) if error.is::<Stopped>() => Err(error),
            Err(error) => Ok(RoundOutcome::Failed(format!("{error:#}"))),
        }
    }

    fn measure(
        &self,
        round: u32,
        case: &Case,
        address: SocketAddr,
        peers: usize,
    ) -> anyhow::Result<Measured> {
        let name = &case.variant.tracker;
        let found = self.prepared.present.iter().find(|found| found.contender.name == name);
        let found = found.with_context(|| format!("{name} is absent"))?;
        let directory = readable_directory()?;
        let settings = &self.prepared.plan.settings;
        let load = Load {
            mix: case.mix,
            seats: &case.seats,
            dose: &settings.dose,
            checked: found.contender.checked,
            seed: settings.seed + u64::from(round) - 1,
            port: settings.port,
            directory: directory.path(),
        };
        let whitelist = found.needs_whitelist().then(|| directory.path().join(WHITELIST));
        if let Some(file) = &whitelist {
            load.write_hashes(&self.prepared.tools, file, self.stop)?;
            fs::set_permissions(file, fs::Permissions::from_mode(0o644))?;
        }
        let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, settings.port));
        let setup = Setup {
            directory: directory.path(),
            address: if settings.wildcard { any } else { address },
            peers,
        };
        let launch = found.launch(&case.variant, &setup)?;
        let mut tracker = Child::start(&launch, &case.seats.tracker, directory.path())?;
        tracker.wait_until_answering(address, ANSWER_TIMEOUT, self.stop)?;
        if let Some(whitelist) = &whitelist {
            wait_until_listed(address, whitelist)
                .with_context(|| format!("{name} and its whitelist; {}", tracker.output_tail()))?;
        }
        let measured = self.loads(&load, &tracker);
        // The end of the tracker explains more than the failure of its load.
        if let Some(status) = tracker.ended()? {
            bail!("{name} ended ({status}) under load: {}", tracker.output_tail());
        }
        measured
    }

    /// Measures the closed loop, then the open ones.
    fn loads(&self, load: &Load, tracker: &Child) -> anyhow::Result<Measured> {
        let pid = tracker.pid();
        let most = load.run(&self.prepared.tools, pid, None, self.stop)?;
        let shares = &self.prepared.plan.settings.shares;
        let shares = if load.mix.has_latency() { &shares[..] } else { &[] };
        let mut measured = Measured { most, shares: Vec::new(), peak_rss: None };
        for &percent in shares {
            let asked = measured.most.rate * f64::from(percent) / 100.0;
            let point = load.run(&self.prepared.tools, pid, Some(asked), self.stop)?;
            measured.shares.push(Share { percent, asked, point });
        }
        let peak = Memory::of(pid).ok().map(|memory| memory.peak);
        measured.peak_rss = peak.filter(|&peak| peak > 0);
        Ok(measured)
    }
}

/// Waits until the last info hash of the list is served: a tracker answers connects while it
/// reads the list, and its refusals would count as wrong.
fn wait_until_listed(address: SocketAddr, whitelist: &Path) -> anyhow::Result<()> {
    let list = fs::read_to_string(whitelist)?;
    let last = list.lines().next_back().context("the whitelist is empty")?;
    let last = last.parse().map_err(anyhow::Error::msg)?;
    let end = Instant::now() + ANSWER_TIMEOUT;
    while Instant::now() < end {
        let probe = probe(address, Some(last), PROBE_TIMEOUT);
        if probe.answered.iter().any(|answered| answered.step == Step::Announce) {
            return Ok(());
        }
        // A refusal comes at once.
        #[expect(clippy::disallowed_methods, reason = "a tracker starts without an event")]
        sleep(RETRY);
    }
    bail!("{last}, the last of it, was not served within {} s", ANSWER_TIMEOUT.as_secs())
}

/// A temporary directory, readable by trackers that change their user.
fn readable_directory() -> anyhow::Result<TempDir> {
    let directory = tempfile::tempdir().context("cannot make a directory")?;
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755))?;
    Ok(directory)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::UdpSocket;

    use super::*;

    /// A tracker that refuses its first announces, as while it reads its list. No peer remains.
    #[test]
    fn a_whitelist_is_in_force_once_an_announce_is_accepted() {
        const EVENT: usize = 83;
        let tracker = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = tracker.local_addr().unwrap();
        let thread = std::thread::spawn(move || {
            let mut announces = 0;
            let mut request = [0; 256];
            loop {
                let (len, client) = tracker.recv_from(&mut request).unwrap();
                let action = request[11];
                let len = if len == 16 { 16 } else { 20 };
                let mut reply = vec![0; len];
                reply[3] = action;
                reply[4..8].copy_from_slice(&request[12..16]);
                if action == 1 {
                    announces += 1;
                    assert_eq!(request[16..36], [0xAB; 20]);
                    if request[EVENT] == 3 && announces > 3 {
                        return;
                    }
                    if announces < 3 {
                        reply.truncate(8);
                    }
                }
                tracker.send_to(&reply, client).unwrap();
            }
        });
        let mut list = tempfile::NamedTempFile::new().unwrap();
        writeln!(list, "{}\n{}", "01".repeat(20), "ab".repeat(20)).unwrap();
        wait_until_listed(address, list.path()).unwrap();
        thread.join().unwrap();
    }
}
