//! Medians over the rounds, and ratios within rounds.

use onrush_load::environment::Environment;
use onrush_load::stats::Spread;
use onrush_load::transport::{StackKind, TransportReport};

use super::{Program, TransportCase, TransportPlan, TransportRecord};
use crate::contender::unique;

/// Percent of due echoes from which all count as answered.
const ALL_PERCENT: f64 = 99.9;

/// Figures of libp2p's comparison: load, transport beside which WebRTC is, and how many times more
/// CPU time and memory WebRTC used.
pub(super) const PUBLISHED: [(&str, StackKind, &str, &str); 3] = [
    ("10x1000", StackKind::Tcp, "6 to 7", "3 to 4"),
    ("100x100", StackKind::Tcp, "4", "4"),
    ("100x100", StackKind::Quic, "2.2", "3"),
];
/// Our transport, that of go-libp2p, and the targets of CPU time per echo and of memory, under the
/// published loads.
pub(super) const PAIRS: [(StackKind, StackKind, Option<[f64; 2]>); 3] = [
    (StackKind::Tls, StackKind::Tcp, Some([0.45, 0.25])),
    (StackKind::Quic, StackKind::Quic, None),
    (StackKind::Webrtc, StackKind::Webrtc, Some([0.50, 0.10])),
];

/// The result of a comparison.
#[derive(Debug)]
pub(super) struct Summary {
    pub(super) plan: TransportPlan,
    pub(super) records: Vec<TransportRecord>,
}

/// Ratios of two cases, each of server and client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ratio {
    /// Of CPU time per echo.
    pub(super) cpu: [f64; 2],
    /// Of resident memory.
    pub(super) memory: [f64; 2],
}

impl Ratio {
    /// Whether both sides meet the targets of CPU time and of memory.
    pub(super) fn meets(&self, [cpu, memory]: [f64; 2]) -> bool {
        self.cpu.iter().all(|ratio| *ratio <= cpu) && self.memory.iter().all(|it| *it <= memory)
    }
}

impl Summary {
    /// The case of the plan with this program and transport.
    pub(super) fn case(
        &self,
        preset: &str,
        program: Program,
        stack: StackKind,
    ) -> Option<&TransportCase> {
        let is = |case: &&TransportCase| {
            case.preset == preset && case.program == program && case.stack == stack
        };
        self.plan.cases.iter().find(is)
    }

    /// The reports of a case, with their rounds.
    pub(super) fn reports(
        &self,
        case: &TransportCase,
    ) -> impl Iterator<Item = (u32, &TransportReport)> {
        let of = self.records.iter().filter(move |record| record.case == *case);
        of.filter_map(|record| Some((record.round, &**record.outcome.as_ref().ok()?)))
    }

    /// A figure over all rounds; `None` where every round failed.
    pub(super) fn spread(
        &self,
        case: &TransportCase,
        figure: impl Fn(&TransportReport) -> f64,
    ) -> Option<Spread> {
        Spread::of(self.reports(case).map(|(_, report)| figure(report)))
    }

    /// Medians of the ratios within rounds; `None` where no round has both. CPU time below the
    /// kernel's clock tick has no ratio.
    pub(super) fn ratio(&self, case: &TransportCase, base: &TransportCase) -> Option<Ratio> {
        let median = |figure: fn(&TransportReport) -> f64| {
            let pairs = self.reports(case).filter_map(|(round, report)| {
                let (_, base) = self.reports(base).find(|(other, _)| *other == round)?;
                let (figure, base) = (figure(report), figure(base));
                (figure > 0.0 && base > 0.0).then(|| figure / base)
            });
            Spread::median(pairs)
        };
        Some(Ratio {
            cpu: [median(|it| it.server.us_per_echo)?, median(|it| it.client.us_per_echo)?],
            memory: [median(|it| it.server.rss as f64)?, median(|it| it.client.rss as f64)?],
        })
    }

    /// Whether all due echoes came, at the median.
    pub(super) fn answered(&self, case: &TransportCase) -> Option<bool> {
        let percent = self.spread(case, |it| 100.0 - it.missed_percent())?;
        Some(percent.median >= ALL_PERCENT)
    }

    /// Reasons to doubt the figures.
    pub(super) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let (done, all) = (self.records.len(), self.plan.steps().len());
        if done < all {
            warnings.push(format!("{} of {all} measurements are not done", all - done));
        }
        for case in &self.plan.cases {
            let name = format!("{} {}", case.name(), case.preset);
            if self.answered(case) == Some(false) {
                warnings.push(format!(
                    "saturated: {name} did not answer all echoes that were due; its CPU time per \
                     echo includes what it repeated and refused. Compare also at a rate that both \
                     reach, like --preset 100x40"
                ));
            }
            let wrong: u64 = self.reports(case).map(|(_, report)| report.wrong).sum();
            if wrong > 0 {
                warnings.push(format!("wrong: {name} returned {wrong} wrong echoes"));
            }
            // The load before a measurement is that of the one before it.
            let told = self.reports(case).flat_map(|(_, report)| {
                let busy = report.environment.as_ref().and_then(Environment::warning);
                report.warnings.iter().filter(move |it| Some(*it) != busy.as_ref())
            });
            warnings.extend(unique(told).into_iter().map(|told| format!("{name}: {told}")));
        }
        warnings
    }
}
