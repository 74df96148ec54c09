//! Rows of styled text: their parts, and writing them into cells.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use crate::format::{bar, escaped};

/// Columns of the names at the left.
const NAMES: usize = 9;

/// A row of text.
pub(super) type Row = Vec<Span<'static>>;

/// Writes rows from the top; the area that is left. If there is no room for all, the last row says
/// so.
pub(super) fn put_all(rows: &[Row], area: Rect, cells: &mut Buffer) -> Rect {
    let room = usize::from(area.height);
    let cut = rows.len() > room;
    let shown = if cut { room.saturating_sub(1) } else { rows.len() };
    let mut left = area;
    let more = vec![faint(format!("… {} more rows, in a larger terminal", rows.len() - shown))];
    for row in rows[..shown].iter().chain(cut.then_some(&more)) {
        put(row, left, cells);
        left = Rect { y: left.y + 1, height: left.height.saturating_sub(1), ..left };
    }
    left
}

/// Writes a row at the top of an area. A row that is cut ends with a sign.
pub(super) fn put(row: &[Span<'_>], area: Rect, cells: &mut Buffer) {
    if area.is_empty() {
        return;
    }
    let spans = row.iter().map(|span| Span::styled(escaped(&span.content), span.style));
    let line = Line::from_iter(spans);
    cells.set_line(area.x, area.y, &line, area.width);
    if line.width() > usize::from(area.width) {
        cells[(area.right() - 1, area.y)].set_symbol("…");
    }
}

/// Items side by side, in as many rows as they need.
pub(super) fn flow(
    items: impl IntoIterator<Item = Row>,
    gap: &'static str,
    width: usize,
) -> Vec<Row> {
    let (mut rows, mut row, mut used) = (vec![], vec![], 0);
    for item in items {
        let wide = item.iter().map(Span::width).sum::<usize>();
        if used > 0 && used + gap.len() + wide > width {
            rows.push(std::mem::take(&mut row));
            used = 0;
        }
        if used > 0 {
            row.push(plain(gap));
            used += gap.len();
        }
        used += wide;
        row.extend(item);
    }
    rows.push(row);
    rows
}

pub(super) fn plain(text: impl Into<String>) -> Span<'static> {
    Span::raw(text.into())
}

pub(super) fn faint(text: impl Into<String>) -> Span<'static> {
    Span::styled(text.into(), Color::DarkGray)
}

pub(super) fn alarm(text: impl Into<String>) -> Span<'static> {
    Span::styled(text.into(), Style::new().fg(Color::Red).add_modifier(Modifier::BOLD))
}

/// Highlighted if `is`.
pub(super) fn alarm_if(is: bool, text: String) -> Span<'static> {
    if is { alarm(text) } else { plain(text) }
}

pub(super) fn name(text: &str) -> Span<'static> {
    faint(format!("{text:<NAMES$}"))
}

/// A name and its items, of which there may be none.
pub(super) fn list(what: &str, items: impl Iterator<Item = Row>) -> Row {
    let items = flow(items, "   ", usize::MAX).concat();
    let items = if items.is_empty() { vec![plain("none")] } else { items };
    [vec![name(what)], items].concat()
}

/// The cells of a row of a table, right-aligned, with a space before each.
pub(super) fn columns<const N: usize>(widths: [usize; N], cells: [String; N]) -> String {
    widths.iter().zip(&cells).map(|(width, cell)| format!(" {cell:>width$}")).collect()
}

/// A bar, coloured by its share.
pub(super) fn level(share: f64, columns: usize) -> Span<'static> {
    let color = match share {
        share if share >= 0.9 => Color::Red,
        share if share >= 0.7 => Color::Yellow,
        _ => Color::Green,
    };
    Span::styled(bar(share, columns), color)
}

/// Cells as lines of text.
pub(super) fn text(cells: &Buffer) -> Vec<String> {
    let Rect { width, height, .. } = cells.area;
    let line = |y| (0..width).map(|x| cells[(x, y)].symbol()).collect::<String>();
    (0..height).map(|y| line(y).trim_end().to_owned()).collect()
}
