//! Puts a configuration that was read again into force, or reports why it was rejected. Either all
//! changes apply at once, or the file has a problem and nothing changes.

use std::sync::Arc;

use log::LevelFilter;

use super::Supervisor;
use super::config_source::LoadedConfig;
use super::reload::ReloadResult;
use crate::access::ListReload;
use crate::effect::{Effect, Effects, ServiceState};
use crate::host_check::refusals;
use crate::time::Time;
use onrush_config::keys;
use onrush_config::reload::{Changes, KeyChange, joined};
use onrush_control::api::Problem;
use onrush_control::api::admin::ReloadReport;
use onrush_control::api::stats::LastReload;
use onrush_control::request::Responder;

/// Why a configuration is not put into force: the successor may have read another one.
const UPGRADING: &str = "an upgrade is under way: reload when it is over";

impl Supervisor {
    /// Starts a reload, unless an upgrade is in progress. `by` says in the log who requests it; if
    /// `forced`, a list that lost most of its entries is accepted.
    pub(super) fn start_reload(
        &mut self,
        by: &str,
        forced: bool,
        responder: Option<Responder<ReloadResult>>,
        time: Time,
        effects: &mut Effects,
    ) {
        if self.upgrade.is_running() {
            self.last_reload = LastReload { successful: false, time: time.unix };
            effects.push(Effect::Show);
            effects.warn(format!("reload requested by {by}: {UPGRADING}"));
            if let Some(responder) = responder {
                effects.reply(responder, Err(Problem::conflict(UPGRADING)));
            }
            return;
        }
        effects.push(Effect::Notify(ServiceState::Reloading));
        self.reload.start(by, forced, responder, effects);
    }

    /// Applies a configuration that was read, or reports its problems.
    pub(super) fn finish_reload(
        &mut self,
        loaded: Result<LoadedConfig, String>,
        time: Time,
        effects: &mut Effects,
    ) {
        let result = match self.upgrade.is_running() {
            // The successor also continues to read the journal at the length that it has seen.
            true => Err(Problem::conflict(UPGRADING)),
            false => loaded
                .and_then(|loaded| self.apply(loaded, time, effects))
                .map_err(|problems| Problem::rejected(&problems)),
        };
        self.last_reload = LastReload { successful: result.is_ok(), time: time.unix };
        if let Err(Problem { error, .. }) = &result {
            let by = self.reload.requested_by();
            effects.error(format!("reload by {by} was rejected: {error}"));
            effects.push(Effect::Show);
        }
        self.access.reload_ended();
        self.reload.finish(&result, effects);
        // The service manager waits for the last of successive reloads.
        if !self.reload.is_loading {
            self.notifications.ready(effects);
        }
    }

    /// Puts a configuration into force: every owner its keys.
    fn apply(
        &mut self,
        loaded: LoadedConfig,
        time: Time,
        effects: &mut Effects,
    ) -> Result<ReloadReport, String> {
        // Keys that change now may contradict the running values of keys that need a restart.
        let Changes { settings, mut changed, restart } =
            Changes::new(&self.settings, loaded.settings, &self.source.host)
                .map_err(|problems| problems.to_string())?;
        let forced = self.reload.is_forced();
        let (read, replayed) = (loaded.lists, loaded.replayed);
        let lists = ListReload { settings: &settings, read, replayed, forced };
        self.access
            .reconfigure(lists, &mut changed, time.now, effects)
            .map_err(|error| self.source.problem(refusals::list(&error, &settings)))?;
        self.settings = Arc::new(settings);
        self.log_level_by = None;
        // The entry about another level is written at every level.
        let level = self.settings.log.level;
        let is_other = changed.iter().any(|change| change.key == keys::LOG_LEVEL);
        let for_entry = if is_other { level.max(LevelFilter::Info) } else { level };
        effects.push(Effect::SetLog(self.log_control(for_entry)));
        self.overload.reconfigure(&self.settings, time.now);
        effects.push(Effect::ReconfigureFiles(self.settings.clone()));
        effects.push(Effect::SetToken(loaded.token));
        let of_certificates = loaded.certificates.as_ref();
        let of_certificates = of_certificates.map(|it| it.certificates.warnings(time.unix));
        self.certificates.reconfigure(loaded.certificates, effects);
        effects.push(Effect::Publish);
        let mut notices = loaded.notices;
        notices.extend(of_certificates.into_iter().flatten().map(|warning| warning.text));
        notices.extend(self.access.lists().access.warning().map(str::to_owned));
        notices.extend(self.access.overrides().map(|overrides| overrides.to_string()));
        notices.extend(self.access.unrecorded());
        report(&self.reload.requested_by(), &notices, &changed, &restart, effects);
        effects.push(Effect::SetLog(self.log_control(level)));
        Ok(ReloadReport { changed: keys_of(changed), restart: keys_of(restart), notices })
    }
}

fn keys_of(changes: Vec<KeyChange>) -> Vec<String> {
    changes.into_iter().map(|change| change.key).collect()
}

fn report(
    by: &str,
    notices: &[String],
    changed: &[KeyChange],
    restart: &[KeyChange],
    effects: &mut Effects,
) {
    notices.iter().for_each(|notice| effects.warn(notice.as_str()));
    effects.info(match changed {
        [] => format!("configuration reloaded by {by}: nothing has changed"),
        changes => format!("configuration reloaded by {by}: {}", joined(changes)),
    });
    let (upgrade, restart): (Vec<&KeyChange>, Vec<&KeyChange>) =
        restart.iter().partition(|change| !keys::is_restart_only(&change.key));
    if !upgrade.is_empty() {
        effects.warn(format!(
            "the old values stay in force until an upgrade (`onrush ctl upgrade`) or a restart \
             for: {}",
            joined(upgrade)
        ));
    }
    if !restart.is_empty() {
        let changes = joined(restart);
        effects.warn(format!("the old values stay in force until a restart for: {changes}"));
    }
}
