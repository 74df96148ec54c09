//! The view on a terminal: a few lines that are redrawn in place.
//!
//! Widgets draw into a buffer of cells, which is written with cursor movements relative to the end
//! of the last picture. So the terminal's cursor is never queried, which would need standard input
//! and standard output, where the report may go; the terminal stays in its mode, and Ctrl-C works
//! as usual.

use std::io::Write;
use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{LineGauge, Sparkline, Widget};

use crate::number::grouped;
use crate::series::Sample;

/// Lines of the picture.
pub(super) const HEIGHT: u16 = 8;
/// Columns of the figures, left of their curves.
const FIGURES: u16 = 42;
/// Upper bound on the columns of the picture.
const MAX_WIDTH: u16 = 120;

/// The picture.
#[derive(Debug)]
pub(super) struct Picture {
    whole: Duration,
    /// Time passed at the last sample.
    now: Duration,
    samples: Vec<Sample>,
}

impl Picture {
    /// The picture of a run of `whole`.
    pub(super) fn new(whole: Duration) -> Self {
        Self { whole, now: Duration::ZERO, samples: Vec::new() }
    }

    /// Adds a sample that was made at `now`.
    pub(super) fn add(&mut self, now: Duration, sample: &Sample) {
        self.now = now;
        self.samples.push(sample.clone());
    }

    /// Draws it.
    pub(super) fn draw(&self, area: Rect, cells: &mut Buffer) {
        let Some(last) = self.samples.last() else { return };
        let rows: [Rect; HEIGHT as usize] =
            Layout::vertical([Constraint::Length(1); HEIGHT as usize]).areas(area);
        self.time(last, rows[0], cells);
        let rate = [
            figure("replies", grouped(last.rate()), "/s"),
            vec![faint("  sent "), grouped(last.sent_rate()).into()],
        ];
        self.curve(rate.concat(), Color::Green, |s| s.rate(), rows[1], cells);
        let p50 = figure("p50", grouped(last.latency.p50), " us");
        self.curve(p50, Color::Cyan, |s| s.latency.p50, rows[2], cells);
        let p99 = figure("p99", grouped(last.latency.p99), " us");
        self.curve(p99, Color::Cyan, |s| s.latency.p99, rows[3], cells);
        let loss = figure("loss", format!("{:.2}", last.loss_percent()), " %");
        self.curve(loss, Color::Red, Sample::loss_percent, rows[4], cells);
        self.counts(rows[5], cells);
        Line::from(tracker(last)).render(rows[6], cells);
        let own = last.own_cpu_percent.map_or("?".into(), |percent| format!("{percent:.0}"));
        Line::from(figure("own CPU", own, " %")).render(rows[7], cells);
    }

    /// Draws phase, bar and time left.
    fn time(&self, last: &Sample, row: Rect, cells: &mut Buffer) {
        let done = self.now.as_secs_f64() / self.whole.as_secs_f64().max(1e-9);
        let left = self.whole.saturating_sub(self.now).as_secs_f64().ceil();
        let phase = if done >= 1.0 { "drain" } else { &last.phase };
        LineGauge::default()
            .ratio(done.clamp(0.0, 1.0))
            .label(format!("{phase:<9}{left:>5.0} s left"))
            .filled_style(Style::new().fg(Color::Green))
            .unfilled_style(Style::new().fg(Color::DarkGray))
            .render(row, cells);
    }

    /// Draws a figure and its curve, with a sample per column.
    fn curve(
        &self,
        figure: Vec<Span<'_>>,
        color: Color,
        of: impl Fn(&Sample) -> f64,
        row: Rect,
        cells: &mut Buffer,
    ) {
        let [left, right] =
            Layout::horizontal([Constraint::Max(FIGURES), Constraint::Fill(1)]).areas(row);
        Line::from(figure).render(left, cells);
        let first = self.samples.len().saturating_sub(usize::from(right.width));
        // In thousandths, so that small values have a shape too.
        let data = self.samples[first..].iter().map(|sample| (of(sample) * 1e3) as u64);
        Sparkline::default()
            .data(data.collect::<Vec<_>>())
            .style(Style::new().fg(color))
            .render(right, cells);
    }

    /// Draws the totals.
    fn counts(&self, row: Rect, cells: &mut Buffer) {
        let Sample { right, wrong, lost, .. } = Sample::total(&self.samples);
        let mut line = figure("in all", grouped(right as f64), " right, ");
        let alarm = if wrong > 0 { Color::Red } else { Color::Reset };
        line.push(Span::styled(format!("{} wrong", grouped(wrong as f64)), alarm));
        line.push(format!(", {} lost", grouped(lost as f64)).into());
        Line::from(line).render(row, cells);
    }
}

/// A name and its value.
fn figure(name: &'static str, value: String, unit: &'static str) -> Vec<Span<'static>> {
    vec![faint(name), format!("{:>width$}{unit}", value, width = 20 - name.len()).into()]
}

fn faint(text: &'static str) -> Span<'static> {
    Span::styled(text, Color::DarkGray)
}

fn tracker(last: &Sample) -> Vec<Span<'static>> {
    let Some(tracker) = last.tracker else {
        return vec![faint("tracker    --tracker-pid PID shows its CPU and memory")];
    };
    let mut line = figure("tracker CPU", format!("{:.0}", tracker.cpu_percent), " %");
    line.push(format!("  RSS {:.1} MB", tracker.rss as f64 / 1e6).into());
    if let Some(drops) = tracker.drops {
        let alarm = if drops > 0 { Color::Red } else { Color::Reset };
        line.push(Span::styled(format!("  dropped {}", grouped(drops as f64)), alarm));
    }
    line
}

/// A picture on a terminal.
#[derive(Debug)]
pub(super) struct Screen<W: Write> {
    terminal: W,
    colors: bool,
    /// Whether a picture is on the screen.
    drawn: bool,
}

impl<W: Write> Screen<W> {
    /// A screen on `terminal`, with or without colours.
    pub(super) fn new(terminal: W, colors: bool) -> Self {
        Self { terminal, colors, drawn: false }
    }

    /// Draws a picture over the last one. A terminal that is gone is no reason to stop measuring.
    pub(super) fn draw(&mut self, picture: &Picture, columns: u16) {
        // The last column stays free: what ends there makes some terminals begin a new line.
        let area = Rect::new(0, 0, columns.saturating_sub(1).clamp(1, MAX_WIDTH), HEIGHT);
        let mut cells = Buffer::empty(area);
        picture.draw(area, &mut cells);
        let mut out = self.home();
        for y in 0..HEIGHT {
            self.write_row(&cells, y, &mut out);
        }
        self.drawn = true;
        drop(self.terminal.write_all(out.as_bytes()).and_then(|()| self.terminal.flush()));
    }

    /// What brings the cursor to where the picture begins.
    fn home(&self) -> String {
        if self.drawn { format!("\x1b[{HEIGHT}A\r") } else { String::new() }
    }

    fn write_row(&self, cells: &Buffer, y: u16, out: &mut String) {
        let mut color = Color::Reset;
        for x in 0..cells.area.width {
            let cell = &cells[(x, y)];
            if self.colors && cell.fg != color {
                color = cell.fg;
                *out += &format!("\x1b[{}m", code(color));
            }
            *out += cell.symbol();
        }
        *out += if color == Color::Reset { "" } else { "\x1b[39m" };
        *out += "\x1b[K\r\n";
    }

    /// Clears the picture; the next output starts in its place.
    pub(super) fn clear(&mut self) {
        if std::mem::take(&mut self.drawn) {
            let out = format!("\x1b[{HEIGHT}A\r\x1b[J");
            drop(self.terminal.write_all(out.as_bytes()).and_then(|()| self.terminal.flush()));
        }
    }
}

/// The terminal is left as it was, also when a run ends in an error.
impl<W: Write> Drop for Screen<W> {
    fn drop(&mut self) {
        self.clear();
    }
}

/// A foreground colour's number (ECMA-48, SGR).
fn code(color: Color) -> u8 {
    match color {
        Color::Red => 31,
        Color::Green => 32,
        Color::Cyan => 36,
        Color::DarkGray => 90,
        _ => 39,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::Latency;
    use crate::series::ProcessSample;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn picture(tracker: Option<ProcessSample>) -> Picture {
        let mut picture = Picture::new(Duration::from_secs(12));
        for n in 1..=6u32 {
            let sample = Sample {
                seconds: 1.0,
                phase: "measure".into(),
                sent: 1000 * u64::from(n) + 7,
                right: 1000 * u64::from(n),
                wrong: u64::from(n == 6),
                latency: Latency { p50: 100.0, p99: 2500.0 * f64::from(n), ..Latency::default() },
                tracker,
                own_cpu_percent: Some(41.6),
                ..Sample::default()
            };
            picture.add(Duration::from_secs(n.into()), &sample);
        }
        picture
    }

    fn rows(picture: &Picture, columns: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(columns, HEIGHT)).unwrap();
        terminal.draw(|frame| picture.draw(frame.area(), frame.buffer_mut())).unwrap();
        let cells = terminal.backend().buffer();
        let row = |y| (0..columns).map(|x| cells[(x, y)].symbol()).collect::<String>();
        (0..HEIGHT).map(row).collect()
    }

    #[test]
    fn everything_that_matters_is_in_it() {
        let tracker = ProcessSample {
            cpu_percent: 97.5,
            rss: 123_400_000,
            drops: Some(5),
            drops_seconds: 1.0,
        };
        let rows = rows(&picture(Some(tracker)), 80);
        for (row, parts) in [
            (0, &["measure", "6 s left"][..]),
            (1, &["replies", "6,000/s", "sent 6,007", "▁"]),
            (2, &["p50", "100 us"]),
            (3, &["p99", "15,000 us", "█"]),
            (4, &["loss", "0.00 %"]),
            (5, &["21,000 right", "1 wrong", "0 lost"]),
            (6, &["tracker CPU", "98 %", "RSS 123.4 MB", "dropped 5"]),
            (7, &["own CPU", "42 %"]),
        ] {
            for part in parts {
                assert!(rows[row].contains(part), "{part:?} is not in row {row}: {rows:#?}");
            }
        }
    }

    #[test]
    fn it_fits_any_width_and_any_beginning() {
        for columns in [1, 10, 40, 41, 200] {
            rows(&picture(None), columns);
        }
        assert_eq!(rows(&Picture::new(Duration::ZERO), 20).concat().trim(), "");
    }

    /// Moves only within its own lines, and leaves none of them behind.
    #[test]
    fn a_screen_draws_in_place_and_cleans_up() {
        let mut written = Vec::new();
        {
            let mut screen = Screen::new(&mut written, false);
            screen.draw(&picture(None), 60);
            screen.draw(&picture(None), 60);
        }
        let written = String::from_utf8(written).unwrap();
        let up = format!("\x1b[{HEIGHT}A\r");
        let parts: Vec<_> = written.split(&up).collect();
        let [first, second, last] = parts[..] else { panic!("{parts:?}") };
        assert_eq!(first, second);
        assert_eq!(first.matches("\r\n").count(), usize::from(HEIGHT));
        assert_eq!(last, "\x1b[J");
        assert!(!first.contains("\x1b[9"), "no colours were asked for");
    }
}
