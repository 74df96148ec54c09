//! The result of a run: a table for people, JSON for machines, an HTML page, latency distributions.

mod curve;
mod figures;
mod html;
pub mod search;
mod table;
mod verdict;
mod ws;

pub use curve::CurvePoint;
pub(crate) use curve::curve;
pub(crate) use figures::Fact;
pub(crate) use html::Page;
pub use ws::{ExchangeReport, IdleReport, WsReport};

use serde::{Deserialize, Serialize};

use crate::check::Finding;
use crate::cpu::Cpu;
use crate::environment::Environment;
use crate::http::HttpSettings;
use crate::latency::{Latencies, Latency};
use crate::plan::{Kind, Profile};
use crate::series::Sample;
use crate::tally::{ConnectionTally, Example, Found, HttpTally, OfKind, QueueTally, Tally};
use crate::worker::{LoadSettings, Pace};
use crate::ws::WsSettings;

/// The version of the JSON. Keys are only added under one version.
pub const FORMAT: u32 = 3;

/// A run's result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`FORMAT`].
    pub format: u32,
    /// This tool's version.
    pub version: String,
    /// Start of the run, in seconds since 1970.
    pub started: u64,
    /// The settings of the run.
    pub setup: Setup,
    /// Seconds of the measured window.
    pub seconds: f64,
    /// Right replies per second, received within the window.
    pub rate: f64,
    /// Requests due within the window and sent, per second. Where a tracker is too slow for an open
    /// loop some of them were sent up to a timeout after the window.
    pub sent_rate: f64,
    /// Megabits per second of replies, payload only.
    pub reply_megabits: f64,
    /// Counts by kind of request.
    pub kinds: Vec<KindReport>,
    /// Lost requests, in percent of those that deserve a reply.
    pub loss_percent: f64,
    /// Latency of all replies.
    pub latency: Latency,
    /// Wrong replies, by finding.
    pub wrong: Vec<Findings>,
    /// Replies that differ from the expected ones within what the BEPs leave open, by finding.
    pub differs: Vec<Findings>,
    /// Replies received after their request had expired.
    pub late: u64,
    /// Peers per right announce reply.
    pub peers_per_reply: f64,
    /// Checked peers, in percent of the listed ones.
    pub peers_checked_percent: f64,
    /// Datagrams that the kernel accepted, from warm-up to drain.
    pub datagrams_sent: u64,
    /// Requests that the kernel refused within the window.
    pub not_sent: u64,
    /// Open loop: requests that were due and never sent.
    pub unsent: u64,
    /// Open loop: number of bursts that waited at the limit of requests in flight. Late and unsent
    /// requests are then caused by missing replies.
    pub no_room: u64,
    /// Open loop: delay from the due time of a request to its sending, the load tester's own part
    /// of the latency.
    pub behind: Latency,
    /// Replies that the kernel dropped within the window because a socket's buffer was full.
    pub dropped_here: u64,
    /// The tracker's CPU time within the window.
    pub tracker_cpu: Option<CpuReport>,
    /// CPU time of the tracker's busiest thread within the window, in percent of one vCPU.
    pub tracker_busiest_percent: Option<f64>,
    /// The load tester's CPU time within the window.
    pub own_cpu: Option<CpuReport>,
    /// CPU time of each load worker within the window, in percent of one vCPU.
    pub worker_percent: Vec<f64>,
    /// The distribution of all latencies.
    pub curve: Vec<CurvePoint>,
    /// The tracker's process, where its process id was given.
    pub tracker: Option<TrackerReport>,
    /// The queues of the interface, with `--xdp`.
    #[serde(default)]
    pub queues: Vec<QueueTally>,
    /// Connections, over HTTP.
    pub http: Option<HttpReport>,
    /// Connections and messages, over WebSocket.
    pub ws: Option<WsReport>,
    /// The measuring machine.
    pub environment: Option<Environment>,
    /// The command line that repeats the run.
    pub command: String,
    /// The run over time, warm-up and drain included.
    pub series: Vec<Sample>,
    /// The search for the highest rate, where this is its result.
    pub search: Option<search::Search>,
    /// Reasons to doubt these figures.
    pub warnings: Vec<String>,
}

/// The settings of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    /// The tracker's addresses.
    pub targets: Vec<String>,
    /// Source addresses over IPv4 and IPv6.
    pub sources: [u32; 2],
    /// Sockets of each worker.
    pub sockets: usize,
    /// The settings of the load, as fields of their own.
    #[serde(flatten)]
    pub load: LoadSettings,
    /// The profile.
    pub profile: Profile,
    /// Swarms of the population.
    pub swarms: u32,
    /// Peers of the population over IPv4 and IPv6.
    pub peers: [u32; 2],
    /// The interface whose queues the load uses (AF_XDP, native mode).
    pub xdp: Option<String>,
    /// Whether an XDP program transmits the requests in place of AF_XDP sockets.
    pub live_frames: bool,
    /// The settings of a load over HTTP.
    pub http: Option<HttpSettings>,
    /// The settings of a load over WebSocket.
    pub ws: Option<WsSettings>,
}

/// One kind of request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KindReport {
    /// The kind.
    pub kind: Kind,
    /// Requests of the window.
    pub requests: u64,
    /// Requests that repeat a lost one.
    pub repeats: u64,
    /// Right replies.
    pub right: u64,
    /// Wrong replies.
    pub wrong: u64,
    /// Lost requests.
    pub lost: u64,
    /// Latency from sending (open loop: from the due time) to the reply.
    pub latency: Latency,
    /// The distribution of the latency.
    pub curve: Vec<CurvePoint>,
}

/// Connections over HTTP within the window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HttpReport {
    /// Connections that were opened.
    pub opened: u64,
    /// Handshakes of TLS that resumed a session.
    pub resumed: u64,
    /// Connections that failed: none was opened, or it broke.
    pub failed: u64,
    /// Why the first of them failed.
    pub failure: Option<String>,
    /// Requests that are lost because the tracker asked to try later (BEP 31).
    pub deferred: u64,
    /// Time until a connection was open, with its handshake.
    pub handshake: Latency,
    /// Latency of the first byte of a reply, from sending (open loop: from the due time).
    pub first_byte: Latency,
}

/// The tracker's process over the whole run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrackerReport {
    /// Its process id.
    pub pid: u32,
    /// Resident memory at the end, in bytes.
    pub rss: u64,
    /// Peak resident memory since the process started, in bytes.
    pub peak_rss: u64,
    /// Datagrams that the kernel dropped because its receive buffers were full, from warm-up to
    /// drain; none where its sockets are not readable.
    pub drops: Option<u64>,
}

/// Replies with one finding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Findings {
    /// The finding.
    pub finding: Finding,
    /// Its text.
    pub text: String,
    /// Number of replies.
    pub count: u64,
    /// The first replies.
    pub examples: Vec<Example>,
}

/// CPU time within the window.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CpuReport {
    /// CPU time in seconds.
    pub time: Cpu,
    /// CPU time in percent of one vCPU.
    pub percent: f64,
    /// Microseconds per right reply.
    pub per_reply: f64,
}

impl Report {
    /// The report on the counts of all workers together, over a window of this length. Figures of
    /// the host are left out, and warnings, which [`Self::warn`] adds.
    pub fn new(setup: Setup, tally: &Tally, seconds: f64) -> Self {
        let per_second = |count: u64| count as f64 / seconds;
        let answered =
            || Kind::ALL.iter().filter(|k| k.is_answered()).map(|k| &tally.kinds[*k as usize]);
        let requests: u64 = answered().map(|kind| kind.requests).sum();
        let lost: u64 = answered().map(|kind| kind.lost).sum();
        let mut all = Latencies::<3>::default();
        for kind in &tally.kinds {
            all.add(&kind.latency);
        }
        let announces = tally.kinds[Kind::Announce as usize].right;
        let connections = tally.connections.as_deref();
        let sent: u64 = tally.kinds.iter().map(|kind| kind.requests).sum();
        Self {
            format: FORMAT,
            version: onrush_text::version::version().into(),
            seconds,
            rate: per_second(tally.right_in_window),
            sent_rate: per_second(sent),
            reply_megabits: per_second(tally.bytes_in_window) * 8.0 / 1e6,
            kinds: Kind::ALL.map(|kind| KindReport::new(kind, &tally.kinds[kind as usize])).into(),
            loss_percent: ratio(lost as f64 * 100.0, requests as f64),
            latency: Latency::of(&all.0),
            wrong: findings(tally, |finding| setup.load.strict || !finding.is_open()),
            differs: findings(tally, |finding| !setup.load.strict && finding.is_open()),
            late: tally.late,
            peers_per_reply: ratio(tally.peers as f64, announces as f64),
            peers_checked_percent: ratio(tally.peers_checked as f64 * 100.0, tally.peers as f64),
            datagrams_sent: tally.sent.datagrams,
            unsent: tally.unsent,
            no_room: tally.no_room,
            behind: Latency::of(&tally.behind.0),
            curve: curve(&all.0),
            queues: tally.queues.clone(),
            http: connections.zip(tally.http.as_deref()).map(HttpReport::new),
            ws: connections.zip(tally.ws.as_deref()).map(|ws| WsReport::new(ws, seconds)),
            setup,
            ..Self::default()
        }
    }

    /// The report on CPU time within the window.
    pub fn cpu(&self, time: Cpu) -> CpuReport {
        let percent = time.total() / self.seconds * 100.0;
        CpuReport { time, percent, per_reply: ratio(percent * 1e4, self.rate) }
    }

    /// Number of wrong replies.
    pub fn wrong_replies(&self) -> u64 {
        self.wrong.iter().map(|findings| findings.count).sum()
    }

    /// Number of right replies to requests of the window.
    pub fn right_replies(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.right).sum()
    }

    /// Number of requests of the window that deserve a reply.
    pub fn answerable(&self) -> u64 {
        let kinds = self.kinds.iter().filter(|kind| kind.kind.is_answered());
        kinds.map(|kind| kind.requests).sum()
    }

    /// Lost and unsent requests, in percent of the due ones.
    pub fn missed_percent(&self) -> f64 {
        let unsent = self.unsent as f64;
        let (sent, lost) = (self.answerable() as f64, self.loss_percent / 100.0);
        ratio((lost * sent + unsent) * 100.0, sent + unsent)
    }

    /// Adds warnings about these figures.
    pub fn warn(&mut self) {
        let Self { dropped_here, not_sent, unsent, no_room, .. } = *self;
        let closed = matches!(self.setup.load.pace, Pace::InFlight(_));
        let more = self.setup.more_in_flight();
        let mut warn = |text: String| self.warnings.push(text);
        if dropped_here > 0 {
            let lower = if closed { "lower --in-flight, or: " } else { "" };
            warn(format!(
                "{dropped_here} replies were dropped here at full receive buffers and count as \
                 lost: {lower}sysctl -w net.core.rmem_max=4194304"
            ));
        }
        if not_sent > 0 {
            let what = match self.http.is_some() || self.ws.is_some() {
                true => "connections: it has no port or open file left, and their requests",
                false => "requests, which",
            };
            warn(format!("the kernel refused {not_sent} {what} count as lost"));
        }
        let (behind, p99) = (self.behind.p99, self.latency.p99);
        if behind > 1000.0 && behind > p99 / 4.0 && no_room == 0 {
            warn(format!(
                "the load tester sent {behind:.0} us late at p99, which is part of the latency \
                 of {p99:.0} us: give it a vCPU of its own (--pin, taskset) or more workers"
            ));
        }
        let cause = match no_room {
            0 => "the load tester fell behind; give it more workers and vCPUs".to_owned(),
            _ => format!(
                "too many requests were in flight; the tracker is slower than the rate, or raise \
                 {more}"
            ),
        };
        if unsent > 0 {
            warn(format!("{unsent} requests were due but never sent: {cause}"));
        }
        if let Some(interface) = &self.setup.xdp
            && self.queues.iter().all(|queue| queue.received == 0)
        {
            warn(format!(
                "no reply arrived on a queue of {interface}, so the load left by UDP sockets: \
                 name the interface of the route to the tracker (ip route get ADDRESS)"
            ));
        }
        if let Some(ws) = &self.ws {
            let all = self.setup.ws.as_ref().map_or(0, |ws| ws.connections as u64);
            ws.warnings(all).into_iter().for_each(&mut warn);
        }
        if let Some(HttpReport { failed, failure, deferred, .. }) = &self.http {
            if *failed > 0 {
                let why = failure.as_deref().unwrap_or("unknown");
                warn(format!("{failed} connections failed, the first one: {why}"));
            }
            if *deferred > 0 {
                warn(format!(
                    "to {deferred} requests the tracker answered to try later (`retry in`), as \
                     under overload; they count as lost"
                ));
            }
        }
    }
}

impl Setup {
    /// The option that allows more requests in flight.
    fn more_in_flight(&self) -> &'static str {
        if self.http.is_some() || self.ws.is_some() { "--connections" } else { "--in-flight" }
    }
}

impl HttpReport {
    fn new((connections, tally): (&ConnectionTally, &HttpTally)) -> Self {
        Self {
            opened: connections.opened,
            resumed: tally.resumed,
            failed: connections.failed,
            failure: connections.failure.clone(),
            deferred: tally.deferred,
            handshake: Latency::of(&connections.handshake.0),
            first_byte: Latency::of(&tally.first_byte.0),
        }
    }
}

impl KindReport {
    fn new(kind: Kind, tally: &OfKind) -> Self {
        Self {
            kind,
            requests: tally.requests,
            repeats: tally.repeats,
            right: tally.right,
            wrong: tally.wrong,
            lost: tally.lost,
            latency: Latency::of(&tally.latency.0),
            curve: curve(&tally.latency.0),
        }
    }
}

fn findings(tally: &Tally, wanted: impl Fn(Finding) -> bool) -> Vec<Findings> {
    let of = |((finding, text), found): ((Finding, &str), &Found)| {
        let (text, examples) = (text.into(), found.examples.clone());
        Findings { finding, text, count: found.count, examples }
    };
    let all = Finding::ALL.into_iter().zip(&*tally.findings);
    all.filter(|((finding, _), found)| wanted(*finding) && found.count > 0).map(of).collect()
}

/// `a / b`, or 0 where `b` is 0, as JSON has no NaN.
fn ratio(a: f64, b: f64) -> f64 {
    if b == 0.0 { 0.0 } else { a / b }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::check::Right;
    use std::sync::LazyLock;

    pub(crate) fn example() -> Report {
        // Its histograms take longer than a search of dozens of rounds.
        static EXAMPLE: LazyLock<Report> = LazyLock::new(new_example);
        EXAMPLE.clone()
    }

    fn new_example() -> Report {
        let mut tally = Tally::default();
        let right = Right { connection_id: None, peers: 12, peers_checked: 9, differs: None };
        for n in 1..=1000 {
            tally.right(Kind::Announce, n * 1000, &right);
        }
        tally.kinds[Kind::Announce as usize].requests = 1010;
        tally.kinds[Kind::Announce as usize].lost = 10;
        tally.kinds[Kind::Junk as usize].requests = 90;
        tally.right_in_window = 1000;
        tally.finding(Finding::DuplicatePeer, &[0xDE, 0xAD], || "announce".into());
        tally.finding(Finding::ZeroInterval, &[0xBE, 0xEF], || "announce".into());
        let load = LoadSettings {
            pace: Pace::rate(1000.5),
            warmup: 1.0,
            seed: u64::MAX,
            pin: vec![1],
            ..LoadSettings::default()
        };
        let setup = Setup {
            targets: vec!["127.0.0.1:6969".into()],
            sources: [64, 0],
            sockets: 64,
            load,
            profile: Profile::real(),
            swarms: 1000,
            peers: [1300, 0],
            xdp: None,
            live_frames: false,
            http: None,
            ws: None,
        };
        let report = Report::new(setup, &tally, 2.0);
        let mut report = Report {
            started: 1_700_000_000,
            tracker_cpu: Some(report.cpu(Cpu { user: 0.5, system: 1.0 })),
            tracker_busiest_percent: Some(62.5),
            own_cpu: Some(report.cpu(Cpu { user: 0.25, system: 0.5 })),
            worker_percent: vec![37.5],
            dropped_here: 3,
            warnings: vec!["a notice".into()],
            ..report
        };
        report.warn();
        report
    }

    /// The settings of a load over HTTP.
    pub(crate) fn over_http() -> HttpSettings {
        HttpSettings {
            connections: 64,
            keep_alive: true,
            pipeline: 1,
            tls: true,
            resume: false,
            lists: 0.01,
        }
    }

    /// The limits of a load over HTTP are named with the options of that command.
    #[test]
    fn limits_over_http_are_reported() {
        let http = HttpReport {
            opened: 1,
            failed: 7,
            failure: Some("a reason".into()),
            deferred: 9,
            ..HttpReport::default()
        };
        let setup = Setup { http: Some(over_http()), ..example().setup };
        let (unsent, no_room, not_sent) = (3, 1, 5);
        let mut report = Report { http: Some(http), setup, unsent, no_room, not_sent, ..example() };
        report.warn();
        for part in [
            "7 connections failed, the first one: a reason",
            "to 9 requests the tracker answered to try later",
            "refused 5 connections: it has no port",
            "or raise --connections",
        ] {
            assert!(report.warnings.iter().any(|text| text.contains(part)), "{part}");
        }
        let table = report.to_table();
        for part in ["64, kept, with TLS", "handshake", "first byte"] {
            assert!(table.contains(part), "{part}: {table}");
        }
    }

    #[test]
    fn a_late_load_tester_is_reported() {
        let warned = |behind: u64| {
            let mut tally = Tally::default();
            tally.kinds[Kind::Announce as usize].latency.0.record_n(10_000_000, 100).unwrap();
            tally.behind.0.record_n(behind * 1_000_000, 100).unwrap();
            let mut report = Report::new(example().setup, &tally, 1.0);
            report.warn();
            report.warnings.iter().any(|warning| warning.contains("the load tester sent"))
        };
        assert!(warned(4), "4 of the 10 ms are its own");
        assert!(!warned(2), "2 of 10 ms change little");
    }

    /// A report as JSON, read again.
    fn back<T: serde::de::DeserializeOwned>(report: &Report) -> T {
        serde_json::from_str(&serde_json::to_string(report).unwrap()).unwrap()
    }

    #[test]
    fn json_round_trips() {
        let report = example();
        assert_eq!(back::<Report>(&report), report);
    }

    #[test]
    fn figures_follow_from_the_tally() {
        let report = example();
        assert_eq!((report.rate, report.sent_rate), (500.0, 550.0));
        assert!((report.loss_percent - 10.0 / 10.1).abs() < 1e-9, "{}", report.loss_percent);
        assert_eq!((report.peers_per_reply, report.peers_checked_percent), (12.0, 75.0));
        let cpu = report.tracker_cpu.unwrap();
        assert_eq!((cpu.percent, cpu.per_reply), (75.0, 1500.0));
        assert!((report.latency.p50 - 500.0).abs() < 2.0 && report.latency.max >= 1000.0);
        assert_eq!((report.wrong_replies(), report.right_replies()), (1, 1000));
        assert_eq!(report.differs[0].finding, Finding::ZeroInterval);
        assert_eq!(report.wrong[0].examples[0].reply, "dead");
        assert!(report.warnings.iter().any(|warning| warning.contains("dropped here")));
    }

    /// The keys of a value with their types, like `kinds[].lost: number`.
    fn keys(path: &str, value: &serde_json::Value, found: &mut Vec<String>) {
        use serde_json::Value::{Array, Bool, Null, Number, Object, String};
        let kind = match value {
            Object(fields) => {
                fields
                    .iter()
                    .for_each(|(name, value)| keys(&format!("{path}.{name}"), value, found));
                return;
            }
            Array(values) => {
                return values.iter().for_each(|v| keys(&format!("{path}[]"), v, found));
            }
            Null => "null",
            Bool(_) => "boolean",
            Number(_) => "number",
            String(_) => "string",
        };
        found.push(format!("{}: {kind}", path.trim_start_matches('.')));
    }

    /// Readers of the JSON rely on its keys. Where a change is intended, the new list is in the
    /// message of the failure; a removed key or another type also raises [`FORMAT`].
    #[test]
    fn the_json_has_the_committed_keys() {
        let sample = Sample { tracker: Some(Default::default()), ..Sample::default() };
        let sysctls = [("net.core.rmem_max".to_owned(), "212992".to_owned())].into();
        let mitigations = [("meltdown".to_owned(), "Mitigation: PTI".to_owned())].into();
        let text = || Some("text".to_owned());
        let report = Report {
            tracker: Some(TrackerReport { pid: 1, rss: 1, peak_rss: 1, drops: Some(0) }),
            environment: Some(Environment {
                sysctls,
                mitigations,
                load_average: vec![0.5; 3],
                governor: text(),
                virtualization: text(),
                ..Environment::default()
            }),
            series: vec![sample],
            search: Some(search::tests::example()),
            http: Some(HttpReport { failure: text(), ..HttpReport::default() }),
            ws: Some(ws::tests::example()),
            queues: vec![QueueTally::default()],
            setup: Setup {
                xdp: text(),
                http: Some(over_http()),
                ws: Some(ws::tests::settings()),
                ..example().setup
            },
            ..example()
        };
        let mut found = Vec::new();
        keys("", &back(&report), &mut found);
        found.sort();
        found.dedup();
        let committed: Vec<_> = include_str!("report/keys.txt").lines().collect();
        assert!(found == committed, "report/keys.txt should be:\n{}\n", found.join("\n"));
    }

    #[test]
    fn a_run_without_replies_has_finite_figures() {
        let report = Report::new(example().setup, &Tally::default(), 1.0);
        let back: Report = back(&report);
        assert_eq!(back.latency, Latency::default());
        assert_eq!(back.rate, 0.0);
    }
}
