//! `onrush-load verify`: whom to ask whether it keeps to the protocol.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use onrush_proto::InfoHash;

use super::number;
use crate::verify::{Group, Inquiry};

/// Checks a UDP tracker against BEP 15 and what real clients count on, one line per check.
///
/// Each check passes, differs (within what BEP 15 leaves open), fails, or is skipped with the
/// reason. It sends about a thousand datagrams with random info hashes that nobody else uses and takes
/// its peers off again, so that it can be run against a tracker that is in use; it takes some
/// seconds. A lost datagram makes no failure: questions are repeated.
///
/// Exit status: 0 nothing fails, 1 something does, 2 nobody answers or the arguments are not fit.
#[derive(Args, Debug)]
pub struct VerifyArgs {
    /// The tracker: name or address and port, like tracker.example.org:6969 or `[::1]:6969`.
    #[arg(value_name = "HOST:PORT")]
    pub target: String,

    /// The same tracker's address of the other family, to see whether counts are of both [default:
    /// what the name gives].
    #[arg(long, value_name = "HOST:PORT")]
    pub also: Option<String>,

    /// Send from this address of the host; two show whether connection ids are bound to one.
    #[arg(long, value_name = "IP")]
    pub source: Vec<IpAddr>,

    /// An info hash that the tracker serves, for trackers with a list of those; repeat it, a dozen
    /// serves all checks. They must be unused.
    #[arg(long = "info-hash", value_name = "HEX")]
    pub info_hash: Vec<InfoHash>,

    /// A file of such info hashes, one a line.
    #[arg(long, value_name = "FILE")]
    pub info_hashes: Option<PathBuf>,

    /// Only this part of the checks.
    #[arg(long, value_name = "GROUP")]
    pub only: Option<Group>,

    /// Seconds that a reply may take; silence is waited for as long, and twice more.
    #[arg(long, value_name = "S", default_value = "0.5", value_parser = seconds)]
    pub timeout: Duration,

    /// Let what differs count as failing.
    #[arg(long)]
    pub strict: bool,

    /// Write the result as JSON, `-` for standard output (the list then goes to standard error).
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

impl VerifyArgs {
    /// What is meant: names looked up, files read.
    ///
    /// # Errors
    /// When a name has no address, or a file no info hashes: which, and what would be right.
    pub fn inquiry(&self) -> anyhow::Result<Inquiry> {
        let found = look_up(&self.target)?;
        let target = found[0];
        let other = |addresses: &[SocketAddr]| {
            addresses.iter().copied().find(|address| address.is_ipv4() != target.is_ipv4())
        };
        let also = match &self.also {
            None => other(&found),
            Some(named) => Some(other(&look_up(named)?).with_context(|| {
                format!("--also {named} has no address of the other family than {target}")
            })?),
        };
        if let Some(ip) = self.source.iter().find(|ip| ip.is_ipv4() != target.is_ipv4()) {
            bail!("--source {ip} is not of the family of {target}");
        }
        let hashes = self.hashes()?;
        let (sources, timeout, only) = (self.source.clone(), self.timeout, self.only);
        Ok(Inquiry { target, also, sources, hashes, timeout, only })
    }

    fn hashes(&self) -> anyhow::Result<Vec<InfoHash>> {
        let mut hashes = self.info_hash.clone();
        if let Some(path) = &self.info_hashes {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("--info-hashes: cannot read {}", path.display()))?;
            for (number, line) in text.lines().enumerate() {
                let word = line.trim();
                if word.is_empty() || word.starts_with('#') {
                    continue;
                }
                let hash = word.parse().map_err(|error| {
                    anyhow!("--info-hashes: {}:{}: {error}", path.display(), number + 1)
                })?;
                hashes.push(hash);
            }
            if hashes.is_empty() {
                bail!("--info-hashes: {} names no info hash", path.display());
            }
        }
        Ok(hashes)
    }
}

/// The addresses of a name, IPv4 first.
fn look_up(text: &str) -> anyhow::Result<Vec<SocketAddr>> {
    let Some((_, port)) = text.rsplit_once(':') else {
        bail!("{text} has no port: expected HOST:PORT, like 127.0.0.1:6969 or [::1]:6969");
    };
    if port.parse::<u16>().is_ok_and(|port| port == 0) {
        bail!("{text}: port 0 cannot be sent to");
    }
    let found = text.to_socket_addrs().with_context(|| {
        format!("{text}: expected HOST:PORT, like tracker.example.org:6969 or [::1]:6969")
    })?;
    let mut found: Vec<SocketAddr> = found.map(plain).collect();
    if let Some(nobody) = found.iter().find(|to| to.ip().is_unspecified() || to.ip().is_multicast())
    {
        bail!("{text}: {} is nobody's address; for this host say 127.0.0.1 or [::1]", nobody.ip());
    }
    found.sort_by_key(SocketAddr::is_ipv6);
    found.dedup();
    if found.is_empty() {
        bail!("{text} has no address");
    }
    Ok(found)
}

/// An IPv4-mapped address (RFC 4291, section 2.5.5.2) is asked over IPv4: so the tracker sees it.
fn plain(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        ip @ IpAddr::V4(_) => SocketAddr::new(ip, address.port()),
        IpAddr::V6(_) => address,
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    number(text, "between 0.01 and 10 seconds", |s| (0.01..=10.0).contains(&s))
        .map(Duration::from_secs_f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Args, Command};
    use clap::Parser as _;

    fn inquiry(line: &str) -> anyhow::Result<Inquiry> {
        let words = ["onrush-load", "verify"].into_iter().chain(line.split_whitespace());
        match Args::try_parse_from(words)?.command {
            Some(Command::Verify(args)) => args.inquiry(),
            other => bail!("{other:?}"),
        }
    }

    #[test]
    fn addresses_and_names() {
        let plain = inquiry("127.0.0.1:6969").unwrap();
        assert_eq!((plain.target, plain.also), ("127.0.0.1:6969".parse().unwrap(), None));
        let both = inquiry("[::1]:7000 --also 127.0.0.1:7001 --only anything-else").unwrap();
        assert_eq!(both.target, "[::1]:7000".parse().unwrap());
        assert_eq!(both.also, Some("127.0.0.1:7001".parse().unwrap()));
        assert_eq!(both.only, Some(Group::AnythingElse));
        let mapped = inquiry("[::ffff:127.0.0.1]:6969").unwrap();
        assert_eq!(mapped.target, "127.0.0.1:6969".parse().unwrap());
        assert!(inquiry("localhost:6969").unwrap().target.ip().is_loopback());
    }

    #[test]
    fn hashes_from_the_line_and_from_a_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (one, two) = ("01".repeat(20), "02".repeat(20));
        std::fs::write(file.path(), format!("# list\n{two}\n\n")).unwrap();
        let path = file.path().display();
        let found = inquiry(&format!("127.0.0.1:1 --info-hash {one} --info-hashes {path}"));
        let hashes: Vec<_> = found.unwrap().hashes.iter().map(ToString::to_string).collect();
        assert_eq!(hashes, [one, two]);
        std::fs::write(file.path(), "what\n").unwrap();
        let error = inquiry(&format!("127.0.0.1:1 --info-hashes {path}")).unwrap_err();
        assert!(format!("{error:#}").contains(":1: an info hash is 40"), "{error:#}");
    }

    #[test]
    fn nonsense_is_named() {
        for (line, named) in [
            ("127.0.0.1", "has no port"),
            ("127.0.0.1:0", "port 0"),
            ("0.0.0.0:6969", "nobody's address"),
            ("[::]:6969", "nobody's address"),
            ("239.0.0.1:6969", "nobody's address"),
            ("127.0.0.1:x", "expected HOST:PORT"),
            ("127.0.0.1:1 --also 127.0.0.2:1", "other family"),
            ("127.0.0.1:1 --source ::1", "--source"),
            ("127.0.0.1:1 --timeout 0", "--timeout"),
            ("127.0.0.1:1 --info-hash 00", "40 hexadecimal digits"),
            ("127.0.0.1:1 --only things", "--only"),
            ("127.0.0.1:1 --rate 7", "--rate"),
        ] {
            let error = format!("{:#}", inquiry(line).unwrap_err());
            assert!(error.contains(named), "{line}: {error}");
        }
    }
}
