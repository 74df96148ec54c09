//! From settings to a running tracker. The order matters: user, sockets, state, workers.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::process::service;
use crossbeam_channel::{Receiver, never, unbounded};
use onrush_net::adopt::Adopted;
use onrush_net::bind::{self, Address, BoundSocket, Buffers, Group};
use onrush_net::regroup::{PendingSockets, regroup};
use onrush_net::steering::{self, Function, Steering};
use onrush_net::{Socket, mio, notice::Notice};
use onrush_proto::scrape::{HASH_LEN, REQUEST_HEAD_LEN};
use onrush_swarm::ShardMap;
use thiserror::Error;

use crate::overload::advertised_interval::Kept;
use crate::overload::{Overload, Promise};
use crate::process::user;
use crate::snapshots::Snapshots;
use crate::upgrade::give::{Given, Giver, Step};
use crate::upgrade::message::Offer;
use crate::upgrade::take::{TakeError, Taker, offered};
use crate::upgrade::{self, delta};
use onrush_config::settings::Settings;
use onrush_control::version::version;
use onrush_control::{AdminError, Server, Token, TokenError, server};
use onrush_store::lists::file::ListError;
use onrush_store::lists::journal::Journal;
use onrush_store::lock::StateLock;
use onrush_store::snapshot;
use onrush_store::state::{State, StateError};
use onrush_tracker::access::{AccessList, Lists};
use onrush_tracker::assemble::{Secrets, assemble, shard_map};
use onrush_tracker::clock::{Clock, Now};
use onrush_tracker::limits::Placement;
use onrush_tracker::rules::Rules;
use onrush_tracker::running::Running;
use onrush_tracker::worker::Worker;

/// How long a process may take to end whose sockets are closed.
const ENDING: Duration = Duration::from_secs(2);
/// Where the info hash is in announces, and the first one in scrapes.
const INFO_HASH_OFFSET: usize = REQUEST_HEAD_LEN;

/// A tracker that has just been started.
pub struct Tracker {
    /// Its workers.
    pub running: Running,
    /// The kernel's part in bringing announces to their worker, where there is one.
    pub steering: Option<Steering>,
    /// What went less well than asked for, in sentences with the remedy.
    pub warnings: Vec<String>,
    /// The lists that are in force.
    pub lists: Lists,
    /// Where changes of the list of info hashes are kept; `None` without a state directory.
    pub journal: Option<Journal>,
    /// Held until the end; `None` without a state directory.
    pub lock: Option<StateLock>,
    /// What its workers read the time from.
    pub clock: Clock,
    /// When its peers are written down.
    pub snapshots: Snapshots,
    /// Tells how far another process is that takes over.
    pub upgrade: Receiver<Step>,
    /// What clients were told by the process before this one, and has to be kept.
    pub promise: Option<Promise>,
    /// Where that is written down for the process after this one; `None` without a state directory.
    pub kept: Option<Kept>,
    /// The list that the peers were loaded by, where it is not the one in force.
    pub former: Option<Arc<AccessList>>,
    /// Whether what came after the dump of the process before this one is being merged.
    pub merging: Arc<AtomicBool>,
    /// Which shard owns an info hash.
    pub map: ShardMap,
    /// Control and observation over HTTP, unless it is off.
    pub http: Option<Server>,
}

/// Why a tracker cannot start. Each says what to do.
#[derive(Debug, Error)]
pub enum StartError {
    /// The user to run as.
    #[error(transparent)]
    User(#[from] user::UserError),
    /// The addresses to listen on.
    #[error(transparent)]
    Bind(#[from] bind::BindError),
    /// What should have outlived the last process.
    #[error(transparent)]
    State(#[from] StateError),
    /// The lists of info hashes and sources.
    #[error(transparent)]
    List(#[from] ListError),
    /// The tracker to take over from.
    #[error(transparent)]
    Take(#[from] TakeError),
    /// Control and observation over HTTP.
    #[error(transparent)]
    Http(#[from] AdminError),
    /// The token of the admin API.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// Polling of the sockets.
    #[error(
        "cannot set up polling: {0}\n  raise the limit of open files: LimitNOFILE= in the unit, or `ulimit -n`"
    )]
    Poll(io::Error),
    /// Threads of the workers.
    #[error(
        "cannot start the workers' threads: {0}\n  raise the limit of tasks: TasksMax= in the unit, or `ulimit -u`"
    )]
    Threads(io::Error),
}

impl Tracker {
    /// Starts a tracker on sockets of its own.
    ///
    /// # Errors
    /// [`StartError`]; nothing of a tracker that did not start stays behind.
    pub fn start(settings: &Settings) -> Result<Self, StartError> {
        Self::start_on(settings, None)
    }

    /// Starts a tracker, on these sockets where there are any. The settings have to be for as many workers.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_on(settings: &Settings, passed: Option<Adopted>) -> Result<Self, StartError> {
        Self::begin(settings, passed, false)
    }

    /// Starts a tracker with the sockets and peers of the one that runs.
    ///
    /// # Errors
    /// [`StartError`]; the one that runs serves on.
    pub fn take_over(settings: &Settings) -> Result<Self, StartError> {
        Self::begin(settings, None, true)
    }

    fn begin(
        settings: &Settings,
        passed: Option<Adopted>,
        takes_over: bool,
    ) -> Result<Self, StartError> {
        let mut warnings: Vec<String> = become_user(settings)?.into_iter().collect();
        // First of all, so that it tells that the tracker is starting while lists and state are read.
        let http = start_http(settings, takes_over, &mut warnings)?;
        // Before there are sockets that fill up meanwhile, and as the user that reads it again later.
        let mut lists = onrush_store::lists::load(settings, &mut service::progress())?;
        let mut taker = takes_over.then(|| Taker::ask(settings)).transpose()?;
        let (mut group, late) = group_of(settings, taker.as_mut(), passed)?;
        if settings.user.is_some() {
            user::drop_capabilities();
        }
        let lock = taker.as_mut().and_then(Taker::lock).transpose()?;
        let state = State::with_lock(settings, lock)?;
        warnings.extend(state.warnings);
        let directory = settings.state_dir.as_deref().filter(|_| state.lock.is_some());
        let (journal, kept) = (directory.map(Journal::new), directory.map(Kept::new));
        let known = journal.as_ref().map_or(0, Journal::length);
        if let Some(journal) = &journal {
            // The process that runs may still write to it.
            warnings.extend(resume(&mut lists, journal, !takes_over));
        }
        warnings.extend(lists.access.warning().map(str::to_owned));
        let mut secrets = Secrets::random(state.keys);
        if let Some(taker) = &taker {
            // The kernel's program stays right while both are there.
            secrets.shard_key = taker.offer.shard_key;
        }
        let got: Vec<Buffers> = group.workers.iter().map(|sockets| in_all(sockets)).collect();
        let sockets = backends(settings, &mut group).map_err(StartError::Poll)?;
        let mut workers = assemble(&settings.workers(), &secrets, sockets, &settings.rules(&lists));
        show_buffers(&workers, &got);
        let (clock, map) = (Clock::start(), shard_map(settings.placement.shards(), &secrets));
        let promise = promised(taker.as_ref(), kept.as_ref(), clock.now());
        if let Some(promise) = promise {
            keep(promise, settings, &lists, &mut workers);
        }
        let path = snapshot_path(settings, state.lock.is_some());
        let load = Load { map, lists: &lists, now: clock.now() };
        warnings.extend(load.peers(taker.as_mut(), path.as_deref(), &mut workers)?);
        let running =
            Running::prepare(&settings.workers(), group.addresses.clone(), workers, clock)
                .map_err(StartError::Threads)?;
        let mut tracker = Self {
            running,
            steering: None,
            warnings,
            lists,
            journal,
            lock: state.lock,
            clock,
            snapshots: Snapshots::new(path, settings.snapshot.every),
            upgrade: never(),
            promise,
            kept,
            former: None,
            merging: Arc::default(),
            map,
            http,
        };
        if let Some(taker) = taker {
            tracker.take_from(taker, late, settings, known)?;
        }
        tracker.begin_serving(settings, &mut group, takes_over);
        tracker.open_door(settings, group, secrets.shard_key);
        Ok(tracker)
    }

    /// The kernel brings requests to their workers, and these begin.
    fn begin_serving(&mut self, settings: &Settings, group: &mut Group, takes_over: bool) {
        self.steering = steer(settings, self.map, group);
        if takes_over && self.steering.is_none() {
            self.warnings.extend(not_steered(group));
        }
        self.running.begin();
        self.warnings.extend(group.notices.iter().map(Notice::to_string));
    }

    /// Takes the sockets of the process that runs, whose peers are here already. From `Yours` to `Mine` nobody serves:
    /// between the two is only what cannot be done before.
    fn take_from(
        &mut self,
        mut taker: Taker,
        late: PendingSockets,
        settings: &Settings,
        known: u64,
    ) -> Result<(), StartError> {
        let stream = taker.stream.try_clone().map_err(TakeError::Broken)?;
        let orders = self.running.orders().clone();
        let merging = self.merging.clone();
        let stops = std::mem::take(&mut taker.stops);
        let rest = delta::receive(stream, orders, self.map, self.clock, merging, stops)
            .map_err(StartError::Threads)?;
        self.promise = taker.ready()?;
        self.catch_up(settings, known);
        late.bind().map_err(TakeError::Broken)?;
        // Before anybody can come to whom the door is open.
        self.merging.store(true, Ordering::Release);
        taker.take()?;
        if let Some(lock) = &mut self.lock {
            lock.take_ownership();
        }
        // It waits for this, and for nothing else.
        let _ = rest.send(self.lists.access.clone());
        Ok(())
    }

    /// The list may have been changed since it was read here, up to the moment in which the sockets were offered.
    fn catch_up(&mut self, settings: &Settings, known: u64) {
        let (Some(journal), Some(kind)) = (&self.journal, self.lists.access.kind()) else { return };
        let changes = match journal.since(kind, known) {
            Ok(changes) if changes.is_empty() => return,
            Ok(changes) => changes,
            Err(error) => {
                let path = journal.path().display();
                let what = format!(
                    "{path} cannot be read again: {error}; what was changed during the upgrade comes into \
                     force with the next reload"
                );
                return self.warnings.push(what);
            }
        };
        let former = self.lists.access.clone();
        self.lists.access = Arc::new(former.with(&changes));
        let rules = Arc::new(rules_under(self.promise, settings, &self.lists));
        // Nobody takes turns yet, and the lanes are empty.
        if let Err(deaf) = self.running.orders().update_rules(&rules) {
            self.warnings.push(format!("{deaf}: it goes by the list as it was before the upgrade"));
        }
        self.former = Some(former);
    }

    /// Waits for whoever is to take over from here one day.
    fn open_door(&mut self, settings: &Settings, group: Group, shard_key: [u32; 5]) {
        let (Some(lock), Some(directory)) = (&self.lock, &settings.state_dir) else { return };
        let (tell, upgrade) = unbounded();
        let workers = group.workers.len();
        let kept = group.into_address_sockets();
        let offer = Offer {
            version: version().to_owned(),
            process: std::process::id(),
            addresses: kept.iter().map(|kept| kept.address).collect(),
            sockets: kept.iter().map(|kept| kept.sockets.len()).collect(),
            passed: settings.sockets_passed,
            shard_key,
            promise: None,
            http: Some(self.http.iter().map(Server::address).collect()),
        };
        let sockets = kept.into_iter().map(|kept| kept.sockets).collect();
        let path = upgrade::take::socket_path(directory);
        let opened = lock.share().and_then(|lock| {
            let (orders, clock) = (self.running.orders().clone(), self.clock);
            let merging = self.merging.clone();
            Giver { offer, sockets, workers, lock, orders, clock, merging, tell }.wait_at(&path)
        });
        match opened {
            Ok(()) => self.upgrade = upgrade,
            Err(error) => self.warnings.push(format!(
                "no upgrade without a gap will be possible: cannot listen at {}: {error}",
                path.display()
            )),
        }
    }

    /// Stops the workers, whose sockets another process has by now, and sends it what it has not. Whether that
    /// process is there to go on: where it has died the peers are in the snapshot, for a start.
    pub fn hand_over(mut self, given: &mut Given) -> bool {
        // Its address is free for the other one from here on.
        drop(self.http.take());
        let (_, mut shards) = self.running.stop_and_take_shards();
        self.snapshots.report();
        match delta::send(given, &mut shards, self.clock.now()) {
            Ok(rest) => log::info!(
                "process {} has taken over; the rest was {} peers",
                given.process,
                rest.v4 + rest.v6
            ),
            Err(error) => {
                log::warn!(
                    "process {} has taken over, but not heard all of the rest: {error}",
                    given.process
                );
                if ends_now(given.process) {
                    self.snapshots.finish(shards, self.clock);
                    return false;
                }
            }
        }
        // This process is about to end: its memory goes at once then.
        std::mem::forget(shards);
        if let Some(lock) = self.lock.take() {
            lock.release_to_other();
        }
        true
    }

    /// Stops the workers, writes the peers down, then gives the state directory back.
    pub fn stop(mut self) -> onrush_tracker::metrics::Summary {
        if let Some(http) = &self.http {
            http.stopping();
        }
        let (summary, shards) = self.running.stop_and_take_shards();
        self.snapshots.finish(shards, self.clock);
        drop(self.lock);
        summary
    }
}

/// Whether this process, which does not listen any more, is about to be gone: its sockets are closed a while before
/// that can be seen.
fn ends_now(process: i32) -> bool {
    let deadline = Instant::now() + ENDING;
    while Instant::now() < deadline {
        if has_ended(process) {
            return true;
        }
        thread::sleep(Duration::from_millis(20));
    }
    false
}

/// Whether there is no such process, or nothing but its exit status.
fn has_ended(process: i32) -> bool {
    let stat = std::fs::read(format!("/proc/{process}/stat"));
    stat.map_or(true, |stat| {
        let stat = String::from_utf8_lossy(&stat);
        stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with(['Z', 'X']))
    })
}

/// What the process before this one has promised.
fn promised(taker: Option<&Taker>, kept: Option<&Kept>, now: Now) -> Option<Promise> {
    match taker {
        Some(taker) => taker.offer.promise,
        None => kept.and_then(|kept| kept.read(now.unix)),
    }
}

/// What holds where clients were promised something.
fn rules_under(promise: Option<Promise>, settings: &Settings, lists: &Lists) -> Rules {
    let now = Instant::now();
    let mut overload = Overload::new(now);
    promise.into_iter().for_each(|promise| overload.keep(promise, now));
    let mut rules = settings.rules(lists);
    overload.press(&settings.overload, &mut rules);
    rules
}

/// Has shards remember peers for as long as clients were promised, before any of them are loaded.
fn keep<S: Socket>(
    promise: Promise,
    settings: &Settings,
    lists: &Lists,
    workers: &mut [Worker<S>],
) {
    let rules = rules_under(Some(promise), settings, lists);
    let sides = workers.iter_mut().filter_map(|worker| worker.swarm_side.as_mut());
    sides.for_each(|side| side.update(&rules));
}

/// What it takes to load peers.
struct Load<'a> {
    map: ShardMap,
    lists: &'a Lists,
    now: Now,
}

impl Load<'_> {
    /// From the process that runs, or from the file that the last one has left. Returns what the operator should know.
    fn peers<S: Socket>(
        &self,
        taker: Option<&mut Taker>,
        path: Option<&Path>,
        workers: &mut [Worker<S>],
    ) -> Result<Option<String>, TakeError> {
        let Self { map, lists, now } = self;
        let sides = workers.iter_mut().filter_map(|worker| worker.swarm_side.as_mut());
        let shards: Vec<_> = sides.map(|side| &mut side.shard).collect();
        match (taker, path) {
            (Some(taker), _) => taker.load(shards, *map, &lists.access, *now).map(|()| None),
            (None, Some(path)) => Ok(snapshot::load::load_at_start(
                path,
                shards,
                *map,
                &lists.access,
                *now,
                &mut service::progress(),
            )),
            (None, None) => Ok(None),
        }
    }
}

/// The sockets of the tracker that is taken over, those that were passed, or new ones.
fn group_of(
    settings: &Settings,
    taker: Option<&mut Taker>,
    passed: Option<Adopted>,
) -> Result<(Group, PendingSockets), StartError> {
    let group = match (taker, passed) {
        (Some(taker), _) => {
            let (kept, workers) = (taker.kept(), settings.placement.socket_sides());
            return Ok(regroup(kept, &taker.added, workers, buffers(settings))?);
        }
        (None, Some(sockets)) => sockets.into_group(buffers(settings))?,
        (None, None) => bind_group(settings)?,
    };
    Ok((group, PendingSockets::default()))
}

/// As the user that reads the token again later. Where a tracker takes over, the other one has the address until
/// it has gone.
fn start_http(
    settings: &Settings,
    takes_over: bool,
    warnings: &mut Vec<String>,
) -> Result<Option<Server>, StartError> {
    let of_http = &settings.admin;
    let Some(listen) = of_http.listen else { return Ok(None) };
    let token = Token::load(of_http.token_file.as_deref())?;
    warnings.extend(Token::warning(of_http.token_file.as_deref()));
    let bound = match server::bind(listen) {
        // An address that a third program has is not free when the process before this one has gone.
        Err(AdminError::Taken(address)) if takes_over && is_held_by_former(address, settings) => {
            server::bind_later(address)
        }
        Err(error) if listen.optional => {
            warnings.push(format!("no metrics, health and control over HTTP: {error}"));
            return Ok(None);
        }
        bound => bound?,
    };
    Ok(Some(Server::start(bound, of_http, token)?))
}

/// Whether the process that is taken over may have this address. Where there is none, that is told later.
fn is_held_by_former(address: SocketAddr, settings: &Settings) -> bool {
    offered(settings).is_none_or(|offer| offer.may_hold(address))
}

/// What a worker's sockets have got, together; zero for what the kernel does not tell.
fn in_all(sockets: &[BoundSocket]) -> Buffers {
    let mut sum = Buffers::default();
    for buffers in sockets.iter().filter_map(|socket| socket.buffers().ok()) {
        sum.receive += buffers.receive;
        sum.send += buffers.send;
    }
    sum
}

/// Lets the counters of each worker tell what its sockets have got.
fn show_buffers<S: Socket>(workers: &[Worker<S>], got: &[Buffers]) {
    for (worker, got) in workers.iter().zip(got) {
        worker.metrics.receive_buffer.set(got.receive as u64);
        worker.metrics.send_buffer.set(got.send as u64);
    }
}

/// Puts the changes that were made to the list while trackers ran into force again. Returns what is odd.
fn resume(lists: &mut Lists, journal: &Journal, compact: bool) -> Vec<String> {
    let resumed = journal.replay((*lists.access).clone());
    let kept = if compact { journal.compact_or_warn(&resumed) } else { None };
    lists.access = Arc::new(resumed.settled());
    resumed.warning.into_iter().chain(kept).collect()
}

/// Where the peers are written down, if they are to be and can be.
fn snapshot_path(settings: &Settings, writable: bool) -> Option<PathBuf> {
    let directory =
        settings.state_dir.as_ref().filter(|_| writable && settings.snapshot.enabled)?;
    Some(directory.join(snapshot::FILE))
}

fn buffers(settings: &Settings) -> Buffers {
    Buffers { receive: settings.socket.receive_buffer, send: settings.socket.send_buffer }
}

/// Becomes the user that is asked for. Returns what is odd about whoever runs this.
fn become_user(settings: &Settings) -> Result<Option<String>, user::UserError> {
    if let Some(name) = &settings.user {
        user::become_user(name, settings.group.as_deref(), settings.state_dir.as_deref())?;
        return Ok(None);
    }
    Ok(user::is_root().then(|| {
        "running as root, with more power than a tracker needs: name a user to become as `user` in \
         the configuration"
            .to_owned()
    }))
}

/// Makes a backend of each worker's sockets; copies of these stay in the group.
fn backends(settings: &Settings, group: &mut Group) -> io::Result<Vec<mio::Backend>> {
    let copies = copies(group)?;
    let options = mio::Options { batch: settings.socket.batch, ..mio::Options::default() };
    let sockets = std::mem::replace(&mut group.workers, copies).into_iter();
    sockets.map(|sockets| mio::Backend::new(sockets, options)).collect()
}

/// Second descriptors of all sockets of a group.
fn copies(group: &Group) -> io::Result<Vec<Vec<BoundSocket>>> {
    let of_worker =
        |sockets: &Vec<BoundSocket>| sockets.iter().map(BoundSocket::try_clone).collect();
    group.workers.iter().map(of_worker).collect()
}

fn bind_group(settings: &Settings) -> Result<Group, bind::BindError> {
    let addresses: Vec<Address> = settings
        .listen
        .iter()
        .map(|listen| Address { address: listen.address, optional: listen.optional })
        .collect();
    let options = bind::Options {
        workers: settings.placement.socket_sides(),
        buffers: buffers(settings),
        probe: true,
    };
    bind::bind_group(&addresses, &options)
}

/// Has the kernel bring announces and scrapes to the worker that owns their (first) info hash.
/// Worth nothing to a split tracker, whose shards are never where the sockets are.
fn steer(settings: &Settings, map: ShardMap, group: &mut Group) -> Option<Steering> {
    let Placement::Colocated { workers: 2.. } = settings.placement else { return None };
    if !settings.socket.steering {
        return None;
    }
    let (steering, notices) = Steering::attach(function(map), group);
    group.notices.extend(notices);
    Some(steering)
}

/// The kernel may still steer for the process before this one, to fewer sockets than there are. Returns what is odd.
fn not_steered(group: &Group) -> Option<String> {
    let error = steering::detach(group).err()?;
    Some(format!(
        "the kernel goes on steering as for the process before this one ({error}): some workers get \
         connects alone until a restart"
    ))
}

/// The map as the kernel can compute it. Connects are shorter, and left to the kernel's own hash.
fn function(map: ShardMap) -> Function {
    Function {
        offset: INFO_HASH_OFFSET as u32,
        multipliers: map.key(),
        min_len: (INFO_HASH_OFFSET + HASH_LEN) as u32,
        buckets: map.shards(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onrush_proto::InfoHash;
    use proptest::prelude::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_has_ended_when_only_its_exit_status_is_left() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let process = child.id() as i32;
        assert!(!has_ended(process) && !has_ended(std::process::id() as i32));
        // Nobody has asked for its exit status yet.
        drop(child.stdin.take());
        let deadline = Instant::now() + Duration::from_secs(30);
        while !has_ended(process) {
            assert!(Instant::now() < deadline, "it runs on");
        }
        child.wait().unwrap();
        assert!(has_ended(process));
    }

    proptest! {
        /// The kernel's function and the sorter's are written down in two crates that must not
        /// know each other: this is where they have to agree.
        #[test]
        fn the_kernel_picks_the_sorters_shard(
            key: [u32; 5],
            shards in 1u16..1024,
            mut datagram in proptest::collection::vec(any::<u8>(), 36..200),
            hash: [u8; 20],
        ) {
            datagram[16..36].copy_from_slice(&hash);
            let map = ShardMap::new(key, shards);
            let bucket = function(map).bucket(&datagram).map(usize::from);
            prop_assert_eq!(bucket, Some(map.shard_of(&InfoHash(hash))));
            prop_assert_eq!(function(map).bucket(&datagram[..35]), None);
        }
    }
}
