//! Checks of the interfaces of `[xdp]`. Without any: which XDP the interface of the default route
//! has. Interrupts that reach one vCPU are found by the check of cards.

use std::fs;
use std::path::Path;

use onrush_config::settings::XdpMode;
use onrush_net::xdp::device::{Device, Driver, OLDEST, XdpSupport, is_too_old};
use onrush_text::numbers::bytes;

use super::Severity::{self, Note, Problem};
use super::facts::{Files, name};
use super::network::receive_queues;
use super::{Facts, Finding};

const NAME: &str = "xdp";
/// The smallest MTU of IPv6, which AF_XDP sockets need (RFC 8200, section 5).
const LEAST_MTU: u32 = 1_280;
/// The largest frame that the program reads.
const LARGEST_FRAME: u32 = 1_700;
/// Frames in a card's ring that are enough for bursts.
const RING: u32 = 1_024;
/// Bytes of a queue's frames for each entry of its rings.
const ENTRY_BYTES: u64 = 8 << 10;

pub(super) fn checks(facts: &Facts) -> Vec<Finding> {
    let (names, files) = (&facts.settings.xdp.interfaces, &facts.files);
    if facts.quick {
        return Vec::new();
    }
    if names.is_empty() {
        let of_route = default_route(files).and_then(|name| find(facts, &name));
        let what = of_route.map(|it| format!("XDP is off; {}", described(files, it)));
        return what.into_iter().map(|what| Finding::ok(NAME, what)).collect();
    }
    let ([major, minor], release) = (OLDEST, files.text("proc/sys/kernel/osrelease"));
    let release = release.unwrap_or_default();
    let queues: usize = names.iter().map(|name| queue_count(files, name)).sum();
    let needed = queues as u64 * u64::from(facts.settings.xdp.ring) * ENTRY_BYTES;
    // Memory of root is not counted.
    let limit = facts.memory_lock.filter(|_| facts.root == Some(false)).unwrap_or(u64::MAX);
    let of_all = [
        (
            is_too_old(&release),
            Problem,
            format!("Linux {release} is too old for XDP: the UDP sockets serve without it"),
            format!("use Linux {major}.{minor} or newer"),
        ),
        (
            limit < needed,
            Problem,
            format!(
                "{queues} queues need {} of locked memory, and the tracker may lock {}",
                bytes(needed),
                bytes(limit)
            ),
            format!("LimitMEMLOCK={needed} in the drop-in onrush-xdp.conf (docs/XDP.md)"),
        ),
        (
            has_firewall(files),
            Note,
            "the firewall does not see requests that XDP takes from an interface, nor replies to \
             them"
                .into(),
            "access.blocked in the configuration; `nft list ruleset` shows the rules".into(),
        ),
    ];
    let of_each = names.iter().flat_map(|name| interface(facts, name));
    of_each.chain(of_all.into_iter().filter_map(finding)).collect()
}

/// The findings about a configured interface.
fn interface(facts: &Facts, name: &str) -> Vec<Finding> {
    let Some(found) = find(facts, name) else {
        let what = format!("there is no interface {name}: the UDP sockets serve without it");
        return vec![Finding::problem(NAME, what).fix("`ip link` shows the names")];
    };
    let (device, driver) = found;
    let is_native = facts.settings.xdp.mode == XdpMode::Native;
    let is_below = |it: &Device| it.vlan.is_some_and(|(below, _)| below == device.index);
    let has_vlan = facts.interfaces.iter().any(|(it, _)| is_below(it));
    // The program of a tracker that runs may be its own.
    let (id, mtu) = (device.program.unwrap_or(0), device.mtu);
    let queues = queue_count(&facts.files, name);
    let workers = facts.settings.placement.socket_sides();
    let [ring, most] = driver.ring.unwrap_or_default();
    let better = most.min(RING);
    let text = described(&facts.files, found);
    let findings = [
        (
            is_native && driver.xdp == Some(XdpSupport::Generic),
            Problem,
            text.clone(),
            "mode = \"generic\" in [xdp], which gains little, or another card".into(),
        ),
        (
            id != 0 && facts.tracker.is_none(),
            Problem,
            format!("{name} has another XDP program (id {id}): the UDP sockets serve without ours"),
            format!("`bpftool prog show id {id}` names it; ip link set dev {name} xdp off"),
        ),
        (
            !(LEAST_MTU..=LARGEST_FRAME).contains(&mtu),
            if mtu < LEAST_MTU { Problem } else { Note },
            format!(
                "the MTU of {name} is {mtu}: AF_XDP needs {LEAST_MTU}, and with jumbo frames many \
                 drivers run no program"
            ),
            format!("ip link set dev {name} mtu 1500"),
        ),
        (
            driver.joins_packets,
            Problem,
            format!("{name} joins packets (LRO): many drivers run no program then"),
            format!("ethtool -K {name} lro off"),
        ),
        (
            driver.removes_tags && has_vlan,
            Problem,
            format!("{name} removes the tags of its VLANs, whose frames reach the UDP sockets"),
            format!("ethtool -K {name} rxvlan off"),
        ),
        (
            ring < better,
            Note,
            format!("a ring of {name} holds {ring} frames: bursts are dropped"),
            format!("ethtool -G {name} rx {better}"),
        ),
        (
            !queues.is_multiple_of(workers),
            Note,
            format!("{name} has {queues} queues for {workers} workers, whose loads differ"),
            format!("ethtool -L {name} combined {workers}, or as many workers as queues"),
        ),
    ];
    let findings: Vec<_> = findings.into_iter().filter_map(finding).collect();
    if findings.is_empty() { vec![Finding::ok(NAME, text)] } else { findings }
}

/// A finding if its condition holds.
fn finding((is, severity, what, fix): (bool, Severity, String, String)) -> Option<Finding> {
    is.then(|| Finding::new(NAME, severity, what).fix(fix))
}

fn find<'a>(facts: &'a Facts, name: &str) -> Option<&'a (Device, Driver)> {
    facts.interfaces.iter().find(|(device, _)| device.name == name)
}

/// The interface of the default route over IPv4.
fn default_route(files: &Files) -> Option<String> {
    files.lines("proc/net/route")?.find_map(|line| {
        let mut words = line.split_whitespace();
        let (name, destination) = (words.next()?, words.next()?);
        (destination == "00000000").then(|| name.to_owned())
    })
}

/// An interface, its driver and the XDP of that.
fn described(files: &Files, (device, driver): &(Device, Driver)) -> String {
    let link = files.root.join("sys/class/net").join(&device.name).join("device/driver");
    let of_card = fs::read_link(link).ok().map(|path| name(&path).into_owned());
    let support = match driver.xdp {
        Some(XdpSupport::ZeroCopy) => "has native XDP and zero-copy",
        Some(XdpSupport::Native) => "has native XDP without zero-copy",
        Some(XdpSupport::Generic) => "has generic XDP only",
        None => "does not report its XDP (Linux 6.3 does)",
    };
    let kind = of_card.unwrap_or_else(|| device.kind.clone());
    format!("the driver of {} ({kind}) {support}", device.name)
}

fn queue_count(files: &Files, name: &str) -> usize {
    receive_queues(files, &Path::new("sys/class/net").join(name)).len()
}

/// Whether there may be rules: those of nftables are in no file.
fn has_firewall(files: &Files) -> bool {
    let tables = ["proc/net/ip_tables_names", "proc/net/ip6_tables_names"].map(|it| files.text(it));
    tables.iter().flatten().any(|names| !names.is_empty())
        || files.root.join("sys/module/nf_tables").exists()
}
