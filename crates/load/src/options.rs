//! Parts of the command line that several commands have.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use clap::Args;
use onrush_verify::address::TrackerAddress;

use crate::sources::{MAX_SOURCES, Range};

/// Heading of options that `-h` leaves out. Those without a heading are the ones that most need.
pub(crate) const SOMETIMES: &str = "Sometimes needed";
/// Heading of options that hardly anybody needs.
pub(crate) const RARELY: &str = "Rarely needed";

/// Arguments about the addresses of clients.
#[derive(Args, Debug)]
#[command(next_help_heading = SOMETIMES)]
pub struct SourceArgs {
    /// Source addresses of clients in 127/8, for a tracker on 127/8.
    #[arg(
        long, value_name = "N", default_value_t = 64,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SOURCES))
    )]
    pub sources: u32,

    /// Send from this address of the host instead. Repeatable; FIRST-LAST is a range.
    #[arg(long, value_name = "IP")]
    pub source: Vec<Range>,
}

/// A parser of numbers within `range`, in `unit`.
pub(crate) fn number(
    range: RangeInclusive<f64>,
    unit: &'static str,
) -> impl Fn(&str) -> Result<f64, String> + Clone {
    move |text| {
        let number: f64 = text.parse().map_err(|_| format!("`{text}` is no number"))?;
        match range.contains(&number) {
            true => Ok(number),
            false => {
                let (low, high) = (range.start(), range.end());
                Err(format!("`{text}` is not between {low} and {high}{unit}"))
            }
        }
    }
}

/// A parser of durations within `range` of seconds.
pub(crate) fn seconds(
    range: RangeInclusive<f64>,
) -> impl Fn(&str) -> Result<Duration, String> + Clone {
    let number = number(range, " seconds");
    move |text| number(text).map(Duration::from_secs_f64)
}

/// The first address of the tracker.
pub(crate) fn target(text: &str) -> Result<SocketAddr, String> {
    Ok(text.parse::<TrackerAddress>()?.first())
}

/// Examples and exit statuses, which follow the options of `--help`. Their sections are those of
/// the manual too.
pub(crate) fn with_status(examples: &str, status: &str) -> String {
    format!("{examples}\n\n{status}")
}
