//! Profiles on the command line: printing, changing, and errors with file, line and key.

use std::process::Output;

use super::command::{command, stderr};

/// Runs the command; no test here sends a datagram.
fn load(args: &[&str]) -> Output {
    command().args(args).output().unwrap()
}

#[test]
fn a_profile_is_printed_with_its_comments() {
    let output = load(&["--print-profile", "--profile", "abuse"]);
    assert!(output.status.success());
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(printed.trim_end(), include_str!("../../profiles/abuse.toml").trim_end());
}

#[test]
fn a_printed_profile_is_a_profile_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mine.toml");
    let path = path.to_str().unwrap();
    std::fs::write(path, load(&["--print-profile", "-p", "ipv6", "--set", "v6=0.5"]).stdout)
        .unwrap();
    let output = load(&["--print-profile", "--profile", path]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(String::from_utf8(output.stdout).unwrap().contains("name = \"ipv6\""));
}

#[test]
fn errors_name_file_line_and_key() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mine.toml");
    std::fs::write(&path, "base = \"classic\"\n[mix]\nscrpe = 2\n").unwrap();
    let path = path.to_str().unwrap();
    let output = load(&["--profile", path]);
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains(&format!("{path}:3:1: `mix.scrpe`")), "{message}");
    assert!(message.contains("did you mean `scrape`?"), "{message}");
    let output = load(&["--set", "seeders=35"]);
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("`seeders`") && message.contains("0 to 1"), "{message}");
}
