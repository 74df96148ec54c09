//! From settings to a running tracker, on its own sockets or on those of a predecessor. Both ways
//! take the same steps in the same order: user, admin server, lists, sockets, state, workers.
//!
//! | module | contents |
//! |---|---|
//! | `admin` | the admin server |
//! | `sockets` | the sockets, their backends and steering |
//! | `web` | the web workers and their listeners |
//! | `acquire` | a successor acquires the sockets of its predecessor |
//! | `offer` | the process listens for a successor |

mod acquire;
mod admin;
mod offer;
mod sockets;
mod web;

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use crossbeam_channel::{Receiver, never};
use onrush_net::Socket;
use onrush_net::bind::{self, Group};
use onrush_net::mio::drops::DropReasons;
use onrush_net::notice::Notice;
use onrush_net::steering::Steering;
use onrush_swarm::{Shard, ShardMap};
use thiserror::Error;

use crate::access::AccessControl;
use crate::certificate_files::LoadedCertificates;
use crate::host_check::{self, refusals};
use crate::overload::Overload;
use crate::process::socket_activation::PassedSockets;
use crate::process::spawn_thread::SpawnThread;
use crate::process::{service_notify, switch_user, user};
use crate::state_files::{Records, StateFiles};
use crate::time::Time;
use crate::upgrade::launcher;
use crate::upgrade::predecessor::HandoffEvent;
use crate::upgrade::progress::Upgrade;
use crate::upgrade::successor::{HandoffError, SuccessorSide};
use crate::xdp::XdpProgram;
use crate::xdp::load::Attempt;
use acquire::Pending;
use onrush_config::reload::{KeyChange, ShownValues, joined};
use onrush_config::settings::Listen;
use onrush_config::{Refused, Settings};
use onrush_control::history::History;
use onrush_control::server::{self, Bound};
use onrush_control::{AdminError, Server, TokenError};
use onrush_replica::handoff::IntervalCommitment;
use onrush_store::lists::file::ListError;
use onrush_store::lock::StateLock;
use onrush_store::snapshot::load::{LoadOptions, Unread, load_at_start};
use onrush_store::state::{State, StateError};
use onrush_tracker::assemble::{Secrets, assemble_with_fronts, shard_map};
use onrush_tracker::clock::Clock;
use onrush_tracker::connection::{ConnectionIds, Keys};
use onrush_tracker::running::{Addresses, Running, Scheme};
use onrush_tracker::worker::Worker;
use onrush_web::tls::Tls;
use onrush_web::tls::certificates::CertificateError;
use web::{Web, WebWorker};

/// Warning of a start as root without a configured user.
const AS_ROOT: &str = "running as root, with more rights than a tracker needs: write \
                       `user = \"onrush\"` into the configuration (`useradd --system onrush` \
                       creates that user)";

/// A tracker that has been started. [`Serving`](crate::serve::Serving) runs it.
pub struct Tracker {
    /// Its workers.
    pub running: Running,
    /// The kernel's steering of announces to their shard's worker, if any.
    pub steering: Option<Steering>,
    /// Sentences for the operator, each with a remedy.
    pub warnings: Vec<String>,
    /// The lists in force.
    pub access: AccessControl,
    /// The files that it keeps.
    pub files: StateFiles,
    /// TLS of the web workers, where HTTPS is on.
    pub tls: Option<Tls>,
    /// Its certificates.
    pub certificates: Option<LoadedCertificates>,
    /// The workers' clock.
    pub clock: Clock,
    /// The upgrade in progress, if there is one.
    pub upgrade: Upgrade,
    /// Receives the progress of a handoff to a successor.
    pub handoffs: Receiver<HandoffEvent>,
    /// Longer intervals and the kernel's filter, and the interval commitment of the predecessor.
    pub overload: Overload,
    /// Why the kernel drops datagrams.
    pub drop_reasons: DropReasons,
    /// The XDP program, where it is attached.
    pub xdp: Option<XdpProgram>,
    /// Starts a successor with the capabilities that the program takes, and opens AF_XDP sockets.
    pub spawn_thread: Option<SpawnThread>,
    /// Which shard owns an info hash.
    pub map: ShardMap,
    /// The admin server.
    pub admin: Server,
    /// Rates, peers and swarms over time.
    pub history: Arc<History>,
}

/// Why a tracker cannot start. Each message names the remedy.
#[derive(Debug, Error)]
pub enum StartError {
    /// The configured user.
    #[error(transparent)]
    User(#[from] user::UserError),
    /// The XDP program, where it is required.
    #[error("{0}")]
    Xdp(Refused),
    /// The UDP addresses to listen on.
    #[error(transparent)]
    Bind(#[from] bind::BindError),
    /// The addresses to serve HTTP or HTTPS at.
    #[error("{1}")]
    Http(Scheme, bind::BindError),
    /// A certificate or its key.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// TLS.
    #[error(
        "cannot set up TLS: {0}\n  it needs random numbers: permit getrandom(2) in \
         SystemCallFilter= of the unit"
    )]
    Tls(io::Error),
    /// The state directory.
    #[error(transparent)]
    State(#[from] StateError),
    /// The lists of info hashes and sources.
    #[error(transparent)]
    List(#[from] ListError),
    /// The handoff of the predecessor.
    #[error(transparent)]
    Handoff(#[from] HandoffError),
    /// The admin server.
    #[error(transparent)]
    Admin(#[from] AdminError),
    /// The token of the admin API.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// Polling of the sockets.
    #[error(
        "cannot set up polling: {0}\n  raise the limit of open files: LimitNOFILE= in the \
         unit, or `ulimit -n`"
    )]
    Poll(io::Error),
    /// The workers' threads.
    #[error(
        "cannot start the workers' threads: {0}\n  raise the limit of tasks: TasksMax= \
         in the unit, or `ulimit -u`"
    )]
    Threads(io::Error),
}

impl StartError {
    /// The value of the configuration that the host refuses, if it is one.
    pub fn refused(&self, settings: &Settings) -> Option<Refused> {
        Some(match self {
            Self::User(error) => refusals::user(error),
            Self::Xdp(refused) => refused.clone(),
            Self::Bind(error) => refusals::address(error, None, settings),
            Self::Http(scheme, error) => refusals::address(error, Some(*scheme), settings),
            Self::Certificate(error) => refusals::certificate(error),
            Self::State(error) => refusals::state(error, settings),
            Self::List(error) => refusals::list(error, settings),
            Self::Admin(error) => refusals::admin(error),
            Self::Token(error) => refusals::token(error),
            Self::Handoff(_) | Self::Poll(_) | Self::Tls(_) | Self::Threads(_) => return None,
        })
    }
}

impl Tracker {
    /// Starts a tracker on `passed` sockets, and on its own of the kinds of which none are passed.
    /// The settings must be resolved for the passed sockets. `xdp` is the program where it is
    /// attached.
    ///
    /// # Errors
    /// [`StartError`]; everything that was opened is closed again.
    pub fn start(
        settings: &Settings,
        passed: PassedSockets,
        xdp: Attempt,
    ) -> Result<Self, StartError> {
        let mut start = Start::begin(settings, xdp, server::bind)?;
        let mut group = sockets::open(settings, passed.udp)?;
        let mut web = Web::open(settings, passed.listeners)?;
        let secrets = Secrets::random(start.open_state(None)?);
        start.files.serve_control(&mut start.admin);
        start.replay_journal(true);
        start.load_blocks();
        let map = shard_map(settings.placement.shards(), &secrets);
        let load = |start: &mut Start<'_>, shards: Vec<&mut Shard>| -> Result<(), StartError> {
            start.load_snapshot(shards, map);
            Ok(())
        };
        let mut tracker = start.into_tracker((&mut group, &mut web), &secrets, load)?;
        tracker.steering = sockets::steer(settings, map, &mut group);
        tracker.serve(settings, (group, web.groups), (secrets.shard_key, Arc::default()));
        Ok(tracker)
    }

    /// Starts a tracker with the sockets and peers of its predecessor. Two things are errors
    /// without `force`: peers beyond `limits.peers`, which are dropped with it, and a list that has
    /// less than half of its entries.
    ///
    /// # Errors
    /// [`StartError`]; the predecessor keeps serving.
    pub fn start_as_successor(
        settings: &Settings,
        force: bool,
        xdp: Attempt,
    ) -> Result<Self, StartError> {
        // Until it is, the predecessor is; with a unit of its own this one is from the beginning.
        service_notify::set_main(!launcher::is_successor());
        let mut start =
            Start::begin(settings, xdp, |listen| admin::bind_or_wait(settings, listen))?;
        let mut side = SuccessorSide::request(settings, start.clock)?;
        let links = std::mem::take(&mut side.links);
        let take = |options: &_| side.take_queue(options);
        start.xdp.adopt(links, settings, take).map_err(StartError::Xdp)?;
        let (mut group, sockets) = sockets::take(settings, &mut side)?;
        let (mut web, listeners) = Web::take(settings, &mut side)?;
        let pending = Pending { sockets, listeners };
        let keys = start.open_state(side.lock.take())?;
        if let (Some(socket), Some(listener)) = (&start.files.control, side.control.take())
            && let Ok(mut socket) = socket.lock()
        {
            socket.adopt(listener, side.handoff.control_file);
        }
        let journal_length = start.files.records().map_or(0, |records| records.journal.length());
        start.replay_journal(false);
        let current = side.handoff.current.take();
        log_changes(settings, current.as_ref().map(|current| &current.values));
        if let Some(current) = current.as_ref().filter(|_| !force) {
            start.access.compare_with(&current.list_entries, settings)?;
        }
        // The steering program, which both processes share, depends on the key.
        let shard_key = side.handoff.shard_key;
        let secrets = Secrets { shard_key, ..Secrets::random(keys) };
        let map = shard_map(settings.placement.shards(), &secrets);
        start.adopt_commitment(current.as_ref().map(|current| current.commitment));
        let load = |start: &mut Start<'_>, shards: Vec<&mut Shard>| -> Result<(), StartError> {
            let (access, now) = (&start.access.lists().access, start.clock.now());
            side.load_peers(shards, map, access, now, settings.limits.peers, force)?;
            start.keep_unread_of(current.and_then(|current| current.unread));
            Ok(())
        };
        let mut tracker = start.into_tracker((&mut group, &mut web), &secrets, load)?;
        let merging = Arc::default();
        tracker.acquire_sockets(&mut side, pending, settings, (journal_length, &merging))?;
        tracker.steering = sockets::steer(settings, map, &mut group);
        if tracker.steering.is_none() {
            tracker.warnings.extend(sockets::stop_steering(&group));
        }
        // The last snapshot of the predecessor may be old.
        tracker.files.snapshots.merging = Some(merging.clone());
        tracker.serve(settings, (group, web.groups), (shard_key, merging));
        Ok(tracker)
    }

    /// Gives the XDP program the rules in force.
    fn update_xdp(&mut self, settings: &Settings) {
        if let Some(xdp) = &mut self.xdp {
            let rules = Arc::new(self.overload.rules(settings, self.access.lists()));
            let notices = xdp.update(&rules, self.clock);
            self.warnings.extend(notices.into_iter().map(|notice| notice.text));
        }
    }

    /// Opens the workers' gate, and listens for a successor.
    fn serve(
        &mut self,
        settings: &Settings,
        (group, listeners): (Group, Vec<web::Group>),
        (shard_key, merging): ([u32; 5], Arc<AtomicBool>),
    ) {
        self.running.begin();
        self.update_xdp(settings);
        let now = Instant::now();
        self.upgrade = Upgrade::new(self.files.lock.is_some(), now);
        self.files.begin(now);
        // In an upgrade the predecessor has written its history when it released the sockets.
        self.warnings.extend(self.files.load_history(&self.history, self.clock));
        self.warnings.extend(group.notices.iter().map(Notice::to_string));
        self.listen_for_successor(settings, (group, listeners), shard_key, merging);
    }
}

/// The number of members that count requests of blocked sources: all workers, and the XDP program
/// as the last one.
fn counting(settings: &Settings) -> usize {
    let web = if settings.http.is_on() { settings.http.workers } else { 0 };
    settings.placement.workers() + web + usize::from(!settings.xdp.interfaces.is_empty())
}

/// The members of a tracker: workers, and web workers.
type Members<S> = (Vec<Worker<S>>, Vec<WebWorker>);

/// A start in progress: everything that is prepared before there are workers.
struct Start<'a> {
    settings: &'a Settings,
    warnings: Vec<String>,
    admin: Server,
    access: AccessControl,
    clock: Clock,
    overload: Overload,
    drop_reasons: DropReasons,
    xdp: Attempt,
    files: StateFiles,
    tls: Option<Tls>,
    certificates: Option<LoadedCertificates>,
}

impl<'a> Start<'a> {
    /// Switches the user, starts the admin server and loads the lists.
    fn begin(
        settings: &'a Settings,
        mut xdp: Attempt,
        bind_admin: impl FnOnce(Listen) -> Result<Bound, AdminError>,
    ) -> Result<Self, StartError> {
        let mut warnings = Vec::new();
        match &settings.user {
            Some(name) => {
                switch_user::become_user(
                    name,
                    settings.group.as_deref(),
                    settings.state_dir.as_deref(),
                    xdp.kept_capabilities(),
                )?;
                xdp.drop_capabilities();
            }
            None if user::is_root() => warnings.push(AS_ROOT.to_owned()),
            None => {}
        }
        warnings.extend(host_check::export(settings).map(|refused| refused.to_string()));
        // Early, so that `/ready` reports the start while lists and state are loaded.
        let admin = admin::start(settings, bind_admin, &mut warnings)?;
        // Before the sockets, whose buffers would fill up meanwhile, and as the user that reloads
        // the lists later.
        let lists = onrush_store::lists::load(settings, &mut service_notify::progress())?;
        Ok(Self {
            settings,
            warnings,
            admin,
            access: AccessControl::new(lists, counting(settings)),
            clock: Clock::start(),
            overload: Overload::new(settings, Instant::now()),
            drop_reasons: DropReasons::of_namespace(),
            xdp,
            files: StateFiles::new(settings, None, Instant::now()),
            tls: None,
            certificates: None,
        })
    }

    /// Drops the capability that binding needed, opens the state directory, and adopts the
    /// commitment of the previous process. `lock` is the one shared by the predecessor.
    fn open_state(&mut self, lock: Option<StateLock>) -> Result<Keys, StartError> {
        if self.settings.user.is_some() {
            switch_user::drop_capabilities();
        }
        let State { keys, warnings, lock } = State::open(self.settings, lock)?;
        self.warnings.extend(warnings);
        self.files = StateFiles::new(self.settings, lock, Instant::now());
        let unix = self.clock.now().unix;
        self.adopt_commitment(self.files.commitment.as_ref().and_then(|file| file.read(unix)));
        Ok(keys)
    }

    /// Repeats the list changes that the journal holds. It is compacted only if no other process
    /// writes to it.
    fn replay_journal(&mut self, compact: bool) {
        if let Some(Records { journal, .. }) = self.files.records() {
            let replayed = journal.replay((*self.access.lists().access).clone());
            let compaction = if compact { journal.compact_or_warn(&replayed) } else { None };
            self.access.begin_records(&replayed);
            self.warnings.extend(replayed.warning.into_iter().chain(compaction));
        }
        self.warnings.extend(self.access.lists().access.warning().map(str::to_owned));
        self.warnings.extend(self.access.overrides().map(|overrides| overrides.to_string()));
    }

    /// Continues the blocks of sources, where no other process changes them.
    fn load_blocks(&mut self) {
        let time = Time::of(self.clock);
        if let Some(records) = self.files.records() {
            self.access.load_blocks(records.load_blocks(time.unix), time);
        }
    }

    fn adopt_commitment(&mut self, commitment: Option<IntervalCommitment>) {
        if let Some(commitment) = commitment {
            self.overload.adopt(commitment, Instant::now());
        }
    }

    /// Makes the workers on these backends, and the web workers, for these addresses.
    fn assemble<S: Socket>(
        &mut self,
        backends: Vec<S>,
        web: &mut Web,
        secrets: &Secrets,
        addresses: &Addresses,
    ) -> Members<S> {
        // With the commitment, so that no peer is dropped for its age too early.
        let rules = self.overload.rules(self.settings, self.access.lists());
        self.warnings.extend(web.notices());
        let (limits, wakers) = (self.settings.workers(), web.wakers());
        let (workers, fronts) = assemble_with_fronts(&limits, secrets, backends, &rules, wakers);
        self.tls = web.tls.clone();
        self.certificates = web.certificates.clone();
        if let Some(loaded) = &self.certificates {
            let warnings = loaded.certificates.warnings(self.clock.now().unix).into_iter();
            self.warnings.extend(warnings.map(|warning| warning.text));
        }
        let limits = self.settings.http.limits;
        let fronts = web.take_workers(fronts, (&rules, secrets), limits, addresses);
        (workers, fronts)
    }

    /// Loads the peers of the last snapshot, if there is one.
    fn load_snapshot(&mut self, shards: Vec<&mut Shard>, map: ShardMap) {
        let Some(path) = self.files.snapshots.path() else { return };
        let (access, now) = (&self.access.lists().access, self.clock.now());
        let options = LoadOptions { map, access, now, extra_age: 0 };
        let limit = self.settings.limits.peers;
        match load_at_start(path, shards, limit, options, &mut service_notify::progress()) {
            Ok(warning) => self.warnings.extend(warning),
            Err(unread) => self.warnings.push(self.files.snapshots.keep_unread(unread)),
        }
    }

    /// Keeps a snapshot that the predecessor could not read, and so does not overwrite; otherwise
    /// one that cannot be read now.
    fn keep_unread_of(&mut self, unread: Option<Box<Unread>>) {
        let Some(path) = self.files.snapshots.path() else { return };
        let unread = match unread {
            Some(unread) => Some(Unread { path: path.to_owned(), ..*unread }),
            None => Unread::at(path),
        };
        if let Some(unread) = unread.filter(Unread::is_there) {
            self.warnings.push(self.files.snapshots.keep_unread(unread));
        }
    }

    /// Makes the members on the sockets of `group`, which keeps copies of them, and loads the peers
    /// into their shards. The backend of the workers is chosen here.
    fn into_tracker(
        mut self,
        (group, web): (&mut Group, &mut Web),
        secrets: &Secrets,
        load: impl FnOnce(&mut Self, Vec<&mut Shard>) -> Result<(), StartError>,
    ) -> Result<Tracker, StartError> {
        let sockets = sockets::backends(self.settings, group, &self.drop_reasons)
            .map_err(StartError::Poll)?;
        let addresses = Addresses {
            udp: group.addresses.clone(),
            http: web.addresses(Scheme::Http),
            https: web.addresses(Scheme::Https),
        };
        if !self.xdp.has_queues() {
            return self.run(sockets, web, secrets, addresses, load);
        }
        let with_queues = self.xdp.share_queues(sockets).map_err(StartError::Poll)?;
        self.run(with_queues, web, secrets, addresses, load)
    }

    /// Starts the threads of the members, which wait at a gate until the tracker serves.
    fn run<S: Socket + Send + 'static>(
        mut self,
        backends: Vec<S>,
        web: &mut Web,
        secrets: &Secrets,
        addresses: Addresses,
        load: impl FnOnce(&mut Self, Vec<&mut Shard>) -> Result<(), StartError>,
    ) -> Result<Tracker, StartError> {
        let (mut workers, fronts) = self.assemble(backends, web, secrets, &addresses);
        load(&mut self, shards(&mut workers))?;
        let map = shard_map(self.settings.placement.shards(), secrets);
        let Self { settings, mut warnings, admin, access, clock, overload, .. } = self;
        let Self { drop_reasons, files, tls, certificates, xdp, .. } = self;
        let ids = ConnectionIds::new(&secrets.keys, settings.connection.validity);
        let member = counting(settings) - 1;
        let program = xdp.loaded.map(|it| XdpProgram::new(it, ids, &addresses.udp, member));
        warnings.extend(xdp.warnings);
        let mut running = Running::prepare(&settings.workers(), addresses, workers, fronts, clock)
            .map_err(StartError::Threads)?;
        running.add(program.iter().flat_map(XdpProgram::members));
        Ok(Tracker {
            running,
            steering: None,
            warnings,
            access,
            clock,
            files,
            tls,
            certificates,
            upgrade: Upgrade::new(false, Instant::now()),
            handoffs: never(),
            overload,
            drop_reasons,
            xdp: program,
            spawn_thread: xdp.spawn_thread,
            map,
            admin,
            history: Arc::new(History::new(Instant::now())),
        })
    }
}

/// Logs what the configuration changes in that of the predecessor, where that is known.
fn log_changes(settings: &Settings, running: Option<&ShownValues>) {
    let running = running.filter(|values| !values.is_empty());
    let changes = running.map_or_else(Vec::new, |old| KeyChange::between(old, &settings.shown()));
    if !changes.is_empty() {
        log::info!("changed by this upgrade: {}", joined(&changes));
    }
}

/// The shards of all workers, in order.
fn shards<S: Socket>(workers: &mut [Worker<S>]) -> Vec<&mut Shard> {
    let sides = workers.iter_mut().filter_map(|worker| worker.swarm_side.as_mut());
    sides.map(|side| &mut side.shard).collect()
}
