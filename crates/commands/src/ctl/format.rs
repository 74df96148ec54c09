//! Replies of the admin side as text.

use std::fmt::{Display, Write};

use clap::ValueEnum;
use onrush_config::keys;
use onrush_control::api::admin::{
    ConfigDifference, ConfigDifferences, ConfigReport, ConfigValue, ExportReport, LargestSwarms,
    ReloadReport, SnapshotReport, Swarm,
};
use onrush_control::api::stats::{HttpStats, Stats, WebStats};
use onrush_control::api::{Health, Ready, Successor};
use onrush_text::numbers::{bytes, grouped};
use onrush_text::times::{date, duration};

/// The successor, which serves.
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
    let log = match health.log_level {
        Some(_) => "the log is off, also for errors: see log.level in `onrush ctl config`\n",
        None => "",
    };
    let is_ready = if ready.ready { "ready" } else { "not ready" };
    format!("{is_ready}: {}\n{workers}\n{log}", ready.stage)
}

/// Counters and stored peers.
pub fn stats(stats: &Stats) -> String {
    let Stats { totals, clients, .. } = stats;
    let traffic = &totals.traffic;
    let mut lines = vec![
        ("version", format!("{}, {} for {}", stats.version, stats.stage, duration(stats.uptime))),
        ("addresses", stats.addresses.join(", ")),
        (
            "swarms",
            format!(
                "{} and {} without peers",
                grouped(totals.shard.swarms),
                grouped(totals.shard.idle_swarms)
            ),
        ),
        (
            "peers",
            format!(
                "{} of {} ({} IPv4, {} IPv6; {} seeders, {} leechers)",
                grouped(traffic.peers),
                grouped(stats.limits.peers),
                grouped(stats.families.ipv4.peers),
                grouped(stats.families.ipv6.peers),
                grouped(traffic.seeders),
                grouped(traffic.leechers)
            ),
        ),
        (
            "requests",
            format!(
                "{} connects, {} announces, {} scrapes",
                grouped(traffic.incoming.connects),
                grouped(traffic.incoming.announces),
                grouped(traffic.incoming.scrapes)
            ),
        ),
        ("events", counts(traffic.events.iter().map(|(event, count)| (event, *count)))),
        ("refused", counts(traffic.only_refused())),
        ("replies", grouped(totals.replied())),
        ("lost", counts(totals.losses())),
        ("completed", grouped(totals.shard.completed)),
        ("memory", bytes(stats.memory.resident)),
        ("list", format!("{}, {} info hashes", stats.list.mode, grouped(stats.list.entries))),
    ];
    let shares =
        clients.shares().take(8).map(|(name, share)| format!("{name} {:.1} %", 100.0 * share));
    if let Some(http) = &totals.http {
        let HttpStats { counts: over_http, closed, .. } = http;
        let most = stats.limits.http_connections.unwrap_or(0);
        let requests = format!(
            "{} requests ({} abandoned), {} of {} connections",
            grouped(over_http.all_requests()),
            grouped(over_http.abandoned),
            grouped(over_http.all_open()),
            grouped(most)
        );
        lines.push(("HTTP", requests));
        lines.extend(https(stats, http).map(|text| ("HTTPS", text)));
        if over_http.has_webrtc() {
            lines.push(("WebTorrent", webtorrent(over_http)));
        }
        lines.push(("unserved", counts(http.unserved().into_iter())));
        lines.push(("closed", counts(closed.iter().map(|(cause, count)| (cause, *count)))));
    }
    lines.push(("clients", or_none(shares.collect::<Vec<_>>().join(", "))));
    aligned(&lines)
}

/// Handshakes, and the first expiry of a certificate.
fn https(stats: &Stats, http: &HttpStats) -> Option<String> {
    let counts = &http.counts;
    let expiry = stats.certificates.iter().map(|certificate| certificate.expires).min()?;
    Some(format!(
        "handshakes: {} full, {} resumed, {} failed; certificates valid until {}",
        grouped(counts.full_handshakes),
        grouped(counts.resumed_handshakes),
        grouped(counts.failed_handshakes),
        date(expiry)
    ))
}

/// WebRTC peers and their messages.
fn webtorrent(counts: &WebStats) -> String {
    format!(
        "{} swarms, {} seeders, {} leechers; {} offers ({} dropped), {} answers ({} dropped); {} \
         connections",
        grouped(counts.webrtc_swarms),
        grouped(counts.webrtc_seeders),
        grouped(counts.webrtc_leechers),
        grouped(counts.webrtc_offers),
        grouped(counts.webrtc_offers_dropped),
        grouped(counts.webrtc_answers),
        grouped(counts.webrtc_answers_dropped),
        grouped(counts.open_websockets())
    )
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

/// The values in force, as lines of a configuration file.
pub fn config(report: &ConfigReport) -> String {
    let line = |ConfigValue { key, value, default, changed_by }: &ConfigValue| {
        let comment = match changed_by {
            Some(by) => format!("  # by {by}, until the next reload"),
            None if *default => "  # default".to_owned(),
            None => String::new(),
        };
        match value {
            None => format!("# {key} is not set\n"),
            Some(value) => format!("{key} = {value}{comment}\n"),
        }
    };
    report.keys.iter().map(line).collect()
}

/// The keys whose values in the file differ from those in force.
pub fn config_differences(report: &ConfigDifferences) -> String {
    let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "not set".to_owned());
    let line = |difference: &ConfigDifference| {
        let ConfigDifference { key, in_force, file, applied_by } = difference;
        format!("{key}: {}, in the file {} (by {applied_by})\n", value(in_force), value(file))
    };
    let mut text = match report.differences.as_slice() {
        [] => "the file has the values in force; its lists: onrush ctl list check\n".to_owned(),
        differences => differences.iter().map(line).collect::<String>(),
    };
    report.overrides.iter().for_each(|it| text.push_str(&format!("note: {it}\n")));
    text
}

/// The snapshot that was written.
pub fn snapshot(written: &SnapshotReport) -> String {
    let SnapshotReport { path, peers, bytes: size, seconds } = written;
    let (peers, size) = (grouped(*peers), bytes(*size));
    format!("{peers} peers to {path}, {size} in {seconds:.2} s\n")
}

/// One swarm.
pub fn swarm(swarm: &Swarm) -> String {
    let mut lines = vec![
        ("info hash", swarm.info_hash.clone()),
        ("seeders", grouped(swarm.seeders)),
        ("leechers", grouped(swarm.leechers)),
        ("completed", grouped(swarm.completed)),
    ];
    if let Some(seconds) = swarm.idle_for {
        lines.push(("idle", format!("no peers for {}", duration(f64::from(seconds)))));
    }
    aligned(&lines)
}

/// The largest swarms.
pub fn top(largest: &LargestSwarms) -> String {
    if largest.swarms.is_empty() {
        return "there are no swarms yet\n".to_owned();
    }
    let mut text = format!(
        "{:>9} {:>9} {:>9} {:>9}  info hash\n",
        "peers", "seeders", "leechers", "completed"
    );
    for swarm in &largest.swarms {
        let Swarm { info_hash, seeders, leechers, completed, .. } = swarm;
        let peers = grouped(u64::from(*seeders) + u64::from(*leechers));
        let [seeders, leechers, completed] = [seeders, leechers, completed].map(grouped);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{peers:>9} {seeders:>9} {leechers:>9} {completed:>9}  {info_hash}");
    }
    let (shown, by) = (largest.swarms.len(), word(largest.by));
    let _ = writeln!(text, "{shown} of {} swarms, by {by}", grouped(largest.examined));
    text
}

/// The counters that are not zero.
fn counts<N: Display>(counts: impl Iterator<Item = (N, u64)>) -> String {
    let shown = counts.filter(|(_, count)| *count > 0);
    or_none(
        shown
            .map(|(name, count)| format!("{name} {}", grouped(count)))
            .collect::<Vec<_>>()
            .join(", "),
    )
}

fn or_none(text: String) -> String {
    if text.is_empty() { "none".to_owned() } else { text }
}

/// A value as it is written on the command line, in queries and in responses.
pub fn word(value: impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// Names and texts in two columns.
pub fn aligned(lines: &[(&str, String)]) -> String {
    lines.iter().map(|(name, text)| format!("{name:<10} {text}\n")).collect()
}

#[cfg(test)]
mod tests {
    use onrush_control::api::stats::CertificateStats;
    use onrush_tracker::metrics::LOSSES;

    use super::*;

    #[test]
    fn stats_of_an_unused_tracker_have_no_nan() {
        let text = stats(&Stats::default());
        assert!(text.contains("clients    none\n") && text.contains("refused    none\n"), "{text}");
        assert!(!text.contains("NaN"), "{text}");
    }

    #[test]
    fn http_is_shown_where_it_is_served() {
        let mut read = Stats::default();
        assert!(!stats(&read).contains("HTTP"));
        let mut http = HttpStats { closed: [("full".into(), 3)].into(), ..HttpStats::default() };
        (http.counts.requests, http.counts.answered) = (5_000, 4_000);
        (http.counts.accept_errors, http.counts.open) = (2, 12);
        (read.totals.http, read.limits.http_connections) = (Some(http), Some(16_384));
        read.totals.worker.sent = 1_000;
        assert!(!stats(&read).contains("HTTPS"));
        let certificate = |expires| CertificateStats { expires, ..CertificateStats::default() };
        read.certificates = [2_000_000_000, 1_924_992_000].map(certificate).into();
        let counts = &mut read.totals.http.as_mut().unwrap().counts;
        (counts.full_handshakes, counts.resumed_handshakes) = (7_000, 8_000);
        counts.failed_handshakes = 9;
        assert!(!stats(&read).contains("WebTorrent"));
        let counts = &mut read.totals.http.as_mut().unwrap().counts;
        (counts.ws_open, counts.wss_open, counts.webrtc_swarms) = (1, 2, 4);
        (counts.webrtc_seeders, counts.webrtc_leechers) = (5, 6);
        (counts.webrtc_offers, counts.webrtc_offers_dropped) = (7, 8);
        (counts.webrtc_answers, counts.webrtc_answers_dropped) = (9, 10);
        let text = stats(&read);
        for part in [
            "HTTP       5,000 requests (0 abandoned), 15 of 16,384 connections\n",
            "HTTPS      handshakes: 7,000 full, 8,000 resumed, 9 failed; certificates valid until \
             2031-01-01\n",
            "WebTorrent 4 swarms, 5 seeders, 6 leechers; 7 offers (8 dropped), 9 answers (10 \
             dropped); 3 connections\n",
            "unserved   connections not accepted 2, connections refused as full 3\n",
            "closed     full 3\n",
            "replies    5,000\n",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn every_loss_is_named() {
        let mut read = Stats::default();
        read.totals.lost = LOSSES.iter().map(|loss| (loss.key.to_owned(), 7_000)).collect();
        let text = stats(&read);
        for loss in LOSSES {
            assert!(text.contains(&format!("{} 7,000", loss.label)), "{text}");
        }
    }

    #[test]
    fn large_numbers_have_separators() {
        let mut read = Stats::default();
        read.limits.peers = 20_000_000;
        assert!(stats(&read).contains(" of 20,000,000 "), "{}", stats(&read));
    }

    #[test]
    fn stalled_workers_are_named() {
        let ready = Ready { ready: true, stage: "serving".into() };
        let workers = vec!["worker-1".into()];
        let stalled = Health { status: "stalled".into(), stalled: workers, log_level: None };
        let text = "ready: serving\nstalled for 5 s or more: worker-1\n";
        assert_eq!(health(&stalled, &ready), text);
        let silent = Health { log_level: Some("off".into()), ..stalled };
        let shown = health(&silent, &ready);
        assert!(shown.strip_prefix(text).is_some_and(|log| log.contains("off")), "{shown}");
    }
}
