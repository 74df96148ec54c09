//! `onrush ctl`: a running tracker asked and told over its HTTP side, from the command line.
//!
//! | room | what is in it |
//! |---|---|
//! | [`command`] | what can be asked, as flags |
//! | [`client`] | one request and its answer |
//! | [`show`] | answers for people |

pub mod command;
pub mod show;

use std::thread;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;

pub use command::Ctl;
use command::{Action, By, List, Named};
use onrush_control::client::{self, Client, ClientError};

use crate::cli::show as write;
use crate::process::exit::Exit;
use onrush_control::api::Successor;
use onrush_control::api::admin::ListUpdate;
use onrush_control::api::stats::Stats;
use onrush_control::api::{Health, Ready};

/// Info hashes that are sent at once: their length is well under what admin.max_body is by default.
const PIECE: usize = 10_000;

/// Does what was asked for, up to the end of the process.
pub fn run(ctl: &Ctl) -> Exit {
    let asked = ctl.client().and_then(|client| ask(ctl, &client));
    let (text, good) = match asked {
        Ok(answer) => answer,
        Err(ClientError::Usage(problems)) => return Exit::wrong(problems),
        Err(failure) => return Exit::failed(failure),
    };
    match write(&text) {
        Ok(()) if good => Exit::good(),
        Ok(()) => Exit { code: crate::process::exit::FAILED, text: String::new() },
        Err(error) => Exit::failed(format!("cannot write: {error}")),
    }
}

/// What is to be written, and whether all is well.
fn ask(ctl: &Ctl, client: &Client) -> Result<(String, bool), ClientError> {
    let asking = Asking { json: ctl.json, client };
    match &ctl.action {
        Action::Health => asking.health(),
        Action::Stats => asking.get("/stats.json", show::stats),
        Action::Metrics => client.get("/metrics").map(|answer| (answer.text, true)),
        Action::Reload => asking.answer(client.post("/api/v1/reload", "")?, show::reload),
        Action::Export => asking.answer(client.post("/api/v1/export", "")?, show::export),
        Action::Upgrade => asking.upgrade(Duration::from_secs(ctl.timeout)),
        Action::List(List::Show { info_hash: None }) => asking.get("/api/v1/list", show::list),
        Action::List(List::Show { info_hash: Some(hash) }) => {
            asking.get(&format!("/api/v1/list/{hash}"), show::entry)
        }
        Action::List(List::Add(named)) => {
            asking.change(named, |body| client.post("/api/v1/list", body))
        }
        Action::List(List::Remove(named)) => {
            asking.change(named, |body| client.delete("/api/v1/list", body))
        }
        Action::Swarm { info_hash } => {
            asking.get(&format!("/api/v1/swarm/{info_hash}"), show::swarm)
        }
        Action::TopSwarms { by, limit } => {
            let by = match by {
                By::Peers => "peers",
                By::Seeders => "seeders",
                By::Leechers => "leechers",
                By::Completed => "completed",
            };
            asking.get(&format!("/api/v1/swarms/top?by={by}&limit={limit}"), show::top)
        }
    }
}

/// What is sent to change the list.
fn body(info_hashes: &[String]) -> String {
    serde_json::json!({ "info_hashes": info_hashes }).to_string()
}

/// Between two looks for a new process.
const LOOK: Duration = Duration::from_millis(100);

/// How answers are to be shown.
struct Asking<'a> {
    json: bool,
    client: &'a Client,
}

impl Asking<'_> {
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
        show: fn(&T) -> String,
    ) -> Result<(String, bool), ClientError> {
        if self.json {
            return Ok((format!("{}\n", answer.text.trim_end()), true));
        }
        Ok((show(&answer.json()?), true))
    }

    /// Sends what is named piece by piece, and says what came of it in all.
    fn change(
        &self,
        named: &Named,
        send: impl Fn(&str) -> Result<client::Response, ClientError>,
    ) -> Result<(String, bool), ClientError> {
        let mut sum: Option<ListUpdate> = None;
        for piece in named.all()?.chunks(PIECE) {
            let changed: ListUpdate = send(&body(piece))?.json()?;
            let before = sum.map_or(0, |sum| sum.changed);
            sum = Some(ListUpdate { changed: changed.changed + before, ..changed });
        }
        let Some(sum) = sum else {
            return Err(ClientError::Usage("onrush: there is no info hash in it\n".to_owned()));
        };
        let shown = match self.json {
            true => serde_json::to_string(&sum).map(|text| text + "\n").unwrap_or_default(),
            false => show::changed(&sum),
        };
        Ok((shown, true))
    }

    /// Has another process take over, and waits until it answers.
    fn upgrade(&self, patience: Duration) -> Result<(String, bool), ClientError> {
        let until = Instant::now() + patience;
        let answer = self.client.post("/api/v1/upgrade", "")?;
        let successor: Successor = answer.json()?;
        while Instant::now() < until {
            // In between nobody answers, or the old process still does.
            let stats = self.client.get("/stats.json").and_then(|answer| answer.json::<Stats>());
            if stats.is_ok_and(|stats| stats.pid == successor.process) {
                return self.answer(answer, show::successor);
            }
            thread::sleep(LOOK);
        }
        let (process, seconds) = (successor.process, patience.as_secs());
        Err(ClientError::Refused(format!(
            "process {process} takes over, but {} has not answered for it in {seconds} s\n  see the log; where the new \
             configuration has another admin.listen, ask there",
            self.client.url()
        )))
    }

    /// Both questions at once: who asks by hand wants to know both. No is an answer here.
    fn health(&self) -> Result<(String, bool), ClientError> {
        let (health, ready) = (self.client.get_any("/health")?, self.client.get_any("/ready")?);
        let good = health.status == 200 && ready.status == 200;
        if self.json {
            let (health, ready) = (health.text.trim_end(), ready.text.trim_end());
            return Ok((format!("{{\"health\":{health},\"ready\":{ready}}}\n"), good));
        }
        let (health, ready): (Health, Ready) = (health.json()?, ready.json()?);
        Ok((show::health(&health, &ready), good))
    }
}
