//! The table of workers.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::rows::{Row, alarm, alarm_if, columns, faint, level, plain, put};
use crate::format::rate;
use crate::top::rates::Pair;
use crate::top::view::{Scroll, View};
use onrush_control::api::stats::WorkerStats;
use onrush_text::numbers::compact;

/// Columns of the names.
const NAMES: usize = 10;
/// Columns of the bar of the load.
const BAR: usize = 10;
/// Columns of bar and percentage.
const LOAD: usize = BAR + " 100 %".len();
/// Column widths after the load.
const FIGURES: [usize; 5] = [10, 9, 9, 9, 9];

/// Draws the workers from the selected one on; the part that is shown.
pub(super) fn draw(view: &View, pair: Pair<'_>, area: Rect, cells: &mut Buffer) -> Scroll {
    let page = usize::from(area.height.saturating_sub(1));
    let workers = sorted(view, pair);
    let first = view.scroll.first.min(workers.len().saturating_sub(page));
    let shown = workers[first..].iter().take(page).map(|(worker, load)| row(pair, worker, *load));
    for (y, row) in (area.y..area.bottom()).zip([head(view.by_load)].into_iter().chain(shown)) {
        put(&row, Rect { y, height: 1, ..area }, cells);
    }
    Scroll { first, page }
}

/// The workers with their load, by number or with the highest load first.
fn sorted<'a>(view: &View, pair: Pair<'a>) -> Vec<(&'a WorkerStats, f64)> {
    let load = |worker: &WorkerStats| {
        pair.rate_of_worker(&worker.name, |worker| worker.busy_seconds).unwrap_or(0.0)
    };
    let mut workers: Vec<_> =
        pair.now.workers.iter().map(|worker| (worker, load(worker))).collect();
    if view.by_load {
        workers.sort_by(|a, b| b.1.total_cmp(&a.1));
    }
    workers
}

fn head(by_load: bool) -> Row {
    let load = if by_load { "load, highest" } else { "load" };
    let heads = ["received/s", "replies/s", "lost/s", "lane", "peers"].map(String::from);
    vec![faint(format!("{:<NAMES$} {load:<LOAD$}{}", "worker", columns(FIGURES, heads)))]
}

fn row(pair: Pair<'_>, worker: &WorkerStats, load: f64) -> Row {
    let per_second = |of: fn(&WorkerStats) -> f64| pair.rate_of_worker(&worker.name, of);
    let lost = per_second(|worker| worker.lost as f64);
    // Cells that do not apply to a worker stay empty.
    let requests =
        |value: Option<f64>| if worker.takes_requests() { rate(value) } else { String::new() };
    let swarms = |text: String| if worker.swarm_side { text } else { String::new() };
    let name = format!("{:<NAMES$.NAMES$} ", worker.name);
    let cells = [
        requests(per_second(|worker| worker.received() as f64)),
        requests(per_second(|worker| worker.replied() as f64)),
        requests(lost),
        swarms(format!("{}/{}", worker.lane_waiting, worker.lane_capacity)),
        swarms(compact(worker.peers as f64)),
    ];
    vec![
        if worker.is_stalled() { alarm(name) } else { faint(name) },
        level(load, BAR),
        plain(format!(" {:>3.0} %", (load * 100.0).min(100.0))),
        alarm_if(lost.is_some_and(|lost| lost > 0.0), columns(FIGURES, cells)),
    ]
}
