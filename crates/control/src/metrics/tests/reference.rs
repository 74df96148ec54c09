//! `docs/METRICS.md`: the reference of all series, generated from the tables.

use std::collections::BTreeSet;

use crate::metrics::computed::COMPUTED;
use crate::metrics::snapshot::AdminCounters;
use onrush_text::lines::wrapped;
use onrush_tracker::metrics::{
    Incoming, Kind, Series, ShardGauges, WebCounters, WorkerMetrics, XdpFrames, XdpQueue,
};

const HEAD: &str = "\
# Metrics

Every series of `/metrics`. This file is generated from the tables of counters
(`crates/tracker/src/metrics/table.rs` and others that `crates/control/src/metrics/tables.rs` lists)
and of computed series (`crates/control/src/metrics/computed.rs`): change those, then run
`ONRUSH_BLESS=1 cargo test -p onrush-control`.

`/stats.json` has the same values, without the histograms; [openapi.json](openapi.json) describes
its keys. The label `family` is `ipv4` or `ipv6`, and `worker` is the name of a worker's thread, or
`xdp-` and the interface for an XDP program. A series without the label `worker` is a sum over all
workers. Counters never decrease while the process runs.
";

/// The text of `docs/METRICS.md`.
pub(crate) fn markdown() -> String {
    let mut text = HEAD.to_owned();
    text += &section("Traffic", Incoming::SERIES);
    text += &section("Workers and sockets", WorkerMetrics::SERIES);
    text += &section("Shards", ShardGauges::SERIES);
    text +=
        &section("HTTP, absent unless http.listen or http.tls_listen is set", WebCounters::SERIES);
    text += &section("XDP, absent unless the program is attached", XdpFrames::SERIES);
    text += &section("Queues of XDP, absent unless workers have AF_XDP sockets", XdpQueue::SERIES);
    text += &section("Admin side", AdminCounters::SERIES);
    text += "\n## State, limits and computed values\n\n";
    for series in COMPUTED {
        text += &row(series.kind, series.name, series.labels, series.help, &[]);
    }
    text
}

/// The section of a table of counters.
fn section<T>(title: &str, table: &[Series<T>]) -> String {
    let row = |series: &Series<T>| {
        let transports = series.fields.iter().map(|field| field.transport);
        let others = series.fields.iter().flat_map(|field| field.values.iter().copied());
        let mut seen = BTreeSet::from([""]);
        let values = transports.chain(others).filter(|value| seen.insert(*value));
        let values: Vec<_> = values.collect();
        row(series.kind, series.name, series.labels, series.help, &values)
    };
    format!("\n## {title}\n\n{}", table.iter().map(row).collect::<String>())
}

fn row(kind: Kind, name: &str, labels: &[&str], help: &str, values: &[&str]) -> String {
    let (suffix, kind) = match kind {
        Kind::Counter => ("_total", "counter"),
        Kind::Gauge => ("", "gauge"),
        Kind::Histogram => ("", "histogram"),
    };
    let labels = match labels {
        [] => String::new(),
        labels => format!(", by {}", labels.join(", ")),
    };
    let values = match values {
        [] => String::new(),
        values => format!(" Values: {}.", values.join(", ")),
    };
    let stop = if help.ends_with('.') { "" } else { "." };
    let item = format!("- `{name}{suffix}` ({kind}{labels}): {help}{stop}{values}");
    wrapped(&item, "", "  ", 100).join("\n") + "\n"
}
