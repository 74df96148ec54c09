//! The result in sentences, with which the text and the page begin.

use super::Report;
use super::search::{Bounds, Search, Verdict};
use crate::worker::Pace;
use onrush_text::numbers::grouped;

/// Percent of its vCPUs above which a thread, or a host, is at its limit.
const BUSY_PERCENT: f64 = 90.0;
/// Percent of its vCPU above which a load worker is at its limit.
const FULL_PERCENT: f64 = 95.0;
/// Percent of loss that an open loop may have before the tracker counts as too slow for it.
const LOSS_PERCENT: f64 = 0.1;

/// The verdict and its reasons.
pub(super) fn verdict(report: &Report) -> (bool, Vec<String>) {
    let right = report.right_replies();
    let answered = right > 0 || report.answerable() == 0;
    let found = report.search.as_ref().is_none_or(|search| search.found.is_some());
    // With a search the rate that it found comes first.
    let mut sentences: Vec<_> = report.search.iter().map(Search::sentence).collect();
    if right > 0 {
        sentences.push(format!("{} right replies per second.", grouped(report.rate)));
    }
    sentences.push(replies(report));
    // Without replies there is nothing to be limited.
    if right > 0 {
        sentences.extend(limit(report));
    }
    sentences.extend(silence(report));
    (report.wrong_replies() == 0 && answered && found, sentences)
}

/// The numbers of right, wrong and missing replies.
fn replies(report: &Report) -> String {
    let (right, wrong) = (report.right_replies(), report.wrong_replies());
    let replies = match (right, wrong) {
        (0, 0) if report.answerable() == 0 => return "No request deserved a reply.".into(),
        (0, 0) => return "No reply arrived.".into(),
        (_, 0) => format!("All {} replies were right", grouped(right)),
        _ => {
            // Over WebSocket offers and answers are checked, too.
            let messages = report.ws.as_ref().map(|ws| (ws.messages_received, "messages"));
            let (all, what) = messages.unwrap_or((right + wrong, "replies"));
            format!("{} of {} {what} were wrong", grouped(wrong), grouped(all))
        }
    };
    let loss = report.loss_percent;
    if loss > 0.0 {
        format!("{replies}; {loss:.3} % of the requests got none in time.")
    } else {
        format!("{replies}, and none was missing.")
    }
}

/// The limit of the rate.
fn limit(report: &Report) -> Option<String> {
    if report.ws.as_ref().is_some_and(|ws| ws.idle.is_some()) {
        return None;
    }
    match (&report.search, &report.setup.load.pace) {
        (Some(search), _) => search.limit(),
        (None, Pace::InFlight(count)) => Some(closed_loop(report, *count)),
        (None, Pace::Open(_)) => Some(open_loop(report)),
    }
}

fn closed_loop(report: &Report, in_flight: usize) -> String {
    let own = report.worker_percent.iter().copied().fold(0.0, f64::max);
    if own > FULL_PERCENT {
        return "Limited by the load tester, a worker of which used all of its vCPU: give it more \
                --workers and vCPUs."
            .into();
    }
    let Some(thread) = report.tracker_busiest_percent else {
        return format!(
            "The load tester was not the limit (its busiest worker used {own:.0} % of a vCPU); \
             with --tracker-pid the report says whether the tracker was."
        );
    };
    if thread >= BUSY_PERCENT {
        return format!(
            "Limited by the tracker, whose busiest thread used {thread:.0} % of a vCPU."
        );
    }
    let used = [report.tracker_cpu, report.own_cpu].into_iter().flatten().map(|cpu| cpu.percent);
    let (used, vcpus) = (used.sum::<f64>(), report.environment.as_ref().map_or(0, |e| e.vcpus));
    if vcpus > 0 && used >= BUSY_PERCENT * f64::from(vcpus) {
        return format!(
            "Limited by this host: tracker and load tester used {used:.0} % of its {vcpus} vCPUs \
             ({vcpus}00 %)."
        );
    }
    format!(
        "Limited by the {in_flight} requests in flight per worker: the tracker's busiest thread \
         used {thread:.0} % of a vCPU, the load tester's {own:.0} %. Raise {}.",
        report.setup.more_in_flight()
    )
}

fn open_loop(report: &Report) -> String {
    let bounds = Bounds { loss_percent: LOSS_PERCENT, p99_ms: f64::INFINITY };
    match bounds.judge(report) {
        (Verdict::Held | Verdict::Slow, _) => {
            "Limited by the rate that was asked for, which the tracker held.".into()
        }
        (Verdict::Lost, why) => format!("The tracker did not keep up with the rate: {why}."),
        (Verdict::LoadTester, why) => format!("The rate was not reached: {why}."),
    }
}

/// The share of requests that deserve no reply, which is no loss.
fn silence(report: &Report) -> Option<String> {
    let all: u64 = report.kinds.iter().map(|kind| kind.requests).sum();
    let silent = all - report.answerable();
    (silent > 0 && report.answerable() > 0).then(|| {
        format!(
            "{:.1} % of the requests deserve no reply (junk and unusable connection ids).",
            silent as f64 * 100.0 / all as f64
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::Environment;
    use crate::report::WsReport;
    use crate::report::tests::example;

    /// The verdict on the example after a change.
    fn of(change: impl FnOnce(&mut Report)) -> (bool, String) {
        let mut report = example();
        report.wrong.clear();
        change(&mut report);
        let (good, sentences) = verdict(&report);
        (good, sentences.join(" "))
    }

    #[test]
    fn rate_loss_and_silence_are_said() {
        let (good, text) = of(|_| ());
        assert!(good);
        for part in [
            "500 right replies per second.",
            "All 1,000 replies were right; 0.990 %",
            "8.2 % of the requests deserve no reply",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let (_, whole) = of(|report| report.loss_percent = 0.0);
        assert!(whole.contains("none was missing"), "{whole}");
        let (good, wrong) = of(|report| *report = example());
        assert!(!good && wrong.contains("1 of 1,001 replies were wrong"), "{wrong}");
        let ws = WsReport { messages_received: 7000, ..WsReport::default() };
        let (_, wrong) = of(|report| *report = Report { ws: Some(ws), ..example() });
        assert!(wrong.contains("1 of 7,000 messages were wrong"), "{wrong}");
        let (good, none) = of(|report| report.kinds.iter_mut().for_each(|kind| kind.right = 0));
        assert!(!good && none.contains("No reply arrived."), "{none}");
    }

    #[test]
    fn the_limit_of_a_closed_loop_is_named() {
        let closed = |busiest: Option<f64>, workers: &[f64], vcpus: u32| {
            let change = |report: &mut Report| {
                report.setup.load.pace = Pace::InFlight(256);
                report.tracker_busiest_percent = busiest;
                report.worker_percent = workers.to_vec();
                report.environment = Some(Environment { vcpus, ..Environment::default() });
            };
            of(change).1
        };
        for (busiest, workers, vcpus, limit) in [
            (Some(99.0), &[70.0, 97.0][..], 8, "by the load tester"),
            (Some(97.4), &[80.0], 8, "by the tracker, whose busiest thread used 97 %"),
            // 75 % of the tracker and 37.5 % of the load tester.
            (Some(70.0), &[37.0], 1, "by this host"),
            (Some(70.0), &[37.0], 8, "by the 256 requests in flight"),
            (None, &[37.0], 8, "--tracker-pid"),
        ] {
            let text = closed(busiest, workers, vcpus);
            assert!(text.contains(limit), "{limit}: {text}");
        }
    }

    #[test]
    fn the_limit_of_an_open_loop_is_named() {
        type Change = fn(&mut Report);
        let cases: [(Change, &str); 4] = [
            (|_| (), "Limited by the rate that was asked for"),
            (|report| report.loss_percent = 5.0, "did not keep up with the rate: loss 5.000 %"),
            (|report| report.unsent = 50, "the load tester's own limit: 50 requests"),
            (|report| (report.unsent, report.no_room) = (50, 7), "did not keep up"),
        ];
        for (change, limit) in cases {
            let (_, text) = of(|report| {
                (report.loss_percent, report.dropped_here) = (0.0, 0);
                change(report);
            });
            assert!(text.contains(limit), "{limit}: {text}");
        }
    }

    /// The searched rate comes first.
    #[test]
    fn the_result_of_a_search_is_the_headline() {
        let search = super::super::search::tests::example();
        let (good, text) = of(|report| report.search = Some(search.clone()));
        assert!(good && text.starts_with("Highest rate: 12,346 requests per second"), "{text}");
        assert!(text.contains("Limited by the load tester, not by the tracker"), "{text}");
        let (good, text) = of(|report| {
            report.search = Some(super::super::search::Search { found: None, ..search });
        });
        assert!(!good && text.starts_with("No rate held"), "{text}");
    }
}
