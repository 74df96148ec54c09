//! Runs of load: reports, exit statuses, and one finding per fault.

use std::process::{Command, Output};

use onrush_load::check::Finding;
use onrush_load::plan::Kind;
use onrush_load::report::{KindReport, Report};
use onrush_load::series::Sample;
use onrush_text::numbers::grouped;

use super::command::{command, report, stderr, stdout};
use super::counted::{Counted, ENDLESS};
use super::faulty::{Fault, Server};

/// Datagrams of a run.
const DATAGRAMS: usize = 5000;

/// The command, in a closed loop whose requests fit into any buffer.
fn closed_loop(targets: &[String], more: &str) -> Command {
    let mut command = command();
    command
        .args(targets)
        .args("--sources 16 --swarms 500 --in-flight 64".split(' '))
        .args(more.split_whitespace());
    command
}

/// A run that ends by itself.
fn load(targets: &[String], more: &str) -> Output {
    let short = "--duration 1 --warmup 0 --timeout 60".split(' ');
    closed_loop(targets, more).args(short).output().unwrap()
}

/// A run of [`DATAGRAMS`].
#[track_caller]
fn run(tracker: &Counted, more: &str) -> Output {
    tracker.run(&mut closed_loop(&tracker.server.targets(), more), DATAGRAMS)
}

/// A run against a server with this fault, and its report.
#[track_caller]
fn measured(fault: Fault, more: &str) -> (Output, Report) {
    let output = run(&Counted::start(fault), &format!("--json - {more}"));
    let report = report(&output);
    (output, report)
}

/// The part of a report about requests of this kind.
pub(crate) fn of(report: &Report, kind: Kind) -> &KindReport {
    report.kinds.iter().find(|of_kind| of_kind.kind == kind).unwrap()
}

#[test]
fn a_conforming_tracker_has_no_findings_in_a_closed_loop() {
    let tracker = Counted::start(Fault::Nothing);
    let own = std::process::id();
    let more = format!("--strict --sample 1 --json - --tracker-pid {own}");
    let mut command = closed_loop(&tracker.server.targets(), &more);
    let output = tracker.run(&mut command, 4 * DATAGRAMS);
    let report = report(&output);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(report.wrong, [], "{}", stderr(&output));
    assert!(report.kinds.iter().all(|kind| kind.lost == 0), "{}", stderr(&output));
    assert!(of(&report, Kind::Announce).right > 500 && of(&report, Kind::Scrape).right > 10);
    assert!(of(&report, Kind::Unusable).requests > 20 && of(&report, Kind::Junk).requests > 10);
    assert!(report.peers_per_reply > 0.5, "{}", report.peers_per_reply);
    assert_eq!(report.setup.sources, [16, u32::from(tracker.server.addresses.len() == 2)]);
    let (tracker_cpu, own_cpu) = (report.tracker_cpu.unwrap(), report.own_cpu.unwrap());
    assert!(tracker_cpu.per_reply > 0.0 && own_cpu.per_reply > 0.0);
    let shown = stderr(&output);
    assert!(shown.contains("us per right reply"), "the table: {shown}");
}

/// `tests/timed` checks its rate.
#[test]
fn an_open_loop_of_several_workers() {
    let more = "--rate 2000 --workers 2 --profile classic --no-bursts --seed 7";
    let (output, report) = measured(Fault::Nothing, more);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!((report.setup.load.seed, report.setup.load.workers), (7, 2));
    assert_eq!(of(&report, Kind::Unusable).requests, 0);
    assert!(report.latency.p50 > 0.0 && report.latency.p50 <= report.latency.p99);
}

/// With few sources the tracker's replies arrive in segments of several; each reply is checked.
#[test]
fn replies_of_one_segment_are_checked_one_by_one() {
    let (output, report) = measured(Fault::Nothing, "--quiet");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let announces = of(&report, Kind::Announce);
    assert_eq!((announces.right, announces.wrong, announces.lost), (announces.requests, 0, 0));
    assert!(announces.right > 100 && report.peers_per_reply > 0.0, "{}", announces.right);
    let (output, _) = measured(Fault::ListsTwice, "--quiet");
    assert_eq!(output.status.code(), Some(1), "wrong replies are found in segments too");
}

#[test]
fn wrong_replies_are_reported_and_exit_with_1() {
    let (output, report) = measured(Fault::ListsTwice, "--quiet");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(report.wrong.len(), 1, "{:?}", report.wrong);
    assert_eq!(report.wrong[0].finding, Finding::DuplicatePeer);
    assert!(report.wrong[0].examples[0].asked.starts_with("announce from"));
}

/// Each reply is counted once, in the series as in the totals.
#[test]
fn replies_in_strict_mode_are_either_right_or_wrong() {
    for fault in [Fault::ZeroInterval, Fault::ListsOwnPeer] {
        let (_, report) = measured(fault, "--quiet --strict --sample 1 --set swarms.mean=4");
        let announces = of(&report, Kind::Announce);
        assert!(announces.wrong > 100, "{fault:?}: {}", announces.wrong);
        assert_eq!((announces.right + announces.wrong, announces.lost), (announces.requests, 0));
        let in_series: u64 = report.series.iter().map(|sample| sample.wrong).sum();
        let wrong = (report.wrong_replies(), in_series);
        assert_eq!(wrong, (announces.wrong, announces.wrong), "{fault:?}");
    }
}

/// A second reply belongs to no request in flight, so it counts under no kind.
#[test]
fn wrong_replies_of_no_kind_are_in_the_series() {
    let (output, report) = measured(Fault::TwoReplies, "--quiet");
    let wrong: u64 = report.series.iter().map(|sample| sample.wrong).sum();
    assert!(wrong >= report.wrong_replies() && wrong > 100, "{wrong}");
    assert!(stderr(&output).contains("wrong replies to no request in flight"));
}

#[test]
fn json_goes_to_a_file_and_the_table_to_standard_output() {
    let tracker = Counted::start(Fault::Nothing);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("report.json");
    let output = run(&tracker, &format!("--json {}", path.display()));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let report: Report = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let table = stdout(&output);
    assert!(table.contains(&grouped(of(&report, Kind::Announce).right)), "{table}");
}

#[test]
fn an_unwritable_file_does_not_prevent_other_output() {
    let tracker = Counted::start(Fault::Nothing);
    let output = run(&tracker, "--quiet --json - --html /dev/full");
    assert_eq!(output.status.code(), Some(2));
    assert!(report(&output).right_replies() > 0);
    let said = stderr(&output);
    assert!(said.contains("right replies") && said.contains("cannot write /dev/full"), "{said}");
}

#[test]
fn a_target_that_does_not_answer_exits_with_3() {
    // No process binds this port.
    let target = String::from("127.0.0.1:1");
    let output = load(&[format!("--target={target}")], "");
    assert_eq!(output.status.code(), Some(3));
    let said = stderr(&output);
    for part in [target.as_str(), "ss -lun", "--target"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(output.stdout.is_empty());
}

/// As under overload: the first connect is repeated until it gets a reply.
#[test]
fn a_tracker_that_loses_connects_is_measured() {
    let tracker = Counted::start(Fault::LosesFirstConnects);
    let mut command = closed_loop(&tracker.server.targets()[..1], "");
    let output = tracker.run(&mut command, DATAGRAMS);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("loses connects"), "{said}");
}

#[test]
fn targets_are_urls_and_names() {
    let tracker = Counted::start(Fault::Nothing);
    let port = tracker.server.addresses[0].port();
    for target in [format!("udp://127.0.0.1:{port}/announce"), format!("localhost:{port}")] {
        let mut command = closed_loop(&[format!("-t={target}")], "--quiet --json -");
        let output = tracker.run(&mut command, DATAGRAMS);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(report(&output).right_replies() > 0);
    }
}

/// Unusable arguments are reported before a target that does not answer.
#[test]
fn unusable_arguments_exit_with_2() {
    let tracker = Server::start(Fault::Nothing);
    let silent = [String::from("--target=127.0.0.1:1")];
    for (targets, more, named) in [
        (&silent[..], "--rate fast", "--rate"),
        (&silent, "--pin 0,1", "--pin"),
        (&silent, "--pin 9999", "--pin: vCPU 9999"),
        (&silent, "--source 192.0.2.77", "192.0.2.77"),
        (&silent, "--json /nowhere/at/all", "cannot write /nowhere/at/all"),
        (&silent, "--html /nowhere/page", "cannot write /nowhere/page"),
        (&tracker.targets(), "--tracker-pid 4294967294", "4294967294"),
    ] {
        let output = load(targets, more);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{more}: {said}");
        assert!(said.contains(named), "{more}: {said}");
    }
}

/// The intervals follow each other from the start on, and add up to the totals. Where they begin
/// and how many a run has on a quiet host is in `src/series.rs` and in `tests/timed`.
#[test]
fn the_report_has_the_run_over_time() {
    let own = std::process::id();
    let tracker = Server::start(Fault::Nothing);
    let output = load(&tracker.targets(), &format!("--quiet --json - --tracker-pid {own}"));
    let report = report(&output);
    assert_eq!(report.series[0].phase, "measure");
    let mut end = 0.0;
    for sample in &report.series {
        assert!((sample.time - sample.seconds - end).abs() < 1e-6, "{end}: {sample:#?}");
        end = sample.time;
        assert!(sample.latency.p50 <= sample.latency.max, "{sample:#?}");
        assert_eq!(sample.right > 0, sample.latency.p50 > 0.0, "{sample:#?}");
        assert!(sample.tracker.is_some_and(|tracker| tracker.rss > 1 << 20), "{sample:#?}");
    }
    let requests: u64 = report.kinds.iter().map(|kind| kind.requests).sum();
    let in_series = |count: fn(&Sample) -> u64| report.series.iter().map(count).sum::<u64>();
    assert_eq!(in_series(|sample| sample.sent), requests);
    assert_eq!(in_series(|sample| sample.right), report.right_replies());
    assert!(report.tracker.as_ref().is_some_and(|tracker| tracker.drops.is_some()));
}

/// A tracker's process that ends during the run leaves a report with a warning.
#[test]
fn a_tracker_that_ends_during_the_run_is_reported() {
    let tracker = Counted::start(Fault::Nothing);
    let mut process = Command::new("sleep").arg("3600").spawn().unwrap();
    let more = format!("--quiet --json - --tracker-pid {}", process.id());
    let mut command = closed_loop(&tracker.server.targets(), &more);
    let load = tracker.spawn(command.args(ENDLESS.split(' ')));
    let came = tracker.wait_for(DATAGRAMS);
    process.kill().unwrap();
    // A process that is not waited for stays a zombie.
    process.wait().unwrap();
    let output = tracker.end_run(load, DATAGRAMS);
    assert_eq!((came, output.status.code()), (true, Some(0)), "{}", stderr(&output));
    let report = report(&output);
    assert!(report.right_replies() > 0 && report.tracker_cpu.is_none());
    let warned = report.warnings.iter().any(|warning| warning.contains("ended during the run"));
    assert!(warned, "{:?}", report.warnings);
}

/// As [`every_fault_gives_its_finding`] of `src/generator/tests`, with one that needs a socket.
#[test]
fn a_difference_is_wrong_in_strict_mode_only() {
    for (fault, finding) in
        [(Fault::OtherSocket, Finding::FromElsewhere), (Fault::ListsOwnPeer, Finding::OwnPeer)]
    {
        let tracker = Counted::start(fault);
        let target = &tracker.server.targets()[..1];
        let more = "--json - --quiet --sample 1 --seed 3 --set swarms.mean=4";
        let output = tracker.run(&mut closed_loop(target, more), DATAGRAMS);
        let report = report(&output);
        let found = report.wrong.iter().chain(&report.differs);
        let found: Vec<_> =
            found.map(|found| (found.finding, !found.examples.is_empty())).collect();
        assert_eq!(found, [(finding, true)], "{fault:?}");
        assert_eq!(output.status.code(), Some(i32::from(!finding.is_open())), "{fault:?}");
    }
}

/// The info hashes of a run can be written before it, for trackers with an allow list.
#[test]
fn info_hashes_are_written() {
    let target = "--target=127.0.0.1:1".to_owned();
    let hashes = |more: &str| {
        let file = tempfile::NamedTempFile::new().unwrap();
        let more = format!("--write-hashes {} {more}", file.path().display());
        let output = load(std::slice::from_ref(&target), &more);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        std::fs::read_to_string(file.path()).unwrap()
    };
    let of_seven = hashes("--seed 7");
    assert_eq!(of_seven.lines().count(), 500);
    assert!(of_seven.lines().all(|line| line.len() == 40), "{of_seven}");
    assert_eq!(of_seven, hashes("--seed 7"));
    assert_ne!(of_seven, hashes("--seed 8"));
}

#[test]
fn pages_and_distributions_are_written() {
    let tracker = Server::start(Fault::Nothing);
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("report.html");
    let own = std::process::id();
    let more = format!("--quiet --json - --tracker-pid {own} --html {}", page.display());
    let output = load(&tracker.targets(), &more);
    let report = report(&output);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let page = std::fs::read_to_string(page).unwrap();
    assert_eq!(page.matches("<svg").count(), 5, "with CPU and memory of the tracker");
    assert!(
        page.contains(&format!("--seed {}", report.setup.load.seed)),
        "the command has the seed"
    );
    let tracker_report = report.tracker.unwrap();
    assert!(tracker_report.peak_rss >= tracker_report.rss && tracker_report.rss > 1 << 20);
    assert!(tracker_report.drops.is_some());
    assert!(!report.environment.unwrap().kernel.is_empty());
    for curve in [&report.curve, &report.kinds[Kind::Announce as usize].curve] {
        assert!(curve.last().unwrap().count > 0);
    }
}
