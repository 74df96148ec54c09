//! The new process's side of an upgrade: it requests sockets and peers, and acquires the sockets
//! once it could serve.

use std::io::{self, Read};
use std::net::SocketAddr;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

use onrush_net::bind::{Address, BoundSocket};
use onrush_net::handover;
use onrush_net::regroup::AddressSockets;
use onrush_swarm::{ChangeReader, Interest, Restored, Shard, ShardMap};
use thiserror::Error;

use super::SOCKET;
use super::delta::OLDER_IN_DUMP;
use super::message::{Handoff, Message, PROTOCOL, receive, send, unexpected};
use crate::overload::IntervalCommitment;
use crate::process::notify;
use onrush_config::settings::Listen;
use onrush_config::{Passed, Settings};
use onrush_control::version::version;
use onrush_store::lock::StateLock;
use onrush_store::snapshot::load::{LoadOptions, from_stream, reserve};
use onrush_tracker::access::AccessList;
use onrush_tracker::clock::Now;

/// Time for each message of the running process: longer than any of its own timeouts.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Why nothing was taken over. The running process keeps serving.
#[derive(Debug, Error)]
pub enum TakeoverError {
    /// There is no state directory.
    #[error(
        "an upgrade needs the state directory, and none is configured\n  name that of the running \
         onrush with --state-dir"
    )]
    NoDirectory,
    /// No process listens at the upgrade socket.
    #[error(
        "no process to take over from: no onrush listens at {path}: {cause}\n  start without \
         --upgrade, or name the state directory of the running onrush with --state-dir"
    )]
    NotRunning {
        /// The upgrade socket.
        path: PathBuf,
        /// The error of the connection.
        cause: io::Error,
    },
    /// The running process refuses the handoff.
    #[error(
        "the running onrush refuses the upgrade: {0}\n  it keeps serving; stop it, then start \
         this one"
    )]
    Refused(String),
    /// Not all peers fit.
    #[error(
        "limits.peers = {limit} has no room for {lost} of the {peers} peers of the running onrush, \
         which keeps serving\n  raise limits.peers, or give these peers up: `onrush ctl upgrade \
         --force`"
    )]
    TooManyPeers {
        /// Peers of the running process that this one would keep but for the limit.
        peers: u64,
        /// How many of them do not fit.
        lost: u64,
        /// `limits.peers`.
        limit: u64,
    },
    /// The connection failed, or a message did not follow the protocol.
    #[error("upgrade failed; the running onrush keeps serving: {0}")]
    Broken(#[from] io::Error),
}

/// A handoff in progress.
#[derive(Debug)]
pub struct Incoming {
    /// The connection to the running process.
    pub stream: UnixStream,
    /// The description of the handoff.
    pub handoff: Handoff,
    /// The sockets of the addresses that both processes serve.
    pub kept: Vec<AddressSockets>,
    /// For each address of the handoff whether it is kept.
    keeps: Vec<bool>,
    /// The addresses that only the new process serves.
    pub added: Vec<Address>,
    /// The state directory's lock.
    pub lock: Option<StateLock>,
    /// The control socket, if the running process has one.
    pub control: Option<UnixListener>,
    /// For each shard, the peers that have stopped since the dump was loaded.
    pub stops: Vec<ChangeReader>,
}

/// The sockets that a service manager has opened for the running process, if it has. Their
/// addresses and number override the configuration. Failures are reported by [`Incoming::request`].
pub fn passed_sockets(settings: &Settings) -> Option<Passed> {
    match inspect(settings)? {
        Handoff { passed: true, addresses, sockets, .. } => {
            Some(Passed { each: sockets.into_iter().min()?, addresses })
        }
        _ => None,
    }
}

/// The handoff that the running process would make. Failures are reported by [`Incoming::request`].
pub fn inspect(settings: &Settings) -> Option<Handoff> {
    let stream = connect(settings).ok()?;
    send(&stream, &Message::Inspect).ok()?;
    match receive(&stream, TIMEOUT).ok()? {
        Message::Handoff(handoff) => Some(handoff),
        _ => None,
    }
}

fn connect(settings: &Settings) -> Result<UnixStream, TakeoverError> {
    let path = settings.state_dir.as_ref().ok_or(TakeoverError::NoDirectory)?.join(SOCKET);
    let stream =
        UnixStream::connect(&path).map_err(|cause| TakeoverError::NotRunning { path, cause })?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    Ok(stream)
}

impl Incoming {
    /// Requests the handoff from the process that runs with the state directory of `settings`.
    ///
    /// # Errors
    /// [`TakeoverError`].
    pub fn request(settings: &Settings) -> Result<Self, TakeoverError> {
        let stream = connect(settings)?;
        send(&stream, &Message::Request { protocol: PROTOCOL, version: version().to_owned() })?;
        let handoff = match receive(&stream, TIMEOUT)? {
            Message::Handoff(handoff) => handoff,
            Message::Refusal(why) => return Err(TakeoverError::Refused(why)),
            other => return Err(unexpected(&other).into()),
        };
        let sockets = handoff.sockets.iter().map(|count| receive_sockets(&stream, *count));
        let groups = sockets.collect::<io::Result<Vec<_>>>()?;
        let lock = Some(StateLock::adopt(handover::receive(&stream)?)?);
        let control = handover::receive(&stream)?.pop().map(UnixListener::from);
        let (keeps, added) = compare(&handoff.addresses, &settings.listen);
        let all = handoff.addresses.iter().zip(groups).zip(&keeps);
        let kept = all
            .filter(|(_, keep)| **keep)
            .map(|((&address, sockets), _)| AddressSockets { address, sockets })
            .collect();
        Ok(Self { stream, handoff, kept, keeps, added, lock, control, stops: Vec::new() })
    }

    /// Accepts the handoff, and loads the peers as they arrive. If they are more than `limit`,
    /// which is `limits.peers`, those that do not fit are dropped with `force`.
    ///
    /// # Errors
    /// [`TakeoverError`], when the peers do not arrive completely, or are too many without `force`.
    pub fn load_peers(
        &mut self,
        mut shards: Vec<&mut Shard>,
        map: ShardMap,
        access: &AccessList,
        now: Now,
        limit: u64,
        force: bool,
    ) -> Result<(), TakeoverError> {
        let Handoff { version, process, .. } = &self.handoff;
        log::info!("taking over from process {process}, onrush {version}");
        send(&self.stream, &Message::Accept { keeps: self.keeps.clone() })?;
        // The delta may contain peers that stop at this process before it arrives.
        self.stops = shards.iter_mut().map(|shard| shard.subscribe(Interest::Stops)).collect();
        let options = load_options(map, access, now);
        let held = match receive(&self.stream, TIMEOUT)? {
            Message::Dump { peers } => peers,
            other => return Err(unexpected(&other).into()),
        };
        // Unbuffered, so that the messages behind the peers are not read.
        load_dump(&self.stream, held, shards, options, limit, force)
    }

    /// Waits until the running process has released the sockets. Call when everything slow is
    /// done: from the release on neither process serves. Returns the commitment to keep.
    ///
    /// # Errors
    /// [`TakeoverError`], when the running process keeps the sockets.
    pub fn wait_for_release(&self) -> Result<IntervalCommitment, TakeoverError> {
        send(&self.stream, &Message::Ready)?;
        match receive(&self.stream, TIMEOUT)? {
            Message::Release { commitment } => Ok(commitment),
            other => Err(unexpected(&other).into()),
        }
    }

    /// Acquires the sockets: from here on this process has to serve.
    ///
    /// # Errors
    /// [`TakeoverError`], when the running process has timed out and serves again.
    pub fn acquire(&self) -> Result<(), TakeoverError> {
        Ok(send(&self.stream, &Message::Acquired)?)
    }
}

/// Loads the dump of a process that stores `held` peers, into shards that share `limit` peers,
/// which is `limits.peers`. With `force`, those that do not fit are dropped.
///
/// # Errors
/// [`TakeoverError`], when the dump cannot be read, or has too many peers without `force`.
pub fn load_dump(
    from: impl Read,
    held: u64,
    mut shards: Vec<&mut Shard>,
    options: LoadOptions<'_>,
    limit: u64,
    force: bool,
) -> Result<(), TakeoverError> {
    // Without `force` no peer may be dropped, also if some of those held have expired and the
    // others are few enough.
    if held <= limit || !force {
        reserve(&mut shards, limit);
    }
    let loaded =
        from_stream(from, shards, options, &mut notify::progress()).map_err(io::Error::other)?;
    log::info!("upgrade: {loaded}");
    let Restored { stored, full, .. } = loaded.peers;
    // Neither counts peers that were replaced while the others were sent, nor expired ones.
    let peers = held.min(stored + full);
    let lost = peers.saturating_sub(limit).max(full);
    if lost > 0 && !force {
        return Err(TakeoverError::TooManyPeers { peers, lost, limit });
    }
    if full > 0 {
        log::warn!("upgrade: {full} peers were dropped, as limits.peers = {limit} has no room");
    }
    Ok(())
}

/// How a dump is loaded that is written from `now` on.
pub fn load_options(map: ShardMap, access: &AccessList, now: Now) -> LoadOptions<'_> {
    // Its ages are right: by the wall clock, which may be set meanwhile, they could seem old.
    let now = Now { unix: 0, ..now };
    LoadOptions { map, access, now, extra_age: OLDER_IN_DUMP }
}

/// Receives the sockets of one address.
fn receive_sockets(stream: &UnixStream, count: usize) -> io::Result<Vec<BoundSocket>> {
    let mut sockets = Vec::with_capacity(count);
    while sockets.len() < count {
        let descriptors = handover::receive(stream)?;
        if descriptors.is_empty() {
            return Err(io::Error::other("fewer sockets arrived than the handoff names"));
        }
        for descriptor in descriptors {
            sockets.push(BoundSocket::adopt(descriptor)?);
        }
    }
    Ok(sockets)
}

/// For each `bound` address whether `listen` keeps it, and the addresses to be bound. Port 0
/// matches any port.
fn compare(bound: &[SocketAddr], listen: &[Listen]) -> (Vec<bool>, Vec<Address>) {
    let mut keeps = vec![false; bound.len()];
    let mut added = Vec::new();
    for &Listen { address, optional } in listen {
        let matches = |bound: &SocketAddr| {
            bound.ip() == address.ip() && (address.port() == 0 || bound.port() == address.port())
        };
        match (0..bound.len()).find(|number| !keeps[*number] && matches(&bound[*number])) {
            Some(number) => keeps[number] = true,
            None => added.push(Address { address, optional }),
        }
    }
    (keeps, added)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::thread;

    use onrush_proto::{Endpoint, InfoHash};
    use onrush_store::snapshot::encode::Encoder;
    use onrush_store::snapshot::write::SnapshotWriter;
    use onrush_swarm::{Moment, PeerView, ShardSettings};

    use super::super::message::tests::handoff;
    use super::*;

    const NOW: Now = Now { moment: Moment(1 << 20), unix: 1_800_000_000 };

    fn shard(max_peers: u64) -> Shard {
        let settings = ShardSettings { max_peers, ..ShardSettings::default() };
        Shard::new(settings, [1; 16], 1)
    }

    /// A dump of this many peers, of which the first `crowd` share a swarm.
    fn dump(peers: u16, crowd: u16) -> Vec<u8> {
        let mut source = shard(peers.into());
        for number in 1..=peers {
            let spread = u32::from(number.max(crowd)).wrapping_mul(0x9E37_79B1).to_be_bytes();
            let hash = InfoHash(std::array::from_fn(|at| spread[at % 4]));
            let [high, low] = number.to_be_bytes();
            let endpoint = Endpoint::V4([192, 0, 2, 1, high, low]);
            let peer = PeerView { endpoint, seeder: true, age: 0 };
            source.restore(hash, 0, [peer].into_iter(), NOW.moment);
        }
        let mut writer = SnapshotWriter::begin(Vec::new(), NOW.unix).unwrap();
        writer.shards(&mut [source], NOW, Encoder::default(), &mut || {}).unwrap();
        writer.end(NOW.unix).unwrap().0
    }

    /// Loads a dump of `sent` peers, of a process that stores `held`, into shards that store
    /// `limit`. Returns the peers stored, or how many are too many.
    fn load(held: u64, sent: u16, into: (u16, u64), force: bool) -> Result<u64, u64> {
        load_dump_of(held, dump(sent, 0), into, force)
    }

    fn load_dump_of(
        held: u64,
        dump: Vec<u8>,
        (shards, limit): (u16, u64),
        force: bool,
    ) -> Result<u64, u64> {
        let (stream, outgoing) = UnixStream::pair().unwrap();
        let mut incoming = Incoming {
            stream,
            handoff: handoff(&[]),
            kept: Vec::new(),
            keeps: Vec::new(),
            added: Vec::new(),
            lock: None,
            control: None,
            stops: Vec::new(),
        };
        let sending = thread::spawn(move || {
            send(&outgoing, &Message::Dump { peers: held }).unwrap();
            (&outgoing).write_all(&dump).unwrap();
            outgoing
        });
        let mut of_each: Vec<_> = (0..shards).map(|_| shard(limit / u64::from(shards))).collect();
        let map = ShardMap::new([3; 5], shards);
        let all = of_each.iter_mut().collect();
        let loaded = incoming.load_peers(all, map, &AccessList::Open, NOW, limit, force);
        sending.join().unwrap();
        match loaded {
            Ok(()) => Ok(of_each.iter().map(|shard| shard.totals().peers()).sum()),
            Err(TakeoverError::TooManyPeers { peers, lost, limit: named }) => {
                assert_eq!((peers - lost, named), (limit, limit));
                Err(lost)
            }
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn peers_are_too_many_only_if_the_limit_is_smaller_than_what_is_held() {
        // 20 peers were replaced or stopped after they had been sent.
        assert_eq!(load(1_000, 1_020, (1, 1_000), false), Ok(1_020));
        for shards in [1, 2, 3, 7] {
            assert_eq!(load(1_000, 1_020, (shards, 1_000), false), Ok(1_020), "{shards} shards");
            assert_eq!(load(1_000, 1_020, (shards, 990), false), Err(10));
            let forced = load(1_000, 1_020, (shards, 990), true).unwrap();
            assert!((700..=990).contains(&forced), "{forced} in {shards} shards");
            // The others have expired here.
            assert_eq!(load(1_000, 900, (shards, 900), false), Ok(900), "{shards} shards");
        }
    }

    #[test]
    fn a_swarm_larger_than_the_part_of_its_shard_is_kept() {
        for force in [false, true] {
            let loaded = load_dump_of(4_000, dump(4_000, 3_000), (8, 8_000), force);
            assert_eq!(loaded, Ok(4_000));
        }
    }

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
        // Each bound address matches once.
        let any = compared(&["127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"]);
        assert_eq!(any, (vec![true, true, false], vec![at("127.0.0.1:0")]));
    }
}
