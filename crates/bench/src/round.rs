//! One round: start the tracker, wait until it answers, warm up, measure, stop.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use onrush_verify::probe::{Step, probe};
use tempfile::TempDir;

use crate::certificate;
use crate::contender::{Setup, WHITELIST, hitch};
use crate::load::Load;
use crate::mix::Protocol;
use crate::prepare::Prepared;
use crate::process::{Stop, Stopped, must_be_free};
use crate::record::{Case, Measured, RoundOutcome, Share};
use crate::tracker::{ANSWER_TIMEOUT, Tracker};

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
    /// Runs one round of one case, which is the step `number` of the plan; `peers` are those of a
    /// reply of the floor. A failure of the tracker or of its load is a result.
    ///
    /// # Errors
    /// [`Stopped`], and a port that is in use.
    pub fn round(
        &self,
        (number, round, case): (usize, u32, &Case),
        peers: usize,
    ) -> anyhow::Result<RoundOutcome> {
        let port = self.prepared.plan.settings.port;
        let address = address(number, case.mix.protocol(), port);
        must_be_free(address, case.mix.protocol(), self.stop)?;
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
            proxied: case.variant.count(hitch::WORKERS).is_some(),
            seed: settings.seed + u64::from(round) - 1,
            address,
            directory: directory.path(),
        };
        let whitelist = found.needs_whitelist().then(|| directory.path().join(WHITELIST));
        if let Some(file) = &whitelist {
            load.write_hashes(&self.prepared.tools, file, self.stop)?;
            fs::set_permissions(file, fs::Permissions::from_mode(0o644))?;
        }
        if load.mix.protocol().in_tls().is_some() {
            certificate::write(directory.path())?;
        }
        let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, settings.port));
        let is_any = settings.wildcard && case.mix.protocol() == Protocol::Udp;
        let address = if is_any { any } else { address };
        let setup = Setup::new(load.mix, address, directory.path(), peers);
        let start = || Tracker::start(found, &case.variant, &setup, &case.seats.tracker, self.stop);
        let idle = match load.idle() {
            Some(connections) => self.during(start()?, |tracker| {
                load.idle_memory(connections, &self.prepared.tools, &tracker.pids(), self.stop)
            })?,
            None => Measured::default(),
        };
        let tracker = start()?;
        if let Some(whitelist) = &whitelist {
            wait_until_listed(tracker.address, load.mix.protocol(), whitelist)
                .with_context(|| format!("{name} and its whitelist; {}", tracker.output_tail()))?;
        }
        let Measured { most, shares, peak_rss, .. } =
            self.during(tracker, |tracker| self.loads(&load, tracker))?;
        Ok(Measured { most, shares, peak_rss, ..idle })
    }

    /// The result of `work` on a tracker, unless that ends meanwhile, which explains more than the
    /// failure of a load.
    fn during<T>(
        &self,
        mut tracker: Tracker,
        work: impl FnOnce(&Tracker) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let result = work(&tracker);
        tracker.check()?;
        result
    }

    /// Measures the closed loop, then the open ones.
    fn loads(&self, load: &Load, tracker: &Tracker) -> anyhow::Result<Measured> {
        let (tools, pids) = (&self.prepared.tools, tracker.pids());
        let most = load.run(tools, &pids, None, self.stop)?;
        let shares = &self.prepared.plan.settings.shares;
        let shares = if load.mix.has_latency() { &shares[..] } else { &[] };
        let mut measured = Measured { most, ..Measured::default() };
        for &percent in shares {
            let most = &measured.most;
            let asked = most.requests.unwrap_or(most.rate) * f64::from(percent) / 100.0;
            let point = load.run(tools, &pids, Some(asked), self.stop)?;
            measured.shares.push(Share { percent, asked, point });
        }
        measured.peak_rss = tracker.peak();
        Ok(measured)
    }
}

/// The address of a tracker: over veth devices the one that scripts/bench-xdp gives the device
/// (RFC 2544). Over TCP every step has another one: connections that a tracker has
/// closed keep its address for a minute (TIME_WAIT), where it permits no other tracker to listen.
pub fn address(number: usize, protocol: Protocol, port: u16) -> SocketAddr {
    let ip = match protocol {
        Protocol::Udp => Ipv4Addr::LOCALHOST,
        Protocol::Veth => Ipv4Addr::new(198, 18, 0, 1),
        _ => Ipv4Addr::new(127, 0, 1, (number % 250) as u8 + 1),
    };
    (ip, port).into()
}

/// Waits until the last info hash of the list is served: a tracker answers connects while it
/// reads the list, and its refusals would count as wrong. `address` is without TLS.
fn wait_until_listed(
    address: SocketAddr,
    protocol: Protocol,
    whitelist: &Path,
) -> anyhow::Result<()> {
    let list = fs::read_to_string(whitelist)?;
    let last = list.lines().next_back().context("the whitelist is empty")?;
    let hash = last.parse().map_err(anyhow::Error::msg)?;
    let is_served = || match protocol {
        protocol if protocol.is_udp() => {
            let probe = probe(address, Some(hash), PROBE_TIMEOUT);
            probe.answered.iter().any(|answered| answered.step == Step::Announce)
        }
        _ => is_served_over_http(address, last).unwrap_or(false),
    };
    let end = Instant::now() + ANSWER_TIMEOUT;
    while Instant::now() < end {
        if is_served() {
            return Ok(());
        }
        // A refusal comes at once.
        #[expect(clippy::disallowed_methods, reason = "a tracker starts without an event")]
        sleep(RETRY);
    }
    bail!("{last}, the last of it, was not served within {} s", ANSWER_TIMEOUT.as_secs())
}

/// Whether an announce of this info hash is accepted. The peer leaves again.
fn is_served_over_http(address: SocketAddr, hash: &str) -> anyhow::Result<bool> {
    let hash: String =
        hash.as_bytes().chunks(2).map(|byte| format!("%{}", byte.escape_ascii())).collect();
    let announce = |event: &str| -> anyhow::Result<String> {
        let mut stream = TcpStream::connect_timeout(&address, PROBE_TIMEOUT)?;
        stream.set_read_timeout(Some(PROBE_TIMEOUT))?;
        write!(
            stream,
            "GET /announce?info_hash={hash}&peer_id=-OR0100-000000000000&port=1&left=1&numwant=0\
             &event={event} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
        )?;
        let mut reply = Vec::new();
        stream.read_to_end(&mut reply)?;
        Ok(String::from_utf8_lossy(&reply).into_owned())
    };
    let reply = announce("started")?;
    let is_served = reply.contains("interval") && !reply.contains("failure reason");
    if is_served {
        announce("stopped")?;
    }
    Ok(is_served)
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
        wait_until_listed(address, Protocol::Udp, list.path()).unwrap();
        thread.join().unwrap();
    }
}
