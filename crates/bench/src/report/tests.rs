//! The report as a whole, compared with one that was read by people. `ONRUSH_GOLDEN=write cargo
//! test -p onrush-bench --lib report` writes it again; read the difference before you commit it.

use super::*;
use crate::contender::{Listed, Variant};
use crate::cpus::Assignment;
use crate::mix::Mix;
use crate::plan::tests::example;
use crate::record::tests::figures;
use crate::record::{Case, Measured, Point, Raw, Record, RoundOutcome};

fn cases() -> Vec<Case> {
    let cpus: Vec<_> = (0..16).collect();
    let mut cases = Vec::new();
    for mix in [Mix::Spread, Mix::Published] {
        for cores in [1, 2] {
            let seats = Assignment::new(&cpus, cores, 8).unwrap();
            let variants = [
                Variant::new("onrush", Some("colocated"), &[("workers", cores)]),
                Variant::new("aquatic_udp", Some("io_uring"), &[("socket workers", cores)]),
                Variant::new("torrust-tracker", None, &[]),
            ];
            cases.extend(variants.map(|variant| Case { variant, seats: seats.clone(), mix }));
        }
    }
    cases
}

fn plan() -> Plan {
    let listed = |name: &str, version: Option<&str>, text: &str| Listed {
        name: name.into(),
        version: version.map(Into::into),
        text: text.into(),
    };
    Plan {
        created: 1_795_219_200,
        command: "onrush-bench run --out results --rounds 2".into(),
        machine: vec![
            ("CPU".into(), "Made Up 9000 | 16 cores".into()),
            ("kernel".into(), "6.1.0".into()),
        ],
        listed: vec![
            listed("onrush", Some("0.1.0"), "the defaults"),
            listed("aquatic_udp", Some("0.9.0"), "as its bencher sets it"),
            listed("chihaya", None, "chihaya was not found; get it with: scripts/bench-peers"),
        ],
        testers: vec![
            listed("onrush-load", Some("0.1.0 (30029cd)"), "every reply is checked"),
            listed("aquatic_udp_load_test", Some("0.9.0"), "no reply is checked"),
        ],
        cases: cases(),
        notices: vec!["clamped: aquatic_udp asks for more than it gets".into()],
        ..example(2)
    }
}

/// Made-up figures: aquatic at 0.8 of ours, torrust at half, with wrong replies and failing on two
/// cores: once, and under the published load always.
fn outcome(case: &Case, round: u32) -> RoundOutcome {
    let (cores, published) = (case.seats.tracker.len() as f64, case.mix == Mix::Published);
    let (factor, torrust) = match case.variant.tracker.as_str() {
        "onrush" => (1.0, false),
        "aquatic_udp" => (0.8, false),
        _ => (0.5, true),
    };
    if torrust && cores > 1.0 && (round == 2 || published) {
        let reason = "torrust-tracker ended (signal: 11) under load:\nit printed nothing";
        return RoundOutcome::Failed(reason.into());
    }
    let mut measured = figures(400_000.0 * factor * cores * (1.0 + f64::from(round) / 100.0));
    measured.peak_rss = Some(201_850_880);
    measured.most.cpu_percent = 95.5 * cores;
    measured.most.loss_percent = Some(0.02);
    for (share, p99) in measured.shares.iter_mut().zip([1200.0, 11_900.0]) {
        share.point.p99 = Some(p99);
    }
    if case.mix.has_idle() {
        measured.idle_bytes = Some(4096.0);
        measured.idle_held = Some(if torrust { 3421 } else { 5000 });
        let warning = torrust.then(|| "3421 of 5000 connections were open".to_owned());
        measured.idle_warnings = warning.into_iter().collect();
    }
    if published {
        let Point { rate, right, cpu_percent, cpu_per_reply, .. } = measured.most;
        let most = Point { rate, right, cpu_percent, cpu_per_reply, ..Point::default() };
        measured = Measured { most, shares: vec![], ..measured };
    } else if torrust {
        measured.most.wrong = 800;
        measured.most.findings = vec!["more peers than wanted: 800".into()];
    }
    RoundOutcome::Measured(Box::new(measured))
}

/// The report of a result directory as a bench of this plan leaves it, and the directory.
fn reported(plan: &Plan) -> (String, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    plan.write(directory.path()).unwrap();
    let mut raw = Raw::create(directory.path()).unwrap();
    for (round, case) in plan.steps() {
        let outcome = outcome(case, round);
        raw.append(&Record { round, started: plan.created, case: case.clone(), outcome }).unwrap();
    }
    (write(directory.path()).unwrap(), directory)
}

#[test]
fn the_report_equals_the_golden_file() {
    let (text, directory) = reported(&plan());
    assert_eq!(fs::read_to_string(directory.path().join("report.md")).unwrap(), text);
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
    let (text, _) = reported(&plan());
    for line in text.lines().filter(|line| line.contains("chihaya")) {
        assert!(line.contains("absent"), "{line}");
    }
    let failed: Vec<_> = text.lines().filter(|line| line.contains("**failed**")).collect();
    assert_eq!(failed.len(), 1, "{text}");
    assert!(failed[0].contains("torrust-tracker") && !failed[0].contains('%'), "{failed:?}");
    assert_eq!(text.matches("\n- round ").count(), 3, "{text}");
}

#[test]
fn connections_that_were_not_held_are_named() {
    let mut plan = plan();
    plan.cases.retain(|case| case.mix == Mix::Spread && case.seats.tracker.len() == 1);
    plan.cases.iter_mut().for_each(|case| case.mix = Mix::Wss);
    let (text, _) = reported(&plan);
    let rows: Vec<_> = text.lines().filter(|line| line.contains("4 KiB")).collect();
    assert_eq!(rows.len(), 3, "{text}");
    for row in rows {
        let is_torrust = row.contains("| torrust-tracker |");
        assert_eq!(row.contains("(3421 of 5000 held)"), is_torrust, "{row}");
    }
    let warning = "idle connections: 3421 of 5000 connections were open (2 of 2 rounds)";
    assert_eq!(text.matches(warning).count(), 1, "{text}");
}

#[test]
fn without_the_baseline_there_are_no_ratios() {
    let mut plan = plan();
    plan.settings.baseline = "opentracker".into();
    let (text, _) = reported(&plan);
    let row = |line: &&str| line.contains("| aquatic_udp (io_uring) |");
    let rows: Vec<_> = text.lines().filter(row).collect();
    assert_eq!(rows.len(), 4, "{text}");
    assert!(rows.iter().all(|row| row.matches(" | n/a | ").count() == 2), "{rows:#?}");
}
