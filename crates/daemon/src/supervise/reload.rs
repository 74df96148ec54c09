//! Reads the configuration again while the tracker runs, after SIGHUP or a request of the admin
//! API. Either all changes apply at once, or the file has a problem and nothing changes.

use std::sync::Arc;
use std::thread;

use crossbeam_channel::{Receiver, Sender, unbounded};

use crate::host_check::{self, refusals};
use crate::process::notify;
use onrush_config::{Flags, Host, Refused, Settings};
use onrush_control::api::admin::ReloadReport;
use onrush_control::request::Responder;
use onrush_control::view::Compare;
use onrush_control::{TOKEN_KEY, Token};
use onrush_store::lists::journal::{Journal, ReplayedList};
use onrush_tracker::access::Lists;

/// A configuration read without problems.
#[derive(Debug)]
pub struct Loaded {
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

/// Reads the configuration on a thread of its own, since lists of millions of entries take seconds.
pub struct Reload {
    flags: Flags,
    pub(super) host: Host,
    sender: Sender<Result<Loaded, String>>,
    /// Receives configurations read, or their problems. Call [`finish`](Self::finish) after each.
    pub(super) loaded: Receiver<Result<Loaded, String>>,
    /// Whether the configuration is being read.
    pub(super) loading: bool,
    /// The requests that the current reading serves.
    waiting: Requests,
    /// Requests for the next reading, if the configuration is to be read once more afterwards.
    later: Option<Requests>,
}

/// Requests that one reading of the configuration serves.
#[derive(Default)]
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
    /// For a tracker that was started with these flags on this host.
    pub fn new(flags: Flags, host: Host) -> Self {
        let (sender, loaded) = unbounded();
        let (loading, waiting, later) = (false, Requests::default(), None);
        Self { flags, host, sender, loaded, loading, waiting, later }
    }

    /// Starts to read the configuration. If it is being read already, it is read once more
    /// afterwards, since the file may have changed. `by` says in the log who requests it; if
    /// `forced`, a list that lost most of its entries is accepted.
    pub fn start(
        &mut self,
        by: &str,
        forced: bool,
        journal: Option<&Journal>,
        responder: Option<Responder<ReloadResult>>,
    ) {
        if self.loading {
            self.later.get_or_insert_default().add(by, forced, responder);
            log::info!("reload requested by {by}: it follows the one in progress");
            return;
        }
        let with_force = if forced { " with force" } else { "" };
        log::info!("reload requested by {by}{with_force}: reading the configuration");
        self.waiting.add(by, forced, responder);
        self.load(journal);
    }

    fn load(&mut self, journal: Option<&Journal>) {
        let (flags, host, sender) = (self.flags.clone(), self.host.clone(), self.sender.clone());
        let journal = journal.cloned();
        let load = move || {
            // The receiver lives as long as the process.
            let _ = sender.send(load(&flags, &host, journal.as_ref()));
        };
        match thread::Builder::new().name("reload".into()).spawn(load) {
            Ok(_) => self.loading = true,
            Err(error) => {
                let why = format!("reload failed: cannot start a thread: {error}");
                log::error!("{why}");
                self.respond(&Err(why));
            }
        }
    }

    /// Senders of the requests for the current reading.
    pub(super) fn requested_by(&self) -> String {
        self.waiting.senders.join(" and ")
    }

    /// The message for a value that the host refuses, with its place.
    pub(super) fn problem(&self, refused: Refused) -> String {
        self.flags.places().problems([refused]).to_string()
    }

    /// Compares the configuration, read again, with settings.
    pub fn comparison(&self) -> Compare {
        let (flags, host) = (self.flags.clone(), self.host.clone());
        Box::new(move |running| running.differences(Settings::load(&flags, &host)?.0, &host))
    }

    /// Whether the current reading is forced.
    pub(super) fn is_forced(&self) -> bool {
        self.waiting.forced
    }

    fn respond(&mut self, result: &ReloadResult) {
        let Requests { responders, .. } = std::mem::take(&mut self.waiting);
        responders.into_iter().for_each(|responder| responder.respond(result.clone()));
    }

    /// Responds with the result of the current reading, and starts the next one if requested.
    pub fn finish(&mut self, result: &ReloadResult, journal: Option<&Journal>) {
        self.loading = false;
        self.respond(result);
        if let Some(later) = self.later.take() {
            self.waiting = later;
            self.load(journal);
        }
    }
}

fn load(flags: &Flags, host: &Host, journal: Option<&Journal>) -> Result<Loaded, String> {
    let (settings, mut notices) =
        Settings::load(flags, host).map_err(|problems| problems.to_string())?;
    let problem = |refused| flags.places().problems([refused]).to_string();
    let token = Token::load(TOKEN_KEY, settings.admin.token_file.as_deref())
        .map_err(|error| problem(refusals::token(&error)))?;
    let mut lists = onrush_store::lists::load(&settings, &mut notify::progress())
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
    Ok(Loaded { settings, notices, lists, replayed, token })
}
