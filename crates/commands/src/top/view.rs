//! The state of the view: the last two readings, the history of the request rate, the last error,
//! and what keys have selected.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use ratatui::crossterm::event::KeyCode;

use super::keys::INTERRUPT;
use super::rates::Pair;
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
    /// Whether keys and figures are explained in place of the figures.
    pub help: bool,
    /// Whether the workers are sorted by load, the highest first.
    pub by_load: bool,
    /// The part of the workers that is shown.
    pub scroll: Scroll,
}

/// The part of a table that is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scroll {
    /// The first row that is shown. A key may move it too far; drawing corrects it.
    pub first: usize,
    /// Number of rows for which there is room.
    pub page: usize,
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
                let requests = |stats: &Stats| stats.totals.traffic.requests() as f64;
                let rate = self.pair().and_then(|pair| pair.rate(requests));
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

    /// Takes a key; `Break` if it ends the view.
    pub fn press(&mut self, key: KeyCode) -> ControlFlow<()> {
        let Scroll { first, page } = self.scroll;
        match key {
            INTERRUPT => return ControlFlow::Break(()),
            _ if self.help => self.help = false,
            KeyCode::Char('q' | 'Q') | KeyCode::Esc => return ControlFlow::Break(()),
            KeyCode::Char('?' | 'h') => self.help = true,
            KeyCode::Char('s') => {
                self.by_load = !self.by_load;
                self.scroll.first = 0;
            }
            KeyCode::Up | KeyCode::Char('k') => self.scroll.first = first.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.scroll.first = first.saturating_add(1),
            KeyCode::PageUp => self.scroll.first = first.saturating_sub(page),
            KeyCode::PageDown | KeyCode::Char(' ') => {
                self.scroll.first = first.saturating_add(page)
            }
            KeyCode::Home | KeyCode::Char('g') => self.scroll.first = 0,
            KeyCode::End | KeyCode::Char('G') => self.scroll.first = usize::MAX,
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q_escape_and_ctrl_c_end_the_view() {
        for key in [KeyCode::Char('q'), KeyCode::Esc, INTERRUPT] {
            assert!(View::default().press(key).is_break(), "{key:?}");
        }
        assert!(View::default().press(KeyCode::Char('c')).is_continue());
    }

    #[test]
    fn any_key_but_ctrl_c_returns_from_the_help() {
        let mut view = View::default();
        for key in [KeyCode::Char('q'), KeyCode::Esc, KeyCode::Down, KeyCode::Char('?')] {
            assert!(view.press(KeyCode::Char('?')).is_continue() && view.help);
            assert!(view.press(key).is_continue() && !view.help, "{key:?}");
            assert_eq!(view.scroll.first, 0, "{key:?}");
        }
        assert!(view.press(KeyCode::Char('?')).is_continue());
        assert!(view.press(INTERRUPT).is_break());
    }
}
