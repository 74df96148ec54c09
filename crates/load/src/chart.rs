//! Pictures: lines over an axis, and bars, each as self-contained SVG text.
//!
//! Colours suit the colour-blind (Okabe and Ito's palette). The background is always light, so that
//! a picture can be placed on a dark page. `templates/chart.svg` has the elements of both pictures;
//! this module and `axis` compute their positions, in units of the picture.

mod axis;

use askama::Template;
use onrush_text::lines::wrapped;

pub use axis::Axis;

/// Width of a picture, in its own units (pixels where it is not scaled).
pub const WIDTH: u32 = 760;
/// Its height.
pub const HEIGHT: u32 = 400;

/// Ends of the horizontal axis.
const LEFT: f64 = 84.0;
const RIGHT: f64 = 738.0;
/// Colours of lines, by their number.
const PALETTE: [&str; 8] =
    ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#5A5A5A", "#785EF0"];
/// Width of a character, in the font of legends and labels.
const CHARACTER: f64 = 7.3;
/// Lines with at most this many points have dots at them.
const MARKED: usize = 40;
/// Share of a bar in the width that it has.
const BAR_SHARE: f64 = 0.67;

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
    /// Name, start and end of shaded intervals of the horizontal axis, like a warm-up.
    pub spans: Vec<(&'static str, f64, f64)>,
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

impl Line {
    /// A line through these points.
    pub fn new(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let point = |(x, y)| Point { x, y, spread: None };
        Self { name: name.into(), points: points.into_iter().map(point).collect() }
    }
}

/// A picture of bars.
#[derive(Clone, Debug)]
pub struct Bars {
    /// The title.
    pub title: String,
    /// The vertical axis; linear.
    pub y: Axis,
    /// The legend.
    pub legend: String,
    /// The bars.
    pub bars: Vec<Bar>,
}

/// A bar.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// Its name, written below it.
    pub name: String,
    /// Its height.
    pub value: f64,
    /// Lowest and highest measured, drawn as a whisker.
    pub spread: Option<(f64, f64)>,
    /// Whether it is paler than others, which are highlighted.
    pub pale: bool,
}

/// The elements of a picture, for its template.
#[derive(Default, Template)]
#[template(path = "chart.svg", escape = "html")]
struct Picture<'a> {
    title: &'a str,
    /// Position, colour and name.
    legend: Vec<(i32, i32, &'static str, &'a str)>,
    /// Ends of the vertical axis.
    top: f64,
    bottom: f64,
    x_title: &'a str,
    y_title: &'a str,
    /// Positions and labels.
    x_marks: Vec<(f64, String)>,
    y_marks: Vec<(f64, String)>,
    /// Start, end and name.
    spans: Vec<(f64, f64, &'a str)>,
    /// Left side, top, width and opacity.
    bars: Vec<(f64, f64, f64, f64)>,
    /// Points and colour of each polyline.
    paths: Vec<(String, &'static str)>,
    dots: Vec<(f64, f64, &'static str)>,
    /// Both ends and the colour of each stroke.
    strokes: Vec<(f64, f64, f64, f64, &'static str)>,
    /// Texts with their middle.
    labels: Vec<(f64, f64, String)>,
}

impl<'a> Picture<'a> {
    /// A picture with a legend of these names, whose axes end above `bottom`.
    fn new(title: &'a str, names: impl Iterator<Item = &'a str>, bottom: f64) -> Self {
        let (mut x, mut y, mut legend) = (18, 38, Vec::new());
        for (name, color) in names.zip(PALETTE.into_iter().cycle()) {
            let width = 42 + (name.chars().count() as f64 * CHARACTER) as i32;
            if x + width > WIDTH as i32 && x > 18 {
                (x, y) = (18, y + 20);
            }
            legend.push((x, y, color, name));
            x += width;
        }
        let top = f64::from(if legend.is_empty() { y } else { y + 24 }) + 6.0;
        Self { title, legend, top, bottom, ..Self::default() }
    }

    fn svg(&self) -> String {
        self.render().expect("rendering into text does not fail")
    }
}

/// Draws lines as SVG.
pub fn lines(chart: &Lines) -> String {
    let names = chart.lines.iter().map(|line| line.name.as_str());
    let mut picture = Picture::new(&chart.title, names, 346.0);
    let points = || chart.lines.iter().flat_map(|line| &line.points);
    let ends = chart.spans.iter().flat_map(|(_, from, to)| [*from, *to]);
    let x = chart.x.fit(points().map(|point| point.x).chain(ends), false, [LEFT, RIGHT]);
    let spread = points().filter_map(|point| point.spread).flat_map(|(low, high)| [low, high]);
    let values = points().map(|point| point.y).chain(spread);
    let y = chart.y.fit(values, true, [picture.bottom, picture.top]);
    (picture.x_title, picture.y_title) = (&chart.x.title, &chart.y.title);
    (picture.x_marks, picture.y_marks) = (x.marks(), y.marks());
    let spans = chart.spans.iter().map(|(name, from, to)| Some((x.at(*from)?, x.at(*to)?, *name)));
    picture.spans = spans.flatten().collect();
    for (line, color) in chart.lines.iter().zip(PALETTE.into_iter().cycle()) {
        let place = |point: &Point| Some((x.at(point.x)?, y.at(point.y)?));
        let placed: Vec<_> = line.points.iter().map(place).collect();
        for run in placed.split(Option::is_none) {
            let run: Vec<_> = run.iter().flatten().collect();
            if placed.len() <= MARKED || run.len() == 1 {
                picture.dots.extend(run.iter().map(|(x, y)| (*x, *y, color)));
            }
            if run.len() > 1 {
                let points: Vec<_> = run.iter().map(|(x, y)| format!("{x},{y}")).collect();
                picture.paths.push((points.join(" "), color));
            }
        }
        let whisker = |point: &Point| {
            let (x, (low, high)) = (x.at(point.x)?, point.spread?);
            Some((x, y.at(low)?, x, y.at(high)?, color))
        };
        picture.strokes.extend(line.points.iter().filter_map(whisker));
    }
    picture.svg()
}

/// Draws bars as SVG.
pub fn bars(chart: &Bars) -> String {
    let mut picture = Picture::new(&chart.title, [chart.legend.as_str()].into_iter(), 332.0);
    let spread = chart.bars.iter().filter_map(|bar| bar.spread).flat_map(|(low, high)| [low, high]);
    let values = chart.bars.iter().map(|bar| bar.value).chain(spread);
    let bottom = picture.bottom;
    // Room for the value above the highest bar.
    let y = chart.y.fit(values, true, [bottom, picture.top + 12.0]);
    (picture.y_title, picture.y_marks) = (&chart.y.title, y.marks());
    let room = (RIGHT - LEFT) / chart.bars.len().max(1) as f64;
    let width = room * BAR_SHARE;
    for (n, bar) in chart.bars.iter().enumerate() {
        let middle = LEFT + room * (n as f64 + 0.5);
        let at = |value| y.at(value).unwrap_or(bottom);
        let opacity = if bar.pale { 0.45 } else { 1.0 };
        let (x, mut above) = (middle - width / 2.0, at(bar.value));
        picture.bars.push((x, above, width, opacity));
        if let Some((low, high)) = bar.spread.map(|(low, high)| (at(low), at(high))) {
            above = above.min(high);
            let ink = "#222222";
            picture.strokes.push((middle, low, middle, high, ink));
            let cap = |y| (middle - width * 0.15, y, middle + width * 0.15, y, ink);
            picture.strokes.extend([cap(low), cap(high)]);
        }
        picture.labels.push((middle, above - 4.0, chart.y.unit.label(bar.value)));
        let rows = wrapped(&bar.name, "", "", (room / CHARACTER) as usize).into_iter().enumerate();
        picture.labels.extend(rows.map(|(n, row)| (middle, bottom + 18.0 + n as f64 * 16.0, row)));
    }
    picture.svg()
}

#[cfg(test)]
mod tests;
