//! The command line of `onrush-load`. One file per subject.

mod bounds;
mod help;
mod http;
mod load;
mod mix;
mod output;
mod pace;
mod target;
mod verify;
mod ws;

use clap::{Parser, Subcommand};

pub use bounds::BoundArgs;
pub use help::parse;
pub use http::HttpArgs;
pub use load::LoadArgs;
pub use mix::MixArgs;
pub use output::OutputArgs;
pub use pace::PaceArgs;
pub use target::TargetArgs;
pub use verify::{Settings as VerifyRun, VerifyArgs};
pub use ws::WsArgs;

use crate::attack::AttackArgs;
use crate::plan::Profile;
use crate::run::RunSettings;
use crate::transport::TransportArgs;
use crate::worker::{LoadSettings, Pace};

/// Puts a UDP BitTorrent tracker (BEP 15) under load and checks every reply.
///
/// Without options it keeps 256 requests in flight for ten seconds (a closed loop). `http` does the
/// same over HTTP and HTTPS, `ws` over WebSocket.
#[derive(Parser, Debug)]
#[command(
    name = "onrush-load",
    version = onrush_text::version::version(),
    max_term_width = 100,
    args_conflicts_with_subcommands = true,
    after_help = help::EXAMPLES,
    after_long_help = format!("{}\n\n{}", help::EXAMPLES, help::STATUS)
)]
pub struct Args {
    /// Another task than load over UDP.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Target and sources.
    #[command(flatten)]
    pub target: TargetArgs,
    /// The arguments of loads over every protocol.
    #[command(flatten)]
    pub load: LoadArgs,
}

/// The subcommands. Their help is that of their arguments, which text here would replace.
#[derive(Subcommand, Debug)]
pub enum Command {
    #[allow(missing_docs)]
    Http(Box<HttpArgs>),
    #[allow(missing_docs)]
    Ws(Box<WsArgs>),
    #[allow(missing_docs)]
    Verify(Box<VerifyArgs>),
    #[allow(missing_docs)]
    Attack(Box<AttackArgs>),
    #[allow(missing_docs)]
    Transport(Box<TransportArgs>),
}

impl Args {
    /// Checks the arguments against the profile.
    ///
    /// # Errors
    /// A closed loop needs requests that are answered, as replies trigger the next requests.
    pub fn check_mix(&self, profile: &Profile) -> Result<(), String> {
        let mix = &profile.mix;
        let answered = mix.connect + mix.announce + mix.scrape;
        let closed = matches!(self.load.pace.pace(1), Pace::InFlight(_));
        if closed && !self.load.bounds.find_max && answered <= 0.0 {
            return Err(
                "no request of this mix is answered, and a closed loop sends when replies arrive: \
                 give a --rate"
                    .into(),
            );
        }
        Ok(())
    }

    /// The settings of a run.
    pub fn run_settings(&self, seed: u64) -> RunSettings {
        let target = &self.target;
        let settings = self.load.run_settings(seed, target.in_flight());
        let load = LoadSettings {
            limit: target.in_flight.map(|count| count as usize),
            burst: target.burst as usize,
            bursts: !target.no_bursts,
            ..settings.load
        };
        RunSettings { load, xdp: target.xdp_settings(), ..settings }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::report::search::Purpose;
    use crate::worker::pace::{Arrivals, Schedule, Segment};

    fn args(line: &str) -> Result<Args, String> {
        let words = std::iter::once("onrush-load").chain(line.split_whitespace());
        let args = Args::try_parse_from(words).map_err(|error| error.to_string())?;
        args.target.check()?;
        args.load.check()?;
        Ok(args)
    }

    #[test]
    fn no_arguments_are_needed() {
        let args = args("").unwrap();
        assert_eq!(args.target.network.target, ["127.0.0.1:6969".parse().unwrap()]);
        assert_eq!(args.load.mix.profile(), Ok(Profile::real()));
        assert_eq!(args.run_settings(1).load.pace, Pace::InFlight(256));
    }

    #[test]
    fn targets_of_both_families_and_an_open_loop() {
        let args = args("-t 127.0.0.1:1 -t [::1]:1 --rate 2000 --workers 2 --pin 0,1").unwrap();
        assert_eq!(args.target.network.target.len(), 2);
        let settings = args.run_settings(1);
        assert_eq!(
            (&settings.load.pace, settings.load.pin.as_slice()),
            (&even(&[(2000.0, 2000.0, 10.0)]), &[0, 1][..])
        );
        assert_eq!(settings.load.in_flight(), 1250);
    }

    #[test]
    fn targets_are_urls_and_names_too() {
        let args = args("-t udp://127.0.0.1:1/announce -t udp://[::1]:1 -t localhost:2").unwrap();
        let found: Vec<_> = args.target.network.target.iter().map(ToString::to_string).collect();
        assert_eq!(found[..2], ["127.0.0.1:1", "[::1]:1"]);
        assert!(args.target.network.target[2].ip().is_loopback(), "{found:?}");
    }

    fn even(segments: &[(f64, f64, f64)]) -> Pace {
        let segment = |&(from, to, seconds): &(f64, f64, f64)| Segment { from, to, seconds };
        let segments = segments.iter().map(segment).collect();
        Pace::Open(Schedule { arrivals: Arrivals::Even, segments })
    }

    #[test]
    fn steps_are_schedules() {
        let ramp = args("--steps 1000-50000:30 --poisson").unwrap().run_settings(1);
        let Pace::Open(schedule) = &ramp.load.pace else { panic!("{ramp:?}") };
        assert_eq!(schedule.arrivals, Arrivals::Poisson);
        assert_eq!(schedule.segments, [Segment { from: 1000.0, to: 50000.0, seconds: 30.0 }]);
        assert_eq!(ramp.load.in_flight(), 62_500, "1.25 s of its highest rate");
        let steps = args("--steps 1000:10,1000-2000:5,20:0.5").unwrap().run_settings(1);
        let meant = [(1000.0, 1000.0, 10.0), (1000.0, 2000.0, 5.0), (20.0, 20.0, 0.5)];
        assert_eq!(steps.load.pace, even(&meant));
        assert_eq!(steps.duration.as_secs_f64(), 15.5);
    }

    #[test]
    fn a_search_has_short_rounds_and_a_long_confirmation() {
        let args = args("--find-max --poisson --round 1 --max-p99 5 --duration 20").unwrap();
        let aim = args.load.aim();
        assert_eq!((aim.bounds.loss_percent, aim.bounds.p99_ms, aim.resolution), (0.1, 5.0, 0.02));
        let closed = args.load.closed_loop(&args.run_settings(1));
        assert_eq!(closed.load.pace, Pace::InFlight(256));
        assert_eq!((closed.load.warmup, closed.duration.as_secs_f64()), (0.25, 1.0));
        for (purpose, seconds) in [(Purpose::Narrow, 1.0), (Purpose::Confirm, 20.0)] {
            let settings = args.load.round(&args.run_settings(1), purpose, 8000.0);
            let Pace::Open(schedule) = &settings.load.pace else { panic!("{settings:?}") };
            assert_eq!(schedule.arrivals, Arrivals::Poisson);
            assert_eq!(schedule.segments, [Segment { from: 8000.0, to: 8000.0, seconds }]);
            assert_eq!(
                (settings.duration.as_secs_f64(), settings.load.in_flight()),
                (seconds, 10_000)
            );
        }
    }

    #[test]
    fn a_search_takes_less_than_a_minute_by_default() {
        let of = |line: &str| args(line).unwrap().load.aim().times;
        assert!(of("--find-max").total < Duration::from_secs(60));
        // Longer rounds take longer.
        let longer = of("--find-max --round 4 --duration 20");
        assert_eq!(longer.round, Duration::from_secs(6));
        assert_eq!(longer.confirmation, Duration::from_secs(23));
        assert!(longer.total > Duration::from_secs(90));
    }

    #[test]
    fn arguments_change_the_profile() {
        let args = args("-p classic --seeders 10 --swarms 7 --set v6=0.5").unwrap();
        let profile = args.load.mix.profile().unwrap();
        assert_eq!((profile.seeders, profile.v6), (0.1, 0.5));
        assert_eq!(profile.swarms.count, 7);
        assert_eq!(profile.mix, Profile::named("classic").unwrap().mix);
    }

    #[test]
    fn any_key_of_a_profile_can_be_set() {
        let args = args("--swarms 7 --set swarms.count=9 --set mix.scrape=5 --seeders 0").unwrap();
        let profile = args.load.mix.profile().unwrap();
        assert_eq!((profile.swarms.count, profile.mix.scrape), (9, 5.0));
        assert_eq!((profile.seeders, profile.events.completed), (0.0, 0.0));
    }

    #[test]
    fn an_invalid_profile_is_named() {
        for (line, named) in [
            ("--profile rael", "the profiles are real, classic"),
            ("--profile /nowhere/x.toml", "--profile /nowhere/x.toml: No such file"),
            ("--set mix.scarpe=1", "did you mean `scrape`?"),
        ] {
            let error = args(line).unwrap().load.mix.profile().unwrap_err();
            assert!(error.contains(named), "{line}: {error}");
        }
    }

    #[test]
    fn a_closed_loop_needs_answered_requests() {
        let junk = "--set mix.connect=0 --set mix.announce=0 --set mix.scrape=0 --set mix.junk=1";
        let check = |line: &str| {
            let args = args(line).unwrap();
            args.check_mix(&args.load.mix.profile().unwrap())
        };
        assert!(check(junk).unwrap_err().contains("give a --rate"));
        assert_eq!(check(&format!("{junk} --rate 100")), Ok(()));
        assert_eq!(check(&format!("{junk} --set mix.scrape=1")), Ok(()));
        assert_eq!(check(""), Ok(()));
    }

    #[test]
    fn invalid_arguments_are_named() {
        for (line, named) in [
            ("--target tracker", "--target <URL|HOST:PORT>': there is no port"),
            ("--target ::1:6969", "[::1]:6969"),
            ("--target 127.0.0.1:0", "port 0"),
            ("--target http://127.0.0.1:6969/announce", "udp://HOST:PORT/announce"),
            ("-t 127.0.0.1:1 -t 127.0.0.1:1", "twice"),
            ("-t 127.0.0.1:1 -t udp://127.0.0.1:1/announce", "twice"),
            ("--rate 0", "--rate"),
            ("--rate fast", "no number"),
            ("--rate 10 --steps 1:2", "--steps"),
            ("--steps 1:2 --duration 3", "--duration"),
            ("--steps 1000", "expected RATE:SECONDS"),
            ("--steps 1000:0", "between 0.001"),
            ("--steps 9-x:1", "`x` is no number"),
            ("--steps 1000-:1", "no number"),
            ("--find-max --rate 10", "--rate"),
            ("--find-max --steps 10:1", "--steps"),
            ("--max-p99 5", "--find-max"),
            ("--max-loss 101", "between 0 and 100"),
            ("--find-max --resolution 0", "between 0.1"),
            ("--poisson", "--rate <R>"),
            ("--pin 0,1", "2 vCPUs for 1"),
            ("--duration 0", "--duration"),
            ("--duration -1", "-1"),
            ("--seeders 101", "--seeders"),
            ("--sources 64001", "--sources"),
            ("--source 10.0.0.9-10.0.0.1", "before"),
            ("--in-flight 0", "--in-flight"),
            ("--xdp lo -t 192.0.2.1:1", "--xdp lo: the loopback interface has no queues"),
            ("--xdp eth0", "--xdp eth0: the loopback interface has no queues"),
            ("--live-frames", "--xdp <IFACE>"),
        ] {
            let error = args(line).unwrap_err();
            assert!(error.contains(named), "{line}: {error}");
        }
    }
}
