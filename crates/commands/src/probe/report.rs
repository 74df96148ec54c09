//! Results of a probe as text, and as a line of a monitoring plugin.

use std::fmt::Write as _;
use std::time::Duration;

use onrush_verify::probe::Probe;

use super::Format;
use crate::format::escaped;

/// The states of a monitoring plugin; each is its exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Verdict {
    /// Every family answers within the limits.
    Ok = 0,
    /// A family does not answer and the other does, or a request takes longer than the lower limit.
    Warning = 1,
    /// No family answers, or a request takes longer than the upper limit.
    Critical = 2,
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Warning => "WARNING",
            Self::Critical => "CRITICAL",
        }
    }
}

/// The probes of a tracker, one for each family.
pub(super) struct Report<'a> {
    pub(super) target: &'a str,
    pub(super) probes: Vec<Probe>,
    /// Upper bounds on the time of a request, in milliseconds.
    pub(super) warning: Option<f64>,
    pub(super) critical: Option<f64>,
}

impl Report<'_> {
    pub(super) fn verdict(&self) -> Verdict {
        let failed = self.probes.iter().filter(|probe| probe.failed.is_some()).count();
        let slowest = self.slowest();
        let exceeds = |limit: Option<f64>| limit.is_some_and(|limit| slowest > limit);
        if failed == self.probes.len() || exceeds(self.critical) {
            Verdict::Critical
        } else if failed > 0 || exceeds(self.warning) {
            Verdict::Warning
        } else {
            Verdict::Ok
        }
    }

    /// The time of the slowest request, in milliseconds.
    fn slowest(&self) -> f64 {
        let answered = self.probes.iter().flat_map(|probe| &probe.answered);
        answered.map(|step| milliseconds(step.time)).fold(0.0, f64::max)
    }

    pub(super) fn text(&self, format: Format) -> String {
        match format {
            Format::Text => self.lines(),
            Format::Nagios => self.plugin_line(),
        }
    }

    /// The state and its reasons, without the address of the tracker.
    fn summary(&self) -> String {
        let mut reasons: Vec<String> = Vec::new();
        for probe in &self.probes {
            if let Some((step, why)) = &probe.failed {
                reasons.push(format!("{}: {} failed: {why}", family(probe), step.as_ref()));
            }
        }
        let answering: Vec<_> =
            self.probes.iter().filter(|probe| probe.failed.is_none()).map(family).collect();
        if !answering.is_empty() {
            let families = answering.join(" and ");
            reasons.push(format!("{families}: answered in at most {:.1} ms", self.slowest()));
        }
        let repeated: u64 = self.probes.iter().map(repeated).sum();
        if repeated > 0 {
            reasons.push(format!("datagrams repeated: {repeated}"));
        }
        format!("{}: {}", self.verdict().word(), reasons.join("; "))
    }

    fn lines(&self) -> String {
        let mut text = format!("{}\n", escaped(self.target));
        for probe in &self.probes {
            let _ = writeln!(text, "  {} {}", family(probe), probe.address);
            for step in &probe.answered {
                let again = match step.repeated {
                    0 => String::new(),
                    repeated => format!("  (repeated {repeated} times)"),
                };
                let (name, time) = (step.step.as_ref(), milliseconds(step.time));
                let _ = writeln!(text, "    {name:<9} {time:>8.1} ms{again}");
            }
            if let Some((step, why)) = &probe.failed {
                let _ = writeln!(text, "    {:<9} failed: {why}", step.as_ref());
            }
        }
        text + &self.summary() + "\n"
    }

    /// State, text, and performance data: 'label'=value[unit];warning;critical;minimum.
    fn plugin_line(&self) -> String {
        // A bar begins the performance data.
        let mut line = format!("{} |", self.summary().replace('|', "/"));
        let limit = |limit: Option<f64>| limit.map_or_else(String::new, |limit| limit.to_string());
        let limits = format!("{};{}", limit(self.warning), limit(self.critical));
        for probe in &self.probes {
            let family = family(probe).to_lowercase();
            for step in &probe.answered {
                let (name, time) = (step.step.as_ref(), milliseconds(step.time));
                let _ = write!(line, " {family}_{name}={time:.3}ms;{limits};0");
            }
            let _ = write!(line, " {family}_repeated={};;;0", repeated(probe));
        }
        line + "\n"
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn repeated(probe: &Probe) -> u64 {
    probe.answered.iter().map(|step| step.repeated).sum()
}

fn family(probe: &Probe) -> &'static str {
    if probe.address.is_ipv4() { "IPv4" } else { "IPv6" }
}
