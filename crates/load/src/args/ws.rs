//! The arguments of `onrush-load ws`.

use std::path::PathBuf;

use clap::Args;
use onrush_verify::tcp::{Scheme, Url, tls};

use super::{LoadArgs, help};
use crate::options::{SOMETIMES, SourceArgs, count, number};
use crate::plan::Profile;
use crate::plan::population::Addresses;
use crate::run::RunSettings;
use crate::ws::{Sizes, Target, WsSettings, adapt};

/// Puts a WebTorrent tracker over WebSocket under load and checks every message.
///
/// Without options each of 64 connections announces with five offers, waits for the reply, and
/// announces again for ten seconds (a closed loop). Offers that arrive are answered. Profiles,
/// pacing, reports and exit statuses are those of UDP; a connection is a member of several swarms.
#[derive(Args, Debug)]
#[command(
    mut_arg("profile", |arg| arg.default_value("webtorrent")),
    mut_arg("sample", |arg| arg.hide(true).default_value("none").value_parser(no_lists)),
    after_help = help::WS_EXAMPLES,
    after_long_help = format!("{}\n\n{}", help::WS_EXAMPLES, help::STATUS)
)]
pub struct WsArgs {
    /// The tracker: ws://HOST:PORT/ or wss://HOST:PORT/.
    ///
    /// A host name is resolved to its first address, IPv4 before IPv6. Repeatable, for several
    /// addresses of either family.
    #[arg(long, short, value_name = "URL", default_value = "ws://127.0.0.1:6969/")]
    pub target: Vec<Url>,

    /// Connections of all workers together.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = count(2..=1_000_000))]
    pub connections: u32,

    /// Hold N connections that announce once each, and report what they cost the tracker.
    ///
    /// They are opened at the start of --duration. The report has their rate and, with
    /// --tracker-pid, the tracker's memory for each.
    #[arg(
        long, value_name = "N", value_parser = count(2..=1_000_000),
        conflicts_with_all = ["connections", super::pace::OPEN, "disconnects", "warmup"]
    )]
    pub idle: Option<u32>,

    /// Offers of an announce.
    #[arg(
        long, value_name = "N", default_value_t = 5, value_parser = count(0..=50),
        help_heading = SOMETIMES
    )]
    pub offers: u32,

    /// Bytes of the session description of an offer or an answer, uniformly distributed.
    #[arg(long, value_name = "MIN-MAX", default_value = "500-2000", help_heading = SOMETIMES)]
    pub sdp: Sizes,

    /// Percent of the offers that are answered.
    #[arg(
        long, value_name = "%", default_value_t = 100.0,
        value_parser = number(0.0..=100.0, ""), help_heading = SOMETIMES
    )]
    pub answers: f64,

    /// Percent of the announces after whose reply the connection ends, to be opened anew.
    #[arg(
        long, value_name = "%", default_value_t = 0.0,
        value_parser = number(0.0..=100.0, ""), help_heading = SOMETIMES
    )]
    pub disconnects: f64,

    /// Swarms of a connection on average; they decide the number of swarms, unless --swarms or the
    /// file of --profile does.
    #[arg(
        long, value_name = "N", default_value_t = 4.0,
        value_parser = number(1.0..=1000.0, ""), help_heading = SOMETIMES
    )]
    pub memberships: f64,

    /// Verify the tracker's certificate by those in this PEM file; without it, any is accepted.
    #[arg(long, value_name = "FILE", help_heading = SOMETIMES)]
    pub ca: Option<PathBuf>,

    /// The addresses of clients.
    #[command(flatten)]
    pub from: SourceArgs,

    /// The arguments of loads over every protocol.
    #[command(flatten)]
    pub load: LoadArgs,
}

impl WsArgs {
    /// The profile, without what does not exist over WebSocket, and with the number of swarms.
    ///
    /// # Errors
    /// Problems of the profile, or of the arguments in combination.
    pub fn profile(&self) -> Result<Profile, String> {
        self.check()?;
        let mix = &self.load.mix;
        let mut profile = mix.profile()?;
        adapt(&mut profile);
        if profile.mix.announce + profile.mix.scrape <= 0.0 {
            return Err(
                "over WebSocket this mix has no requests: set mix.announce or mix.scrape".into()
            );
        }
        if !mix.sets_swarms() {
            let peers = self.settings().connections as f64 * self.memberships;
            profile.swarms.count = (peers / profile.swarms.mean).round().max(1.0) as u32;
        }
        Ok(profile)
    }

    /// Checks the arguments against each other.
    fn check(&self) -> Result<(), String> {
        self.load.check()?;
        if self.settings().connections < self.load.workers as usize {
            return Err("--connections: each of the --workers needs one".into());
        }
        if self.ca.is_some() && !self.settings().tls {
            return Err("--ca is for wss://, not ws://".into());
        }
        for (n, url) in self.target.iter().enumerate() {
            if self.target[..n].iter().any(|other| other.address == url.address) {
                return Err(format!("--target {url}: its address is given twice"));
            }
            let scheme = if self.settings().tls { Scheme::Wss } else { Scheme::Ws };
            if url.scheme != scheme {
                return Err(format!("--target {url}: all have to be ws:// or wss://"));
            }
        }
        Ok(())
    }

    /// The settings of connections.
    pub fn settings(&self) -> WsSettings {
        WsSettings {
            connections: self.idle.unwrap_or(self.connections) as usize,
            is_idle: self.idle.is_some(),
            offers: self.offers,
            sdp: self.sdp,
            answers: self.answers / 100.0,
            disconnects: self.disconnects / 100.0,
            tls: self.target.iter().any(|url| url.scheme.has_tls()),
        }
    }

    /// Where and how to connect, from these source addresses.
    ///
    /// # Errors
    /// When the file of `--ca` cannot be used.
    pub fn target(&self, sources: Addresses) -> Result<Target, String> {
        let settings = self.settings();
        let client = || tls::client(self.ca.as_deref(), false, false);
        let tls = settings.tls.then(client).transpose()?;
        Ok(Target { urls: self.target.clone(), tls, settings, sources })
    }

    /// Source addresses in 127/8: a connection has one address.
    pub fn sources(&self) -> u32 {
        self.from.sources.min(self.settings().connections as u32)
    }

    /// The settings of a run. Idle connections are opened within the measured window.
    pub fn run_settings(&self, seed: u64) -> RunSettings {
        let settings = self.settings();
        let in_flight = settings.connections.div_ceil(self.load.workers as usize);
        let mut run = self.load.run_settings(seed, in_flight);
        if settings.is_idle {
            run.load.warmup = 0.0;
        }
        run
    }
}

/// Refuses `--sample`, and is its default.
fn no_lists(text: &str) -> Result<u32, String> {
    match text {
        "none" => Ok(1),
        _ => Err("over WebSocket no reply has a list of peers: leave it out".into()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Args, Command};
    use crate::worker::Pace;

    fn args(line: &str) -> Result<WsArgs, String> {
        let words = ["onrush-load", "ws"].into_iter().chain(line.split_whitespace());
        let args = Args::try_parse_from(words).map_err(|error| error.to_string())?;
        match args.command {
            Some(Command::Ws(args)) => args.profile().map(|_| *args),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn no_arguments_are_needed() {
        let args = args("").unwrap();
        assert_eq!(args.run_settings(1).load.pace, Pace::InFlight(64));
        let profile = args.profile().unwrap();
        assert_eq!(profile.name, "webtorrent");
        assert_eq!((profile.mix.connect, profile.mix.junk, profile.mix.unusable), (0.0, 0.0, 0.0));
        let peers = f64::from(profile.swarms.count) * profile.swarms.mean;
        assert!((peers - 4.0 * 64.0).abs() < profile.swarms.mean, "{peers} memberships");
        let settings = args.settings();
        assert_eq!((settings.sdp, settings.answers), (Sizes { min: 500, max: 2000 }, 1.0));
        assert!(!settings.tls && !settings.is_idle && args.sources() == 64);
    }

    #[test]
    fn swarms_are_as_many_as_given() {
        for line in ["--swarms 7 --profile real", "--set swarms.count=7 --memberships 9"] {
            assert_eq!(args(line).unwrap().profile().unwrap().swarms.count, 7, "{line}");
        }
        let file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
        let of_file = |text: &str| {
            std::fs::write(file.path(), text).unwrap();
            let line = format!("--profile {} --memberships 8", file.path().display());
            args(&line).unwrap().profile().unwrap().swarms.count
        };
        assert_eq!(of_file("base = \"webtorrent\"\nswarms.count = 7"), 7);
        assert_eq!(of_file("base = \"webtorrent\"\nswarms.mean = 4.0"), 8 * 64 / 4);
    }

    #[test]
    fn idle_connections_have_no_warm_up() {
        let args = args("-t wss://127.0.0.1:1 --idle 500 --workers 2").unwrap();
        let (settings, run) = (args.settings(), args.run_settings(1));
        assert!(
            settings.is_idle
                && settings.tls
                && args.target(Addresses::new(&[])).unwrap().tls.is_some()
        );
        assert_eq!((settings.connections, run.load.warmup), (500, 0.0));
        assert_eq!(run.load.pace, Pace::InFlight(250));
    }

    #[test]
    fn invalid_arguments_are_named() {
        for (line, named) in [
            ("--target http://127.0.0.1:6969", "all have to be ws://"),
            ("-t ws://127.0.0.1:1 -t ws://127.0.0.1:1/x", "twice"),
            ("-t ws://127.0.0.1:1 -t wss://[::1]:1", "all have to be"),
            ("--connections 2 --workers 3", "each of the --workers"),
            ("--connections 1", "--connections"),
            ("--idle 5 --rate 5", "--rate"),
            ("--idle 5 --connections 5", "--connections"),
            ("--idle 5 --find-max", "--find-max"),
            ("--idle 5 --warmup 1", "--warmup"),
            ("--ca x.pem", "--ca is for wss://"),
            ("--sample 8", "no reply has a list"),
            ("--sdp 500", "MIN-MAX"),
            ("--sdp 42-500", "between 43 and 16000"),
            ("--sdp 500-499", "between 43 and 16000"),
            ("--answers 101", "between 0 and 100"),
            ("--profile real --set mix.announce=0 --set mix.scrape=0", "no requests"),
        ] {
            let error = args(line).unwrap_err();
            assert!(error.contains(named), "{line}: {error}");
        }
    }
}
