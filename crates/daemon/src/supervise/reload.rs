//! Reads the configuration again while the tracker runs, after SIGHUP or a request of the admin
//! API. Either all changes apply at once, or the file has a problem and nothing changes.

use std::io;
use std::sync::Arc;
use std::thread;

use crossbeam_channel::Sender;

use crate::effect::{Effect, Effects};
use crate::host_check::{self, refusals};
use crate::process::service_manager;
use onrush_config::{Flags, Host, Refused, Settings};
use onrush_control::api::admin::ReloadReport;
use onrush_control::in_force::differences;
use onrush_control::request::Responder;
use onrush_control::view::Compare;
use onrush_control::{TOKEN_KEY, Token};
use onrush_store::lists::journal::{Journal, ReplayedList};
use onrush_tracker::access::Lists;

/// A configuration read without problems.
#[derive(Debug)]
pub struct LoadedConfig {
    /// Its settings on this host.
    pub settings: Settings,
    /// Notices for the operator.
    pub notices: Vec<String>,
    /// Its lists, with the changes of the journal.
    pub lists: Lists,
    /// The journal, and the list with its changes, not merged; `None` without a journal.
    pub replayed: Option<ReplayedList>,
    /// The token of the admin API.
    pub token: Option<Token>,
}

/// Reloads: at most one reading of the configuration at a time.
#[derive(Debug, Default)]
pub(super) struct Reload {
    /// Whether the configuration is being read.
    is_loading: bool,
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

/// The outcome of a reload, or the problems of the configuration.
pub type ReloadResult = Result<ReloadReport, String>;

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

    /// Whether the configuration is being read.
    pub(super) fn is_loading(&self) -> bool {
        self.is_loading
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

/// The source of the configuration: the command line on this host.
#[derive(Clone, Debug)]
pub struct ConfigSource {
    /// The flags of the command line, with the place of the file.
    pub flags: Flags,
    /// The host.
    pub host: Host,
}

impl ConfigSource {
    /// Reads the configuration on a thread of its own, since lists of millions of entries take
    /// seconds.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub(crate) fn load(
        &self,
        journal: Option<&Journal>,
        to: Sender<Result<LoadedConfig, String>>,
    ) -> io::Result<()> {
        let (source, journal) = (self.clone(), journal.cloned());
        let load = move || {
            // The receiver lives as long as the process.
            let _ = to.send(load(&source.flags, &source.host, journal.as_ref()));
        };
        thread::Builder::new().name("reload".into()).spawn(load).map(drop)
    }

    /// Compares the configuration, read again, with settings.
    pub(crate) fn comparison(&self) -> Compare {
        let Self { flags, host } = self.clone();
        Box::new(move |running| differences(running, Settings::load(&flags, &host)?.0, &host))
    }

    /// The message for a value that the host refuses, with its place.
    pub(super) fn problem(&self, refused: Refused) -> String {
        self.flags.places().problems([refused]).to_string()
    }
}

fn load(flags: &Flags, host: &Host, journal: Option<&Journal>) -> Result<LoadedConfig, String> {
    let (settings, mut notices) =
        Settings::load(flags, host).map_err(|problems| problems.to_string())?;
    let problem = |refused| flags.places().problems([refused]).to_string();
    let token = Token::load(TOKEN_KEY, settings.admin.token_file.as_deref())
        .map_err(|error| problem(refusals::token(&error)))?;
    let mut lists = onrush_store::lists::load(&settings, &mut service_manager::progress())
        .map_err(|error| problem(refusals::list(&error, &settings)))?;
    notices.extend(host_check::export(&settings).map(|refused| refused.to_string()));
    let replayed = journal.map(|journal| journal.replay((*lists.access).clone()));
    if let Some(replayed) = &replayed {
        if replayed.unreadable {
            return Err(replayed.warning.clone().unwrap_or_default());
        }
        notices.extend(replayed.warning.clone());
        lists.access = Arc::new(replayed.compacted());
    }
    Ok(LoadedConfig { settings, notices, lists, replayed, token })
}
