//! The checks of `[xdp]`.

use onrush_net::xdp::device::{Device, Driver, XdpSupport};

use super::*;

/// A host whose eth0 has four queues and can do everything, and a VLAN on it.
fn with_xdp(keys: &str) -> (Facts, Made) {
    let made = card(4, 0, &["0\n", "1\n"]);
    let settings = format!("xdp = {{ {keys} }}\nworkers = {{ total = 2 }}");
    let device = Device { index: 2, name: "eth0".into(), mtu: 1500, ..Device::default() };
    let vlan = Device { name: "eth0.7".into(), vlan: Some((2, 7)), ..Device::default() };
    let xdp = Some(XdpSupport::ZeroCopy);
    let driver = Driver { xdp, ring: Some([2048, 4096]), ..Driver::default() };
    let interfaces = vec![(device, driver), (vlan, Driver::default())];
    (Facts { interfaces, ..made.look(&settings, false) }, made)
}

const ETH0: &str = "interfaces = ['eth0']";

#[track_caller]
fn finds_of_xdp(severity: Severity, part: &str, change: impl FnOnce(&mut Facts)) {
    let (mut facts, _made) = with_xdp(ETH0);
    change(&mut facts);
    finds_in(&facts, "xdp", severity, part);
}

#[test]
fn interfaces_of_xdp_are_checked() {
    finds_of_xdp(Severity::Ok, "eth0 () has native XDP and zero-copy", |_| {});
    finds_of_xdp(Problem, "ip link", |facts| facts.interfaces.clear());
    finds_of_xdp(Problem, "generic", |facts| facts.interfaces[0].1.xdp = Some(XdpSupport::Generic));
    finds_of_xdp(Problem, "program (id 9)", |facts| facts.interfaces[0].0.program = Some(9));
    finds_of_xdp(Severity::Ok, "", |facts| {
        (facts.tracker, facts.interfaces[0].0.program) = (Some(77), Some(9));
    });
    finds_of_xdp(Problem, "is 1279: AF_XDP needs 1280", |facts| facts.interfaces[0].0.mtu = 1_279);
    finds_of_xdp(Note, "many drivers", |facts| facts.interfaces[0].0.mtu = 9_000);
    finds_of_xdp(Problem, "lro off", |facts| facts.interfaces[0].1.joins_packets = true);
    finds_of_xdp(Problem, "rxvlan off", |facts| facts.interfaces[0].1.removes_tags = true);
    finds_of_xdp(Note, "-G eth0 rx 1024", |facts| facts.interfaces[0].1.ring = Some([256, 4096]));
    finds_of_xdp(Severity::Ok, "", |facts| facts.interfaces[0].1.ring = Some([256, 256]));
    finds_of_xdp(Note, "4 queues for 3 workers", |facts| {
        facts.settings.placement = Placement::Split { socket_workers: 3, swarm_workers: 1 };
    });
}

/// What concerns all interfaces follows those.
#[test]
fn kernel_memory_and_firewall_matter_to_xdp() {
    let last = |files: &[(&str, &str)], change: fn(&mut Facts)| {
        let (mut facts, made) = with_xdp(ETH0);
        files.iter().for_each(|(path, text)| made.file(path, text));
        change(&mut facts);
        let mut of_xdp = checks(&facts).into_iter().filter(|finding| finding.name == "xdp");
        of_xdp.next_back().unwrap()
    };
    is(last(&[("proc/sys/kernel/osrelease", "5.15.0-91\n")], |_| {}), Problem, "Linux 6.1 or");
    let locks = |facts: &mut Facts| (facts.root, facts.memory_lock) = (Some(false), Some(8 << 20));
    is(last(&[], locks), Problem, "4 queues need 64 MiB of locked memory");
    is(last(&[], locks), Problem, "LimitMEMLOCK=67108864");
    is(last(&[], |facts| facts.memory_lock = Some(8 << 20)), Severity::Ok, "");
    is(last(&[("proc/net/ip_tables_names", "filter\n")], |_| {}), Note, "access.blocked");
    is(last(&[("proc/net/ip_tables_names", "\n")], |_| {}), Severity::Ok, "");
}

#[test]
fn without_interfaces_the_one_of_the_default_route_is_described() {
    let (facts, made) = with_xdp("");
    assert_eq!(found(&facts, "xdp"), None);
    let route = "Iface\tDestination\tGateway\nlo\t0000007F\t0\neth0\t00000000\t010000C0\n";
    made.file("proc/net/route", route);
    finds_in(&facts, "xdp", Severity::Ok, "XDP is off; the driver of eth0");
    assert_eq!(found(&Facts { quick: true, ..facts }, "xdp"), None);
}
