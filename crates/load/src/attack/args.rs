//! The arguments of `onrush-load attack`.

use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use ipnet::IpNet;

use super::{Attack, AttackBounds};
use crate::options::{NetworkArgs, RARELY, ReportArgs, SOMETIMES, count, number, seconds};

/// Default blocks for a target on 127/8, all of which is local.
const NEWCOMERS: &str = "127.2.0.0/16";
const ATTACKERS: &str = "127.64.0.0/10";

/// The examples of the command.
pub(crate) const EXAMPLES: &str = "\
Examples:
  On 127.0.0.1:6969, from sources in 127/8:
    onrush-load attack random-hashes
  With memory, overload step and the balance of datagrams:
    onrush-load attack scrapes --admin 127.0.0.1:6980
  With spoofed sources, in a namespace of their own:
    unshare --map-root-user --net sh -c 'ip link set lo up
      onrush --admin 127.0.0.1:6980 & sleep 1
      onrush-load attack connects --admin 127.0.0.1:6980 --min-newcomers 99'
  All of them, between two namespaces:
    scripts/attack-test";

/// The exit status of the command.
const STATUS: &str = "\
Exit status:
  0  the attack ran to its end, the bounds hold and no datagram is missing
  1  something failed, which is named
  2  the arguments or this host are unusable
  3  the tracker does not answer";

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
/// answered + refused, exactly. The tracker may then serve no other clients.
#[derive(Args, Debug)]
#[command(
    next_help_heading = SOMETIMES,
    after_help = EXAMPLES,
    after_long_help = format!("{EXAMPLES}\n\n{STATUS}")
)]
pub struct AttackArgs {
    /// The attack.
    #[arg(value_name = "NAME", help_heading = None)]
    pub attack: Attack,

    /// The addresses of the tracker and of established clients.
    #[command(flatten)]
    pub network: NetworkArgs,

    /// Requests of established clients per second.
    #[arg(
        long, value_name = "R", default_value = "5000", value_parser = number(1.0..=1e6, ""),
        help_heading = None
    )]
    pub honest: f64,

    /// Newcomers per second.
    #[arg(long, value_name = "R", default_value = "50", value_parser = number(0.1..=1e5, ""))]
    pub newcomers: f64,

    /// Datagrams of the attack per second; with `bursts`, during a burst.
    #[arg(
        long = "attack", value_name = "R", default_value = "15000",
        value_parser = number(1.0..=1e7, ""), help_heading = None
    )]
    pub rate: f64,

    /// Block of addresses of newcomers, which are this host's.
    ///
    /// Repeatable, for both families.
    #[arg(long, value_name = "BLOCK", default_value = NEWCOMERS, help_heading = None)]
    pub newcomers_from: Vec<IpNet>,

    /// Block of addresses of the attack: spoofed, or this host's.
    ///
    /// Repeatable, for both families.
    #[arg(long, value_name = "BLOCK", default_value = ATTACKERS, help_heading = None)]
    pub attack_from: Vec<IpNet>,

    /// Number of sources of an attack that is not spoofed.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = count(1..=10_000))]
    pub attackers: u32,

    /// Seconds from one burst to the next, for `bursts`.
    #[arg(
        long, value_name = "S", default_value = "12", value_parser = seconds(0.01..=3600.0),
        help_heading = RARELY
    )]
    pub period: Duration,

    /// Seconds of a burst, for `bursts`: 1 % of the time.
    #[arg(
        long, value_name = "S", default_value = "0.12", value_parser = seconds(0.001..=3600.0),
        help_heading = RARELY
    )]
    pub burst: Duration,

    /// Seconds of the attack, which are measured.
    #[arg(
        long, short, value_name = "S", default_value = "10", value_parser = seconds(0.5..=1e5),
        help_heading = None
    )]
    pub duration: Duration,

    /// Seconds of honest load before it.
    #[arg(long, value_name = "S", default_value = "2", value_parser = seconds(0.5..=600.0))]
    pub warmup: Duration,

    /// Seconds after which a request counts as not answered.
    #[arg(
        long, value_name = "S", default_value = "1", value_parser = seconds(0.01..=60.0),
        help_heading = RARELY
    )]
    pub timeout: Duration,

    /// Honest swarms.
    #[arg(
        long, value_name = "N", default_value_t = 5000,
        value_parser = count(1..=10_000_000), help_heading = RARELY
    )]
    pub swarms: u32,

    /// Seed of everything random [default: random].
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,

    /// Address of the tracker's admin side, for its counters, memory and CPU time.
    ///
    /// The overload step is reported too, and the balance of datagrams is checked.
    #[arg(long, value_name = "IP:PORT", help_heading = None)]
    pub admin: Option<SocketAddr>,

    /// Bounds of a success.
    #[command(flatten)]
    pub bounds: AttackBounds,

    /// The report.
    #[command(flatten, next_help_heading = None)]
    pub report: ReportArgs,
}

impl AttackArgs {
    /// Checks the arguments against each other.
    ///
    /// # Errors
    /// A sentence that names the contradiction.
    pub fn check(&self) -> Result<(), String> {
        for v4 in [true, false] {
            if self.network.target.iter().filter(|target| target.is_ipv4() == v4).count() > 1 {
                return Err("--target: one address of each family is enough".into());
            }
        }
        if self.burst > self.period {
            return Err("--burst is longer than --period".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Args, Command};
    use clap::Parser as _;

    fn args(line: &str) -> Result<Box<AttackArgs>, String> {
        let words = ["onrush-load", "attack"].into_iter().chain(line.split_whitespace());
        match Args::try_parse_from(words).map_err(|error| error.to_string())?.command {
            Some(Command::Attack(args)) => {
                args.check()?;
                Ok(args)
            }
            other => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn a_name_is_enough() {
        let found = args("random-hashes").unwrap();
        assert_eq!((found.attack, found.honest, found.rate), (Attack::RandomHashes, 5e3, 15e3));
        assert_eq!(found.network.target, ["127.0.0.1:6969".parse().unwrap()]);
        assert_eq!(found.bounds, AttackBounds::default());
    }

    #[test]
    fn both_families_and_bounds() {
        let found = args(
            "bursts -t 10.77.0.1:1 -t [fd77::1]:1 --attack-from 10.128.0.0/9 --attack-from \
             fd80::/32 --period 5 --burst 0.05 --attack 1e5 --min-established 99.9 --max-p99 10 \
             --admin 10.77.0.1:6980",
        )
        .unwrap();
        assert_eq!(found.network.target.len(), 2);
        let urls = args("connects -t udp://10.77.0.1:1/announce -t udp://[fd77::1]:1").unwrap();
        assert_eq!(urls.network.target, found.network.target);
        assert_eq!(found.attack_from.len(), 2);
        assert_eq!(found.burst, Duration::from_millis(50));
        assert_eq!((found.bounds.min_established, found.bounds.max_p99), (Some(99.9), Some(10.0)));
    }

    #[test]
    fn the_help_names_isolation_trusted_sources_and_exit_status() {
        let help = args("--help").unwrap_err();
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
            let error = args(line).unwrap_err();
            assert!(error.contains(named), "{line}: {error}");
        }
    }
}
