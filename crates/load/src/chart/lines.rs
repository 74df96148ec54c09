//! Lines over an axis.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::{Area, Axis, Drawn, FAINT, GRID, INK, SHADE, color, picture, text};

/// Lines with at most this many points have dots at them.
const MARKED: usize = 40;

/// A picture of lines.
#[derive(Clone, Debug)]
pub struct Lines {
    /// The title.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The lines; at most eight, by the number of colours.
    pub lines: Vec<Line>,
    /// Shaded intervals of the horizontal axis, like a warm-up.
    pub spans: Vec<ShadedSpan>,
}

/// A line.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its name, for the legend.
    pub name: String,
    /// Its points. A point without a position (NaN, or 0 on a logarithmic axis) makes a gap.
    pub points: Vec<Point>,
}

/// A point of a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Value on the horizontal axis.
    pub x: f64,
    /// Value on the vertical axis.
    pub y: f64,
    /// Lowest and highest measured, drawn as a whisker.
    pub spread: Option<(f64, f64)>,
}

impl From<(f64, f64)> for Point {
    fn from((x, y): (f64, f64)) -> Self {
        Self { x, y, spread: None }
    }
}

/// A shaded interval.
#[derive(Clone, Debug)]
pub struct ShadedSpan {
    /// Its name, written at its top.
    pub name: String,
    /// Its start.
    pub from: f64,
    /// Its end.
    pub to: f64,
}

impl Line {
    /// A line through these points.
    pub fn new<P: Into<Point>>(
        name: impl Into<String>,
        points: impl IntoIterator<Item = P>,
    ) -> Self {
        Self { name: name.into(), points: points.into_iter().map(Into::into).collect() }
    }
}

/// Draws lines as SVG.
pub fn lines(chart: &Lines) -> String {
    let names: Vec<_> = chart.lines.iter().map(|line| line.name.as_str()).collect();
    picture(&chart.title, &names, |area| draw(area, chart))
}

fn draw(area: &Area<'_>, chart: &Lines) -> Drawn {
    let points = || chart.lines.iter().flat_map(|line| &line.points);
    let ends = chart.spans.iter().flat_map(|span| [span.from, span.to]);
    let x = chart.x.fit(points().map(|point| point.x).chain(ends), false);
    let spread = points().filter_map(|point| point.spread).flat_map(|(low, high)| [low, high]);
    let y = chart.y.fit(points().map(|point| point.y).chain(spread), true);
    let (top, bottom) = (y.high, y.low);
    let mut plot = ChartBuilder::on(area)
        .margin(6)
        .margin_right(22)
        .x_label_area_size(48)
        .y_label_area_size(78)
        .build_cartesian_2d(x, y)?;
    for span in &chart.spans {
        let (Some(from), Some(to)) = (chart.x.place(span.from), chart.x.place(span.to)) else {
            continue;
        };
        plot.draw_series([Rectangle::new([(from, bottom), (to, top)], SHADE.filled())])?;
        // Inside its corner: narrow stretches, too, keep their names off the axis and its numbers.
        let style = text(12, FAINT, HPos::Left, VPos::Top);
        let name = Text::new(span.name.clone(), (5, 5), style);
        plot.draw_series([EmptyElement::at((from, top)) + name])?;
    }
    plot.configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(FAINT)
        .x_desc(&chart.x.title)
        .y_desc(&chart.y.title)
        .axis_desc_style(("sans-serif", 14).into_font().color(&INK))
        .label_style(("sans-serif", 13).into_font().color(&INK))
        .x_label_formatter(&|place| chart.x.label(*place))
        .y_label_formatter(&|place| chart.y.label(*place))
        .draw()?;
    for (n, line) in chart.lines.iter().enumerate() {
        let place = |x, y| Some((chart.x.place(x)?, chart.y.place(y)?));
        let placed: Vec<_> = line.points.iter().map(|point| place(point.x, point.y)).collect();
        let marked = placed.len() <= MARKED;
        for run in placed.split(Option::is_none) {
            let run: Vec<_> = run.iter().flatten().copied().collect();
            if marked || run.len() == 1 {
                let dots = run.iter().map(|at| Circle::new(*at, 3, color(n).filled()));
                plot.draw_series(dots)?;
            }
            if run.len() > 1 {
                plot.draw_series([PathElement::new(run, color(n).stroke_width(2))])?;
            }
        }
        for point in &line.points {
            let Some((low, high)) = point.spread else { continue };
            if let (Some(low), Some(high)) = (place(point.x, low), place(point.x, high)) {
                plot.draw_series([PathElement::new([low, high], color(n).stroke_width(1))])?;
            }
        }
    }
    Ok(())
}
