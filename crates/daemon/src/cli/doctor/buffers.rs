//! Buffers of sockets and of the network stack, and the drops when they are full.

use super::{Facts, Finding};

/// Packets per vCPU queued between card and network stack that are enough for bursts.
const BACKLOG: u64 = 8_192;

/// One drop in this many datagrams is tolerated.
const RARE: u64 = 10_000;

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    let needs = &facts.needs;
    let sides = [
        ("rmem_max", facts.rmem_max, needs.receive_buffer, "bursts of requests"),
        ("wmem_max", facts.wmem_max, needs.send_buffer, "bursts of replies"),
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
    Some(if drops > 0 && backlog < BACKLOG {
        let what = format!(
            "{drops} packets were dropped since boot because the queue of {backlog} packets \
             between card and network stack was full"
        );
        Finding::problem(name, what).sysctl("net.core.netdev_max_backlog", 2 * BACKLOG)
    } else if backlog < BACKLOG {
        let what = format!(
            "{backlog} packets per vCPU fit between card and network stack; bursts on a fast link \
             need more"
        );
        Finding::note(name, what).sysctl("net.core.netdev_max_backlog", 2 * BACKLOG)
    } else {
        Finding::ok(name, format!("{backlog} packets per vCPU fit between card and network stack"))
    })
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

#[cfg(test)]
mod tests {
    use super::super::facts::{Needs, Udp};
    use super::super::{Severity, report};
    use super::*;

    fn facts() -> Facts {
        let needs = Needs { receive_buffer: 4_194_304, send_buffer: 1_048_576, ..Needs::default() };
        Facts { needs, ..Facts::default() }
    }

    #[test]
    fn a_small_limit_is_a_problem_with_the_sysctl_that_fixes_it() {
        let facts = Facts { rmem_max: Some(212_992), wmem_max: Some(1_048_576), ..facts() };
        let findings = check(&facts);
        assert_eq!(
            report::severities(&findings),
            [("rmem_max", Severity::Problem), ("wmem_max", Severity::Ok)]
        );
        assert!(findings[0].what.contains("4194304") && findings[0].what.contains("212992"));
        assert_eq!(findings[0].fix.as_deref(), Some("sysctl -w net.core.rmem_max=4194304"));
        assert!(findings[0].keep.as_ref().unwrap().contains("/etc/sysctl.d/"));
    }

    #[test]
    fn a_short_backlog_is_a_problem_once_it_has_dropped() {
        let of = |backlog, drops| {
            let facts = Facts { backlog: Some(backlog), backlog_drops: Some(drops), ..facts() };
            check(&facts)[0].severity
        };
        let found = [of(1000, 0), of(1000, 3), of(16_384, 0), of(16_384, 3)];
        assert_eq!(found, [Severity::Note, Severity::Problem, Severity::Ok, Severity::Ok]);
    }

    #[test]
    fn more_than_rare_drops_are_a_note() {
        let of = |received, receive_drops, send_drops| {
            let udp = Udp { received, receive_drops, send_drops };
            check(&Facts { udp: Some(udp), ..facts() })[0].severity
        };
        let found =
            [of(1_000_000, 0, 0), of(1_000_000, 50, 50), of(1_000_000, 60, 41), of(5, 0, 1)];
        assert_eq!(found, [Severity::Ok, Severity::Ok, Severity::Note, Severity::Note]);
    }
}
