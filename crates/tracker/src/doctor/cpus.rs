//! The vCPUs: how fast they run, how much of them there is, how the time is read.

use super::{Facts, Finding};

/// Clocks that are read without asking the host or a chip.
const QUICK_CLOCKS: [&str; 4] =
    ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter"];

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    [governor(facts), clock(facts), Some(quota(facts))].into_iter().flatten().collect()
}

fn governor(facts: &Facts) -> Option<Finding> {
    let name = "governor";
    let slow = facts.governors.iter().find(|governor| *governor != "performance");
    Some(match (slow, facts.governors.first()) {
        (_, None) => return None,
        (None, Some(_)) => Finding::ok(name, "vCPUs run at full frequency"),
        (Some(slow), _) => {
            let what = format!(
                "vCPUs are governed by \"{slow}\": at low load they are slow to wake, and a burst meets a \
                 slow vCPU"
            );
            let finding = if slow == "schedutil" {
                Finding::note(name, what)
            } else {
                Finding::problem(name, what)
            };
            finding
                .fix("cpupower frequency-set -g performance")
                .keep("GOVERNOR=performance in /etc/default/cpufrequtils, or cpupower.service")
        }
    })
}

fn clock(facts: &Facts) -> Option<Finding> {
    let clock = facts.clock.as_deref()?;
    let name = "clock";
    Some(if QUICK_CLOCKS.contains(&clock) {
        Finding::ok(name, format!("the clock is {clock}, which is read in some nanoseconds"))
    } else {
        let what = format!(
            "the clock is {clock}, which takes a microsecond and more to read, once a turn and for each \
             packet in the kernel"
        );
        Finding::problem(name, what)
            .fix("echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource")
            .keep("clocksource=tsc on the kernel's command line, if the log does not call the TSC unstable")
    })
}

fn quota(facts: &Facts) -> Finding {
    let vcpus = facts.asked.vcpus;
    match facts.asked.quota.filter(|quota| *quota < vcpus) {
        None => {
            Finding::ok("quota", format!("all of {vcpus} usable vCPUs may be used all the time"))
        }
        Some(quota) => {
            let what = format!(
                "a CPU quota grants the time of {quota} of {vcpus} vCPUs: when it is used up all workers \
                 stand still for the rest of 100 ms, and nothing is pinned"
            );
            Finding::problem("quota", what)
                .fix("systemctl set-property onrush.service CPUQuota=")
                .keep(format!(
                    "AllowedCPUs=0-{} in the unit instead, which grants whole vCPUs",
                    quota - 1
                ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Severity;
    use super::super::facts::Asked;
    use super::*;

    #[test]
    fn the_slowest_governor_counts() {
        let of = |governors: &[&str]| {
            let governors = governors.iter().map(|word| (*word).to_owned()).collect();
            governor(&Facts { governors, ..Facts::default() }).map(|finding| finding.severity)
        };
        assert_eq!(of(&[]), None, "a virtual machine has none");
        assert_eq!(of(&["performance", "performance"]), Some(Severity::Ok));
        assert_eq!(of(&["performance", "powersave"]), Some(Severity::Problem));
        assert_eq!(of(&["schedutil"]), Some(Severity::Note));
    }

    #[test]
    fn a_clock_that_asks_a_chip_is_a_problem() {
        let of = |word: &str| {
            let clock_name = Some(word.to_owned());
            clock(&Facts { clock: clock_name, ..Facts::default() }).unwrap().severity
        };
        assert_eq!((of("tsc"), of("hpet")), (Severity::Ok, Severity::Problem));
    }

    #[test]
    fn a_quota_below_the_vcpus_is_a_problem() {
        let of = |quota_of| {
            let asked = Asked { vcpus: 4, quota: quota_of, ..Asked::default() };
            quota(&Facts { asked, ..Facts::default() })
        };
        assert_eq!(of(None).severity, Severity::Ok);
        assert_eq!(of(Some(4)).severity, Severity::Ok);
        let finding = of(Some(2));
        assert_eq!(finding.severity, Severity::Problem);
        assert!(finding.keep.unwrap().contains("AllowedCPUs=0-1"));
    }
}
