//! The content of the page for browsers that run no scripts: the main numbers in a table.

use std::fmt::Write;

use crate::api::stats::{HttpStats, Stats};
use onrush_text::numbers::{bytes, grouped};
use onrush_text::times::duration;

/// How often such a browser requests the page again, in seconds.
pub(super) const REFRESH: u32 = 10;

/// The table; a sentence while the tracker has no statistics.
pub(super) fn content(stats: Option<&Stats>) -> String {
    let table = stats.map_or_else(|| "<p>The tracker is starting.</p>\n".to_owned(), table);
    format!(
        "<main>\n<section class=\"wide\"><p>This page is loaded again every {REFRESH} seconds. \
         With JavaScript it shows rates, charts and workers too.</p>\n{table}</section>\n</main>\n"
    )
}

/// Text for HTML.
pub(super) fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;")
}

fn table(stats: &Stats) -> String {
    let Stats { totals, families, limits, overload, .. } = stats;
    let lost = totals.losses().map(|(_, count)| count).sum::<u64>();
    let rows = [
        ("State", state(stats)),
        ("Overload level", format!("{} of 8", overload.step)),
        ("Up for", duration(stats.uptime)),
        ("Addresses", stats.addresses.join(" ")),
        ("Version", stats.version.clone()),
        ("Requests since start", grouped(totals.received())),
        ("Replies since start", grouped(totals.replied())),
        ("Refused since start", grouped(totals.traffic.refused_in_all())),
        ("Lost since start", grouped(lost)),
        ("Peers", grouped(totals.traffic.peers)),
        ("Peers over IPv4", grouped(families.ipv4.peers)),
        ("Peers over IPv6", grouped(families.ipv6.peers)),
        ("Seeders", grouped(totals.traffic.seeders)),
        ("Limit of peers", grouped(limits.peers)),
        ("Swarms with peers", grouped(totals.shard.swarms)),
        ("Swarms without peers", grouped(totals.shard.idle_swarms)),
        ("Memory", bytes(stats.memory.resident)),
    ];
    let over_http = totals.http.iter().flat_map(over_http);
    let mut table = "<table class=\"families\"><tbody>\n".to_owned();
    for (name, value) in rows.into_iter().chain(over_http) {
        // Writing to a string cannot fail.
        let _ = writeln!(
            table,
            "<tr><th scope=\"row\" class=\"first\">{name}</th><td>{}</td></tr>",
            escaped(&value)
        );
    }
    table + "</tbody></table>\n"
}

/// Rows of a tracker that serves HTTP; with WebRTC peers once there were any.
fn over_http(http: &HttpStats) -> Vec<(&'static str, String)> {
    let counts = &http.counts;
    let mut rows = vec![("Connections over HTTP", grouped(counts.all_open()))];
    if counts.has_webrtc() {
        rows.extend([
            ("of them WebSocket", grouped(counts.open_websockets())),
            ("WebRTC peers", grouped(counts.webrtc_seeders + counts.webrtc_leechers)),
            ("WebRTC seeders", grouped(counts.webrtc_seeders)),
            ("Swarms of WebRTC peers", grouped(counts.webrtc_swarms)),
        ]);
    }
    rows
}

fn state(stats: &Stats) -> String {
    let stalled = stats.workers.iter().filter(|worker| worker.is_stalled());
    let names: Vec<&str> = stalled.map(|worker| worker.name.as_str()).collect();
    match names.is_empty() {
        true => stats.stage.clone(),
        false => format!("{}, stalled: {}", stats.stage, names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::stats::{Families, FamilyStats, Totals, WorkerStats};

    #[test]
    fn the_table_has_the_numbers_and_the_state() {
        let ipv4 = FamilyStats { peers: 1_234_567, ..FamilyStats::default() };
        let ipv6 = FamilyStats { peers: 433, ..FamilyStats::default() };
        let traffic = FamilyStats { peers: 1_235_000, ..FamilyStats::default() };
        let worker =
            WorkerStats { name: "worker-3".into(), stalled_seconds: 7.0, ..WorkerStats::default() };
        let stats = Stats {
            stage: "serving".to_owned(),
            uptime: 93_784.5,
            families: Families { ipv4, ipv6 },
            totals: Totals { traffic, ..Totals::default() },
            workers: vec![WorkerStats::default(), worker],
            ..Stats::default()
        };
        let content = content(Some(&stats));
        for part in [
            "Peers</th><td>1,235,000</td>",
            "Peers over IPv4</th><td>1,234,567</td>",
            "Peers over IPv6</th><td>433</td>",
            "<td>serving, stalled: worker-3</td>",
            "<td>1 d 2 h</td>",
        ] {
            assert!(content.contains(part), "{part}: {content}");
        }
        assert!(!content.contains("HTTP"), "{content}");
        let mut stats = Stats::default();
        (stats.totals.worker.sent, stats.totals.http) = (1_000, Some(HttpStats::default()));
        stats.totals.http.iter_mut().for_each(|http| http.counts.answered = 234);
        let content = super::content(Some(&stats));
        for part in ["Replies since start</th><td>1,234</td>", "over HTTP</th><td>0</td>"] {
            assert!(content.contains(part), "{part}: {content}");
        }
        assert!(!content.contains("WebRTC"), "{content}");
        let counts = &mut stats.totals.http.as_mut().unwrap().counts;
        (counts.open, counts.ws_open, counts.wss_open) = (20, 3, 4);
        (counts.webrtc_swarms, counts.webrtc_seeders, counts.webrtc_leechers) = (5, 600, 1_000);
        let content = super::content(Some(&stats));
        for part in [
            "over HTTP</th><td>27</td>",
            "of them WebSocket</th><td>7</td>",
            "WebRTC peers</th><td>1,600</td>",
            "WebRTC seeders</th><td>600</td>",
            "Swarms of WebRTC peers</th><td>5</td>",
        ] {
            assert!(content.contains(part), "{part}: {content}");
        }
        assert!(super::content(None).contains("starting"));
    }

    #[test]
    fn text_cannot_become_markup() {
        let stats = Stats { version: "<b>&\"".to_owned(), ..Stats::default() };
        let content = content(Some(&stats));
        assert!(content.contains("<td>&lt;b&gt;&amp;&quot;</td>"));
    }
}
