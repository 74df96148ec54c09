//! `onrush ctl`: queries and controls a running tracker through its admin side.
//!
//! | module | contents |
//! |---|---|
//! | [`command`] | flags and actions |
//! | [`lists`] | `list`: actions and formats |
//! | [`mod@format`], [`blocks`] | replies as text |
//! | [`sources`] | `top-sources`: flags and formats |

pub mod blocks;
pub mod command;
pub mod format;
pub mod lists;
pub mod sources;

use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use clap::ValueEnum as _;
use serde::de::DeserializeOwned;
use serde_json::json;

use command::Action;
pub use command::Ctl;
use lists::{List, Named, read_list};
use onrush_control::client::{self, Client, ClientError};
use onrush_store::atomic_file::AtomicFile;
use onrush_store::state_file;
use onrush_text::version::version;

use crate::cli::format::{Printable, escaped};
use crate::cli::print;
use crate::process::exit::{Exit, FAILED, GOOD};
use onrush_control::api::admin::{ListUpdate, LogLevel, SnapshotReport};
use onrush_control::api::blocks::BlockRequest;
use onrush_control::api::stats::Stats;
use onrush_control::api::{Health, Ready, Successor};

/// Runs the action and prints its result.
pub fn run(ctl: &Ctl) -> Exit {
    let timeout = Duration::from_secs(ctl.timeout + ctl.action.duration());
    let client = ctl.admin.client(ctl.token_file.as_deref(), timeout);
    match client.and_then(|client| request(ctl, &client)) {
        Ok((text, good)) => print(&escaped(&text), if good { GOOD } else { FAILED }),
        Err(error) => error.into(),
    }
}

/// The text to print, and whether the exit status is 0.
fn request(ctl: &Ctl, client: &Client) -> Result<(String, bool), ClientError> {
    let requests = Requests { json: ctl.json, client };
    match &ctl.action {
        Action::Health => requests.health(),
        Action::Stats => requests.get("/stats.json", format::stats),
        Action::Metrics => client.get("/metrics").map(|answer| (answer.text, true)),
        Action::Version => requests.version(),
        Action::Config { diff: false } => requests.get("/api/v1/config", format::config),
        Action::Config { diff: true } => {
            requests.get("/api/v1/config/diff", format::config_differences)
        }
        Action::LogLevel { level } => requests.log_level(level),
        Action::Snapshot { to } => requests.snapshot(to.as_deref()),
        Action::List(List::Export) => {
            let mut to = Printable::new(io::stdout().lock());
            client.download("/api/v1/list/export", &mut to).map(|()| (String::new(), true))
        }
        Action::List(List::Check { files }) => {
            let mut body = Vec::new();
            for file in files {
                body.extend(read_list(file, &mut |_, _| {})?.concat());
            }
            requests.answer(client.post_bytes("/api/v1/list/check", body)?, lists::check)
        }
        Action::Reload { force } => {
            let answer = client.post(&format!("/api/v1/reload?force={force}"), "")?;
            requests.answer(answer, format::reload)
        }
        Action::Export => requests.answer(client.post("/api/v1/export", "")?, format::export),
        Action::Upgrade { force } => requests.upgrade(*force, Duration::from_secs(ctl.timeout)),
        Action::List(List::Show { info_hash: None }) => {
            let answer = client.get("/api/v1/list")?;
            requests.answer(answer, |report| lists::report(report, now()))
        }
        Action::List(List::Show { info_hash: Some(hash) }) => {
            requests.get(&format!("/api/v1/list/{hash}"), lists::entry)
        }
        Action::List(List::Add { named, reason }) => {
            let send = |body: &str| client.post("/api/v1/list", body);
            requests.change(named, reason.as_deref(), send)
        }
        Action::List(List::Remove(named)) => {
            requests.change(named, None, |body| client.delete("/api/v1/list", body))
        }
        Action::Block { prefix, seconds, reason, force } => {
            let (prefix, seconds, force) = (prefix.clone(), *seconds, *force);
            let block = BlockRequest { prefix, seconds, reason: reason.clone(), force };
            let answer = client.post("/api/v1/blocks", &json!(block).to_string())?;
            requests.answer(answer, blocks::blocked)
        }
        Action::Unblock { prefix } => {
            let body = json!({ "prefix": prefix }).to_string();
            requests.answer(client.delete("/api/v1/blocks", &body)?, blocks::unblocked)
        }
        Action::Blocks => requests.get("/api/v1/blocks", blocks::list),
        Action::Swarm { info_hash } => {
            requests.get(&format!("/api/v1/swarm/{info_hash}"), format::swarm)
        }
        Action::TopSwarms { by, limit } => {
            let by = by.to_possible_value().expect("no sort key is hidden");
            let by = by.get_name();
            requests.get(&format!("/api/v1/swarms/top?by={by}&limit={limit}"), format::top)
        }
        Action::TopSources(sources) => {
            let answer = client.get(&sources.path())?;
            requests.answer(answer, |top| sources.show(top))
        }
    }
}

/// The body of a change of the list.
fn body(info_hashes: &[String]) -> String {
    json!({ "info_hashes": info_hashes }).to_string()
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Copies a snapshot. It has the addresses of clients: only this user may read the copy. A link in
/// place of the snapshot is not followed: the tracker's user could have root read any file by it.
fn copy(path: &Path, to: &Path) -> io::Result<u64> {
    // The file that is open stays as it is when the tracker renames the next one into its place.
    let mut from = state_file::open(path)?;
    let mut copy = AtomicFile::create(to, 0o600)?;
    io::copy(&mut from, &mut copy)?;
    copy.finish()
}

/// Time between two polls for the successor.
const POLL: Duration = Duration::from_millis(100);

/// Requests, and the format of their results.
struct Requests<'a> {
    json: bool,
    client: &'a Client,
}

impl Requests<'_> {
    fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        show: fn(&T) -> String,
    ) -> Result<(String, bool), ClientError> {
        self.answer(self.client.get(path)?, show)
    }

    fn answer<T: DeserializeOwned>(
        &self,
        answer: client::Response,
        show: impl FnOnce(&T) -> String,
    ) -> Result<(String, bool), ClientError> {
        if self.json {
            return Ok((format!("{}\n", answer.text.trim_end()), true));
        }
        Ok((show(&answer.json()?), true))
    }

    /// Sends the info hashes in chunks and sums up the results.
    fn change(
        &self,
        named: &Named,
        reason: Option<&str>,
        send: impl Fn(&str) -> Result<client::Response, ClientError>,
    ) -> Result<(String, bool), ClientError> {
        let mut sum: Option<ListUpdate> = None;
        for chunk in named.chunks(reason, now())? {
            let changed: ListUpdate = send(&body(&chunk))?.json()?;
            let before = sum.map_or(0, |sum| sum.changed);
            sum = Some(ListUpdate { changed: changed.changed + before, ..changed });
        }
        let Some(sum) = sum else {
            return Err(ClientError::Usage("onrush: the file has no info hash\n".to_owned()));
        };
        let shown = match self.json {
            true => serde_json::to_string(&sum).map(|text| text + "\n").unwrap_or_default(),
            false => lists::changed(&sum),
        };
        Ok((shown, true))
    }

    /// Starts an upgrade and waits until the successor answers.
    fn upgrade(&self, force: bool, timeout: Duration) -> Result<(String, bool), ClientError> {
        let until = Instant::now() + timeout;
        let answer = self.client.post(&format!("/api/v1/upgrade?force={force}"), "")?;
        let successor: Successor = answer.json()?;
        while Instant::now() < until {
            // Until then the predecessor answers, or none.
            let stats = self.client.get("/stats.json").and_then(|answer| answer.json::<Stats>());
            if stats.is_ok_and(|stats| stats.pid == successor.process) {
                return self.answer(answer, format::successor);
            }
            #[expect(clippy::disallowed_methods, reason = "readiness is only polled")]
            thread::sleep(POLL);
        }
        let (process, seconds) = (successor.process, timeout.as_secs());
        Err(ClientError::Refused(format!(
            "the handoff to process {process} has begun, but it did not answer at {} within \
             {seconds} s\n  see the log; if the new configuration has another admin.listen, use \
             that address",
            self.client.url()
        )))
    }

    /// The versions of the tracker and of this program.
    fn version(&self) -> Result<(String, bool), ClientError> {
        let stats: Stats = self.client.get("/stats.json")?.json()?;
        let (tracker, process, command) = (stats.version, stats.pid, version());
        let shown = match self.json {
            true => format!(
                "{}\n",
                json!({ "tracker": tracker, "process": process, "command": command })
            ),
            false => format!("tracker {tracker}, process {process}\ncommand {command}\n"),
        };
        Ok((shown, true))
    }

    fn log_level(&self, level: &str) -> Result<(String, bool), ClientError> {
        let body = json!({ "level": level }).to_string();
        let answer = self.client.post("/api/v1/log-level", &body)?;
        if self.json {
            return self.answer::<LogLevel>(answer, |_| String::new());
        }
        let LogLevel { level: former } = answer.json()?;
        Ok((format!("log level {level} until the next reload; it was {former}\n"), true))
    }

    /// Writes a snapshot; copies it `to` a file, as this user.
    fn snapshot(&self, to: Option<&Path>) -> Result<(String, bool), ClientError> {
        if to.is_some() && !self.client.is_local() {
            return Err(ClientError::Usage(
                "onrush: --to copies a file of the tracker's host: run the command there, as root \
                 or as the tracker's user, without --url\n"
                    .to_owned(),
            ));
        }
        let answer = self.client.post("/api/v1/snapshot", "")?;
        if let Some(to) = to {
            let SnapshotReport { path, .. } = answer.json()?;
            copy(Path::new(&path), to).map_err(|error| {
                let to = to.display();
                ClientError::Local(format!(
                    "{path} is written, but cannot be copied to {to}: {error}\n  make room for the \
                     copy, or name another file with --to"
                ))
            })?;
        }
        let (mut shown, good) = self.answer(answer, format::snapshot)?;
        if let Some(to) = to.filter(|_| !self.json) {
            shown.push_str(&format!("copied to {}\n", to.display()));
        }
        Ok((shown, good))
    }

    /// `/health` and `/ready` together. A reply with status 503 is a result, not a failure.
    fn health(&self) -> Result<(String, bool), ClientError> {
        let answer = |path| match self.client.get_any(path)? {
            answer if answer.status == 503 => Ok(answer),
            answer => self.client.successful(answer),
        };
        let (health, ready) = (answer("/health")?, answer("/ready")?);
        let good = health.status == 200 && ready.status == 200;
        if self.json {
            let (health, ready) = (health.text.trim_end(), ready.text.trim_end());
            return Ok((format!("{{\"health\":{health},\"ready\":{ready}}}\n"), good));
        }
        let (health, ready): (Health, Ready) = (health.json()?, ready.json()?);
        Ok((format::health(&health, &ready), good))
    }
}
