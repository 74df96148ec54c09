//! `/metrics` in the text formats of Prometheus: OpenMetrics 1.0 where the client asks for it, else
//! the text format 0.0.4. The series come from two tables: the counters of the workers
//! ([`onrush_tracker::metrics`]) and the computed series (`COMPUTED`).

use super::computed::COMPUTED;
use super::snapshot::{StatsSnapshot, Worker};
use super::text::{Format, Samples};
use onrush_tracker::metrics::{Incoming, Series, ShardGauges, Shown, WorkerMetrics};

/// The page of a snapshot.
pub fn write(all: &StatsSnapshot, format: Format) -> String {
    let mut page = String::with_capacity(64 << 10);
    for series in COMPUTED {
        let kind = (series.kind, series.name);
        let mut to = Samples::begin(&mut page, format, kind, series.labels, series.help);
        (series.write)(all, &mut to);
    }
    write_series(&mut page, format, all, Incoming::SERIES, &["ipv4", "ipv6"], |worker, family| {
        match family {
            "ipv4" => &worker.metrics.incoming.v4,
            _ => &worker.metrics.incoming.v6,
        }
    });
    write_series(&mut page, format, all, WorkerMetrics::SERIES, &[""], |worker, _| worker.metrics);
    write_series(&mut page, format, all, ShardGauges::SERIES, &[""], |worker, _| {
        &worker.metrics.shard
    });
    if format == Format::OpenMetrics {
        page.push_str("# EOF\n");
    }
    page
}

/// Writes counters of the workers. `get` selects the counters of a worker and an address family.
fn write_series<'a, T>(
    page: &mut String,
    format: Format,
    all: &'a StatsSnapshot,
    table: &'static [Series<T>],
    families: &[&'static str],
    get: impl Fn(Worker<'a>, &'static str) -> &'a T,
) {
    for Series { kind, shown, name, labels, help, fields } in table {
        let mut to = Samples::begin(page, format, (*kind, name), labels, help);
        let workers: Vec<Worker<'_>> = match shown {
            Shown::Sockets => all.socket_workers().collect(),
            Shown::Shards => all.swarm_workers().collect(),
            Shown::All => all.workers().collect(),
        };
        let by_worker = labels.contains(&"worker");
        for (family, field) in
            families.iter().flat_map(|family| fields.iter().map(move |field| (*family, field)))
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
                    to.put_count(labels.iter().map(value), count);
                };
                match by_worker {
                    true => workers.iter().for_each(|worker| put(worker.name, count(worker))),
                    false => put("", workers.iter().map(count).sum()),
                }
            }
        }
    }
}
