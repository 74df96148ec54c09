//! The state of the view: the last two readings, the history of the request rate, and the last
//! error.

use std::collections::VecDeque;

use super::rates::{Pair, requests};
use onrush_control::api::stats::Stats;

/// Length of the history: the columns of a wide terminal.
const HISTORY: usize = 512;

/// The state of the view of one tracker.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// The URL of the admin side.
    pub url: String,
    before: Option<Stats>,
    now: Option<Stats>,
    /// Requests per second, oldest first.
    pub requests: VecDeque<u64>,
    /// The error of the last reading.
    pub error: Option<String>,
}

impl View {
    /// The view of the tracker at `url`, before the first reading.
    pub fn new(url: &str) -> Self {
        Self { url: url.to_owned(), ..Self::default() }
    }

    /// Takes a reading. An error keeps the previous readings visible.
    pub fn take(&mut self, reading: Result<Stats, String>) {
        match reading {
            Err(error) => self.error = Some(error),
            Ok(stats) => {
                self.error = None;
                self.before = self.now.replace(stats);
                let rate = self.pair().and_then(|p| p.rate(|s| requests(&s.totals.traffic)));
                self.requests.extend(rate.map(|rate| rate.round() as u64));
                if self.requests.len() > HISTORY {
                    self.requests.pop_front();
                }
            }
        }
    }

    /// The last two readings.
    pub fn pair(&self) -> Option<Pair<'_>> {
        self.now.as_ref().map(|now| Pair::new(self.before.as_ref(), now))
    }
}
