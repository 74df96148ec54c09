//! The text format of Prometheus (version 0.0.4), and the samples of one series in it.

use std::fmt::{self, Display, Write};

use onrush_tracker::metrics::{Histogram, Kind};

/// The content type of a page.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Appends the samples of one series to a page.
pub(super) struct Samples<'p> {
    page: &'p mut String,
    kind: Kind,
    name: &'static str,
    labels: &'static [&'static str],
}

impl<'p> Samples<'p> {
    /// Appends the head of a series.
    pub(super) fn begin(
        page: &'p mut String,
        (kind, name): (Kind, &'static str),
        labels: &'static [&'static str],
        help: &str,
    ) -> Self {
        let (kind_name, suffix) = match kind {
            Kind::Counter => ("counter", "_total"),
            Kind::Gauge => ("gauge", ""),
            Kind::Histogram => ("histogram", ""),
        };
        let type_line = ["\n# TYPE ", name, suffix, " ", kind_name, "\n"];
        page.extend(["# HELP ", name, suffix, " ", help].into_iter().chain(type_line));
        Self { page, kind, name, labels }
    }

    /// A sample with these label values, in the order of the labels.
    pub(super) fn put(&mut self, values: &[&str], value: f64) {
        self.put_value(values.iter().copied(), Number(value));
    }

    /// The histogram of a worker; `unit` converts its values.
    pub(super) fn put_histogram<const SHIFT: u32, const CLASSES: usize>(
        &mut self,
        worker: &str,
        histogram: &Histogram<SHIFT, CLASSES>,
        unit: f64,
    ) {
        let classes: Vec<_> = histogram.classes().collect();
        let labels = [("worker", worker)];
        self.sample("_sum", labels, Number(histogram.sum() as f64 * unit));
        self.sample("_count", labels, classes.iter().map(|(_, count)| count).sum::<u64>());
        let mut sum = 0;
        for (most, count) in classes {
            sum += count;
            let most = most.map(|most| Number(most as f64 * unit).to_string());
            let most = most.as_deref().unwrap_or("+Inf");
            self.sample("_bucket", [("le", most), ("worker", worker)], sum);
        }
    }

    /// A sample with any number.
    pub(super) fn put_value<'v>(
        &mut self,
        values: impl Iterator<Item = &'v str>,
        value: impl Display,
    ) {
        let suffix = if self.kind == Kind::Counter { "_total" } else { "" };
        self.sample(suffix, self.labels.iter().copied().zip(values), value);
    }

    fn sample<'v>(
        &mut self,
        suffix: &str,
        labels: impl IntoIterator<Item = (&'v str, &'v str)>,
        value: impl Display,
    ) {
        self.page.extend([self.name, suffix]);
        let mut before = "{";
        for (label, value) in labels {
            self.page.extend([before, label, "=\""]);
            value.chars().for_each(|character| match character {
                '\n' => self.page.push_str("\\n"),
                '\\' | '"' => self.page.extend(['\\', character]),
                _ => self.page.push(character),
            });
            self.page.push('"');
            before = ",";
        }
        let end = if before == "," { "}" } else { "" };
        // Writing to a string cannot fail.
        let _ = writeln!(self.page, "{end} {value}");
    }
}

/// A number with a decimal point and without an exponent.
struct Number(f64);

impl Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let point = if self.0.fract() == 0.0 { ".0" } else { "" };
        write!(f, "{}{point}", self.0)
    }
}
