//! The tracker seen from outside: its metrics over HTTP.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use crate::run::RunClock;
use crate::stats::Spread;

/// The series that this module knows. A tracker without one of them counts 0.
pub(super) mod names {
    /// Datagrams received.
    pub(crate) const RECEIVED: &str = "onrush_received_datagrams_total";
    /// Datagrams that the kernel dropped, by reason.
    pub(crate) const DROPPED: [(&str, &str); 3] = [
        ("no room", "onrush_kernel_dropped_datagrams_total"),
        ("checksum", "onrush_checksum_errors_total"),
        ("shed in the kernel", "onrush_kernel_shed_datagrams_total"),
    ];
    /// Replies, by kind; those of the kind "error" belong to refused requests.
    pub(crate) const REPLIES: &str = "onrush_replies_total";
    /// Refused requests, by reason.
    pub(crate) const REFUSED: &str = "onrush_refused_requests_total";
    /// The overload step.
    pub(crate) const STEP: &str = "onrush_overload_step";
    /// Resident memory.
    pub(crate) const MEMORY: &str = "process_resident_memory_bytes";
    /// CPU time.
    pub(crate) const CPU: &str = "process_cpu_seconds_total";
    /// Peers stored.
    pub(crate) const PEERS: &str = "onrush_peers";
}

/// Interval between readings.
const EVERY: Duration = Duration::from_millis(250);
/// Time that a reply over HTTP may take, seconds: the tracker may have a small part of a vCPU, and
/// spend it on the attack.
const TIMEOUT: u64 = 30;
/// Counters are at rest when they do not change for this long: longer than the second in which
/// the tracker reads the kernel's counters.
const REST: Duration = Duration::from_millis(1500);
/// How long they may take to come to rest.
const LONGEST_REST: Duration = Duration::from_secs(15);

/// All series at one time: by name with labels, summed over workers and families.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Metrics(BTreeMap<(String, String), f64>);

impl Metrics {
    /// Parses the text format of Prometheus.
    pub(super) fn parse(text: &str) -> Self {
        let mut all = BTreeMap::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            // Label values may contain spaces; a number does not.
            let Some((series, value)) = line.rsplit_once(' ') else { continue };
            let Ok(value) = value.parse::<f64>() else { continue };
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            let labels = labels.trim_end_matches('}').split(',');
            let kept = labels.filter(|label| {
                let sums = ["worker=", "family="];
                !sums.iter().any(|name| label.starts_with(name))
            });
            let key = (name.to_owned(), kept.collect::<Vec<_>>().join(","));
            *all.entry(key).or_default() += value;
        }
        Self(all)
    }

    /// The sum of a name over all labels.
    pub(super) fn sum(&self, name: &str) -> f64 {
        self.of(name).map(|(_, value)| value).sum()
    }

    /// The values of a name by its other labels.
    pub(super) fn of(&self, name: &str) -> impl Iterator<Item = (&str, f64)> {
        let all = self.0.iter().filter(move |((of, _), _)| of == name);
        all.map(|((_, labels), value)| (labels.as_str(), *value))
    }

    /// The growth of each value since `before`.
    pub(super) fn since(&self, before: &Self) -> Self {
        let grown = |(key, value): (&(String, String), &f64)| {
            (key.clone(), value - before.0.get(key).unwrap_or(&0.0))
        };
        Self(self.0.iter().map(grown).collect())
    }

    /// The counters above 0, by name and labels.
    pub(super) fn counters(&self) -> BTreeMap<String, u64> {
        let counters = self
            .0
            .iter()
            .filter(|((name, _), _)| name.ends_with("_total") && !name.starts_with("process_"));
        let named = counters.map(|((name, labels), value)| {
            let text = if labels.is_empty() { name.clone() } else { format!("{name}{{{labels}}}") };
            (text, *value as u64)
        });
        named.filter(|(_, count)| *count > 0).collect()
    }
}

/// One reading.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Reading {
    /// Seconds since the start.
    pub(super) time: f64,
    /// CPU time in seconds.
    pub(super) cpu: f64,
    /// Resident memory in bytes.
    pub(super) rss: f64,
    /// Overload step.
    pub(super) step: f64,
    /// Peers stored.
    pub(super) peers: f64,
}

/// Reads the metrics from the admin side at this address, if there is one.
///
/// # Errors
/// When the admin side does not answer with metrics.
fn metrics(admin: Option<SocketAddr>) -> anyhow::Result<Option<Metrics>> {
    let Some(admin) = admin else { return Ok(None) };
    let url = format!("http://{admin}/metrics");
    let named = || format!("cannot read {url} (--admin)");
    let reply = minreq::get(&url).with_timeout(TIMEOUT).send().with_context(named)?;
    if reply.status_code != 200 {
        bail!("{url} (--admin): status {}", reply.status_code);
    }
    Ok(Some(Metrics::parse(reply.as_str().with_context(named)?)))
}

/// Reads the metrics once the datagrams on their way have been counted.
///
/// # Errors
/// As [`metrics`].
pub(super) fn metrics_at_rest(admin: Option<SocketAddr>) -> anyhow::Result<Option<Metrics>> {
    let traffic = |metrics: &Metrics| {
        let counters = [names::RECEIVED, names::REPLIES, names::REFUSED];
        let dropped = names::DROPPED.map(|(_, name)| name);
        counters.iter().chain(&dropped).map(|name| metrics.sum(name)).sum::<f64>()
    };
    let Some(mut last) = metrics(admin)? else { return Ok(None) };
    let (begin, mut since) = (Instant::now(), Instant::now());
    while since.elapsed() < REST && begin.elapsed() < LONGEST_REST {
        #[expect(clippy::disallowed_methods, reason = "counters are polled")]
        std::thread::sleep(EVERY);
        let Some(now) = metrics(admin)? else { return Ok(None) };
        if traffic(&now) != traffic(&last) {
            since = Instant::now();
        }
        last = now;
    }
    Ok(Some(last))
}

/// Readings until the span is over. One that fails is left out.
pub(super) fn observe(admin: Option<SocketAddr>, span: &RunClock) -> Vec<Reading> {
    let mut readings = Vec::new();
    while admin.is_some() {
        let over = span.is_over();
        let time = span.now() as f64 / 1e9;
        readings.extend(metrics(admin).ok().flatten().map(|metrics| Reading {
            time,
            cpu: metrics.sum(names::CPU),
            rss: metrics.sum(names::MEMORY),
            step: metrics.sum(names::STEP),
            peers: metrics.sum(names::PEERS),
        }));
        if over {
            break;
        }
        #[expect(clippy::disallowed_methods, reason = "counters are polled")]
        std::thread::sleep(EVERY);
    }
    readings
}

/// Readings in the second half without which its growth is not judged, and the part of the whole
/// time over which they have to be spread. With these, both quarters of that half have readings.
const LEAST_READINGS: usize = 8;
const LEAST_SPREAD: f64 = 1.0 / 3.0;

/// How fast a figure grows in the second half of `seconds` from `start`, in units per second: from
/// the median of the third quarter to that of the fourth. A single jump adds at most its own
/// height. `None` for too few readings, given as time and value.
pub(super) fn growth(readings: &[(f64, f64)], start: f64, seconds: f64) -> Option<f64> {
    let quarter = seconds / 4.0;
    let from = |time: f64| readings.partition_point(|reading| reading.0 < time);
    let [third, fourth, end] = [2.0, 3.0, 4.0].map(|number| from(start + number * quarter));
    let half = &readings[third..end];
    let ([first, .., last], LEAST_READINGS..) = (half, half.len()) else { return None };
    if last.0 - first.0 < seconds * LEAST_SPREAD {
        return None;
    }
    let median =
        |within: Range<usize>| Spread::median(readings[within].iter().map(|reading| reading.1));
    Some((median(fourth..end)? - median(third..fourth)?) / quarter)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# HELP onrush_refused_requests_total Requests refused.\n\
        onrush_refused_requests_total{reason=\"short\",family=\"ipv4\",worker=\"w 0\"} 3\n\
        onrush_refused_requests_total{reason=\"short\",family=\"ipv6\",worker=\"w 1\"} 4\n\
        onrush_refused_requests_total{reason=\"busy\",family=\"ipv6\",worker=\"w 1\"} 5\n\
        onrush_overload_step 2\n\
        process_cpu_seconds_total 1.5\n\
        # EOF\n";

    #[test]
    fn workers_and_families_are_summed() {
        let metrics = Metrics::parse(TEXT);
        assert_eq!(metrics.sum(names::REFUSED), 12.0);
        assert_eq!(metrics.sum(names::STEP), 2.0);
        assert_eq!(metrics.sum("onrush_absent_total"), 0.0);
        let by_reason: Vec<_> = metrics.of(names::REFUSED).collect();
        assert_eq!(by_reason, [("reason=\"busy\"", 5.0), ("reason=\"short\"", 7.0)]);
    }

    #[test]
    fn counters_grow_from_before() {
        let after = Metrics::parse(&TEXT.replace("} 4", "} 14"));
        let grown = after.since(&Metrics::parse(TEXT)).counters();
        let name = "onrush_refused_requests_total{reason=\"short\"}";
        assert_eq!(grown.into_iter().collect::<Vec<_>>(), [(name.to_owned(), 10)]);
    }

    /// Four readings a second for 8 s from second 2 on.
    fn readings(value: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
        (0..32).map(|n| f64::from(n) / 4.0).map(|time| (2.0 + time, value(time))).collect()
    }

    #[test]
    fn growth_is_that_of_the_second_half() {
        let of = |value: fn(f64) -> f64| growth(&readings(value), 2.0, 8.0);
        assert_eq!(of(|time| 5.0 + 3.0 * time), Some(3.0));
        assert_eq!(of(|time| if time < 4.0 { time } else { 4.0 }), Some(0.0));
    }

    /// A step counts with its height over the quarter of 2 s, not with more.
    #[test]
    fn a_step_counts_with_its_height_at_most() {
        for at in 0..32 {
            let step = |time: f64| if time < f64::from(at) / 4.0 { 0.0 } else { 10.0 };
            let found = growth(&readings(step), 2.0, 8.0).unwrap() * 2.0;
            assert!((0.0..=10.0).contains(&found), "{found} at {at}");
            assert!(at != 24 || found == 10.0, "{found}");
        }
    }

    /// Most readings may be early ones, where the observer was late afterwards.
    #[test]
    fn growth_needs_enough_readings_of_the_second_half() {
        let all = readings(|time| time);
        assert_eq!(growth(&[], 2.0, 8.0), None);
        assert_eq!(growth(&all[..16], 2.0, 8.0), None, "none of the second half");
        assert_eq!(growth(&all[..26], 2.0, 8.0), None, "ten within 2.25 s");
        let sparse: Vec<_> = all.iter().copied().step_by(3).collect();
        assert_eq!(growth(&sparse, 2.0, 8.0), None, "five");
        let late: Vec<_> = all.iter().map(|(time, value)| (time + 8.0, *value)).collect();
        assert_eq!(growth(&late, 2.0, 8.0), None, "after the end");
        assert!(growth(&all[..28], 2.0, 8.0).is_some(), "twelve within 2.75 s");
    }
}
