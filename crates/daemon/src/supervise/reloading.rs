//! The configuration that was read again comes into force, or the log and whoever asked are told why not.

use std::sync::Arc;
use std::time::Instant;

use super::Supervisor;
use crate::process::service;
use crate::reload::{Fresh, ONLY_A_RESTART, Settled, Told};
use onrush_control::request::{Reloaded, Responder};
use onrush_tracker::access::{AccessList, Lists};

impl Supervisor {
    /// The configuration was read: puts it into force or says what is wrong with it.
    pub(super) fn reloaded(&mut self, read: Result<Fresh, String>) {
        let result = match read {
            Ok(fresh) => {
                self.shorten_journal(fresh.resumed.as_ref());
                Ok(self.apply(fresh))
            }
            Err(problems) => {
                log::error!("the configuration is wrong, and what was in force stays:\n{problems}");
                Err(problems)
            }
        };
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

    /// Puts what was read into force.
    fn apply(&mut self, fresh: Fresh) -> Reloaded {
        let Settled { settings, mut changed, restart } =
            Settled::new(&self.settings, fresh.settings);
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
        say(&notices, &changed, &restart);
        // After every reload, also of the same list: whatever went wrong with the last time is mended so.
        self.enforcement.begin(&self.tracker.lists.access, former, Instant::now());
        Reloaded { changed, restart, notices }
    }

    /// Puts lists that were read into force, and what was changed meanwhile. Returns the former one of info
    /// hashes.
    fn take_over(&mut self, read: Lists, changed: &mut Vec<&'static str>) -> Arc<AccessList> {
        let lists = &mut self.tracker.lists;
        let former = lists.access.clone();
        let meanwhile = self.changes.unread(read.access.kind());
        let access = match meanwhile.as_slice() {
            [] => read.access,
            changes => Arc::new(read.access.with(changes)),
        };
        if *access != *former {
            lists.access = access;
            if !changed.contains(&"access") {
                changed.push("access.file");
            }
        }
        if read.blocked != lists.blocked {
            lists.blocked = read.blocked;
            if !changed.contains(&"access.blocked") {
                changed.push("access.blocked_file");
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

fn say(notices: &[String], changed: &[&str], restart: &[&str]) {
    for notice in notices {
        log::warn!("{notice}");
    }
    match changed {
        [] => log::info!("the configuration was read again: nothing has changed"),
        keys => log::info!("the configuration was read again; changed: {}", keys.join(", ")),
    }
    let (upgrade, restart): (Vec<&str>, Vec<&str>) =
        restart.iter().partition(|key| !ONLY_A_RESTART.contains(key));
    if !upgrade.is_empty() {
        log::warn!(
            "the old values stay in force until an upgrade (`onrush ctl upgrade`) or a restart for: {}",
            upgrade.join(", ")
        );
    }
    if !restart.is_empty() {
        log::warn!("the old values stay in force until a restart for: {}", restart.join(", "));
    }
}
