//! The supervisor of a tracker that serves: a state machine that turns [`Event`]s into
//! [`Effects`], with passed time and without I/O, so that a simulation runs the same one. The main
//! loop waits for events, and the executor carries the effects out.
//!
//! State has owners, and each key of the configuration that a reload changes names its owner:
//! [`AccessControl`], [`Overload`], [`Upgrade`], [`CertificateControl`], and
//! [`StateFiles`](crate::state_files::StateFiles), which writes.
//!
//! | module | contents |
//! |---|---|
//! | [`event`] | the inputs: signals, requests, results of threads, seconds |
//! | [`config_source`] | reads the configuration |
//! | [`reload`], `apply` | it is read again on request, compared, and put into force |
//! | `clocks` | a process that did not run, and a wall clock that was set |
//! | `service_notifications` | ready, status and watchdog for the service manager |
//! | `totals_log` | totals in the log |

mod apply;
mod clocks;
pub mod config_source;
pub mod event;
pub mod reload;
mod service_notifications;
mod totals_log;

use std::sync::Arc;
use std::time::{Duration, Instant};

use log::LevelFilter;

use crate::access::{AccessControl, ConcurrentWork};
use crate::certificates::CertificateControl;
use crate::effect::{Effect, Effects, End, LogControl, ServiceState};
use crate::notice::{Notice, Repeats};
use crate::overload::{Overload, ProcessState};
use crate::process::signals::Signal;
use crate::time::Time;
use crate::upgrade::predecessor::HandoffEvent;
use crate::upgrade::progress::Upgrade;
use clocks::Clocks;
use config_source::ConfigSource;
use event::Event;
use onrush_config::Settings;
use onrush_config::keys::level_word;
use onrush_config::settings::LogFormat;
use onrush_control::api::stats::LastReload;
use onrush_control::caller::Caller;
use onrush_control::request::Request;
use onrush_control::stall::{STALL_REPORTED, StallDetector};
use onrush_control::view::InForce;
use onrush_replica::handoff::InheritedState;
use onrush_text::times::duration;
use onrush_tracker::member::Member;
use onrush_tracker::rules::Rules;
use onrush_tracker::running::Addresses;
use reload::Reload;
use service_notifications::ServiceNotifications;
use totals_log::Totals;

/// How long an end that is requested while the sockets are released waits for the outcome of the
/// handoff.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

/// The supervisor of a tracker that serves.
pub struct Supervisor {
    settings: Arc<Settings>,
    source: ConfigSource,
    access: AccessControl,
    overload: Overload,
    upgrade: Upgrade,
    certificates: CertificateControl,
    reload: Reload,
    last_reload: LastReload,
    /// All members, always in the same order.
    members: Arc<[Member]>,
    clocks: Clocks,
    stalls: StallDetector,
    notifications: ServiceNotifications,
    totals: Totals,
    /// The sender of the request that has changed the level of the log until the next reload.
    log_level_by: Option<Caller>,
    began: Instant,
    /// An end that waits for the outcome of a handoff, and its deadline.
    ending: Option<(End, Instant)>,
}

/// The owners of a tracker that has started.
pub struct Owners {
    /// The lists in force.
    pub access: AccessControl,
    /// Longer intervals, the kernel's filter, and the interval commitment.
    pub overload: Overload,
    /// The upgrade in progress, if there is one.
    pub upgrade: Upgrade,
    /// The certificates of HTTPS.
    pub certificates: CertificateControl,
}

impl Supervisor {
    /// For members that serve these addresses with these settings from now on. `watchdog` is the
    /// timeout of the service manager's watchdog, if it has one for this process.
    pub fn new(
        owners: Owners,
        (settings, source): (Arc<Settings>, ConfigSource),
        members: Arc<[Member]>,
        (addresses, watchdog): (&Addresses, Option<Duration>),
        time: Time,
    ) -> Self {
        let Time { now, unix } = time;
        let Owners { access, overload, upgrade, certificates } = owners;
        Self {
            access,
            overload,
            upgrade,
            certificates,
            reload: Reload::default(),
            last_reload: LastReload { successful: true, time: unix },
            members,
            clocks: Clocks::new(time),
            stalls: StallDetector::new(now),
            notifications: ServiceNotifications::new(addresses, watchdog, now),
            totals: Totals::new(&settings, now),
            log_level_by: None,
            settings,
            source,
            began: now,
            ending: None,
        }
    }

    /// The settings, the lists and other state in force, for other threads.
    pub fn in_force(&self) -> InForce {
        InForce {
            settings: self.settings.clone(),
            log_level_by: self.log_level_by,
            lists: self.access.lists().clone(),
            overrides: self.access.overrides(),
            most_entries: self.access.entry_high_water_mark().files.clone(),
            overload: self.overload.pressure(),
            last_reload: self.last_reload,
            certificates: self.certificates.shown(),
        }
    }

    /// The rules in force.
    pub fn rules(&self) -> Rules {
        self.overload.rules(&self.settings, self.access.lists())
    }

    /// The lists in force, and what decides how they change.
    pub fn access(&self) -> &AccessControl {
        &self.access
    }

    /// The tracker begins to serve.
    pub fn begin(&self) -> Effects {
        let mut effects = Effects::default();
        self.notifications.ready(&mut effects);
        effects
    }

    /// Handles an event. The effects are to be carried out before the next event.
    pub fn on(&mut self, event: Event, time: Time) -> Effects {
        let mut effects = Effects::default();
        let out = &mut effects;
        match event {
            Event::Signal(signal) => self.on_signal(signal, time, out),
            Event::Request(request) => self.on_request(request, time, out),
            Event::Tick(state) => self.tick(&state, time, out),
            Event::Loaded(loaded) => self.finish_reload(loaded.map(|loaded| *loaded), time, out),
            Event::Recorded(result) => self.access.recorded(result, time, out),
            Event::Merged(list) => self.access.merged(list.as_ref(), out),
            Event::Certificates(look) => self.certificates.looked(look, time, out),
            Event::Removed(swarms) => AccessControl::removed(swarms, out),
            Event::Launched(result) => self.upgrade.launched(result, time.now, out),
            Event::Handoff(event) => self.on_handoff(event, time, out),
            Event::SuccessorExited(exited) => self.upgrade.successor_exited(&exited, out),
            Event::WorkerFailed(failure) => self.end(End::WorkerFailed(failure), time, out),
        }
        effects
    }

    fn on_signal(&mut self, signal: Signal, time: Time, effects: &mut Effects) {
        match signal {
            Signal::Reload => self.start_reload("SIGHUP", false, None, time, effects),
            Signal::Export => effects.push(Effect::Export(None)),
            Signal::Upgrade(at) => self.upgrade.on_signal(at, effects),
            Signal::Stop(by) => {
                // At once: the workers and the snapshot take a while.
                let served = time.now.duration_since(self.began).as_secs_f64();
                effects.info(format!("stopping after {}: {by}", duration(served)));
                self.end(End::Stopped, time, effects);
            }
        }
    }

    fn on_request(&mut self, request: Request, time: Time, effects: &mut Effects) {
        let concurrent = self.concurrent();
        match request {
            Request::Reload { force, caller, responder } => {
                self.start_reload(&caller.to_string(), force, Some(responder), time, effects);
            }
            Request::Export(responder) => effects.push(Effect::Export(Some(responder))),
            Request::Snapshot(responder) => effects.push(Effect::Snapshot(responder)),
            Request::LogLevel { level, caller, responder } => {
                let former = self.change_log_level(level, caller, effects);
                effects.reply(responder, former);
            }
            Request::Upgrade { force, caller, responder } => {
                self.upgrade.start(caller.to_string(), force, Some(responder), effects);
            }
            Request::ChangeList { changes, caller, responder } => {
                let (limit, change) =
                    (self.settings.limits.list_entries, (changes, caller, responder));
                self.access.change(change, limit, concurrent, time, effects);
            }
            Request::ListChanges { from, limit, responder } => {
                effects.reply(responder, self.access.shown_changes(from, limit));
            }
            Request::Blocks(responder) => {
                effects.reply(responder, self.access.shown_blocks(time));
            }
            Request::Block { block, caller, responder } => {
                let block = (*block, caller);
                self.access.block(block, responder, concurrent, time, effects);
            }
            Request::Unblock { prefix, caller, responder } => {
                let prefix = (prefix.as_str(), caller);
                self.access.unblock(prefix, responder, concurrent, time, effects);
            }
        }
    }

    /// Changes the lowest level that is logged, until the next reload. Returns the former one.
    fn change_log_level(
        &mut self,
        level: LevelFilter,
        caller: Caller,
        effects: &mut Effects,
    ) -> LevelFilter {
        let former = self.settings.log.level;
        self.settings = Arc::new(self.settings.with_log_level(level));
        self.log_level_by = Some(caller);
        // The entry is written at every level.
        effects.push(Effect::SetLog(self.log_control(LevelFilter::Info)));
        let (old, new) = (level_word(former), level_word(level));
        effects.info(format!("log level: {old} -> {new} until the next reload, by {caller}"));
        effects.push(Effect::SetLog(self.log_control(level)));
        effects.push(Effect::Show);
        former
    }

    fn log_control(&self, level: LevelFilter) -> LogControl {
        LogControl {
            level,
            json: self.settings.log.format == LogFormat::Json,
            warnings_per_minute: self.settings.limits.warnings_per_minute,
        }
    }

    /// Work for which a change of the lists may be too late.
    fn concurrent(&self) -> ConcurrentWork {
        ConcurrentWork {
            reload: self.reload.is_loading,
            upgrade: self.upgrade.is_running(),
            is_releasing: self.upgrade.is_releasing(),
        }
    }

    fn on_handoff(&mut self, event: HandoffEvent, time: Time, effects: &mut Effects) {
        let Self { settings, access, overload, upgrade, .. } = self;
        let commitment = overload.full_commitment(time.now);
        let inherited = || InheritedState {
            commitment,
            unread: None,
            list_entries: access.entry_high_water_mark().clone(),
            values: settings.shown(),
        };
        if let Some(completed) = upgrade.on(event, commitment, inherited, time.now, effects) {
            effects.push(Effect::End(End::Handoff(completed)));
        } else if !self.upgrade.is_releasing()
            && let Some((end, _)) = self.ending.take()
        {
            self.end(end, time, effects);
        }
    }

    /// Ends; while the sockets are released to a successor, only after the handoff has completed,
    /// failed or timed out. A second request ends at once.
    fn end(&mut self, end: End, time: Time, effects: &mut Effects) {
        if self.upgrade.is_releasing() && self.ending.is_none() {
            self.ending = Some((end, time.now + RELEASE_TIMEOUT));
            return;
        }
        self.stop(end, time, effects);
    }

    fn stop(&self, end: End, time: Time, effects: &mut Effects) {
        effects.push(Effect::Notify(ServiceState::Stopping));
        self.overload.store_commitment(true, time.now, effects);
        effects.push(Effect::End(end));
    }

    /// Periodic work, once a second.
    fn tick(&mut self, state: &ProcessState, time: Time, effects: &mut Effects) {
        let (members, summary, now) = (self.members.clone(), &state.summary, time.now);
        let paused = self.clocks.tick(time, state.suspended, effects);
        let turns = members.iter().map(|member| member.metrics.turns.get());
        let stalled = self.stalls.observe(turns, now);
        if paused {
            self.overload.resumed(now);
        } else {
            warn_of_stalls(&members, &stalled, effects);
        }
        self.access.tick(&stalled, self.concurrent(), time, effects);
        self.notifications.tick(summary, &stalled, now, effects);
        // Once the sockets are released, the successor steers them.
        let is_steering = state.is_steering && !self.upgrade.is_releasing();
        let state = ProcessState { is_steering, ..*state };
        self.overload.tick(&members, &stalled, &state, now, effects);
        self.totals.tick(summary, self.settings.log.totals_every, now, effects);
        self.upgrade.tick(now, effects);
        self.certificates.tick(time, effects);
        if let Some((end, _)) = self.ending.take_if(|(_, deadline)| now >= *deadline) {
            self.stop(end, time, effects);
        }
    }
}

fn warn_of_stalls(members: &[Member], stalled: &[Duration], effects: &mut Effects) {
    for (Member { name, .. }, stalled) in members.iter().zip(stalled) {
        if *stalled >= STALL_REPORTED {
            let notice = Notice::warn(format!(
                "{name} has not taken a turn for {} s: its vCPU may be taken by others",
                stalled.as_secs()
            ));
            effects.notice(notice.with(Repeats::Limited("stall")));
        }
    }
}

#[cfg(test)]
mod tests;
