//! `onrush ctl`: queries and controls a running tracker through its admin side.
//!
//! | module | contents |
//! |---|---|
//! | [`command`] | flags and actions |
//! | [`lists`] | `list`: actions and formats |
//! | [`mod@format`], [`blocks`] | replies as text |
//! | [`sources`] | `top-sources`: flags and text |

pub mod blocks;
pub mod command;
pub mod format;
pub mod lists;
pub mod sources;

use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use serde::de::DeserializeOwned;
use serde_json::json;

use command::Action;
pub use command::Ctl;
use lists::{List, Named, read_list};
use onrush_config::regular_file;
use onrush_control::client::{Client, ClientError, Response};
use onrush_store::atomic_file::AtomicFile;
use onrush_store::snapshot::format::MAGIC;
use onrush_store::state_file;
use onrush_text::version::version;

use crate::exit::print;
use crate::exit::{Exit, FAILED, GOOD};
use crate::format::{Printable, escaped};
use onrush_control::api::Successor;
use onrush_control::api::admin::{ListChanges, ListCheck, ListUpdate, LogLevel, SnapshotReport};
use onrush_control::api::blocks::BlockRequest;
use onrush_control::api::stats::Stats;

/// Runs the action and prints its result.
pub fn run(ctl: &Ctl) -> Exit {
    let limit = ctl.timeout.unwrap_or_else(|| ctl.action.timeout());
    // The tracker takes this long in any case.
    let observed = if let Action::TopSources(sources) = &ctl.action { sources.seconds } else { 0 };
    let timeout = Duration::from_secs(limit + observed);
    let perform = |client: Client| {
        let (text, code) =
            Requests { json: ctl.json, client: &client }.perform(&ctl.action, limit)?;
        Ok(print(&escaped(&text), code))
    };
    let fail = |error: ClientError| match Exit::from(error) {
        Exit { code, text } if ctl.json => {
            let error = text.trim_end().trim_start_matches("onrush: ");
            print(&format!("{}\n", json!({ "error": error })), code)
        }
        exit => exit,
    };
    ctl.admin.reach(ctl.action.only_reads(), ctl.token_file.as_deref(), timeout, perform, fail)
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Copies a snapshot. It has the addresses of clients: only the tracker's user, who needs it in
/// place of a lost one, may read the copy. A link in place of the snapshot is not followed: the
/// tracker's user could have root read any file by it.
fn copy(path: &Path, to: &Path) -> io::Result<u64> {
    // The file that is open stays as it is when the tracker renames the next one into its place.
    let mut from = state_file::open(path)?;
    let mut copy = AtomicFile::create(to, 0o600)?;
    let owner = from.metadata()?;
    copy.set_owner(owner.uid(), owner.gid())?;
    io::copy(&mut from, &mut copy)?;
    copy.finish()
}

/// Why a copy of a snapshot must not replace what is at its path.
fn irreplaceable(path: &Path) -> Option<String> {
    let mut head = Vec::new();
    let read = regular_file::open(path)
        .and_then(|file| file.take(MAGIC.len() as u64).read_to_end(&mut head));
    match read {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => Some(error.to_string()),
        Ok(_) if MAGIC.starts_with(&head) => None,
        Ok(_) => Some("there is a file that is no snapshot".to_owned()),
    }
}

/// Time between two polls for the successor.
const POLL: Duration = Duration::from_millis(100);

/// Requests, and the format of their results.
struct Requests<'a> {
    json: bool,
    client: &'a Client,
}

impl Requests<'_> {
    /// Performs an action; the text to print, and the exit status. An upgrade may take `timeout`
    /// seconds.
    fn perform(&self, action: &Action, timeout: u64) -> Result<(String, u8), ClientError> {
        let client = self.client;
        let text = match action {
            Action::Health => return self.health(),
            Action::Stats => self.get("/stats.json", format::stats),
            Action::Metrics => self.download("/metrics"),
            Action::Version => self.version(),
            Action::Config { diff: false } => self.get("/api/v1/config", format::config),
            Action::Config { diff: true } => {
                self.get("/api/v1/config/diff", format::config_differences)
            }
            Action::LogLevel { level } => {
                let body = json!({ "level": level }).to_string();
                let answer = client.post("/api/v1/log-level", &body)?;
                self.show(answer, |former: &LogLevel| {
                    format!("log level: {} -> {level} until the next reload\n", former.level)
                })
            }
            Action::Snapshot { to } => self.snapshot(to.as_deref()),
            Action::Reload { force } => {
                let answer = client.post(&format!("/api/v1/reload?force={force}"), "")?;
                self.show(answer, format::reload)
            }
            Action::Export => self.show(client.post("/api/v1/export", "")?, format::export),
            Action::Upgrade { force } => self.upgrade(*force, Duration::from_secs(timeout)),
            Action::List(list) => return self.list(list),
            Action::Block { prefix, seconds, reason, force } => {
                let (prefix, seconds, force) = (prefix.clone(), *seconds, *force);
                let block = BlockRequest { prefix, seconds, reason: reason.clone(), force };
                let answer = client.post("/api/v1/blocks", &json!(block).to_string())?;
                self.show(answer, blocks::blocked)
            }
            Action::Unblock { prefix } => {
                let body = json!({ "prefix": prefix }).to_string();
                self.show(client.delete("/api/v1/blocks", &body)?, blocks::unblocked)
            }
            Action::Blocks => self.get("/api/v1/blocks", blocks::list),
            Action::Swarm { info_hash } => {
                self.get(&format!("/api/v1/swarm/{info_hash}"), format::swarm)
            }
            Action::TopSwarms { by, limit } => {
                let by = format::word(*by);
                self.get(&format!("/api/v1/swarms/top?by={by}&limit={limit}"), format::top)
            }
            Action::TopSources(sources) => self.get(&sources.path(), |top| sources.show(top)),
        };
        Ok((text?, GOOD))
    }

    fn list(&self, action: &List) -> Result<(String, u8), ClientError> {
        let client = self.client;
        let text = match action {
            List::Show { info_hash: None } => self.get("/api/v1/list", lists::report),
            List::Show { info_hash: Some(hash) } => {
                self.get(&format!("/api/v1/list/{hash}"), lists::entry)
            }
            List::Add { named, reason } => {
                let add = |body: &str| client.post("/api/v1/list", body);
                return self.change(named, reason.as_deref(), add);
            }
            List::Remove(named) => {
                return self.change(named, None, |body| client.delete("/api/v1/list", body));
            }
            List::Changes => self.changes(),
            List::Reset(named) => {
                let reset = |body: &str| client.delete("/api/v1/list/changes", body);
                return self.change(named, None, reset);
            }
            List::Export => self.download("/api/v1/list/export"),
            List::Check { files, mode } => return self.check(files, mode.as_deref()),
        };
        Ok((text?, GOOD))
    }

    /// The changes that a reload with these files would make, and the exit status: `FAILED` if the
    /// reload would refuse them.
    fn check(&self, files: &[PathBuf], mode: Option<&str>) -> Result<(String, u8), ClientError> {
        let (mut body, mut parts) = (Vec::new(), Vec::new());
        for file in files {
            let hashes = read_list(file, &mut |_, _| {})?;
            parts.push((file.as_path(), hashes.len()));
            body.extend(hashes.concat());
        }
        let mode = mode.map(|mode| format!("&mode={mode}")).unwrap_or_default();
        let path = format!("/api/v1/list/check?files={}{mode}", lists::files_query(&parts));
        let answer = self.client.post_bytes(&path, body)?;
        let is_refused = answer.json::<ListCheck>()?.refused.is_some();
        Ok((self.show(answer, lists::check)?, if is_refused { FAILED } else { GOOD }))
    }

    /// All changes of the list, page by page.
    fn changes(&self) -> Result<String, ClientError> {
        let mut all = ListChanges { next: Some("0".repeat(40)), ..ListChanges::default() };
        while let Some(from) = all.next.take() {
            let path = format!("/api/v1/list/changes?from={from}");
            let page: ListChanges = self.client.get(&path)?.json()?;
            all.changes.extend(page.changes);
            all = ListChanges { changes: all.changes, ..page };
        }
        Ok(if self.json { format!("{}\n", json!(all)) } else { lists::changes(&all) })
    }

    fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        format: impl FnOnce(&T) -> String,
    ) -> Result<String, ClientError> {
        self.show(self.client.get(path)?, format)
    }

    /// Prints a long text.
    fn download(&self, path: &str) -> Result<String, ClientError> {
        let mut to = Printable::new(io::stdout().lock());
        self.client.download(path, &mut to).map(|()| String::new())
    }

    fn show<T: DeserializeOwned>(
        &self,
        answer: Response,
        format: impl FnOnce(&T) -> String,
    ) -> Result<String, ClientError> {
        match self.json {
            true => Ok(format!("{}\n", answer.text.trim_end())),
            false => Ok(format(&answer.json()?)),
        }
    }

    /// Sends the info hashes in chunks and sums up the results; also the exit status: whether all
    /// changes are recorded.
    fn change(
        &self,
        named: &Named,
        reason: Option<&str>,
        send: impl Fn(&str) -> Result<Response, ClientError>,
    ) -> Result<(String, u8), ClientError> {
        let mut sum: Option<ListUpdate> = None;
        for chunk in named.chunks(reason, now())? {
            let update: ListUpdate = send(&json!({ "info_hashes": chunk }).to_string())?.json()?;
            let before = sum.map_or(0, |sum| sum.changed);
            sum = Some(ListUpdate { changed: update.changed + before, ..update });
        }
        let Some(sum) = sum else {
            return Err(ClientError::Usage("onrush: the file has no info hash\n".to_owned()));
        };
        let code = if sum.unrecorded.is_some() { FAILED } else { GOOD };
        Ok((if self.json { format!("{}\n", json!(sum)) } else { lists::changed(&sum) }, code))
    }

    /// Starts an upgrade and waits until the successor answers.
    fn upgrade(&self, force: bool, timeout: Duration) -> Result<String, ClientError> {
        let until = Instant::now() + timeout;
        let answer = self.client.post(&format!("/api/v1/upgrade?force={force}"), "")?;
        let successor: Successor = answer.json()?;
        while Instant::now() < until {
            // Until then the predecessor answers, or none.
            let stats = self.client.get("/stats.json").and_then(|answer| answer.json::<Stats>());
            if stats.is_ok_and(|stats| stats.pid == successor.process) {
                return self.show(answer, format::successor);
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
    fn version(&self) -> Result<String, ClientError> {
        let stats: Stats = self.client.get("/stats.json")?.json()?;
        let (tracker, process, command) = (stats.version, stats.pid, version());
        Ok(match self.json {
            true => {
                let versions =
                    json!({ "tracker": tracker, "process": process, "command": command });
                format!("{versions}\n")
            }
            false => format!("tracker {tracker}, process {process}\ncommand {command}\n"),
        })
    }

    /// Writes a snapshot; copies it `to` a file of the tracker's user.
    fn snapshot(&self, to: Option<&Path>) -> Result<String, ClientError> {
        if to.is_some() && !self.client.is_local() {
            return Err(ClientError::Usage(
                "onrush: --to copies a file of the tracker's host: run the command there, as root \
                 or as the tracker's user, without --url\n"
                    .to_owned(),
            ));
        }
        if let Some((to, why)) = to.and_then(|to| Some((to, irreplaceable(to)?))) {
            return Err(ClientError::Usage(format!(
                "onrush: {} is not replaced: {why}\n  name another file with --to, or remove it\n",
                to.display()
            )));
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
        let mut shown = self.show(answer, format::snapshot)?;
        if let Some(to) = to.filter(|_| !self.json) {
            shown.push_str(&format!("copied to {}\n", to.display()));
        }
        Ok(shown)
    }

    /// `/health` and `/ready` within one timeout, and the exit status. A reply with status 503 is a
    /// result, not a failure.
    fn health(&self) -> Result<(String, u8), ClientError> {
        let since = Instant::now();
        let answer = |path| match self.client.get_any(path, since)? {
            answer if answer.status == 503 => Ok(answer),
            answer => self.client.successful(answer),
        };
        let (health, ready) = (answer("/health")?, answer("/ready")?);
        let code = if health.status == 200 && ready.status == 200 { GOOD } else { FAILED };
        let text = match self.json {
            true => {
                let (health, ready) = (health.text.trim_end(), ready.text.trim_end());
                format!("{{\"health\":{health},\"ready\":{ready}}}\n")
            }
            false => format::health(&health.json()?, &ready.json()?),
        };
        Ok((text, code))
    }
}
