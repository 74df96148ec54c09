//! Room for datagrams that wait, and what did not find any.

use super::{Facts, Finding};

/// Packets per vCPU that may wait between card and stack, from which on bursts pass.
const BACKLOG: u64 = 8_192;

/// Datagrams of which one is lost, above which losses are worth a look.
const RARE: u64 = 10_000;

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    let asked = &facts.asked;
    let sides = [
        ("rmem_max", facts.rmem_max, asked.receive_buffer, "bursts of requests"),
        ("wmem_max", facts.wmem_max, asked.send_buffer, "bursts of replies"),
    ];
    for (name, limit, asked, bursts) in sides {
        let Some(limit) = limit else { continue };
        findings.push(if limit < asked {
            let what = format!(
                "sockets ask for buffers of {asked} bytes, but net.core.{name} allows {limit} bytes: \
                 {bursts} will be dropped"
            );
            Finding::problem(name, what).sysctl(&format!("net.core.{name}"), asked)
        } else {
            Finding::ok(name, format!("net.core.{name} allows the {asked} bytes that are asked for"))
        });
    }
    findings.extend(backlog(facts));
    findings.extend(drops(facts));
    findings.extend(facts.early_demux.map(|on| {
        if on {
            let what = "the kernel looks for a connected socket for each datagram before it routes it, \
                        and a tracker has none: some CPU time for nothing";
            Finding::note("early_demux", what).sysctl("net.ipv4.udp_early_demux", 0)
        } else {
            Finding::ok("early_demux", "no time is spent on looking for connected sockets")
        }
    }));
    findings
}

fn backlog(facts: &Facts) -> Option<Finding> {
    let (backlog, name) = (facts.backlog?, "backlog");
    let drops = facts.backlog_drops.unwrap_or(0);
    Some(if drops > 0 && backlog < BACKLOG {
        let what = format!(
            "{drops} packets have found the {backlog} places between card and stack taken since the \
             host was started, and were dropped"
        );
        Finding::problem(name, what).sysctl("net.core.netdev_max_backlog", 2 * BACKLOG)
    } else if backlog < BACKLOG {
        let what = format!(
            "{backlog} packets per vCPU may wait between card and stack; bursts on a fast link need more"
        );
        Finding::note(name, what).sysctl("net.core.netdev_max_backlog", 2 * BACKLOG)
    } else {
        Finding::ok(name, format!("{backlog} packets per vCPU may wait between card and stack"))
    })
}

fn drops(facts: &Facts) -> Option<Finding> {
    let udp = facts.udp?;
    let lost = udp.receive_drops + udp.send_drops;
    let what = format!(
        "of {} UDP datagrams since the host was started {} were dropped by full receive buffers, and \
         {} replies by full send buffers",
        udp.received, udp.receive_drops, udp.send_drops
    );
    let name = "drops";
    Some(match lost {
        0 => Finding::ok(name, "no UDP datagram was dropped since the host was started"),
        lost if lost > udp.received / RARE => Finding::note(
            name,
            format!("{what}: more room or more workers are needed, if it goes on"),
        )
        .fix("nstat -az UdpRcvbufErrors UdpSndbufErrors")
        .keep("socket.receive_buffer in the configuration, with net.core.rmem_max above it"),
        _ => Finding::ok(name, what),
    })
}

#[cfg(test)]
mod tests {
    use super::super::facts::{Asked, Udp};
    use super::super::{Severity, report};
    use super::*;

    fn facts() -> Facts {
        let asked = Asked { receive_buffer: 4_194_304, send_buffer: 1_048_576, ..Asked::default() };
        Facts { asked, ..Facts::default() }
    }

    #[test]
    fn a_small_limit_is_a_problem_with_the_sysctl_that_mends_it() {
        let facts = Facts { rmem_max: Some(212_992), wmem_max: Some(1_048_576), ..facts() };
        let findings = check(&facts);
        assert_eq!(
            report::severities(&findings),
            [("rmem_max", Severity::Problem), ("wmem_max", Severity::Ok)]
        );
        assert!(findings[0].what.contains("4194304 bytes") && findings[0].what.contains("212992"));
        assert_eq!(findings[0].fix.as_deref(), Some("sysctl -w net.core.rmem_max=4194304"));
        assert!(findings[0].keep.as_ref().unwrap().contains("/etc/sysctl.d/"));
    }

    #[test]
    fn a_short_backlog_hurts_when_it_has_dropped() {
        let of = |backlog, drops| {
            let facts = Facts { backlog: Some(backlog), backlog_drops: Some(drops), ..facts() };
            check(&facts)[0].severity
        };
        let found = [of(1000, 0), of(1000, 3), of(16_384, 0), of(16_384, 3)];
        assert_eq!(found, [Severity::Note, Severity::Problem, Severity::Ok, Severity::Ok]);
    }

    #[test]
    fn drops_are_noted_when_they_are_more_than_rare() {
        let of = |received, receive_drops, send_drops| {
            let udp = Udp { received, receive_drops, send_drops };
            check(&Facts { udp: Some(udp), ..facts() })[0].severity
        };
        let found =
            [of(1_000_000, 0, 0), of(1_000_000, 50, 50), of(1_000_000, 60, 41), of(5, 0, 1)];
        assert_eq!(found, [Severity::Ok, Severity::Ok, Severity::Note, Severity::Note]);
    }
}
