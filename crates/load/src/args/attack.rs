//! The arguments of `onrush-load attack`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use ipnet::IpNet;
use onrush_load::attack::{Attack, Bounds, Settings, Tracker};

use super::help::{self, RARELY, SOMETIMES};
use super::{SourceArgs, number, seconds, target};

/// Default blocks for a target on 127/8, all of which is local.
const NEWCOMERS: &str = "127.2.0.0/16";
const ATTACKERS: &str = "127.64.0.0/10";

/// Attacks a tracker beside an honest load, and reports what honest clients got.
///
/// Established clients (connects, announces and scrapes as 22:72:6, every reply checked) and
/// newcomers (a connect each, from a source that is new each time) go on while the attack runs.
/// Attacks with spoofed sources (connects, guessed-ids, junk, bad-checksums, bursts) are sent
/// only inside a network namespace that is not the host's and has no default route. The others come
/// from addresses of this host, which get connection ids; where blocks of addresses are to be
/// local, `ip route add local BLOCK dev lo` makes them so (for IPv6 also sysctl
/// net.ipv6.ip_nonlocal_bind=1). Attack only what you operate.
///
/// Without blocks, all sources are in 127/8. onrush trusts these and applies no limits of sources
/// to them: for random-hashes, hot-hash and one-prefix set `trusted_sources = []` in `[limits]`, or
/// name other blocks with --attack-from.
///
/// With --admin, every datagram has to be accounted for: sent = received + dropped, and received =
/// answered + refused, exactly. The tracker may then serve nobody else.
#[derive(Args, Debug)]
#[command(
    next_help_heading = SOMETIMES,
    after_help = help::ATTACK_EXAMPLES,
    after_long_help = help::with_status(help::ATTACK_EXAMPLES, help::ATTACK_STATUS)
)]
pub(crate) struct AttackArgs {
    /// The attack.
    #[arg(value_name = "NAME", help_heading = None)]
    pub(crate) attack: Attack,

    /// The tracker: udp://HOST:PORT/announce, HOST:PORT or `[IPV6]:PORT`.
    ///
    /// A name stands for its first address, of IPv4 if it has one. May be given twice, once for
    /// each family.
    #[arg(
        long, short, value_name = "URL|HOST:PORT", default_value = "127.0.0.1:6969",
        value_parser = target::target, help_heading = None
    )]
    pub(crate) target: Vec<SocketAddr>,

    /// Requests of established clients per second.
    #[arg(
        long, value_name = "R", default_value = "5000", value_parser = number(1.0..=1e6, ""),
        help_heading = None
    )]
    pub(crate) honest: f64,

    /// Newcomers per second.
    #[arg(long, value_name = "R", default_value = "50", value_parser = number(0.1..=1e5, ""))]
    pub(crate) newcomers: f64,

    /// Datagrams of the attack per second; with `bursts`, during a burst.
    #[arg(
        long = "attack", value_name = "R", default_value = "15000",
        value_parser = number(1.0..=1e7, ""), help_heading = None
    )]
    pub(crate) rate: f64,

    /// Sources of established clients.
    #[command(flatten)]
    pub(crate) from: SourceArgs,

    /// Block of addresses of newcomers, which are this host's.
    ///
    /// Repeatable, for both families.
    #[arg(long, value_name = "BLOCK", default_value = NEWCOMERS, help_heading = None)]
    pub(crate) newcomers_from: Vec<IpNet>,

    /// Block of addresses of the attack: spoofed, or this host's.
    ///
    /// Repeatable, for both families.
    #[arg(long, value_name = "BLOCK", default_value = ATTACKERS, help_heading = None)]
    pub(crate) attack_from: Vec<IpNet>,

    /// Number of sources of an attack that is not spoofed.
    #[arg(
        long, value_name = "N", default_value_t = 16,
        value_parser = clap::value_parser!(u32).range(1..=10_000)
    )]
    pub(crate) attackers: u32,

    /// Seconds from one burst to the next, for `bursts`.
    #[arg(
        long, value_name = "S", default_value = "12", value_parser = seconds(0.01..=3600.0),
        help_heading = RARELY
    )]
    pub(crate) period: Duration,

    /// Seconds of a burst, for `bursts`: 1 % of the time.
    #[arg(
        long, value_name = "S", default_value = "0.12", value_parser = seconds(0.001..=3600.0),
        help_heading = RARELY
    )]
    pub(crate) burst: Duration,

    /// Seconds of the attack, which are measured.
    #[arg(
        long, short, value_name = "S", default_value = "10", value_parser = seconds(0.5..=1e5),
        help_heading = None
    )]
    pub(crate) duration: Duration,

    /// Seconds of honest load before it.
    #[arg(long, value_name = "S", default_value = "2", value_parser = seconds(0.5..=600.0))]
    pub(crate) warmup: Duration,

    /// Seconds after which a request counts as not answered.
    #[arg(
        long, value_name = "S", default_value = "1", value_parser = seconds(0.01..=60.0),
        help_heading = RARELY
    )]
    pub(crate) timeout: Duration,

    /// Honest swarms.
    #[arg(
        long, value_name = "N", default_value_t = 5000,
        value_parser = clap::value_parser!(u32).range(1..=10_000_000), help_heading = RARELY
    )]
    pub(crate) swarms: u32,

    /// Seed of everything random [default: random].
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,

    /// Address of the tracker's admin side, for its counters, memory and CPU time.
    ///
    /// The overload step is reported too, and the balance of datagrams is checked.
    #[arg(long, value_name = "IP:PORT", help_heading = None)]
    pub(crate) admin: Option<SocketAddr>,

    /// The tracker's process, for its CPU time and memory, where they are not from --admin.
    #[arg(long, value_name = "PID")]
    pub(crate) tracker_pid: Option<u32>,

    /// Least percentage of established clients' requests that have to be answered.
    #[arg(long, value_name = "%", value_parser = number(0.0..=100.0, ""), help_heading = None)]
    pub(crate) min_established: Option<f64>,

    /// Least percentage of newcomers that have to be answered.
    #[arg(long, value_name = "%", value_parser = number(0.0..=100.0, ""), help_heading = None)]
    pub(crate) min_newcomers: Option<f64>,

    /// Upper bound on the 99th percentile of established clients' latency in milliseconds.
    #[arg(long, value_name = "MS", value_parser = number(0.01..=60e3, ""))]
    pub(crate) max_p99: Option<f64>,

    /// Upper bound on the tracker's resident memory in MiB.
    #[arg(long, value_name = "MIB", value_parser = number(1.0..=1e9, ""))]
    pub(crate) max_memory: Option<f64>,

    /// Upper bound on the overload step, which is read from the admin side.
    #[arg(long, value_name = "STEP", requires = "admin", value_parser = number(0.0..=100.0, ""))]
    pub(crate) max_step: Option<f64>,

    /// Write the report as JSON; `-` for standard output.
    ///
    /// With `-` the table goes to standard error.
    #[arg(long, value_name = "FILE", help_heading = None)]
    pub(crate) json: Option<PathBuf>,

    /// Show no progress.
    #[arg(long, short, help_heading = None)]
    pub(crate) quiet: bool,
}

impl AttackArgs {
    /// The settings.
    pub(crate) fn settings(&self) -> Settings {
        Settings {
            attack: self.attack,
            targets: self.target.clone(),
            sources: self.from.source.clone(),
            source_count: self.from.sources,
            honest: self.honest,
            newcomers: self.newcomers,
            newcomers_from: self.newcomers_from.clone(),
            rate: self.rate,
            attack_from: self.attack_from.clone(),
            attackers: self.attackers,
            bursts: (self.period, self.burst),
            warmup: self.warmup,
            duration: self.duration,
            timeout: self.timeout,
            swarms: self.swarms,
            seed: self.seed.unwrap_or_else(rand::random),
            tracker: Tracker { admin: self.admin, pid: self.tracker_pid },
            bounds: Bounds {
                min_established: self.min_established,
                min_newcomers: self.min_newcomers,
                max_p99: self.max_p99,
                max_memory: self.max_memory,
                max_step: self.max_step,
            },
            quiet: self.quiet,
            stop: Arc::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Args, Command};
    use clap::Parser as _;

    fn settings(line: &str) -> Result<Settings, String> {
        let words = ["onrush-load", "attack"].into_iter().chain(line.split_whitespace());
        match Args::try_parse_from(words).map_err(|error| error.to_string())?.command {
            Some(Command::Attack(args)) => {
                let settings = args.settings();
                onrush_load::attack::check(&settings).map_err(|error| error.to_string())?;
                Ok(settings)
            }
            other => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn a_name_is_enough() {
        let found = settings("random-hashes").unwrap();
        assert_eq!((found.attack, found.honest, found.rate), (Attack::RandomHashes, 5e3, 15e3));
        assert_eq!(found.targets, ["127.0.0.1:6969".parse().unwrap()]);
        assert_eq!(found.bounds, Bounds::default());
    }

    #[test]
    fn both_families_and_bounds() {
        let found = settings(
            "bursts -t 10.77.0.1:1 -t [fd77::1]:1 --attack-from 10.128.0.0/9 --attack-from \
             fd80::/32 --period 5 --burst 0.05 --attack 1e5 --min-established 99.9 --max-p99 10 \
             --max-step 0 --admin 10.77.0.1:6980",
        )
        .unwrap();
        assert_eq!(found.targets.len(), 2);
        let urls = settings("connects -t udp://10.77.0.1:1/announce -t udp://[fd77::1]:1").unwrap();
        assert_eq!(urls.targets, found.targets);
        assert_eq!(found.attack_from.len(), 2);
        assert_eq!(found.bursts.1, Duration::from_millis(50));
        assert_eq!((found.bounds.min_established, found.bounds.max_step), (Some(99.9), Some(0.0)));
    }

    #[test]
    fn a_bound_on_the_overload_step_needs_the_admin_side() {
        let error =
            settings("junk -t 10.77.0.1:1 --attack-from 10.128.0.0/9 --max-step 0 --tracker-pid 1");
        let error = error.unwrap_err();
        assert!(error.contains("--admin"), "{error}");
    }

    #[test]
    fn the_help_names_isolation_trusted_sources_and_exit_status() {
        let help = settings("--help").unwrap_err();
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in ["network namespace", "trusted_sources = []", "Exit status:"] {
            assert!(help.contains(part), "{part}: {help}");
        }
    }

    #[test]
    fn invalid_arguments_are_named() {
        for (line, named) in [
            ("", "<NAME>"),
            ("conects", "'connects'"),
            ("connects --attack 0", "--attack"),
            ("connects --attack-from 10.0.0.0", "--attack-from"),
            ("connects -t 127.0.0.1:1 -t 127.0.0.2:1", "--target"),
            ("connects -t ::1:6969", "--target"),
            ("bursts --period 1 --burst 2", "--burst"),
            ("connects --min-newcomers 101", "--min-newcomers"),
            ("connects --admin localhost", "--admin"),
        ] {
            let error = settings(line).unwrap_err();
            assert!(error.contains(named), "{line}: {error}");
        }
    }
}
