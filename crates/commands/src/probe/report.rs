//! Results of a probe as text, as a line of a monitoring plugin, as metrics and as JSON.

use std::fmt::Write as _;
use std::time::Duration;

use onrush_verify::probe::Probe;
use serde_json::{Value, json};

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
            Format::Prometheus => self.metrics(),
            Format::Json => format!("{:#}\n", self.json()),
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
            for step in &probe.answered {
                let (name, time) = (step.step.as_ref(), milliseconds(step.time));
                let _ = write!(line, " {}_{name}={time:.3}ms;{limits};0", family_label(probe));
            }
            let _ = write!(line, " {}_repeated={};;;0", family_label(probe), repeated(probe));
        }
        line + "\n"
    }

    fn metrics(&self) -> String {
        let probes = || self.probes.iter().map(|probe| (probe, family_label(probe)));
        let answers = probes().map(|(probe, family)| (family, probe.failed.is_none()));
        let times = probes().flat_map(|(probe, family)| {
            probe.answered.iter().map(move |step| {
                let labels = format!("family=\"{family}\",step=\"{}\"", step.step.as_ref());
                (labels, step.time.as_secs_f64())
            })
        });
        let repeats = probes()
            .map(|(probe, family)| (format!("family=\"{family}\""), repeated(probe) as f64));
        let durations = metric(
            self.target,
            "duration_seconds",
            "Time from the first datagram of a request to its reply.",
            times,
        );
        let repeats = metric(
            self.target,
            "repeated_datagrams",
            "Datagrams of answered requests that were sent again, as no reply came in time.",
            repeats,
        );
        success(self.target, answers) + &durations + &repeats
    }

    fn json(&self) -> Value {
        let probes = self.probes.iter().map(|probe| {
            let steps = probe.answered.iter().map(|step| {
                json!({
                    "step": step.step.as_ref(),
                    "milliseconds": milliseconds(step.time),
                    "repeated": step.repeated,
                })
            });
            let failed = probe
                .failed
                .as_ref()
                .map(|(step, why)| json!({ "step": step.as_ref(), "error": why.to_string() }));
            json!({
                "family": family_label(probe),
                "address": probe.address.to_string(),
                "answered": steps.collect::<Vec<_>>(),
                "failed": failed,
            })
        });
        json!({
            "target": self.target,
            "verdict": self.verdict().word(),
            "probes": probes.collect::<Vec<_>>(),
        })
    }
}

/// The metric of whether a tracker answers over each family, in the text format of Prometheus.
pub(super) fn success<'a>(target: &str, families: impl Iterator<Item = (&'a str, bool)>) -> String {
    metric(
        target,
        "success",
        "Whether the tracker answered a connect, an announce and a scrape.",
        families.map(|(family, answers)| {
            (format!("family=\"{family}\""), f64::from(u8::from(answers)))
        }),
    )
}

/// A metric with its samples: labels beside the target, and values.
fn metric(
    target: &str,
    name: &str,
    help: &str,
    samples: impl Iterator<Item = (String, f64)>,
) -> String {
    let target = target.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let name = format!("onrush_probe_{name}");
    let mut text = format!("# HELP {name} {help}\n# TYPE {name} gauge\n");
    for (labels, value) in samples {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name}{{target=\"{target}\",{labels}}} {value}");
    }
    text
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

/// The family in names and labels of metrics.
pub(super) fn label(ipv4: bool) -> &'static str {
    if ipv4 { "ipv4" } else { "ipv6" }
}

fn family_label(probe: &Probe) -> &'static str {
    label(probe.address.is_ipv4())
}
