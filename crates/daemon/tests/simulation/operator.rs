//! The configuration file and the list changes of an operator, and what is on the disk of the
//! host: both are drawn, as texts and requests that a tracker gets from outside.

use onrush_config::Settings;
use onrush_proto::InfoHash;
use onrush_store::lists;
use onrush_tracker::access::overlay::ListChange;
use onrush_tracker::access::{AccessList, ListKind, Lists};
use rand::RngExt;
use rand::rngs::SmallRng;

use super::peers::{SWARMS, swarm};

/// The configuration file, and the journal of list changes.
#[derive(Clone)]
pub(crate) struct Disk {
    /// The tables that no reload changes.
    fixed: String,
    /// The others.
    drawn: String,
    pub(crate) journal: Vec<(ListKind, ListChange)>,
}

impl Disk {
    /// A host with these tables in its file.
    pub(crate) fn new(fixed: String) -> Self {
        let drawn = "[announce]\ninterval = 60\npeer_lifetime = 180\n".to_owned();
        Self { fixed, drawn, journal: Vec::new() }
    }

    /// The settings of the file.
    pub(crate) fn settings(&self) -> Settings {
        onrush_testing::memory_tracker::settings(&format!("{}{}", self.fixed, self.drawn))
    }

    /// The lists of these settings, with the changes of the journal.
    pub(crate) fn lists(&self, settings: &Settings) -> Lists {
        let mut lists = lists::load(settings, &mut || {}).expect("a list in the file");
        if let Some(kind) = lists.access.kind() {
            lists.access = lists.access.with(&self.changes(kind, 0)).into();
        }
        lists
    }

    /// The changes of a list of this kind, without the first ones of the journal.
    pub(crate) fn changes(&self, kind: ListKind, known: usize) -> Vec<ListChange> {
        let since = self.journal[known..].iter().filter(|(of, _)| *of == kind);
        since.map(|(_, change)| change.clone()).collect()
    }

    /// Draws another configuration file.
    pub(crate) fn draw(&mut self, rng: &mut SmallRng) {
        let most = rng.random_range(1..=200u32);
        let announce = format!(
            "[announce]\ninterval = {}\ninterval_jitter_percent = {}\npeer_lifetime = {}\n\
             default_peers = {}\nmax_peers_v4 = {}\nmax_peers_v6 = {}\n\
             [scrape]\nmax_hashes = {}\n",
            rng.random_range(60..=100),
            rng.random_range(0..=10),
            rng.random_range(180..=300),
            rng.random_range(0..=most.min(60)),
            most,
            rng.random_range(1..=67),
            [1, 10, 74][rng.random_range(0..3)],
        );
        let access = match self.drawn.split_once("[access]") {
            Some((_, list)) if rng.random_bool(0.5) => format!("[access]{list}"),
            None if rng.random_bool(0.5) => String::new(),
            _ => draw_list(rng),
        };
        self.drawn = announce + &access;
    }
}

fn draw_list(rng: &mut SmallRng) -> String {
    let share = rng.random_range(0.0..1.0);
    let hashes: Vec<String> = (0..SWARMS)
        .filter(|_| rng.random_bool(share))
        .map(|number| format!("\"{}\"", swarm(number)))
        .collect();
    match rng.random_range(0..3) {
        1 => format!("[access]\nmode = \"deny\"\ninfo_hashes = [{}]\n", hashes.join(", ")),
        2 if !hashes.is_empty() => {
            format!("[access]\nmode = \"allow\"\ninfo_hashes = [{}]\n", hashes.join(", "))
        }
        _ => String::new(),
    }
}

/// Draws a change of a share of the list's swarms: listed ones are removed, others added. `None` if
/// there is no list.
pub(crate) fn draw_changes(
    list: &AccessList,
    share: f64,
    rng: &mut SmallRng,
) -> Option<Vec<ListChange>> {
    let set = list.set()?;
    let drawn = (0..SWARMS).map(swarm).filter(|_| rng.random_bool(share));
    let change = |info_hash: InfoHash| ListChange::new(info_hash, !set.contains(&info_hash));
    Some(drawn.map(change).collect())
}
