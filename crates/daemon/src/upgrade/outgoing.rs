//! The old process's part: it waits at a Unix socket for one that is to follow it, and goes on serving when
//! that comes to nothing.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Sender, bounded};
use onrush_net::bind::BoundSocket;
use onrush_net::handover;
use onrush_swarm::{Moment, Shard};

use super::message::{Offer, PROTOCOL, Word, hear, say, unexpected};
use crate::overload::Promise;
use onrush_control::version::version;
use onrush_store::snapshot::dump::{DumpMessage, DumpTask};
use onrush_store::snapshot::write::SnapshotWriter;
use onrush_tracker::clock::{Clock, Now};
use onrush_tracker::orders::{Chore, Orders};

/// How long the other side may take for an answer that takes no work, and for a piece of what it is sent.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long it may take, once it has been sent everything, until it could serve. It loads as it reads, so that
/// little is left to be done then.
const LOADING: Duration = Duration::from_secs(60);
/// How long a worker may take for the next block of the dump.
const DUMPING: Duration = Duration::from_secs(30);
/// How long workers may take to answer what they have.
const LAST_ANSWERS: Duration = Duration::from_secs(2);
/// How long the other side may take for the sockets: it has nothing left to do but to say so, and nobody serves.
const TAKING: Duration = Duration::from_secs(1);
/// How long the main thread may take for an answer.
const MAIN_THREAD: Duration = Duration::from_secs(5);
/// Between two tries to let somebody in, after one that failed.
const AGAIN: Duration = Duration::from_secs(1);

/// Departures are not noted any more.
struct NoteNoMore;

impl Chore for NoteNoMore {
    fn step(&mut self, shard: &mut Shard, _: Now) -> bool {
        shard.departures();
        false
    }
}

/// What there is to be given.
pub struct Giver {
    /// What is told of it.
    pub offer: Offer,
    /// Of each address its sockets, in the order of their group.
    pub sockets: Vec<Vec<BoundSocket>>,
    /// Workers that have sockets.
    pub workers: usize,
    /// The state directory's lock.
    pub lock: OwnedFd,
    /// The ways to the workers.
    pub orders: Orders,
    /// Their clock.
    pub clock: Clock,
    /// Whether the peers of the process before this one have not all arrived yet.
    pub merging: Arc<AtomicBool>,
    /// Where it is told how far it is.
    pub tell: Sender<Step>,
}

/// How far an upgrade is, as the main thread hears of it.
#[derive(Debug)]
pub enum Step {
    /// A process has come to take over.
    Begun {
        /// Its number.
        process: i32,
        /// What it has to keep of what clients were told.
        promise: Sender<Option<Promise>>,
    },
    /// It could serve. When this is answered the sockets change hands, and from then on nothing may be changed that
    /// it has not been told of.
    Ready {
        /// Its number.
        process: i32,
        /// Which build it is.
        version: String,
        /// What it has to keep, in the end.
        promise: Sender<Option<Promise>>,
    },
    /// It came to nothing.
    Failed(String),
    /// The sockets have changed hands.
    Given(Given),
}

/// The sockets have changed hands: what is left to do is to send what the dump has not.
#[derive(Debug)]
pub struct Given {
    /// To the new process.
    pub stream: UnixStream,
    /// Its number.
    pub process: i32,
    /// When the dump began.
    pub since: Moment,
}

impl Giver {
    /// Waits on a thread of its own, at `path`, for whoever is to follow.
    ///
    /// # Errors
    /// When nobody could be heard there.
    pub fn wait_at(self, path: &Path) -> io::Result<()> {
        // Left over from a process that is gone: the lock of the directory is ours.
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        thread::Builder::new().name("upgrade".into()).spawn(move || {
            for stream in listener.incoming() {
                let stream = match stream {
                    Ok(stream) => stream,
                    Err(error) => {
                        // Out of descriptors, most likely: without a pause this would go round and round.
                        log::debug!("nobody can be let in to take over: {error}");
                        thread::sleep(AGAIN);
                        continue;
                    }
                };
                // Whoever comes next finds nobody here, but the new process.
                if self.meet(stream) {
                    return;
                }
            }
        })?;
        Ok(())
    }

    /// Talks with one that came. Whether the sockets are its own now.
    fn meet(&self, stream: UnixStream) -> bool {
        let met = match self.greet(&stream) {
            Ok(Some(met)) => met,
            Ok(None) => return false,
            Err(error) => {
                // It has got nothing, and an upgrade that is under way goes on.
                log::warn!("an upgrade came to nothing, this process serves on: {error}");
                return false;
            }
        };
        match self.talk(stream, met) {
            Ok(given) => self.tell.send(Step::Given(given)).is_ok(),
            Err(error) => {
                log::warn!("an upgrade came to nothing, this process serves on: {error}");
                // Nobody wants to know any more who stops. A worker that is deaf has been reported.
                let _ = self.orders.every_shard(|_| Box::new(NoteNoMore));
                // The main thread may have ended.
                let _ = self.tell.send(Step::Failed(error.to_string()));
                false
            }
        }
    }

    /// Hears who it is and what it wants; `None` where it wants nothing more.
    fn greet(&self, stream: &UnixStream) -> io::Result<Option<Met>> {
        let peer = handover::peer(stream)?;
        let own = nix::unistd::Uid::effective().as_raw();
        if peer.user != own && peer.user != 0 {
            log::warn!("user {} wanted to take over, and may not", peer.user);
            return Ok(None);
        }
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        match hear(stream)? {
            Word::Look => say(stream, &Word::Offer(self.offer.clone())).map(|()| None),
            Word::Ask { protocol: PROTOCOL, .. } if self.merging.load(Ordering::Acquire) => {
                // Shards note departures for one upgrade at a time.
                let why = "the rest of the peers of the process before this one is still arriving: try \
                           again in a moment";
                say(stream, &Word::Refusal(why.to_owned()))?;
                Err(io::Error::other(why))
            }
            Word::Ask { protocol: PROTOCOL, version } => {
                Ok(Some(Met { process: peer.process, version }))
            }
            Word::Ask { protocol, version: other } => {
                let why = format!(
                    "onrush {} speaks version {PROTOCOL} of the upgrade protocol, and onrush {other} \
                     version {protocol}",
                    version()
                );
                say(stream, &Word::Refusal(why.clone()))?;
                Err(io::Error::other(why))
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Gives everything to one that may have it.
    fn talk(&self, stream: UnixStream, met: Met) -> io::Result<Given> {
        let Met { process, version } = met;
        let promise = self.main_thread(|promise| Step::Begun { process, promise })?;
        self.offer_all(&stream, promise)?;
        // It binds what it has to, and reads the list again.
        stream.set_read_timeout(Some(LOADING))?;
        let keeps = match hear(&stream) {
            Ok(Word::Go { keeps }) => keeps,
            Ok(other) => return Err(unexpected(&other)),
            Err(error) => {
                let why = format!(
                    "process {process} looked at what there is to take over, and left: {error}"
                );
                return Err(io::Error::new(error.kind(), why));
            }
        };
        log::info!("process {process} takes over: it gets the peers while this one serves on");
        let since = self.clock.now().moment;
        self.dump(&stream)?;
        stream.set_read_timeout(Some(LOADING))?;
        match hear(&stream)? {
            Word::Ready => {}
            other => return Err(unexpected(&other)),
        }
        let promise = self.main_thread(|promise| Step::Ready { process, version, promise })?;
        self.give(&stream, promise)?;
        self.finish(&keeps);
        Ok(Given { stream, process, since })
    }

    /// Tells the main thread how far it is, and waits for what it says.
    fn main_thread(
        &self,
        step: impl FnOnce(Sender<Option<Promise>>) -> Step,
    ) -> io::Result<Option<Promise>> {
        let (answer, answered) = bounded(1);
        let ending = |_| io::Error::other("this process is ending");
        self.tell.send(step(answer)).map_err(|_| ending(()))?;
        answered.recv_timeout(MAIN_THREAD).map_err(|_| ending(()))
    }

    fn offer_all(&self, stream: &UnixStream, promise: Option<Promise>) -> io::Result<()> {
        say(stream, &Word::Offer(Offer { promise, ..self.offer.clone() }))?;
        for sockets in &self.sockets {
            let descriptors: Vec<_> = sockets.iter().map(AsFd::as_fd).collect();
            for some in descriptors.chunks(handover::MAX_DESCRIPTORS) {
                handover::send(stream, some)?;
            }
        }
        handover::send(stream, &[self.lock.as_fd()])
    }

    fn dump(&self, stream: &UnixStream) -> io::Result<()> {
        let parts = DumpTask::of_all(&self.orders, true).map_err(io::Error::other)?;
        let to = BufWriter::with_capacity(256 << 10, stream);
        let mut writer = SnapshotWriter::begin(to, self.clock.now().unix)?;
        let mut done = 0;
        while done < self.orders.shards() {
            match parts.recv_timeout(DUMPING) {
                Ok(DumpMessage::Block(block)) => writer.block(&block)?,
                Ok(DumpMessage::Done) => done += 1,
                Err(_) => return Err(io::Error::other("a worker has ended, or stands still")),
            }
        }
        let (mut to, _) = writer.end(self.clock.now().unix)?;
        to.flush()
    }

    /// Addresses that the new process does not serve have nobody but this one to answer what is left there.
    fn finish(&self, keeps: &[bool]) {
        let addresses = self.offer.addresses.iter().zip(keeps);
        let left: Arc<[SocketAddr]> =
            addresses.filter(|(_, keep)| !**keep).map(|(address, _)| *address).collect();
        if left.is_empty() {
            return;
        }
        let (tell, quiet) = bounded(self.workers);
        let finished = self.orders.finish(&left, &tell).is_ok()
            && (0..self.workers).all(|_| quiet.recv_timeout(LAST_ANSWERS).is_ok());
        if !finished {
            log::warn!("not all that came to addresses that are not served any more was answered");
        }
    }

    /// The sockets change hands, or nothing does.
    fn give(&self, stream: &UnixStream, promise: Option<Promise>) -> io::Result<()> {
        stream.set_read_timeout(Some(TAKING))?;
        let (tell, quiet) = bounded(self.workers);
        let result = self.orders.hold(&tell).map_err(io::Error::other).and_then(|()| {
            for _ in 0..self.workers {
                quiet
                    .recv_timeout(LAST_ANSWERS)
                    .map_err(|_| io::Error::other("a worker did not come to rest"))?;
            }
            say(stream, &Word::Yours { promise })?;
            match hear(stream) {
                Ok(Word::Mine) => return Ok(()),
                Ok(other) => return Err(unexpected(&other)),
                Err(_) => {}
            }
            // From here on it can say nothing more; what it has said is heard.
            stream.shutdown(Shutdown::Both)?;
            match hear(stream) {
                Ok(Word::Mine) => Ok(()),
                _ => Err(io::Error::other("it did not take the sockets")),
            }
        });
        if result.is_err()
            && let Err(deaf) = self.orders.resume()
        {
            log::error!("{deaf}: it does not serve");
        }
        result
    }
}

/// Somebody who may take over.
struct Met {
    process: i32,
    version: String,
}
