//! Spoofed datagrams may be sent only within a network namespace that is not the host's and has no
//! default route in its main table. Other routes, which lead to the tracker, are not judged.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The whole map of the first user namespace (user_namespaces(7)).
const FIRST_USER_NAMESPACE: [&str; 3] = ["0", "0", "4294967295"];

/// The remedy outside of such a namespace.
const ENTER: &str = "start tracker and attack in one, by `unshare --map-root-user --net sh` and \
                     `ip link set lo up` in it, or run scripts/attack-test";

/// The kernel's report about this process.
struct Facts {
    own: io::Result<PathBuf>,
    first: io::Result<PathBuf>,
    uid_map: String,
    /// /proc/self/net/route and ipv6_route.
    routes: io::Result<[String; 2]>,
}

/// Checks that this process is in such a namespace.
///
/// # Errors
/// The reason and the remedy.
pub(super) fn check() -> Result<(), String> {
    let namespace = |process: &str| fs::read_link(Path::new("/proc").join(process).join("ns/net"));
    let facts = Facts {
        own: namespace("self"),
        first: namespace("1"),
        uid_map: fs::read_to_string("/proc/self/uid_map").unwrap_or_default(),
        routes: routes(),
    };
    judge(&facts).map_err(|reason| {
        format!(
            "spoofed sources are sent only in a network namespace that is not the host's and has \
             no default route: {reason}"
        )
    })
}

fn routes() -> io::Result<[String; 2]> {
    let v4 = fs::read_to_string("/proc/self/net/route")?;
    let v6 = match fs::read_to_string("/proc/self/net/ipv6_route") {
        // A kernel without IPv6.
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        read => read?,
    };
    Ok([v4, v6])
}

fn judge(facts: &Facts) -> Result<(), String> {
    let own = facts.own.as_ref().map_err(|error| format!("/proc/self/ns/net: {error}"))?;
    match &facts.first {
        Ok(first) if first == own => {
            return Err(format!("this is the namespace of process 1; {ENTER}"));
        }
        Ok(_) => {}
        // An ordinary user may not read it. The root of a user namespace of its own can open raw
        // sockets only in network namespaces which that user namespace owns (capabilities(7)), and
        // the host's belongs to the first one.
        Err(_) if is_in_own_user_namespace(&facts.uid_map) => {}
        Err(error) => return Err(format!("/proc/1/ns/net is not readable ({error}); {ENTER}")),
    }
    let [v4, v6] = facts.routes.as_ref().map_err(|error| format!("routes in /proc: {error}"))?;
    for (command, found) in [
        ("ip route del default", v4.lines().any(is_default_v4)),
        ("ip -6 route del default", v6.lines().any(is_default_v6)),
    ] {
        if found {
            return Err(format!(
                "this one has a default route; remove it by `{command}` if it is one of yours, or \
                 {ENTER}"
            ));
        }
    }
    Ok(())
}

fn is_in_own_user_namespace(uid_map: &str) -> bool {
    let fields: Vec<_> = uid_map.split_whitespace().collect();
    !fields.is_empty() && fields != FIRST_USER_NAMESPACE
}

/// Whether a line of /proc/net/route is a default route; a discarding one has no interface.
fn is_default_v4(line: &str) -> bool {
    let fields: Vec<_> = line.split_whitespace().collect();
    matches!(fields[..], [device, "00000000", _, _, _, _, _, "00000000", ..] if device != "*")
}

/// Whether a line of /proc/net/ipv6_route is a default route. Each namespace has one that discards,
/// at the loopback device.
fn is_default_v6(line: &str) -> bool {
    let fields: Vec<_> = line.split_whitespace().collect();
    matches!(fields[..], [to, "00", .., device] if to.bytes().all(|b| b == b'0') && device != "lo")
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: &str = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\n\
                      load\t00004D0A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n";
    const V4_DEFAULT: &str = "eth0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n";
    const V4_BLACKHOLE: &str = "*\t00000000\t00000000\t0200\t0\t0\t0\t00000000\t0\t0\t0\n";
    const V6_LO: &str = "00000000000000000000000000000000 00 00000000000000000000000000000000 00 \
                         00000000000000000000000000000000 ffffffff 00000001 00000000 00200200 lo\n";
    const V6_DEFAULT: &str = "00000000000000000000000000000000 00 \
                              00000000000000000000000000000000 00 \
                              fe800000000000000000000000000001 00000400 00000001 00000000 00450003 \
                              eth0\n";
    const FIRST: &str = "         0          0 4294967295\n";

    fn judged(first: Option<&str>, uid_map: &str, v4: &str, v6: &str) -> Result<(), String> {
        let link = |text: &str| Ok(PathBuf::from(text));
        judge(&Facts {
            own: link("net:[7]"),
            first: first.map_or_else(|| Err(io::ErrorKind::PermissionDenied.into()), link),
            uid_map: uid_map.into(),
            routes: Ok([v4.into(), v6.into()]),
        })
    }

    #[test]
    fn only_an_isolated_namespace_is_accepted() {
        let own = "0 1000 1\n";
        for (first, uid_map, v4, v6, accepted) in [
            (Some("net:[1]"), FIRST, V4, V6_LO, true),
            (Some("net:[1]"), FIRST, "", "", true),
            (Some("net:[1]"), FIRST, V4_BLACKHOLE, V6_LO, true),
            (Some("net:[7]"), FIRST, V4, V6_LO, false),
            (Some("net:[7]"), own, V4, V6_LO, false),
            (Some("net:[1]"), FIRST, V4_DEFAULT, V6_LO, false),
            (Some("net:[1]"), FIRST, V4, V6_DEFAULT, false),
            (None, FIRST, V4, V6_LO, false),
            (None, "", V4, V6_LO, false),
            (None, own, V4, V6_LO, true),
            (None, own, V4_DEFAULT, V6_LO, false),
        ] {
            let found = judged(first, uid_map, v4, v6);
            assert_eq!(found.is_ok(), accepted, "{first:?} {uid_map} {v4} {v6}: {found:?}");
        }
    }

    #[test]
    fn a_refusal_names_the_remedy() {
        for (first, v4, v6, remedy) in [
            (Some("net:[7]"), V4, V6_LO, "unshare --map-root-user --net"),
            (None, V4, V6_LO, "unshare --map-root-user --net"),
            (Some("net:[1]"), V4_DEFAULT, V6_LO, "`ip route del default`"),
            (Some("net:[1]"), V4, V6_DEFAULT, "`ip -6 route del default`"),
        ] {
            let found = judged(first, FIRST, v4, v6).unwrap_err();
            assert!(found.contains(remedy), "{remedy}: {found}");
        }
    }

    #[test]
    fn unreadable_routes_are_no_isolation() {
        let facts = Facts {
            own: Ok("net:[7]".into()),
            first: Ok("net:[1]".into()),
            uid_map: FIRST.into(),
            routes: Err(io::ErrorKind::PermissionDenied.into()),
        };
        assert!(judge(&facts).unwrap_err().contains("routes"));
    }
}
