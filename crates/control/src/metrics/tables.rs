//! The tables of counters, of all crates, that `/metrics` and its reference show.

use std::collections::BTreeSet;

use super::snapshot::{AdminCounters, StatsSnapshot, Worker};
use super::text::Samples;
use onrush_tracker::member::Member;
use onrush_tracker::metrics::{
    Incoming, Series, ShardGauges, Shown, WebCounters, WorkerMetrics, XdpFrames, XdpQueue,
};

/// Appends the series of all tables to a page. The counters of another crate are one more.
pub(super) fn write<'a>(page: &mut String, all: &'a StatsSnapshot) {
    write_table(page, Incoming::SERIES, &["ipv4", "ipv6"], |shown, family| {
        by_worker(all, shown, |metrics| match family {
            "ipv4" => &metrics.incoming.v4,
            _ => &metrics.incoming.v6,
        })
    });
    write_table(page, WorkerMetrics::SERIES, &[""], |shown, _| {
        by_worker(all, shown, |metrics| metrics)
    });
    write_table(page, ShardGauges::SERIES, &[""], |shown, _| {
        by_worker(all, shown, |metrics| &metrics.shard)
    });
    // A tracker without HTTP has not even the heads of its series.
    if all.web_workers().next().is_some() {
        write_table(page, WebCounters::SERIES, &[""], |shown, _| {
            by_worker(all, shown, |metrics| &metrics.web)
        });
    }
    if all.programs().next().is_some() {
        write_table(page, XdpFrames::SERIES, &[""], |_, _| {
            let members = all.programs().map(|worker| worker.member);
            let of = |member: &'a Member| Some((member.interface()?, &member.metrics.xdp));
            members.filter_map(of).collect()
        });
    }
    let queues: Vec<_> = all.metrics().flat_map(|it| it.queues.iter()).collect();
    let numbers: BTreeSet<_> = queues.iter().map(|queue| queue.queue.as_str()).collect();
    let numbers: Vec<_> = numbers.into_iter().collect();
    if !queues.is_empty() {
        write_table(page, XdpQueue::SERIES, &numbers, |_, number| {
            let of_number = queues.iter().filter(|queue| queue.queue == number);
            of_number.map(|queue| (queue.interface.as_str(), *queue)).collect()
        });
    }
    write_table(page, AdminCounters::SERIES, &[""], |_, _| vec![("", &*all.admin)]);
}

/// The counters of the workers that show a series.
fn by_worker<'a, T>(
    all: &'a StatsSnapshot,
    shown: Shown,
    read: impl Fn(&'a WorkerMetrics) -> &'a T,
) -> Vec<(&'a str, &'a T)> {
    let of = |worker: Worker<'a>| (worker.member.name.as_str(), read(&worker.member.metrics));
    match shown {
        Shown::Sockets => all.socket_workers().map(of).collect(),
        Shown::Shards => all.swarm_workers().map(of).collect(),
        Shown::Fronts => all.web_workers().map(of).collect(),
        Shown::Programs => all.programs().map(of).collect(),
        Shown::All => all.workers().map(of).collect(),
    }
}

/// Appends the series of the table of the struct `T`. `families` are the values of the label
/// `family` or `queue`; one empty string where the table has neither. `counters` returns those for
/// series that these workers show, of a family, each with the value of the label `worker` or
/// `interface`.
fn write_table<'a, T: 'a>(
    page: &mut String,
    series: &'static [Series<T>],
    families: &[&str],
    counters: impl Fn(Shown, &str) -> Vec<(&'a str, &'a T)>,
) {
    for Series { kind, shown, name, labels, help, fields } in series {
        let mut to = Samples::begin(page, (*kind, name), labels, help);
        let by_worker = labels.contains(&"worker") || labels.contains(&"interface");
        for (family, field) in
            families.iter().flat_map(|family| fields.iter().map(move |field| (*family, field)))
        {
            let workers = counters(*shown, family);
            for index in 0..field.values.len().max(1) {
                let own = field.values.get(index).copied().unwrap_or_default();
                let count = |counters: &T| (field.read)(counters)[index].get();
                let mut put = |worker: &str, count: u64| {
                    let value = |label: &&str| match *label {
                        "family" | "queue" => family,
                        "worker" | "interface" => worker,
                        "transport" if !field.transport.is_empty() => field.transport,
                        _ => own,
                    };
                    to.put_value(labels.iter().map(value), count);
                };
                match by_worker {
                    true => workers.iter().for_each(|(name, own)| put(name, count(own))),
                    false => put("", workers.iter().map(|(_, own)| count(own)).sum()),
                }
            }
        }
    }
}
