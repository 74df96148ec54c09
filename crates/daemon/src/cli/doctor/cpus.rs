//! The vCPUs: how fast they run, how much of them there is, how the time is read.

use super::facts::Governor;
use super::{Facts, Finding, Severity};
use onrush_config::format::thousandths;

/// Clocks that are read without asking the host or a chip.
const QUICK_CLOCKS: [&str; 4] =
    ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter"];

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    [governor(facts), clock(facts), Some(quota(facts))].into_iter().flatten().collect()
}

fn governor(facts: &Facts) -> Option<Finding> {
    let name = "governor";
    let worst = facts.governors.iter().max_by_key(|governor| weigh(governor))?;
    let Governor { name: word, driver, preference } = worst;
    let mend = |finding: Finding| {
        finding
            .fix("cpupower frequency-set -g performance")
            .keep("GOVERNOR=performance in /etc/default/cpufrequtils, or cpupower.service")
    };
    Some(match (weigh(worst), preference) {
        (Severity::Ok, Some(preference)) if word != "performance" => Finding::ok(
            name,
            format!(
                "the hardware chooses frequencies (\"{word}\" of {driver}), with a preference for \"{preference}\""
            ),
        ),
        (Severity::Ok, _) => Finding::ok(name, "vCPUs run at full frequency"),
        (Severity::Note, Some(preference)) => {
            let what = format!(
                "the hardware chooses frequencies (\"{word}\" of {driver}) and prefers \"{preference}\": at low \
                 load vCPUs are slow to wake"
            );
            Finding::note(name, what)
                .fix("cpupower set -b 0, or echo performance > energy_performance_preference of each vCPU")
                .keep("the same at each start, or GOVERNOR=performance in /etc/default/cpufrequtils")
        }
        (severity, _) => {
            let what = format!(
                "vCPUs are governed by \"{word}\": at low load they are slow to wake, and a burst meets a \
                 slow vCPU"
            );
            mend(Finding::new(name, severity, what))
        }
    })
}

/// How much a governor hurts. Of drivers whose hardware chooses frequencies by itself, `powersave` is the
/// name of that choice, and not of the lowest frequency (kernel, admin-guide/pm/intel_pstate, amd-pstate).
fn weigh(governor: &Governor) -> Severity {
    let by_itself = ["intel_pstate", "amd-pstate-epp"].contains(&governor.driver.as_str());
    match (governor.name.as_str(), governor.preference.as_deref()) {
        ("performance", _) => Severity::Ok,
        ("powersave", Some("performance" | "balance_performance" | "default")) if by_itself => {
            Severity::Ok
        }
        ("powersave", _) if by_itself => Severity::Note,
        ("schedutil", _) => Severity::Note,
        _ => Severity::Problem,
    }
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
    match facts.asked.quota.filter(|quota| *quota < 1000 * vcpus) {
        None => {
            Finding::ok("quota", format!("all of {vcpus} usable vCPUs may be used all the time"))
        }
        Some(quota) => {
            let what = format!(
                "a CPU quota grants the time of {} of {vcpus} vCPUs: when it is used up all workers stand \
                 still for the rest of 100 ms, and nothing is pinned",
                thousandths(quota)
            );
            Finding::problem("quota", what)
                .fix("systemctl set-property onrush.service CPUQuota=")
                .keep(format!(
                    "AllowedCPUs={} in the unit instead, which grants whole vCPUs",
                    match quota.div_ceil(1000) {
                        0 | 1 => "0".to_owned(),
                        whole => format!("0-{}", whole - 1),
                    }
                ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::facts::Asked;
    use super::*;

    fn governed(governors: &[(&str, &str, Option<&str>)]) -> Option<Finding> {
        let of = |&(name, driver, preference): &(&str, &str, Option<&str>)| Governor {
            name: name.into(),
            driver: driver.into(),
            preference: preference.map(str::to_owned),
        };
        governor(&Facts { governors: governors.iter().map(of).collect(), ..Facts::default() })
    }

    #[test]
    fn the_slowest_governor_counts() {
        let of = |names: &[&str]| {
            let governors: Vec<_> =
                names.iter().map(|name| (*name, "acpi-cpufreq", None)).collect();
            governed(&governors).map(|finding| finding.severity)
        };
        assert_eq!(of(&[]), None, "a virtual machine has none");
        assert_eq!(of(&["performance", "performance"]), Some(Severity::Ok));
        assert_eq!(of(&["performance", "powersave"]), Some(Severity::Problem));
        assert_eq!(of(&["powersave", "performance", "schedutil"]), Some(Severity::Problem));
        assert_eq!(of(&["schedutil"]), Some(Severity::Note));
    }

    #[test]
    fn powersave_of_hardware_that_chooses_by_itself_is_no_problem() {
        for driver in ["intel_pstate", "amd-pstate-epp"] {
            let of = |preference| governed(&[("powersave", driver, preference)]).unwrap();
            for good in ["performance", "balance_performance", "default"] {
                assert_eq!(of(Some(good)).severity, Severity::Ok, "{driver} {good}");
            }
            let slow = of(Some("balance_power"));
            assert_eq!(slow.severity, Severity::Note);
            assert!(slow.what.contains("prefers \"balance_power\""), "{}", slow.what);
            assert_eq!(of(None).severity, Severity::Note);
            assert!(of(Some("default")).what.contains(driver));
        }
        let passive = governed(&[("powersave", "intel_cpufreq", Some("performance"))]).unwrap();
        assert_eq!(passive.severity, Severity::Problem, "there it is the lowest frequency");
        assert_eq!(
            governed(&[("performance", "intel_pstate", Some("power"))]).unwrap().severity,
            Severity::Ok
        );
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
        assert_eq!(of(Some(4_000)).severity, Severity::Ok);
        let finding = of(Some(2_000));
        assert_eq!(finding.severity, Severity::Problem);
        assert!(finding.keep.unwrap().contains("AllowedCPUs=0-1 "));
        let part = of(Some(3_500));
        assert_eq!(part.severity, Severity::Problem, "half a vCPU is missing");
        assert!(part.what.contains("the time of 3.5 of 4 vCPUs"), "{}", part.what);
        assert!(of(Some(200)).keep.unwrap().contains("AllowedCPUs=0 "));
    }
}
