//! Carries out effects, and once a second writes the files that are due: the only place where the
//! main thread acts on workers, files, threads, other processes and the log while the tracker
//! serves.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};

use crate::access::purge::swarm_removal;
use crate::certificate_files::{self, Look};
use crate::effect::{Effect, LogControl, ServiceState, SteeringChange};
use crate::notice::{Notice, NoticeLimit, Repeats};
use crate::overload::ProcessState;
use crate::process::log_output;
use crate::process::service_notify::{self, NotifyState};
use crate::process::spawn_thread::SpawnThread;
use crate::state_files::StateFiles;
use crate::supervise::Supervisor;
use crate::supervise::config_source::{ConfigSource, LoadedConfig};
use crate::supervise::event::Event;
use crate::time::suspended;
use crate::upgrade::launcher::StartedSuccessor;
use crate::upgrade::program::Program;
use crate::xdp::XdpProgram;
use onrush_config::host::Quotas;
use onrush_control::Server;
use onrush_control::history::History;
use onrush_control::view::View;
use onrush_net::mio::drops::DropReasons;
use onrush_net::steering::Steering;
use onrush_replica::delta::{self, CompletedHandoff};
use onrush_replica::handoff::InheritedState;
use onrush_tracker::access::AccessList;
use onrush_tracker::clock::Clock;
use onrush_tracker::running::Running;
use onrush_web::tls::Tls;

/// Time for the history to be written: the successor waits.
const HISTORY_TIMEOUT: Duration = Duration::from_secs(1);

/// The parts of the process on which effects act.
pub(super) struct Executor {
    pub(super) running: Running,
    pub(super) steering: Option<Steering>,
    pub(super) xdp: Option<XdpProgram>,
    pub(super) clock: Clock,
    pub(super) files: StateFiles,
    pub(super) admin: Server,
    /// TLS of the web workers, where there is any.
    pub(super) tls: Option<Tls>,
    pub(super) history: Arc<History>,
    pub(super) view: View,
    pub(super) source: ConfigSource,
    /// Starts a successor; `None` where it is unknown.
    pub(super) program: Option<Program>,
    /// Starts it where it needs capabilities that this thread has dropped.
    pub(super) spawn_thread: Option<SpawnThread>,
    /// The successor that this process has started.
    pub(super) successor: Option<StartedSuccessor>,
    pub(super) limit: NoticeLimit,
    pub(super) drop_reasons: DropReasons,
    pub(super) quotas: Quotas,
    pub(super) results: Results,
}

/// Both ends of a channel without limit.
type Channel<T> = (Sender<T>, Receiver<T>);

/// Results of the threads that effects have started.
pub(super) struct Results {
    pub(super) loaded: Channel<Result<LoadedConfig, String>>,
    pub(super) merged: Channel<AccessList>,
    pub(super) removed: Channel<u64>,
    pub(super) certificates: Channel<Option<Look>>,
}

impl Executor {
    /// Call every second: records the history and writes files that are due. Returns the state of
    /// the process.
    pub(super) fn tick(&mut self, now: Instant) -> ProcessState {
        let notices = self.xdp.as_mut().map(|xdp| xdp.tick(self.clock));
        notices.into_iter().flatten().for_each(|notice| self.log(notice, now));
        let summary = self.running.summary();
        self.history.record(&summary, now);
        self.files.tick(self.running.orders(), &self.history, self.clock, now);
        self.files.serve_control(&mut self.admin);
        let (reasons_known, is_steering) = (self.drop_reasons.are_known(), self.steering.is_some());
        let (quota, suspended) = (self.quotas.tick(), suspended());
        let has_program = self.xdp.as_ref().is_some_and(XdpProgram::is_in_force);
        ProcessState { summary, quota, reasons_known, is_steering, has_program, suspended }
    }

    /// Carries out an effect. Returns its result, where the supervisor needs it.
    pub(super) fn carry_out(&mut self, effect: Effect, supervisor: &Supervisor) -> Option<Event> {
        let now = Instant::now();
        match effect {
            Effect::Notice(notice) => self.log(notice, now),
            Effect::Publish => self.publish(supervisor, now),
            Effect::Show => self.view.publish(supervisor.in_force()),
            Effect::Reply(reply) => reply.respond(()),
            Effect::Record(record) => {
                let records = self.files.records();
                return Some(Event::Recorded(records.map_or(Ok(()), |it| it.write(&record))));
            }
            Effect::CompactJournal(replayed) => {
                self.files.records().into_iter().for_each(|records| records.compact(&replayed));
            }
            Effect::Merge(list) => return self.merge(list),
            Effect::Remove(removal) => {
                let (to, _) = &self.results.removed;
                if let Err(error) = swarm_removal::start(&removal, self.running.orders(), to) {
                    log::error!("{error}: its shard keeps swarms that are no longer permitted");
                }
            }
            Effect::Load => return self.load(supervisor),
            Effect::ReconfigureFiles(settings) => self.files.reconfigure(&settings),
            Effect::LookAtCertificates(known) => {
                certificate_files::look(known, self.results.certificates.0.clone());
            }
            Effect::ReplaceCertificates(certificates) => {
                self.tls.iter().for_each(|tls| tls.replace(certificates.clone()));
            }
            Effect::SetToken(token) => self.admin.set_token(token),
            Effect::SetLog(LogControl { level, json, warnings_per_minute }) => {
                log::set_max_level(level);
                log_output::set_json(json);
                self.limit.per_minute = warnings_per_minute;
            }
            Effect::Steer(change) => self.steer(change, now),
            Effect::StoreCommitment { commitment, changed } => {
                let (file, unix) = (self.files.commitment.as_mut(), self.clock.now().unix);
                let warning = file.and_then(|file| file.tick(commitment, changed, unix, now));
                warning.into_iter().for_each(|warning| log::warn!("{warning}"));
            }
            Effect::Snapshot(responder) => {
                self.files.snapshots.write_now(self.running.orders(), self.clock, responder);
            }
            Effect::Export(responder) => self.files.export(self.running.orders(), responder),
            Effect::WriteHistory => {
                self.files.write_history(&self.history, self.clock, HISTORY_TIMEOUT);
            }
            Effect::Launch { force } => return Some(self.launch(force)),
            Effect::KillSuccessor => self.successor.iter_mut().for_each(StartedSuccessor::kill),
            Effect::SendInherited(inherited, to) => {
                let unread = self.files.snapshots.unread().cloned().map(Box::new);
                // The successor may have given up.
                let _ = to.send(InheritedState { unread, ..*inherited });
            }
            Effect::Notify(state) => notify_manager(&state),
            Effect::End(_) => {}
        }
        None
    }

    /// A successor has the sockets: the service manager gets its process id, and then the successor
    /// may notify.
    pub(super) fn name_successor(&mut self, completed: &mut CompletedHandoff) {
        if let Some(successor) = self.successor.take() {
            successor.release();
        }
        // The watchdog's timeout starts anew for that process.
        let process = NotifyState::MainPid(completed.process as u32);
        service_notify::send(&[process, NotifyState::Watchdog]);
        service_notify::set_main(false);
        // Its error is that of the delta.
        let _ = delta::begin(&mut completed.to.0);
    }

    fn log(&mut self, notice: Notice, now: Instant) {
        if let Some(notice) = self.limit.admit(notice, now) {
            notice.log();
        }
    }

    fn publish(&mut self, supervisor: &Supervisor, now: Instant) {
        let rules = Arc::new(supervisor.rules());
        if let Err(error) = self.running.orders().update_rules(&rules) {
            log::error!("{error}; its configuration is unchanged");
        }
        let notices = self.xdp.as_mut().map(|xdp| xdp.update(&rules, self.clock));
        notices.into_iter().flatten().for_each(|notice| self.log(notice, now));
        self.view.publish(supervisor.in_force());
    }

    /// Merges a list on a thread of its own. If there is none, the list stays as it is.
    fn merge(&self, list: Arc<AccessList>) -> Option<Event> {
        let to = self.results.merged.0.clone();
        let merge = move || {
            // The receiver lives as long as the process.
            let _ = to.send(list.merged());
        };
        let spawned = thread::Builder::new().name("merge".into()).spawn(merge);
        spawned.is_err().then_some(Event::Merged(None))
    }

    fn load(&self, supervisor: &Supervisor) -> Option<Event> {
        let journal = self.files.records().map(|records| &records.journal);
        let (running, to) = (supervisor.in_force().settings, self.results.loaded.0.clone());
        let error = self.source.load(running, journal, to).err()?;
        Some(Event::Loaded(Err(format!("reload failed: cannot start a thread: {error}"))))
    }

    fn steer(&mut self, change: SteeringChange, now: Instant) {
        if let Some(steering) = &mut self.steering
            && let Err(error) = change.apply(steering)
        {
            let notice = Notice::warn(format!("cannot change the steering: {error}"));
            self.log(notice.with(Repeats::Limited("steering")), now);
        }
    }

    fn launch(&mut self, force: bool) -> Event {
        let Some(program) = &self.program else {
            return Event::Launched(Err("the program of this process is unknown".to_owned()));
        };
        Event::Launched(match program.start(force, self.spawn_thread.as_ref()) {
            Ok(successor) => {
                self.successor = Some(successor);
                Ok(program.path.clone())
            }
            Err(error) => Err(format!("cannot start {}: {error}", program.path.display())),
        })
    }
}

fn notify_manager(state: &ServiceState) {
    match state {
        ServiceState::Ready(status) => {
            service_notify::send(&[NotifyState::Ready, NotifyState::Status(status)]);
        }
        ServiceState::Reloading => service_notify::reloading(),
        ServiceState::Status(status) => service_notify::send(&[NotifyState::Status(status)]),
        ServiceState::Watchdog => service_notify::send(&[NotifyState::Watchdog]),
        ServiceState::Stopping => {
            service_notify::send(&[NotifyState::Stopping, NotifyState::Status("stopping")]);
        }
    }
}
