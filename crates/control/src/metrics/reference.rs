//! `docs/METRICS.md`: the reference of all series, generated from the tables.

use super::computed::COMPUTED;
use onrush_tracker::metrics::{Incoming, Kind, Series, ShardGauges, WorkerMetrics};

const HEAD: &str = "\
# Metrics

Every series of `/metrics`. This file is generated from the tables of counters
(`crates/tracker/src/metrics/table.rs`) and of computed series
(`crates/control/src/metrics/computed.rs`): change those, then run
`ONRUSH_BLESS=1 cargo test -p onrush-control`.

`/stats.json` has the same values; [openapi.json](openapi.json) describes its keys. The label
`family` is `ipv4` or `ipv6`, and `worker` is the name of a worker's thread. A series without the
label `worker` is a sum over all workers. Counters never decrease while the process runs.
";

/// The text of `docs/METRICS.md`.
pub fn markdown() -> String {
    let mut text = HEAD.to_owned();
    section(&mut text, "Traffic", Incoming::SERIES);
    section(&mut text, "Workers and sockets", WorkerMetrics::SERIES);
    section(&mut text, "Shards", ShardGauges::SERIES);
    text.push_str(&heading("State, limits and computed values"));
    for series in COMPUTED {
        text.push_str(&row(series.kind, series.name, series.labels, series.help, Vec::new()));
    }
    text
}

fn section<T>(text: &mut String, title: &str, table: &[Series<T>]) {
    text.push_str(&heading(title));
    for series in table {
        let values = series.fields.iter().flat_map(|field| field.values.iter().copied());
        text.push_str(&row(series.kind, series.name, series.labels, series.help, values.collect()));
    }
}

fn heading(title: &str) -> String {
    format!("\n## {title}\n\n")
}

fn row(kind: Kind, name: &str, labels: &[&str], help: &str, values: Vec<&str>) -> String {
    let (suffix, kind) = match kind {
        Kind::Counter => ("_total", "counter"),
        Kind::Gauge => ("", "gauge"),
        Kind::Histogram => ("", "histogram"),
    };
    let labels = match labels {
        [] => String::new(),
        labels => format!(", by {}", labels.join(", ")),
    };
    let own = labels_list(&values);
    let stop = if help.ends_with('.') { "" } else { "." };
    wrap(&format!("- `{name}{suffix}` ({kind}{labels}): {help}{stop}{own}"))
}

fn labels_list(values: &[&str]) -> String {
    match values {
        [] => String::new(),
        values => format!(" Values: {}.", values.join(", ")),
    }
}

/// Breaks an item of a list into lines of at most 100 characters.
fn wrap(item: &str) -> String {
    let mut text = String::new();
    let mut line = String::new();
    for word in item.split(' ') {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > 100 {
            text.push_str(&line);
            text.push('\n');
            line = format!("  {word}");
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    text + &line + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `ONRUSH_BLESS=1 cargo test -p onrush-control` writes the file. A difference that removes or
    /// renames a series breaks the dashboards and alerts of operators.
    #[test]
    fn docs_metrics_md_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/METRICS.md");
        if std::env::var_os("ONRUSH_BLESS").is_some() {
            std::fs::write(path, markdown()).unwrap();
        }
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(written == markdown(), "docs/METRICS.md is old: ONRUSH_BLESS=1 writes it");
    }
}
