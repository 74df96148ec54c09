//! Pictures: lines over an axis, and groups of bars, each as self-contained SVG text.
//!
//! Colours suit the colour-blind (Okabe and Ito's palette). The background is always light, so that
//! a picture can be placed on a dark page.

mod axis;
mod bars;
mod lines;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

pub use axis::{Axis, Scale};
pub use bars::{Bar, Bars, Row, bars};
pub use lines::{Line, Lines, Point, ShadedSpan, lines};

/// Width of a picture, in its own units (pixels where it is not scaled).
pub const WIDTH: u32 = 760;
/// Its height.
pub const HEIGHT: u32 = 400;

const INK: RGBColor = RGBColor(34, 34, 34);
const FAINT: RGBColor = RGBColor(95, 95, 95);
const GRID: RGBColor = RGBColor(225, 225, 225);
const SHADE: RGBColor = RGBColor(238, 240, 244);
const PALETTE: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(90, 90, 90),
    RGBColor(120, 94, 240),
];
/// Width of a character as a share of the font size.
const CHARACTER: f64 = 0.56;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn<T = ()> =
    Result<T, DrawingAreaErrorKind<<SVGBackend<'static> as DrawingBackend>::ErrorType>>;

/// Draws SVG text; `draw` gets the area below title and legend.
fn picture(title: &str, names: &[&str], draw: impl FnOnce(&Area<'_>) -> Drawn) -> String {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT)).into_drawing_area();
        let whole = || -> Drawn {
            root.fill(&RGBColor(253, 253, 253))?;
            root.draw_text(title, &text(17, INK, HPos::Left, VPos::Top), (16, 10))?;
            let below = legend(&root, names)?;
            draw(&root.split_vertically(below).1)?;
            root.present()
        };
        whole().expect("drawing into text does not fail");
    }
    let label = title.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;");
    svg.replacen("<svg ", &format!("<svg role=\"img\" aria-label=\"{label}\" "), 1)
}

/// Draws the names with their colours in rows; returns the y coordinate below them.
fn legend(root: &Area<'_>, names: &[&str]) -> Drawn<i32> {
    let (mut x, mut y) = (18, 38);
    if names.is_empty() {
        return Ok(y);
    }
    for (n, name) in names.iter().enumerate() {
        let width = 26 + text_width(name, 13) + 16;
        if x + width > WIDTH as i32 && x > 18 {
            (x, y) = (18, y + 20);
        }
        let swatch = [(x, y + 2), (x + 18, y + 12)];
        root.draw(&Rectangle::new(swatch, color(n).filled()))?;
        root.draw_text(name, &text(13, INK, HPos::Left, VPos::Top), (x + 24, y))?;
        x += width;
    }
    Ok(y + 24)
}

fn color(n: usize) -> RGBColor {
    PALETTE[n % PALETTE.len()]
}

fn text(size: i32, color: RGBColor, h: HPos, v: VPos) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&color).pos(Pos::new(h, v))
}

fn text_width(text: &str, size: i32) -> i32 {
    (text.chars().count() as f64 * f64::from(size) * CHARACTER) as i32
}

/// The smallest and the largest finite value.
fn bounds(values: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    values.into_iter().filter(|value| value.is_finite()).fold(None, |bounds, value| match bounds {
        None => Some((value, value)),
        Some((low, high)) => Some((value.min(low), value.max(high))),
    })
}

#[cfg(test)]
mod tests;
