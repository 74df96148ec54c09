//! The check of the host that a request is for.
//!
//! A web page can read what its own host serves. If the name of that host resolves to this address
//! (DNS rebinding), the browser of an operator would read the admin side for the page, but it sends
//! the name of the page's host.

use std::net::{IpAddr, Ipv6Addr};

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, Uri, Version, header};
use axum::middleware::Next;
use axum::response::Response;

use crate::api::Problem;
use crate::state::SharedState;

/// Middleware: passes only requests for an address, `localhost` or a name in `admin.hosts`.
pub(super) async fn require_known_host(
    State(state): SharedState,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let name = named(request.version(), request.uri(), request.headers());
    match name.map_err(Problem::bad_request)? {
        Some(name) if !state.is_own_name(name) => Err(Problem::new(
            StatusCode::MISDIRECTED_REQUEST,
            format!(
                "{name:?} is not a host name of this tracker: use its address or localhost, or \
                 write the name into admin.hosts and reload"
            ),
        )),
        _ => Ok(next.run(request).await),
    }
}

/// The host name that a request is for; `None` for an address, for `localhost`, and for a request
/// without a host.
fn named<'r>(
    version: Version,
    target: &'r Uri,
    headers: &'r HeaderMap,
) -> Result<Option<&'r str>, &'static str> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (Some(host), None) => Some(host.to_str().map_err(|_| INVALID)?),
        // Browsers send HTTP/1.1 and a host. Simple checks of load balancers send neither.
        (None, _) if version < Version::HTTP_11 => None,
        _ => return Err("a request needs one Host header: `Host: ADDRESS:PORT`"),
    };
    // The host of a target in absolute form replaces that of the header (RFC 9112, section 3.2.2).
    let host = target.authority().map(|authority| authority.as_str()).or(host);
    host.map_or(Ok(None), |host| without_port(host).ok_or(INVALID).map(name))
}

/// The error for a host that cannot be read.
const INVALID: &str = "the host of the request is invalid: write an address or a name, and a port";

/// The host without its port.
fn without_port(host: &str) -> Option<&str> {
    let (name, port) = match host.rsplit_once(':') {
        // The last colon belongs to an IPv6 address where a bracket follows.
        Some((name, port)) if !port.contains(']') => (name, port),
        _ => (host, ""),
    };
    let is_port = port.bytes().all(|byte| byte.is_ascii_digit());
    (is_port && !name.is_empty() && !name.contains('@')).then_some(name)
}

/// The host, unless it is an address or `localhost`, which no other party can make resolve here.
fn name(host: &str) -> Option<&str> {
    let v6 = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let is_address = match v6 {
        Some(v6) => v6.split('%').next().is_some_and(|ip| ip.parse::<Ipv6Addr>().is_ok()),
        None => host.parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv4()),
    };
    let host = host.strip_suffix('.').unwrap_or(host);
    (!is_address && !host.eq_ignore_ascii_case("localhost")).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(version: Version, target: &str, hosts: &[&str]) -> Result<Option<String>, &'static str> {
        let mut headers = HeaderMap::new();
        for host in hosts {
            headers.append(header::HOST, host.parse().unwrap());
        }
        named(version, &target.parse().unwrap(), &headers).map(|name| name.map(str::to_owned))
    }

    #[test]
    fn addresses_and_localhost_have_no_name_to_check() {
        for host in [
            "127.0.0.1",
            "127.0.0.1:6970",
            "192.0.2.7:80",
            "[::1]",
            "[2001:db8::1]:6970",
            "[::ffff:192.0.2.7]:6970",
            "[fe80::1%25eth0]:6970",
            "localhost",
            "LocalHost:6970",
            "localhost.:6970",
        ] {
            assert_eq!(of(Version::HTTP_11, "/stats.json", &[host]), Ok(None), "{host}");
        }
        for (host, name) in [
            ("evil.example", "evil.example"),
            ("evil.example:6970", "evil.example"),
            ("evil.example.:6970", "evil.example"),
            ("127.0.0.1.evil.example", "127.0.0.1.evil.example"),
            ("evil.localhost", "evil.localhost"),
            ("localhost.evil.example", "localhost.evil.example"),
            ("2130706433", "2130706433"),
            ("127.1", "127.1"),
            ("[evil.example]", "[evil.example]"),
            ("[127.0.0.1]", "[127.0.0.1]"),
        ] {
            let expected = Ok(Some(name.to_owned()));
            assert_eq!(of(Version::HTTP_11, "/stats.json", &[host]), expected, "{host}");
        }
        for host in ["", ":6970", "a@127.0.0.1", "127.0.0.1:6970x", "::1:x", "[::1]x"] {
            let named = of(Version::HTTP_11, "/", &[host]);
            assert!(named.is_err() || named == Ok(Some(host.to_owned())), "{host}: {named:?}");
        }
        assert_eq!(of(Version::HTTP_11, "/", &["a@127.0.0.1"]), Err(INVALID));
        assert_eq!(of(Version::HTTP_11, "/", &[""]), Err(INVALID));
    }

    #[test]
    fn a_target_in_absolute_form_names_the_host() {
        let of = |target, hosts: &[&str]| of(Version::HTTP_11, target, hosts);
        let evil = Ok(Some("evil.example".to_owned()));
        assert_eq!(of("http://evil.example:80/stats.json", &["127.0.0.1:6970"]), evil);
        assert_eq!(of("http://127.0.0.1:6970/stats.json", &["evil.example"]), Ok(None));
        assert_eq!(of("http://a@127.0.0.1/", &["127.0.0.1"]), Err(INVALID));
        assert!(of("http://127.0.0.1/", &[]).is_err(), "the header is still required");
    }

    #[test]
    fn http_1_1_needs_one_host_and_http_1_0_may_have_none() {
        assert!(of(Version::HTTP_11, "/health", &[]).is_err());
        assert_eq!(of(Version::HTTP_10, "/health", &[]), Ok(None));
        assert_eq!(
            of(Version::HTTP_10, "/", &["evil.example"]),
            Ok(Some("evil.example".to_owned()))
        );
        for version in [Version::HTTP_10, Version::HTTP_11] {
            assert!(of(version, "/", &["127.0.0.1", "127.0.0.1"]).is_err());
        }
    }
}
