//! Profiles on the command line: printed, changed, and refused with file, line and key.

use std::process::{Command, Output};

/// Runs onrush-load; nothing here gets as far as sending.
fn load(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_onrush-load")).args(args).output().unwrap()
}

#[test]
fn a_profile_is_printed_with_its_comments() {
    let output = load(&["--print-profile", "--profile", "abuse"]);
    assert!(output.status.success());
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(printed.trim_end(), include_str!("../profiles/abuse.toml").trim_end());
}

#[test]
fn what_was_printed_is_a_profile_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mine.toml");
    let path = path.to_str().unwrap();
    std::fs::write(path, load(&["--print-profile", "-p", "ipv6", "--set", "v6=0.5"]).stdout)
        .unwrap();
    let output = load(&["--print-profile", "--profile", path]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8(output.stdout).unwrap().contains("name = \"ipv6\""));
}

#[test]
fn problems_of_a_profile_are_reported_before_anything_is_sent() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mine.toml");
    std::fs::write(&path, "base = \"classic\"\n[mix]\nscrpe = 2\n").unwrap();
    let path = path.to_str().unwrap();
    let output = load(&["--profile", path]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains(&format!("{path}:3:1: `mix.scrpe`: unknown key")), "{said}");
    assert!(said.contains("help: did you mean `scrape`?"), "{said}");
    let output = load(&["--set", "seeders=35"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("`seeders`: found 35, expected a number from 0 to 1"), "{said}");
}
