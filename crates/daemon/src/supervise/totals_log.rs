//! The log line of totals: requests since the last line, and stored swarms and peers.

use std::fmt::Write;
use std::time::{Duration, Instant};

use crate::effect::Effects;
use onrush_config::Settings;
use onrush_proto::Event;
use onrush_text::numbers::grouped;
use onrush_tracker::limits::Placement;
use onrush_tracker::metrics::{LOSSES, Summary};

/// Ticks are not exactly a second apart: totals that are due within this time are not postponed.
const TOLERANCE: Duration = Duration::from_millis(500);

/// Turns counters into log lines of the differences.
#[derive(Debug)]
pub(super) struct Totals {
    last: Summary,
    /// Whether a request may arrive at another worker than its shard's, so that steering matters.
    show_steered: bool,
    /// Whether the tracker serves HTTP.
    show_http: bool,
    last_at: Instant,
}

impl Totals {
    /// All counters start at zero.
    pub(super) fn new(settings: &Settings, now: Instant) -> Self {
        let show_steered = matches!(settings.placement, Placement::Colocated { workers: 2.. });
        let show_http = settings.http.is_on();
        Self { last: Summary::default(), show_steered, show_http, last_at: now }
    }

    /// Call every second with the sum of all counters, and `log.totals_every`: logs a line when it
    /// is due.
    pub(super) fn tick(
        &mut self,
        summary: &Summary,
        every: Duration,
        now: Instant,
        effects: &mut Effects,
    ) {
        let elapsed = now.duration_since(self.last_at);
        if !every.is_zero() && elapsed + TOLERANCE >= every {
            self.last_at = now;
            effects.info(self.line(*summary, elapsed));
        }
    }

    /// The line for the time `elapsed` since the last call.
    fn line(&mut self, now: Summary, elapsed: Duration) -> String {
        let last = std::mem::replace(&mut self.last, now);
        let since = |now: u64, last: u64| now.saturating_sub(last);
        let seconds = elapsed.as_secs_f64().max(0.001);
        let rate = |now: u64, last: u64| grouped(since(now, last) as f64 / seconds);
        let count = |now: u64, last: u64| grouped(since(now, last));
        let mut line = format!(
            "in {}/s, out {}/s: connect {}, announce {}, scrape {}",
            rate(now.received(), last.received()),
            rate(now.replied(), last.replied()),
            count(now.connects, last.connects),
            count(now.announces, last.announces),
            count(now.scrapes, last.scrapes),
        );
        let events = |event: Event| {
            let at = event.to_wire() as usize;
            count(now.events[at], last.events[at])
        };
        let _ = write!(
            line,
            " (started {}, completed {}, stopped {}, partial seeds {})",
            events(Event::Started),
            events(Event::Completed),
            events(Event::Stopped),
            events(Event::Paused),
        );
        let (local, foreign) = (since(now.local, last.local), since(now.foreign, last.foreign));
        // Rounded down: 100 % means all of them.
        if let (true, Some(percent)) =
            (self.show_steered, (local * 100).checked_div(local + foreign))
        {
            let _ = write!(line, "; steered {percent} %");
        }
        if self.show_http {
            let _ = write!(
                line,
                "; HTTP in {}/s, out {}/s, connections {}",
                rate(now.http_requests(), last.http_requests()),
                rate(now.answered, last.answered),
                grouped(now.http_open()),
            );
        }
        let refused: Vec<String> = now
            .only_refused()
            .zip(last.only_refused())
            .map(|((reason, now), (_, last))| (reason, since(now, last)))
            .filter(|(_, count)| *count > 0)
            .map(|(reason, count)| format!("{reason} {}", grouped(count)))
            .collect();
        if !refused.is_empty() {
            let _ = write!(line, "; refused: {}", refused.join(", "));
        }
        for ((what, now), (_, last)) in losses(&now).zip(losses(&last)) {
            if now > last {
                let _ = write!(line, "; {what} {}", count(now, last));
            }
        }
        let _ = write!(
            line,
            "; swarms {} (+{} idle), peers {} ({} IPv4, {} IPv6, {} seeders)",
            grouped(now.swarms),
            grouped(now.idle_swarms),
            grouped(now.peers_v4 + now.peers_v6),
            grouped(now.peers_v4),
            grouped(now.peers_v6),
            grouped(now.seeders()),
        );
        line
    }
}

/// The counts of requests lost, peers not stored and connections not served.
fn losses(sum: &Summary) -> impl Iterator<Item = (&'static str, u64)> + '_ {
    let lost = LOSSES.iter().map(|loss| loss.label).zip(sum.losses());
    // Requests in these lanes are counted as busy, and announcers are answered.
    let others = [("full lanes", sum.lane_full), ("announcers not stored", sum.not_stored())];
    lost.chain(others).chain(sum.unserved())
}

#[cfg(test)]
mod tests {
    use super::*;
    use onrush_tracker::close_cause::CloseCause;
    use onrush_tracker::refusal::{Refusal, UdpRefusal};

    fn totals_of(placement: Placement) -> Totals {
        let settings = Settings { placement, ..Settings::for_test("") };
        Totals::new(&settings, Instant::now())
    }

    /// After a late tick the next second is shorter.
    #[test]
    fn lines_appear_at_their_interval_despite_short_seconds() {
        for (every, milliseconds, shown) in [
            (1, [1030, 970, 1000, 999, 1001], [1, 2, 3, 4, 5].as_slice()),
            (2, [1030, 970, 1000, 999, 1001], &[2, 4]),
            (0, [1030, 970, 1000, 999, 1001], &[]),
        ] {
            let every = Duration::from_secs(every);
            let mut now = Instant::now();
            let mut totals = Totals::new(&Settings::for_test(""), now);
            let mut lines = Vec::new();
            for (second, milliseconds) in (1..).zip(milliseconds) {
                now += Duration::from_millis(milliseconds);
                let mut effects = Effects::default();
                totals.tick(&Summary::default(), every, now, &mut effects);
                lines.extend(effects.0.iter().map(|_| second));
            }
            assert_eq!(lines, shown, "every {every:?}");
        }
    }

    #[test]
    fn a_line_shows_differences() {
        let mut totals = totals_of(Placement::Colocated { workers: 1 });
        let mut now = Summary { datagrams: 100, connects: 60, sent: 90, ..Summary::default() };
        (now.announces, now.scrapes) = (25, 5);
        now.refused_by_udp[UdpRefusal::ConnectionId as usize] = 10;
        (now.swarms, now.peers_v4, now.peers_v6, now.seeders_v6) = (2, 7, 2, 1);
        let first = totals.line(now, Duration::from_secs(10));
        assert!(
            first.starts_with("in 10/s, out 9/s: connect 60, announce 25, scrape 5"),
            "{first}"
        );
        assert!(first.contains("refused: connection_id 10"), "{first}");
        now.datagrams += 50;
        now.kernel_drops = 3;
        let second = totals.line(now, Duration::from_secs(10));
        assert!(second.starts_with("in 5/s, out 0/s: connect 0,"), "{second}");
        assert!(!second.contains("refused"), "{second}");
        assert!(second.contains("kernel drops 3"), "{second}");
        assert!(
            second.contains("swarms 2 (+0 idle), peers 9 (7 IPv4, 2 IPv6, 1 seeders"),
            "{second}"
        );
    }

    #[test]
    fn colocated_workers_show_the_share_steered_since_the_last_line() {
        let mut totals = totals_of(Placement::Colocated { workers: 2 });
        let mut line = |local, foreign| {
            let now = Summary { local, foreign, ..Summary::default() };
            totals.line(now, Duration::from_secs(60))
        };
        assert!(!line(0, 0).contains("steered"), "no requests yet");
        assert!(line(1_999, 1).contains("; steered 99 %; "), "rounded down");
        assert!(line(2_099, 1).contains("; steered 100 %; "));
        assert!(line(2_099, 2).contains("; steered 0 %; "));
        assert!(!line(2_099, 2).contains("steered"), "no new requests");
        // One worker, or split placement.
        let split = Placement::Split { socket_workers: 2, swarm_workers: 2 };
        for placement in [Placement::Colocated { workers: 1 }, split] {
            let now = Summary { local: 5, foreign: 5, ..Summary::default() };
            let line = totals_of(placement).line(now, Duration::from_secs(60));
            assert!(!line.contains("steered"), "{line}");
        }
    }

    #[test]
    fn http_is_shown_where_it_is_served() {
        let mut settings = Settings::for_test("[http]\nlisten = [\":6969\"]");
        let mut totals = Totals::new(&settings, Instant::now());
        let mut now = Summary { datagrams: 100, sent: 90, ..Summary::default() };
        (now.requests, now.answered, now.open, now.accept_errors) = (50, 30, 7, 2);
        now.http_refused[0] = 20;
        now.closed[CloseCause::Full as usize] = 3;
        let line = totals.line(now, Duration::from_secs(10));
        assert!(line.starts_with("in 15/s, out 12/s: "), "{line}");
        let parts = "; HTTP in 5/s, out 3/s, connections 7; refused: malformed 20; \
                     connections not accepted 2; connections refused as full 3; swarms";
        assert!(line.contains(parts), "{line}");
        let line = totals.line(now, Duration::from_secs(10));
        assert!(line.contains("; HTTP in 0/s, out 0/s, connections 7; swarms"), "{line}");
        settings.http.listen.clear();
        let line = Totals::new(&settings, Instant::now()).line(now, Duration::from_secs(10));
        assert!(!line.contains("HTTP"), "{line}");
    }

    #[test]
    fn losses_are_listed_only_in_their_period() {
        let mut totals = totals_of(Placement::Split { socket_workers: 1, swarm_workers: 1 });
        let mut lost = Summary {
            lane_full: 2,
            kernel_drops: 3,
            checksum_errors: 6,
            kernel_shed: 7,
            unsent: [1, 3, 0, 0, 0, 0],
            refused_full: 5,
            ..Summary::default()
        };
        lost.refused[Refusal::Busy as usize] = 8;
        let line = totals.line(lost, Duration::from_secs(60));
        let parts = "; refused as busy 8; kernel drops 3; checksum errors 6; shed in the kernel 7; \
                     replies not sent 4; full lanes 2; announcers not stored 5; ";
        assert!(line.contains(parts) && !line.contains("; refused:"), "{line}");
        for (loss, count) in LOSSES.iter().zip(lost.losses()) {
            assert!(line.contains(&format!("; {} {count};", loss.label)), "{line}");
        }
        let line = totals.line(lost, Duration::from_secs(60));
        assert!(line.contains("partial seeds 0); swarms"), "{line}");
    }
}
