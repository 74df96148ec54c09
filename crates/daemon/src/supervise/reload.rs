//! Requests to read the configuration again, of SIGHUP and of the admin API, while the tracker
//! runs.

use crate::effect::{Effect, Effects};
use onrush_control::api::Problem;
use onrush_control::api::admin::ReloadReport;
use onrush_control::request::Responder;

/// Reloads: at most one reading of the configuration at a time.
#[derive(Debug, Default)]
pub(super) struct Reload {
    /// Whether the configuration is being read.
    pub(super) is_loading: bool,
    /// The requests that the current reading serves.
    waiting: Requests,
    /// Requests for the next reading, if the configuration is to be read once more afterwards.
    later: Option<Requests>,
}

/// Requests that one reading of the configuration serves.
#[derive(Debug, Default)]
struct Requests {
    /// Their senders, each once.
    senders: Vec<String>,
    /// Whether one of them is forced. The others then get the result that they would get after it.
    forced: bool,
    responders: Vec<Responder<ReloadResult>>,
}

impl Requests {
    fn add(&mut self, sender: &str, forced: bool, responder: Option<Responder<ReloadResult>>) {
        if !self.senders.iter().any(|known| known == sender) {
            self.senders.push(sender.to_owned());
        }
        self.forced |= forced;
        self.responders.extend(responder);
    }
}

/// The outcome of a reload, or why the configuration is not put into force.
pub type ReloadResult = Result<ReloadReport, Problem>;

impl Reload {
    /// Starts to read the configuration. If it is being read already, it is read once more
    /// afterwards, since the file may have changed. `by` says in the log who requests it; if
    /// `forced`, a list that lost most of its entries is accepted.
    pub(super) fn start(
        &mut self,
        by: &str,
        forced: bool,
        responder: Option<Responder<ReloadResult>>,
        effects: &mut Effects,
    ) {
        if self.is_loading {
            self.later.get_or_insert_default().add(by, forced, responder);
            effects.info(format!("reload requested by {by}: it follows the one in progress"));
            return;
        }
        let with_force = if forced { " with force" } else { "" };
        effects.info(format!("reload requested by {by}{with_force}: reading the configuration"));
        self.waiting.add(by, forced, responder);
        self.load(effects);
    }

    fn load(&mut self, effects: &mut Effects) {
        self.is_loading = true;
        effects.push(Effect::Load);
    }

    /// Senders of the requests for the current reading.
    pub(super) fn requested_by(&self) -> String {
        self.waiting.senders.join(" and ")
    }

    /// Whether the current reading is forced.
    pub(super) fn is_forced(&self) -> bool {
        self.waiting.forced
    }

    /// Responds with the result of the current reading, and starts the next one if requested.
    pub(super) fn finish(&mut self, result: &ReloadResult, effects: &mut Effects) {
        self.is_loading = false;
        for responder in std::mem::take(&mut self.waiting).responders {
            effects.reply(responder, result.clone());
        }
        if let Some(later) = self.later.take() {
            self.waiting = later;
            self.load(effects);
        }
    }
}
