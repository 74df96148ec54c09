//! Parts of the command line that several commands have.

use std::net::{IpAddr, SocketAddr};
use std::ops::{RangeBounds, RangeInclusive};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::RangedI64ValueParser;
use ipnet::IpAddrRange;
use onrush_verify::address::TrackerAddress;

use crate::plan::population::Addresses;
use crate::sources::{self, MAX_SOURCES};

/// Heading of options that `-h` leaves out. Those without a heading are the ones that most need.
pub(crate) const SOMETIMES: &str = "Sometimes needed";
/// Heading of options that hardly anybody needs.
pub(crate) const RARELY: &str = "Rarely needed";

/// Arguments about the addresses of the tracker and of clients.
#[derive(Args, Debug)]
#[command(next_help_heading = SOMETIMES)]
pub struct NetworkArgs {
    /// The tracker: udp://HOST:PORT/announce, HOST:PORT or `[IPV6]:PORT`.
    ///
    /// A host name is resolved to its first address, IPv4 before IPv6. Repeatable, for several
    /// addresses of either family; an attack takes one of each family.
    #[arg(
        long, short, value_name = "URL|HOST:PORT", default_value = "127.0.0.1:6969",
        value_parser = target, help_heading = None
    )]
    pub target: Vec<SocketAddr>,
    /// The addresses of clients.
    #[command(flatten)]
    pub from: SourceArgs,
}

/// Arguments about the addresses of clients.
#[derive(Args, Debug)]
#[command(next_help_heading = SOMETIMES)]
pub struct SourceArgs {
    /// Source addresses of clients in 127/8, for a tracker on 127/8.
    #[arg(
        long, value_name = "N", default_value_t = 64,
        value_parser = count(1..=i64::from(MAX_SOURCES))
    )]
    pub sources: u32,

    /// Send from this address of the host instead. Repeatable; FIRST-LAST is a range.
    #[arg(long, value_name = "IP", value_parser = sources::range)]
    pub source: Vec<IpAddrRange>,
}

impl NetworkArgs {
    /// The addresses of clients. `routed` is this host's address towards a target.
    pub fn addresses(&self, routed: impl Fn(SocketAddr) -> Option<IpAddr>) -> Addresses {
        let SourceArgs { source, sources } = &self.from;
        sources::addresses(&self.target, source, *sources, routed)
    }
}

/// Arguments about the report.
#[derive(Args, Debug)]
pub struct ReportArgs {
    /// Write the report as JSON; `-` for standard output.
    ///
    /// With `-` the table goes to standard error.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Show no progress.
    #[arg(long, short)]
    pub quiet: bool,
}

/// A parser of numbers within `range`, in `unit`.
pub fn number(
    range: RangeInclusive<f64>,
    unit: &'static str,
) -> impl Fn(&str) -> Result<f64, String> + Clone {
    move |text| {
        let number: f64 = text.parse().map_err(|_| format!("`{text}` is no number"))?;
        let (low, high) = (range.start(), range.end());
        let wrong = || format!("`{text}` is not between {low} and {high}{unit}");
        range.contains(&number).then_some(number).ok_or_else(wrong)
    }
}

/// A parser of whole numbers within `range`.
pub(crate) fn count(range: impl RangeBounds<i64>) -> RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(range)
}

/// A parser of durations within `range` of seconds.
pub(crate) fn seconds(
    range: RangeInclusive<f64>,
) -> impl Fn(&str) -> Result<Duration, String> + Clone {
    let number = number(range, " seconds");
    move |text| number(text).map(Duration::from_secs_f64)
}

/// The first address of the tracker.
fn target(text: &str) -> Result<SocketAddr, String> {
    Ok(text.parse::<TrackerAddress>()?.first())
}

/// The command line of this process, with `program` as its name and words quoted for a shell.
///
/// # Panics
/// Never: the kernel passes no argument with a NUL.
pub fn command_line(program: &str) -> String {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words = std::iter::once(program).chain(arguments.iter().map(String::as_str));
    shlex::try_join(words).expect("no argument has a NUL")
}
