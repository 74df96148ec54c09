//! Checks of the network: cards, connection tracking, buffers, the tracker's ports and its name.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use onrush_net::bind::Transport;
use onrush_net::{affinity, bind};
use procfs_core::net::{Snmp, Snmp6};

use super::facts::{Files, Record, Records, is_local, name, ports};
use super::{Facts, Finding};
use onrush_config::socket_holders::Holder;

/// Packets per vCPU queued between card and network stack that are enough for bursts.
const BACKLOG: u64 = 8_192;
/// One drop in this many datagrams is tolerated.
const RARE: u64 = 10_000;
/// Percentage of the table of connection tracking from which it is about to overflow.
const NEARLY_FULL: u64 = 90;
/// Percentage of the connections in TIME_WAIT that the kernel allows from which it is about to
/// allow no more.
const NEARLY_ALL_WAIT: u64 = 80;

/// The findings, in the order of a packet's path.
pub(super) fn checks(facts: &Facts) -> Vec<Finding> {
    let (files, socket) = (&facts.files, &facts.settings.socket);
    let (receive, send) = (socket.receive_buffer as u64, socket.send_buffer as u64);
    let [udp, tcp] =
        [Transport::Udp, Transport::Tcp].map(|transport| ports(&facts.settings, transport));
    let held: Vec<_> = udp.iter().map(|port| holder(*port, &facts.holders)).collect();
    let host = [
        rfs(files),
        Some(conntrack(facts, &[("udp", udp), ("tcp", tcp)])),
        buffer(files, "rmem_max", receive, "bursts of requests"),
        buffer(files, "wmem_max", send, "bursts of replies"),
        backlog(files),
        accept_queue(facts),
        time_wait(facts),
        drops(files),
        early_demux(files),
    ];
    let cards = files.entries("sys/class/net").into_iter();
    let cards = cards.filter_map(|path| card(files, &path, facts.vcpus));
    cards.chain(host.into_iter().flatten()).chain(held).collect()
}

/// The vCPUs that the packets of a card reach: of one that is up and has a device, so no bridge,
/// tunnel or loopback.
fn card(files: &Files, path: &Path, vcpus: u64) -> Option<Finding> {
    let is_up = files.text(path.join("operstate")).is_some_and(|text| text == "up");
    if !is_up || !path.join("device").exists() {
        return None;
    }
    let card = name(path);
    let queues = receive_queues(files, path);
    let moves_packets = |queue: &&PathBuf| {
        let mask = files.text(queue.join("rps_cpus")).unwrap_or_default();
        mask.chars().any(|digit| digit.is_ascii_hexdigit() && digit != '0')
    };
    let rps_queues = queues.iter().filter(moves_packets).count();
    let queues = queues.len();
    let interrupts = interrupts(files, path);
    let first = interrupts.first();
    // The other interrupts of a card with one queue are rare.
    let all_on_one = queues > 1
        && interrupts.len() > 1
        && first.is_some_and(|cpus| cpus.len() == 1)
        && interrupts.iter().all(|i| Some(i) == first);
    if all_on_one && vcpus > 1 {
        let cpu = first.map_or(0, |cpus| cpus[0]);
        let what = format!(
            "all {} interrupts of {card} reach vCPU {cpu} only: it saturates while others are idle",
            interrupts.len()
        );
        return Some(
            Finding::problem("cards", what)
                .fix("systemctl start irqbalance")
                .keep("systemctl enable irqbalance, or set /proc/irq/N/smp_affinity_list at boot"),
        );
    }
    if queues > 1 && rps_queues > 0 {
        let what = format!(
            "{card} has {queues} queues, and RPS moves the packets of {rps_queues} of them again: \
             a third more CPU time per packet (measured)"
        );
        let fix =
            format!("for q in /sys/class/net/{card}/queues/rx-*; do echo 0 > $q/rps_cpus; done");
        return Some(Finding::note("cards", what).fix(fix));
    }
    if queues == 1 && rps_queues == 0 && vcpus > 1 {
        let what = format!(
            "{card} has one queue, so one vCPU receives all packets of {vcpus}: it saturates first"
        );
        let fix = format!(
            "ethtool -L {card} combined {vcpus}, or if the card has one queue only: echo {} > \
             /sys/class/net/{card}/queues/rx-0/rps_cpus",
            mask(vcpus)
        );
        return Some(Finding::note("cards", what).fix(fix));
    }
    Some(Finding::ok("cards", format!("{card} spreads packets over {queues} queues")))
}

pub(super) fn receive_queues(files: &Files, path: &Path) -> Vec<PathBuf> {
    let mut queues = files.entries(path.join("queues"));
    queues.retain(|queue| name(queue).starts_with("rx-"));
    queues
}

/// The vCPUs that each interrupt of a card may reach.
fn interrupts(files: &Files, path: &Path) -> Vec<Vec<usize>> {
    // The device of a virtio card is a child of the PCI device, which has the interrupts; `..`
    // follows the link, as in the kernel.
    let mut irqs = files.entries(path.join("device/msi_irqs"));
    if irqs.is_empty() {
        irqs = files.entries(path.join("device/../msi_irqs"));
    }
    let cpus = |irq: &PathBuf| {
        let text = files.text(format!("proc/irq/{}/effective_affinity_list", name(irq)))?;
        affinity::parse_list(&text)
    };
    irqs.iter().filter_map(cpus).collect()
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
fn rfs(files: &Files) -> Option<Finding> {
    let entries = files.number("proc/sys/net/core/rps_sock_flow_entries")?;
    if entries == 0 {
        return Some(Finding::ok("rfs", "RFS is off"));
    }
    let what = format!(
        "RFS is on (net.core.rps_sock_flow_entries = {entries}): it learns from connected \
         sockets, which a tracker does not have, so it costs a look-up per packet for no use"
    );
    Some(Finding::note("rfs", what).sysctl("net.core.rps_sock_flow_entries", 0))
}

/// The ports of the tracker by protocol, as the kernel and nft(8) name it.
type Ports = [(&'static str, BTreeSet<u16>); 2];

/// Connection tracking of the tracker's ports: a table that a flood fills, and CPU time for no use.
fn conntrack(facts: &Facts, ports: &Ports) -> Finding {
    let name = "conntrack";
    let number =
        |what: &str| facts.files.number(&format!("proc/sys/net/netfilter/nf_conntrack_{what}"));
    let (Some(max), Some(entries)) = (number("max"), number("count")) else {
        return Finding::ok(name, "connection tracking is not loaded");
    };
    // The module tracks nothing until a firewall rule needs it.
    if entries == 0 {
        return Finding::ok(name, "connection tracking is loaded and tracks nothing");
    }
    let table = format!("{entries} of {max} entries in use");
    let nearly_full = entries.saturating_mul(100) >= max.saturating_mul(NEARLY_FULL);
    match tracked(facts, ports) {
        // An entry of UDP lasts 30 s, so the table says nothing of a port without traffic.
        Some([0, 0]) if facts.tracker.is_some() => Finding::ok(
            name,
            format!(
                "no client of the tracker is tracked, if any sent a request in the last 30 s \
                 ({table})"
            ),
        ),
        Some([0, 0]) => Finding::note(
            name,
            format!(
                "connection tracking is active ({table}): run this again while the tracker has \
                 clients"
            ),
        ),
        Some([udp, tcp]) => {
            let kinds = [
                (udp, format!("{udp} clients over UDP, each for 30 s")),
                (tcp, format!("{tcp} connections over TCP, each until two minutes after its end")),
            ];
            let tracked: Vec<_> =
                kinds.into_iter().filter(|(number, _)| *number > 0).map(|(_, text)| text).collect();
            let what = format!(
                "entries of connection tracking ({table}) are taken by {}: this takes about 15 % \
                 of the CPU time of a datagram, and a full table drops packets",
                tracked.join(", and ")
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
                 tracker's ports should not be tracked"
            );
            let lists = for_each(ports, |protocol, _| format!("conntrack -L -p {protocol}"));
            Finding::note(name, what).fix(format!("{lists}, as root, lists what is tracked"))
        }
    }
}

/// Entries of these ports in the table of connection tracking, by protocol. Root may read the table
/// if the kernel was built with CONFIG_NF_CONNTRACK_PROCFS.
fn tracked(facts: &Facts, ports: &Ports) -> Option<[usize; 2]> {
    let table = if facts.quick { None } else { facts.files.lines("proc/net/nf_conntrack") };
    let mut counts = [0; 2];
    for line in table? {
        let words: Vec<&str> = line.split_whitespace().collect();
        for (count, (protocol, ports)) in counts.iter_mut().zip(ports) {
            *count += usize::from(words.contains(protocol) && is_ours(&words, ports));
        }
    }
    Some(counts)
}

/// Whether an entry has one of these ports, and is not of this host as the client of another one,
/// whose port may be the same.
fn is_ours(words: &[&str], ports: &BTreeSet<u16>) -> bool {
    let values = |key: &'static str| words.iter().filter_map(move |word| word.strip_prefix(key));
    let mut numbers = values("sport=").chain(values("dport=")).filter_map(|port| port.parse().ok());
    // The sources of requests and of replies.
    let are_local = values("src=").map(|address| address.parse().is_ok_and(is_local));
    numbers.any(|port| ports.contains(&port)) && !are_local.eq([true, false])
}

/// The remedy: rules that exempt requests and replies of these ports.
fn notrack(finding: Finding, ports: &Ports) -> Finding {
    let rules = for_each(ports, |protocol, ports| {
        format!(
            "nft add rule inet onrush early {protocol} dport '{{ {ports} }}' notrack; \
             nft add rule inet onrush early_out {protocol} sport '{{ {ports} }}' notrack"
        )
    });
    finding
        .fix(format!(
            "nft add table inet onrush; \
             nft add chain inet onrush early '{{ type filter hook prerouting priority raw; }}'; \
             nft add chain inet onrush early_out '{{ type filter hook output priority raw; }}'; \
             {rules}"
        ))
        .keep(
            "the same rules in /etc/nftables.conf, which must also accept the ports in both \
             directions",
        )
}

/// Commands for the ports of each protocol that has any.
fn for_each(ports: &Ports, command: impl Fn(&str, &str) -> String) -> String {
    let used = ports.iter().filter(|(_, ports)| !ports.is_empty());
    let commands = used.map(|(protocol, ports)| {
        let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
        command(protocol, &ports.join(", "))
    });
    commands.collect::<Vec<_>>().join("; ")
}

/// The limit on the size of a socket's buffer, in bytes.
fn buffer(files: &Files, name: &'static str, wanted: u64, bursts: &str) -> Option<Finding> {
    let limit = files.number(&format!("proc/sys/net/core/{name}"))?;
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
fn backlog(files: &Files) -> Option<Finding> {
    let (backlog, name) = (files.number("proc/sys/net/core/netdev_max_backlog")?, "backlog");
    let fit = format!("{backlog} packets per vCPU fit between card and network stack");
    if backlog >= BACKLOG {
        return Some(Finding::ok(name, fit));
    }
    // The second column, hexadecimal, of a line per vCPU (net/core/net-procfs.c).
    let column = |line: &str| u64::from_str_radix(line.split_whitespace().nth(1)?, 16).ok();
    let softnet = files.text("proc/net/softnet_stat").unwrap_or_default();
    let finding = match softnet.lines().filter_map(column).sum::<u64>() {
        0 => Finding::note(name, format!("{fit}; bursts on a fast link need more")),
        drops => Finding::problem(
            name,
            format!(
                "{drops} packets were dropped since boot because the queue of {backlog} packets \
                 between card and network stack was full"
            ),
        ),
    };
    Some(finding.sysctl("net.core.netdev_max_backlog", 2 * BACKLOG))
}

/// The queue of new connections over HTTP that wait for a web worker.
fn accept_queue(facts: &Facts) -> Option<Finding> {
    let (limit, name) = (facts.files.number("proc/sys/net/core/somaxconn")?, "somaxconn");
    if !facts.settings.http.is_on() {
        return None;
    }
    let (wanted, fit) = (bind::BACKLOG as u64, format!("{limit} new connections may wait"));
    if limit >= wanted {
        return Some(Finding::ok(name, fit));
    }
    let what = format!("{fit} at a listener for HTTP: further ones of a burst are dropped");
    Some(Finding::note(name, what).sysctl("net.core.somaxconn", wanted))
}

/// Ended connections of which the kernel keeps the ports for a minute, in TIME_WAIT (RFC 9293,
/// section 3.3.2): those that the tracker ended first.
fn time_wait(facts: &Facts) -> Option<Finding> {
    let (files, name) = (&facts.files, "time_wait");
    let limit = files.number("proc/sys/net/ipv4/tcp_max_tw_buckets")?;
    // Over both families (net/ipv4/proc.c).
    let counts = files.text("proc/net/sockstat")?;
    let counts = counts.lines().find_map(|line| line.strip_prefix("TCP:"))?;
    let mut counts = counts.split_whitespace().skip_while(|word| *word != "tw").skip(1);
    let waiting: u64 = counts.next()?.parse().ok()?;
    if !facts.settings.http.is_on() {
        return None;
    }
    let what = format!("{waiting} ended connections are in TIME_WAIT, of at most {limit}");
    if waiting.saturating_mul(100) < limit.saturating_mul(NEARLY_ALL_WAIT) {
        return Some(Finding::ok(name, what));
    }
    let what = format!(
        "{what}: further ones end without it, and what their clients still send is answered with \
         a reset"
    );
    Some(Finding::note(name, what).sysctl("net.ipv4.tcp_max_tw_buckets", 2 * limit))
}

/// Datagrams that full buffers of sockets have dropped, over both families; a host without IPv6 has
/// no file for it.
fn drops(files: &Files) -> Option<Finding> {
    let (v4, name) = (files.parse::<Snmp>("proc/net/snmp")?, "drops");
    let mut counts = [v4.udp_in_datagrams, v4.udp_rcvbuf_errors, v4.udp_sndbuf_errors];
    if let Some(v6) = files.parse::<Snmp6>("proc/net/snmp6") {
        let more = [v6.udp_in_datagrams, v6.udp_rcvbuf_errors, v6.udp_sndbuf_errors];
        counts.iter_mut().zip(more).for_each(|(count, more)| *count += more);
    }
    let [received, receive_drops, send_drops] = counts;
    let lost = receive_drops + send_drops;
    if lost == 0 {
        return Some(Finding::ok(name, "no UDP datagram was dropped since boot"));
    }
    let what = format!(
        "of {received} UDP datagrams since boot {receive_drops} were dropped by full receive \
         buffers, and {send_drops} replies by full send buffers"
    );
    if lost <= received / RARE {
        return Some(Finding::ok(name, what));
    }
    let what = format!("{what}: if the numbers grow, enlarge the buffers or add workers");
    Some(
        Finding::note(name, what)
            .fix("nstat -az UdpRcvbufErrors UdpSndbufErrors")
            .keep("socket.receive_buffer in the configuration, with net.core.rmem_max above it"),
    )
}

fn early_demux(files: &Files) -> Option<Finding> {
    let name = "early_demux";
    let udp = files.number("proc/sys/net/ipv4/udp_early_demux")?;
    if udp == 0 || files.number("proc/sys/net/ipv4/ip_early_demux") == Some(0) {
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
