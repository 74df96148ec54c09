//! Puts a configuration that was read again into force, or reports why it was rejected.

use std::sync::Arc;
use std::time::Instant;

use super::Supervisor;
use super::list_diff::ListDiff;
use super::reload::{Loaded, ReloadResult};
use crate::host_check::refusals;
use crate::process::{log_output, notify};
use crate::start::Tracker;
use onrush_config::keys;
use onrush_config::reload::{Change, Changes, joined};
use onrush_config::settings::LogFormat;
use onrush_control::api::admin::ReloadReport;
use onrush_control::request::Responder;
use onrush_store::lists::MostEntries;
use onrush_tracker::access::origins::PartCounts;
use onrush_tracker::access::{AccessList, Lists};

impl Supervisor {
    /// Starts a reload, unless an upgrade is in progress. `by` says in the log who requests it; if
    /// `forced`, a list that lost most of its entries is accepted.
    pub(super) fn start_reload(
        &mut self,
        by: &str,
        forced: bool,
        responder: Option<Responder<ReloadResult>>,
    ) {
        if self.upgrade.is_running() {
            // The successor may have read the former configuration.
            let why = "an upgrade is under way: reload when it is over";
            log::warn!("reload requested by {by}: {why}");
            if let Some(responder) = responder {
                responder.respond(Err(why.to_owned()));
            }
            return;
        }
        notify::reloading();
        self.reload.start(by, forced, self.tracker.state.journal.as_ref(), responder);
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
        if self.tracker.state.journal.is_some() {
            // The next reload finds these changes in the journal.
            self.list_changes.since_reload.clear();
        }
        self.reload.finish(&result, self.tracker.state.journal.as_ref());
        self.ready_unless_loading();
    }

    /// Ends the reload for the service manager, unless another one has begun.
    fn ready_unless_loading(&self) {
        if !self.reload.loading {
            self.lifeline.ready();
        }
    }

    fn apply(&mut self, mut loaded: Loaded) -> Result<ReloadReport, String> {
        // Keys that change now may contradict the running values of keys that need a restart.
        let Changes { settings, mut changed, restart } =
            Changes::new(&self.settings, loaded.settings, &self.reload.host)
                .map_err(|problems| problems.to_string())?;
        self.repeat_list_changes(&mut loaded.lists);
        self.tracker.most_entries = match self.reload.is_forced() {
            true => MostEntries::of(&loaded.lists),
            false => {
                let blocked = Some(&*self.tracker.lists.blocked);
                let most = &self.tracker.most_entries;
                most.with(&settings, blocked, &loaded.lists)
                    .map_err(|error| self.reload.problem(refusals::list(&error, &settings)))?
            }
        };
        self.compact_journal(loaded.replayed.as_ref());
        let former_list = self.apply_lists(loaded.lists, &mut changed);
        self.compile_blocks();
        log::set_max_level(settings.log.level);
        log_output::set_json(settings.log.format == LogFormat::Json);
        self.watch.update(&settings);
        self.tracker.snapshots.set_interval(settings.snapshot.every);
        let former = std::mem::replace(&mut self.settings, Arc::new(settings));
        let (overload, now) = (&mut self.tracker.overload, Instant::now());
        let former_interval = overload.pressure(&former).interval;
        if overload.pressure(&self.settings).interval < former_interval {
            overload.commit(&former, former_interval, now);
        }
        self.publish_rules();
        self.tracker.admin.set_token(loaded.token);
        let mut notices: Vec<String> = loaded.notices.iter().map(ToString::to_string).collect();
        notices.extend(self.tracker.lists.access.warning().map(str::to_owned));
        report(&self.reload.requested_by(), &notices, &changed, &restart);
        // Even of an unchanged list, so that a reload repeats a purge that has failed.
        self.purge.start(&self.tracker.lists.access, former_list, now);
        Ok(ReloadReport { changed: keys_of(changed), restart: keys_of(restart), notices })
    }

    /// Applies the changes that were made while these lists were read.
    fn repeat_list_changes(&self, loaded: &mut Lists) {
        match self.list_changes.of_kind_since_reload(loaded.access.kind()).as_slice() {
            [] => {}
            changes => loaded.access = Arc::new(loaded.access.with(changes)),
        }
    }

    /// Puts lists into force. Returns the former list of info hashes. A changed file is added to
    /// the `changed` keys, unless one of its table is there.
    fn apply_lists(&mut self, loaded: Lists, changed: &mut Vec<Change>) -> Arc<AccessList> {
        let lists = &mut self.tracker.lists;
        let former = lists.access.clone();
        let before = MostEntries::of(lists);
        let mut add = |keys: &[&str]| {
            if !changed.iter().any(|change| keys.contains(&change.key.as_str())) {
                let what = "other entries".to_owned();
                let of = |key: &&str| Change { key: (*key).to_owned(), what };
                changed.extend(keys.last().map(of));
            }
        };
        let mut difference = String::new();
        if *loaded.access != *former {
            difference = ListDiff::between(&former, &loaded.access).to_string();
            let names = |list: &AccessList| -> Vec<_> {
                list.parts().iter().map(|part| part.name.clone()).collect()
            };
            if names(&loaded.access) != names(&former) {
                // The counters are by number.
                lists.forbidden = Arc::new(PartCounts::new(self.settings.placement.workers()));
            }
            lists.access = loaded.access;
            add(&["access.mode", "access.info_hashes", "access.error", "access.files"]);
        }
        if loaded.blocked != lists.blocked {
            lists.blocked = loaded.blocked;
            add(&["access.blocked", "access.blocked_file"]);
        }
        let now = MostEntries::of(lists);
        log_length("info hashes", before.info_hashes, now.info_hashes, &difference);
        log_length("blocked addresses", before.blocks, now.blocks, "");
        former
    }

    /// Sends the rules in force to workers, and shows them in the view.
    pub(super) fn publish_rules(&self) {
        let Tracker { lists, overload, running, .. } = &self.tracker;
        let rules = overload.rules(&self.settings, lists);
        if let Err(error) = running.orders().update_rules(&Arc::new(rules)) {
            log::error!("{error}: it keeps the former configuration");
        }
        self.view.update(|shown| {
            shown.settings = self.settings.clone();
            shown.lists = lists.clone();
            shown.overload = overload.pressure(&self.settings);
        });
    }
}

fn log_length(name: &str, before: usize, now: usize, difference: &str) {
    if before + now > 0 {
        let separator = if difference.is_empty() { "" } else { "; " };
        log::info!(
            "list of {name}: {before} entries before the reload, {now} now{separator}{difference}"
        );
    }
}

fn keys_of(changes: Vec<Change>) -> Vec<String> {
    changes.into_iter().map(|change| change.key).collect()
}

fn report(by: &str, notices: &[String], changed: &[Change], restart: &[Change]) {
    for notice in notices {
        log::warn!("{notice}");
    }
    match changed {
        [] => log::info!("configuration reloaded by {by}: nothing has changed"),
        changes => log::info!("configuration reloaded by {by}: {}", joined(changes)),
    }
    let (upgrade, restart): (Vec<&Change>, Vec<&Change>) =
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
