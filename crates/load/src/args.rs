//! The command line: [`Args`] as written; what is meant follows from it in `main`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};

use crate::check::Strictness;
use crate::generator::Pace;
use crate::plan::Profile;
use crate::run::Course;
use crate::sources::{MAX_SOURCES, Range};

/// Requests under way per worker in a closed loop. A kernel's usual receive buffer holds some 500
/// small datagrams.
const IN_FLIGHT: usize = 256;
/// Requests under way per worker at most in an open loop: what a rate of a million leaves behind
/// within the timeout of a second.
const IN_FLIGHT_OPEN: usize = 1 << 20;

/// Puts a UDP BitTorrent tracker (BEP 15) under load and checks every reply.
///
/// Exit status: 0 all replies were right, 1 some were wrong, 2 the arguments or this host are not
/// fit for it, 3 nobody answers.
#[derive(Parser, Debug)]
#[command(name = "onrush-load", version, max_term_width = 100)]
pub struct Args {
    /// The tracker's address; repeat it for several, of either family.
    #[arg(long, short, value_name = "ADDR", default_value = "127.0.0.1:6969", value_parser = target)]
    pub target: Vec<SocketAddr>,

    /// What is sent.
    #[arg(long, short, value_name = "NAME", default_value = "real")]
    pub profile: ProfileName,

    /// Closed loop: keep so many requests under way per worker [default: 256]. With --rate: the
    /// most that may be under way.
    #[arg(long, short = 'n', value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub in_flight: Option<u32>,

    /// Open loop: send so many requests per second, whatever comes back. Latency then counts from
    /// when a request should have been sent.
    #[arg(long, short, value_name = "R", value_parser = rate)]
    pub rate: Option<f64>,

    /// Seconds to measure.
    #[arg(long, short, value_name = "S", default_value = "10", value_parser = seconds)]
    pub duration: Duration,

    /// Seconds of load before measuring.
    #[arg(long, value_name = "S", default_value = "2", value_parser = seconds)]
    pub warmup: Duration,

    /// Seconds after which a request is lost.
    #[arg(long, value_name = "S", default_value = "1", value_parser = positive_seconds)]
    pub timeout: Duration,

    /// Threads that send.
    #[arg(long, short, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub workers: u32,

    /// A vCPU for each worker.
    #[arg(long, value_name = "CPU,CPU", value_delimiter = ',')]
    pub pin: Vec<usize>,

    /// Source addresses in 127/8, for a tracker on 127/8.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SOURCES)))]
    pub sources: u32,

    /// Send from this address of the host instead; repeat it, or give FIRST-LAST.
    #[arg(long, value_name = "IP")]
    pub source: Vec<Range>,

    /// Requests through one socket at a time.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub burst: u32,

    /// Hand every request to the kernel by itself: no runs of one length (UDP_SEGMENT), which a
    /// kernel steers as one.
    #[arg(long)]
    pub no_bursts: bool,

    /// Take every reply from the kernel by itself, also those that were sent in one piece
    /// (UDP_GRO off). Over loopback the tracker then pays for cutting them.
    #[arg(long)]
    pub no_coalescing: bool,

    /// Swarms in the population [default: the profile's].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=500_000_000))]
    pub swarms: Option<u32>,

    /// Peers per swarm on average, at least 1 [default: the profile's].
    #[arg(long, value_name = "X", value_parser = mean)]
    pub peers_per_swarm: Option<f64>,

    /// Exponent of the tail of swarm sizes; 1 is Zipf's law [default: the profile's].
    #[arg(long, value_name = "X", value_parser = zipf)]
    pub zipf: Option<f64>,

    /// Percent of peers that are seeders [default: the profile's].
    #[arg(long, value_name = "%", value_parser = percent)]
    pub seeders: Option<f64>,

    /// Percent of traffic over IPv6 where there are targets of both families [default: the
    /// profile's].
    #[arg(long, value_name = "%", value_parser = percent)]
    pub ipv6: Option<f64>,

    /// Decides population and mix; shown in the report [default: chosen at random].
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,

    /// Count replies as wrong that do what BEP 15 leaves open in another way than expected.
    #[arg(long)]
    pub strict: bool,

    /// Tolerate peers of other load testers, which share the swarms of this seed.
    #[arg(long)]
    pub strangers: bool,

    /// Look at one in N long peer lists in full, of the others at the first 16 peers.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    pub sample: u32,

    /// The tracker's process: its processor time is reported.
    #[arg(long, value_name = "PID")]
    pub tracker_pid: Option<u32>,

    /// Write the report as JSON, `-` for standard output (the table then goes to standard error).
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Show no progress.
    #[arg(long, short)]
    pub quiet: bool,
}

/// A profile's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProfileName {
    /// As public trackers see it: connects, announces, scrapes, and what deserves silence.
    Real,
    /// As published comparisons use it: 50/50/1, 75 % seeders, no bad ids.
    Classic,
}

impl Args {
    /// What fits no single argument: several that contradict each other.
    ///
    /// # Errors
    /// A sentence that names them.
    pub fn check(&self) -> Result<(), String> {
        let (pins, workers) = (self.pin.len(), self.workers as usize);
        if pins != 0 && pins != workers {
            return Err(format!("--pin names {pins} vCPUs for {workers} --workers"));
        }
        if self.duration.is_zero() {
            return Err("--duration is 0: nothing would be measured".into());
        }
        for (n, target) in self.target.iter().enumerate() {
            if target.port() == 0 {
                return Err(format!("--target {target}: port 0 cannot be sent to"));
            }
            if self.target[..n].contains(target) {
                return Err(format!("--target {target} is given twice"));
            }
        }
        Ok(())
    }

    /// The profile, with what was changed of it.
    pub fn profile(&self) -> Profile {
        let mut profile = match self.profile {
            ProfileName::Real => Profile::real(),
            ProfileName::Classic => Profile::classic(),
        };
        let swarms = &mut profile.swarms;
        swarms.count = self.swarms.unwrap_or(swarms.count);
        swarms.mean = self.peers_per_swarm.unwrap_or(swarms.mean);
        swarms.zipf = self.zipf.unwrap_or(swarms.zipf);
        profile.seeders = self.seeders.unwrap_or(profile.seeders);
        profile.v6 = self.ipv6.unwrap_or(profile.v6);
        profile
    }

    /// What the workers do.
    pub fn course(&self, seed: u64) -> Course {
        let in_flight = self.in_flight.map(|count| count as usize);
        Course {
            pace: match self.rate {
                Some(rate) => Pace::Rate(rate),
                None => Pace::InFlight(in_flight.unwrap_or(IN_FLIGHT)),
            },
            limit: in_flight.unwrap_or_else(|| self.room()),
            burst: self.burst as usize,
            group: !self.no_bursts,
            timeout: self.timeout,
            warmup: self.warmup,
            duration: self.duration,
            strictness: Strictness { strangers: self.strangers, sample: self.sample },
            seed,
            pin: self.pin.clone(),
            tracker: self.tracker_pid,
            quiet: self.quiet,
        }
    }

    /// Room for what an open loop leaves under way when nobody answers.
    fn room(&self) -> usize {
        let each = self.rate.unwrap_or(0.0) / f64::from(self.workers);
        let unanswered = each * self.timeout.as_secs_f64() * 1.25;
        (unanswered as usize).clamp(1024, IN_FLIGHT_OPEN)
    }
}

fn target(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "expected IP:PORT, like 127.0.0.1:6969 or [::1]:6969 (names are not looked up)".to_owned()
    })
}

fn number(text: &str, what: &str, fits: impl Fn(f64) -> bool) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| format!("`{text}` is no number"))?;
    if fits(number) { Ok(number) } else { Err(format!("`{text}` is not {what}")) }
}

fn seconds(text: &str) -> Result<Duration, String> {
    number(text, "between 0 and 1000000 seconds", |s| (0.0..=1e6).contains(&s))
        .map(Duration::from_secs_f64)
}

fn positive_seconds(text: &str) -> Result<Duration, String> {
    number(text, "between 0.001 and 60 seconds", |s| (0.001..=60.0).contains(&s))
        .map(Duration::from_secs_f64)
}

fn rate(text: &str) -> Result<f64, String> {
    number(text, "between 0.1 and 1000000000 per second", |rate| (0.1..=1e9).contains(&rate))
}

fn mean(text: &str) -> Result<f64, String> {
    number(text, "between 1 and 1000", |mean| (1.0..=1000.0).contains(&mean))
}

fn zipf(text: &str) -> Result<f64, String> {
    number(text, "between 0.1 and 3", |exponent| (0.1..=3.0).contains(&exponent))
}

fn percent(text: &str) -> Result<f64, String> {
    number(text, "between 0 and 100", |percent| (0.0..=100.0).contains(&percent)).map(|p| p / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &str) -> Result<Args, String> {
        let words = std::iter::once("onrush-load").chain(line.split_whitespace());
        let args = Args::try_parse_from(words).map_err(|error| error.to_string())?;
        args.check()?;
        Ok(args)
    }

    #[test]
    fn no_arguments_are_needed() {
        let args = args("").unwrap();
        assert_eq!(args.target, ["127.0.0.1:6969".parse().unwrap()]);
        assert_eq!(args.profile(), Profile::real());
        assert_eq!(args.course(1).pace, Pace::InFlight(IN_FLIGHT));
    }

    #[test]
    fn both_families_and_both_loops() {
        let args = args("-t 127.0.0.1:1 -t [::1]:1 --rate 2000 --workers 2 --pin 0,1").unwrap();
        assert_eq!(args.target.len(), 2);
        let course = args.course(1);
        assert_eq!((course.pace, course.pin.as_slice()), (Pace::Rate(2000.0), &[0, 1][..]));
        assert_eq!(course.limit, 1250);
    }

    #[test]
    fn a_profile_can_be_changed() {
        let args = args("-p classic --seeders 10 --swarms 7 --zipf 0.5 --ipv6 50").unwrap();
        let profile = args.profile();
        assert_eq!((profile.seeders, profile.v6), (0.1, 0.5));
        assert_eq!((profile.swarms.count, profile.swarms.zipf), (7, 0.5));
        assert_eq!(profile.mix, Profile::classic().mix);
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
