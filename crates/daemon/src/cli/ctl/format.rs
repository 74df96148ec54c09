//! Replies of the admin side as text.

use std::fmt::Write;

use crate::cli::format::span;
use onrush_config::keys;
use onrush_control::api::admin::{
    ExportReport, LargestSwarms, ListEntry, ListUpdate, Measure, ReloadReport, Swarm,
};
use onrush_control::api::stats::{ListState, Stats};
use onrush_control::api::{Health, Ready, Successor};

/// The process that has taken over.
pub fn successor(successor: &Successor) -> String {
    let Successor { process, version } = successor;
    format!("process {process} is serving, onrush {version}\n")
}

/// Readiness, and workers that are stalled.
pub fn health(health: &Health, ready: &Ready) -> String {
    let workers = match health.stalled.as_slice() {
        [] => "no worker is stalled".to_owned(),
        stalled => format!("stalled for 5 s or more: {}", stalled.join(", ")),
    };
    format!("{}: {}\n{workers}\n", if ready.ready { "ready" } else { "not ready" }, ready.stage)
}

/// Counters and stored peers.
pub fn stats(stats: &Stats) -> String {
    let Stats { totals, clients, .. } = stats;
    let traffic = &totals.traffic;
    let mut lines = vec![
        ("version", format!("{}, {} for {}", stats.version, stats.stage, span(stats.uptime))),
        ("addresses", stats.addresses.join(", ")),
        (
            "swarms",
            format!("{} and {} without peers", totals.shard.swarms, totals.shard.idle_swarms),
        ),
        (
            "peers",
            format!(
                "{} of {} ({} IPv4, {} IPv6; {} seeders, {} leechers)",
                traffic.peers,
                stats.limits.peers,
                stats.families.ipv4.peers,
                stats.families.ipv6.peers,
                traffic.seeders,
                traffic.leechers
            ),
        ),
        (
            "requests",
            format!(
                "{} connects, {} announces, {} scrapes",
                traffic.incoming.connects, traffic.incoming.announces, traffic.incoming.scrapes
            ),
        ),
        ("events", counts(traffic.events.iter())),
        ("refused", counts(traffic.refused.iter())),
        (
            "replies",
            format!("{}, {} not sent", totals.worker.sent, totals.unsent.values().sum::<u64>()),
        ),
        ("dropped", format!("{} datagrams by the kernel", totals.worker.kernel_drops)),
        ("completed", totals.shard.completed.to_string()),
        ("memory", format!("{:.1} MB", stats.memory.resident as f64 / 1e6)),
        ("list", format!("{}, {} info hashes", stats.list.mode, stats.list.entries)),
    ];
    let sampled: u64 = clients.software.iter().map(|software| software.ipv4 + software.ipv6).sum();
    let shares = clients.software.iter().take(8).map(|software| {
        let share = 100.0 * (software.ipv4 + software.ipv6) as f64 / sampled as f64;
        format!("{} {share:.1} %", software.name)
    });
    lines.push(("clients", or_none(shares.collect::<Vec<_>>().join(", "))));
    aligned(&lines)
}

/// The result of a reload.
pub fn reload(report: &ReloadReport) -> String {
    let mut text = match report.changed.as_slice() {
        [] => "no key has changed\n".to_owned(),
        keys => format!("changed: {}\n", keys.join(", ")),
    };
    let (upgrade, restart): (Vec<&str>, Vec<&str>) =
        report.restart.iter().map(String::as_str).partition(|key| !keys::is_restart_only(key));
    for (keys, until) in
        [(upgrade, "an upgrade (`onrush ctl upgrade`) or a restart"), (restart, "a restart")]
    {
        if !keys.is_empty() {
            let keys = keys.join(", ");
            text.push_str(&format!("unchanged until {until}: {keys}\n"));
        }
    }
    report.notices.iter().for_each(|notice| text.push_str(&format!("note: {notice}\n")));
    text
}

/// The export that was written.
pub fn export(written: &ExportReport) -> String {
    format!("{written}\n")
}

/// The mode and length of the list.
pub fn list(list: &ListState) -> String {
    let what = match list.mode.as_str() {
        "open" => "no list, every info hash is served".to_owned(),
        "allow" => format!("only the {} listed info hashes are served", list.entries),
        _ => format!("every info hash except the {} listed ones is served", list.entries),
    };
    let published = if list.published { "; it is published at /lists" } else { "" };
    format!("{}: {what}{published}\n", list.mode)
}

/// Whether one info hash is listed and served.
pub fn entry(entry: &ListEntry) -> String {
    let listed = if entry.listed { "listed" } else { "not listed" };
    let served = if entry.served { "served" } else { "not served" };
    format!("{} is {listed}, and {served}\n", entry.info_hash)
}

/// The result of a change of the list.
pub fn changed(changed: &ListUpdate) -> String {
    let ListUpdate { mode, entries, changed, lasting } = changed;
    let until =
        if *lasting { "" } else { "; lost at the next restart, as there is no state directory" };
    format!("{changed} changed; the {mode} list has {entries} info hashes{until}\n")
}

/// One swarm.
pub fn swarm(swarm: &Swarm) -> String {
    let mut lines = vec![
        ("info hash", swarm.info_hash.clone()),
        ("seeders", swarm.seeders.to_string()),
        ("leechers", swarm.leechers.to_string()),
        ("completed", swarm.completed.to_string()),
    ];
    if let Some(seconds) = swarm.idle_for {
        lines.push(("idle", format!("no peers for {}", span(f64::from(seconds)))));
    }
    aligned(&lines)
}

/// The largest swarms.
pub fn top(largest: &LargestSwarms) -> String {
    let by = match largest.by {
        Measure::Peers => "peers",
        Measure::Seeders => "seeders",
        Measure::Leechers => "leechers",
        Measure::Completed => "completed",
    };
    let mut text = format!(
        "{:>9} {:>9} {:>9} {:>9}  info hash\n",
        "peers", "seeders", "leechers", "completed"
    );
    for swarm in &largest.swarms {
        let Swarm { info_hash, seeders, leechers, completed, .. } = swarm;
        let peers = u64::from(*seeders) + u64::from(*leechers);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{peers:>9} {seeders:>9} {leechers:>9} {completed:>9}  {info_hash}");
    }
    let _ = writeln!(text, "{} of {} swarms, by {by}", largest.swarms.len(), largest.looked_at);
    text
}

/// The counters that are not zero.
fn counts<'a>(counts: impl Iterator<Item = (&'a String, &'a u64)>) -> String {
    let shown = counts.filter(|(_, count)| **count > 0);
    or_none(shown.map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", "))
}

fn or_none(text: String) -> String {
    if text.is_empty() { "none".to_owned() } else { text }
}

fn aligned(lines: &[(&str, String)]) -> String {
    lines.iter().map(|(name, text)| format!("{name:<10} {text}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stats_of_an_unused_tracker_have_no_nan() {
        let text = stats(&Stats::default());
        assert!(text.contains("clients    none\n") && text.contains("refused    none\n"), "{text}");
        assert!(!text.contains("NaN"), "{text}");
    }

    #[test]
    fn stalled_workers_are_named() {
        let ready = Ready { ready: true, stage: "serving".into() };
        let stalled = Health { status: "stalled".into(), stalled: vec!["worker-1".into()] };
        assert_eq!(health(&stalled, &ready), "ready: serving\nstalled for 5 s or more: worker-1\n");
    }
}
