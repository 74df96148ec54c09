//! The XDP program of this process: it is loaded and attached once, and the main thread gives it
//! addresses and rules every second, and reads what it has counted. Its maps are changed by their
//! descriptors, which takes no capability.
//!
//! | module | contents |
//! |---|---|
//! | [`load`] | loads and attaches the program, and why that fails |
//! | `queues` | the AF_XDP queues of its interfaces |
//! | `places` | the tracker's addresses at an interface |

pub mod load;
mod places;
mod queues;

use std::collections::HashMap;
use std::io;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use onrush_config::Settings;
use onrush_net::xdp::device::{addresses, devices};
use onrush_tracker::clock::Clock;
use onrush_tracker::connection::ConnectionIds;
use onrush_tracker::member::Member;
use onrush_tracker::metrics::WorkerMetrics;
use onrush_tracker::rules::Rules;
use onrush_tracker::xdp::{Place, XdpIntake, XdpSettings};

use crate::notice::{Notice, Repeats};
use load::Loaded;
use places::places;
pub use queues::OpenQueues;

/// Seconds until blocked sources that the program lacks are loaded again.
const RETRY: u32 = 30;

/// The program of this process.
#[derive(Debug)]
pub struct XdpProgram {
    intake: XdpIntake,
    interfaces: Vec<Interface>,
    /// The queues of all interfaces, which the workers have.
    queues: usize,
    /// Those that are open.
    open: OpenQueues,
    settings: XdpSettings,
    ids: ConnectionIds,
    /// The addresses of the workers' sockets.
    listen: Vec<SocketAddr>,
    /// The number as which the program counts requests of blocked sources.
    member: usize,
    /// The rules in force; none before the tracker serves.
    rules: Option<Arc<Rules>>,
    /// Seconds for which the program has lacked blocked sources of these rules.
    lacking: u32,
    /// The places that the program serves: the MAC address of each, and the number of its counters.
    places: HashMap<Place, ([u8; 6], u16)>,
    /// Whether no other interface has an address of the sockets.
    covers_all: bool,
    /// The links of the predecessor, on which this program replaces another one.
    links: Vec<(u32, OwnedFd)>,
}

/// An interface that has the program.
#[derive(Debug)]
struct Interface {
    name: String,
    index: u32,
    metrics: Arc<WorkerMetrics>,
    /// Whether the program is not there: the host no longer has the interface, or another program
    /// stayed.
    is_lost: bool,
}

impl XdpProgram {
    /// The program that was loaded, for sockets at the addresses in `listen`. It counts requests of
    /// blocked sources as this member. It passes every frame until it has rules.
    pub fn new(loaded: Loaded, ids: ConnectionIds, listen: &[SocketAddr], member: usize) -> Self {
        let interface =
            |(name, index)| Interface { name, index, metrics: Arc::default(), is_lost: false };
        Self {
            intake: loaded.intake,
            interfaces: loaded.interfaces.into_iter().map(interface).collect(),
            queues: loaded.queue_count,
            open: loaded.queues.open,
            settings: loaded.settings,
            ids,
            listen: listen.to_vec(),
            member,
            rules: None,
            lacking: 0,
            places: HashMap::new(),
            covers_all: false,
            links: loaded.links,
        }
    }

    /// The members of the data path that the program is: one for each interface.
    pub fn members(&self) -> impl Iterator<Item = Member> {
        self.interfaces.iter().map(|it| Member::program(&it.name, it.metrics.clone()))
    }

    /// A line for the log: interfaces, whether program or workers answer connects, queues.
    pub fn line(&self, settings: &Settings) -> String {
        let names: Vec<_> = self.interfaces.iter().map(|it| it.name.as_str()).collect();
        let by = if self.settings.answer_connects { "the program" } else { "the workers" };
        format!(
            "XDP program at {} ({}): connects are answered by {by}; {}",
            names.join(" and "),
            settings.xdp.mode.word(),
            queues::line(self.queues, settings)
        )
    }

    /// The links of the interfaces, by their indices, for a successor.
    pub fn links(&self) -> impl Iterator<Item = (u32, BorrowedFd<'_>)> {
        self.intake.links()
    }

    /// The open queues, for a successor.
    pub fn open_queues(&self) -> OpenQueues {
        self.open.clone()
    }

    /// Replaces the program of the predecessor, which has released the sockets. Returns a warning
    /// for each interface at which that fails.
    pub fn take_over(&mut self) -> Vec<String> {
        let mut warnings = Vec::new();
        for (index, link) in mem::take(&mut self.links) {
            if let Err(error) = self.intake.replace(index, link) {
                let interface = self.interfaces.iter_mut().find(|it| it.index == index);
                let name = interface.map_or("an interface", |it| {
                    it.is_lost = true;
                    &it.name
                });
                warnings.push(format!(
                    "cannot replace the XDP program at {name}: {error}; sockets alone serve there"
                ));
            }
        }
        warnings
    }

    /// Puts rules into force at once.
    pub fn update(&mut self, rules: &Arc<Rules>, clock: Clock) -> Vec<Notice> {
        let former = self.rules.replace(rules.clone());
        let is_same = former
            .is_some_and(|former| former.blocked == rules.blocked && former.blocks == rules.blocks);
        let mut notices = match is_same && self.intake.has_all_blocked() {
            true => Vec::new(),
            false => self.block(rules),
        };
        notices.extend(self.renew(clock));
        notices
    }

    fn block(&mut self, rules: &Rules) -> Vec<Notice> {
        let blocked = self.intake.block(rules);
        self.lacking = 0;
        failures([(
            "cannot have all blocked sources, and passes every request to the sockets",
            blocked,
        )])
    }

    /// Whether the program decides all that arrives from other hosts.
    pub fn is_in_force(&self) -> bool {
        let is_attached = self.covers_all && self.interfaces.iter().all(|it| !it.is_lost);
        is_attached && self.intake.has_all_blocked()
    }

    /// Call every second: renews addresses and rules, and reads the counters.
    pub fn tick(&mut self, clock: Clock) -> Vec<Notice> {
        let mut notices = Vec::new();
        self.lacking += u32::from(!self.intake.has_all_blocked());
        if self.lacking == RETRY
            && let Some(rules) = self.rules.clone()
        {
            notices.extend(self.block(&rules));
        }
        notices.extend(self.renew(clock));
        notices.extend(failures([("does not show its counters", self.count())]));
        notices
    }

    /// Detaches the program, and reads its counters for the last time.
    pub fn end(&mut self) {
        self.intake.detach();
        // Without them the totals lack the last second.
        let _ = self.count();
    }

    fn renew(&mut self, clock: Clock) -> Vec<Notice> {
        let (gone, places) = match self.renew_places() {
            Ok(gone) => (gone, Ok(())),
            Err(error) => (Vec::new(), Err(error)),
        };
        let rules = self.rules.as_ref().map_or(Ok(()), |rules| {
            self.intake.renew(rules, &self.ids, self.settings, clock.second())
        });
        let mut notices: Vec<_> = gone
            .into_iter()
            .map(|interface| {
                Notice::warn(format!(
                    "the interface {interface} is gone, and its XDP program with it: if it comes \
                     back, sockets alone serve there until a restart"
                ))
            })
            .collect();
        notices.extend(failures([
            ("does not get the addresses of its interfaces", places),
            ("does not get its rules", rules),
        ]));
        notices
    }

    /// Gives the program the places of this moment. Returns the interfaces that are newly gone.
    fn renew_places(&mut self) -> io::Result<Vec<String>> {
        let (devices, addresses) = (devices()?, addresses()?);
        let mut gone = Vec::new();
        for interface in &mut self.interfaces {
            let is_gone = devices.iter().all(|device| device.index != interface.index);
            if is_gone && !mem::replace(&mut interface.is_lost, true) {
                gone.push(interface.name.clone());
            }
        }
        let numbers: Vec<_> = self.interfaces.iter().map(|it| it.index).zip(0..).collect();
        let current = places(&numbers, &devices, &addresses, &self.listen);
        let all: Vec<_> = devices.iter().map(|device| (device.index, 0)).collect();
        self.covers_all = places(&all, &devices, &addresses, &self.listen).len() == current.len();
        let is_left = |place: &&Place| !current.contains_key(*place);
        let left: Vec<Place> = self.places.keys().filter(is_left).copied().collect();
        // First, as they may take the room of new ones.
        for place in left {
            self.intake.leave(&place)?;
            self.places.remove(&place);
        }
        for (place, device) in &current {
            if self.places.get(place) != Some(device) {
                self.intake.serve(place, device.0, device.1)?;
                self.places.insert(*place, *device);
            }
        }
        Ok(gone)
    }

    fn count(&self) -> io::Result<()> {
        let mut counted = Ok(());
        for (interface, number) in self.interfaces.iter().zip(0..) {
            // Each takes its turn, also after an error of another one.
            counted = counted.and(self.intake.count(number, &interface.metrics));
        }
        counted?;
        let Some(rules) = &self.rules else { return Ok(()) };
        self.intake.count_blocks(rules, self.member)
    }
}

/// A warning for each of these that has failed.
fn failures<const N: usize>(results: [(&str, io::Result<()>); N]) -> Vec<Notice> {
    let failed = results.into_iter().filter_map(|(what, result)| Some((what, result.err()?)));
    let notice = |(what, error)| {
        Notice::warn(format!("the XDP program {what}: {error}")).with(Repeats::Limited("xdp"))
    };
    failed.map(notice).collect()
}
