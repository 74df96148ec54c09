//! The arguments of `onrush-load verify`.

use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum as _};
use onrush_proto::InfoHash;
use onrush_verify::address::TrackerAddress;
use onrush_verify::check::Group;
use onrush_verify::reachability::REACH_TIMEOUT;
use onrush_verify::tcp::Url;
use onrush_verify::{TcpSettings, VerifySettings, groups};

use super::help;
use crate::options::seconds;

/// Checks a tracker against the BEPs and the needs of real clients, one line per check.
///
/// The URL decides what is checked: UDP (BEP 15), announces and scrapes over HTTP and HTTPS
/// (BEP 3), or WebTorrent over WebSocket. Each check passes, differs (within what the BEPs leave
/// open), fails, or is skipped with the reason. A run takes some seconds, and sends about two
/// thousand datagrams, or opens some 400 connections over HTTP, some 80 over WebSocket. It uses
/// random info hashes and removes its peers afterwards, so a tracker in use can be checked. A lost
/// datagram causes no failure: requests are repeated.
#[derive(Args, Debug)]
#[command(after_help = help::VERIFY_STATUS)]
pub struct VerifyArgs {
    /// The tracker: udp://tracker.example.org:6969/announce or tracker.example.org:6969, or the
    /// same with http, https, ws or wss, like `https://tracker.example.org/announce`.
    #[arg(value_name = "URL|HOST:PORT")]
    pub target: Tracker,

    /// The same tracker's address of the other family, to check that counts include both
    /// [default: the name's address].
    #[arg(long, value_name = "URL|HOST:PORT")]
    pub also: Option<Tracker>,

    /// Send datagrams from this address of the host. With two of them the check runs whether
    /// connection ids are bound to an address.
    #[arg(long, value_name = "IP")]
    pub source: Vec<IpAddr>,

    /// Verify the tracker's certificate by those in this PEM file; without it, any is accepted.
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,

    /// An unused info hash that the tracker serves, for trackers with a list of them. Repeatable;
    /// a dozen is enough for all checks.
    #[arg(long = "info-hash", value_name = "HEX")]
    pub info_hash: Vec<InfoHash>,

    /// Only this part of the checks.
    #[arg(long, value_name = "GROUP")]
    pub only: Option<Group>,

    /// Seconds that a reply may take; silence is waited for up to three times as long. Over TCP a
    /// reply may take eight times as long.
    #[arg(long, value_name = "S", default_value = "0.5", value_parser = seconds(0.01..=10.0))]
    pub timeout: Duration,

    /// Exit with status 1 also where a check differs.
    #[arg(long)]
    pub strict: bool,

    /// Write the result as JSON, `-` for standard output (the list then goes to standard error).
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// A tracker, by the protocol that it is checked over.
#[derive(Clone, Debug)]
pub enum Tracker {
    /// Over UDP.
    Udp(TrackerAddress),
    /// Over HTTP or WebSocket.
    Tcp(Url),
}

impl FromStr for Tracker {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once("://") {
            Some((scheme, _)) if !scheme.eq_ignore_ascii_case("udp") => text.parse().map(Self::Tcp),
            _ => text.parse().map(Self::Udp),
        }
    }
}

/// The settings of a run, by protocol.
#[derive(Clone, Debug)]
pub enum Settings {
    /// Over UDP.
    Udp(VerifySettings),
    /// Over HTTP or WebSocket.
    Tcp(TcpSettings),
}

impl VerifyArgs {
    /// The settings.
    ///
    /// # Errors
    /// When an argument is of the wrong family, or of no use for the protocol.
    pub fn settings(&self) -> anyhow::Result<Settings> {
        self.check()?;
        let (timeout, only, hashes) = (self.timeout, self.only, self.info_hash.clone());
        Ok(match &self.target {
            Tracker::Udp(target) => {
                let (target, other) = (target.first(), target.of_other_family(target.first()));
                let also = self.also_of(target)?.or(other);
                if let Some(ip) = self.source.iter().find(|ip| ip.is_ipv4() != target.is_ipv4()) {
                    bail!("--source {ip} is not of the family of {target}");
                }
                let (sources, reach_timeout) = (self.source.clone(), REACH_TIMEOUT);
                Settings::Udp(VerifySettings {
                    target,
                    also,
                    sources,
                    hashes,
                    timeout,
                    only,
                    reach_timeout,
                })
            }
            Tracker::Tcp(url) => {
                let also = self.also_of(url.address)?.or(url.also);
                let (url, ca) = (url.clone(), self.ca.clone());
                Settings::Tcp(TcpSettings { url, also, ca, hashes, timeout, only })
            }
        })
    }

    /// The address of `--also`.
    fn also_of(
        &self,
        target: std::net::SocketAddr,
    ) -> anyhow::Result<Option<std::net::SocketAddr>> {
        let other = match &self.also {
            None => return Ok(None),
            Some(Tracker::Udp(named)) => named.of_other_family(target),
            Some(Tracker::Tcp(url)) => [Some(url.address), url.also]
                .into_iter()
                .flatten()
                .find(|address| address.is_ipv4() != target.is_ipv4()),
        };
        let missing = || format!("--also has no address of the other family than {target}");
        other.map(Some).with_context(missing)
    }

    /// Refuses arguments that are of no use for the protocol.
    fn check(&self) -> anyhow::Result<()> {
        let scheme = match &self.target {
            Tracker::Udp(_) => None,
            Tracker::Tcp(url) => Some(url.scheme),
        };
        let name = scheme.as_ref().map_or("udp", AsRef::as_ref);
        if scheme.is_some() && !self.source.is_empty() {
            bail!(
                "--source is for UDP: connections of {name}:// come from the address of the route"
            );
        }
        if scheme.is_some_and(|scheme| scheme.is_websocket()) && self.also.is_some() {
            bail!("--also is for UDP and HTTP: peers of {name}:// have no address");
        }
        if let Some(Tracker::Tcp(also)) = &self.also
            && scheme != Some(also.scheme)
        {
            bail!("--also {also} is not of {name}://");
        }
        if self.ca.is_some() && !scheme.is_some_and(|scheme| scheme.has_tls()) {
            bail!("--ca is for https:// and wss://, not {name}://");
        }
        let Some(only) = self.only else { return Ok(()) };
        let groups: Vec<Group> = groups(scheme);
        if !groups.contains(&only) {
            let name_of =
                |group: &Group| group.to_possible_value().map(|it| it.get_name().to_owned());
            let names: Vec<_> = groups.iter().filter_map(name_of).collect();
            bail!("--only: the groups of {name}:// are {}", names.join(", "));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Args, Command};
    use clap::Parser as _;

    fn parsed(line: &str) -> anyhow::Result<Settings> {
        let words = ["onrush-load", "verify"].into_iter().chain(line.split_whitespace());
        match Args::try_parse_from(words)?.command {
            Some(Command::Verify(args)) => args.settings(),
            other => bail!("{other:?}"),
        }
    }

    fn settings(line: &str) -> anyhow::Result<VerifySettings> {
        match parsed(line)? {
            Settings::Udp(settings) => Ok(settings),
            Settings::Tcp(settings) => bail!("{settings:?}"),
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
    fn urls_name_the_protocol() {
        let of = |line| match parsed(line).unwrap() {
            Settings::Tcp(settings) => settings,
            Settings::Udp(settings) => panic!("{settings:?}"),
        };
        let http = of("http://127.0.0.1:1/announce --also [::1]:2 --only peers");
        assert_eq!((http.also, http.only), (Some("[::1]:2".parse().unwrap()), Some(Group::Peers)));
        let https = of("https://127.0.0.1 --also https://[::1] --ca ca.pem --only tls");
        assert_eq!(https.also, Some("[::1]:443".parse().unwrap()));
        assert_eq!(https.ca, Some("ca.pem".into()));
        assert_eq!(of("ws://127.0.0.1:1 --only offers").only, Some(Group::Offers));
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
            ("ftp://127.0.0.1:1", "`ftp://`"),
            ("http://127.0.0.1:1 --source 127.0.0.1", "--source is for UDP"),
            ("ws://127.0.0.1:1 --also [::1]:1", "--also is for UDP and HTTP"),
            ("http://127.0.0.1:1 --also https://[::1]:1", "is not of http://"),
            ("http://127.0.0.1:1 --ca x", "--ca is for https://"),
            ("127.0.0.1:1 --ca x", "--ca is for https://"),
            ("http://127.0.0.1:1 --only tls", "request, announce, peers, scrape, connection"),
            ("127.0.0.1:1 --only offers", "connect, announce, scrape, anything-else"),
        ] {
            let error = format!("{:#}", settings(line).unwrap_err());
            assert!(error.contains(named), "{line}: {error}");
        }
    }
}
