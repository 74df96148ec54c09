//! The row of keys, and the explanation of keys and figures.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::rows::{Row, faint, plain, put_all};
use crate::top::command::{FIGURES, KEYS};
use crate::top::view::{Scroll, View};

/// Draws the explanation; what is shown of the workers later stays.
pub(super) fn draw(area: Rect, cells: &mut Buffer, scroll: Scroll) -> Scroll {
    let lines = KEYS.lines().chain([""]).chain(FIGURES.lines());
    let rows: Vec<Row> = lines.map(|line| vec![plain(line)]).collect();
    put_all(&rows, area, cells);
    scroll
}

/// The row of keys below the explanation.
pub(super) fn any_key() -> Row {
    vec![plain("any key"), faint(" back to the view")]
}

/// The row of keys below the view, with the part of the workers that is shown.
pub(super) fn keys(view: &View, shown: Scroll) -> Row {
    let mut row = vec![plain("q"), faint(" quit  "), plain("?"), faint(" help")];
    let all = view.pair().map_or(0, |pair| pair.now.workers.len());
    if all == 0 {
        return row;
    }
    let other = if view.by_load { "name" } else { "load" };
    let last = (shown.first + shown.page).min(all);
    let workers = match last.saturating_sub(shown.first) {
        0 => format!("no room for {all} workers"),
        _ => format!("workers {} to {last} of {all}", shown.first + 1),
    };
    row.extend([plain("  s"), faint(format!(" sort by {other}"))]);
    row.extend([plain("  ↑ ↓ PgUp PgDn"), faint(format!(" scroll  {workers}"))]);
    row
}
