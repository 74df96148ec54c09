//! The attack's traffic: a fixed rate on a thread of its own, from spoofed or from proven sources.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use onrush_net::mio::Backend;
use onrush_net::raw::{Checksum, RawSender};
use onrush_net::{Reply, Return, Sent, Socket as _};
use onrush_proto::{ConnectionId, InfoHash};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::connects::{Connects, bind_any};
use super::kind::{Attack, LARGEST, Payloads};
use super::prefix::Prefix;
use super::{AttackArgs, FloodReport};
use crate::latency::Nanos;
use crate::run::RunClock;

/// Datagrams per system call.
const BATCH: usize = 64;
/// Send interval.
const TICK: Duration = Duration::from_micros(500);
/// Time whose datagrams are made up for when the thread was late; those of more are left out, so
/// that a late thread does not turn a rate into a burst.
const CATCH_UP: Nanos = 20_000_000;
/// Age at which an attacker renews a connection id (BEP 15: it may be used for a minute).
const RENEW: Nanos = 45_000_000_000;
/// Interval between connects of an attacker that has no connection id.
const RETRY: Nanos = 250_000_000;

/// The rate of the datagrams.
#[derive(Clone, Copy, Debug)]
struct Rate {
    /// Datagrams per second while sending.
    rate: f64,
    /// For bursts, the length of a period and of the burst in it.
    bursts: Option<(Nanos, Nanos)>,
}

impl Rate {
    /// Number of datagrams due `passed` after the start.
    fn due(&self, passed: Nanos) -> u64 {
        let sending = match self.bursts {
            None => passed,
            Some((period, burst)) => passed / period * burst + (passed % period).min(burst),
        };
        (sending as f64 * self.rate / 1e9) as u64
    }

    /// Splits what is due by `passed` after `counted` datagrams: those to skip, and those to send.
    fn split(&self, passed: Nanos, counted: u64) -> (u64, u64) {
        let due = self.due(passed).saturating_sub(counted);
        let most = (CATCH_UP as f64 * self.rate / 1e9) as u64 + 1;
        (due.saturating_sub(most), due.min(most))
    }
}

/// The attack, and the datagrams that it has sent.
pub(super) struct Flood {
    rate: Rate,
    payloads: Payloads,
    way: Way,
    sent: Sent,
    /// Datagrams left out because the thread was late, or had no connection id.
    skipped: u64,
}

enum Way {
    /// With the block of the spoofed sources of each target.
    Spoofed(Vec<(RawSender, Prefix)>, Checksum, SmallRng),
    Proven(Box<Proven>),
}

impl Flood {
    /// Opens what the attack sends through. `honest` is a swarm of honest peers; `targets` have a
    /// block of sources of their family each.
    ///
    /// # Errors
    /// Without the right to open raw sockets, or where a socket cannot be bound.
    pub(super) fn open(
        args: &AttackArgs,
        seed: u64,
        honest: InfoHash,
        targets: &[(SocketAddr, Prefix)],
    ) -> anyhow::Result<Self> {
        let (attack, bursts) = (args.attack, [args.period, args.burst].map(|time| time.as_nanos()));
        let way = if attack.is_spoofed() {
            let open = |&(to, sources): &(SocketAddr, Prefix)| {
                RawSender::open(to, BATCH).map(|sender| (sender, sources))
            };
            let senders = targets.iter().map(open).collect::<io::Result<_>>().context(
                "cannot open a raw socket: that takes CAP_NET_RAW in a network namespace, as \
                 `unshare --map-root-user --net` gives",
            )?;
            let checksum = match attack {
                Attack::BadChecksums => Checksum::Wrong,
                _ => Checksum::Right,
            };
            Way::Spoofed(senders, checksum, SmallRng::seed_from_u64(seed))
        } else {
            Way::Proven(Box::new(Proven::open(attack, targets, args.attackers)?))
        };
        let bursts = (attack == Attack::Bursts).then_some(bursts.map(|time| time as Nanos).into());
        let payloads = Payloads::new(attack, honest, seed);
        let rate = Rate { rate: args.rate, bursts };
        Ok(Self { rate, payloads, way, sent: Sent::default(), skipped: 0 })
    }

    /// All datagrams, with the connects for the attackers' own connection ids.
    pub(super) fn datagrams(&self) -> u64 {
        let connects = if let Way::Proven(proven) = &self.way { proven.connects.sent } else { 0 };
        self.sent.datagrams + connects
    }

    /// The datagrams of the attack.
    pub(super) fn report(&self) -> FloodReport {
        FloodReport {
            rate: self.rate.rate,
            sent: self.sent.datagrams,
            skipped: self.skipped,
            refused: self.sent.unsent,
        }
    }

    /// Sends until the span ends. Proven sources get their connection ids during the warm-up.
    ///
    /// # Errors
    /// Only what makes a socket unusable.
    pub(super) fn run(&mut self, span: &RunClock) -> io::Result<()> {
        let mut counted = 0;
        loop {
            // Before the time is read, so that what was due is counted to the end.
            let over = span.is_over();
            let now = span.now().min(span.end());
            if let Way::Proven(proven) = &mut self.way {
                proven.renew(now)?;
            }
            let (skip, mut missing) = match now.checked_sub(span.start) {
                Some(passed) => self.rate.split(passed, counted),
                None => (0, 0),
            };
            self.skipped += skip;
            counted += skip + missing;
            while missing > 0 {
                let batch = missing.min(BATCH as u64);
                self.send(batch as usize);
                missing -= batch;
            }
            if over {
                return Ok(());
            }
            #[expect(clippy::disallowed_methods, reason = "the flood is paced")]
            std::thread::sleep(TICK);
        }
    }

    fn send(&mut self, count: usize) {
        let mut buffer = [0; LARGEST];
        match &mut self.way {
            Way::Spoofed(senders, checksum, rng) => {
                for n in 0..count {
                    let at = n % senders.len();
                    let (sender, sources) = &mut senders[at];
                    let source = sources.source(rng.random());
                    let source = SocketAddr::new(source, rng.random_range(1024..=u16::MAX));
                    let len = self.payloads.write(0, &mut buffer);
                    sender.push(source, &buffer[..len], *checksum);
                }
                for (sender, _) in senders {
                    self.sent += sender.send();
                }
            }
            Way::Proven(proven) => {
                let (sent, skipped) = proven.send(&mut self.payloads, count);
                self.sent += sent;
                self.skipped += skipped;
            }
        }
    }
}

/// Attackers with connection ids of their own.
struct Proven {
    attackers: Vec<Attacker>,
    connects: Connects,
    /// Sends the attack. Its replies are never read: they overflow the smallest receive buffer,
    /// which costs this host least.
    flood: Backend,
    next: usize,
    bytes: Vec<u8>,
    /// The attacker, start and length of each datagram of a batch.
    spans: Vec<(usize, usize, usize)>,
}

struct Attacker {
    to: Return,
    /// 0 for none.
    id: u64,
    /// When it was received.
    since: Nanos,
    /// When a connect was last sent.
    asked: Option<Nanos>,
}

impl Proven {
    fn open(
        attack: Attack,
        targets: &[(SocketAddr, Prefix)],
        attackers: u32,
    ) -> anyhow::Result<Self> {
        let attacker = |n: u32| {
            let place = n as usize % targets.len();
            let (target, sources) = targets[place];
            let sources = if attack == Attack::OnePrefix { sources.narrowed() } else { sources };
            // Numbers from 1 on: 0 is the network itself.
            let source = sources.source(u64::from(n) / targets.len() as u64 + 1);
            Attacker {
                to: Return::to(target, place as u16).from_local(source),
                id: 0,
                since: 0,
                asked: None,
            }
        };
        Ok(Self {
            attackers: (0..attackers.max(targets.len() as u32)).map(attacker).collect(),
            connects: Connects::open(targets)?,
            flood: bind_any(targets, 1)?,
            next: 0,
            bytes: vec![0; BATCH * LARGEST],
            spans: Vec::with_capacity(BATCH),
        })
    }

    /// Requests missing and old connection ids, and stores those that have arrived.
    fn renew(&mut self, now: Nanos) -> io::Result<()> {
        let Self { attackers, connects, .. } = self;
        for (number, attacker) in attackers.iter_mut().enumerate() {
            let missing = attacker.id == 0 || now - attacker.since > RENEW;
            let asked = attacker.asked.is_some_and(|asked| now - asked < RETRY);
            if missing && !asked {
                connects.ask(number, &attacker.to);
                attacker.asked = Some(now);
            }
        }
        connects.receive(|number, ConnectionId(id)| {
            if let Some(attacker) = attackers.get_mut(number) {
                (attacker.id, attacker.since) = (id, now);
            }
        })
    }

    /// Sends `count` datagrams, from one attacker after another. Returns how many were sent, and
    /// how many were left out for want of a connection id.
    fn send(&mut self, payloads: &mut Payloads, count: usize) -> (Sent, u64) {
        self.spans.clear();
        for place in 0..count {
            self.next = (self.next + 1) % self.attackers.len();
            let id = self.attackers[self.next].id;
            if id != 0 {
                let start = place * LARGEST;
                let into = self.bytes[start..].first_chunk_mut().expect("BATCH places");
                self.spans.push((self.next, start, payloads.write(id, into)));
            }
        }
        let skipped = count - self.spans.len();
        let replies = self.spans.iter().map(|&(attacker, start, len)| Reply {
            bytes: &self.bytes[start..start + len],
            to: &self.attackers[attacker].to,
        });
        (self.flood.send(replies), skipped as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = 1_000_000_000;

    #[test]
    fn a_fixed_rate_and_bursts_of_one_percent() {
        let even = Rate { rate: 15_000.0, bursts: None };
        assert_eq!([0, SECOND / 1000, 8 * SECOND].map(|t| even.due(t)), [0, 15, 120_000]);
        let bursts = Some((12 * SECOND, SECOND * 12 / 100));
        let bursts = Rate { rate: 100_000.0, bursts };
        let times = [SECOND * 6 / 100, SECOND, 11 * SECOND, 12 * SECOND + SECOND / 100];
        assert_eq!(times.map(|t| bursts.due(t)), [6000, 12_000, 12_000, 13_000]);
    }

    #[test]
    fn a_late_thread_catches_up_by_little() {
        let rate = Rate { rate: 10_000.0, bursts: None };
        assert_eq!(rate.split(SECOND, 9_990), (0, 10));
        let (skip, send) = rate.split(SECOND, 0);
        assert_eq!((skip + send, send), (10_000, 201));
        assert_eq!(rate.split(SECOND, 10_000), (0, 0));
    }
}
