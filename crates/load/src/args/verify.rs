//! The arguments of `onrush-load verify`.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use onrush_proto::InfoHash;
use onrush_verify::VerifySettings;
use onrush_verify::address::TrackerAddress;
use onrush_verify::check::Group;
use onrush_verify::reachability::REACH_TIMEOUT;

use super::help;
use crate::options::seconds;

/// Checks a UDP tracker against BEP 15 and the needs of real clients, one line per check.
///
/// Each check passes, differs (within what BEP 15 leaves open), fails, or is skipped with the
/// reason. A run takes some seconds and sends about two thousand datagrams. It uses random info
/// hashes and removes its peers afterwards, so a tracker in use can be checked. A lost datagram
/// causes no failure: requests are repeated.
#[derive(Args, Debug)]
#[command(after_help = help::VERIFY_STATUS)]
pub struct VerifyArgs {
    /// The tracker: udp://tracker.example.org:6969/announce, tracker.example.org:6969 or
    /// `[::1]:6969`.
    #[arg(value_name = "URL|HOST:PORT")]
    pub target: TrackerAddress,

    /// The same tracker's address of the other family, to check that counts include both
    /// [default: the name's address].
    #[arg(long, value_name = "URL|HOST:PORT")]
    pub also: Option<TrackerAddress>,

    /// Send from this address of the host. With two of them the check runs whether connection ids
    /// are bound to an address.
    #[arg(long, value_name = "IP")]
    pub source: Vec<IpAddr>,

    /// An unused info hash that the tracker serves, for trackers with a list of them. Repeatable;
    /// a dozen is enough for all checks.
    #[arg(long = "info-hash", value_name = "HEX")]
    pub info_hash: Vec<InfoHash>,

    /// Only this part of the checks.
    #[arg(long, value_name = "GROUP")]
    pub only: Option<Group>,

    /// Seconds that a reply may take; silence is waited for up to three times as long.
    #[arg(long, value_name = "S", default_value = "0.5", value_parser = seconds(0.01..=10.0))]
    pub timeout: Duration,

    /// Exit with status 1 also where a check differs.
    #[arg(long)]
    pub strict: bool,

    /// Write the result as JSON, `-` for standard output (the list then goes to standard error).
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

impl VerifyArgs {
    /// The settings.
    ///
    /// # Errors
    /// When an argument is of the wrong family.
    pub fn settings(&self) -> anyhow::Result<VerifySettings> {
        let target = self.target.first();
        let also = match &self.also {
            None => self.target.of_other_family(target),
            Some(named) => Some(named.of_other_family(target).with_context(|| {
                format!("--also has no address of the other family than {target}")
            })?),
        };
        if let Some(ip) = self.source.iter().find(|ip| ip.is_ipv4() != target.is_ipv4()) {
            bail!("--source {ip} is not of the family of {target}");
        }
        Ok(VerifySettings {
            target,
            also,
            sources: self.source.clone(),
            hashes: self.info_hash.clone(),
            timeout: self.timeout,
            only: self.only,
            reach_timeout: REACH_TIMEOUT,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Args, Command};
    use clap::Parser as _;

    fn settings(line: &str) -> anyhow::Result<VerifySettings> {
        let words = ["onrush-load", "verify"].into_iter().chain(line.split_whitespace());
        match Args::try_parse_from(words)?.command {
            Some(Command::Verify(args)) => args.settings(),
            other => bail!("{other:?}"),
        }
    }

    #[test]
    fn addresses_and_names() {
        let plain = settings("127.0.0.1:6969").unwrap();
        assert_eq!((plain.target, plain.also), ("127.0.0.1:6969".parse().unwrap(), None));
        let both = settings("[::1]:7000 --also 127.0.0.1:7001 --only anything-else").unwrap();
        assert_eq!(both.target, "[::1]:7000".parse().unwrap());
        assert_eq!(both.also, Some("127.0.0.1:7001".parse().unwrap()));
        assert_eq!(both.only, Some(Group::AnythingElse));
        let mapped = settings("[::ffff:127.0.0.1]:6969").unwrap();
        assert_eq!(mapped.target, "127.0.0.1:6969".parse().unwrap());
        for named in ["localhost:6969", "udp://localhost:6969/announce"] {
            assert!(settings(named).unwrap().target.ip().is_loopback(), "{named}");
        }
    }

    #[test]
    fn invalid_arguments_are_named() {
        for (line, named) in [
            ("127.0.0.1", "<URL|HOST:PORT>': there is no port"),
            ("0.0.0.0:6969", "<URL|HOST:PORT>"),
            ("127.0.0.1:1 --also ::1", "--also <URL|HOST:PORT>"),
            ("127.0.0.1:1 --also 127.0.0.2:1", "other family"),
            ("127.0.0.1:1 --source ::1", "--source"),
            ("127.0.0.1:1 --timeout 0", "--timeout"),
            ("127.0.0.1:1 --info-hash 00", "40 hexadecimal digits"),
            ("127.0.0.1:1 --only things", "--only"),
            ("127.0.0.1:1 --rate 7", "--rate"),
        ] {
            let error = format!("{:#}", settings(line).unwrap_err());
            assert!(error.contains(named), "{line}: {error}");
        }
    }
}
