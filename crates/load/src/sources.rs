//! Source addresses and their sockets.
//!
//! On Linux every address of 127/8 is local, so a loopback tracker can have many sources. IPv6 has
//! only ::1; further addresses are arguments.

use std::io;
use std::net::{IpAddr, SocketAddr};

use anyhow::Context as _;
use ipnet::{IpAddrRange, Ipv4AddrRange, Ipv6AddrRange};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use onrush_net::Return;
use onrush_net::bind::{Buffers, bind_client};
use onrush_net::mio::{Backend, Options};
use onrush_net::notice::Notice;
use onrush_proto::Family;

use crate::generator::{Generator, Route};
use crate::plan::Plan;
use crate::plan::population::Addresses;
use crate::worker::{LoadSettings, Prepared, Window};

/// Upper bound on source addresses: 127.1.0.0/16 with 250 hosts in each /24.
pub const MAX_SOURCES: u32 = 64_000;
/// Lower bound on sockets per worker and family: the kernel distributes clients to a tracker's
/// workers by address and port.
const MIN_SOCKETS: u32 = 8;
/// Upper bound on sockets of a worker: their numbers have 16 bits ([`Return::socket`]).
const MAX_SOCKETS: u64 = 1 << 16;
/// Requested receive buffer in bytes. The kernel clamps it, and drops are counted.
const BUFFER: usize = 4 << 20;
/// Descriptors besides the sockets: standard streams, report files, epoll.
const OTHERS: u64 = 64;

/// The addresses of `10.0.0.1` or `10.0.0.1-10.0.0.200`.
///
/// # Errors
/// A sentence about what is wrong with the text.
pub fn range(text: &str) -> Result<IpAddrRange, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let parse =
        |part: &str| part.parse::<IpAddr>().map_err(|_| format!("`{part}` is no IP address"));
    let range: IpAddrRange = match (parse(first)?, parse(last)?) {
        (IpAddr::V4(first), IpAddr::V4(last)) => Ipv4AddrRange::new(first, last).into(),
        (IpAddr::V6(first), IpAddr::V6(last)) => Ipv6AddrRange::new(first, last).into(),
        _ => return Err(format!("{first} and {last} are not of one family")),
    };
    let (mut all, mut rest) = (range, range);
    match (all.next(), rest.nth(MAX_SOURCES as usize)) {
        (None, _) => Err(format!("{last} lies before {first}")),
        (_, None) => Ok(range),
        (_, Some(_)) => Err(format!("more than {MAX_SOURCES} addresses")),
    }
}

/// The source addresses: the given ones; for a family without given ones `count` of 127/8 when its
/// targets are on 127/8, else the one that routing picks, by `routed`.
pub fn addresses(
    targets: &[SocketAddr],
    given: &[IpAddrRange],
    count: u32,
    routed: impl Fn(SocketAddr) -> Option<IpAddr>,
) -> Addresses {
    let mut all: Vec<IpAddr> = given.iter().copied().flatten().collect();
    for v6 in [false, true] {
        let mut of_family = targets.iter().filter(|target| target.is_ipv6() == v6).peekable();
        let any_given = given.iter().any(|range| matches!(range, IpAddrRange::V6(_)) == v6);
        if any_given || of_family.peek().is_none() {
            continue;
        }
        let local = of_family.clone().all(|target| target.ip().is_loopback());
        if local && !v6 {
            let host = |n| IpAddr::from([127, 1, (n / 250) as u8, (1 + n % 250) as u8]);
            all.extend((0..count.min(MAX_SOURCES)).map(host));
        } else {
            all.extend(of_family.filter_map(|target| routed(*target)));
        }
    }
    all.retain(|ip| targets.iter().any(|target| target.is_ipv6() == ip.is_ipv6()));
    Addresses::new(&all)
}

/// The sockets and routes of a worker.
pub(crate) struct Network {
    /// The sockets, in the order of [`Return::socket`].
    pub socket: Backend,
    /// Their number.
    pub sockets: usize,
    /// A route from each socket to each target of its family.
    pub routes: Vec<Route>,
    /// Socket options that the kernel did not grant.
    pub notices: Vec<Notice>,
    /// The ports of all sockets, where they share some.
    pub ports: Vec<u16>,
}

/// Number of sockets of a worker: one per address, and at least [`MIN_SOCKETS`].
fn sockets(addresses: &Addresses, family: Family) -> u64 {
    match addresses.count(family) {
        0 => 0,
        count => u64::from(count.max(MIN_SOCKETS)),
    }
}

/// Raises the limit of open files for the sockets of all workers, before any is bound.
///
/// # Errors
/// A sentence with the numbers, when there are more sockets than a worker can number, or more than
/// this process may open.
pub fn reserve(addresses: &Addresses, workers: u32) -> Result<(), String> {
    let sockets = sockets(addresses, Family::V4) + sockets(addresses, Family::V6);
    if sockets > MAX_SOCKETS {
        return Err(format!(
            "the source addresses of both families need {sockets} sockets, and a worker can \
             number {MAX_SOCKETS}: use fewer --sources (or --source)",
        ));
    }
    raise_file_limit(sockets * u64::from(workers))
}

/// Raises the soft limit for `sockets` sockets, and the hard limit where the process may
/// (CAP_SYS_RESOURCE, up to the sysctl fs.nr_open: getrlimit(2)).
///
/// # Errors
/// A sentence with the number needed and the remedy, when the hard limit is too low.
pub fn raise_file_limit(sockets: u64) -> Result<(), String> {
    let needed = sockets + OTHERS;
    // Where limits cannot be read, binding reports the problem.
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return Ok(()) };
    if soft >= needed {
        return Ok(());
    }
    setrlimit(Resource::RLIMIT_NOFILE, needed, hard.max(needed)).map_err(|_| {
        format!(
            "{sockets} sockets need {needed} open files, and this process may have {hard}: run \
             `ulimit -n {needed}` as root before (above 1048576 also `sysctl -w \
             fs.nr_open={needed}`), or use fewer --sources or --connections"
        )
    })
}

impl Network {
    /// Binds one worker's sockets. With `share_ports` the worker has only as many ports as an
    /// address has sockets, which are no other worker's.
    ///
    /// # Errors
    /// When an address is not local, or the limit of open files is reached.
    pub(crate) fn open(
        addresses: &Addresses,
        targets: &[SocketAddr],
        options: Options,
        share_ports: bool,
    ) -> anyhow::Result<Self> {
        let (mut bound, mut all_routes, mut notices) = (Vec::new(), Vec::new(), Vec::new());
        let (mut ports, mut families) = (Vec::new(), [Family::V4, Family::V6]);
        if share_ports {
            // The one with more sockets per address picks all ports.
            families.sort_by_key(|family| addresses.count(*family));
        }
        for family in families {
            let count = addresses.count(family);
            for nth in 0..sockets(addresses, family) as u32 {
                let (address, nth_of_address) = (nth % count, (nth / count) as usize);
                let port = ports.get(nth_of_address).copied().unwrap_or(0);
                let source = SocketAddr::new(addresses.get(family, address), port);
                let (socket, of_socket) = bind_client(source, Buffers { receive: BUFFER, send: 0 })
                    .context("cannot open the sockets of a worker")?;
                if notices.is_empty() {
                    notices = of_socket;
                }
                if share_ports && port == 0 {
                    ports.push(socket.address().port());
                }
                let number = bound.len() as u16;
                all_routes.extend(routes(addresses, targets, family, address, number));
                bound.push(socket);
            }
        }
        let sockets = bound.len();
        let socket = Backend::new(bound, options)?;
        Ok(Self { socket, sockets, routes: all_routes, notices, ports })
    }
}

impl Prepared for Network {
    type Worker<'p> = Generator<'p, Backend>;

    fn start(
        self,
        plan: &Plan,
        settings: LoadSettings,
        number: usize,
        window: Window,
    ) -> io::Result<Generator<'_, Backend>> {
        Ok(Generator::new(self.socket, plan, self.routes, settings, number, window))
    }
}

/// The routes from socket number `socket`, at address number `address`, to the targets.
pub fn routes(
    addresses: &Addresses,
    targets: &[SocketAddr],
    family: Family,
    address: u32,
    socket: u16,
) -> impl Iterator<Item = Route> {
    let per_target = addresses.count(Family::V4) + addresses.count(Family::V6);
    let before = if family == Family::V6 { addresses.count(Family::V4) } else { 0 };
    let of_family = targets
        .iter()
        .enumerate()
        .filter(move |(_, target)| target.is_ipv6() == (family == Family::V6));
    of_family.map(move |(nth, &target)| Route {
        to: Return::to(target, socket),
        target,
        family,
        address,
        id: nth as u32 * per_target + before + address,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn none(_: SocketAddr) -> Option<IpAddr> {
        None
    }

    #[test]
    fn ranges_are_parsed() {
        let found = range("10.0.0.254-10.0.1.1").unwrap().map(|ip| ip.to_string());
        let found: Vec<_> = found.collect();
        assert_eq!(found, ["10.0.0.254", "10.0.0.255", "10.0.1.0", "10.0.1.1"]);
        let one: Vec<_> = range("fd00::7").unwrap().collect();
        assert_eq!(one, ["fd00::7".parse::<IpAddr>().unwrap()]);
        for wrong in ["10.0.0.2-10.0.0.1", "10.0.0.1-fd00::1", "x", "10.0.0.0-10.9.0.0"] {
            assert!(range(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn loopback_targets_have_many_sources() {
        let targets = ["127.0.0.1:6969".parse().unwrap(), "[::1]:6969".parse().unwrap()];
        let routed = |target: SocketAddr| Some(target.ip());
        let found = addresses(&targets, &[], 1000, routed);
        assert_eq!((found.count(Family::V4), found.count(Family::V6)), (1000, 1));
        assert!(found.get(Family::V4, 999).is_loopback());
    }

    #[test]
    fn given_addresses_replace_the_others_of_their_family() {
        let targets = ["127.0.0.1:6969".parse().unwrap()];
        let given = ["10.1.0.1-10.1.0.9", "fd00::1"].map(|text| range(text).unwrap());
        let found = addresses(&targets, &given, 1000, none);
        assert_eq!((found.count(Family::V4), found.count(Family::V6)), (9, 0), "no v6 target");
    }

    #[test]
    fn other_targets_have_the_routed_source() {
        let targets = ["192.0.2.1:6969".parse().unwrap()];
        let found = addresses(&targets, &[], 1000, |_| Some("198.51.100.7".parse().unwrap()));
        assert_eq!(found.count(Family::V4), 1);
        assert_eq!(found.get(Family::V4, 0).to_string(), "198.51.100.7");
    }

    #[test]
    fn too_many_sockets_are_refused() {
        let on = |v4: u32, v6: u128| {
            let four = (0..v4).map(|n| IpAddr::from(Ipv4Addr::from_bits(n)));
            let six = (0..v6).map(|n| IpAddr::from(Ipv6Addr::from_bits(n)));
            Addresses::new(&four.chain(six).collect::<Vec<_>>())
        };
        // One IPv6 address has eight sockets.
        let error = reserve(&on(65_529, 1), 1).unwrap_err();
        assert!(error.contains("need 65537 sockets"), "{error}");
        assert_eq!(reserve(&on(100, 1), 1), Ok(()));
    }

    #[test]
    fn every_target_and_address_has_its_own_id() {
        let targets: Vec<SocketAddr> = ["127.0.0.1:1", "127.0.0.1:2", "[::1]:1", "[::1]:2"]
            .map(|target| target.parse().unwrap())
            .to_vec();
        let addresses = Addresses::new(&["127.0.0.5".parse().unwrap(), "::1".parse().unwrap()]);
        let mut ids = std::collections::BTreeMap::new();
        for family in [Family::V4, Family::V6] {
            for route in routes(&addresses, &targets, family, 0, 0) {
                assert!(ids.insert(route.id, route.target).is_none());
            }
        }
        assert_eq!(ids.len(), 4);
    }

    #[test]
    fn a_limit_that_is_too_low_is_reported_with_the_number() {
        let before = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        assert_eq!(raise_file_limit(1), Ok(()));
        // More than any system allows.
        let error = raise_file_limit(1 << 40).unwrap_err();
        assert!(error.contains(&format!("ulimit -n {}", (1u64 << 40) + OTHERS)), "{error}");
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap(), before, "the limits are unchanged");
    }
}
