//! The successor's side of a handoff: it requests sockets and peers, and acquires the sockets once
//! it could serve.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;
use std::vec;

use onrush_net::QueueId;
use onrush_net::bind::BoundSocket;
use onrush_net::regroup::AddressSockets;
use onrush_net::stream::listen::AddressListeners;
use onrush_net::xdp::{Queue, QueueOptions};
use onrush_swarm::{ChangeReader, Interest, Shard, ShardMap};
use thiserror::Error;

use super::SOCKET;
use crate::process::service_notify;
use onrush_config::settings::Listen;
use onrush_config::{Passed, Settings};
use onrush_replica::dump::{self, DumpError, load_options};
use onrush_replica::handoff::{
    Handoff, IntervalCommitment, Message, PROTOCOL, SectionKind, unexpected,
};
use onrush_replica::link::{Link, UnixLink};
use onrush_store::lock::StateLock;
use onrush_text::numbers::grouped;
use onrush_text::version::version;
use onrush_tracker::access::AccessList;
use onrush_tracker::clock::{Clock, Now};
use onrush_tracker::running::Scheme;

/// Time for each message of the predecessor: longer than any of its own timeouts.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Why a handoff failed. The predecessor keeps serving.
#[derive(Debug, Error)]
pub enum HandoffError {
    /// It cannot begin, or one side refuses it; with the remedy.
    #[error("{0}")]
    Refused(String),
    /// The connection failed, or a message did not follow the protocol.
    #[error("upgrade failed; the running onrush keeps serving: {0}")]
    Broken(#[from] io::Error),
}

impl From<DumpError> for HandoffError {
    fn from(error: DumpError) -> Self {
        match error {
            DumpError::Io(error) => Self::Broken(error),
            DumpError::TooManyPeers { peers, lost, limit } => Self::Refused(format!(
                "limits.peers = {limit} has no room for {} of the {} peers of the running onrush, \
                 which keeps serving\n  raise limits.peers, or give these peers up: `onrush ctl \
                 upgrade --force`",
                grouped(lost),
                grouped(peers)
            )),
        }
    }
}

/// A handoff in progress, as the successor sees it.
#[derive(Debug)]
pub struct SuccessorSide<L = UnixLink> {
    /// The connection to the predecessor.
    pub link: L,
    /// The description of the handoff.
    pub handoff: Handoff,
    /// The UDP sockets of the addresses that both processes serve.
    pub kept: Vec<AddressSockets>,
    /// The UDP addresses that only the successor serves.
    pub added: Vec<Listen>,
    /// The listeners.
    pub web: HandedListeners,
    /// The sections whose addresses are kept.
    keeps: Vec<SectionKind>,
    /// The links that hold the XDP program at interfaces, by their indices.
    pub links: Vec<(u32, OwnedFd)>,
    /// The queues of interfaces that are not taken.
    queues: Vec<(QueueId, Vec<OwnedFd>)>,
    /// The state directory's lock.
    pub lock: Option<StateLock>,
    /// The control socket, if the predecessor has one.
    pub control: Option<UnixListener>,
    /// For each shard, the peers that have stopped since the dump was loaded.
    pub stops: Vec<ChangeReader>,
}

/// Listeners of a handoff, with what is accepted there.
#[derive(Debug, Default)]
pub struct HandedListeners {
    /// Those of the addresses that both processes serve.
    pub kept: Vec<(Scheme, AddressListeners)>,
    /// The addresses that only the successor serves.
    pub added: Vec<(Scheme, Listen)>,
}

/// The sockets that a service manager has opened for the predecessor. Their addresses and number
/// override the configuration. Failures are reported by [`SuccessorSide::request`].
pub fn passed_sockets(settings: &Settings) -> Passed {
    let Some(handoff) = inspect(settings) else { return Passed::default() };
    let udp = handoff.addresses().filter(|_| handoff.passed.udp);
    let (udp, counts): (Vec<_>, Vec<usize>) = udp.unzip();
    let listeners = |scheme| {
        let all = handoff.listeners().filter(|(of, _)| *of == scheme);
        all.filter(|_| handoff.passed.listeners(scheme)).map(|(_, address)| address).collect()
    };
    Passed {
        udp,
        each: counts.into_iter().min().unwrap_or(0),
        http: listeners(Scheme::Http),
        https: listeners(Scheme::Https),
    }
}

/// The handoff that the predecessor would make. Failures are reported by
/// [`SuccessorSide::request`].
pub fn inspect(settings: &Settings) -> Option<Handoff> {
    let link = connect(settings, Clock::start()).ok()?;
    link.send(&Message::Inspect).ok()?;
    match link.receive(TIMEOUT).ok()? {
        Message::Handoff(handoff) => Some(handoff),
        _ => None,
    }
}

fn connect(settings: &Settings, clock: Clock) -> Result<UnixLink, HandoffError> {
    let Some(directory) = &settings.state_dir else {
        return Err(HandoffError::Refused(
            "an upgrade needs the state directory, and none is configured\n  name that of the \
             running onrush with --state-dir"
                .to_owned(),
        ));
    };
    let path = directory.join(SOCKET);
    let stream = UnixStream::connect(&path).map_err(|cause| {
        HandoffError::Refused(format!(
            "no predecessor: no onrush listens at {}: {cause}\n  start without --upgrade, or name \
             the state directory of the running onrush with --state-dir",
            path.display()
        ))
    })?;
    Ok(UnixLink::new(stream, TIMEOUT, clock)?)
}

impl SuccessorSide {
    /// Requests the handoff from the process that serves with the state directory of `settings`.
    ///
    /// # Errors
    /// [`HandoffError`].
    pub fn request(settings: &Settings, clock: Clock) -> Result<Self, HandoffError> {
        Self::begin(connect(settings, clock)?, &settings.listen, &settings.http.listeners())
    }
}

impl<L: Link> SuccessorSide<L> {
    /// Requests the handoff over this link, for a process that is to serve these addresses over UDP
    /// and TCP.
    ///
    /// # Errors
    /// [`HandoffError`].
    pub fn begin(link: L, udp: &[Listen], web: &[(Scheme, Listen)]) -> Result<Self, HandoffError> {
        link.send(&Message::Request { protocol: PROTOCOL, version: version().to_owned() })?;
        let handoff = match link.receive(TIMEOUT)? {
            Message::Handoff(handoff) => handoff,
            Message::Refusal(why) => {
                return Err(HandoffError::Refused(format!(
                    "the running onrush refuses the upgrade: {why}\n  it keeps serving; stop it, \
                     then start this one"
                )));
            }
            other => return Err(unexpected(&other).into()),
        };
        let bound: Vec<_> = handoff.addresses().map(|(address, _)| address).collect();
        let (mut keeps_udp, added) = compare(&bound, udp, |listen| *listen);
        let bound: Vec<_> = handoff.listeners().map(|(_, address)| address).collect();
        let (mut keeps_web, added_web) = compare(&bound, web, |(_, listen)| *listen);
        let (mut kept, mut kept_web, mut keeps) = (Vec::new(), Vec::new(), Vec::new());
        let (mut links, mut queues) = (Vec::new(), Vec::new());
        let (mut lock, mut control) = (None, None);
        for (kind, descriptors) in link.receive_descriptors(&handoff.sections)? {
            match kind {
                SectionKind::Udp(address) => {
                    let sockets = descriptors.into_iter().map(BoundSocket::adopt);
                    let sockets = sockets.collect::<io::Result<_>>()?;
                    if keeps_udp.next().flatten().is_some() {
                        keeps.push(kind);
                        kept.push(AddressSockets { address, sockets });
                    }
                }
                SectionKind::Http(address) | SectionKind::Https(address) => {
                    let listeners = AddressListeners::adopt(address, descriptors)?;
                    // An address may change from HTTP to HTTPS.
                    if let Some((scheme, _)) = keeps_web.next().flatten() {
                        keeps.push(kind);
                        kept_web.push((scheme, listeners));
                    }
                }
                SectionKind::Xdp(index) => {
                    links.extend(descriptors.into_iter().map(|link| (index, link)));
                }
                SectionKind::Queue(id) => queues.push((id, descriptors)),
                SectionKind::Lock => lock = Some(StateLock::adopt(descriptors)?),
                SectionKind::Control => {
                    control = descriptors.into_iter().next().map(UnixListener::from);
                }
            }
        }
        let (web, stops) = (HandedListeners { kept: kept_web, added: added_web }, Vec::new());
        Ok(Self { link, handoff, kept, added, web, keeps, links, queues, lock, control, stops })
    }

    /// Takes a queue, if the predecessor has it with these options.
    pub fn take_queue(&mut self, options: &QueueOptions) -> Option<Queue> {
        let id = options.id()?;
        let at = self.queues.iter().position(|(of, _)| *of == id)?;
        match Queue::adopt(options.clone(), self.queues.swap_remove(at).1) {
            Ok(queue) => {
                self.keeps.push(SectionKind::Queue(id));
                Some(queue)
            }
            Err(error) => {
                let QueueOptions { interface, queue, .. } = options;
                log::info!("queue {queue} of {interface} is opened anew: {error}");
                None
            }
        }
    }

    /// Accepts the handoff, and loads the peers as they arrive. If they are more than `limit`,
    /// which is `limits.peers`, those that do not fit are dropped with `force`.
    ///
    /// # Errors
    /// [`HandoffError`], when the peers do not arrive completely, or are too many without `force`.
    pub fn load_peers(
        &mut self,
        mut shards: Vec<&mut Shard>,
        map: ShardMap,
        access: &AccessList,
        now: Now,
        limit: u64,
        force: bool,
    ) -> Result<(), HandoffError> {
        let Handoff { version, process, .. } = &self.handoff;
        log::info!("receiving the handoff of process {process}, onrush {version}");
        self.link.send(&Message::Accept { keeps: self.keeps.clone() })?;
        // The delta may contain peers that stop at this process before it arrives.
        self.stops = shards.iter_mut().map(|shard| shard.subscribe(Interest::Stops)).collect();
        let options = load_options(map, access, now);
        let held = match self.link.receive(TIMEOUT)? {
            Message::Dump { peers } => peers,
            other => return Err(unexpected(&other).into()),
        };
        let (from, progress) = (self.link.reader(), &mut service_notify::progress());
        Ok(dump::load(from, held, shards, options, (limit, force), progress)?)
    }

    /// Waits until the predecessor has released the sockets. Call when everything slow is done:
    /// from the release on neither process serves. Returns the commitment to keep.
    ///
    /// # Errors
    /// [`HandoffError`], when the predecessor keeps the sockets.
    pub fn wait_for_release(&self) -> Result<IntervalCommitment, HandoffError> {
        self.link.send(&Message::Ready)?;
        match self.link.receive(TIMEOUT)? {
            Message::Release { commitment } => Ok(commitment),
            other => Err(unexpected(&other).into()),
        }
    }

    /// Acquires the sockets: from here on this process has to serve.
    ///
    /// # Errors
    /// [`HandoffError`], when the predecessor has timed out and serves again.
    pub fn acquire(&self) -> Result<(), HandoffError> {
        Ok(self.link.send(&Message::Acquired)?)
    }
}

/// For each `bound` address the one of `wanted` that keeps it, and those to be bound. Port 0
/// matches any port.
fn compare<T: Copy>(
    bound: &[SocketAddr],
    wanted: &[T],
    listen: impl Fn(&T) -> Listen,
) -> (vec::IntoIter<Option<T>>, Vec<T>) {
    let mut keeps = vec![None; bound.len()];
    let mut added = Vec::new();
    for wanted in wanted {
        let address = listen(wanted).address;
        let matches = |bound: &SocketAddr| {
            bound.ip() == address.ip() && (address.port() == 0 || bound.port() == address.port())
        };
        match (0..bound.len()).find(|at| keeps[*at].is_none() && matches(&bound[*at])) {
            Some(number) => keeps[number] = Some(*wanted),
            None => added.push(*wanted),
        }
    }
    (keeps.into_iter(), added)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_kept_added_and_dropped() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let bound = [at("127.0.0.1:1000"), at("127.0.0.1:2000"), at("[::1]:1000")];
        let compared = |wanted: &[&str]| {
            let listen: Vec<_> =
                wanted.iter().map(|text| Listen { address: at(text), optional: false }).collect();
            let (keeps, added) = compare(&bound, &listen, |listen| *listen);
            let keeps = keeps.map(|keeps| keeps.is_some()).collect::<Vec<_>>();
            (keeps, added.iter().map(|added| added.address).collect::<Vec<_>>())
        };
        let all = ["127.0.0.1:1000", "[::1]:1000", "127.0.0.1:2000"];
        assert_eq!(compared(&all), (vec![true; 3], Vec::new()));
        let other = compared(&["127.0.0.1:3000", "127.0.0.1:2000"]);
        assert_eq!(other, (vec![false, true, false], vec![at("127.0.0.1:3000")]));
        // Each bound address matches once.
        let any = compared(&["127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"]);
        assert_eq!(any, (vec![true, true, false], vec![at("127.0.0.1:0")]));
    }
}
