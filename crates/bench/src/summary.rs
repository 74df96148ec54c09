//! The results of all rounds together: medians with spread, ratios to the baseline, and warnings
//! about doubtful figures.

use std::collections::{BTreeMap, BTreeSet};

use onrush_load::stats::Spread;

use crate::mix::Mix;
use crate::plan::Plan;
use crate::record::{Case, Measured, Point, Record, RoundOutcome};

/// CPU usage in percent from which a tracker or a load worker counts as busy.
const BUSY: f64 = 95.0;
/// Loss in percent from which a warning is given.
const LOSS: f64 = 0.1;

/// A bench's result.
#[derive(Debug)]
pub struct Summary {
    /// The plan, with host and contenders.
    pub plan: Plan,
    /// A row for each case that has a figure, in the order of the plan.
    pub rows: Vec<Row>,
    /// Rounds without a figure.
    pub failures: Vec<Failure>,
    /// Reasons to doubt these figures.
    pub warnings: Vec<String>,
}

/// A case over all of its rounds; figures without a spread are medians.
#[derive(Clone, Debug)]
pub struct Row {
    /// The case.
    pub case: Case,
    /// Right replies per second.
    pub rate: Spread,
    /// CPU time of the tracker per right reply, in microseconds.
    pub cpu_per_reply: Spread,
    /// CPU time of the tracker in percent of one vCPU.
    pub cpu_percent: f64,
    /// CPU time of the load tester per right reply, in microseconds.
    pub load_per_reply: Option<f64>,
    /// CPU time of the load tester in percent of one vCPU.
    pub load_cpu_percent: Option<f64>,
    /// Peak of resident memory, in bytes.
    pub peak_rss: Option<f64>,
    /// Memory of an idle connection, in bytes.
    pub idle_bytes: Option<Spread>,
    /// The least number of these connections in a round.
    pub idle_held: Option<u64>,
    /// Requests without a reply, in percent.
    pub loss_percent: Option<f64>,
    /// Wrong replies of all rounds, in percent of all replies; over WebSocket wrong messages, in
    /// percent of those received.
    pub wrong_percent: f64,
    /// The findings of the last round with wrong replies.
    pub findings: Vec<String>,
    /// Peers per announce reply.
    pub peers_per_reply: Option<f64>,
    /// Latency in open loops.
    pub latency: Vec<ShareLatency>,
    /// Whether this is the baseline of its assignment.
    pub base: bool,
    /// Ratios of rate and CPU time per reply to the baseline within rounds; absent for the baseline
    /// itself, and where it has no figure in the same rounds.
    pub ratio: Option<[f64; 2]>,
}

/// Latency at a share of the maximum.
#[derive(Clone, Debug)]
pub struct ShareLatency {
    /// In percent of the case's own maximum.
    pub percent: u32,
    /// Requests without a reply, in percent.
    pub loss_percent: Option<f64>,
    /// Median in microseconds.
    pub p50: f64,
    /// 99th percentile in microseconds.
    pub p99: f64,
}

/// A round that failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The case.
    pub case: Case,
    /// The round.
    pub round: u32,
    /// The reason.
    pub reason: String,
}

impl Summary {
    /// The summary of a plan and its results.
    pub fn new(plan: &Plan, records: &[Record]) -> Self {
        let mut rows: Vec<_> =
            plan.cases.iter().filter_map(|case| Row::new(case, &figures(case, records))).collect();
        compare(&mut rows, records, &plan.settings.baseline);
        let failure = |Record { case, round, outcome, .. }: &Record| match outcome {
            RoundOutcome::Measured(_) => None,
            RoundOutcome::Failed(reason) => {
                Some(Failure { case: case.clone(), round: *round, reason: reason.clone() })
            }
        };
        let failures = records.iter().filter_map(failure).collect();
        let mut warnings: Vec<_> =
            rows.iter().flat_map(|row| doubts(row, records, plan.settings.noise)).collect();
        let all = plan.steps().len();
        if records.len() < all {
            warnings.insert(0, format!("{} of {all} rounds are not done", all - records.len()));
        }
        Self { plan: plan.clone(), rows, failures, warnings }
    }

    /// The row with the highest rate of a variant of this name on a number of cores.
    pub fn best(&self, mix: Mix, name: &str, cores: usize) -> Option<&Row> {
        let of = self.rows.iter().filter(|Row { case, .. }| {
            (case.mix, case.seats.tracker.len()) == (mix, cores) && case.variant.name() == name
        });
        of.max_by(|a, b| a.rate.median.total_cmp(&b.rate.median))
    }
}

/// The figures of a case, by round.
fn figures<'a>(case: &Case, records: &'a [Record]) -> BTreeMap<u32, &'a Measured> {
    let of = records.iter().filter(|record| record.case == *case);
    of.filter_map(|record| match &record.outcome {
        RoundOutcome::Measured(measured) => Some((record.round, &**measured)),
        RoundOutcome::Failed(_) => None,
    })
    .collect()
}

impl Row {
    fn new(case: &Case, rounds: &BTreeMap<u32, &Measured>) -> Option<Self> {
        let most = || rounds.values().map(|measured| &measured.most);
        let median = |pick: fn(&Point) -> Option<f64>| Spread::median(most().filter_map(pick));
        let points =
            || rounds.values().flat_map(|m| m.shares.iter().map(|s| &s.point).chain([&m.most]));
        let wrong: u64 = points().map(|point| point.wrong).sum();
        let right: u64 = points().map(|point| point.right).sum();
        let findings = points().filter(|p| p.wrong > 0).map(|p| p.findings.clone()).next_back();
        Some(Self {
            case: case.clone(),
            rate: Spread::of(most().map(|point| point.rate))?,
            cpu_per_reply: Spread::of(most().map(|point| point.cpu_per_reply))?,
            cpu_percent: Spread::median(most().map(|point| point.cpu_percent))?,
            load_per_reply: median(|point| point.load_per_reply),
            load_cpu_percent: median(|point| point.load_cpu_percent),
            peak_rss: Spread::median(rounds.values().filter_map(|m| Some(m.peak_rss? as f64))),
            idle_bytes: Spread::of(rounds.values().filter_map(|measured| measured.idle_bytes)),
            idle_held: rounds.values().filter_map(|measured| measured.idle_held).min(),
            loss_percent: median(|point| point.loss_percent),
            wrong_percent: wrong as f64 / (right + wrong).max(1) as f64 * 100.0,
            findings: findings.unwrap_or_default(),
            peers_per_reply: median(|point| point.peers_per_reply),
            latency: latency(rounds),
            base: false,
            ratio: None,
        })
    }
}

fn latency(rounds: &BTreeMap<u32, &Measured>) -> Vec<ShareLatency> {
    let percents = rounds.values().flat_map(|m| m.shares.iter().map(|share| share.percent));
    let percents: BTreeSet<_> = percents.collect();
    let lag = |percent: u32| {
        let median = |pick: fn(&Point) -> Option<f64>| {
            let all = rounds.values().flat_map(|measured| &measured.shares);
            let of = all.filter(|share| share.percent == percent);
            Spread::median(of.filter_map(|share| pick(&share.point)))
        };
        Some(ShareLatency {
            percent,
            loss_percent: median(|point| point.loss_percent),
            p50: median(|point| point.p50)?,
            p99: median(|point| point.p99)?,
        })
    };
    percents.into_iter().filter_map(lag).collect()
}

/// Adds to every row its ratio to the baseline of the same load and assignment. A baseline with
/// several variants is its fastest.
fn compare(rows: &mut [Row], records: &[Record], baseline: &str) {
    for at in 0..rows.len() {
        let row = &rows[at];
        let beside = rows.iter().filter(|other| {
            other.case.mix == row.case.mix
                && other.case.seats == row.case.seats
                && other.case.variant.is_called(baseline)
        });
        let Some(base) = beside.max_by(|a, b| a.rate.median.total_cmp(&b.rate.median)) else {
            continue;
        };
        if base.case == row.case {
            rows[at].base = true;
        } else {
            rows[at].ratio = ratio(row, base, records);
        }
    }
}

fn ratio(row: &Row, base: &Row, records: &[Record]) -> Option<[f64; 2]> {
    let (own, others) = (figures(&row.case, records), figures(&base.case, records));
    let median = |pick: fn(&Point) -> f64| {
        let pairs = own.iter().filter_map(|(round, own)| Some((own, others.get(round)?)));
        Spread::median(pairs.map(|(own, base)| pick(&own.most) / pick(&base.most)))
    };
    Some([median(|point| point.rate)?, median(|point| point.cpu_per_reply)?])
}

/// The name of a case in a sentence.
pub(crate) fn called(case: &Case) -> String {
    let split = case.variant.split();
    let split = if split.is_empty() { split } else { format!(", {split}") };
    let (cores, workers) = (case.seats.tracker.len(), case.seats.load.len());
    format!("{}{split} ({}, {cores} cores, {workers} load workers)", case.variant.name(), case.mix)
}

/// Warnings about a row.
fn doubts(row: &Row, records: &[Record], noise: f64) -> Vec<String> {
    let name = called(&row.case);
    let mut doubts = Vec::new();
    let rounds = figures(&row.case, records);
    let load = Spread::median(rounds.values().filter_map(|measured| measured.most.load_percent));
    let room = row.case.seats.tracker.len() as f64 * 100.0;
    let idle = row.cpu_percent < room * BUSY / 100.0;
    if let Some(load) = load
        && load > BUSY
        && idle
    {
        let who = match row.case.mix {
            mix if mix.is_published() => "the load workers used on average",
            _ => "a load worker used",
        };
        doubts.push(format!(
            "load-bound: {name}: {who} {:.0} % of a vCPU while the tracker used {:.0} of \
             {room:.0} %, so the rate is the load tester's; CPU time per reply still holds",
            load, row.cpu_percent
        ));
    }
    for (what, spread) in [("replies/s", &row.rate), ("CPU time per reply", &row.cpu_per_reply)] {
        if spread.percent() > noise {
            doubts.push(format!(
                "noisy: {name}: {what} spread over {:.0} % of the median",
                spread.percent()
            ));
        }
    }
    let shares = row.latency.iter().map(|lag| (at_share(lag.percent), lag.loss_percent));
    for (at, loss) in [(String::new(), row.loss_percent)].into_iter().chain(shares) {
        if let Some(loss) = loss.filter(|loss| *loss > LOSS) {
            doubts.push(format!("loss: {name}: {at}{loss:.2} % of the requests had no reply"));
        }
    }
    doubts.extend(of_load(&rounds).map(|warning| format!("load: {name}: {warning}")));
    if row.wrong_percent > 0.0 {
        let findings = row.findings.join("; ");
        doubts
            .push(format!("wrong: {name}: {:.3} % of the replies ({findings})", row.wrong_percent));
    }
    doubts
}

/// Warnings of the load tester, each once with its rounds. Warnings that differ in
/// numbers only are the same; the last one is quoted.
fn of_load(rounds: &BTreeMap<u32, &Measured>) -> impl Iterator<Item = String> + use<> {
    let mut known: BTreeMap<(String, String), (String, usize)> = BTreeMap::new();
    for measured in rounds.values() {
        let mut lists = vec![
            (String::new(), &measured.most.warnings),
            ("idle connections: ".into(), &measured.idle_warnings),
        ];
        let shares = measured.shares.iter();
        lists.extend(shares.map(|share| (at_share(share.percent), &share.point.warnings)));
        for (begin, warnings) in lists {
            // The bench causes the load of this host.
            let own = |warning: &&String| !warning.starts_with("the load average was");
            for warning in warnings.iter().filter(own) {
                let words: String = warning.chars().filter(|c| !c.is_ascii_digit()).collect();
                let (text, count) = known.entry((begin.clone(), words)).or_default();
                text.clone_from(warning);
                *count += 1;
            }
        }
    }
    let all = rounds.len();
    known
        .into_iter()
        .map(move |((begin, _), (text, count))| format!("{begin}{text} ({count} of {all} rounds)"))
}

/// The start of a warning about an open loop at a share of the maximum.
fn at_share(percent: u32) -> String {
    format!("at {percent} %: ")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::contender::Variant;
    use crate::plan::tests::example as plan;
    use crate::record::tests::measured;

    fn variant(kind: &str) -> Variant {
        Variant::new("onrush", Some(kind), &[("workers", 1)])
    }

    /// Three rounds of two variants, the second at 80 % of the first, with a failed round.
    pub(crate) fn example() -> Summary {
        let mut records = Vec::new();
        for (round, rate) in [(1, 100_000.0), (2, 120_000.0), (3, 104_000.0)] {
            records.push(measured(variant("colocated"), round, rate));
            records.push(measured(variant("split"), round, rate * 0.8));
        }
        records[5].outcome = RoundOutcome::Failed("onrush ended (signal: 9)".into());
        Summary::new(&plan(3), &records)
    }

    #[test]
    fn rows_have_medians_and_ratios_of_the_same_round() {
        let summary = example();
        assert_eq!(summary.rows.len(), 2);
        let (base, other) = (&summary.rows[0], &summary.rows[1]);
        assert_eq!((base.rate.median, base.rate.count), (104_000.0, 3));
        assert_eq!((&base.ratio, base.base, other.base), (&None, true, false));
        assert_eq!((other.rate.median, other.rate.count), (88_000.0, 2));
        let ratio = other.ratio.as_ref().unwrap();
        // Within rounds, so that changes of the host cancel out.
        assert!((ratio[0] - 0.8).abs() < 1e-9 && (ratio[1] - 1.25).abs() < 1e-9, "{ratio:?}");
        assert_eq!(base.latency.iter().map(|lag| lag.percent).collect::<Vec<_>>(), [50, 80]);
    }

    #[test]
    fn without_the_baseline_there_are_no_ratios() {
        let mut plan = plan(1);
        plan.settings.baseline = "opentracker".into();
        let records = [measured(variant("colocated"), 1, 1e5), measured(variant("split"), 1, 1e5)];
        let summary = Summary::new(&plan, &records);
        assert!(summary.rows.iter().all(|row| !row.base && row.ratio.is_none()), "{summary:?}");
        // A variant by its name.
        plan.settings.baseline = "onrush (split)".into();
        let summary = Summary::new(&plan, &records);
        assert_eq!(summary.rows.iter().map(|row| row.base).collect::<Vec<_>>(), [false, true]);
    }

    #[test]
    fn warnings_of_the_load_tester_are_listed_once() {
        let mut records: Vec<_> =
            (1..=3).map(|round| measured(variant("colocated"), round, 1e5)).collect();
        for (number, record) in records.iter_mut().enumerate() {
            let RoundOutcome::Measured(figures) = &mut record.outcome else { unreachable!() };
            let dropped = format!("{} replies were dropped here", number + 5);
            figures.most.warnings = vec![dropped, "the load average was 2.5 on 2 vCPUs".into()];
            if number == 0 {
                figures.shares[1].point.warnings = vec!["sent 300 us late".into()];
            }
            figures.shares[1].point.loss_percent = Some(1.5);
        }
        let summary = Summary::new(&plan(3), &records);
        let name = "onrush (colocated), workers: 1 (spread, 1 cores, 1 load workers)";
        let of = |start: &str| -> Vec<_> {
            summary.warnings.iter().filter(|w| w.starts_with(start)).cloned().collect()
        };
        assert_eq!(
            of("load: "),
            [
                format!("load: {name}: 7 replies were dropped here (3 of 3 rounds)"),
                format!("load: {name}: at 80 %: sent 300 us late (1 of 3 rounds)"),
            ]
        );
        assert_eq!(
            of("loss: "),
            [format!("loss: {name}: at 80 %: 1.50 % of the requests had no reply")]
        );
    }

    #[test]
    fn noise_load_and_wrong_replies_are_warned_of() {
        let has =
            |summary: &Summary, start: &str| summary.warnings.iter().any(|w| w.starts_with(start));
        let summary = example();
        assert!(has(&summary, "noisy: onrush (colocated)"), "{:?}", summary.warnings);
        assert!(!has(&summary, "load-bound") && !has(&summary, "wrong") && !has(&summary, "loss"));
        let mut record = measured(variant("colocated"), 1, 1e5);
        let RoundOutcome::Measured(figures) = &mut record.outcome else { unreachable!() };
        figures.most.load_percent = Some(99.0);
        figures.most.cpu_percent = 60.0;
        figures.most.wrong = 7;
        figures.most.findings = vec!["the asker is listed: 7".into()];
        figures.most.loss_percent = Some(0.5);
        let summary = Summary::new(&plan(1), &[record]);
        for start in ["load-bound: onrush", "wrong: onrush", "loss: onrush", "1 of 2 rounds"] {
            assert!(has(&summary, start), "{start}: {:?}", summary.warnings);
        }
        assert!(summary.warnings.iter().any(|w| w.contains("the asker is listed: 7")));
    }
}
