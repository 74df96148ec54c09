//! Buffers of sockets and of the network stack, and the drops when they are full.

use super::{Facts, Finding};

/// Packets per vCPU queued between card and network stack that are enough for bursts.
const BACKLOG: u64 = 8_192;

/// One drop in this many datagrams is tolerated.
const RARE: u64 = 10_000;

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    let socket = &facts.settings.socket;
    let sides = [
        ("rmem_max", facts.rmem_max, socket.receive_buffer as u64, "bursts of requests"),
        ("wmem_max", facts.wmem_max, socket.send_buffer as u64, "bursts of replies"),
    ];
    for (name, limit, wanted, bursts) in sides {
        let Some(limit) = limit else { continue };
        findings.push(if limit < wanted {
            let what = format!(
                "sockets need buffers of {wanted} bytes, and net.core.{name} allows {limit}: \
                 {bursts} will be dropped"
            );
            Finding::problem(name, what).sysctl(&format!("net.core.{name}"), wanted)
        } else {
            Finding::ok(name, format!("net.core.{name} allows the {wanted} bytes needed"))
        });
    }
    findings.extend(backlog(facts));
    findings.extend(drops(facts));
    findings.extend(facts.early_demux.map(|on| {
        if on {
            let what = "the kernel looks up a connected socket for each datagram, which a tracker \
                        does not have: CPU time for no use";
            Finding::note("early_demux", what).sysctl("net.ipv4.udp_early_demux", 0)
        } else {
            Finding::ok("early_demux", "the kernel does not look up connected sockets")
        }
    }));
    findings
}

fn backlog(facts: &Facts) -> Option<Finding> {
    let (backlog, name) = (facts.backlog?, "backlog");
    let drops = facts.backlog_drops.unwrap_or(0);
    if backlog >= BACKLOG {
        let what = format!("{backlog} packets per vCPU fit between card and network stack");
        return Some(Finding::ok(name, what));
    }
    let finding = if drops > 0 {
        let what = format!(
            "{drops} packets were dropped since boot because the queue of {backlog} packets \
             between card and network stack was full"
        );
        Finding::problem(name, what)
    } else {
        let what = format!(
            "{backlog} packets per vCPU fit between card and network stack; bursts on a fast link \
             need more"
        );
        Finding::note(name, what)
    };
    Some(finding.sysctl("net.core.netdev_max_backlog", 2 * BACKLOG))
}

fn drops(facts: &Facts) -> Option<Finding> {
    let udp = facts.udp?;
    let lost = udp.receive_drops + udp.send_drops;
    let what = format!(
        "of {} UDP datagrams since boot {} were dropped by full receive buffers, and {} replies by \
         full send buffers",
        udp.received, udp.receive_drops, udp.send_drops
    );
    let name = "drops";
    Some(match lost {
        0 => Finding::ok(name, "no UDP datagram was dropped since boot"),
        lost if lost > udp.received / RARE => Finding::note(
            name,
            format!("{what}: if the numbers grow, enlarge the buffers or add workers"),
        )
        .fix("nstat -az UdpRcvbufErrors UdpSndbufErrors")
        .keep("socket.receive_buffer in the configuration, with net.core.rmem_max above it"),
        _ => Finding::ok(name, what),
    })
}
