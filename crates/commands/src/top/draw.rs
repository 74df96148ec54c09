//! Draws the state of the view into cells. No I/O.

mod help;
mod rows;
mod workers;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Span;
use ratatui::widgets::{Sparkline, Widget};

use rows::{
    Row, alarm, alarm_if, columns, faint, flow, level, list, name, plain, put, put_all, text,
};

use super::rates::Pair;
use super::view::{Scroll, View};
use crate::format::{escaped, rate};
use onrush_control::api::stats::{FamilyStats, HttpStats, Stats, WebStats};
use onrush_text::numbers::{bytes, compact};
use onrush_text::times::duration;

/// Columns of a bar.
const BAR: usize = 16;
/// Column widths of the table of families, which fills 80 columns.
const FAMILY: [usize; 7] = [9, 10, 9, 9, 9, 9, 9];
/// Most rows of the chart of requests.
const CURVE: u16 = 4;
/// Rows of workers that are more important than the chart and empty rows.
const WORKERS: usize = 6;
/// Most rows of an error.
const ERROR: usize = 6;
/// Most stalled workers that are named above the table.
const STALLS: usize = 3;
/// Rows that are enough for everything except the workers.
const ABOVE: u16 = 40;

/// Draws the view with a row of keys at the bottom; the part of the workers that is shown.
pub fn draw(view: &View, area: Rect, cells: &mut Buffer) -> Scroll {
    let above = area.height.saturating_sub(1);
    let body = Rect { height: above, ..area };
    let (shown, keys) = match view.help {
        true => (help::draw(body, cells, view.scroll), help::any_key()),
        false => {
            let shown = figures(view, body, cells);
            (shown, help::keys(view, shown))
        }
    };
    put(&keys, Rect { y: area.y + above, height: area.height - above, ..area }, cells);
    shown
}

/// The view as lines of text, as many as it needs.
pub fn lines(view: &View, columns: u16) -> Vec<String> {
    let workers = view.pair().map_or(0, |pair| pair.now.workers.len());
    let rows = ABOVE.saturating_add(u16::try_from(workers).unwrap_or(u16::MAX));
    let mut cells = Buffer::empty(Rect::new(0, 0, columns, rows));
    figures(view, cells.area, &mut cells);
    let mut lines = text(&cells);
    let last = lines.iter().rposition(|line| !line.is_empty());
    lines.truncate(last.map_or(0, |last| last + 1));
    lines
}

/// Draws everything except the keys. The chart and empty rows have the room that is left by a part
/// of the workers, and the workers have the rest.
fn figures(view: &View, area: Rect, cells: &mut Buffer) -> Scroll {
    let mut rows = vec![title(view)];
    rows.extend(message(view, area.width.into()));
    let Some(pair) = view.pair() else {
        put_all(&rows, area, cells);
        return view.scroll;
    };
    let mut below = vec![];
    below.extend(replies(pair));
    below.extend(http(pair));
    below.extend(webrtc(pair).into_iter().flatten());
    below.extend(stored(pair));
    below.extend(resources(pair));
    let requests = traffic(view, pair);

    let table = 1 + pair.now.workers.len().min(WORKERS);
    let needed = rows.len() + requests.len() + below.len() + table;
    let spare = area.height.saturating_sub(u16::try_from(needed).unwrap_or(u16::MAX));
    let curve = spare.min(CURVE);
    if spare > CURVE {
        below.push(vec![]);
    }
    if spare > CURVE + 1 {
        rows.push(vec![]);
    }
    rows.extend(requests);
    let drawn = rows.len();
    rows.extend((0..curve).map(|_| vec![]));
    rows.extend(below);
    let left = put_all(&rows, area, cells);
    if curve > 0 {
        let y = area.y + u16::try_from(drawn).unwrap_or(u16::MAX);
        draw_curve(view, Rect { y, height: curve, ..area }, cells);
    }
    workers::draw(view, pair, left, cells)
}

/// The tracker. Its addresses may be many, so they are the last.
fn title(view: &View) -> Row {
    let mut row = vec![Span::styled("onrush", Style::new().add_modifier(Modifier::BOLD))];
    let Some(Pair { now, .. }) = view.pair() else {
        row.push(faint(format!("  {}", view.url)));
        return row;
    };
    row.push(plain(format!(" {}", now.version)));
    row.push(faint(format!("  {}  {}", view.url, now.placement)));
    row.push(faint(format!("  {}", now.addresses.join(" "))));
    row
}

/// The error of the last reading; without one, the health of the tracker.
fn message(view: &View, width: usize) -> Vec<Row> {
    let Some(error) = &view.error else {
        return flow(health(view.pair().map(|pair| pair.now)), "  ", width);
    };
    // Escaped before it is broken into rows, as that makes it longer.
    let error = escaped(error);
    let words = |line: &str| {
        let words = line.split_whitespace().map(|word| vec![alarm(word)]).collect::<Vec<_>>();
        flow(words, " ", width)
    };
    let mut rows: Vec<Row> = error.lines().flat_map(words).collect();
    if rows.len() > ERROR {
        rows.truncate(ERROR - 1);
        rows.push(vec![alarm("…")]);
    }
    rows
}

fn health(now: Option<&Stats>) -> Vec<Row> {
    let Some(now) = now else { return vec![vec![faint("waiting for the first reading")]] };
    let stage = format!("{} for {}", now.stage, duration(now.uptime));
    let mut items = vec![vec![alarm_if(now.stage != "serving", stage)]];
    let stalled: Vec<_> = now.workers.iter().filter(|worker| worker.is_stalled()).collect();
    items.extend(stalled.iter().take(STALLS).map(|worker| {
        vec![alarm(format!("{} stalled for {}", worker.name, duration(worker.stalled_seconds)))]
    }));
    match stalled.len() {
        0 => items.push(vec![Span::styled("no worker is stalled", Color::Green)]),
        all if all > STALLS => items.push(vec![alarm(format!("and {} more", all - STALLS))]),
        _ => {}
    }
    if now.log_level == "off" {
        items.push(vec![alarm("the log is off")]);
    }
    let overload = match now.overload.step {
        0 => faint("no overload"),
        step => alarm(format!("overload step {step} of 8")),
    };
    items.push(vec![overload, faint(format!(", interval {} s", now.overload.interval))]);
    items
}

/// Selects the numbers of a family.
type OfFamily = fn(&Stats) -> &FamilyStats;

/// Requests and peers, by family, and the rate of all requests.
fn traffic(view: &View, pair: Pair<'_>) -> Vec<Row> {
    let heads =
        ["connect/s", "announce/s", "scrape/s", "refused/s", "peers", "seeders", "leechers"];
    let mut rows = vec![vec![name(""), faint(columns(FAMILY, heads.map(String::from)))]];
    let all: [(&str, OfFamily); 3] = [
        ("IPv4", |stats| &stats.families.ipv4),
        ("IPv6", |stats| &stats.families.ipv6),
        ("both", |stats| &stats.totals.traffic),
    ];
    for (family, of) in all {
        let per_second = |what: fn(&FamilyStats) -> f64| rate(pair.rate(|stats| what(of(stats))));
        let now = of(pair.now);
        let cells = [
            per_second(|stats| stats.incoming.connects as f64),
            per_second(|stats| stats.incoming.announces as f64),
            per_second(|stats| stats.incoming.scrapes as f64),
            per_second(|stats| stats.refused_in_all() as f64),
            compact(now.peers as f64),
            compact(now.seeders as f64),
            compact(now.leechers as f64),
        ];
        rows.push(vec![name(family), plain(columns(FAMILY, cells))]);
    }
    rows.push(vec![
        name("requests"),
        plain(format!("{}/s", rate(pair.rate(|stats| stats.totals.traffic.requests() as f64)))),
        faint(format!("  max {}/s", compact(most_requests(view) as f64))),
    ]);
    rows
}

fn most_requests(view: &View) -> u64 {
    view.requests.iter().max().copied().unwrap_or(0)
}

/// The request rate over time, the newest at the right.
fn draw_curve(view: &View, area: Rect, cells: &mut Buffer) {
    let first = view.requests.len().saturating_sub(usize::from(area.width));
    let data: Vec<u64> = view.requests.iter().skip(first).copied().collect();
    Sparkline::default()
        .data(data)
        .max(most_requests(view).max(1))
        .style(Style::new().fg(Color::Green))
        .render(area, cells);
}

/// Replies, traffic, losses and refusals.
fn replies(pair: Pair<'_>) -> [Row; 3] {
    let per_second = |of: fn(&Stats) -> f64| pair.rate(of);
    let bits = |of: fn(&Stats) -> f64| {
        per_second(of).map_or_else(|| "-".into(), |bytes| format!("{:.1}", bytes * 8e-6))
    };
    let replies = vec![
        name("replies"),
        plain(format!("{}/s", rate(per_second(|s| s.totals.replied() as f64)))),
        faint("  in "),
        plain(bits(|s| {
            (s.totals.traffic.incoming.bytes + s.totals.over_http().http_received_bytes) as f64
        })),
        faint(" out "),
        plain(bits(|s| (s.totals.worker.sent_bytes + s.totals.over_http().http_sent_bytes) as f64)),
        faint(" Mbit/s"),
    ];
    let refused = causes(pair, "refused", false, |s| s.totals.traffic.only_refused().collect());
    [replies, causes(pair, "lost", true, |s| s.totals.losses().collect()), refused]
}

/// Causes that have occurred, sorted by their current rate, then by their total. With `alarms`,
/// those that occur now are highlighted.
fn causes(pair: Pair<'_>, what: &str, alarms: bool, counts: fn(&Stats) -> Vec<(&str, u64)>) -> Row {
    let occurred = counts(pair.now).into_iter().filter(|(_, all)| *all > 0);
    let mut causes: Vec<(&str, Option<f64>, u64)> = occurred
        .map(|(cause, all)| {
            let count = |s: &Stats| {
                let counts = counts(s);
                counts.iter().find(|(name, _)| *name == cause).map_or(0.0, |(_, n)| *n as f64)
            };
            (cause, pair.rate(count), all)
        })
        .collect();
    causes.sort_by(|a, b| {
        let now = b.1.unwrap_or(0.0).total_cmp(&a.1.unwrap_or(0.0));
        now.then(b.2.cmp(&a.2))
    });
    let items = causes.into_iter().map(|(cause, now, all)| {
        let is_alarm = alarms && now.is_some_and(|now| now > 0.0);
        let now = alarm_if(is_alarm, format!("{cause} {}/s", rate(now)));
        vec![now, faint(format!(" {} total", compact(all as f64)))]
    });
    list(what, items)
}

/// Requests and connections over HTTP, and connections that were not served.
fn http(pair: Pair<'_>) -> Option<Row> {
    let now = pair.now.totals.http.as_ref()?;
    let most = pair.now.limits.http_connections.unwrap_or(0);
    let row = vec![
        name("HTTP"),
        plain(format!("{}/s", rate(pair.rate(|s| s.totals.over_http().all_requests() as f64)))),
        faint("  connections "),
        plain(compact(now.counts.all_open() as f64)),
        faint(format!(" of {}  unserved ", compact(most as f64))),
    ];
    let mut unserved =
        causes(pair, "", true, |s| s.totals.http.iter().flat_map(HttpStats::unserved).collect());
    // Its name is in the row already.
    Some([row, unserved.split_off(1)].concat())
}

/// WebRTC peers and open connections; offers and answers.
fn webrtc(pair: Pair<'_>) -> Option<[Row; 2]> {
    let counts = pair.now.totals.over_http();
    if !counts.has_webrtc() {
        return None;
    }
    let number = |count: u64| plain(compact(count as f64));
    let peers = vec![
        name("WebRTC"),
        faint("swarms "),
        number(counts.webrtc_swarms),
        faint("  seeders "),
        number(counts.webrtc_seeders),
        faint("  leechers "),
        number(counts.webrtc_leechers),
        faint("  ws "),
        number(counts.ws_open),
        faint("  wss "),
        number(counts.wss_open),
    ];
    let per_second = |of: fn(&WebStats) -> u64| {
        plain(format!("{}/s", rate(pair.rate(|s| of(&s.totals.over_http()) as f64))))
    };
    let messages = vec![
        name("offers"),
        per_second(|counts| counts.webrtc_offers),
        faint("  dropped "),
        per_second(|counts| counts.webrtc_offers_dropped),
        faint("  answers "),
        per_second(|counts| counts.webrtc_answers),
        faint("  dropped "),
        per_second(|counts| counts.webrtc_answers_dropped),
    ];
    Some([peers, messages])
}

/// Swarms, completions and expiry; client software.
fn stored(pair: Pair<'_>) -> [Row; 2] {
    let shard = &pair.now.totals.shard;
    let swarms = vec![
        name("swarms"),
        plain(compact(shard.swarms as f64)),
        faint(format!(" ({} idle)  completed ", compact(shard.idle_swarms as f64))),
        plain(format!("{}/s", rate(pair.rate(|s| s.totals.shard.completed as f64)))),
        faint("  expired "),
        plain(format!("{}/s", rate(pair.rate(|s| s.totals.shard.expired as f64)))),
    ];
    [swarms, clients(pair.now)]
}

/// Client software, of sampled announces.
fn clients(now: &Stats) -> Row {
    let items = now.clients.shares().map(|(name, share)| {
        vec![plain(name.to_owned()), faint(format!(" {:.1} %", 100.0 * share))]
    });
    list("clients", items)
}

/// Memory and peers against their limits, and CPU time.
fn resources(pair: Pair<'_>) -> [Row; 3] {
    let Stats { memory, limits, totals, .. } = pair.now;
    let memory = match memory.limit {
        Some(limit) => of_limit(
            "memory",
            memory.resident as f64 / (limit as f64).max(1.0),
            format!("{} of {}", bytes(memory.resident), bytes(limit)),
        ),
        None => vec![name("memory"), plain(bytes(memory.resident))],
    };
    let stored = totals.traffic.peers as f64;
    let mut peers = of_limit(
        "peers",
        stored / (limits.peers as f64).max(1.0),
        format!("{} of {}", compact(stored), compact(limits.peers as f64)),
    );
    if totals.shard.not_stored() > 0 {
        let refused = rate(pair.rate(|s| s.totals.shard.not_stored() as f64));
        peers.extend([faint("  not stored "), alarm(format!("{refused}/s"))]);
    }
    let cpu = pair.rate(|stats| stats.cpu.seconds).map(|vcpus| vcpus * 100.0);
    [memory, peers, vec![name("CPU"), plain(format!("{} % of a vCPU, all threads", rate(cpu)))]]
}

fn of_limit(what: &str, share: f64, words: String) -> Row {
    let percent = format!(" {:>3.0} %  {words}", share * 100.0);
    vec![name(what), level(share, BAR), plain(percent)]
}

#[cfg(test)]
mod tests;
