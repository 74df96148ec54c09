//! Checks of the network: cards, connection tracking, buffers, the tracker's ports and its name.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::facts::{Card, Conntrack, Record, Records, ports};
use super::{Facts, Finding};
use crate::ports::Holder;

/// Packets per vCPU queued between card and network stack that are enough for bursts.
const BACKLOG: u64 = 8_192;
/// One drop in this many datagrams is tolerated.
const RARE: u64 = 10_000;
/// Percentage of the table of connection tracking from which it is about to overflow.
const NEARLY_FULL: u64 = 90;

/// The findings, in the order of a packet's path.
pub(super) fn checks(facts: &Facts) -> Vec<Finding> {
    let socket = &facts.settings.socket;
    let (receive, send) = (socket.receive_buffer as u64, socket.send_buffer as u64);
    let ports = ports(&facts.settings);
    let host = [
        rfs(facts),
        Some(conntrack(facts, &ports)),
        buffer("rmem_max", facts.rmem_max, receive, "bursts of requests"),
        buffer("wmem_max", facts.wmem_max, send, "bursts of replies"),
        backlog(facts),
        drops(facts),
        early_demux(facts),
    ];
    let cards = facts.cards.iter().map(|it| card(it, facts.vcpus));
    let held = ports.iter().map(|port| holder(*port, &facts.holders));
    cards.chain(host.into_iter().flatten()).chain(held).collect()
}

/// The vCPUs that the packets of a card reach.
fn card(card: &Card, vcpus: u64) -> Finding {
    let Card { name, queues, rps_queues, interrupts } = card;
    let first = interrupts.first();
    // The other interrupts of a card with one queue are rare.
    let all_on_one = *queues > 1
        && interrupts.len() > 1
        && first.is_some_and(|cpus| cpus.len() == 1)
        && interrupts.iter().all(|i| Some(i) == first);
    if all_on_one && vcpus > 1 {
        let cpu = first.map_or(0, |cpus| cpus[0]);
        let what = format!(
            "all {} interrupts of {name} reach vCPU {cpu} only: it saturates while others are idle",
            interrupts.len()
        );
        return Finding::problem("cards", what)
            .fix("systemctl start irqbalance")
            .keep("systemctl enable irqbalance, or set /proc/irq/N/smp_affinity_list at boot");
    }
    if *queues > 1 && *rps_queues > 0 {
        let what = format!(
            "{name} has {queues} queues, and RPS moves the packets of {rps_queues} of them again: \
             a third more CPU time per packet (measured)"
        );
        return Finding::note("cards", what).fix(format!(
            "for q in /sys/class/net/{name}/queues/rx-*; do echo 0 > $q/rps_cpus; done"
        ));
    }
    if *queues == 1 && *rps_queues == 0 && vcpus > 1 {
        let what = format!(
            "{name} has one queue, so one vCPU receives all packets of {vcpus}: it saturates first"
        );
        return Finding::note("cards", what).fix(format!(
            "ethtool -L {name} combined {vcpus}, or if the card has one queue only: echo {} > \
             /sys/class/net/{name}/queues/rx-0/rps_cpus",
            mask(vcpus)
        ));
    }
    Finding::ok("cards", format!("{name} spreads packets over {queues} queues"))
}

/// The first `vcpus` of them as the kernel writes sets: words of 32 bits, the highest first.
fn mask(vcpus: u64) -> String {
    let words = vcpus.div_ceil(32).max(1);
    let word = |index: u64| {
        let bits = vcpus.saturating_sub(32 * index).min(32);
        format!("{:x}", (1u64 << bits) - 1)
    };
    (0..words).rev().map(word).collect::<Vec<_>>().join(",")
}

/// Receive flow steering: moves packets to the vCPU that reads the socket of their flow.
fn rfs(facts: &Facts) -> Option<Finding> {
    let entries = facts.flow_entries?;
    if entries == 0 {
        return Some(Finding::ok("rfs", "RFS is off"));
    }
    let what = format!(
        "RFS is on (net.core.rps_sock_flow_entries = {entries}): it learns from connected \
         sockets, which a tracker does not have, so it costs a look-up per packet for no use"
    );
    Some(Finding::note("rfs", what).sysctl("net.core.rps_sock_flow_entries", 0))
}

/// Connection tracking of the tracker's ports: a table that a flood fills, and CPU time for no use.
fn conntrack(facts: &Facts, ports: &BTreeSet<u16>) -> Finding {
    let name = "conntrack";
    let Some(Conntrack { entries, max, of_tracker }) = facts.conntrack else {
        return Finding::ok(name, "connection tracking is not loaded");
    };
    // The module tracks nothing until a firewall rule needs it.
    if entries == 0 {
        return Finding::ok(name, "connection tracking is loaded and tracks nothing");
    }
    let table = format!("{entries} of {max} entries in use");
    let nearly_full = entries.saturating_mul(100) >= max.saturating_mul(NEARLY_FULL);
    match of_tracker {
        // An entry lasts 30 s, so the table says nothing of a port without traffic.
        Some(0) if facts.tracker.is_some() => Finding::ok(
            name,
            format!(
                "no client of the tracker is tracked, if any sent a request in the last 30 s \
                 ({table})"
            ),
        ),
        Some(0) => Finding::note(
            name,
            format!(
                "connection tracking is active ({table}): run this again while the tracker has \
                 clients"
            ),
        ),
        Some(tracked) => {
            let what = format!(
                "{tracked} clients of the tracker are tracked ({table}): each takes an entry for \
                 30 s and about 15 % of CPU time, and a full table drops packets"
            );
            notrack(Finding::problem(name, what), ports)
        }
        None if nearly_full => {
            let what =
                format!("the table is nearly full ({table}), and a full table drops packets");
            notrack(Finding::problem(name, what), ports)
        }
        None => {
            let what = format!(
                "connection tracking is active ({table}), and its table cannot be read: the \
                 tracker's port should not be tracked"
            );
            Finding::note(name, what).fix("conntrack -L -p udp, as root, lists what is tracked")
        }
    }
}

/// The remedy: rules that exempt requests and replies of these ports.
fn notrack(finding: Finding, ports: &BTreeSet<u16>) -> Finding {
    let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
    let ports = ports.join(", ");
    finding
        .fix(format!(
            "nft add table inet onrush; \
             nft add chain inet onrush early '{{ type filter hook prerouting priority raw; }}'; \
             nft add chain inet onrush early_out '{{ type filter hook output priority raw; }}'; \
             nft add rule inet onrush early udp dport '{{ {ports} }}' notrack; \
             nft add rule inet onrush early_out udp sport '{{ {ports} }}' notrack"
        ))
        .keep(
            "the same rules in /etc/nftables.conf, which must also accept the port in both \
             directions",
        )
}

/// The limit on the size of a socket's buffer, in bytes.
fn buffer(name: &'static str, limit: Option<u64>, wanted: u64, bursts: &str) -> Option<Finding> {
    let limit = limit?;
    if limit >= wanted {
        let what = format!("net.core.{name} allows the {wanted} bytes needed");
        return Some(Finding::ok(name, what));
    }
    let what = format!(
        "sockets need buffers of {wanted} bytes, and net.core.{name} allows {limit}: {bursts} \
         will be dropped"
    );
    Some(Finding::problem(name, what).sysctl(&format!("net.core.{name}"), wanted))
}

/// The queue between card and network stack.
fn backlog(facts: &Facts) -> Option<Finding> {
    let (backlog, name) = (facts.backlog?, "backlog");
    let fit = format!("{backlog} packets per vCPU fit between card and network stack");
    if backlog >= BACKLOG {
        return Some(Finding::ok(name, fit));
    }
    let finding = match facts.backlog_drops {
        None | Some(0) => Finding::note(name, format!("{fit}; bursts on a fast link need more")),
        Some(drops) => Finding::problem(
            name,
            format!(
                "{drops} packets were dropped since boot because the queue of {backlog} packets \
                 between card and network stack was full"
            ),
        ),
    };
    Some(finding.sysctl("net.core.netdev_max_backlog", 2 * BACKLOG))
}

/// Datagrams that full buffers of sockets have dropped.
fn drops(facts: &Facts) -> Option<Finding> {
    let (udp, name) = (facts.udp?, "drops");
    let lost = udp.receive_drops + udp.send_drops;
    if lost == 0 {
        return Some(Finding::ok(name, "no UDP datagram was dropped since boot"));
    }
    let what = format!(
        "of {} UDP datagrams since boot {} were dropped by full receive buffers, and {} replies by \
         full send buffers",
        udp.received, udp.receive_drops, udp.send_drops
    );
    if lost <= udp.received / RARE {
        return Some(Finding::ok(name, what));
    }
    let what = format!("{what}: if the numbers grow, enlarge the buffers or add workers");
    Some(
        Finding::note(name, what)
            .fix("nstat -az UdpRcvbufErrors UdpSndbufErrors")
            .keep("socket.receive_buffer in the configuration, with net.core.rmem_max above it"),
    )
}

fn early_demux(facts: &Facts) -> Option<Finding> {
    let name = "early_demux";
    if !facts.early_demux? {
        return Some(Finding::ok(name, "the kernel does not look up connected sockets"));
    }
    let what = "the kernel looks up a connected socket for each datagram, which a tracker does not \
                have: CPU time for no use";
    Some(Finding::note(name, what).sysctl("net.ipv4.udp_early_demux", 0))
}

/// A port of the tracker: free, or held by which process.
fn holder(port: u16, holders: &[Holder]) -> Finding {
    let name = "port";
    let holders: Vec<_> = holders.iter().filter(|it| it.address.port() == port).collect();
    if holders.is_empty() {
        return Finding::ok(name, format!("UDP port {port} is free"));
    }
    let mut processes = holders.iter().flat_map(|holder| &holder.processes);
    let is_tracker = |name: &str| name == "onrush" || name == "systemd";
    if let Some(other) = processes.clone().find(|process| !is_tracker(&process.name)) {
        let what = format!("UDP port {port} is held by {other}: the tracker will not start");
        return Finding::problem(name, what).fix(format!(
            "`systemctl status {}` shows it: stop it if it is not needed, or set `listen` to \
             another port",
            other.id
        ));
    }
    match processes.next() {
        Some(tracker) => Finding::ok(name, format!("UDP port {port} is served by {tracker}")),
        None => {
            let what = format!("UDP port {port} is held by a process that this user may not see");
            Finding::note(name, what).fix(format!("ss -ulpn 'sport = :{port}'"))
        }
    }
}

/// The addresses of the tracker's name against those that the tracker listens on.
pub(super) fn records(facts: &Facts) -> Vec<Finding> {
    let Some(Records { name, found }) = &facts.records else { return Vec::new() };
    let why = match found {
        Ok(records) if !records.is_empty() => {
            return records.iter().map(|it| record(name, it, facts)).collect();
        }
        Ok(_) => "no address",
        Err(why) => why,
    };
    let what = format!("{name} does not resolve: {why}");
    vec![Finding::problem("dns", what).fix(format!("dig A {name}; dig AAAA {name}"))]
}

fn record(name: &str, Record { address, is_local }: &Record, facts: &Facts) -> Finding {
    let (kind, family) = if address.is_ipv4() { ("A", "IPv4") } else { ("AAAA", "IPv6") };
    let record = format!("{name} has the {kind} record {address}");
    let mut listen = facts.settings.listen.iter().map(|listen| listen.address.ip());
    let serves =
        |ip: IpAddr| ip == *address || ip.is_unspecified() && ip.is_ipv4() == address.is_ipv4();
    if !listen.clone().any(|ip| ip.is_ipv4() == address.is_ipv4()) {
        let what = format!(
            "{record}, and the tracker does not listen over {family}: clients that try it get no \
             reply"
        );
        return Finding::problem("dns", what)
            .fix(format!("add an {family} address to `listen`, or remove the {kind} record"));
    }
    if !is_local {
        let what = format!(
            "{record}, which is no address of this host: right only behind a router that \
             translates it"
        );
        return Finding::note("dns", what).fix("ip addr; correct the record if it is wrong");
    }
    if !listen.any(serves) {
        let what = format!("{record}, and `listen` does not have it");
        return Finding::problem("dns", what).fix(format!("add {address} to `listen`"));
    }
    Finding::ok("dns", format!("{record}, which the tracker listens on"))
}
