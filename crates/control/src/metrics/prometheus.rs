//! `/metrics` in the text formats of Prometheus: OpenMetrics 1.0 where the client asks for it, else
//! the text format 0.0.4. The series come from two tables: the counters of the workers
//! ([`onrush_tracker::metrics`]) and the computed series (`COMPUTED`).

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use super::computed::{COMPUTED, ComputedSeries};
use super::snapshot::{StatsSnapshot, Worker};
use onrush_tracker::metrics::{
    Histogram, Incoming, Kind, Series, ShardGauges, Shown, WorkerMetrics,
};

/// A format of `/metrics`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// The text format 0.0.4.
    Text,
}

impl Format {
    /// The format for a client that sends this `Accept` header.
    pub fn accepted(accept: &str) -> Self {
        if accept.contains("application/openmetrics-text") { Self::OpenMetrics } else { Self::Text }
    }

    /// Its content type.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// The page of a snapshot.
pub fn write(snapshot: StatsSnapshot, format: Format) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Page(snapshot)));
    let mut page = String::with_capacity(64 << 10);
    // Writing into a String cannot fail.
    let _ = text::encode(&mut page, &registry);
    match format {
        Format::OpenMetrics => page,
        Format::Text => to_text(&page),
    }
}

/// Converts OpenMetrics to the text format. OpenMetrics names a family of counters without
/// `_total`, the text format with it.
pub(super) fn to_text(page: &str) -> String {
    let mut text = String::with_capacity(page.len() + 4096);
    let mut lines = page.lines().peekable();
    while let Some(line) = lines.next() {
        let family = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' '));
        if line == "# EOF" {
            continue;
        }
        let (Some((name, help)), Some(kind)) = (family, lines.peek()) else {
            text.extend([line, "\n"]);
            continue;
        };
        let suffix = if kind.ends_with(" counter") { "_total" } else { "" };
        let kind = kind.rsplit(' ').next().unwrap_or("untyped").to_owned();
        text.push_str(&format!("# HELP {name}{suffix} {help}\n# TYPE {name}{suffix} {kind}\n"));
        lines.next();
    }
    text
}

/// Writes a snapshot for prometheus-client.
#[derive(Debug)]
struct Page(StatsSnapshot);

impl Collector for Page {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for series in COMPUTED {
            let ComputedSeries { kind, name, labels, help, write } = *series;
            write(&self.0, &mut Samples::begin(&mut encoder, kind, name, labels, help)?)?;
        }
        let all = &self.0;
        write_series(&mut encoder, all, Incoming::SERIES, &["ipv4", "ipv6"], |worker, family| {
            match family {
                "ipv4" => &worker.metrics.incoming.v4,
                _ => &worker.metrics.incoming.v6,
            }
        })?;
        write_series(&mut encoder, all, WorkerMetrics::SERIES, &[""], |worker, _| worker.metrics)?;
        write_series(&mut encoder, all, ShardGauges::SERIES, &[""], |worker, _| {
            &worker.metrics.shard
        })
    }
}

/// Writes counters of the workers. `get` selects the counters of a worker and an address family.
fn write_series<'a, T>(
    encoder: &mut DescriptorEncoder<'_>,
    all: &'a StatsSnapshot,
    table: &'static [Series<T>],
    families: &[&'static str],
    get: impl Fn(Worker<'a>, &'static str) -> &'a T,
) -> fmt::Result {
    for series in table {
        let mut to = Samples::begin(encoder, series.kind, series.name, series.labels, series.help)?;
        let workers: Vec<Worker<'_>> = match series.shown {
            Shown::Sockets => all.socket_workers().collect(),
            Shown::Shards => all.swarm_workers().collect(),
            Shown::All => all.workers().collect(),
        };
        let by_worker = series.labels.contains(&"worker");
        for (family, field) in families
            .iter()
            .flat_map(|family| series.fields.iter().map(move |field| (*family, field)))
        {
            for index in 0..field.values.len().max(1) {
                let own = field.values.get(index).copied().unwrap_or_default();
                let count = |worker: &Worker<'a>| (field.read)(get(*worker, family))[index].get();
                let mut put = |worker: &str, count| {
                    let value = |label: &&str| match *label {
                        "family" => family,
                        "worker" => worker,
                        _ => own,
                    };
                    to.put_count(series.labels.iter().map(value), count)
                };
                match by_worker {
                    true => workers.iter().try_for_each(|w| put(w.name, count(w)))?,
                    false => put("", workers.iter().map(count).sum())?,
                }
            }
        }
    }
    Ok(())
}

/// Most labels of a series.
const MAX_LABELS: usize = 3;

/// Writes the samples of one series.
pub(super) struct Samples<'e> {
    metric: MetricEncoder<'e>,
    kind: Kind,
    labels: &'static [&'static str],
}

impl<'e> Samples<'e> {
    fn begin<'n: 'e>(
        encoder: &'e mut DescriptorEncoder<'_>,
        kind: Kind,
        name: &'n str,
        labels: &'static [&'static str],
        help: &str,
    ) -> Result<Self, fmt::Error> {
        let metric_type = match kind {
            Kind::Counter => MetricType::Counter,
            Kind::Gauge => MetricType::Gauge,
            Kind::Histogram => MetricType::Histogram,
        };
        let metric = encoder.encode_descriptor(name, help, None, metric_type)?;
        Ok(Self { metric, kind, labels })
    }

    /// A sample with these label values, in the order of the labels.
    pub(super) fn put(&mut self, values: &[&str], value: f64) -> fmt::Result {
        self.sample(values.iter().copied(), |kind, metric| match kind {
            Kind::Counter => metric.encode_counter::<NoLabelSet, _, u64>(&value, None),
            Kind::Gauge | Kind::Histogram => metric.encode_gauge(&value),
        })
    }

    /// A sample whose value is a whole number.
    fn put_count<'v>(&mut self, values: impl Iterator<Item = &'v str>, value: u64) -> fmt::Result {
        self.sample(values, |kind, metric| match kind {
            Kind::Counter => metric.encode_counter::<NoLabelSet, _, u64>(&value, None),
            // As a float, because the encoder's integers end at 2^63.
            Kind::Gauge | Kind::Histogram => metric.encode_gauge(&(value as f64)),
        })
    }

    /// The histogram of a worker; `unit` converts its values.
    pub(super) fn put_histogram<const SHIFT: u32, const CLASSES: usize>(
        &mut self,
        worker: &str,
        histogram: &Histogram<SHIFT, CLASSES>,
        unit: f64,
    ) -> fmt::Result {
        let bound = |most: Option<u64>| most.map_or(f64::INFINITY, |most| most as f64 * unit);
        let buckets: Vec<(f64, u64)> =
            histogram.classes().map(|(most, count)| (bound(most), count)).collect();
        let count = buckets.iter().map(|(_, count)| count).sum();
        let sum = histogram.sum() as f64 * unit;
        self.sample([worker].into_iter(), |_, metric| {
            metric.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
        })
    }

    fn sample<'v>(
        &mut self,
        values: impl Iterator<Item = &'v str>,
        encode: impl FnOnce(Kind, &mut MetricEncoder<'_>) -> fmt::Result,
    ) -> fmt::Result {
        let mut pairs = [("", ""); MAX_LABELS];
        let mut count = 0;
        for pair in self.labels.iter().copied().zip(values) {
            pairs[count] = pair;
            count += 1;
        }
        match &pairs[..count] {
            [] => encode(self.kind, &mut self.metric),
            labels => encode(self.kind, &mut self.metric.encode_family(&labels)?),
        }
    }
}
