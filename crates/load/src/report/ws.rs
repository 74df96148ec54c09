//! The part of a report that only loads over WebSocket have.

use serde::{Deserialize, Serialize};

use super::{CurvePoint, curve, ratio};
use crate::latency::{Latency, Nanos};
use crate::tally::{ConnectionTally, Exchanged, WsTally};

/// Connections and messages over WebSocket within the window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WsReport {
    /// Messages per second, sent and received.
    pub message_rate: f64,
    /// Messages sent: announces, scrapes and answers.
    pub messages_sent: u64,
    /// Messages received: replies, offers and answers.
    pub messages_received: u64,
    /// Connections that were opened.
    pub opened: u64,
    /// Connections that failed: none was opened, or it broke.
    pub failed: u64,
    /// Why the first of them failed.
    pub failure: Option<String>,
    /// Connections that the load tester has ended, by `--disconnects`.
    pub disconnected: u64,
    /// Time until a connection was open, with its handshakes.
    pub handshake: Latency,
    /// Offers; their latency is that until delivery.
    pub offers: ExchangeReport,
    /// Answers; their latency is that from the offer, for which its sender waits.
    pub answers: ExchangeReport,
    /// Connections that were held, with `--idle`.
    pub idle: Option<IdleReport>,
}

/// Offers or answers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ExchangeReport {
    /// Those that were sent.
    pub sent: u64,
    /// Those that a tracker should deliver: offers for which the swarm had a member, by its counts,
    /// and all answers.
    pub due: u64,
    /// Those that arrived right, within the timeout.
    pub arrived: u64,
    /// Those that arrived right, but later.
    pub late: u64,
    /// Those that were due and did not arrive within the timeout, in percent.
    pub lost_percent: f64,
    /// Latency of those that arrived within the timeout, from when the offer was sent (open loop:
    /// due).
    pub latency: Latency,
    /// The distribution of the latency.
    pub curve: Vec<CurvePoint>,
}

/// Connections that were held.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IdleReport {
    /// Connections that were open at the end of the window, with a reply to their announce.
    pub held: u64,
    /// Connections opened per second, from the first one to the last one.
    pub connect_rate: f64,
    /// The tracker's resident memory in bytes before the first connection, where its process id was
    /// given.
    pub rss_before: Option<u64>,
    /// Its resident memory in bytes at the end of the window.
    pub rss_after: Option<u64>,
    /// The growth of its resident memory in bytes, per connection.
    pub rss_per_connection: Option<f64>,
}

impl WsReport {
    pub(super) fn new((connections, tally): (&ConnectionTally, &WsTally), seconds: f64) -> Self {
        let [messages_sent, messages_received] = tally.messages;
        Self {
            message_rate: (messages_sent + messages_received) as f64 / seconds,
            messages_sent,
            messages_received,
            opened: connections.opened,
            failed: connections.failed,
            failure: connections.failure.clone(),
            disconnected: tally.disconnected,
            handshake: Latency::of(&connections.handshake.0),
            offers: ExchangeReport::new(&tally.offers),
            answers: ExchangeReport::new(&tally.answers),
            idle: None,
        }
    }
}

impl WsReport {
    /// Warnings about a run with this number of connections.
    pub(super) fn warnings(&self, connections: u64) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.failed > 0 {
            let why = self.failure.as_deref().unwrap_or("unknown");
            warnings.push(format!("{} connections failed, the first one: {why}", self.failed));
        }
        for (name, of) in [("offers", &self.offers), ("answers", &self.answers)] {
            if of.lost_percent > 0.0 {
                warnings.push(format!(
                    "{:.3} % of the {name} were not delivered in time: the tracker dropped them, \
                     or connections ended",
                    of.lost_percent
                ));
            }
        }
        let held = self.idle.as_ref().map(|idle| idle.held).filter(|held| *held < connections);
        if let Some(held) = held {
            warnings.push(format!(
                "{held} of {connections} connections were open at the end: raise --duration, or \
                 the limits of the tracker and its host"
            ));
        }
        warnings
    }
}

impl ExchangeReport {
    fn new(tally: &Exchanged) -> Self {
        let Exchanged { sent, due, arrived, late, latency } = tally;
        Self {
            sent: *sent,
            due: *due,
            arrived: *arrived,
            late: *late,
            lost_percent: ratio(due.saturating_sub(*arrived) as f64 * 100.0, *due as f64),
            latency: Latency::of(&latency.0),
            curve: curve(&latency.0),
        }
    }
}

impl IdleReport {
    /// The report on connections, the last of which was open after this time. `rss` is the
    /// tracker's memory before and after.
    pub fn new((held, time): (u64, Nanos), rss: Option<(u64, u64)>) -> Self {
        let grown = |(before, after): (u64, u64)| after as f64 - before as f64;
        Self {
            held,
            connect_rate: ratio(held as f64 * 1e9, time as f64),
            rss_before: rss.map(|(before, _)| before),
            rss_after: rss.map(|(_, after)| after),
            rss_per_connection: rss.map(|rss| ratio(grown(rss), held as f64)),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::report::tests::example as report;
    use crate::report::{Report, Setup};
    use crate::ws::{Sizes, WsSettings};

    pub(crate) fn settings() -> WsSettings {
        let sdp = Sizes { min: 500, max: 2000 };
        let (answers, disconnects) = (0.5, 0.0);
        WsSettings {
            connections: 64,
            is_idle: true,
            offers: 5,
            sdp,
            answers,
            disconnects,
            tls: true,
        }
    }

    /// A report on 60 idle connections, of which half the answers were lost.
    pub(crate) fn example() -> WsReport {
        let failure = Some("a reason".into());
        let connections = ConnectionTally { failed: 3, failure, ..ConnectionTally::default() };
        let mut tally = WsTally { messages: [500, 700], ..WsTally::default() };
        tally.offers = Exchanged { sent: 90, due: 40, arrived: 40, ..Exchanged::default() };
        tally.answers =
            Exchanged { sent: 40, due: 40, arrived: 20, late: 4, ..Exchanged::default() };
        tally.offers.latency.0.saturating_record(2_000_000);
        tally.answers.latency.0.saturating_record(3_000_000);
        let idle = IdleReport::new((60, 2_000_000_000), Some((1000, 61_000)));
        WsReport { idle: Some(idle), ..WsReport::new((&connections, &tally), 2.0) }
    }

    #[test]
    fn figures_and_warnings_follow_from_the_tally() {
        let ws = example();
        assert_eq!((ws.message_rate, ws.offers.lost_percent), (600.0, 0.0));
        assert_eq!((ws.answers.lost_percent, ws.answers.late), (50.0, 4));
        let idle = ws.idle.as_ref().unwrap();
        assert_eq!((idle.connect_rate, idle.rss_per_connection), (30.0, Some(1000.0)));
        let setup = Setup { ws: Some(settings()), ..report().setup };
        let mut report = Report { ws: Some(ws), setup, no_room: 1, unsent: 5, ..report() };
        report.warn();
        for part in [
            "3 connections failed, the first one: a reason",
            "50.000 % of the answers",
            "60 of 64 connections were open",
            "raise --connections",
        ] {
            assert!(report.warnings.iter().any(|warning| warning.contains(part)), "{part}");
        }
        let (table, page) = (report.to_table(), report.to_html());
        for part in ["600 per second", "90 sent, 40 due; 40 delivered", "60 held", "1000 B"] {
            assert!(table.contains(part) && page.contains(part), "{part}: {table}");
        }
        assert!(table.contains("64, idle, with TLS; 5 offers of 500 to 2000 bytes"), "{table}");
        assert!(!table.contains("peers per reply"), "{table}");
    }
}
