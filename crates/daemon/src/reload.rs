//! Reading the configuration again while the tracker runs (SIGHUP, or when asked over HTTP): all of what may change changes at
//! once, or, where something is wrong with the file, nothing does.

use std::sync::Arc;
use std::thread;

use crossbeam_channel::{Receiver, Sender, unbounded};

use crate::process::service;
use onrush_config::reload::Changes;
use onrush_config::{Flags, Host, Notice, Settings};
use onrush_control::Token;
use onrush_control::request::{Reloaded, Responder};
use onrush_store::lists::journal::{Journal, ReplayedList};
use onrush_tracker::access::Lists;

/// A configuration that was read and is right.
#[derive(Debug)]
pub struct Fresh {
    /// What it means here.
    pub settings: Settings,
    /// What the operator should know of it.
    pub notices: Vec<Notice>,
    /// The lists that it leads to, with the changes that the journal has.
    pub lists: Lists,
    /// What the journal was found to say, and the list after that, not merged; `None` without a journal.
    pub resumed: Option<ReplayedList>,
    /// The token of the admin API.
    pub token: Option<Token>,
}

/// Reads the configuration on a thread of its own, as lists of millions take seconds, while whoever watches
/// the workers goes on watching them.
pub struct Reload {
    args: Flags,
    host: Host,
    tell: Sender<Result<Fresh, String>>,
    read: Receiver<Result<Fresh, String>>,
    reading: bool,
    again: bool,
    /// Who is told of what is being read, and who of the time after.
    waiting: Vec<Responder<Told>>,
    later: Vec<Responder<Told>>,
}

/// What becomes of a reload: what it led to, or what is wrong with the configuration.
pub type Told = Result<Reloaded, String>;

impl Reload {
    /// For a tracker that was started with these flags on this host.
    pub fn new(args: Flags, host: Host) -> Self {
        let (tell, read) = unbounded();
        Self {
            args,
            host,
            tell,
            read,
            reading: false,
            again: false,
            waiting: Vec::new(),
            later: Vec::new(),
        }
    }

    /// Begins to read, as `who` asked for, and lets `answer` know what comes of it; where that is going on
    /// already, it is done once more afterwards, as the file may have changed since.
    pub fn begin(&mut self, who: &str, journal: Option<&Journal>, answer: Option<Responder<Told>>) {
        if self.reading {
            self.again = true;
            self.later.extend(answer);
            log::info!("{who}: the configuration is still being read, and will be once more then");
            return;
        }
        log::info!("{who}: reading the configuration again");
        self.waiting.extend(answer);
        let (args, host, tell) = (self.args.clone(), self.host.clone(), self.tell.clone());
        let journal = journal.cloned();
        let read = move || {
            // The receiver goes only with the process.
            let _ = tell.send(fresh(&args, &host, journal.as_ref()));
        };
        match thread::Builder::new().name("reload".into()).spawn(read) {
            Ok(_) => self.reading = true,
            Err(error) => {
                let why = format!("the configuration is not read again: no thread: {error}");
                log::error!("{why}");
                self.waiting.drain(..).for_each(|answer| answer.respond(Err(why.clone())));
            }
        }
    }

    /// Compares the running settings with those that were read.
    ///
    /// # Errors
    /// When values that apply now contradict those that need an upgrade or a restart.
    pub fn compare(&self, running: &Settings, read: Settings) -> Result<Changes, String> {
        Changes::new(running, read, &self.host).map_err(|problems| problems.to_string())
    }

    /// Whether the configuration is being read.
    pub fn is_reading(&self) -> bool {
        self.reading
    }

    /// Where what was read arrives, or what is wrong with it. Whoever takes it calls
    /// [`taken`](Self::taken).
    pub fn read(&self) -> &Receiver<Result<Fresh, String>> {
        &self.read
    }

    /// What was read has been taken, and this has come of it: it may begin again.
    pub fn taken(&mut self, told: &Told, journal: Option<&Journal>) {
        self.reading = false;
        self.waiting.drain(..).for_each(|answer| answer.respond(told.clone()));
        if std::mem::take(&mut self.again) {
            self.waiting = std::mem::take(&mut self.later);
            self.begin("reload", journal, None);
        }
    }
}

fn fresh(args: &Flags, host: &Host, journal: Option<&Journal>) -> Result<Fresh, String> {
    let (settings, mut notices) =
        Settings::load(args, host).map_err(|problems| problems.to_string())?;
    let token =
        Token::load(settings.admin.token_file.as_deref()).map_err(|error| error.to_string())?;
    let mut lists = onrush_store::lists::load(&settings, &mut service::progress())
        .map_err(|error| error.to_string())?;
    let resumed = journal.map(|journal| journal.replay((*lists.access).clone()));
    if let Some(resumed) = &resumed {
        if resumed.unreadable {
            return Err(resumed.warning.clone().unwrap_or_default());
        }
        notices.extend(resumed.warning.clone().map(Notice::new));
        lists.access = Arc::new(resumed.settled());
    }
    Ok(Fresh { settings, notices, lists, resumed, token })
}
