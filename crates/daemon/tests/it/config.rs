//! The command line: `--check-config`, `--print-config`, flags and help.

use std::fs;

use clap::{CommandFactory, Parser};
use onrush::cli::{Cli, Task};
use onrush_config::{Host, print_config};

#[test]
fn check_config_reports_the_effect_on_this_host() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.toml");
    fs::write(&path, "[workers]\ntotal = 2\npin = [1, 3, 0]\n").unwrap();
    let name = path.to_str().unwrap();
    let Ok(Task::Show(report)) = args(&["--config", name, "--check-config"]).task(&host(4)) else {
        panic!("a valid file is not reported");
    };
    let row = |name: &str| {
        let of =
            |line: &str| line.trim_start().strip_prefix(name).map(|rest| rest.trim().to_owned());
        report.lines().find_map(of).unwrap_or_else(|| panic!("no {name} in\n{report}"))
    };
    assert!(report.contains(name), "{report}");
    for (name, values) in [
        ("listen ", ["0.0.0.0:6969", "[::]:6969"].as_slice()),
        ("workers ", &["2 colocated", "vCPU 1,3"]),
        ("vCPUs ", &["4 usable: 0-3"]),
        ("announce ", &["1800 s", "5 %", "3600 s", "200 peers", "67 "]),
        ("limits ", &["20000000 peers", "1.3 GB"]),
        ("access ", &[]),
        ("state ", &["/home/op/.local/state/onrush"]),
        ("admin ", &["http://127.0.0.1:6970", "admin.token_file"]),
        ("Note: ", &["workers.pin", " 0 "]),
    ] {
        let row = row(name);
        values.iter().for_each(|value| assert!(row.contains(value), "{value}: {row}"));
    }
    fs::write(&path, "[workers]\ntotl = 2\n").unwrap();
    let problems = args(&["--config", name, "--check-config"]).task(&host(4)).unwrap_err();
    assert!(problems.to_string().contains("`total`"));
}

#[test]
fn flags_select_the_task() {
    assert!(matches!(args(&[]).task(&host(4)), Ok(Task::Serve(..))));
    let Ok(Task::Show(text)) = args(&["--print-config"]).task(&host(4)) else { panic!("no text") };
    assert_eq!(text, print_config());
}

#[test]
fn invalid_flags_are_reported_with_the_remedy() {
    let wrong = |flags: &[&str]| {
        let error = Cli::try_parse_from(["onrush"].iter().chain(flags)).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        error.to_string()
    };
    assert!(wrong(&["--listen", "1.2.3.4"]).contains("`1.2.3.4:6969`"));
    assert!(wrong(&["--workers", "0"]).contains("1..=1024"));
    assert!(wrong(&["--workers", "1025"]).contains("1..=1024"));
    assert!(wrong(&["--workers", "x"]).contains("--workers"));
    assert!(wrong(&["--placement", "spilt"]).contains("auto, split, colocated"));
    assert!(wrong(&["--log-level", "loud"]).contains("off, error"));
    assert!(wrong(&["--state-dir", ""]).contains("--state-dir"));
    assert!(wrong(&["--print-config", "--check-config"]).contains("--print-config"));
    assert!(wrong(&["--confg", "x"]).contains("--config"));
}

#[test]
fn help_has_examples_and_exit_codes() {
    Cli::command().debug_assert();
    let help = Cli::command().term_width(100).render_long_help().to_string();
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "udp://HOST:6969/announce",
        "`192.0.2.1:6969` and `[2001:db8::1]:6969`",
        "Examples:",
        "--print-config > onrush.toml",
        "Exit codes:",
    ] {
        assert!(help.contains(part), "{part} is missing in\n{help}");
    }
}

fn host(vcpus: usize) -> Host {
    Host { vcpus: (0..vcpus).collect(), home: Some("/home/op".into()), ..Host::default() }
}

fn args(flags: &[&str]) -> Cli {
    Cli::try_parse_from(["onrush"].iter().chain(flags)).unwrap()
}
