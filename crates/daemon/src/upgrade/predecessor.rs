//! The predecessor's side of a handoff: it waits at a Unix socket for a successor, and keeps
//! serving when the handoff fails.

use std::fmt::Display;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Sender, bounded};
use onrush_net::descriptors::Peer;
use onrush_swarm::{Interest, Shard, Totals};

use crate::state_files::ControlSocket;
use crate::xdp::OpenQueues;
use onrush_replica::delta::{CompletedHandoff, Since};
use onrush_replica::dump;
use onrush_replica::handoff::{
    Handoff, InheritedState, IntervalCommitment, Message, PROTOCOL, Section, SectionKind,
    unexpected,
};
use onrush_replica::link::{Link, UnixLink};
use onrush_store::state_socket::StateSocket;
use onrush_text::version::version;
use onrush_tracker::clock::{Clock, Now};
use onrush_tracker::gather::Gather;
use onrush_tracker::orders::{FRONT_PAUSE_LIMIT, Orders};

/// Time for the request after a connection is accepted. Others wait behind it, so it is shorter
/// than the time for which a successor waits.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for each write to the successor.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for the successor to read all peers, besides [`TIME_PER_ITEM`]: other upgrades wait
/// meanwhile.
const SEND_TIMEOUT: Duration = Duration::from_secs(60);
/// Time to read a peer, or a swarm without peers: a multiple of what it takes.
const TIME_PER_ITEM: Duration = Duration::from_micros(10);
/// Time for the successor to open its sockets, and to finish loading once all peers are sent. It
/// loads while it receives, so little is left then.
const LOAD_TIMEOUT: Duration = Duration::from_secs(60);
/// Time for a worker to produce the next block of the dump.
const DUMP_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for workers to answer everything they have received.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for the successor to acquire the sockets, which takes a millisecond on a quiet host:
/// neither process serves meanwhile.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for the main thread to reply.
const MAIN_THREAD_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause after a failed accept, and time between two looks at the file of the socket.
const RETRY: Duration = Duration::from_secs(1);

/// The predecessor's side of a handoff: the description and the descriptors for the successor, and
/// the channels to the workers and the main thread of this process.
pub struct PredecessorSide {
    /// The description of the handoff.
    pub handoff: Handoff,
    /// The descriptors of each section of the handoff.
    pub descriptors: Vec<Vec<OwnedFd>>,
    /// The queues that are open when a handoff begins become further sections.
    pub queues: OpenQueues,
    /// The control socket, which may be made again until a handoff begins.
    pub control: Option<ControlSocket>,
    /// Sends orders to the workers.
    pub orders: Orders,
    /// `limits.peers`.
    pub limit: u64,
    /// Whether this process is still merging the delta of its own predecessor.
    pub merging: Arc<AtomicBool>,
    /// Reports to the main thread.
    pub events: Sender<HandoffEvent>,
}

/// The state of an upgrade, reported to the main thread.
#[derive(Debug)]
pub enum HandoffEvent {
    /// A process has requested the handoff.
    Requested {
        /// Its process id.
        process: i32,
        /// For the state that it inherits.
        inherited: Sender<InheritedState>,
    },
    /// The successor could serve. The sockets are released after the reply; from then on the main
    /// thread makes no changes that the successor would miss.
    Ready {
        /// Its process id.
        process: i32,
        /// Its build.
        version: String,
        /// For the final commitment.
        commitment: Sender<IntervalCommitment>,
    },
    /// The upgrade has failed; this process serves.
    Failed,
    /// The successor serves.
    Completed(CompletedHandoff),
}

/// The warning without the upgrade socket.
pub fn unavailable(path: impl Display, error: &io::Error) -> String {
    format!("upgrades without downtime are unavailable: cannot listen at {path}: {error}")
}

impl PredecessorSide {
    /// Listens at `path`, on a thread of its own, for a successor. If the socket cannot be bound,
    /// or its file is lost, the thread makes it as soon as it can, and the first error is returned
    /// as `Some`: the disk may be full or read-only for a while.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn listen(self, path: PathBuf, clock: Clock) -> io::Result<Option<io::Error>> {
        let mut socket = StateSocket::new(path, 0o600);
        let failed = socket.bind().err();
        let mut has_failed = failed.is_some();
        thread::Builder::new().name("upgrade".into()).spawn(move || {
            loop {
                let stream = socket.accept(RETRY).transpose();
                let link = stream.map(|it| UnixLink::new(it?, WRITE_TIMEOUT, clock));
                match link.map(|link| Ok::<_, io::Error>(self.serve(link?))) {
                    // The next successor connects to the present one.
                    Some(Ok(true)) => return,
                    Some(Ok(false)) | None => {}
                    Some(Err(error)) => {
                        // The socket could not be bound, or descriptors have run out: without a
                        // pause this would be a busy loop.
                        log::debug!("cannot accept a connection at the upgrade socket: {error}");
                        #[expect(
                            clippy::disallowed_methods,
                            reason = "neither ends with an event"
                        )]
                        thread::sleep(RETRY);
                    }
                }
                let renewed = socket.renew();
                let path = socket.path().display();
                match &renewed {
                    Some(Ok(())) => {
                        log::info!("{path} is made again: upgrades without downtime are available");
                    }
                    Some(Err(error)) if !has_failed => log::warn!("{}", unavailable(path, error)),
                    _ => {}
                }
                has_failed = renewed.is_some_and(|renewed| renewed.is_err());
            }
        })?;
        Ok(failed)
    }

    /// Serves one connection. Returns whether the handoff of the sockets is complete.
    pub fn serve(&self, link: impl Link) -> bool {
        let result = match self.receive_request(&link) {
            Ok(None) => return false,
            Ok(Some((peer, version))) => {
                self.run_handoff(link, peer, version).inspect_err(|_| {
                    // The main thread may have ended.
                    let _ = self.events.send(HandoffEvent::Failed);
                })
            }
            // No handoff has begun, and the main thread was not involved.
            Err(error) => Err(error),
        };
        match result {
            Ok(completed) => {
                // The main thread may have ended. This process must make no socket again even so.
                let _ = self.events.send(HandoffEvent::Completed(completed));
                true
            }
            Err(error) => {
                log::warn!("upgrade failed; this process keeps serving: {error}");
                false
            }
        }
    }

    /// Authenticates the peer and reads its request. Returns the successor's process and build;
    /// `None` if the connection needs nothing more.
    fn receive_request(&self, link: &impl Link) -> io::Result<Option<(Peer, String)>> {
        let peer = link.peer()?;
        let own = nix::unistd::Uid::effective().as_raw();
        if peer.user != own && peer.user != 0 {
            log::warn!("upgrade refused: user {} is neither user {own} nor root", peer.user);
            return Ok(None);
        }
        let why = match link.receive(REQUEST_TIMEOUT)? {
            Message::Inspect => {
                link.send(&Message::Handoff(self.handoff.clone()))?;
                return Ok(None);
            }
            // A dump would lack the peers that are still to be merged.
            Message::Request { protocol: PROTOCOL, .. } if self.merging.load(Ordering::Acquire) => {
                "the previous upgrade is still merging peers: try again in a few seconds".to_owned()
            }
            Message::Request { protocol: PROTOCOL, version } => {
                return Ok(Some((peer, version)));
            }
            Message::Request { protocol, version: other } => format!(
                "onrush {} has version {PROTOCOL} of the upgrade protocol, and onrush {other} \
                 version {protocol}",
                version()
            ),
            other => return Err(unexpected(&other)),
        };
        link.send(&Message::Refusal(why.clone()))?;
        Err(io::Error::other(why))
    }

    /// Sends sockets and peers to the successor.
    fn run_handoff(
        &self,
        link: impl Link,
        Peer { process, user }: Peer,
        version: String,
    ) -> io::Result<CompletedHandoff> {
        let requested = |inherited| HandoffEvent::Requested { process, inherited };
        let current = Some(self.ask_main_thread(&link, requested)?);
        let mut handoff = Handoff { current, ..self.handoff.clone() };
        let control = self.control.as_ref().and_then(|socket| socket.lock().ok());
        handoff.control_file = control.as_ref().and_then(|socket| socket.file());
        let listener = control.as_ref().and_then(|socket| socket.listener()).into_iter();
        let listener = listener.map(|it| it.as_fd().try_clone_to_owned());
        let listener = listener.collect::<io::Result<Vec<_>>>()?;
        let queues = self.queues.copies()?.into_iter();
        let queues = queues.map(|(id, descriptors)| (SectionKind::Queue(id), descriptors));
        let (kinds, further): (Vec<_>, Vec<_>) =
            queues.chain([(SectionKind::Control, listener)]).unzip();
        let counts = further.iter().map(Vec::len);
        let section = |(kind, count)| Section { kind, count };
        handoff.sections.extend(kinds.into_iter().zip(counts).map(section));
        link.send(&Message::Handoff(handoff))?;
        link.send_descriptors(&self.descriptors)?;
        link.send_descriptors(&further)?;
        // The successor binds further sockets, and may read long lists.
        let keeps = match link.receive(LOAD_TIMEOUT) {
            Ok(Message::Accept { keeps }) => keeps,
            Ok(other) => return Err(unexpected(&other)),
            Err(error) => {
                let why = format!("process {process} left before it accepted the handoff: {error}");
                return Err(io::Error::new(error.kind(), why));
            }
        };
        log::info!(
            "handoff begins: process {process} of user {user}, onrush {} -> {version}; it receives \
             the peers while this one keeps serving",
            self.handoff.version
        );
        let begun = link.now().moment;
        let subscribe =
            |shard: &mut Shard, _: Now| Some((shard.subscribe(Interest::Stops), shard.totals()));
        let subscribed = self.orders.gather(|_| subscribe).map_err(io::Error::other)?;
        let subscribed = subscribed.wait_by(|results| link.wait(results, DUMP_TIMEOUT));
        let subscribed = subscribed.map_err(io::Error::other)?;
        let (stops, totals): (_, Vec<Totals>) = subscribed.into_iter().unzip();
        self.send_peers(&link, &totals)?;
        match link.receive(LOAD_TIMEOUT)? {
            Message::Ready => {}
            other => return Err(unexpected(&other)),
        }
        let ready = |commitment| HandoffEvent::Ready { process, version, commitment };
        let released = self.pause_fronts(&link).and_then(|()| {
            let commitment = self.ask_main_thread(&link, ready)?;
            self.release(&link, commitment)
        });
        released.inspect_err(|_| {
            if let Err(error) = self.orders.resume() {
                log::error!("{error}; its worker does not serve");
            }
        })?;
        self.drain_rest(&link, &keeps);
        let since = Since { begun, stops };
        // The lock is never released: a lost socket is made again by the successor, not here.
        std::mem::forget(control);
        Ok(CompletedHandoff { to: link.into_delta_writer(), process, since })
    }

    /// Reports an event to the main thread, and waits for the reply.
    fn ask_main_thread<R>(
        &self,
        link: &impl Link,
        event: impl FnOnce(Sender<R>) -> HandoffEvent,
    ) -> io::Result<R> {
        let (reply, replied) = bounded(1);
        // A failure drops the sender of the reply.
        let _ = self.events.send(event(reply));
        let stopping = |_| io::Error::other("this process is stopping");
        link.wait(&replied, MAIN_THREAD_TIMEOUT).map_err(stopping)
    }

    /// Sends all peers. The shards had these totals a moment ago.
    fn send_peers(&self, link: &impl Link, totals: &[Totals]) -> io::Result<()> {
        let peers: u64 = totals.iter().map(Totals::peers).sum();
        let idle: u64 = totals.iter().map(|totals| totals.idle_swarms).sum();
        link.send(&Message::Dump { peers: peers.min(self.limit) })?;
        let limit = SEND_TIMEOUT + TIME_PER_ITEM * u32::try_from(peers + idle).unwrap_or(u32::MAX);
        dump::send(link, &self.orders, limit, DUMP_TIMEOUT)
    }

    /// Lets fronts finish the requests that have begun, for a limited time. Further connections
    /// wait for the successor; workers receive meanwhile.
    fn pause_fronts(&self, link: &impl Link) -> io::Result<()> {
        let paused = self.orders.pause_fronts().map_err(io::Error::other)?;
        wait_for_fronts(link, paused);
        Ok(())
    }

    /// Stops receiving and releases the sockets. After a failure, workers have to receive again.
    fn release(&self, link: &impl Link, commitment: IntervalCommitment) -> io::Result<()> {
        let paused = self.orders.pause().map_err(io::Error::other)?;
        paused
            .wait_by(|results| link.wait(results, DRAIN_TIMEOUT))
            .map_err(|_| io::Error::other("a worker did not stop receiving in time"))?;
        link.send(&Message::Release { commitment })?;
        match link.receive(ACQUIRE_TIMEOUT) {
            Ok(Message::Acquired) => return Ok(()),
            Ok(other) => return Err(unexpected(&other)),
            Err(_) => {}
        }
        // After the shutdown the successor can send nothing more. A message that it sent before can
        // still be read, and counts.
        link.shut_down()?;
        match link.receive(ACQUIRE_TIMEOUT) {
            Ok(Message::Acquired) => Ok(()),
            _ => Err(io::Error::other("the successor did not acquire the sockets in time")),
        }
    }

    /// Answers the datagrams and connections queued at addresses that the successor does not serve,
    /// and in queues that it has not taken.
    fn drain_rest(&self, link: &impl Link, keeps: &[SectionKind]) {
        let queue = |kind: &SectionKind| match kind {
            SectionKind::Queue(id) => Some(*id),
            _ => None,
        };
        let taken = keeps.iter().filter_map(queue).collect();
        let kinds = self.handoff.sections.iter().map(|section| section.kind);
        // Also those that were opened since the handoff began.
        let queues = self.queues.ids().into_iter().map(SectionKind::Queue);
        let dropped = kinds.chain(queues).filter(|kind| !keeps.contains(kind));
        let (mut udp, mut web, mut may_have_queues) = (Vec::new(), Vec::new(), false);
        for kind in dropped {
            match kind {
                SectionKind::Udp(address) => udp.push(address),
                SectionKind::Http(address) | SectionKind::Https(address) => web.push(address),
                // The program of the successor passes what that does not serve.
                SectionKind::Xdp(_) | SectionKind::Queue(_) => may_have_queues = true,
                SectionKind::Lock | SectionKind::Control => {}
            }
        }
        let wait = |results: &_| link.wait(results, DRAIN_TIMEOUT);
        if may_have_queues || !udp.is_empty() {
            let udp = udp.into();
            let drain = |_| {
                let drained = self.orders.drain(&udp, &taken);
                drained.is_ok_and(|drained| drained.wait_by(wait).is_ok())
            };
            // Twice: frames that are redirected at the first time have arrived by the second.
            if !(0..2).all(drain) {
                log::warn!("some requests that the successor does not get were not answered");
            }
        }
        if !web.is_empty()
            && let Ok(drained) = self.orders.drain_fronts(&web.into())
        {
            wait_for_fronts(link, drained);
        }
    }
}

/// Waits until no connection of a front is open, for a limited time in all.
fn wait_for_fronts(link: &impl Link, done: Gather<()>) {
    let end = Instant::now() + FRONT_PAUSE_LIMIT;
    // Connections that are open then belong to clients that are slow.
    let _ =
        done.wait_by(|results| link.wait(results, end.saturating_duration_since(Instant::now())));
}
