//! The vCPUs: frequency governors, CPU quota, and the clock source.

use super::facts::Governor;
use super::{Facts, Finding, Severity};
use onrush_text::numbers::thousandths;

/// Clock sources that are read without a hypervisor call or a device access.
const FAST_CLOCKS: [&str; 4] =
    ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter"];

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    [governor(facts), clock(facts), Some(quota(facts))].into_iter().flatten().collect()
}

fn governor(facts: &Facts) -> Option<Finding> {
    let name = "governor";
    let worst = facts.governors.iter().max_by_key(|governor| severity_of(governor))?;
    let Governor { name: word, driver, preference } = worst;
    let chosen = preference.as_ref().map(|preference| {
        format!(
            "the hardware chooses frequencies (\"{word}\" of {driver}) and prefers \
             \"{preference}\""
        )
    });
    Some(match (severity_of(worst), chosen) {
        (Severity::Ok, Some(chosen)) if word != "performance" => Finding::ok(name, chosen),
        (Severity::Ok, _) => Finding::ok(name, "the governor keeps the vCPUs at full frequency"),
        (Severity::Note, Some(chosen)) => {
            Finding::note(name, format!("{chosen}: at low load vCPUs wake slowly"))
                .fix(
                    "cpupower set -b 0, or echo performance > energy_performance_preference of \
                     each vCPU",
                )
                .keep(
                    "run this command at boot, or set GOVERNOR=performance in \
                     /etc/default/cpufrequtils",
                )
        }
        (severity, _) => {
            let what = format!(
                "the governor is \"{word}\": at low load vCPUs run slowly, and bursts are dropped"
            );
            Finding::new(name, severity, what)
                .fix("cpupower frequency-set -g performance")
                .keep("GOVERNOR=performance in /etc/default/cpufrequtils, or cpupower.service")
        }
    })
}

/// The severity of a governor. With drivers whose hardware chooses frequencies, `powersave` names
/// that choice, not the lowest frequency (kernel, admin-guide/pm/intel_pstate, amd-pstate).
fn severity_of(governor: &Governor) -> Severity {
    let hardware_chooses = ["intel_pstate", "amd-pstate-epp"].contains(&governor.driver.as_str());
    match (governor.name.as_str(), governor.preference.as_deref()) {
        ("performance", _) => Severity::Ok,
        ("powersave", Some("performance" | "balance_performance" | "default"))
            if hardware_chooses =>
        {
            Severity::Ok
        }
        ("powersave", _) if hardware_chooses => Severity::Note,
        ("schedutil", _) => Severity::Note,
        _ => Severity::Problem,
    }
}

fn clock(facts: &Facts) -> Option<Finding> {
    let clock = facts.clock.as_deref()?;
    let name = "clock";
    Some(if FAST_CLOCKS.contains(&clock) {
        Finding::ok(name, format!("the clock source is {clock}, which is read in nanoseconds"))
    } else {
        let what = format!(
            "the clock source is {clock}, which takes over a microsecond to read, per turn of a \
             worker and per packet in the kernel"
        );
        Finding::problem(name, what)
            .fix("echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource")
            .keep(
                "clocksource=tsc on the kernel's command line, if the log does not call the TSC \
                   unstable",
            )
    })
}

fn quota(facts: &Facts) -> Finding {
    let vcpus = facts.vcpus;
    match facts.quota.filter(|quota| *quota < 1000 * vcpus) {
        None => Finding::ok("quota", format!("no CPU quota limits the {vcpus} usable vCPUs")),
        Some(quota) => {
            let what = format!(
                "a CPU quota grants {} of {vcpus} vCPUs: once it is used up all workers are \
                 stopped for the rest of 100 ms, and workers are not pinned",
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
