//! `onrush ctl top-sources`: its flags, and its result as text.

use std::fmt::Write;

use clap::Args;
use ipnet::IpNet;

use super::format::word;
use onrush_control::api::sources::{Grouping, RequestKind, SourceShare, TopSources};
use onrush_text::numbers::grouped;

const AFTER_HELP: &str = "\
Examples:
  onrush ctl top-sources                         which addresses send most
  onrush ctl top-sources --by 24 --kind refused  networks that are refused

Notes:
  Sources of connects and of refused requests may be forged: only an announce
  with a valid connection id proves an address. A block of a forged source
  hits its owner.";

/// Flags of `top-sources`.
#[derive(Clone, Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct Sources {
    /// Observe requests for this long
    #[arg(
        long,
        default_value_t = 10,
        value_parser = clap::value_parser!(u64).range(1..=60)
    )]
    pub seconds: u64,
    /// Count as one source
    #[arg(long, value_enum, default_value_t)]
    pub by: Grouping,
    /// Count these requests only
    #[arg(long, value_enum, default_value_t)]
    pub kind: RequestKind,
    /// Number of sources
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub limit: u16,
    /// Leave out sources below this share of the requests, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0, value_parser = percent)]
    pub min_share: f64,
}

fn percent(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|percent| (0.0..=100.0).contains(percent));
    number.ok_or_else(|| "write a number from 0 to 100".to_owned())
}

impl Sources {
    /// The path of the request.
    pub fn path(&self) -> String {
        let Self { seconds, limit, .. } = self;
        let (by, kind) = (word(self.by), word(self.kind));
        format!("/api/v1/sources/top?seconds={seconds}&by={by}&kind={kind}&limit={limit}")
    }

    /// The result as a table.
    pub fn show(&self, top: &TopSources) -> String {
        let mut text =
            format!("{:<43} {:>9} {:>9} {:>11}\n", "source", "share", "+-", "per second");
        let least = self.min_share / 100.0;
        let shown = top.sources.iter().filter(|source| source.share >= least);
        for SourceShare { source, share, error, rate, .. } in shown {
            let (source, share, error) = (name(source), 100.0 * share, 100.0 * error);
            let rate = grouped(rate);
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{source:<43} {share:>7.2} % {error:>7.2} % {rate:>11}");
        }
        for note in notes(top) {
            let _ = writeln!(text, "{note}");
        }
        text
    }
}

/// The name of the kind, as in `12 announces`.
fn requests(kind: RequestKind) -> &'static str {
    match kind {
        RequestKind::All => "requests",
        RequestKind::Connect => "connects",
        RequestKind::Announce => "announces",
        RequestKind::Refused => "refused requests",
    }
}

/// An address without its length, as other commands take it, or a block.
fn name(source: &IpNet) -> String {
    match source.prefix_len() == source.max_prefix_len() {
        true => source.addr().to_string(),
        false => source.to_string(),
    }
}

/// Limits on the meaning of the numbers.
fn notes(top: &TopSources) -> Vec<String> {
    let TopSources { kind, seconds, requests: all, sampled, confidence, shed, .. } = top;
    let of = match (all, sampled) {
        (0, _) => String::new(),
        (all, sampled) if all == sampled => ", all of them counted".to_owned(),
        _ => format!(
            ", {} of them sampled: a share is within its +- with a probability of {:.1} %",
            grouped(*sampled),
            100.0 * confidence
        ),
    };
    let mut notes = vec![format!("{} {} in {seconds:.1} s{of}", grouped(*all), requests(*kind))];
    if top.others_at_most > 0.0 {
        let most = 100.0 * top.others_at_most;
        notes.push(format!("no source that the tracker left out has more than {most:.2} %"));
    }
    if top.unverified {
        let which = match kind {
            RequestKind::Connect => "sources of connects are unverified",
            _ => "sources of requests other than announces are unverified",
        };
        notes.push(format!("{which}: they may be forged"));
    }
    if *shed > 0 {
        let shed = grouped(*shed);
        notes.push(format!(
            "the kernel's filter dropped {shed} more datagrams because of the overload: their \
             sources are not known"
        ));
    }
    notes
}

#[cfg(test)]
mod tests;
