//! Puts a configuration that was read again into force, or reports why it was rejected.

use std::sync::Arc;
use std::time::Instant;

use super::Supervisor;
use super::reload::{Loaded, ReloadResult};
use crate::host_check::refusals;
use crate::process::{log_output, notify};
use crate::start::Tracker;
use onrush_config::keys;
use onrush_config::reload::{Changes, KeyChange, joined};
use onrush_config::settings::LogFormat;
use onrush_control::api::admin::ReloadReport;
use onrush_control::request::Responder;

impl Supervisor {
    /// Starts a reload, unless an upgrade is in progress. `by` says in the log who requests it; if
    /// `forced`, a list that lost most of its entries is accepted.
    pub(super) fn start_reload(
        &mut self,
        by: &str,
        forced: bool,
        responder: Option<Responder<ReloadResult>>,
    ) {
        if self.tracker.upgrade.is_running() {
            // The successor may have read the former configuration.
            let why = "an upgrade is under way: reload when it is over";
            log::warn!("reload requested by {by}: {why}");
            if let Some(responder) = responder {
                responder.respond(Err(why.to_owned()));
            }
            return;
        }
        notify::reloading();
        self.reload.start(by, forced, self.tracker.access.journal(), responder);
        self.ready_unless_loading();
    }

    /// Applies a configuration that was read, or reports its problems.
    pub(super) fn finish_reload(&mut self, loaded: Result<Loaded, String>) {
        let result = loaded.and_then(|loaded| self.apply(loaded));
        if let Err(problems) = &result {
            let by = self.reload.requested_by();
            log::error!(
                "reload by {by} was rejected; the configuration in force stays:\n{problems}"
            );
        }
        self.tracker.access.reload_ended();
        self.reload.finish(&result, self.tracker.access.journal());
        self.ready_unless_loading();
    }

    /// Ends the reload for the service manager, unless another one has begun.
    fn ready_unless_loading(&self) {
        if !self.reload.loading {
            self.lifeline.ready();
        }
    }

    fn apply(&mut self, loaded: Loaded) -> Result<ReloadReport, String> {
        // Keys that change now may contradict the running values of keys that need a restart.
        let Changes { settings, mut changed, restart } =
            Changes::new(&self.settings, loaded.settings, &self.reload.host)
                .map_err(|problems| problems.to_string())?;
        let (forced, in_progress) = (self.reload.is_forced(), self.in_progress());
        let (read, replayed) = (loaded.lists, loaded.replayed.as_ref());
        let access = &mut self.tracker.access;
        access
            .reconfigure(&settings, read, replayed, forced, in_progress, &mut changed)
            .map_err(|error| self.reload.problem(refusals::list(&error, &settings)))?;
        log::set_max_level(settings.log.level);
        log_output::set_json(settings.log.format == LogFormat::Json);
        self.watch.update(&settings);
        self.tracker.files.reconfigure(&settings);
        let former = std::mem::replace(&mut self.settings, Arc::new(settings));
        let (overload, now) = (&mut self.tracker.overload, Instant::now());
        let former_interval = overload.pressure(&former).interval;
        if overload.pressure(&self.settings).interval < former_interval {
            overload.commit(&former, former_interval, now);
        }
        self.publish_rules();
        self.tracker.admin.set_token(loaded.token);
        let mut notices: Vec<String> = loaded.notices.iter().map(ToString::to_string).collect();
        notices.extend(self.tracker.access.lists().access.warning().map(str::to_owned));
        report(&self.reload.requested_by(), &notices, &changed, &restart);
        Ok(ReloadReport { changed: keys_of(changed), restart: keys_of(restart), notices })
    }

    /// Sends the rules in force to workers, and shows them in the view.
    pub(super) fn publish_rules(&self) {
        let Tracker { access, overload, running, .. } = &self.tracker;
        let rules = overload.rules(&self.settings, access.lists());
        if let Err(error) = running.orders().update_rules(&Arc::new(rules)) {
            log::error!("{error}; its configuration is unchanged");
        }
        self.view.update(|shown| {
            shown.settings = self.settings.clone();
            shown.lists = access.lists().clone();
            shown.overload = overload.pressure(&self.settings);
        });
    }
}

fn keys_of(changes: Vec<KeyChange>) -> Vec<String> {
    changes.into_iter().map(|change| change.key).collect()
}

fn report(by: &str, notices: &[String], changed: &[KeyChange], restart: &[KeyChange]) {
    for notice in notices {
        log::warn!("{notice}");
    }
    match changed {
        [] => log::info!("configuration reloaded by {by}: nothing has changed"),
        changes => log::info!("configuration reloaded by {by}: {}", joined(changes)),
    }
    let (upgrade, restart): (Vec<&KeyChange>, Vec<&KeyChange>) =
        restart.iter().partition(|change| !keys::is_restart_only(&change.key));
    if !upgrade.is_empty() {
        log::warn!(
            "the old values stay in force until an upgrade (`onrush ctl upgrade`) or a \
             restart for: {}",
            joined(upgrade)
        );
    }
    if !restart.is_empty() {
        log::warn!("the old values stay in force until a restart for: {}", joined(restart));
    }
}
