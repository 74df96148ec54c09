//! The configuration that was read again comes into force, or the log and whoever asked are told why not.

use std::sync::Arc;
use std::time::Instant;

use super::Supervisor;
use crate::process::service;
use crate::reload::{Fresh, Told};
use onrush_config::keys::{self, Applied};
use onrush_config::reload::Changes;
use onrush_control::request::{Reloaded, Responder};
use onrush_tracker::access::{AccessList, Lists};

impl Supervisor {
    /// The configuration was read: puts it into force or says what is wrong with it.
    pub(super) fn reloaded(&mut self, read: Result<Fresh, String>) {
        let result = match read {
            Ok(fresh) => self.apply(fresh),
            Err(problems) => Err(problems),
        };
        if let Err(problems) = &result {
            log::error!("the configuration is wrong, and the old one stays in force:\n{problems}");
        }
        self.changes.end_reading(self.tracker.journal.is_some());
        self.reload.taken(&result, self.tracker.journal.as_ref());
        self.ready_unless_reading();
    }

    /// Where it is read once more already, the manager hears of the end of that.
    fn ready_unless_reading(&self) {
        if !self.reload.is_reading() {
            self.lifeline.ready();
        }
    }

    /// Begins to read the configuration again.
    pub(super) fn reload_for(&mut self, who: &str, answer: Option<Responder<Told>>) {
        if self.upgrading.is_under_way() {
            // It may have read the configuration before it was changed, and would go by that.
            let why = "an upgrade is under way: reload when it is over";
            log::warn!("{who}: {why}");
            if let Some(answer) = answer {
                answer.respond(Err(why.to_owned()));
            }
            return;
        }
        service::reloading();
        self.reload.begin(who, self.tracker.journal.as_ref(), answer);
        self.ready_unless_reading();
    }

    /// Applies a configuration that was read.
    fn apply(&mut self, fresh: Fresh) -> Result<Reloaded, String> {
        let Changes { settings, mut changed, pending } =
            self.reload.compare(&self.settings, fresh.settings)?;
        self.shorten_journal(fresh.resumed.as_ref());
        let settings = Arc::new(settings);
        let (former_announce, told) = (self.settings.announce.clone(), self.pressure().interval);
        let former = self.take_over(fresh.lists, &mut changed);
        log::set_max_level(settings.log.level);
        self.watch.follow(&settings);
        self.tracker.snapshots.follow(settings.snapshot.every);
        self.settings = settings.clone();
        if self.pressure().interval < told {
            self.overload.hold(&former_announce, told, Instant::now());
        }
        self.announce_rules();
        if let Some(http) = &self.tracker.http {
            http.set_token(fresh.token);
        }
        let mut notices: Vec<String> = fresh.notices.iter().map(ToString::to_string).collect();
        notices.extend(self.tracker.lists.access.warning().map(str::to_owned));
        say(&notices, &changed, &pending);
        // After every reload, also of the same list: whatever went wrong with the last time is mended so.
        self.enforcement.begin(&self.tracker.lists.access, former, Instant::now());
        Ok(Reloaded { changed, restart: pending, notices })
    }

    /// Puts lists that were read into force, and what was changed meanwhile. Returns the former one of info
    /// hashes.
    fn take_over(&mut self, read: Lists, changed: &mut Vec<String>) -> Arc<AccessList> {
        let lists = &mut self.tracker.lists;
        let former = lists.access.clone();
        let meanwhile = self.changes.unread(read.access.kind());
        let access = match meanwhile.as_slice() {
            [] => read.access,
            changes => Arc::new(read.access.with(changes)),
        };
        if *access != *former {
            lists.access = access;
            let keys = ["access.mode", "access.info_hashes", "access.file"];
            if !changed.iter().any(|key| keys.contains(&key.as_str())) {
                changed.push("access.file".to_owned());
            }
        }
        if read.blocked != lists.blocked {
            lists.blocked = read.blocked;
            let keys = ["access.blocked", "access.blocked_file"];
            if !changed.iter().any(|key| keys.contains(&key.as_str())) {
                changed.push("access.blocked_file".to_owned());
            }
        }
        former
    }

    /// Workers and whoever looks on go by what is in force now.
    pub(super) fn announce_rules(&self) {
        let lists = &self.tracker.lists;
        let mut rules = self.settings.rules(lists);
        self.overload.press(&self.settings.overload, &mut rules);
        let rules = Arc::new(rules);
        if let Err(deaf) = self.tracker.running.orders().update_rules(&rules) {
            log::error!("{deaf}: it goes by the former configuration");
        }
        self.view.update(|shown| {
            shown.settings = self.settings.clone();
            shown.lists = lists.clone();
            shown.pressure = self.pressure();
        });
    }
}

fn say(notices: &[String], changed: &[String], pending: &[String]) {
    for notice in notices {
        log::warn!("{notice}");
    }
    match changed {
        [] => log::info!("the configuration was read again; no key has changed"),
        keys => log::info!("the configuration was read again; changed: {}", keys.join(", ")),
    }
    let (restart, upgrade): (Vec<&str>, Vec<&str>) = pending
        .iter()
        .map(String::as_str)
        .partition(|key| keys::applied(key) == Applied::OnRestart);
    if !upgrade.is_empty() {
        log::warn!(
            "unchanged until an upgrade (`onrush ctl upgrade`) or a restart: {}",
            upgrade.join(", ")
        );
    }
    if !restart.is_empty() {
        log::warn!("unchanged until a restart: {}", restart.join(", "));
    }
}
