//! Conformance: what a UDP tracker does with each kind of request, one check at a time, against
//! what BEP 15 and its companions say and what real clients count on.
//!
//! Checks are independent of each other: each has info hashes of its own and talks from sockets of
//! its own, so that many run at once. A lost datagram never makes a failure: questions are
//! repeated, and silence is believed only where a good question beside it was answered.
//!
//! | room | what is in it |
//! |---|---|
//! | [`dialogue`] | a peer's socket: questions with repeats, silence |
//! | [`scene`] | what one check has to itself: info hashes, peers; the crowd that some share |
//! | [`report`] | the list for people, JSON for machines |
//! | `connect`, `announce`, `peers`, `counts`, `scrape`, `anything_else` | the checks |

mod announce;
mod anything_else;
pub mod ask;
mod connect;
mod counts;
pub mod dialogue;
mod peers;
pub mod report;
pub mod scene;
mod scrape;

use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use onrush_proto::InfoHash;
use serde::{Deserialize, Serialize};

use crate::probe::{Dead, probe};
use dialogue::{Tracker, Trouble};
use report::{Conformance, Row};
use scene::Scene;

/// Checks under way at a time: enough that waiting for silence costs little, few enough for a
/// tracker that is somebody else's.
const AT_ONCE: usize = 16;
/// How long to wait for a first sign of life.
const PATIENCE: Duration = Duration::from_secs(3);

/// What is asked about: the list is in these parts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Group {
    /// Connection ids.
    Connect,
    /// Announces: their form, events, counts and peer lists.
    Announce,
    /// Scrapes.
    Scrape,
    /// What is no request, and what concerns all replies.
    AnythingElse,
}

impl Group {
    /// All, in the order of the list.
    pub const ALL: [Self; 4] = [Self::Connect, Self::Announce, Self::Scrape, Self::AnythingElse];

    /// As people read it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Announce => "announce",
            Self::Scrape => "scrape",
            Self::AnythingElse => "anything else",
        }
    }
}

/// What came of a check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// As expected.
    Pass,
    /// Not as expected, but within what the BEPs leave open.
    Differs {
        /// What was seen.
        seen: String,
        /// What is left open, and by which BEP.
        open: &'static str,
    },
    /// Against a BEP, or so that real clients come to harm.
    Fails {
        /// What was seen.
        seen: String,
    },
    /// Not checked, and why.
    Skipped {
        /// What is missing.
        reason: String,
    },
}

/// What a check returns: no usable reply where one was due is a failure by itself.
type Judged = Result<Verdict, Trouble>;

/// One thing to find out.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// Its name, which stays.
    pub id: &'static str,
    /// Where it stands in the list.
    pub group: Group,
    /// What a right tracker does.
    pub expected: &'static str,
    /// BEP and section, or the clients that count on it.
    pub source: &'static str,
    /// Info hashes that the tracker must serve, apart from the crowd's.
    hashes: usize,
    /// Whether it looks at the crowd.
    crowd: bool,
    run: fn(&Scene<'_>) -> Judged,
}

/// Every check, in the order of the list.
pub fn checks() -> impl Iterator<Item = &'static Check> {
    let all = [
        connect::CHECKS,
        announce::CHECKS,
        counts::CHECKS,
        peers::CHECKS,
        scrape::CHECKS,
        anything_else::CHECKS,
    ];
    all.into_iter().flatten()
}

/// Whom to ask, and how.
#[derive(Clone, Debug)]
pub struct Inquiry {
    /// The tracker.
    pub target: SocketAddr,
    /// The same tracker's address of the other family.
    pub also: Option<SocketAddr>,
    /// Addresses of this host to ask from; empty for what routing picks (several of 127/8 for a
    /// tracker there).
    pub sources: Vec<IpAddr>,
    /// The info hashes that the tracker serves; empty for any.
    pub hashes: Vec<InfoHash>,
    /// How long a reply may take, and how long silence lasts.
    pub timeout: Duration,
    /// Only this part of the list.
    pub only: Option<Group>,
}

/// Runs the checks.
///
/// # Errors
/// When nobody answers a connect request there: why.
pub fn verify(inquiry: &Inquiry) -> Result<Conformance, Dead> {
    let start = Instant::now();
    let routed = sign_of_life(inquiry.target, inquiry.sources.first().copied())?;
    let also = inquiry.also.filter(|also| sign_of_life(*also, None).is_ok());
    let tracker = Tracker::new(inquiry, also, routed, start);
    let refusal = tracker.refusal();
    let chosen: Vec<&Check> =
        checks().filter(|check| inquiry.only.is_none_or(|only| only == check.group)).collect();
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(chosen.len()) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(check) = chosen.get(number) else { break };
                    let verdict = judge(check, &tracker, refusal.as_deref());
                    done.lock().expect("no check panics").push((number, verdict));
                }
            });
        }
    });
    let mut done = done.into_inner().expect("no check panics");
    done.sort_by_key(|(number, _)| *number);
    let rows = done.into_iter().map(|(number, verdict)| Row::new(chosen[number], verdict));
    let rows: Vec<Row> = rows.collect();
    tracker.begin_to_leave();
    tracker.leave();
    let mut found = Conformance::new(inquiry, also, rows);
    found.datagrams = tracker.sent();
    found.seconds = start.elapsed().as_secs_f64();
    Ok(found)
}

/// Whether anything comes back to a connect request, right or wrong; returns where it came to.
fn sign_of_life(target: SocketAddr, source: Option<IpAddr>) -> Result<IpAddr, Dead> {
    let dead = match probe(target, source, PATIENCE) {
        Ok(local) => return Ok(local),
        Err(dead @ (Dead::Babbling | Dead::Silent)) => dead,
        Err(dead) => return Err(dead),
    };
    let local = source.map_or_else(|| dialogue::route_to(target), Ok).map_err(Dead::Unreachable)?;
    match dead {
        Dead::Silent if !dialogue::answers_from_elsewhere(target, local) => Err(dead),
        _ => Ok(local),
    }
}

/// Runs one check. `refusal` is what the tracker does to an announce of any hash.
fn judge(check: &Check, tracker: &Tracker, refusal: Option<&str>) -> Verdict {
    if let (Some(text), true) = (refusal, check.hashes > 0 || check.crowd) {
        let which = if tracker.given.is_empty() { "unknown" } else { "the given" };
        let reason = format!("to announces of {which} hashes the tracker {text}");
        return match check.id == announce::FIRST {
            false => Verdict::Skipped { reason },
            true => Verdict::Fails {
                seen: reason + "; if it serves listed hashes only, name some with --info-hash",
            },
        };
    }
    match Scene::new(tracker, check.hashes) {
        Ok(scene) => in_time((check.run)(&scene)),
        Err(reason) => Verdict::Skipped { reason },
    }
}

/// The verdict; a check that the end of the time cut short has none.
fn in_time(judged: Judged) -> Verdict {
    let late = Trouble::Late.to_string();
    match judged {
        Ok(Verdict::Fails { seen } | Verdict::Differs { seen, .. }) if seen == late => {
            Verdict::Skipped { reason: late }
        }
        Ok(verdict) => verdict,
        Err(Trouble::Late) => Verdict::Skipped { reason: late },
        Err(trouble) => Verdict::Fails { seen: trouble.to_string() },
    }
}

/// Passes where `right`, else fails with what was seen.
fn demand(right: bool, seen: impl FnOnce() -> String) -> Verdict {
    if right { Verdict::Pass } else { Verdict::Fails { seen: seen() } }
}

/// Passes where `right`, else differs within what is left `open`.
fn prefer(right: bool, open: &'static str, seen: impl FnOnce() -> String) -> Verdict {
    if right { Verdict::Pass } else { Verdict::Differs { seen: seen(), open } }
}

fn fails(seen: impl Into<String>) -> Judged {
    Ok(Verdict::Fails { seen: seen.into() })
}

fn skipped(reason: impl Into<String>) -> Judged {
    Ok(Verdict::Skipped { reason: reason.into() })
}
