//! Totals for people: what happened since the last line, and what is stored.

use std::fmt::Write;
use std::time::Duration;

use crate::intake::Refusal;
use crate::metrics::{EVENTS, Summary};
use onrush_proto::Event;

/// Turns readings into lines; remembers the last one.
#[derive(Debug, Default)]
pub struct Totals {
    last: Summary,
}

impl Totals {
    /// What to say after `elapsed` since the last call.
    pub fn line(&mut self, now: Summary, elapsed: Duration) -> String {
        let last = std::mem::replace(&mut self.last, now);
        let since = |now: u64, last: u64| now.saturating_sub(last);
        let seconds = elapsed.as_secs_f64().max(0.001);
        let rate = |now: u64, last: u64| (since(now, last) as f64 / seconds).round() as u64;
        let mut line = format!(
            "in {}/s, out {}/s: connect {}, announce {}, scrape {}",
            rate(now.datagrams, last.datagrams),
            rate(now.sent, last.sent),
            since(now.connects, last.connects),
            since(now.announces, last.announces),
            since(now.scrapes, last.scrapes),
        );
        let events = |event: Event| {
            let at = EVENTS.iter().position(|known| *known == event).unwrap_or(0);
            since(now.events[at], last.events[at])
        };
        let _ = write!(
            line,
            " (started {}, completed {}, stopped {}, partial seeds {})",
            events(Event::Started),
            events(Event::Completed),
            events(Event::Stopped),
            events(Event::Paused),
        );
        let refused: Vec<String> = Refusal::ALL
            .iter()
            .map(|refusal| (refusal, since(now.refused_for(*refusal), last.refused_for(*refusal))))
            .filter(|(_, count)| *count > 0)
            .map(|(refusal, count)| format!("{} {count}", refusal.name()))
            .collect();
        if !refused.is_empty() {
            let _ = write!(line, "; refused: {}", refused.join(", "));
        }
        let lost = [
            ("kernel drops", since(now.kernel_drops, last.kernel_drops)),
            ("replies not sent", since(now.send_dropped, last.send_dropped)),
            ("announcers not stored", since(now.refused_full, last.refused_full)),
        ];
        for (what, count) in lost.into_iter().filter(|(_, count)| *count > 0) {
            let _ = write!(line, "; {what} {count}");
        }
        let _ = write!(
            line,
            "; swarms {} (+{} idle), peers {} ({} IPv4, {} IPv6, {} seeders)",
            now.swarms,
            now.idle_swarms,
            now.peers_v4 + now.peers_v6,
            now.peers_v4,
            now.peers_v6,
            now.seeders,
        );
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_what_is_new() {
        let mut totals = Totals::default();
        let mut now = Summary { datagrams: 100, connects: 60, sent: 90, ..Summary::default() };
        now.refused[Refusal::ConnectionId as usize] = 10;
        now.peers_v4 = 7;
        let first = totals.line(now, Duration::from_secs(10));
        assert!(first.starts_with("in 10/s, out 9/s: connect 60,"), "{first}");
        assert!(first.contains("refused: connection_id 10"), "{first}");
        now.datagrams += 50;
        now.kernel_drops = 3;
        let second = totals.line(now, Duration::from_secs(10));
        assert!(second.starts_with("in 5/s, out 0/s: connect 0,"), "{second}");
        assert!(!second.contains("refused"), "{second}");
        assert!(second.contains("kernel drops 3"), "{second}");
        assert!(second.contains("peers 7 (7 IPv4, 0 IPv6"), "{second}");
    }
}
