//! The arguments of `onrush-load http`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use onrush_verify::tcp::{Scheme, Url, tls};

use super::{LoadArgs, MixArgs, help};
use crate::http::{HttpSettings, Target, adapt};
use crate::options::{SOMETIMES, SourceArgs, count, number};
use crate::plan::Profile;
use crate::run::RunSettings;

/// Puts an HTTP or HTTPS tracker under load and checks every reply.
///
/// Without options it keeps a request in flight on each of 64 connections for ten seconds (a closed
/// loop). Profiles, pacing, reports and exit statuses are those of UDP; connects, junk and unusable
/// connection ids of a profile do not exist over HTTP and are left out. Latency counts from when a
/// request is due, with the connection that it needs.
#[derive(Args, Debug)]
#[command(
    after_help = help::HTTP_EXAMPLES,
    after_long_help = format!("{}\n\n{}", help::HTTP_EXAMPLES, help::STATUS)
)]
pub struct HttpArgs {
    /// The announce URL: http://HOST:PORT/announce or https://HOST:PORT/announce.
    ///
    /// A host name is resolved to its first address, IPv4 before IPv6. Repeatable, for several
    /// addresses of either family.
    #[arg(long, short, value_name = "URL", default_value = "http://127.0.0.1:6969/announce")]
    pub target: Vec<Url>,

    /// Connections of all workers together [default: 64].
    #[arg(long, value_name = "N", value_parser = count(1..=1_000_000))]
    pub connections: Option<u32>,

    /// Whether a connection serves more than one request [default: on].
    #[arg(long, value_name = "on|off")]
    pub keep_alive: Option<Switch>,

    /// Requests of a connection that wait for replies at a time; in a closed loop they leave in one
    /// write.
    #[arg(
        long, value_name = "N", default_value_t = 1, value_parser = count(1..=1024),
        help_heading = SOMETIMES
    )]
    pub pipeline: u32,

    /// Resume sessions of TLS, where the tracker sends tickets; for https://.
    #[arg(long, help_heading = SOMETIMES)]
    pub resume: bool,

    /// Verify the tracker's certificate by those in this PEM file; without it, any is accepted. For
    /// https://.
    #[arg(long, value_name = "FILE", help_heading = SOMETIMES)]
    pub ca: Option<PathBuf>,

    /// Percent of the peers that ask for a list of dictionaries (compact=0) [default: 1].
    #[arg(
        long, value_name = "%", value_parser = number(0.0..=100.0, ""), help_heading = SOMETIMES
    )]
    pub lists: Option<f64>,

    /// The settings of a published comparison: its profile, connections, and TLS 1.3.
    #[arg(long, value_name = "NAME", conflicts_with = "profile", help_heading = SOMETIMES)]
    pub preset: Option<Preset>,

    /// The addresses of clients.
    #[command(flatten)]
    pub from: SourceArgs,

    /// The arguments of loads over every protocol.
    #[command(flatten)]
    pub load: LoadArgs,
}

/// On or off.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Switch {
    /// On.
    On,
    /// Off.
    Off,
}

/// A published comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Preset {
    /// HTTPS, April 2022: TLS 1.3, no keep-alive, 64 connections, the profile published-2022.
    #[value(name = "published-2022")]
    Published2022,
}

impl HttpArgs {
    /// The arguments about the traffic, with the profile of the preset.
    pub fn mix(&self) -> MixArgs {
        let mix = self.load.mix.clone();
        match self.preset {
            Some(Preset::Published2022) => MixArgs { profile: "published-2022".into(), ..mix },
            None => mix,
        }
    }

    /// The profile, without what does not exist over HTTP.
    ///
    /// # Errors
    /// Problems of the profile, or of the arguments in combination.
    pub fn profile(&self) -> Result<Profile, String> {
        self.check()?;
        let mut profile = self.mix().profile()?;
        adapt(&mut profile.mix);
        if profile.mix.announce + profile.mix.scrape <= 0.0 {
            return Err("over HTTP this mix has no requests: set mix.announce or mix.scrape".into());
        }
        let no_scrape = self.target.iter().find(|url| url.scrape.is_none());
        match no_scrape.filter(|_| profile.mix.scrape > 0.0) {
            None => Ok(profile),
            Some(url) => Err(format!(
                "{url} has no URL for scrapes, as its last segment does not begin with `announce` \
                 (BEP 48): add --set mix.scrape=0"
            )),
        }
    }

    /// Checks the arguments against each other.
    fn check(&self) -> Result<(), String> {
        self.load.check()?;
        let settings = self.settings();
        if settings.connections < self.load.workers as usize {
            return Err("--connections: each of the --workers needs one".into());
        }
        if settings.pipeline > 1 && !settings.keep_alive {
            return Err("--pipeline needs --keep-alive on".into());
        }
        for (n, url) in self.target.iter().enumerate() {
            if self.target[..n].iter().any(|other| other.address == url.address) {
                return Err(format!("--target {url}: its address is given twice"));
            }
            let scheme = if settings.tls { Scheme::Https } else { Scheme::Http };
            if url.scheme != scheme {
                return Err(format!("--target {url}: all have to be http:// or https://"));
            }
        }
        let of_tls = [
            ("--preset", self.preset.is_some()),
            ("--resume", self.resume),
            ("--ca", self.ca.is_some()),
        ];
        match of_tls.iter().find(|(_, is_given)| *is_given && !settings.tls) {
            Some((option, _)) => Err(format!("{option} is for TLS: give an https:// --target")),
            None => Ok(()),
        }
    }

    /// The settings of connections.
    pub fn settings(&self) -> HttpSettings {
        let (keep_alive, lists) = match self.preset {
            Some(Preset::Published2022) => (Switch::Off, 0.0),
            None => (Switch::On, 1.0),
        };
        HttpSettings {
            connections: self.connections.unwrap_or(64) as usize,
            keep_alive: self.keep_alive.unwrap_or(keep_alive) == Switch::On,
            pipeline: self.pipeline as usize,
            tls: self.target.iter().any(|url| url.scheme.has_tls()),
            resume: self.resume,
            lists: self.lists.unwrap_or(lists) / 100.0,
        }
    }

    /// Where and how to connect.
    ///
    /// # Errors
    /// When the file of `--ca` cannot be used.
    pub fn target(&self) -> Result<Target, String> {
        let settings = self.settings();
        let only_1_3 = self.preset.is_some();
        let client = || tls::client(self.ca.as_deref(), self.resume, only_1_3);
        let tls = settings.tls.then(client).transpose()?;
        Ok(Target { urls: self.target.clone(), tls, settings })
    }

    /// Source addresses in 127/8: a connection that is kept has one address.
    pub fn sources(&self) -> u32 {
        let settings = self.settings();
        match settings.keep_alive {
            true => self.from.sources.min(settings.connections as u32),
            false => self.from.sources,
        }
    }

    /// The settings of a run.
    pub fn run_settings(&self, seed: u64) -> RunSettings {
        let in_flight = self.settings().in_flight(self.load.workers as usize);
        self.load.run_settings(seed, in_flight)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Args, Command};
    use crate::worker::Pace;

    fn args(line: &str) -> Result<HttpArgs, String> {
        let words = ["onrush-load", "http"].into_iter().chain(line.split_whitespace());
        let args = Args::try_parse_from(words).map_err(|error| error.to_string())?;
        match args.command {
            Some(Command::Http(args)) => args.profile().map(|_| *args),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn no_arguments_are_needed() {
        let args = args("").unwrap();
        assert_eq!(args.run_settings(1).load.pace, Pace::InFlight(64));
        let profile = args.profile().unwrap();
        assert_eq!((profile.mix.connect, profile.mix.junk, profile.mix.unusable), (0.0, 0.0, 0.0));
        assert!(profile.mix.announce > 0.0 && profile.mix.scrape > 0.0);
        assert!(args.settings().keep_alive && !args.settings().tls && args.sources() == 64);
        assert!(args.target().unwrap().tls.is_none());
    }

    #[test]
    fn the_preset_is_that_of_the_comparison() {
        let args = args("--preset published-2022 -t https://127.0.0.1:1/announce").unwrap();
        let (settings, profile) = (args.settings(), args.profile().unwrap());
        let expected = HttpSettings {
            connections: 64,
            keep_alive: false,
            pipeline: 1,
            tls: true,
            resume: false,
            lists: 0.0,
        };
        assert_eq!(settings, expected);
        assert_eq!((profile.seeders, profile.swarms.count), (0.25, 10_000));
        assert_eq!((profile.mix.scrape, args.sources()), (0.0, 64));
        assert!(args.target().unwrap().tls.is_some());
    }

    #[test]
    fn connections_are_shared_by_the_workers() {
        let args = args("--connections 5 --workers 2 --pipeline 3").unwrap();
        let settings = args.settings();
        assert_eq!([0, 1].map(|worker| settings.connections_of(worker, 2)), [3, 2]);
        assert_eq!(args.run_settings(1).load.pace, Pace::InFlight(9));
    }

    #[test]
    fn invalid_arguments_are_named() {
        for (line, named) in [
            ("--target 127.0.0.1:6969", "expected SCHEME://HOST:PORT"),
            ("--target ws://127.0.0.1:6969", "all have to be http://"),
            ("-t http://127.0.0.1:1 -t http://127.0.0.1:1/x/announce", "twice"),
            ("-t http://127.0.0.1:1 -t https://[::1]:1", "all have to be"),
            ("-t http://127.0.0.1:1/x", "--set mix.scrape=0"),
            ("--keep-alive off --pipeline 2", "--pipeline needs"),
            ("--connections 1 --workers 2", "each of the --workers"),
            ("--preset published-2022", "--preset is for TLS"),
            ("--ca ca.pem", "--ca is for TLS"),
            ("--resume -t http://127.0.0.1:1", "--resume is for TLS"),
            ("--preset published-2022 --profile real", "--profile"),
            ("--set mix.announce=0 --set mix.scrape=0", "no requests"),
            ("--in-flight 3", "--in-flight"),
            ("--pin 0,1", "2 vCPUs for 1"),
        ] {
            let error = args(line).unwrap_err();
            assert!(error.contains(named), "{line}: {error}");
        }
        assert!(args("-t http://127.0.0.1:1/x --set mix.scrape=0").is_ok());
    }

    #[test]
    fn an_unusable_file_is_named() {
        for file in ["/nowhere/ca.pem", "/dev/null"] {
            let args = args(&format!("-t https://127.0.0.1:1 --ca {file}")).unwrap();
            let error = args.target().unwrap_err();
            assert!(error.contains(file), "{error}");
        }
    }
}
