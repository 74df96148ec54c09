//! `/metrics`: the same as `/stats.json` in the text formats of Prometheus: OpenMetrics for who asks for it, and
//! the older one that every tool reads.

use std::fmt;

use onrush_proto::Family;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabelSet, MetricEncoder, NoLabelSet, text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use super::snapshot::{StatsSnapshot, Worker};
use super::stats::{EVENT_NAMES, mode_name, placement_name};
use onrush_tracker::clients;
use onrush_tracker::metrics::{Histogram, Incoming, REPLIES, WorkerMetrics};

/// A format of `/metrics`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// The text format of Prometheus, 0.0.4.
    Text,
}

impl Format {
    /// What a client gets that sends this `Accept`.
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

/// Writes what the snapshot has.
pub fn write(snapshot: StatsSnapshot, format: Format) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Page(snapshot)));
    let mut page = String::with_capacity(64 << 10);
    // Writing into a String cannot fail.
    let _ = text::encode(&mut page, &registry);
    match format {
        Format::OpenMetrics => page,
        Format::Text => as_text(&page),
    }
}

/// OpenMetrics names a family of counters without `_total`, the older format with it.
pub(super) fn as_text(page: &str) -> String {
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
        let counts = kind.ends_with(" counter");
        let suffix = if counts { "_total" } else { "" };
        let kind = kind.rsplit(' ').next().unwrap_or("untyped").to_owned();
        text.push_str(&format!("# HELP {name}{suffix} {help}\n# TYPE {name}{suffix} {kind}\n"));
        lines.next();
    }
    text
}

/// A snapshot as prometheus-client asks for it.
#[derive(Debug)]
struct Page(StatsSnapshot);

impl Collector for Page {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut to = Writer { encoder };
        let snapshot = &self.0;
        process(&mut to, snapshot)?;
        requests(&mut to, snapshot)?;
        replies(&mut to, snapshot)?;
        clients_by_software(&mut to, snapshot)?;
        swarms(&mut to, snapshot)?;
        workers(&mut to, snapshot)?;
        lanes(&mut to, snapshot)?;
        limits(&mut to, snapshot)?;
        files(&mut to, snapshot)?;
        http(&mut to, snapshot)
    }
}

/// Where families of metrics are written to.
struct Writer<'a> {
    encoder: DescriptorEncoder<'a>,
}

impl Writer<'_> {
    /// A family of counters; the name is without `_total`.
    fn counters<S: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (S, u64)>,
    ) -> fmt::Result {
        let mut family = self.encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        values.into_iter().try_for_each(|(labels, value)| {
            family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&value, None)
        })
    }

    /// A family of levels.
    fn gauges<S: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (S, u64)>,
    ) -> fmt::Result {
        let mut family = self.encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        // As floating-point numbers, as they are read: an integer of the encoder ends at 2^63.
        values.into_iter().try_for_each(|(labels, value)| {
            family.encode_family(&labels)?.encode_gauge(&(value as f64))
        })
    }

    /// A level without labels, whole or not.
    fn gauge(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        self.encoder.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&value)
    }

    /// A count without labels, whole or not.
    fn counter(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        let mut metric = self.encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        metric.encode_counter::<NoLabelSet, _, u64>(&value, None)
    }

    /// A distribution for each worker.
    fn histograms<'r, const SHIFT: u32, const CLASSES: usize>(
        &mut self,
        name: &str,
        help: &str,
        unit: f64,
        values: impl Iterator<Item = (&'r str, &'r Histogram<SHIFT, CLASSES>)>,
    ) -> fmt::Result {
        let mut family = self.encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (worker, histogram) in values {
            let labels = [("worker", worker)];
            histogram_of(family.encode_family(&labels)?, histogram, unit)?;
        }
        Ok(())
    }
}

fn histogram_of<const SHIFT: u32, const CLASSES: usize>(
    mut metric: MetricEncoder<'_>,
    histogram: &Histogram<SHIFT, CLASSES>,
    unit: f64,
) -> fmt::Result {
    let sum = histogram.sum() as f64 * unit;
    let classes = histogram.classes();
    let buckets: Vec<(f64, u64)> = classes
        .map(|(most, count)| (most.map_or(f64::INFINITY, |most| most as f64 * unit), count))
        .collect();
    let count = buckets.iter().map(|(_, count)| count).sum();
    metric.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
}

const FAMILIES: [(Family, &str); 2] = [(Family::V4, "ipv4"), (Family::V6, "ipv6")];

/// Every worker with sockets and family, with what came in there.
fn doors(snapshot: &StatsSnapshot) -> impl Iterator<Item = (Worker<'_>, &'static str, &Incoming)> {
    snapshot.socket_workers().flat_map(|worker| {
        let incoming = &worker.metrics.incoming;
        FAMILIES.map(|(family, name)| (worker, name, incoming.of(family)))
    })
}

/// A number of each of these workers, labelled by it.
fn of_each<'r>(
    workers: impl Iterator<Item = Worker<'r>>,
    of: fn(&WorkerMetrics) -> u64,
) -> impl Iterator<Item = ([(&'static str, &'r str); 1], u64)> {
    workers.map(move |worker| ([("worker", worker.name)], of(worker.metrics)))
}

fn process(to: &mut Writer<'_>, snapshot: &StatsSnapshot) -> fmt::Result {
    let process = &snapshot.process;
    let build = [
        ("version", env!("CARGO_PKG_VERSION")),
        ("build", crate::version::version()),
        ("placement", placement_name(snapshot.settings.placement)),
    ];
    to.gauges("onrush_build_info", "Which build this is; always 1", [(build, 1)])?;
    to.gauge(
        "onrush_uptime_seconds",
        "Time since the tracker was started",
        snapshot.uptime.as_secs_f64(),
    )?;
    to.gauge(
        "process_start_time_seconds",
        "When the process was started, since 1970",
        snapshot.started,
    )?;
    to.counter(
        "process_cpu_seconds",
        "CPU time of all threads, user and system",
        process.cpu_seconds,
    )?;
    to.gauge("process_resident_memory_bytes", "Memory in use", process.resident as f64)?;
    if let Some(limit) = process.memory_limit {
        to.gauge("onrush_memory_limit_bytes", "Memory that the process may take", limit as f64)?;
    }
    to.gauge("process_virtual_memory_bytes", "Address space in use", process.virtual_size as f64)?;
    to.gauge("process_open_fds", "Open file descriptors", process.open_files as f64)?;
    to.gauge("process_threads", "Threads", process.threads as f64)?;
    let stages = ["starting", "serving", "stopping"];
    let now =
        stages.map(|stage| ([("stage", stage)], u64::from(stage == snapshot.readiness.name())));
    to.gauges("onrush_stage", "1 for the stage that the tracker is in", now)
}

fn requests(to: &mut Writer<'_>, snapshot: &StatsSnapshot) -> fmt::Result {
    let labels =
        |worker: Worker<'_>, family| [("family", family), ("worker", worker.name)].map(own);
    let each = |of: fn(&Incoming) -> u64| {
        doors(snapshot)
            .map(move |(worker, family, incoming)| (labels(worker, family), of(incoming)))
    };
    to.counters(
        "onrush_received_datagrams",
        "Datagrams received",
        each(|incoming| incoming.datagrams.get()),
    )?;
    to.counters("onrush_received_bytes", "Their payload", each(|incoming| incoming.bytes.get()))?;
    let kinds = doors(snapshot).flat_map(|(worker, family, incoming)| {
        let counts = [
            ("connect", incoming.connects.get()),
            ("announce", incoming.announces.get()),
            ("scrape", incoming.scrapes.get()),
        ];
        counts.map(|(kind, count)| {
            ([("kind", kind), ("family", family), ("worker", worker.name)], count)
        })
    });
    to.counters("onrush_requests", "Requests that passed every check", kinds)?;
    let refused = doors(snapshot).flat_map(|(worker, family, incoming)| {
        incoming.refusals().map(move |(reason, count)| {
            ([("reason", reason), ("family", family), ("worker", worker.name)], count)
        })
    });
    to.counters("onrush_refused_requests", "Requests refused", refused)?;
    let events = FAMILIES.into_iter().flat_map(|(family, name)| {
        EVENT_NAMES.iter().enumerate().map(move |(at, event)| {
            let counts =
                snapshot.metrics().map(|worker| worker.incoming.of(family).events[at].get());
            ([("event", *event), ("family", name)], counts.sum())
        })
    });
    to.counters("onrush_announces", "Announces by event; paused is of partial seeds", events)?;
    let unconnectable = FAMILIES.map(|(family, name)| {
        let counts =
            snapshot.metrics().map(|worker| worker.incoming.of(family).unconnectable.get());
        ([("family", name)], counts.sum())
    });
    to.counters(
        "onrush_unconnectable_announces",
        "Announces of peers that cannot accept connections",
        unconnectable,
    )
}

fn own((name, value): (&'static str, &str)) -> (&'static str, String) {
    (name, value.to_owned())
}

fn replies(to: &mut Writer<'_>, snapshot: &StatsSnapshot) -> fmt::Result {
    let each = |of| of_each(snapshot.socket_workers(), of);
    let kinds = doors(snapshot).flat_map(|(worker, family, incoming)| {
        REPLIES.iter().zip(&incoming.replies).map(move |(kind, count)| {
            ([("kind", *kind), ("family", family), ("worker", worker.name)], count.get())
        })
    });
    to.counters(
        "onrush_replies",
        "Replies handed to the kernel, whether it took them or not",
        kinds,
    )?;
    to.counters("onrush_sent_datagrams", "Replies that the kernel took", each(|w| w.sent.get()))?;
    to.counters("onrush_sent_bytes", "Their payload", each(|w| w.sent_bytes.get()))?;
    to.counters("onrush_send_calls", "System calls for sending", each(|w| w.send_calls.get()))?;
    let unsent = snapshot.socket_workers().flat_map(|worker| {
        let metrics = worker.metrics;
        let causes =
            [("full_buffer", metrics.send_blocked.get()), ("error", metrics.send_failed.get())];
        causes.map(|(cause, count)| ([("cause", cause), ("worker", worker.name)], count))
    });
    to.counters("onrush_unsent_replies", "Replies that the kernel did not take", unsent)?;
    to.counters(
        "onrush_kernel_dropped_datagrams",
        "Datagrams that no receive buffer had room for",
        each(|worker| worker.kernel_drops.get()),
    )?;
    to.gauges(
        "onrush_receive_buffer_bytes",
        "Receive buffers of all sockets of a worker, as the kernel counts them",
        each(|worker| worker.receive_buffer.get()),
    )?;
    to.gauges(
        "onrush_send_buffer_bytes",
        "Send buffers of all sockets of a worker, as the kernel counts them",
        each(|worker| worker.send_buffer.get()),
    )?;
    to.histograms(
        "onrush_batch_datagrams",
        "Datagrams received with one call; empty calls are not counted",
        1.0,
        snapshot.socket_workers().map(|worker| (worker.name, &worker.metrics.receives)),
    )
}

fn clients_by_software(to: &mut Writer<'_>, snapshot: &StatsSnapshot) -> fmt::Result {
    let counts = clients::NAMES.iter().enumerate().flat_map(|(at, client)| {
        FAMILIES.map(|(family, name)| {
            let counts =
                snapshot.metrics().map(|worker| worker.incoming.of(family).clients.0[at].get());
            ([("client", *client), ("family", name)], counts.sum())
        })
    });
    to.counters(
        "onrush_sampled_announces",
        "Announces by software, of those looked at: one in onrush_announce_sample_ratio",
        counts,
    )?;
    to.gauge(
        "onrush_announce_sample_ratio",
        "One announce in so many is looked at for its software",
        clients::SAMPLE as f64,
    )
}

fn swarms(to: &mut Writer<'_>, snapshot: &StatsSnapshot) -> fmt::Result {
    let peers = snapshot.swarm_workers().flat_map(|worker| {
        let shard = &worker.metrics.shard;
        let of = |family, peers: u64, seeders: u64| {
            let roles = [("seeder", seeders), ("leecher", peers.saturating_sub(seeders))];
            roles.map(|(role, count)| {
                ([("family", family), ("role", role), ("worker", worker.name)], count)
            })
        };
        let v4 = of("ipv4", shard.peers_v4.get(), shard.seeders_v4.get());
        v4.into_iter().chain(of("ipv6", shard.peers_v6.get(), shard.seeders_v6.get()))
    });
    to.gauges("onrush_peers", "Peers stored", peers)?;
    let swarms = snapshot.swarm_workers().flat_map(|worker| {
        let shard = &worker.metrics.shard;
        let states = [("active", shard.swarms.get()), ("idle", shard.idle_swarms.get())];
        states.map(|(state, count)| ([("state", state), ("worker", worker.name)], count))
    });
    to.gauges("onrush_swarms", "Swarms with peers, and without", swarms)?;
    to.gauges(
        "onrush_family_swarms",
        "Swarms with peers of a family, as the last pass of expiry met them; some are in both",
        swarms_by_family(snapshot),
    )?;
    let each = |of| of_each(snapshot.swarm_workers(), of);
    to.counters(
        "onrush_completed_peers",
        "Peers that completed",
        each(|w| w.shard.completed.get()),
    )?;
    to.counters(
        "onrush_expired_peers",
        "Peers forgotten because they did not announce again",
        each(|worker| worker.shard.expired.get()),
    )?;
    to.counters(
        "onrush_not_stored_peers",
        "Newcomers not stored, as limits.peers is reached",
        each(|worker| worker.shard.refused_full.get()),
    )?;
    to.counters(
        "onrush_evicted_idle_swarms",
        "Swarms without peers forgotten before their time, as limits.idle_swarms is reached",
        each(|worker| worker.shard.idle_evicted.get()),
    )?;
    to.counters(
        "onrush_swept_entries",
        "Entries looked at for expiry",
        each(|worker| worker.shard.swept.get()),
    )?;
    to.counters(
        "onrush_sweep_passes",
        "Times that all entries were looked at for expiry",
        each(|worker| worker.shard.sweep_passes.get()),
    )?;
    to.gauges(
        "onrush_sweep_debt_entries",
        "Entries that should have been looked at for expiry by now and were not yet",
        each(|worker| worker.shard.sweep_debt.get()),
    )
}

/// Of each shard, once a pass has ended: until then nobody knows.
fn swarms_by_family(
    snapshot: &StatsSnapshot,
) -> impl Iterator<Item = ([(&'static str, &str); 2], u64)> {
    snapshot
        .swarm_workers()
        .filter_map(|worker| Some((worker, worker.metrics.shard.by_family()?)))
        .flat_map(|(worker, swarms)| {
            let families = [("ipv4", swarms.v4), ("ipv6", swarms.v6)];
            families.map(|(family, count)| ([("family", family), ("worker", worker.name)], count))
        })
}

fn workers(to: &mut Writer<'_>, snapshot: &StatsSnapshot) -> fmt::Result {
    to.counters(
        "onrush_turns",
        "Turns taken, with or without something to do",
        of_each(snapshot.workers(), |worker| worker.turns.get()),
    )?;
    to.histograms(
        "onrush_turn_duration_seconds",
        "Time that turns took which had something to do",
        1e-9,
        snapshot.workers().map(|worker| (worker.name, &worker.metrics.turn_times)),
    )?;
    let still = snapshot.workers().map(|worker| {
        let stuck = worker.state.stalled_for >= crate::stall::STALL_THRESHOLD;
        ([("worker", worker.name)], u64::from(stuck))
    });
    to.gauges("onrush_worker_stuck", "1 for a worker that took no turn for 5 s", still)
}

fn lanes(to: &mut Writer<'_>, snapshot: &StatsSnapshot) -> fmt::Result {
    let ways = snapshot.socket_workers().flat_map(|worker| {
        let ways =
            [("local", worker.metrics.local.get()), ("foreign", worker.metrics.foreign.get())];
        ways.map(|(way, count)| ([("way", way), ("worker", worker.name)], count))
    });
    to.counters(
        "onrush_shard_requests",
        "Requests that met their shard on the worker that received them, or over a lane although it has a shard",
        ways,
    )?;
    to.counters(
        "onrush_lane_full_batches",
        "Batches of requests that a full lane did not take",
        of_each(snapshot.socket_workers(), |worker| worker.lane_full.get()),
    )?;
    to.counters(
        "onrush_orphaned_requests",
        "Requests served for a worker or front that had exited before the reply",
        of_each(snapshot.swarm_workers(), |worker| worker.orphaned.get()),
    )?;
    let depth = |of: fn(&Worker<'_>) -> usize| {
        snapshot.swarm_workers().map(move |worker| ([("worker", worker.name)], of(&worker) as u64))
    };
    to.gauges(
        "onrush_lane_waiting_batches",
        "Batches that wait to be served by a worker",
        depth(|worker| worker.state.lane_waiting),
    )?;
    to.gauges(
        "onrush_lane_room_batches",
        "Batches that may wait for a worker",
        depth(|worker| worker.state.lane_capacity),
    )
}

fn limits(to: &mut Writer<'_>, snapshot: &StatsSnapshot) -> fmt::Result {
    let limits = &snapshot.settings.limits;
    to.gauge(
        "onrush_overload_step",
        "How hard the tracker is pressed: 0 is not at all, 8 the most",
        f64::from(snapshot.pressure.step),
    )?;
    to.gauge(
        "onrush_announce_interval_seconds",
        "Time that clients are told to wait, before jitter",
        f64::from(snapshot.pressure.interval),
    )?;
    to.gauge("onrush_peers_limit", "limits.peers", limits.peers as f64)?;
    to.gauge("onrush_idle_swarms_limit", "limits.idle_swarms", limits.idle_swarms as f64)?;
    to.gauge("onrush_list_entries_limit", "limits.list_entries", limits.list_entries as f64)?;
    to.gauges(
        "onrush_list_entries",
        "Info hashes of the list in force",
        [([("mode", mode_name(&snapshot.lists.access))], snapshot.lists.access.len() as u64)],
    )?;
    to.gauge(
        "onrush_blocked_source_ranges",
        "Ranges of addresses whose requests are refused",
        snapshot.lists.blocked.len() as f64,
    )
}

fn files(to: &mut Writer<'_>, snapshot: &StatsSnapshot) -> fmt::Result {
    let files = [("snapshot", &snapshot.files.snapshot), ("export", &snapshot.files.export)];
    let outcomes = files.into_iter().flat_map(|(file, writes)| {
        let outcomes = [("written", writes.written.get()), ("failed", writes.failed.get())];
        outcomes.map(|(outcome, count)| ([("file", file), ("outcome", outcome)], count))
    });
    to.counters(
        "onrush_file_writes",
        "Files written, or not: then the former one stays",
        outcomes,
    )?;
    // Of a file that was never written there is nothing to tell.
    let written = files.into_iter().filter(|(_, writes)| writes.last.get() > 0);
    to.gauges(
        "onrush_file_last_written_timestamp_seconds",
        "When a file was last written, since 1970",
        written.clone().map(|(file, writes)| ([("file", file)], writes.last.get())),
    )?;
    to.gauges(
        "onrush_file_bytes",
        "Length of the file that was last written",
        written.clone().map(|(file, writes)| ([("file", file)], writes.bytes.get())),
    )?;
    let name = "onrush_file_write_duration_seconds";
    let help = "Time that the last writing of a file took";
    let mut family = to.encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (file, writes) in written {
        family.encode_family(&[("file", file)])?.encode_gauge(&writes.seconds())?;
    }
    Ok(())
}

fn http(to: &mut Writer<'_>, snapshot: &StatsSnapshot) -> fmt::Result {
    to.counter("onrush_http_requests", "HTTP requests answered", snapshot.http.requests as f64)?;
    to.gauge("onrush_http_connections", "HTTP connections", snapshot.http.connections as f64)?;
    to.gauge(
        "onrush_http_connections_limit",
        "admin.connections",
        snapshot.settings.admin.connections as f64,
    )?;
    to.counter(
        "onrush_http_turned_away_connections",
        "HTTP connections turned away, as there were too many",
        snapshot.http.turned_away as f64,
    )
}
