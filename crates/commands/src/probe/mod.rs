//! `onrush probe`: a tracker from outside, for people and for monitoring.

mod report;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use onrush_proto::InfoHash;
use onrush_verify::address::TrackerAddress;
use onrush_verify::probe::probe;

use super::format::escaped;
use crate::exit::Exit;
use crate::exit::print_or;
use report::Report;

/// Exit status of a monitoring plugin: nothing could be probed. The others are in
/// [`report::Verdict`].
const UNKNOWN: u8 = 3;

const AFTER_HELP: &str = "\
Examples:
  onrush probe udp://tracker.example.org:6969/announce
  onrush probe tracker.example.org:6969 --warning 200 --format nagios

Notes:
  It sends a connect, an announce and a scrape to one address of each family.
  The announced peer is at port 1, wants no peers, and stops at the end. Where
  a list decides what is served, name an info hash of it with --info-hash.

Exit status:
  0  OK: every family answers
  1  WARNING: a family answers and the other does not, or --warning is exceeded
  2  CRITICAL: no family answers, or --critical is exceeded; or the command
     line is wrong
  3  UNKNOWN: the URL is wrong, or its name has no address";

/// Probe a tracker from outside: connect, announce and scrape over each family
#[derive(Clone, Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct ProbeArgs {
    /// The tracker: udp://HOST:PORT/announce or HOST:PORT
    #[arg(value_name = "URL")]
    pub url: String,

    /// Over IPv4 only
    #[arg(short = '4', long)]
    pub ipv4: bool,

    /// Over IPv6 only
    #[arg(short = '6', long, conflicts_with = "ipv4")]
    pub ipv6: bool,

    /// Repeat a request that is not answered, and give up after this long
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 5,
        value_parser = clap::value_parser!(u64).range(1..=14)
    )]
    pub timeout: u64,

    /// WARNING if a request takes longer
    #[arg(short, long, value_name = "MS", value_parser = milliseconds)]
    pub warning: Option<f64>,

    /// CRITICAL if a request takes longer
    #[arg(short, long, value_name = "MS", value_parser = milliseconds)]
    pub critical: Option<f64>,

    /// Announce and scrape this info hash [default: a random one]
    #[arg(long, value_name = "INFO_HASH")]
    pub info_hash: Option<InfoHash>,

    /// Print the results
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// Output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A line per request.
    Text,
    /// The line of a monitoring plugin of Nagios or Icinga, with performance data.
    Nagios,
}

fn milliseconds(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "write milliseconds, like 200".to_owned())
}

/// Probes the tracker, and returns results and exit status.
pub fn run(args: &ProbeArgs) -> Exit {
    let addresses = match addresses(args) {
        Ok(addresses) => addresses,
        Err(why) => {
            let text = format!("UNKNOWN: {}: {why}\n", escaped(&args.url));
            return match args.format {
                // Its users read standard output only.
                Format::Nagios => print_or(&text, UNKNOWN, unknown),
                Format::Text => unknown(text),
            };
        }
    };
    let timeout = Duration::from_secs(args.timeout);
    let probes = addresses.into_iter().map(|address| probe(address, args.info_hash, timeout));
    let (warning, critical) = (args.warning, args.critical);
    let report = Report { target: &args.url, probes: probes.collect(), warning, critical };
    print_or(&report.text(args.format), report.verdict() as u8, unknown)
}

fn unknown(text: String) -> Exit {
    Exit { code: UNKNOWN, text }
}

/// One address of each family that is asked for.
fn addresses(args: &ProbeArgs) -> Result<Vec<SocketAddr>, String> {
    let tracker: TrackerAddress = args.url.parse()?;
    let of_family = |ipv4| tracker.all().iter().find(|address| address.is_ipv4() == ipv4);
    let asked = [(true, !args.ipv6), (false, !args.ipv4)].into_iter().filter(|(_, asked)| *asked);
    let addresses: Vec<_> = asked.filter_map(|(ipv4, _)| of_family(ipv4).copied()).collect();
    match (addresses.is_empty(), args.ipv4) {
        (false, _) => Ok(addresses),
        (true, true) => Err("it has no IPv4 address".to_owned()),
        (true, false) => Err("it has no IPv6 address".to_owned()),
    }
}
