//! The full scrape in a file: periodically, on a signal and on request, in every format.

use std::fs;
use std::path::Path;
use std::process::Command;

use onrush_proto::ScrapeCounts;

use crate::harness::messages::{EXPORTED, NO_EXPORT};
use crate::harness::{Launch, PLACEMENTS, Peers, TOKEN_FILE, eventually, mode};

/// A daemon that exports to this file.
fn exporting(flags: &[&str], file: &Path, every: u32) -> Launch {
    let config = format!("[export]\nfile = {file:?}\nevery = {every}\n");
    // The umask of the systemd unit.
    let strict = ["sh", "-c", "umask 077; exec \"$0\" \"$@\""];
    Launch::new(flags).flag("--listen", "127.0.0.1:0").config(&config).under(&strict)
}

/// The bytes of each format: `crates/store/src/export/format.rs`.
#[test]
fn every_format_agrees_with_scrapes() {
    for (number, name) in ["a.txt", "a.txt.gz", "a.bencode", "a.benc.gz"].into_iter().enumerate() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join(name);
        let mut daemon = exporting(PLACEMENTS[number % 3], &file, 0).serve();
        let Peers { hashes, state } = Peers::announced_to(daemon.address());
        assert!(!file.exists(), "an export that was not requested");
        daemon.signal("USR1");
        daemon.line_with(EXPORTED, &["24 swarms", name]);
        // Readable by others under any umask of the service.
        assert_eq!(mode(&file), 0o644);
        let program = if name.ends_with("gz") { "zcat" } else { "cat" };
        let unpacked = Command::new(program).arg(&file).output().unwrap();
        assert!(unpacked.status.success(), "{unpacked:?}");
        let bytes = unpacked.stdout;
        let swarms = hashes.iter().zip(&state.counts);
        let expected = swarms.map(
            |(hash, ScrapeCounts { seeders, leechers, completed })| match name.contains(".txt") {
                true => format!("{hash} {seeders} {leechers} {completed}\n").into_bytes(),
                false => {
                    let counts = format!(
                        "d8:completei{seeders}e10:downloadedi{completed}e10:incompletei{leechers}ee"
                    );
                    [b"20:", &hash.0[..], counts.as_bytes()].concat()
                }
            },
        );
        let has = |swarm: &[u8]| bytes.windows(swarm.len()).any(|window| window == swarm);
        assert!(expected.into_iter().all(|swarm| has(&swarm)), "{name}");
    }
}

#[test]
fn an_export_on_request_needs_a_configured_file_and_reports_path_and_size() {
    let path = "/api/v1/export";
    let daemon = Launch::on_loopback().admin_api("").serve();
    assert_eq!(daemon.call("GET", path, "").status, 405);
    daemon.call("POST", path, "").fails(409, &["export.file"]);
    // The remedy of the error works.
    daemon.configure(&format!("{TOKEN_FILE}[export]\nfile = \"HOME/scrape.txt\"\nevery = 0\n"));
    daemon.ctl(&["reload"]).prints(&["export.file"]);
    Peers::announced_to(daemon.address());
    let file = daemon.home().join("scrape.txt");
    assert!(!file.exists(), "an export that was not requested");
    let written = daemon.ctl(&["--json", "export"]).json();
    let text = fs::read_to_string(&file).unwrap();
    assert_eq!(text.lines().count(), 24);
    assert_eq!((&written["swarms"], &written["bytes"]), (&24.into(), &text.len().into()));
    assert_eq!(written["path"], file.display().to_string());
    assert!(written["seconds"].as_f64().unwrap() > 0.0, "{written}");
    daemon.ctl(&["export"]).prints(&["24 swarms", &file.display().to_string(), " KiB in "]);
    // A rename onto a directory fails.
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    daemon.call("POST", path, "").fails(500, &["scrape.txt"]);
}

/// A failure is logged, and the next one is tried.
#[test]
fn the_export_is_repeated() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("gone/scrape.txt");
    let mut daemon = exporting(PLACEMENTS[1], &file, 1).serve();
    daemon.line_with(NO_EXPORT, &["gone/scrape.txt"]);
    fs::create_dir(file.parent().unwrap()).unwrap();
    daemon.line_with(EXPORTED, &[" 0 swarms"]);
    let peers = Peers::announced_to(daemon.address());
    eventually("the export is repeated", || {
        fs::read_to_string(&file).unwrap().lines().count() >= peers.hashes.len()
    });
}
