//! Reports of made-up measurements.

use super::*;
use crate::args::{Args as Line, Task};
use clap::Parser as _;
use onrush_load::environment::Environment;
use onrush_load::transport::SideReport;

fn args(line: &str) -> Result<TransportArgs, String> {
    let line = format!("onrush-bench transport --out results {line}");
    match Line::try_parse_from(line.split_whitespace()).map_err(|error| error.to_string())?.task {
        Task::Transport(args) => Ok(args),
        other => panic!("{other:?}"),
    }
}

fn plan(line: &str, theirs: bool) -> TransportPlan {
    let settings = args(line).unwrap().settings;
    TransportPlan {
        version: "0.1.0".into(),
        created: 1_795_219_200,
        command: "onrush-bench transport".into(),
        machine: vec![("kernel".into(), "6.1.0".into())],
        cpus: [0, 2],
        programs: listed(Path::new("/none"), theirs.then_some(Path::new("/none"))),
        cases: cases(&settings.preset, theirs),
        settings,
    }
}

/// Our TLS takes 0.4 of the CPU time and 0.2 of the memory of go-libp2p's TCP, our WebRTC 0.5 and
/// 0.1 of its; a host that is slower in round 2 is so for both. Of 10x1000, go-libp2p's WebRTC
/// answers 7,600 of 20,000 echoes.
fn report(round: u32, case: &TransportCase) -> TransportReport {
    let (us, mib) = match (case.program, case.stack) {
        (Program::OnrushLoad, StackKind::Tcp) => (6.0, 5.0),
        (Program::OnrushLoad, StackKind::Tls) => (8.0, 10.0),
        (Program::OnrushLoad, StackKind::Quic) => (16.0, 20.0),
        (Program::OnrushLoad, StackKind::Webrtc) => (32.0, 20.0),
        (Program::GoLibp2p, StackKind::Quic) => (40.0, 100.0),
        (Program::GoLibp2p, StackKind::Webrtc) => (64.0, 200.0),
        (Program::GoLibp2p, _) => (20.0, 50.0),
    };
    let side = SideReport {
        us_per_echo: us * f64::from(round),
        rss: (mib * f64::from(1 << 20)) as u64,
        ..SideReport::default()
    };
    let saturated = case.name() == "go-libp2p webrtc" && case.preset == "10x1000";
    TransportReport {
        due: 1000,
        right: if saturated { 380 } else { 1000 },
        due_rate: 20_000.0,
        echo_rate: if saturated { 7_600.0 } else { 20_000.0 },
        server: side,
        client: SideReport { us_per_echo: side.us_per_echo / 2.0, ..side },
        ..TransportReport::default()
    }
}

type Outcome = Option<Result<TransportReport, String>>;

/// The report on a plan whose measurements are as `outcome` changes them; `None`: not done.
fn reported(
    plan: &TransportPlan,
    outcome: impl Fn(u32, &TransportCase, TransportReport) -> Outcome,
) -> String {
    let directory = tempfile::tempdir().unwrap();
    plan.write(directory.path()).unwrap();
    let mut raw = Raw::create(directory.path()).unwrap();
    for (round, case) in plan.steps() {
        if let Some(outcome) = outcome(round, case, report(round, case)) {
            let outcome = outcome.map(Box::new);
            raw.append(&TransportRecord { round, case: case.clone(), outcome }).unwrap();
        }
    }
    let text = write(directory.path()).unwrap();
    let svg = fs::read_to_string(directory.path().join("report.svg")).unwrap();
    assert_eq!(svg.matches("<svg ").count(), 1 + 2 * plan.settings.preset.len(), "{svg}");
    text
}

/// The cells of the rows that start with these.
fn rows<'a>(text: &'a str, start: &str) -> Vec<Vec<&'a str>> {
    let found = text.lines().filter(|line| line.starts_with(start));
    found.map(|line| line.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

#[test]
fn ratios_are_within_rounds_and_beside_targets() {
    let plan = plan("--rounds 2 --preset 100x100,10x1000,100x40", true);
    let text = reported(&plan, |_, _, report| Some(Ok(report)));
    let tls = ["tls", "tcp", "0.40, 0.40", "0.45", "0.20, 0.20", "0.25", "yes, yes", "met"];
    let webrtc = ["webrtc", "webrtc", "0.50, 0.50", "0.5", "0.10, 0.10", "0.1", "yes, yes", "met"];
    assert_eq!(rows(&text, "| 100x100 | tls | tcp")[0][1..], tls);
    assert_eq!(rows(&text, "| 100x100 | webrtc | webrtc")[0][1..], webrtc);
    // The published loads alone have targets.
    let quic = ["quic", "quic", "0.40, 0.40", "", "0.20, 0.20", "", "yes, yes", ""];
    assert_eq!(rows(&text, "| 100x100 | quic | quic")[0][1..], quic);
    assert_eq!(rows(&text, "| 100x40 | tls | tcp")[0][8], "");
    // A saturated reference costs more per echo than it would at a rate that both reach.
    let beside = ["yes, no", "met beside a saturated reference"];
    assert_eq!(rows(&text, "| 10x1000 | webrtc | webrtc")[0][7..], beside);
    assert!(text.contains("- saturated: go-libp2p webrtc 10x1000 "), "{text}");
    assert_eq!(text.matches("saturated: ").count(), 1, "{text}");
    let cost = &rows(&text, "| 100x100 | onrush-load tls |")[0];
    assert_eq!(
        cost[2..6],
        ["20,000 [20,000-20,000]", "100%", "12.00 [8.00-16.00]", "6.00 [4.00-8.00]"]
    );
}

#[test]
fn each_target_is_of_both_sides() {
    let plan = plan("--rounds 1 --preset 100x100", true);
    let met = |change: fn(&mut TransportReport)| {
        let text = reported(&plan, |_, case, mut report| {
            if case.name() == "onrush-load webrtc" {
                change(&mut report);
            }
            Some(Ok(report))
        });
        rows(&text, "| 100x100 | webrtc | webrtc")[0][8].to_owned()
    };
    assert_eq!(met(|_| ()), "met");
    let worse: [fn(&mut TransportReport); 5] = [
        |report| report.server.us_per_echo *= 1.1,
        |report| report.client.us_per_echo *= 1.1,
        |report| report.server.rss += 1 << 20,
        |report| report.client.rss += 1 << 20,
        |report| report.right -= 2,
    ];
    for change in worse {
        assert_eq!(met(change), "**not met**");
    }
}

#[test]
fn webrtc_is_beside_the_published_ratios() {
    let plan = plan("--rounds 1", true);
    let text = reported(&plan, |_, _, report| Some(Ok(report)));
    let section = text.split("## WebRTC beside TCP and QUIC").nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let cells: Vec<_> =
        ["| 10x1000", "| 100x100"].iter().flat_map(|it| rows(section, it)).collect();
    let line = |row: &Vec<&str>| row.join("|");
    let wanted = [
        "10x1000|onrush-load|tcp|5.33, 5.33||4.00, 4.00|",
        "10x1000|onrush-load|tls|4.00, 4.00|6 to 7|2.00, 2.00|3 to 4",
        "10x1000|onrush-load|quic|2.00, 2.00||1.00, 1.00|",
        "10x1000|go-libp2p|tcp|3.20, 3.20|6 to 7|4.00, 4.00|3 to 4",
        "10x1000|go-libp2p|quic|1.60, 1.60||2.00, 2.00|",
        "100x100|onrush-load|tcp|5.33, 5.33||4.00, 4.00|",
        "100x100|onrush-load|tls|4.00, 4.00|4|2.00, 2.00|4",
        "100x100|onrush-load|quic|2.00, 2.00|2.2|1.00, 1.00|3",
        "100x100|go-libp2p|tcp|3.20, 3.20|4|4.00, 4.00|4",
        "100x100|go-libp2p|quic|1.60, 1.60|2.2|2.00, 2.00|3",
    ];
    assert_eq!(cells.iter().map(line).collect::<Vec<_>>(), wanted);
}

#[test]
fn what_has_no_figure_is_told() {
    let text = reported(&plan("--rounds 2 --preset 3x7", true), |round, case, report| {
        match (case.name().as_str(), round) {
            ("go-libp2p webrtc", _) => Some(Err("it ended\nearly".into())),
            ("onrush-load quic", _) => None,
            ("go-libp2p quic", 2) => Some(Err("it ended".into())),
            ("onrush-load tls", 1) => Some(Ok(TransportReport { wrong: 3, ..report })),
            _ => Some(Ok(report)),
        }
    });
    assert_eq!(rows(&text, "| 3x7 | go-libp2p webrtc |")[0][2..4], ["**failed**", ""]);
    assert_eq!(rows(&text, "| 3x7 | onrush-load quic |")[0][2..4], ["**not done**", ""]);
    assert_eq!(rows(&text, "| 3x7 | go-libp2p quic |")[0][2], "20,000 (1 of 2)");
    assert_eq!(rows(&text, "| 3x7 | webrtc | webrtc")[0][3..6], ["n/a", "", "n/a"]);
    assert_eq!(text.matches("of go-libp2p webrtc 3x7: it ended early").count(), 2, "{text}");
    assert!(text.contains("- 2 of 14 measurements are not done"), "{text}");
    assert!(text.contains("- wrong: onrush-load tls 3x7 returned 3"), "{text}");

    let text = reported(&plan("--rounds 1", false), |_, _, report| Some(Ok(report)));
    assert!(text.contains("- go-libp2p **absent**: ") && text.contains("--only libp2p"), "{text}");
    assert_eq!(rows(&text, "| 10x1000 | tls | tcp")[0][7..], ["yes, n/a", "n/a"]);
    assert!(!text.contains("| go-libp2p tcp |"), "{text}");
}

#[test]
fn doubts_are_told_and_no_time_has_no_ratio() {
    let plan = plan("--rounds 2 --preset 3x7", true);
    let text = reported(&plan, |_, case, mut report| {
        match case.name().as_str() {
            "onrush-load tcp" => report.server.us_per_echo = 0.0,
            "onrush-load quic" => report.warnings.push("the server was at its limit".into()),
            // The measurements before it were this load.
            "onrush-load tls" => {
                let load_average = vec![2.0];
                let environment = Environment { load_average, vcpus: 2, ..Environment::default() };
                report.warnings.extend(environment.warning());
                report.environment = Some(environment);
            }
            _ => {}
        }
        Some(Ok(report))
    });
    let told = text.split("## Warnings\n\n").nth(1).unwrap().split("\n\n").next().unwrap();
    assert_eq!(told, "- onrush-load quic 3x7: the server was at its limit");
    assert_eq!(rows(&text, "| 3x7 | onrush-load | tcp |")[0][3], "n/a");
}

#[test]
fn both_programs_get_the_same_arguments() {
    let plan = plan("--preset 3x7 --seconds 2", true);
    let comparison = Comparison { ours: "a".into(), theirs: Some("b".into()), plan };
    let of = |program, stack| {
        let case = TransportCase { preset: "3x7".into(), stack, program };
        let Launch { program, arguments, .. } = comparison.launch(&case).unwrap();
        format!("{} {}", program.display(), arguments.join(" "))
    };
    let rest = "--preset 3x7 --ramp-factor 20 --seconds 2 --pin 0,2 --quiet";
    let ours = of(Program::OnrushLoad, StackKind::Webrtc);
    assert_eq!(ours, format!("a transport --stack webrtc {rest}"));
    assert_eq!(of(Program::GoLibp2p, StackKind::Quic), format!("b --stack quic {rest}"));
}

#[test]
fn invalid_arguments_are_named() {
    for (line, named) in [
        ("--preset 0x5", "between 1x1 and"),
        ("--seconds 0", "--seconds"),
        ("--rounds 0", "--rounds"),
        ("--ramp-factor 0", "--ramp-factor"),
    ] {
        let error = args(line).unwrap_err();
        assert!(error.contains(named), "{line}: {error}");
    }
}
