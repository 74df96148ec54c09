//! `onrush doctor`: its exit code, and what it writes for whom. The checks have tests of their own, on
//! hosts made of files; `scripts/unit-test` asks it under the unit's filters.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use crate::harness::process::{Ended, Launch};

/// A host on which receive buffers may have so many bytes.
fn host(rmem_max: u64) -> TempDir {
    let host = tempfile::tempdir().unwrap();
    let core = host.path().join("proc/sys/net/core");
    fs::create_dir_all(&core).unwrap();
    fs::write(core.join("rmem_max"), format!("{rmem_max}\n")).unwrap();
    fs::write(core.join("wmem_max"), "1048576\n").unwrap();
    host
}

/// A tracker of few peers and one worker, so that nothing but the host's files matters.
const CONFIG: &str = "[workers]\ntotal = 1\n[limits]\npeers = 1000\n";

fn asked(root: &Path, flags: &[&str]) -> Ended {
    let doctor = Launch::new(&["doctor"]).flag("--root", root).config(CONFIG);
    flags.iter().fold(doctor, |doctor, flag| doctor.one(flag)).start().end()
}

#[test]
fn a_problem_is_told_with_its_remedy_and_ends_in_1() {
    let ended = asked(host(212_992).path(), &[]);
    assert_eq!(ended.code, Some(1), "{}", ended.text());
    let first = ended.output.lines().next().unwrap();
    assert!(first.starts_with("problem  rmem_max "), "{}", ended.output);
    assert!(ended.output.contains("sysctl -w net.core.rmem_max=4194304"), "{}", ended.output);
    assert!(ended.output.contains("1 problem,"), "{}", ended.output);
    assert!(!ended.output.contains('\x1b'), "colours are for terminals");
}

#[test]
fn without_problems_it_ends_in_0() {
    let ended = asked(host(4_194_304).path(), &[]);
    assert_eq!(ended.code, Some(0), "{}", ended.output);
    assert!(ended.output.contains("0 problems"), "{}", ended.output);
}

#[test]
fn programs_get_json() {
    let ended = asked(host(1).path(), &["--json"]);
    let report: serde_json::Value = serde_json::from_str(&ended.output).unwrap();
    assert_eq!((ended.code, &report["problems"]), (Some(1), &1.into()));
    let findings = report["findings"].as_array().unwrap();
    let found = findings.iter().find(|finding| finding["name"] == "rmem_max").unwrap();
    assert_eq!(found["fix"], "sysctl -w net.core.rmem_max=4194304");
}

#[test]
fn where_nothing_can_be_seen_it_ends_in_2() {
    let nothing = tempfile::tempdir().unwrap();
    let ended = asked(nothing.path(), &[]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.text().contains("/proc"), "{}", ended.text());
    let ended = Launch::new(&["doctor"]).config("nonsense\n").start().end();
    assert_eq!(ended.code, Some(2));
    assert!(ended.text().contains("onrush.toml:1"), "{}", ended.text());
}

#[test]
fn this_host_is_looked_at_and_the_start_says_the_short_version() {
    let config = "[socket]\nreceive_buffer = 1073741823\n";
    let ended = Launch::new(&["doctor"]).config(config).start().end();
    assert_eq!(ended.code, Some(1), "{}", ended.output);
    assert!(ended.output.contains("net.core.rmem_max"), "{}", ended.output);
    let mut daemon = Launch::on_loopback().config(config).start();
    daemon.serving();
    let text = daemon.stop().text();
    let line = text.lines().find(|line| line.contains("onrush doctor")).expect(&text);
    assert!(line.contains(" WARN ") && line.contains("rmem_max"), "{line}");
}
