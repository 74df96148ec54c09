//! Reads the configuration again while the tracker runs, after SIGHUP or a request of the admin
//! API. Either all changes apply at once, or the file has a problem and nothing changes.

use std::sync::Arc;
use std::thread;

use crossbeam_channel::{Receiver, Sender, unbounded};

use crate::process::notify;
use onrush_config::flags::Flags;
use onrush_config::settings::{Host, Notice, Settings};
use onrush_control::Token;
use onrush_control::request::{Reloaded, Responder};
use onrush_store::lists::journal::{Journal, ReplayedList};
use onrush_tracker::access::Lists;

/// Keys that even an upgrade cannot change: the successor finds the running process by its state
/// directory, and has its user.
pub const RESTART_ONLY: [&str; 3] = ["state_dir", "user", "group"];

/// The settings that a reload puts into force, and the keys that differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The settings read, except for keys that need a restart.
    pub settings: Settings,
    /// Keys whose values change now.
    pub changed: Vec<&'static str>,
    /// Keys whose new values need a restart: the old ones stay in force.
    pub restart: Vec<&'static str>,
}

/// Returns the keys that differ.
macro_rules! differing {
    ($running:ident, $read:ident: $($key:literal => $($part:ident).+),* $(,)?) => {{
        let mut keys = Vec::new();
        $(if $running.$($part).+ != $read.$($part).+ { keys.push($key); })*
        keys
    }};
}

/// Restores the running values of these keys. Returns the keys that differed.
macro_rules! restored {
    ($running:ident, $read:ident: $($key:literal => $($part:ident).+),* $(,)?) => {{
        let mut keys = Vec::new();
        $(if $running.$($part).+ != $read.$($part).+ {
            keys.push($key);
            $read.$($part).+ = $running.$($part).+.clone();
        })*
        keys
    }};
}

impl Applied {
    /// Compares the `running` settings with those `read`.
    pub fn new(running: &Settings, mut read: Settings) -> Self {
        let restart = restored!(running, read:
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

/// A configuration read without problems.
#[derive(Debug)]
pub struct Loaded {
    /// Its settings on this host.
    pub settings: Settings,
    /// Notices for the operator.
    pub notices: Vec<Notice>,
    /// Its lists, with the changes of the journal.
    pub lists: Lists,
    /// The journal and the list after it, not merged; `None` without a journal.
    pub replayed: Option<ReplayedList>,
    /// The token of the admin API.
    pub token: Option<Token>,
}

/// Reads the configuration on a thread of its own, since lists of millions of entries take seconds.
pub struct Reload {
    flags: Flags,
    host: Host,
    sender: Sender<Result<Loaded, String>>,
    loaded: Receiver<Result<Loaded, String>>,
    loading: bool,
    /// Whether to read once more afterwards.
    again: bool,
    /// Responders of the current reading, and of the next one.
    waiting: Vec<Responder<ReloadResult>>,
    later: Vec<Responder<ReloadResult>>,
}

/// The outcome of a reload, or the problems of the configuration.
pub type ReloadResult = Result<Reloaded, String>;

impl Reload {
    /// For a tracker that was started with these flags on this host.
    pub fn new(flags: Flags, host: Host) -> Self {
        let (sender, loaded) = unbounded();
        Self {
            flags,
            host,
            sender,
            loaded,
            loading: false,
            again: false,
            waiting: Vec::new(),
            later: Vec::new(),
        }
    }

    /// Starts to read the configuration. If it is being read already, it is read once more
    /// afterwards, since the file may have changed. `cause` is for the log.
    pub fn start(
        &mut self,
        cause: &str,
        journal: Option<&Journal>,
        responder: Option<Responder<ReloadResult>>,
    ) {
        if self.loading {
            self.again = true;
            self.later.extend(responder);
            log::info!("{cause}: another reload follows the one in progress");
            return;
        }
        log::info!("{cause}: reloading the configuration");
        self.waiting.extend(responder);
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
                self.waiting.drain(..).for_each(|responder| responder.respond(Err(why.clone())));
            }
        }
    }

    /// Whether the configuration is being read.
    pub fn is_loading(&self) -> bool {
        self.loading
    }

    /// Receives configurations read, or their problems. Call [`finish`](Self::finish) after each.
    pub fn loaded(&self) -> &Receiver<Result<Loaded, String>> {
        &self.loaded
    }

    /// Responds with the result of the current reading, and starts the next one if requested.
    pub fn finish(&mut self, result: &ReloadResult, journal: Option<&Journal>) {
        self.loading = false;
        self.waiting.drain(..).for_each(|responder| responder.respond(result.clone()));
        if std::mem::take(&mut self.again) {
            self.waiting = std::mem::take(&mut self.later);
            self.start("reload", journal, None);
        }
    }
}

fn load(flags: &Flags, host: &Host, journal: Option<&Journal>) -> Result<Loaded, String> {
    let (settings, mut notices) = flags.settings(host).map_err(|problems| problems.to_string())?;
    let token =
        Token::load(settings.admin.token_file.as_deref()).map_err(|error| error.to_string())?;
    let mut lists = onrush_store::lists::load(&settings, &mut notify::progress())
        .map_err(|error| error.to_string())?;
    let replayed = journal.map(|journal| journal.replay((*lists.access).clone()));
    if let Some(replayed) = &replayed {
        if replayed.unreadable {
            return Err(replayed.warning.clone().unwrap_or_default());
        }
        notices.extend(replayed.warning.clone().map(Notice::new));
        lists.access = Arc::new(replayed.settled());
    }
    Ok(Loaded { settings, notices, lists, replayed, token })
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
    fn equal_settings_change_nothing() {
        let applied = Applied::new(&settings(""), settings(""));
        assert_eq!(applied.settings, settings(""));
        assert!(applied.changed.is_empty() && applied.restart.is_empty());
    }

    #[test]
    fn keys_that_need_a_restart_are_named_and_keep_their_values() {
        let running = settings("[announce]\ninterval = 900\n");
        let read = settings(
            "listen = [\":7000\"]\n[workers]\ntotal = 2\nspin = 5\n[announce]\ninterval = 600\n\
             [limits]\npeers = 5000\n[log]\nlevel = \"debug\"\n",
        );
        let applied = Applied::new(&running, read);
        assert_eq!(applied.restart, ["listen", "workers.spin", "limits.peers"]);
        let changed = [
            "announce.interval",
            "announce.peer_lifetime",
            "overload.longest_interval",
            "log.level",
        ];
        assert_eq!(applied.changed, changed);
        assert_eq!(applied.settings.listen, running.listen);
        assert_eq!(applied.settings.limits, running.limits);
        assert_eq!(applied.settings.announce.interval, 600);
    }

    /// Each key of the configuration either changes with a reload or is restored.
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
