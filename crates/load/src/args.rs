//! The command line as written; what is meant follows from it in `main`. One file per group of
//! arguments, as `--help` shows them.

mod checks;
mod mix;
mod output;
mod pace;
mod target;
mod verify;

use clap::{Parser, Subcommand};

pub use checks::CheckArgs;
pub use mix::MixArgs;
pub use output::OutputArgs;
pub use pace::PaceArgs;
pub use target::TargetArgs;
pub use verify::VerifyArgs;

use crate::run::Course;

/// Puts a UDP BitTorrent tracker (BEP 15) under load and checks every reply.
///
/// Exit status: 0 all replies were right, 1 some were wrong, 2 the arguments or this host are not
/// fit for it, 3 nobody answers.
#[derive(Parser, Debug)]
#[command(
    name = "onrush-load",
    version,
    max_term_width = 100,
    args_conflicts_with_subcommands = true
)]
pub struct Args {
    /// Something else than load.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Who is asked, and from where.
    #[command(flatten)]
    pub target: TargetArgs,
    /// What is sent.
    #[command(flatten)]
    pub mix: MixArgs,
    /// How fast and how long.
    #[command(flatten)]
    pub pace: PaceArgs,
    /// How strict the checks are.
    #[command(flatten)]
    pub checks: CheckArgs,
    /// What is shown and written.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// What else can be done with a tracker.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Checks a tracker against BEP 15, one line per check.
    Verify(VerifyArgs),
}

impl Args {
    /// What fits no single argument: several that contradict each other.
    ///
    /// # Errors
    /// A sentence that names them.
    pub fn check(&self) -> Result<(), String> {
        self.target.check()?;
        self.pace.check()
    }

    /// What the workers do.
    pub fn course(&self, seed: u64) -> Course {
        Course {
            pace: self.pace.pace(),
            limit: self.pace.limit(self.target.workers),
            burst: self.target.burst as usize,
            group: !self.target.no_bursts,
            timeout: self.pace.timeout,
            warmup: self.pace.warmup,
            duration: self.pace.duration(),
            strictness: self.checks.strictness(),
            seed,
            pin: self.target.pin.clone(),
            tracker: self.output.tracker_pid,
            quiet: self.output.quiet,
        }
    }
}

fn number(text: &str, what: &str, fits: impl Fn(f64) -> bool) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| format!("`{text}` is no number"))?;
    if fits(number) { Ok(number) } else { Err(format!("`{text}` is not {what}")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generator::Pace;
    use crate::generator::pace::{Arrivals, Schedule, Segment};
    use crate::plan::Profile;

    fn args(line: &str) -> Result<Args, String> {
        let words = std::iter::once("onrush-load").chain(line.split_whitespace());
        let args = Args::try_parse_from(words).map_err(|error| error.to_string())?;
        args.check()?;
        Ok(args)
    }

    #[test]
    fn no_arguments_are_needed() {
        let args = args("").unwrap();
        assert_eq!(args.target.target, ["127.0.0.1:6969".parse().unwrap()]);
        assert_eq!(args.mix.profile(), Ok(Profile::real()));
        assert_eq!(args.course(1).pace, Pace::InFlight(256));
    }

    #[test]
    fn both_families_and_both_loops() {
        let args = args("-t 127.0.0.1:1 -t [::1]:1 --rate 2000 --workers 2 --pin 0,1").unwrap();
        assert_eq!(args.target.target.len(), 2);
        let course = args.course(1);
        assert_eq!(
            (course.pace, course.pin.as_slice()),
            (even(&[(2000.0, 2000.0, 10.0)]), &[0, 1][..])
        );
        assert_eq!(course.limit, 1250);
    }

    fn even(segments: &[(f64, f64, f64)]) -> Pace {
        let segment = |&(from, to, seconds): &(f64, f64, f64)| Segment { from, to, seconds };
        let segments = segments.iter().map(segment).collect();
        Pace::Open(Schedule { arrivals: Arrivals::Even, segments })
    }

    #[test]
    fn ramps_and_steps_are_schedules() {
        let ramp = args("--ramp 1000-50000 --duration 30 --poisson").unwrap().course(1);
        let Pace::Open(schedule) = ramp.pace else { panic!("{ramp:?}") };
        assert_eq!(schedule.arrivals, Arrivals::Poisson);
        assert_eq!(schedule.segments, [Segment { from: 1000.0, to: 50000.0, seconds: 30.0 }]);
        assert_eq!(ramp.limit, 62_500, "room for a second and a quarter of its highest rate");
        let steps = args("--steps 1000:10,1000-2000:5,20:0.5").unwrap().course(1);
        let meant = [(1000.0, 1000.0, 10.0), (1000.0, 2000.0, 5.0), (20.0, 20.0, 0.5)];
        assert_eq!(steps.pace, even(&meant));
        assert_eq!(steps.duration.as_secs_f64(), 15.5);
    }

    #[test]
    fn a_profile_can_be_changed() {
        let args = args("-p classic --seeders 10 --swarms 7 --zipf 0.5 --ipv6 50").unwrap();
        let profile = args.mix.profile().unwrap();
        assert_eq!((profile.seeders, profile.v6), (0.1, 0.5));
        assert_eq!((profile.swarms.count, profile.swarms.exponent), (7, 0.5));
        assert_eq!(profile.mix, Profile::classic().mix);
    }

    #[test]
    fn every_number_of_a_profile_can_be_set() {
        let args = args("--swarms 7 --set swarms.count=9 --set mix.scrape=5 --seeders 0").unwrap();
        let profile = args.mix.profile().unwrap();
        assert_eq!((profile.swarms.count, profile.mix.scrape), (9, 5.0));
        assert_eq!((profile.seeders, profile.events.completed), (0.0, 0.0));
    }

    #[test]
    fn a_profile_is_printed_as_it_is_written() {
        let text = args("-p abuse --print-profile").unwrap().mix.printed().unwrap();
        assert!(text.contains("# given to another source address"), "{text}");
        let text = args("--print-profile --set seeders=0.5").unwrap().mix.printed().unwrap();
        assert!(text.ends_with("# --set seeders=0.5"), "{text}");
    }

    #[test]
    fn a_profile_that_is_none_is_named() {
        for (line, named) in [
            ("--profile rael", "the profiles are real, classic"),
            ("--profile /nowhere/x.toml", "--profile /nowhere/x.toml: No such file"),
            ("--set mix.scarpe=1", "did you mean `scrape`?"),
        ] {
            let error = args(line).unwrap().mix.profile().unwrap_err();
            assert!(error.contains(named), "{line}: {error}");
        }
    }

    #[test]
    fn nonsense_is_named() {
        for (line, named) in [
            ("--target tracker", "expected IP:PORT, like 127.0.0.1:6969 or [::1]:6969"),
            ("--target 127.0.0.1", "expected IP:PORT"),
            ("--target ::1:", "--target"),
            ("--target 127.0.0.1:0", "port 0"),
            ("-t 127.0.0.1:1 -t 127.0.0.1:1", "twice"),
            ("--rate 0", "--rate"),
            ("--rate fast", "no number"),
            ("--rate 10 --ramp 1-2", "--ramp"),
            ("--rate 10 --steps 1:2", "--steps"),
            ("--ramp 1-2 --steps 1:2", "--steps"),
            ("--steps 1:2 --duration 3", "--duration"),
            ("--steps 1000", "expected RATE:SECONDS"),
            ("--steps 1000:0", "between 0.001"),
            ("--steps 9-x:1", "`x` is no number"),
            ("--ramp 1000", "expected FROM-TO"),
            ("--ramp 1000-", "no number"),
            ("--poisson", "--poisson is about an open loop"),
            ("--pin 0,1", "2 vCPUs for 1"),
            ("--duration 0", "--duration"),
            ("--duration -1", "-1"),
            ("--seeders 101", "--seeders"),
            ("--sources 64001", "--sources"),
            ("--source 10.0.0.9-10.0.0.1", "before"),
            ("--peers-per-swarm 0.5", "--peers-per-swarm"),
            ("--in-flight 0", "--in-flight"),
        ] {
            let error = args(line).unwrap_err();
            assert!(error.contains(named), "{line}: {error}");
        }
    }
}
