//! The new process's part: it asks for sockets and peers, and says when it could serve.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::process::service;
use onrush_net::bind::{Address, BoundSocket};
use onrush_net::handover;
use onrush_net::regroup::AddressSockets;
use onrush_swarm::{Shard, ShardMap};
use thiserror::Error;

use super::SOCKET;
use super::delta::OLDER_IN_DUMP;
use super::message::{Offer, PROTOCOL, Word, hear, say, unexpected};
use crate::overload::Promise;
use onrush_config::settings::{Listen, Passed, Settings};
use onrush_control::version::version;
use onrush_store::lock::StateLock;
use onrush_store::snapshot::load::from_stream;
use onrush_tracker::access::AccessList;
use onrush_tracker::clock::Now;

/// How long the old process may take for anything: longer than it gives others, and its workers.
const PATIENCE: Duration = Duration::from_secs(60);

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
    /// The addresses that both serve, with their sockets.
    kept: Vec<AddressSockets>,
    /// For each address that was offered whether it is one of them.
    keeps: Vec<bool>,
    /// The addresses that only this one serves.
    pub added: Vec<Address>,
    /// The state directory's lock.
    lock: Option<OwnedFd>,
}

/// The sockets that a service manager has opened for the process that runs, if it has: they, and not the
/// configuration, say where is listened and by how many workers. Whatever is amiss is for [`Taker::ask`] to say.
pub fn look(settings: &Settings) -> Option<Passed> {
    match offered(settings)? {
        Offer { passed: true, addresses, sockets, .. } => {
            Some(Passed { each: sockets.into_iter().min()?, addresses })
        }
        _ => None,
    }
}

/// What the process that runs has to offer, without anything being done about it. Whatever is amiss is for
/// [`Taker::ask`] to say.
pub fn offered(settings: &Settings) -> Option<Offer> {
    let stream = connect(settings).ok()?;
    say(&stream, &Word::Look).ok()?;
    match hear(&stream).ok()? {
        Word::Offer(offer) => Some(offer),
        _ => None,
    }
}

fn connect(settings: &Settings) -> Result<UnixStream, TakeError> {
    let path = settings.state_dir.as_ref().ok_or(TakeError::NoDirectory)?.join(SOCKET);
    let stream = UnixStream::connect(&path).map_err(|cause| TakeError::Nobody { path, cause })?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

impl Taker {
    /// Asks the process that runs with the state directory of `settings`.
    ///
    /// # Errors
    /// [`TakeError`]: the other process serves on.
    pub fn ask(settings: &Settings) -> Result<Self, TakeError> {
        let stream = connect(settings)?;
        say(&stream, &Word::Ask { protocol: PROTOCOL, version: version().to_owned() })?;
        let offer = match hear(&stream)? {
            Word::Offer(offer) => offer,
            Word::Refusal(why) => return Err(TakeError::Refused(why)),
            other => return Err(unexpected(&other).into()),
        };
        let mut groups = Vec::with_capacity(offer.addresses.len());
        for &number in &offer.sockets {
            groups.push(receive(&stream, number)?);
        }
        let lock = handover::receive(&stream)?.pop();
        let lock = lock.ok_or_else(|| io::Error::other("it sent no lock"))?;
        let (keeps, added) = compare(&offer.addresses, &settings.listen);
        let of_address = offer.addresses.iter().zip(groups).zip(&keeps);
        let kept = of_address.filter(|(_, keep)| **keep);
        let kept =
            kept.map(|((&address, sockets), _)| AddressSockets { address, sockets }).collect();
        Ok(Self { stream, offer, kept, keeps, added, lock: Some(lock) })
    }

    /// The sockets that are kept, once.
    pub fn kept(&mut self) -> Vec<AddressSockets> {
        std::mem::take(&mut self.kept)
    }

    /// The state directory's lock, once.
    pub fn lock(&mut self) -> Option<Result<StateLock, TakeError>> {
        Some(StateLock::adopt(self.lock.take()?).map_err(TakeError::Broken))
    }

    /// Has the peers sent, and loads them.
    ///
    /// # Errors
    /// [`TakeError`], when not all of them arrive.
    pub fn load(
        &self,
        mut shards: Vec<&mut Shard>,
        map: ShardMap,
        access: &AccessList,
        now: Now,
    ) -> Result<(), TakeError> {
        let Offer { version, process, .. } = &self.offer;
        log::info!("taking over from process {process}, onrush {version}");
        say(&self.stream, &Word::Go { keeps: self.keeps.clone() })?;
        let again = shards.iter_mut().map(|shard| &mut **shard).collect();
        // Without a buffer: nothing is read that comes behind it.
        let loaded = from_stream(
            &self.stream,
            again,
            map,
            access,
            now,
            OLDER_IN_DUMP,
            &mut service::progress(),
        )
        .map_err(|error| io::Error::other(error.to_string()))?;
        log::info!("upgrade: {loaded}");
        // What stops here before the rest has come must not come back with it.
        shards.iter_mut().for_each(|shard| shard.note_departures());
        Ok(())
    }

    /// Everything is ready to serve: asks for the sockets. From its answer on nobody serves, so that whatever can take
    /// time has been done before. What has to be kept of what clients were told.
    ///
    /// # Errors
    /// [`TakeError`], when the other process keeps them after all.
    pub fn ready(&self) -> Result<Option<Promise>, TakeError> {
        say(&self.stream, &Word::Ready)?;
        match hear(&self.stream)? {
            Word::Yours { promise } => Ok(promise),
            Word::Refusal(why) => Err(TakeError::Refused(why)),
            other => Err(unexpected(&other).into()),
        }
    }

    /// Takes them: from then on this process has to serve.
    ///
    /// # Errors
    /// [`TakeError`], when that took too long.
    pub fn take(&self) -> Result<(), TakeError> {
        Ok(say(&self.stream, &Word::Mine)?)
    }
}

/// The sockets of one address.
fn receive(stream: &UnixStream, number: usize) -> io::Result<Vec<BoundSocket>> {
    let mut sockets = Vec::with_capacity(number);
    while sockets.len() < number {
        let descriptors = handover::receive(stream)?;
        if descriptors.is_empty() {
            return Err(io::Error::other("it sent fewer sockets than it offered"));
        }
        for descriptor in descriptors {
            sockets.push(BoundSocket::adopt(descriptor)?);
        }
    }
    Ok(sockets)
}

/// Of what is bound what is to be listened on, and what is not bound yet. Port 0 is any port.
fn compare(bound: &[SocketAddr], listen: &[Listen]) -> (Vec<bool>, Vec<Address>) {
    let mut keeps = vec![false; bound.len()];
    let mut added = Vec::new();
    for &Listen { address, optional } in listen {
        let is = |bound: &SocketAddr| {
            bound.ip() == address.ip() && (address.port() == 0 || bound.port() == address.port())
        };
        match (0..bound.len()).find(|number| !keeps[*number] && is(&bound[*number])) {
            Some(number) => keeps[number] = true,
            None => added.push(Address { address, optional }),
        }
    }
    (keeps, added)
}

/// The socket that an upgrade comes to in a state directory.
pub fn socket_path(directory: &Path) -> PathBuf {
    directory.join(SOCKET)
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
            let (keeps, added) = compare(&bound, &listen);
            (keeps, added.iter().map(|added| added.address).collect::<Vec<_>>())
        };
        let all = ["127.0.0.1:1000", "[::1]:1000", "127.0.0.1:2000"];
        assert_eq!(compared(&all), (vec![true; 3], Vec::new()));
        let other = compared(&["127.0.0.1:3000", "127.0.0.1:2000"]);
        assert_eq!(other, (vec![false, true, false], vec![at("127.0.0.1:3000")]));
        // Any port is one that is there, each once.
        let any = compared(&["127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"]);
        assert_eq!(any, (vec![true, true, false], vec![at("127.0.0.1:0")]));
    }
}
