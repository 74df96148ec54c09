//! A target whose host is not there: routers and this host itself report that, and it may pass.

use std::fs;
use std::time::Duration;

use onrush_verify::reachability::{Unreachable, check};

use crate::namespace::{in_a_namespace, ip};

#[test]
fn an_unreachable_host_is_waited_for() {
    in_a_namespace("reachability::an_unreachable_host_is_waited_for", || {
        for command in [
            "link set lo up",
            "link add here type veth peer name there",
            "link set here up",
            "link set there up",
            "address add 192.0.2.1/24 dev here",
        ] {
            ip(command);
        }
        // No host has the address, which is found out in milliseconds in place of seconds.
        fs::write("/proc/sys/net/ipv4/neigh/here/retrans_time_ms", "10").unwrap();
        let timeout = Duration::from_secs(1);
        let error = check("192.0.2.9:6969".parse().unwrap(), None, timeout).unwrap_err();
        assert!(matches!(error, Unreachable::Silent(_)), "{error}");
        // Without a route nothing was sent.
        let error = check("198.51.100.1:6969".parse().unwrap(), None, timeout).unwrap_err();
        assert!(matches!(error, Unreachable::NoRoute(..)), "{error}");
    });
}
