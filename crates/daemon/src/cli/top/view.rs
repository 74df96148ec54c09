//! What is known at a moment: the last two readings, how requests went before, and what is amiss.

use std::collections::VecDeque;

use super::rates::{Pair, requests};
use onrush_control::api::stats::Stats;

/// Rates that are kept: the columns of a wide terminal.
const KEPT: usize = 512;

/// What is known of a tracker.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Who is asked.
    pub url: String,
    before: Option<Stats>,
    now: Option<Stats>,
    /// Requests a second, the oldest first.
    pub requests: VecDeque<u64>,
    /// Why there is no newer reading.
    pub trouble: Option<String>,
}

impl View {
    /// Of the tracker at `url`, of which nothing is known yet.
    pub fn new(url: &str) -> Self {
        Self { url: url.to_owned(), ..Self::default() }
    }

    /// Takes a reading, or why there is none. The last one stays then: it is what people want to see when
    /// something has gone wrong.
    pub fn take(&mut self, reading: Result<Stats, String>) {
        match reading {
            Err(trouble) => self.trouble = Some(trouble),
            Ok(stats) => {
                self.trouble = None;
                self.before = self.now.replace(stats);
                let rate = self.pair().and_then(|p| p.rate(|s| requests(&s.totals.traffic)));
                self.requests.extend(rate.map(|rate| rate.round() as u64));
                if self.requests.len() > KEPT {
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
