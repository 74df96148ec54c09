//! The counts of a worker: of each request and each reply once, in the totals of the window and in
//! what progress shows.

use super::{Nanos, Recent, Window};
use crate::check::{Finding, Right};
use crate::plan::Kind;
use crate::tally::Tally;

/// The counts of a worker.
#[derive(Debug)]
pub struct Counts {
    /// Those of the window.
    pub tally: Tally,
    /// Those since the caller last reset them, for the progress of a run.
    pub recent: Recent,
    /// The measured window.
    pub window: Window,
    strict: bool,
}

impl Counts {
    /// Counts of a window; with `strict`, a difference within what the BEPs leave open is wrong.
    pub fn new(window: Window, strict: bool) -> Self {
        Self { tally: Tally::default(), recent: Recent::default(), window, strict }
    }

    /// Whether a request or a reply of this time counts.
    #[inline]
    pub fn within(&self, at: Nanos) -> bool {
        (self.window.start..self.window.end).contains(&at)
    }

    /// Ends the window early, at `end`; after `last`, when the last request was sent.
    pub fn end_at(&mut self, end: Nanos, last: Nanos) {
        self.window.end = self.window.end.min(end.max(last + 1));
    }

    /// Counts a request that is due at `due`.
    #[inline]
    pub fn request(&mut self, kind: Kind, due: Nanos, is_repeat: bool) {
        self.recent.sent += 1;
        if self.within(due) {
            let of_kind = &mut self.tally.kinds[kind as usize];
            of_kind.requests += 1;
            of_kind.repeats += u64::from(is_repeat);
        }
    }

    /// Counts the delay of this number of requests, the first of which was due at `due`. Of an open
    /// loop only.
    #[inline]
    pub fn behind(&mut self, due: Nanos, now: Nanos, requests: u64) {
        if self.within(due) {
            self.tally.behind.0.saturating_record_n(now.saturating_sub(due), requests);
        }
    }

    /// Counts the bytes of a reply.
    #[inline]
    pub fn bytes(&mut self, bytes: usize, now: Nanos) {
        if self.within(now) {
            self.tally.bytes_in_window += bytes as u64;
        }
    }

    /// Counts the reply to a request that was sent at `sent`, and returns the content of one that
    /// is right. `asked` describes the request of an example.
    #[inline]
    pub fn reply(
        &mut self,
        (kind, sent): (Kind, Nanos),
        now: Nanos,
        verdict: Result<Right, Finding>,
        reply: &[u8],
        asked: impl FnOnce() -> String,
    ) -> Option<Right> {
        let counts = self.within(sent);
        let latency = now.saturating_sub(sent);
        self.recent.latency.0.saturating_record(latency);
        let (right, finding) = match verdict {
            Ok(right) => (Some(right), right.differs),
            Err(finding) => (None, Some(finding)),
        };
        let right = right.filter(|_| finding.is_none() || !self.strict);
        match &right {
            Some(right) => {
                self.recent.right += 1;
                self.tally.right_in_window += u64::from(self.within(now));
                if counts {
                    self.tally.right(kind, latency, right);
                }
            }
            None => self.wrong(kind, latency, counts),
        }
        if let Some(finding) = finding
            && counts
        {
            self.tally.finding(finding, reply, asked);
        }
        right
    }

    #[cold]
    fn wrong(&mut self, kind: Kind, latency: Nanos, counts: bool) {
        self.recent.wrong += 1;
        if counts {
            let of_kind = &mut self.tally.kinds[kind as usize];
            of_kind.wrong += 1;
            of_kind.latency.0.saturating_record(latency);
        }
    }

    /// Counts a reply to no request in flight.
    #[cold]
    pub fn stray(&mut self, finding: Finding, reply: &[u8], now: Nanos) {
        self.recent.wrong += 1;
        if self.within(now) {
            self.tally.finding(finding, reply, || "no request in flight".into());
        }
    }

    /// Counts a difference of a message to which no request belongs; with `strict` it is wrong.
    #[cold]
    pub fn differs(&mut self, finding: Finding, message: &[u8], now: Nanos) {
        match self.strict {
            true => self.stray(finding, message, now),
            false if self.within(now) => {
                self.tally.finding(finding, message, || "no request in flight".into());
            }
            false => {}
        }
    }

    /// Counts a reply to a lost request.
    pub fn late(&mut self, now: Nanos) {
        self.tally.late += u64::from(self.within(now));
    }

    /// Counts a request that was sent at `sent` as lost.
    pub fn lost(&mut self, kind: Kind, sent: Nanos) {
        self.recent.lost += 1;
        if self.within(sent) {
            self.tally.kinds[kind as usize].lost += 1;
        }
    }
}
