//! Answers of the HTTP side for people.

use std::fmt::Write;

use crate::reload::ONLY_A_RESTART;
use onrush_control::api::Successor;
use onrush_control::api::admin::ExportReport;
use onrush_control::api::admin::ReloadReport;
use onrush_control::api::admin::Swarm;
use onrush_control::api::admin::{LargestSwarms, Measure};
use onrush_control::api::admin::{ListEntry, ListUpdate};
use onrush_control::api::stats::{ListState, Stats};
use onrush_control::api::{Health, Ready};

/// Who has taken over.
pub fn successor(successor: &Successor) -> String {
    let Successor { process, version } = successor;
    format!("process {process} serves now, onrush {version}\n")
}

/// Whether all is well.
pub fn health(health: &Health, ready: &Ready) -> String {
    let workers = match health.stuck.as_slice() {
        [] => "every worker takes turns".to_owned(),
        stuck => format!("no turns for five seconds and more: {}", stuck.join(", ")),
    };
    format!("{}: {}\n{workers}\n", if ready.ready { "ready" } else { "not ready" }, ready.stage)
}

/// What was counted and what is stored.
pub fn stats(stats: &Stats) -> String {
    let Stats { totals, clients, .. } = stats;
    let traffic = &totals.traffic;
    let mut lines = vec![
        ("version", format!("{}, {} for {}", stats.version, stats.stage, span(stats.uptime))),
        ("addresses", stats.addresses.join(", ")),
        ("swarms", format!("{} and {} without peers", totals.swarms, totals.idle_swarms)),
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
                traffic.connects, traffic.announces, traffic.scrapes
            ),
        ),
        ("events", counts(traffic.events.iter())),
        ("refused", counts(traffic.refused.iter())),
        (
            "replies",
            format!(
                "{}, {} not sent",
                totals.replies,
                totals.replies_blocked + totals.replies_failed
            ),
        ),
        ("dropped", format!("{} datagrams by the kernel", totals.kernel_drops)),
        ("completed", totals.completed.to_string()),
        ("memory", format!("{:.1} MB", stats.memory.resident as f64 / 1e6)),
        ("list", format!("{}, {} info hashes", stats.list.mode, stats.list.entries)),
    ];
    let looked_at: u64 =
        clients.software.iter().map(|software| software.ipv4 + software.ipv6).sum();
    let shares = clients.software.iter().take(8).map(|software| {
        let share = 100.0 * (software.ipv4 + software.ipv6) as f64 / looked_at as f64;
        format!("{} {share:.1} %", software.name)
    });
    lines.push(("clients", or_none(shares.collect::<Vec<_>>().join(", "))));
    aligned(&lines)
}

/// What a reload has led to.
pub fn reload(report: &ReloadReport) -> String {
    let mut text = match report.changed.as_slice() {
        [] => "nothing has changed\n".to_owned(),
        keys => format!("changed: {}\n", keys.join(", ")),
    };
    let (upgrade, restart): (Vec<&str>, Vec<&str>) =
        report.restart.iter().map(String::as_str).partition(|key| !ONLY_A_RESTART.contains(key));
    for (keys, until) in
        [(upgrade, "an upgrade (`onrush ctl upgrade`) or a restart"), (restart, "a restart")]
    {
        if !keys.is_empty() {
            let keys = keys.join(", ");
            text.push_str(&format!("the old values stay in force until {until} for: {keys}\n"));
        }
    }
    report.notices.iter().for_each(|notice| text.push_str(&format!("note: {notice}\n")));
    text
}

/// The full scrape that was written.
pub fn export(written: &ExportReport) -> String {
    let ExportReport { path, swarms, bytes, seconds } = written;
    format!("{swarms} swarms to {path}, {bytes} bytes in {seconds:.2} s\n")
}

/// Of which kind the list is, and how long.
pub fn list(list: &ListState) -> String {
    let what = match list.mode.as_str() {
        "open" => "there is no list: every info hash is served".to_owned(),
        "allow" => format!("only the {} info hashes of the list are served", list.entries),
        _ => format!("every info hash is served but the {} of the list", list.entries),
    };
    let published = if list.published { "; it is published at /lists" } else { "" };
    format!("{}: {what}{published}\n", list.mode)
}

/// Whether one info hash is listed.
pub fn entry(entry: &ListEntry) -> String {
    let listed = if entry.listed { "listed" } else { "not listed" };
    let served = if entry.served { "served" } else { "not served" };
    format!("{} is {listed}, and {served}\n", entry.info_hash)
}

/// What a change of the list has led to.
pub fn changed(changed: &ListUpdate) -> String {
    let ListUpdate { mode, entries, changed, lasting } = changed;
    let until =
        if *lasting { "" } else { "; until the next restart, as there is no state directory" };
    format!("{changed} changed: the {mode} list has {entries} info hashes now{until}\n")
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
        lines.push(("idle", format!("without peers for {}", span(f64::from(seconds)))));
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
        // Writing into a String cannot fail.
        let _ = writeln!(text, "{peers:>9} {seeders:>9} {leechers:>9} {completed:>9}  {info_hash}");
    }
    let _ = writeln!(text, "{} of {} swarms, by {by}", largest.swarms.len(), largest.looked_at);
    text
}

/// Only those that are not zero.
fn counts<'a>(counts: impl Iterator<Item = (&'a String, &'a u64)>) -> String {
    let shown = counts.filter(|(_, count)| **count > 0);
    or_none(shown.map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", "))
}

fn or_none(text: String) -> String {
    if text.is_empty() { "none".to_owned() } else { text }
}

/// A time that people can read.
fn span(seconds: f64) -> String {
    match seconds as u64 {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

fn aligned(lines: &[(&str, String)]) -> String {
    lines.iter().map(|(name, text)| format!("{name:<10} {text}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tracker_that_has_seen_nobody_is_shown_without_nonsense() {
        let text = stats(&Stats::default());
        assert!(text.contains("clients    none\n") && text.contains("refused    none\n"), "{text}");
        assert!(!text.contains("NaN"), "{text}");
    }

    #[test]
    fn stuck_workers_are_named() {
        let ready = Ready { ready: true, stage: "serving".into() };
        let stuck = Health { status: "stuck".into(), stuck: vec!["worker-1".into()] };
        assert_eq!(
            health(&stuck, &ready),
            "ready: serving\nno turns for five seconds and more: worker-1\n"
        );
    }

    #[test]
    fn times_are_readable() {
        assert_eq!(
            [0.0, 119.0, 7_199.0, 172_799.0, 1e6].map(span),
            ["0 s", "119 s", "119 min", "47 h", "11 days"]
        );
    }
}
