//! Groups of bars.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::axis::Fitted;
use super::{Area, Axis, Drawn, FAINT, GRID, INK, color, picture, text, text_width};

/// A picture of bars: a group per name, and in each group a bar per row.
#[derive(Clone, Debug)]
pub struct Bars {
    /// The title.
    pub title: String,
    /// The vertical axis; linear.
    pub y: Axis,
    /// The names of the groups, below them.
    pub groups: Vec<String>,
    /// Bars of one colour, one per group.
    pub rows: Vec<Row>,
    /// Highlighted groups, by position; the others are paler. Empty: all groups look alike.
    pub marked: Vec<usize>,
}

/// Bars of one colour.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its name, for the legend.
    pub name: String,
    /// One bar per group; `None` is shown as absent, not as 0.
    pub bars: Vec<Option<Bar>>,
}

/// A bar.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bar {
    /// Its height.
    pub value: f64,
    /// Lowest and highest measured, drawn as a whisker.
    pub spread: Option<(f64, f64)>,
}

impl From<f64> for Bar {
    fn from(value: f64) -> Self {
        Self { value, spread: None }
    }
}

/// Share of a group's width that is empty.
const SPACE: f64 = 0.24;

/// Opacity of a bar beside a highlighted one.
const PALE: f64 = 0.45;

/// Draws bars as SVG.
pub fn bars(chart: &Bars) -> String {
    let names: Vec<_> = chart.rows.iter().map(|row| row.name.as_str()).collect();
    picture(&chart.title, &names, |area| draw(area, chart))
}

fn draw(area: &Area<'_>, chart: &Bars) -> Drawn {
    let all = || chart.rows.iter().flat_map(|row| &row.bars).flatten();
    let spread = all().filter_map(|bar| bar.spread).flat_map(|(low, high)| [low, high]);
    let y = chart.y.fit(all().map(|bar| bar.value).chain(spread), true);
    let (bottom, top) = (y.low, y.high + (y.high - y.low) * 0.04);
    let groups = chart.groups.len().max(1) as f64;
    let mut plot = ChartBuilder::on(area)
        .margin(6)
        .margin_right(22)
        .x_label_area_size(62)
        .y_label_area_size(78)
        .build_cartesian_2d(
            Fitted { low: 0.0, high: groups, marks: Vec::new() },
            Fitted { high: top, ..y },
        )?;
    plot.configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(FAINT)
        .y_desc(&chart.y.title)
        .axis_desc_style(("sans-serif", 14).into_font().color(&INK))
        .label_style(("sans-serif", 13).into_font().color(&INK))
        .y_label_formatter(&|place| chart.y.label(*place))
        .draw()?;
    let wide = (1.0 - SPACE) / chart.rows.len().max(1) as f64;
    for (n, row) in chart.rows.iter().enumerate() {
        for (group, bar) in row.bars.iter().enumerate() {
            let left = group as f64 + SPACE / 2.0 + n as f64 * wide;
            let middle = left + wide / 2.0;
            let Some(bar) = bar else {
                let mut style = text(12, FAINT, HPos::Left, VPos::Center);
                style.font = style.font.transform(FontTransform::Rotate270);
                plot.draw_series([Text::new("absent", (middle, bottom), style)])?;
                continue;
            };
            let corners = [(left + wide * 0.06, bottom), (left + wide * 0.94, bar.value)];
            let pale = !chart.marked.is_empty() && !chart.marked.contains(&group);
            let fill = color(n).mix(if pale { PALE } else { 1.0 });
            plot.draw_series([Rectangle::new(corners, fill.filled())])?;
            let mut above = bar.value;
            if let Some((low, high)) = bar.spread {
                above = above.max(high);
                let whisker = vec![(middle, low), (middle, high)];
                plot.draw_series([PathElement::new(whisker, INK.stroke_width(1))])?;
                for end in [low, high] {
                    let cap = vec![(middle - wide * 0.15, end), (middle + wide * 0.15, end)];
                    plot.draw_series([PathElement::new(cap, INK.stroke_width(1))])?;
                }
            }
            let style = text(12, INK, HPos::Center, VPos::Bottom);
            let value = chart.y.unit.label(bar.value);
            plot.draw_series([Text::new(value, (middle, above), style)])?;
        }
    }
    let at = |group: f64| plot.backend_coord(&(group, bottom));
    let places: Vec<_> = (0..chart.groups.len()).map(|n| at(n as f64 + 0.5)).collect();
    let room = at(1.0).0 - at(0.0).0;
    let (base_x, base_y) = area.get_base_pixel();
    for (name, (x, y)) in chart.groups.iter().zip(places) {
        for (n, line) in wrap(name, room).iter().enumerate() {
            let style = text(13, INK, HPos::Center, VPos::Top);
            area.draw_text(line, &style, (x - base_x, y - base_y + 8 + n as i32 * 16))?;
        }
    }
    Ok(())
}

/// Words in lines of at most `room` units.
fn wrap(name: &str, room: i32) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in name.split_whitespace() {
        match lines.last_mut() {
            Some(line) if text_width(line, 13) + text_width(word, 13) + 8 < room => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
