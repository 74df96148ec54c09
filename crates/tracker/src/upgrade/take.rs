//! The new process's part: it asks for sockets and peers, and looks whether they are what it is to serve.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use onrush_net::bind::BoundSocket;
use onrush_net::handover;
use onrush_swarm::{Shard, ShardMap};
use thiserror::Error;

use super::SOCKET;
use super::delta::OLDER_IN_DUMP;
use super::words::{Offer, PROTOCOL, Word, hear, say, unexpected};
use crate::access::AccessList;
use crate::clock::Now;
use crate::process::lock::StateLock;
use crate::settings::{Listen, Settings};
use crate::snapshot::load::{Loaded, from_stream};
use crate::version::version;

/// Why nothing was taken over. The old process serves on.
#[derive(Debug, Error)]
pub enum TakeError {
    /// There is no state directory.
    #[error(
        "an upgrade goes by way of the state directory, and there is none\n  name that of the \
         running onrush with --state-dir"
    )]
    NoDirectory,
    /// Nobody is there.
    #[error(
        "nobody to take over from: no onrush waits at {path}: {cause}\n  start without --upgrade, \
         or name the state directory of the one that runs with --state-dir"
    )]
    Nobody {
        /// Where one was expected.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// It refuses.
    #[error("the running onrush refuses: {0}\n  it serves on; stop it and start this one")]
    Refused(String),
    /// It has other sockets than are needed here.
    #[error(
        "the running onrush has {theirs} workers with sockets, and this one is to have {ours}: an \
         upgrade keeps their number\n  the other serves on; say `--workers` as it had it, or stop it and \
         start this one"
    )]
    Workers {
        /// Of the old process.
        theirs: usize,
        /// Of this one.
        ours: usize,
    },
    /// It serves other addresses.
    #[error(
        "the running onrush serves {theirs}, and this one is to serve {ours}: an upgrade keeps the \
         addresses\n  the other serves on; stop it and start this one to change them"
    )]
    Addresses {
        /// Of the old process.
        theirs: String,
        /// Of this one.
        ours: String,
    },
    /// The conversation broke off.
    #[error("the upgrade came to nothing, and the running onrush serves on: {0}")]
    Broken(#[from] io::Error),
}

/// What was offered, and the way to the one who offers it.
#[derive(Debug)]
pub struct Taker {
    /// To the old process.
    pub stream: UnixStream,
    /// What it told.
    pub offer: Offer,
    /// For each worker its sockets.
    pub sockets: Vec<Vec<BoundSocket>>,
    /// The state directory's lock.
    pub lock: Option<OwnedFd>,
}

impl Taker {
    /// Asks the process that runs with the state directory of `settings`.
    ///
    /// # Errors
    /// [`TakeError`]: the other process serves on.
    pub fn ask(settings: &Settings) -> Result<Self, TakeError> {
        let path = settings.state_dir.as_ref().ok_or(TakeError::NoDirectory)?.join(SOCKET);
        let stream = UnixStream::connect(&path)
            .map_err(|cause| TakeError::Nobody { path: path.clone(), cause })?;
        say(&stream, &Word::Ask { protocol: PROTOCOL, version: version().to_owned() })?;
        let offer = match hear(&stream)? {
            Word::Offer(offer) => offer,
            Word::Refusal(why) => return Err(TakeError::Refused(why)),
            other => return Err(unexpected(&other).into()),
        };
        let mut sockets = Vec::with_capacity(offer.workers);
        for _ in 0..offer.workers {
            let descriptors = handover::receive(&stream)?.into_iter();
            sockets.push(descriptors.map(BoundSocket::adopt).collect::<io::Result<Vec<_>>>()?);
        }
        let lock = handover::receive(&stream)?.pop();
        let lock = lock.ok_or_else(|| io::Error::other("it sent no lock"))?;
        let ours = settings.placement.socket_sides();
        if offer.workers != ours || sockets.iter().any(|own| own.len() != offer.addresses.len()) {
            return Err(TakeError::Workers { theirs: offer.workers, ours });
        }
        if !same_addresses(&offer.addresses, &settings.listen) {
            let list = |addresses: Vec<String>| addresses.join(" and ");
            return Err(TakeError::Addresses {
                theirs: list(offer.addresses.iter().map(ToString::to_string).collect()),
                ours: list(settings.listen.iter().map(|own| own.address.to_string()).collect()),
            });
        }
        Ok(Self { stream, offer, sockets, lock: Some(lock) })
    }

    /// The sockets, once.
    pub fn sockets(&mut self) -> Vec<Vec<BoundSocket>> {
        std::mem::take(&mut self.sockets)
    }

    /// The state directory's lock, once.
    pub fn lock(&mut self) -> Option<Result<StateLock, TakeError>> {
        Some(StateLock::adopt(self.lock.take()?).map_err(TakeError::Broken))
    }

    /// Loads the peers and takes the sockets: from then on this process has to serve.
    ///
    /// # Errors
    /// [`TakeError`]: the other process serves on.
    pub fn take_all(
        &self,
        mut shards: Vec<&mut Shard>,
        map: ShardMap,
        access: &AccessList,
        now: Now,
    ) -> Result<(), TakeError> {
        let Offer { version, process, .. } = &self.offer;
        log::info!("taking over from process {process}, onrush {version}");
        let again = shards.iter_mut().map(|shard| &mut **shard).collect();
        let loaded = self.load(again, map, access, now)?;
        log::info!("upgrade: {loaded}");
        // What stops here before the rest has come must not come back with it.
        shards.iter_mut().for_each(|shard| shard.note_departures());
        self.take()
    }

    /// Has the peers sent, and loads them.
    ///
    /// # Errors
    /// When not all of them arrive.
    fn load(
        &self,
        shards: Vec<&mut Shard>,
        map: ShardMap,
        access: &AccessList,
        now: Now,
    ) -> Result<Loaded, TakeError> {
        say(&self.stream, &Word::Go)?;
        // Without a buffer: nothing is read that comes behind it.
        let loaded = from_stream(&self.stream, shards, map, access, now, OLDER_IN_DUMP)
            .map_err(|error| io::Error::other(error.to_string()))?;
        Ok(loaded)
    }

    /// Everything is ready to serve from these sockets: takes them.
    ///
    /// # Errors
    /// When the other process keeps them after all.
    fn take(&self) -> Result<(), TakeError> {
        say(&self.stream, &Word::Ready)?;
        match hear(&self.stream)? {
            Word::Yours => {}
            Word::Refusal(why) => return Err(TakeError::Refused(why)),
            other => return Err(unexpected(&other).into()),
        }
        Ok(say(&self.stream, &Word::Mine)?)
    }
}

/// Whether what is bound is what is to be listened on. Port 0 is any port.
fn same_addresses(bound: &[SocketAddr], listen: &[Listen]) -> bool {
    let is = |bound: &SocketAddr, wanted: &SocketAddr| {
        bound.ip() == wanted.ip() && (wanted.port() == 0 || bound.port() == wanted.port())
    };
    bound.iter().all(|bound| listen.iter().any(|wanted| is(bound, &wanted.address)))
        && listen
            .iter()
            .all(|wanted| wanted.optional || bound.iter().any(|bound| is(bound, &wanted.address)))
}

/// The socket that an upgrade comes to in a state directory.
pub fn socket_path(directory: &Path) -> PathBuf {
    directory.join(SOCKET)
}
