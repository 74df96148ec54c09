//! Sentences for operators, and the limit on those that repeat.

use std::collections::HashMap;
use std::mem;
use std::time::{Duration, Instant};

use log::Level;

/// The period of the limit.
pub const MINUTE: Duration = Duration::from_secs(60);

/// A sentence for operators: an entry of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Its level.
    pub level: Level,
    /// The sentence, with numbers and remedy.
    pub text: String,
    /// How often notices of its kind are shown; `None` without a limit.
    pub repeats: Option<Repeats>,
}

/// The limit of notices of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeats {
    /// `limits.warnings_per_minute` of this key. The next one has the number of those held back.
    Limited(&'static str),
    /// One a minute of this key. The number of those held back would add nothing.
    OnceAMinute(&'static str),
}

impl Notice {
    /// Of this level, without a limit.
    pub fn new(level: Level, text: impl Into<String>) -> Self {
        Self { level, text: text.into(), repeats: None }
    }

    /// A warning.
    pub fn warn(text: impl Into<String>) -> Self {
        Self::new(Level::Warn, text)
    }

    /// The same notice with a limit.
    #[must_use]
    pub fn with(self, repeats: Repeats) -> Self {
        Self { repeats: Some(repeats), ..self }
    }

    /// Writes it to the log.
    pub fn log(&self) {
        log::log!(self.level, "{}", self.text);
    }
}

/// Holds back notices beyond the limit of their kind.
#[derive(Debug)]
pub struct NoticeLimit {
    /// Notices of each kind per minute; 0 shows none that has a limit.
    pub per_minute: u32,
    kinds: HashMap<&'static str, Kind>,
}

#[derive(Debug)]
struct Kind {
    since: Instant,
    shown: u32,
    held_back: u64,
}

impl NoticeLimit {
    /// At most `per_minute` notices of each kind.
    pub fn new(per_minute: u32) -> Self {
        Self { per_minute, kinds: HashMap::new() }
    }

    /// The notice as it is shown at `now`; `None` if it is held back.
    pub fn admit(&mut self, mut notice: Notice, now: Instant) -> Option<Notice> {
        let (key, per_minute, counts) = match notice.repeats {
            None => return Some(notice),
            Some(Repeats::Limited(key)) => (key, self.per_minute, true),
            Some(Repeats::OnceAMinute(key)) => (key, self.per_minute.min(1), false),
        };
        let kind = self.kinds.entry(key).or_insert(Kind { since: now, shown: 0, held_back: 0 });
        if now.duration_since(kind.since) >= MINUTE {
            (kind.since, kind.shown) = (now, 0);
        }
        if kind.shown >= per_minute {
            kind.held_back += u64::from(counts);
            return None;
        }
        kind.shown += 1;
        let held_back = mem::take(&mut kind.held_back);
        if held_back > 0 {
            notice.text += &format!(" ({held_back} more of these were not shown)");
        }
        Some(notice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_notices_are_held_back_and_counted() {
        let start = Instant::now();
        let mut limit = NoticeLimit::new(2);
        let mut shown = |repeats, second| {
            let notice = Notice { repeats, ..Notice::warn("dropped") };
            let shown = limit.admit(notice, start + Duration::from_secs(second));
            shown.map(|notice| notice.text)
        };
        let (drops, stall) = (Some(Repeats::Limited("drops")), Some(Repeats::Limited("stall")));
        let text = Some("dropped".to_owned());
        assert_eq!(
            [0, 1, 2].map(|second| shown(drops, second)),
            [text.clone(), text.clone(), None]
        );
        assert_eq!(shown(stall, 2), text, "each kind has its own limit");
        assert_eq!(shown(drops, 59), None);
        assert!(shown(drops, 60).unwrap().contains("(2 more"));
        let once = Some(Repeats::OnceAMinute("busy"));
        let all = [0, 30, 60].map(|second| shown(once, second));
        assert_eq!(all, [text.clone(), None, text.clone()]);
        assert!((0..9).all(|second| shown(None, second) == text));
        limit.per_minute = 0;
        let later = start + Duration::from_secs(300);
        assert_eq!(limit.admit(Notice::warn("x").with(Repeats::OnceAMinute("busy")), later), None);
    }
}
