//! Reading the configuration again while the tracker runs (SIGHUP, or when asked over HTTP): all of what may change changes at
//! once, or, where something is wrong with the file, nothing does.

use std::sync::Arc;
use std::thread;

use crossbeam_channel::{Receiver, Sender, unbounded};

use crate::process::service;
use onrush_config::flags::Flags;
use onrush_config::settings::{Host, Notice, Settings};
use onrush_control::Token;
use onrush_control::request::{Reloaded, Responder};
use onrush_store::lists::journal::{Journal, ReplayedList};
use onrush_tracker::access::Lists;

/// Keys that an upgrade does not change either: a new process finds the old one by its state directory, and is of its
/// user.
pub const ONLY_A_RESTART: [&str; 3] = ["state_dir", "user", "group"];

/// What was read, and how it compares with what is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled {
    /// What is to be in force: what was read, but for what needs a restart.
    pub settings: Settings,
    /// Keys whose values change now.
    pub changed: Vec<&'static str>,
    /// Keys whose new values need a restart; the old ones stay in force.
    pub restart: Vec<&'static str>,
}

/// Compares each of these keys; returns those that differ.
macro_rules! differing {
    ($running:ident, $read:ident: $($key:literal => $($part:ident).+),* $(,)?) => {{
        let mut keys = Vec::new();
        $(if $running.$($part).+ != $read.$($part).+ { keys.push($key); })*
        keys
    }};
}

/// Puts the running values of these keys back; returns those that differed.
macro_rules! kept {
    ($running:ident, $read:ident: $($key:literal => $($part:ident).+),* $(,)?) => {{
        let mut keys = Vec::new();
        $(if $running.$($part).+ != $read.$($part).+ {
            keys.push($key);
            $read.$($part).+ = $running.$($part).+.clone();
        })*
        keys
    }};
}

impl Settled {
    /// What becomes of `running` settings when the configuration says `read`.
    pub fn new(running: &Settings, mut read: Settings) -> Self {
        let restart = kept!(running, read:
            "listen" => listen,
            "state_dir" => state_dir,
            "user" => user,
            "group" => group,
            "workers" => placement,
            "workers.pin" => pin,
            "workers.spin" => spin,
            "socket.receive_buffer" => socket.receive_buffer,
            "socket.send_buffer" => socket.send_buffer,
            "socket.batch" => socket.batch,
            "socket.steering" => socket.steering,
            "connection.validity" => connection.validity,
            "connection.key_file" => connection.key_file,
            "limits.peers" => limits.peers,
            "limits.idle_swarms" => limits.idle_swarms,
            "limits.batches_in_flight" => limits.batches_in_flight,
            "limits.batch_requests" => limits.batch_requests,
            "limits.scrapes_in_flight" => limits.scrapes_in_flight,
            "snapshot.enabled" => snapshot.enabled,
            "admin.listen" => admin.listen,
            "admin.connections" => admin.connections,
            "admin.max_body" => admin.max_body,
            "admin.timeout" => admin.timeout,
        );
        let changed = differing!(running, read:
            "announce.interval" => announce.interval,
            "announce.interval_jitter_percent" => announce.interval_jitter_percent,
            "announce.default_peers" => announce.default_peers,
            "announce.max_peers_v4" => announce.max_peers_v4,
            "announce.max_peers_v6" => announce.max_peers_v6,
            "announce.peer_lifetime" => announce.peer_lifetime,
            "announce.completed_retention" => announce.completed_retention,
            "overload.drop_share" => overload.drop_share,
            "overload.longest_interval" => overload.longest_interval,
            "scrape.max_hashes" => scrape.max_hashes,
            "access" => access,
            "access.blocked" => blocked,
            "access.refuse_bogons" => refuse_bogons,
            "limits.warnings_per_minute" => limits.warnings_per_minute,
            "limits.list_entries" => limits.list_entries,
            "snapshot.every" => snapshot.every,
            "export.file" => export.file,
            "export.every" => export.every,
            "admin.token_file" => admin.token_file,
            "admin.publish_lists" => admin.publish_lists,
            "log.level" => log.level,
            "log.totals_every" => log.totals_every,
            "log.addresses" => log.addresses,
        );
        Self { settings: read, changed, restart }
    }
}

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
    let (settings, mut notices) = args.settings(host).map_err(|problems| problems.to_string())?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use onrush_config::file::Config;

    fn settings(text: &str) -> Settings {
        let host = Host { vcpus: vec![0, 1], ..Host::default() };
        Settings::resolve(Config::parse("test.toml", text), &Flags::default(), &host).unwrap().0
    }

    #[test]
    fn what_was_not_touched_does_not_change() {
        let settled = Settled::new(&settings(""), settings(""));
        assert_eq!(settled.settings, settings(""));
        assert!(settled.changed.is_empty() && settled.restart.is_empty());
    }

    #[test]
    fn what_needs_a_restart_is_named_and_stays() {
        let running = settings("[announce]\ninterval = 900\n");
        let read = settings(
            "listen = [\":7000\"]\n[workers]\ntotal = 2\nspin = 5\n[announce]\ninterval = 600\n\
             [limits]\npeers = 5000\n[log]\nlevel = \"debug\"\n",
        );
        let settled = Settled::new(&running, read);
        assert_eq!(settled.restart, ["listen", "workers.spin", "limits.peers"]);
        let changed = [
            "announce.interval",
            "announce.peer_lifetime",
            "overload.longest_interval",
            "log.level",
        ];
        assert_eq!(settled.changed, changed);
        assert_eq!(settled.settings.listen, running.listen);
        assert_eq!(settled.settings.limits, running.limits);
        assert_eq!(settled.settings.announce.interval, 600);
    }

    /// Whoever adds a key decides here what a reload makes of it.
    #[test]
    fn every_key_is_in_one_of_the_lists() {
        let source = include_str!("reload.rs").split("#[cfg(test)]").next().unwrap();
        for (table, key) in onrush_config::file::keys::all() {
            let path = key.path(table);
            let whole = ["workers", "access"].contains(&table.name);
            let named = source.contains(&format!("\"{path}\" =>"));
            assert!(
                named || whole && source.contains(&format!("\"{}\" =>", table.name)),
                "{path} is neither kept nor changed by a reload"
            );
        }
    }
}
