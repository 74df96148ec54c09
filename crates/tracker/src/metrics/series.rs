//! Description of a series of `/metrics`, generated from the table.

use super::{Counter, Summary};

/// A series: a metric family of Prometheus.
#[derive(Debug)]
pub struct Series<T: 'static> {
    /// Counter or gauge.
    pub kind: Kind,
    /// The workers that show it.
    pub shown: Shown,
    /// Its name; a counter's without `_total`.
    pub name: &'static str,
    /// The label names, in the order of output.
    pub labels: &'static [&'static str],
    /// The help text.
    pub help: &'static str,
    /// The fields whose values it shows.
    pub fields: &'static [Field<T>],
}

/// A field in a [`Series`].
#[derive(Debug)]
pub struct Field<T: 'static> {
    /// Value of the label `transport` where `values` are those of another label; else empty.
    pub transport: &'static str,
    /// Values of the label that is neither `family` nor `worker`, one per counter; empty for a
    /// series without such a label.
    pub values: &'static [&'static str],
    /// The counters of the field.
    pub read: fn(&T) -> &[Counter],
}

/// A cause for which datagrams, requests or replies are lost.
#[derive(Clone, Copy, Debug)]
pub struct Loss {
    /// Its name in `/stats.json` and `/history.json`.
    pub key: &'static str,
    /// Its name for people.
    pub label: &'static str,
    /// The help text of its series.
    pub help: &'static str,
    /// How much is lost.
    pub read: fn(&Summary) -> u64,
}

/// Type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Never decreases.
    Counter,
    /// May decrease.
    Gauge,
    /// Counts by size.
    Histogram,
}

/// The workers that show a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// Workers that take requests of clients.
    Sockets,
    /// Workers with a shard.
    Shards,
    /// Workers with connections of HTTP.
    Fronts,
    /// XDP programs.
    Programs,
    /// All workers.
    All,
}
