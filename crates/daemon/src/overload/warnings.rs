//! Warnings of lost, refused and unsent datagrams, and of limits that are reached, each with its
//! remedy.

use std::mem;
use std::time::{Duration, Instant};

use super::limit_warnings::LimitWarnings;
use super::load::Load;
use crate::effect::Effects;
use crate::notice::{Notice, Repeats};
use onrush_config::host::QuotaPeriods;
use onrush_text::numbers::grouped;
use onrush_tracker::metrics::{Summary, UNSENT};

/// A warning of replies that the kernel did not accept is due if they are one of so many.
const UNSENT_SHARE: u64 = 100;
/// Causes of unsent replies with their remedies, in the order of [`UNSENT`].
const UNSENT_REMEDIES: [&str; UNSENT.len()] = [
    "the send buffer is full: raise net.core.wmem_max and socket.send_buffer, and check whether \
     the link is saturated",
    "a rule of a firewall or a route forbids them (EPERM, EACCES): permit what the tracker sends \
     from its ports (`nft list ruleset`, `iptables -S OUTPUT`, `ip rule`)",
    "there is no route to the clients (ENETUNREACH, EHOSTUNREACH, ENETDOWN): check `ip route` and \
     `ip address`, for IPv6 with -6",
    "the queue of the network card is full, or memory is short (ENOBUFS, ENOMEM): raise its \
     txqueuelen, and check `tc -s qdisc`",
    "they are larger than the MTU (EMSGSIZE): correct the MTU of the network card or of the route \
     (`ip link`, `ip route`), or lower announce.max_peers_v4 and announce.max_peers_v6",
    "for another cause: `strace -f -e trace=sendmmsg,sendmsg -p PID` shows it",
];

/// Why the kernel drops datagrams of a process that runs, and the remedy.
const FULL_BUFFERS: &str = "within a second because receive buffers were full";
const DROPS_REMEDY: &str = "raise net.core.rmem_max and socket.receive_buffer, or give the tracker \
                            more workers";

/// Why requests are refused as busy, and the remedy: with busy workers, and with idle ones.
const BUSY_REMEDY: &str = "the workers of their swarms do not keep up: add workers (workers.swarm \
                           where the placement is split, otherwise workers.total)";
const IDLE_REMEDY: &str = "more arrive at once than limits.batches_in_flight, or for scrapes \
                           limits.scrapes_in_flight, has room for, while the workers of their \
                           swarms are idle: raise it";

/// The remedy for requests over HTTP that are refused as busy. WebRTC swarms are those of web
/// workers.
const HTTP_REMEDY: &str = "the workers of their swarms do not keep up: add workers (http.workers \
                           for WebSocket, otherwise workers.swarm or workers.total), or raise \
                           limits.batches_in_flight and limits.scrapes_in_flight if they are idle";

/// The cause of a drop is known at most so much later.
const LATE_CAUSES: Duration = Duration::from_secs(5);

/// Counters at the previous tick.
#[derive(Debug, Default)]
pub(super) struct Warnings {
    limits: LimitWarnings,
    sent: u64,
    unsent: [u64; UNSENT.len()],
    /// The end of the last pause of this process.
    pub(super) resumed: Option<Instant>,
}

impl Warnings {
    /// Call every second with its load, and the sum of all counters.
    pub(super) fn tick(
        &mut self,
        load: &Load,
        summary: &Summary,
        now: Instant,
        effects: &mut Effects,
    ) {
        if load.lost > 0 {
            let cause = match (self.resumed, load.quota) {
                (Some(at), _) if now.duration_since(at) <= LATE_CAUSES => {
                    "while this process did not run".to_owned()
                }
                (_, QuotaPeriods { throttled: 0, .. }) => format!("{FULL_BUFFERS}: {DROPS_REMEDY}"),
                (_, QuotaPeriods { all, throttled }) => format!(
                    "{FULL_BUFFERS}: the CPU quota of its control group stopped the tracker in \
                     {throttled} of {all} periods (cpu.stat): raise CPUQuota= of the service, or \
                     cpu.max"
                ),
            };
            let notice = Notice::warn(format!(
                "the kernel dropped {} datagrams {cause}",
                grouped(load.lost)
            ));
            effects.notice(notice.with(Repeats::Limited("drops")));
        }
        let (key, remedy) = match load.refused_by_busy {
            0 => ("refused by idle", IDLE_REMEDY),
            _ => ("refused by busy", BUSY_REMEDY),
        };
        for (refused, what, key, remedy) in [
            (load.refused, "requests", key, remedy),
            (load.refused_over_http, "requests over HTTP", "refused over HTTP", HTTP_REMEDY),
        ] {
            if refused > 0 {
                let refused = grouped(refused);
                let text =
                    format!("{refused} {what} within a second were refused as busy: {remedy}");
                effects.notice(Notice::warn(text).with(Repeats::OnceAMinute(key)));
            }
        }
        self.limits.tick(summary, now, effects);
        self.check_unsent(summary, effects);
    }

    /// Warns of replies that the kernel did not accept, by cause.
    fn check_unsent(&mut self, summary: &Summary, effects: &mut Effects) {
        let before = mem::replace(&mut self.unsent, summary.unsent);
        let sent = summary.sent - mem::replace(&mut self.sent, summary.sent);
        let replies = sent + summary.unsent_in_all() - before.iter().sum::<u64>();
        for (cause, (count, before)) in summary.unsent.into_iter().zip(before).enumerate() {
            let new = count - before;
            if new > 0 && new * UNSENT_SHARE >= replies {
                let remedy = UNSENT_REMEDIES[cause];
                let (new, replies) = (grouped(new), grouped(replies));
                let text =
                    format!("{new} of {replies} replies within a second were not sent: {remedy}");
                effects.notice(Notice::warn(text).with(Repeats::OnceAMinute(UNSENT[cause])));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warned(warnings: &mut Warnings, load: &Load, summary: &Summary) -> Vec<Notice> {
        let mut effects = Effects::default();
        warnings.tick(load, summary, Instant::now(), &mut effects);
        effects.notices()
    }

    #[test]
    fn losses_and_refusals_are_reported_with_number_and_remedy() {
        let quota = QuotaPeriods { all: 10, throttled: 9 };
        for (load, number, remedy, repeats) in [
            (
                Load { lost: 1_100, ..Load::default() },
                "dropped 1,100 datagrams",
                "raise net.core.rmem_max and socket.receive_buffer",
                Repeats::Limited("drops"),
            ),
            (
                Load { lost: 11, quota, ..Load::default() },
                "dropped 11 datagrams",
                "9 of 10 periods",
                Repeats::Limited("drops"),
            ),
            (
                Load { refused: 9_000, ..Load::default() },
                "9,000 requests",
                "limits.batches_in_flight",
                Repeats::OnceAMinute("refused by idle"),
            ),
            (
                Load { refused: 9, refused_by_busy: 9, ..Load::default() },
                "9 requests",
                "workers.swarm",
                Repeats::OnceAMinute("refused by busy"),
            ),
            (
                Load { refused_over_http: 9, ..Load::default() },
                "9 requests over HTTP",
                "http.workers",
                Repeats::OnceAMinute("refused over HTTP"),
            ),
        ] {
            let notices = warned(&mut Warnings::default(), &load, &Summary::default());
            let [Notice { text, repeats: found, .. }] = &notices[..] else { panic!("{notices:?}") };
            assert!(text.contains(number) && text.contains(remedy), "{text}");
            assert!(load.quota.throttled == 0 || !text.contains("rmem_max"), "{text}");
            assert_eq!(*found, Some(repeats));
        }
        assert_eq!(warned(&mut Warnings::default(), &Load::default(), &Summary::default()), []);
    }

    #[test]
    fn unsent_replies_are_reported_by_cause() {
        let [permission, too_long] = ["permission", "too_long"]
            .map(|cause| UNSENT.iter().position(|name| *name == cause).unwrap());
        let (mut warnings, mut sum) = (Warnings::default(), Summary::default());
        for _ in 0..3 {
            // Most replies by one cause, and less than one in a hundred by the other.
            sum.unsent[permission] += 40;
            sum.unsent[too_long] += 1;
            sum.sent += 100;
            let notices = warned(&mut warnings, &Load::default(), &sum);
            let [Notice { text, repeats, .. }] = &notices[..] else { panic!("{notices:?}") };
            let parts = ["40 of 141 replies", "EPERM", "nft list ruleset"];
            assert!(parts.iter().all(|part| text.contains(part)), "{text}");
            assert_eq!(*repeats, Some(Repeats::OnceAMinute("permission")));
        }
        sum.unsent[too_long] += 2;
        let notices = warned(&mut warnings, &Load::default(), &sum);
        assert_eq!(notices.len(), 1, "{notices:?}");
        assert!(notices[0].text.contains("EMSGSIZE") && notices[0].text.contains("MTU"));
    }
}
