//! The old process's part: it waits at a Unix socket for one that is to follow it, and goes on serving when
//! that comes to nothing.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Sender, bounded};
use onrush_net::bind::BoundSocket;
use onrush_net::handover;
use onrush_swarm::{Moment, Shard};

use super::words::{Offer, PROTOCOL, Word, hear, say, unexpected};
use crate::chores::dump::{Dump, Part};
use crate::clock::{Clock, Now};
use crate::orders::{Chore, Orders};
use crate::snapshot::write::Writer;
use crate::version::version;

/// How long the other side may take for an answer that takes no work.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long workers may take to answer what they have.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

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
    /// What is told of it; the process id is filled in.
    pub offer: Offer,
    /// Of each worker its sockets.
    pub sockets: Vec<Vec<BoundSocket>>,
    /// The state directory's lock.
    pub lock: OwnedFd,
    /// The ways to the workers.
    pub orders: Orders,
    /// Their clock.
    pub clock: Clock,
    /// Where it is told that the sockets have changed hands.
    pub tell: Sender<Given>,
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
                match stream.and_then(|stream| self.meet(stream)) {
                    // Whoever comes next finds nobody here, but the new process.
                    Ok(true) => return,
                    Ok(false) => {}
                    Err(error) => {
                        log::warn!("an upgrade came to nothing, this process serves on: {error}");
                        // Nobody wants to know any more who stops. A worker that is deaf has been reported.
                        let _ = self.orders.every_shard(|_| Box::new(NoteNoMore));
                    }
                }
            }
        })?;
        Ok(())
    }

    /// Talks with one that came. Whether the sockets are its own now.
    fn meet(&self, stream: UnixStream) -> io::Result<bool> {
        let peer = handover::peer(&stream)?;
        let own = nix::unistd::Uid::effective().as_raw();
        if peer.user != own && peer.user != 0 {
            log::warn!("user {} wanted to take over, and may not", peer.user);
            return Ok(false);
        }
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        match hear(&stream)? {
            Word::Ask { protocol: PROTOCOL, .. } => {}
            Word::Ask { protocol, version: other } => {
                let why = format!(
                    "onrush {} speaks version {PROTOCOL} of the upgrade protocol, and onrush {other} \
                     version {protocol}",
                    version()
                );
                say(&stream, &Word::Refusal(why.clone()))?;
                return Err(io::Error::other(why));
            }
            other => return Err(unexpected(&other)),
        }
        self.offer_all(&stream)?;
        match hear(&stream) {
            Ok(Word::Go) => {}
            Ok(other) => return Err(unexpected(&other)),
            Err(error) => {
                log::warn!(
                    "process {} looked at what there is to take over, and left: {error}",
                    peer.process
                );
                return Ok(false);
            }
        }
        log::info!(
            "process {} takes over: it gets the peers while this one serves on",
            peer.process
        );
        let since = self.clock.now().moment;
        self.dump(&stream)?;
        // It loads them now, for as long as that takes.
        stream.set_read_timeout(None)?;
        match hear(&stream)? {
            Word::Ready => {}
            other => return Err(unexpected(&other)),
        }
        stream.set_read_timeout(Some(PATIENCE))?;
        if !self.give(&stream)? {
            return Ok(false);
        }
        stream.set_write_timeout(None)?;
        let given = Given { stream, process: peer.process, since };
        self.tell.send(given).map_err(|_| io::Error::other("this process is ending"))?;
        Ok(true)
    }

    fn offer_all(&self, stream: &UnixStream) -> io::Result<()> {
        say(stream, &Word::Offer(self.offer.clone()))?;
        for sockets in &self.sockets {
            let descriptors: Vec<_> = sockets.iter().map(AsFd::as_fd).collect();
            handover::send(stream, &descriptors)?;
        }
        handover::send(stream, &[self.lock.as_fd()])
    }

    fn dump(&self, stream: &UnixStream) -> io::Result<()> {
        let parts = Dump::of_all(&self.orders, true).map_err(io::Error::other)?;
        let to = BufWriter::with_capacity(256 << 10, stream);
        let mut writer = Writer::begin(to, self.clock.now().unix)?;
        let mut done = 0;
        while done < self.orders.shards() {
            match parts.recv() {
                Ok(Part::Block(block)) => writer.block(&block)?,
                Ok(Part::Done) => done += 1,
                Err(_) => return Err(io::Error::other("a worker has ended")),
            }
        }
        let (mut to, _) = writer.end(self.clock.now().unix)?;
        to.flush()
    }

    /// The sockets change hands, or nothing does. Whether they did.
    fn give(&self, stream: &UnixStream) -> io::Result<bool> {
        let (tell, quiet) = bounded(self.sockets.len());
        let result = self.orders.hold(&tell).map_err(io::Error::other).and_then(|()| {
            for _ in 0..self.sockets.len() {
                quiet
                    .recv_timeout(LAST_ANSWERS)
                    .map_err(|_| io::Error::other("a worker did not come to rest"))?;
            }
            say(stream, &Word::Yours)?;
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
        result.map(|()| true)
    }
}
