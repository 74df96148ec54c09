//! The report as a whole, compared with one that was read by people. `ONRUSH_GOLDEN=write cargo
//! test -p onrush-bench --test report` writes it again; read the difference before you commit it.

use std::fs;
use std::path::Path;

use onrush_bench::contender::{Listed, Variant};
use onrush_bench::cpus::{Assignment, CpuList, CpuMode};
use onrush_bench::load::LoadSettings;
use onrush_bench::mix::Mix;
use onrush_bench::plan::{FORMAT, Plan, Settings};
use onrush_bench::record::{Case, Measured, Outcome, Point, Raw, Record, Share};
use onrush_bench::report;
use onrush_bench::summary::Summary;

fn seats(cores: usize) -> Assignment {
    let tracker = (0..cores).chain(16..16 + cores);
    let (load, workers) = ((8..16).chain(24..32), 8);
    Assignment {
        tracker_cores: cores,
        tracker: CpuList::new(tracker),
        load_workers: workers,
        load: CpuList::new(load),
    }
}

fn cases() -> Vec<Case> {
    let variants = |n| {
        [
            Variant::new("onrush", Some("colocated"), &[("workers", n)]),
            Variant::new("aquatic_udp", Some("io_uring"), &[("socket workers", n)]),
            Variant::new("torrust-tracker", None, &[]),
        ]
    };
    let mut cases = Vec::new();
    for mix in [Mix::Spread, Mix::Published] {
        for cores in [1, 2] {
            let case = |variant| Case { variant, seats: seats(cores), mix };
            cases.extend(variants(cores).map(case));
        }
    }
    cases
}

fn plan() -> Plan {
    let listed = |name: &str, version: Option<&str>, text: &str| Listed {
        name: name.into(),
        version: version.map(Into::into),
        text: text.into(),
        program: None,
    };
    Plan {
        format: FORMAT,
        version: "0.1.0".into(),
        created: 1_795_219_200,
        command: "onrush-bench run --out results --rounds 2".into(),
        machine: vec![
            ("CPU".into(), "Made Up 9000 | 16 cores".into()),
            ("kernel".into(), "6.18.0".into()),
        ],
        settings: Settings {
            rounds: 2,
            dose: LoadSettings { seconds: 2.0, warmup: 1.0, swarms: None },
            shares: vec![50, 80],
            port: 16_969,
            mode: CpuMode::SplitPairs,
            baseline: "onrush".into(),
            noise: 10.0,
            seed: 1,
        },
        listed: vec![
            listed("onrush", Some("0.1.0"), "the defaults"),
            listed("aquatic_udp", Some("0.9.0"), "as its bencher sets it"),
            listed("chihaya", None, "chihaya was not found; get it with: scripts/bench-peers"),
        ],
        testers: vec![
            listed("onrush-load", Some("0.1.0 (30029cd)"), "every reply is checked"),
            listed("aquatic_udp_load_test", Some("0.9.0"), "nothing is checked"),
        ],
        cases: cases(),
        notices: vec!["clamped: aquatic_udp asks for more than it gets".into()],
    }
}

/// Made-up figures: aquatic at 0.8 of ours, torrust at half, with wrong replies and failing on two
/// cores: once, and under the published load always.
fn outcome(case: &Case, round: u32) -> Outcome {
    let name = case.variant.tracker.as_str();
    let factor = if name == "onrush" {
        1.0
    } else if name == "aquatic_udp" {
        0.8
    } else {
        0.5
    };
    let cores = case.seats.tracker_cores as f64;
    let dies = round == 2 || case.mix == Mix::Published;
    if name == "torrust-tracker" && cores > 1.0 && dies {
        return Outcome::Failed(
            "torrust-tracker ended (signal: 11) under load:\nit printed nothing".into(),
        );
    }
    let rate = 400_000.0 * factor * cores * (1.0 + f64::from(round) / 100.0);
    let checked = case.mix != Mix::Published;
    let point = |rate: f64, p50: f64| Point {
        rate,
        right: (rate * 2.0) as u64,
        wrong: if name == "torrust-tracker" && checked { 800 } else { 0 },
        findings: if name == "torrust-tracker" {
            vec!["more peers than wanted: 800".into()]
        } else {
            vec![]
        },
        loss_percent: checked.then_some(0.02),
        cpu_percent: 95.5 * cores,
        cpu_per_reply: 955_000.0 * cores / rate,
        load_percent: checked.then_some(70.0),
        p50: checked.then_some(p50),
        p99: checked.then_some(p50 * 12.0),
        peers_per_reply: checked.then_some(11.25),
        warnings: vec![],
    };
    let share = |percent: u32| {
        let asked = rate * f64::from(percent) / 100.0;
        Share { percent, asked, point: point(asked, f64::from(percent) * 2.0) }
    };
    let shares = if checked { vec![share(50), share(80)] } else { vec![] };
    let measured = Measured { most: point(rate, 900.0), shares, peak_rss: Some(201_850_880) };
    Outcome::Measured(Box::new(measured))
}

/// A result directory as a bench leaves it.
fn results(directory: &Path) {
    let plan = plan();
    plan.write(directory).unwrap();
    let (mut raw, _) = Raw::open(directory).unwrap();
    for (round, case) in plan.steps() {
        let outcome = outcome(case, round);
        raw.append(&Record { round, started: plan.created, case: case.clone(), outcome }).unwrap();
    }
}

#[test]
fn the_report_equals_the_golden_file() {
    let directory = tempfile::tempdir().unwrap();
    results(directory.path());
    report::write(directory.path()).unwrap();
    let text = fs::read_to_string(directory.path().join("report.md")).unwrap();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/report.md.txt");
    if std::env::var_os("ONRUSH_GOLDEN").is_some() {
        fs::write(&golden, &text).unwrap();
    }
    let wanted = fs::read_to_string(&golden).unwrap();
    for (number, (line, wanted)) in text.lines().zip(wanted.lines()).enumerate() {
        assert_eq!(line, wanted, "line {} of {}", number + 1, golden.display());
    }
    assert_eq!(text.lines().count(), wanted.lines().count());
}

#[test]
fn absent_trackers_and_failed_rounds_have_no_figures() {
    let directory = tempfile::tempdir().unwrap();
    results(directory.path());
    report::write(directory.path()).unwrap();
    let text = fs::read_to_string(directory.path().join("report.md")).unwrap();
    for line in text.lines().filter(|line| line.contains("chihaya")) {
        assert!(line.contains("absent"), "{line}");
    }
    assert!(text.contains("## Failed rounds"), "{text}");
    let json = fs::read_to_string(directory.path().join("summary.json")).unwrap();
    let summary: Summary = serde_json::from_str(&json).unwrap();
    assert!(summary.rows.iter().all(|row| row.rate.median > 0.0));
    assert_eq!(summary.failures.len(), 3);
}

#[test]
fn without_the_baseline_there_are_no_ratios() {
    let directory = tempfile::tempdir().unwrap();
    results(directory.path());
    let mut plan = plan();
    plan.settings.baseline = "opentracker".into();
    plan.write(directory.path()).unwrap();
    report::write(directory.path()).unwrap();
    let text = fs::read_to_string(directory.path().join("report.md")).unwrap();
    let rows: Vec<_> =
        text.lines().filter(|line| line.starts_with("| aquatic_udp (io_uring) |")).collect();
    assert_eq!(rows.len(), 4, "{text}");
    assert!(rows.iter().all(|row| row.matches(" | n/a | ").count() == 2), "{rows:#?}");
}

#[test]
fn the_report_has_the_published_forms() {
    let directory = tempfile::tempdir().unwrap();
    results(directory.path());
    report::write(directory.path()).unwrap();
    let text = fs::read_to_string(directory.path().join("report.md")).unwrap();
    for line in [
        "| Number of workers | onrush (colocated) | aquatic_udp (io_uring) | torrust-tracker |",
        "#### Tracker cores: 2 (cpus: 0-1,16-17)",
        "##### aquatic_udp (io_uring) run (socket workers: 2) (load test workers: 8, cpus: \
         8-15,24-31)",
        "- Average tracker CPU utilization: 191%",
        "- Peak tracker RSS: 192.5 MiB",
    ] {
        assert!(text.lines().any(|have| have == line), "{line}\n{text}");
    }
}
