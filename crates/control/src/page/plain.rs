//! The content of the page for browsers that run no scripts: the main numbers in tables.

use std::fmt::{Display, Write};

use crate::api::stats::{FamilyStats, Stats};
use crate::history::Means;
use onrush_text::numbers::{bytes, grouped};
use onrush_text::times::duration;
use onrush_tracker::metrics::LOSSES;

/// How often such a browser requests the page again, in seconds.
pub(super) const REFRESH: u32 = 10;

/// Seconds whose mean rates are shown.
pub(super) const RECENT: usize = 60;

/// The tables; a sentence while the tracker has no statistics. `recent` are means of the last
/// [`RECENT`] seconds.
pub(super) fn content(stats: Option<&Stats>, recent: &Means) -> String {
    let tables = match stats {
        Some(stats) => main_numbers(stats) + &rates(recent) + &families(stats),
        None => "<p>The tracker is starting.</p>\n".to_owned(),
    };
    format!(
        "<main>\n<section class=\"wide\"><p>This page is loaded again every {REFRESH} seconds. \
         With JavaScript it shows charts and workers too.</p></section>\n{tables}</main>\n"
    )
}

/// Text for HTML.
pub(super) fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;")
}

fn main_numbers(stats: &Stats) -> String {
    let Stats { totals, limits, overload, .. } = stats;
    let lost = totals.losses().map(|(_, count)| count).sum::<u64>();
    let rows = [
        ("State", state(stats)),
        ("Overload level", format!("{} of 8", overload.step)),
        ("Up for", duration(stats.uptime)),
        ("Addresses", stats.addresses.join(" ")),
        ("Version", stats.version.clone()),
        ("Requests since start", grouped(totals.traffic.incoming.datagrams)),
        ("Replies since start", grouped(totals.worker.sent)),
        ("Refused since start", grouped(totals.traffic.refused_in_all())),
        ("Lost since start", grouped(lost)),
        ("Swarms with peers", grouped(totals.shard.swarms)),
        ("Swarms without peers", grouped(totals.shard.idle_swarms)),
        ("Limit of peers", grouped(limits.peers)),
        ("Memory", bytes(stats.memory.resident)),
    ];
    let body = rows.iter().fold(String::new(), |body, (name, value)| body + &row(name, [value]));
    section("This tracker", "", &body)
}

/// Rates; a dash where the tracker has just started.
fn rates(recent: &Means) -> String {
    let rows = [
        ("Replies", "replies"),
        ("Announces", "announces"),
        ("Connects", "connects"),
        ("Scrapes", "scrapes"),
        ("Refused", "refused"),
    ];
    let lost = LOSSES.iter().map(|loss| (loss.label, loss.key));
    let body = rows.into_iter().chain(lost).fold(String::new(), |body, (label, name)| {
        let rate = recent.get(name).copied().flatten();
        body + &row(label, [rate.map_or("–".to_owned(), grouped)])
    });
    section(&format!("Per second, in the last {RECENT} seconds"), "", &body)
}

fn families(stats: &Stats) -> String {
    type Read = fn(&FamilyStats) -> u64;
    let rows: [(&str, Read); 6] = [
        ("Peers", |family| family.peers),
        ("Seeders", |family| family.seeders),
        ("Leechers", |family| family.leechers),
        ("Connects since start", |family| family.incoming.connects),
        ("Announces since start", |family| family.incoming.announces),
        ("Scrapes since start", |family| family.incoming.scrapes),
    ];
    let columns = [&stats.families.ipv4, &stats.families.ipv6, &stats.totals.traffic];
    let body = rows.iter().fold(String::new(), |body, (name, read)| {
        body + &row(name, columns.map(|family| grouped(read(family))))
    });
    let head = "<thead><tr><th scope=\"col\" class=\"first\"><span class=\"unseen\">What</span>\
                </th><th scope=\"col\">IPv4</th><th scope=\"col\">IPv6</th>\
                <th scope=\"col\">Both</th></tr></thead>";
    section("By family", head, &body)
}

fn section(title: &str, head: &str, body: &str) -> String {
    format!(
        "<section class=\"wide\"><h2>{title}</h2>\n<table class=\"families\">{head}<tbody>\n{body}\
         </tbody></table></section>\n"
    )
}

fn row<T: Display>(name: &str, cells: impl IntoIterator<Item = T>) -> String {
    let mut row = format!("<tr><th scope=\"row\" class=\"first\">{name}</th>");
    for cell in cells {
        // Writing to a string cannot fail.
        let _ = write!(row, "<td>{}</td>", escaped(&cell.to_string()));
    }
    row + "</tr>\n"
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
    use crate::api::stats::{Families, Totals, WorkerStats};

    #[test]
    fn the_tables_have_the_numbers_and_the_state() {
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
        let mut recent = Means::from([("replies", Some(45_678.4)), ("connects", None)]);
        recent.extend(LOSSES.iter().map(|loss| (loss.key, Some(97.0))));
        let content = content(Some(&stats), &recent);
        for loss in LOSSES {
            assert!(content.contains(&format!("{}</th><td>97</td>", loss.label)), "{content}");
        }
        for part in [
            "Peers</th><td>1,234,567</td><td>433</td><td>1,235,000</td>",
            "<td>serving, stalled: worker-3</td>",
            "<td>1 d 2 h</td>",
            "Replies</th><td>45,678</td>",
            "Connects</th><td>–</td>",
        ] {
            assert!(content.contains(part), "{part}: {content}");
        }
        assert!(super::content(None, &recent).contains("starting"));
    }

    #[test]
    fn text_cannot_become_markup() {
        let stats = Stats { version: "<b>&\"".to_owned(), ..Stats::default() };
        let content = content(Some(&stats), &Means::default());
        assert!(content.contains("<td>&lt;b&gt;&amp;&quot;</td>"));
    }
}
