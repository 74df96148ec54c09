//! Draws the state of the view into cells. No I/O.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Sparkline, Widget};

use super::rates::{Pair, refused, requests};
use super::view::View;
use crate::cli::format::{bar, bytes, count, escaped, rate, span};
use onrush_control::api::stats::{FamilyStats, Stats, WorkerStats};

/// Columns of the labels at the left.
const NAMES: usize = 10;
/// Rows of the chart of requests.
const CURVE: u16 = 4;
/// Columns of a bar.
const BAR: usize = 16;
/// Column widths of the table of families; the view fits 80 columns.
const FAMILY: [usize; 7] = [10, 11, 9, 10, 10, 10, 10];
/// Column widths of the table of workers, after the load.
const WORKER: [usize; 5] = [10, 10, 10, 9, 9];
/// Seconds without a turn after which a worker counts as stalled.
const STALLED: f64 = onrush_control::stall::STALL_THRESHOLD.as_secs() as f64;
/// Rows above the workers.
const ABOVE: u16 = 18 + CURVE;

/// Rows of the whole view.
pub fn rows(view: &View) -> u16 {
    let workers = view.pair().map_or(0, |pair| pair.now.workers.len());
    ABOVE.saturating_add(u16::try_from(workers).unwrap_or(u16::MAX))
}

/// Draws the view. Rows that do not fit are left out, those of workers first.
pub fn draw(view: &View, area: Rect, cells: &mut Buffer) {
    let mut page = Page { cells, area, used: 0 };
    page.line(title(view));
    match &view.error {
        // One line, so that the rest of the view stays.
        Some(error) => page.line(vec![alarm(error.replace('\n', " "))]),
        None => page.line(health(view.pair().map(|pair| pair.now))),
    }
    let Some(pair) = view.pair() else { return };
    page.line(vec![]);
    traffic(&mut page, pair);
    curve(&mut page, view);
    replies(&mut page, pair);
    stored(&mut page, pair);
    resources(&mut page, pair);
    page.line(vec![]);
    workers(&mut page, pair);
}

/// The view as lines of text.
pub fn lines(view: &View, columns: u16, rows: u16) -> Vec<String> {
    let area = Rect::new(0, 0, columns, rows);
    let mut cells = Buffer::empty(area);
    draw(view, area, &mut cells);
    let line = |y| (0..columns).map(|x| cells[(x, y)].symbol()).collect::<String>();
    (0..rows).map(|y| line(y).trim_end().to_owned()).collect()
}

/// The rows of the view, filled from the top.
struct Page<'a> {
    cells: &'a mut Buffer,
    area: Rect,
    used: u16,
}

impl Page<'_> {
    /// The next rows, as far as they fit.
    fn take(&mut self, rows: u16) -> Rect {
        let Rect { x, y, width, height } = self.area;
        let rows = rows.min(height - self.used);
        let taken = Rect { x, y: y + self.used, width, height: rows };
        self.used += rows;
        taken
    }

    fn line(&mut self, spans: Vec<Span<'_>>) {
        let row = self.take(1);
        let spans = spans.iter().map(|span| Span::styled(escaped(&span.content), span.style));
        Line::from_iter(spans).render(row, self.cells);
    }

    fn left(&self) -> usize {
        usize::from(self.area.height - self.used)
    }
}

fn plain(text: impl Into<String>) -> Span<'static> {
    Span::raw(text.into())
}

fn faint(text: impl Into<String>) -> Span<'static> {
    Span::styled(text.into(), Color::DarkGray)
}

fn alarm(text: impl Into<String>) -> Span<'static> {
    Span::styled(text.into(), Style::new().fg(Color::Red).add_modifier(Modifier::BOLD))
}

/// Highlighted if `is`.
fn alarm_if(is: bool, text: String) -> Span<'static> {
    if is { alarm(text) } else { plain(text) }
}

fn name(text: &str) -> Span<'static> {
    faint(format!("{text:<NAMES$}"))
}

fn title(view: &View) -> Vec<Span<'_>> {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let mut line = vec![Span::styled("onrush", bold)];
    if let Some(Pair { now, .. }) = view.pair() {
        line.push(plain(format!(" {}", now.version)));
        line.push(faint(format!("  {} ({})", now.addresses.join(" "), now.placement)));
    }
    line.push(faint(format!("  {}", view.url)));
    line
}

fn health(now: Option<&Stats>) -> Vec<Span<'static>> {
    let Some(now) = now else { return vec![faint("waiting for the first reading")] };
    let stalled: Vec<String> = now
        .workers
        .iter()
        .filter(|worker| worker.still_for >= STALLED)
        .map(|worker| format!("{} stalled for {}", worker.name, span(worker.still_for)))
        .collect();
    let stage = format!("{} for {}", now.stage, span(now.uptime));
    let stage = if now.stage == "serving" { plain(stage) } else { alarm(stage) };
    let health = match stalled.is_empty() {
        true => Span::styled("no worker is stalled", Color::Green),
        false => alarm(stalled.join(", ")),
    };
    let overload = match now.overload.step {
        0 => faint("  no overload"),
        step => alarm(format!("  overload step {step} of 8")),
    };
    let share = now.overload.connect_share;
    let shed = match share < 1.0 {
        true => alarm(format!(", connects of {:.0} % answered", share * 100.0)),
        false => plain(""),
    };
    let interval = faint(format!(", interval {} s", now.overload.interval));
    vec![stage, plain("  "), health, overload, interval, shed]
}

/// The cells of a row of a table, right-aligned.
fn columns<const N: usize>(widths: [usize; N], cells: [String; N]) -> String {
    widths.iter().zip(&cells).map(|(width, cell)| format!("{cell:>width$}")).collect()
}

/// Selects the numbers of a family.
type OfFamily = fn(&Stats) -> &FamilyStats;

/// Requests and peers, by family.
fn traffic(page: &mut Page<'_>, pair: Pair<'_>) {
    let heads =
        ["connect/s", "announce/s", "scrape/s", "refused/s", "peers", "seeders", "leechers"];
    page.line(vec![name(""), faint(columns(FAMILY, heads.map(String::from)))]);
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
            per_second(refused),
            count(now.peers as f64),
            count(now.seeders as f64),
            count(now.leechers as f64),
        ];
        page.line(vec![name(family), plain(columns(FAMILY, cells))]);
    }
}

/// The request rate over time, the newest at the right.
fn curve(page: &mut Page<'_>, view: &View) {
    let most = view.requests.iter().max().copied().unwrap_or(0);
    let now = view.pair().and_then(|pair| pair.rate(|stats| requests(&stats.totals.traffic)));
    page.line(vec![
        name("requests"),
        plain(format!("{}/s", rate(now))),
        faint(format!("  max {}/s", count(most as f64))),
    ]);
    let area = page.take(CURVE);
    let first = view.requests.len().saturating_sub(usize::from(area.width));
    let data: Vec<u64> = view.requests.iter().skip(first).copied().collect();
    Sparkline::default()
        .data(data)
        .max(most.max(1))
        .style(Style::new().fg(Color::Green))
        .render(area, page.cells);
}

/// Replies, traffic, drops and refusals.
fn replies(page: &mut Page<'_>, pair: Pair<'_>) {
    let per_second = |of: fn(&Stats) -> f64| pair.rate(of);
    let bits = |of: fn(&Stats) -> f64| {
        per_second(of).map_or_else(|| "-".into(), |bytes| format!("{:.1}", bytes * 8e-6))
    };
    page.line(vec![
        name("replies"),
        plain(format!("{}/s", rate(per_second(|s| s.totals.worker.sent as f64)))),
        faint("  in "),
        plain(bits(|s| s.totals.traffic.incoming.bytes as f64)),
        faint(" out "),
        plain(bits(|s| s.totals.worker.sent_bytes as f64)),
        faint(" Mbit/s"),
    ]);
    let unsent = |s: &Stats| s.totals.unsent.values().sum::<u64>() as f64;
    let (dropped, lost) = (per_second(|s| s.totals.worker.kernel_drops as f64), per_second(unsent));
    let is = |rate: Option<f64>| rate.is_some_and(|rate| rate > 0.0);
    page.line(vec![
        name("dropped"),
        alarm_if(is(dropped), format!("{}/s", rate(dropped))),
        faint(format!("  {} total", count(pair.now.totals.worker.kernel_drops as f64))),
        faint("   unsent "),
        alarm_if(is(lost), format!("{}/s", rate(lost))),
        faint(format!("  {} total", count(unsent(pair.now)))),
    ]);
    page.line(refusals(pair));
}

/// Reasons of refusals, sorted by their current rate, then by their total.
fn refusals(pair: Pair<'_>) -> Vec<Span<'static>> {
    let mut reasons: Vec<(&String, Option<f64>, u64)> = pair
        .now
        .totals
        .traffic
        .refused
        .iter()
        .filter(|(_, all)| **all > 0)
        .map(|(reason, all)| {
            let of = |s: &Stats| s.totals.traffic.refused.get(reason).copied().unwrap_or(0) as f64;
            (reason, pair.rate(of), *all)
        })
        .collect();
    reasons.sort_by(|a, b| {
        let now = b.1.unwrap_or(0.0).total_cmp(&a.1.unwrap_or(0.0));
        now.then(b.2.cmp(&a.2))
    });
    let mut line = vec![name("refused")];
    if reasons.is_empty() {
        line.push(plain("none"));
    }
    for (reason, now, all) in reasons {
        line.push(plain(format!("{reason} {}/s", rate(now))));
        line.push(faint(format!(" {} total   ", count(all as f64))));
    }
    line
}

/// Swarms, completions, expiry, and client software.
fn stored(page: &mut Page<'_>, pair: Pair<'_>) {
    let totals = &pair.now.totals;
    page.line(vec![
        name("swarms"),
        plain(count(totals.shard.swarms as f64)),
        faint(format!("  and {} without peers", count(totals.shard.idle_swarms as f64))),
        faint("   completed "),
        plain(format!("{}/s", rate(pair.rate(|s| s.totals.shard.completed as f64)))),
        faint("   expired "),
        plain(format!("{}/s", rate(pair.rate(|s| s.totals.shard.expired as f64)))),
        faint("   not stored "),
        alarm_if(
            totals.shard.not_stored() > 0,
            format!("{}/s", rate(pair.rate(|s| s.totals.shard.not_stored() as f64))),
        ),
    ]);
    page.line(clients(pair.now));
}

/// Client software, of sampled announces.
fn clients(now: &Stats) -> Vec<Span<'static>> {
    let of = |s: &onrush_control::api::stats::Software| (s.ipv4 + s.ipv6) as f64;
    let all: f64 = now.clients.software.iter().map(of).sum();
    let mut line = vec![name("clients")];
    if all == 0.0 {
        line.push(plain("none"));
    }
    for software in &now.clients.software {
        line.push(plain(format!("{} ", software.name)));
        line.push(faint(format!("{:.1} %   ", 100.0 * of(software) / all)));
    }
    line
}

/// Memory, peers and CPU time against their limits.
fn resources(page: &mut Page<'_>, pair: Pair<'_>) {
    let Stats { memory, limits, totals, .. } = pair.now;
    let resident = memory.resident as f64;
    match memory.limit {
        Some(limit) => page.line(of_limit(
            "memory",
            resident / (limit as f64).max(1.0),
            format!("{} of {}", bytes(resident), bytes(limit as f64)),
        )),
        None => page.line(vec![name("memory"), plain(bytes(resident))]),
    }
    let peers = totals.traffic.peers as f64;
    page.line(of_limit(
        "peers",
        peers / (limits.peers as f64).max(1.0),
        format!("{} of {} (limits.peers)", count(peers), count(limits.peers as f64)),
    ));
    let cpu = pair.rate(|stats| stats.cpu.seconds).map(|vcpus| vcpus * 100.0);
    page.line(vec![name("CPU"), plain(format!("{} % of a vCPU, all threads", rate(cpu)))]);
}

fn of_limit(what: &str, share: f64, words: String) -> Vec<Span<'static>> {
    vec![name(what), level(share), plain(format!(" {:>3.0} %  {words}", share * 100.0))]
}

/// A bar, coloured by its share.
fn level(share: f64) -> Span<'static> {
    let color = match share {
        share if share >= 0.9 => Color::Red,
        share if share >= 0.7 => Color::Yellow,
        _ => Color::Green,
    };
    Span::styled(bar(share, BAR), color)
}

fn workers(page: &mut Page<'_>, pair: Pair<'_>) {
    let heads = ["received/s", "replies/s", "dropped/s", "lane", "peers"].map(String::from);
    let heads = format!("{:<width$}{}", "load", columns(WORKER, heads), width = BAR + 6);
    page.line(vec![name("worker"), faint(heads)]);
    let all = &pair.now.workers;
    // The last row counts the workers that do not fit.
    let shown = if all.len() > page.left() { page.left().saturating_sub(1) } else { all.len() };
    for worker in &all[..shown] {
        page.line(row(pair, worker));
    }
    if shown < all.len() && page.left() > 0 {
        page.line(vec![faint(format!("and {} more", all.len() - shown))]);
    }
}

fn row(pair: Pair<'_>, worker: &WorkerStats) -> Vec<Span<'static>> {
    let per_second = |of: fn(&WorkerStats) -> f64| pair.rate_of_worker(&worker.name, of);
    let load = per_second(|worker| worker.busy_seconds).unwrap_or(0.0);
    let dropped = per_second(|worker| worker.counts.kernel_drops as f64);
    // Cells that do not apply to a worker stay empty.
    let sockets = |value: Option<f64>| if worker.socket_side { rate(value) } else { String::new() };
    let swarms = |text: String| if worker.swarm_side { text } else { String::new() };
    let stalled = worker.still_for >= STALLED;
    let label = format!("{:<NAMES$}", worker.name);
    let cells = [
        sockets(per_second(|worker| worker.datagrams as f64)),
        sockets(per_second(|worker| worker.counts.sent as f64)),
        sockets(dropped),
        swarms(format!("{}/{}", worker.lane_waiting, worker.lane_room)),
        swarms(count(worker.peers as f64)),
    ];
    vec![
        if stalled { alarm(label) } else { faint(label) },
        level(load),
        plain(format!(" {:>3.0} %", (load * 100.0).min(100.0))),
        alarm_if(dropped.is_some_and(|dropped| dropped > 0.0), columns(WORKER, cells)),
    ]
}

#[cfg(test)]
mod tests;
