//! The full scrape in a file: periodically, on a signal and on request, in every format.

use std::fs;
use std::path::Path;
use std::process::Command;

use onrush_proto::{InfoHash, ScrapeCounts};

use crate::harness::messages::{EXPORTED, NO_EXPORT};
use crate::harness::process::{Launch, eventually, mode};
use crate::snapshot::{PLACEMENTS, Peers};

/// A daemon that exports to this file.
fn exporting(flags: &[&str], file: &Path, every: u32) -> Launch {
    let config = format!("[export]\nfile = {file:?}\nevery = {every}\n");
    // The umask of the systemd unit.
    let strict = ["sh", "-c", "umask 077; exec \"$0\" \"$@\""];
    Launch::new(flags).flag("--listen", "127.0.0.1:0").config(&config).under(&strict)
}

/// Decompresses a file with a program of Debian's base system.
fn unpacked(program: &str, file: &Path) -> Vec<u8> {
    let output = Command::new(program).arg("-dc").arg(file).output().unwrap();
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// The expected lines, sorted.
fn lines(hashes: &[InfoHash], counts: &[ScrapeCounts]) -> Vec<String> {
    let line = |(hash, counts): (&InfoHash, &ScrapeCounts)| {
        let ScrapeCounts { seeders, leechers, completed } = counts;
        format!("{hash} {seeders} {leechers} {completed}")
    };
    let mut lines: Vec<_> = hashes.iter().zip(counts).map(line).collect();
    lines.sort_unstable();
    lines
}

/// The expected dictionary (BEP 48), with sorted keys.
fn bencoded(hashes: &[InfoHash], counts: &[ScrapeCounts]) -> Vec<u8> {
    let mut swarms: Vec<_> = hashes.iter().zip(counts).collect();
    swarms.sort_by_key(|(hash, _)| hash.0);
    let mut bytes = b"d5:filesd".to_vec();
    for (hash, ScrapeCounts { seeders, leechers, completed }) in swarms {
        bytes.extend([b"20:", &hash.0[..]].concat());
        let counts =
            format!("d8:completei{seeders}e10:downloadedi{completed}e10:incompletei{leechers}ee");
        bytes.extend(counts.into_bytes());
    }
    bytes.extend(b"ee");
    bytes
}

#[test]
fn every_format_agrees_with_scrapes() {
    let names = ["a.txt", "a.txt.gz", "a.bencode", "a.benc.gz"];
    for (number, name) in names.into_iter().enumerate() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join(name);
        let mut daemon = exporting(PLACEMENTS[number % 3], &file, 0).serve();
        let Peers { hashes, state } = Peers::announced_to(daemon.address());
        assert!(!file.exists(), "an export that was not requested");
        daemon.signal("USR1");
        daemon.line_with(EXPORTED, &["24 swarms", name]);
        // Readable by others under any umask of the service.
        assert_eq!(mode(&file), 0o644);
        let bytes = match name.rsplit_once('.').unwrap().1 {
            "gz" => unpacked("gzip", &file),
            _ => fs::read(&file).unwrap(),
        };
        if name.contains(".txt") {
            let mut got: Vec<String> =
                String::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect();
            got.sort_unstable();
            assert_eq!(got, lines(&hashes, &state.counts), "{name}");
        } else {
            assert_eq!(bytes, bencoded(&hashes, &state.counts), "{name}");
        }
        daemon.stop();
    }
}

#[test]
fn the_export_is_repeated() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("scrape.txt");
    let mut daemon = exporting(PLACEMENTS[1], &file, 1).serve();
    daemon.line_with(EXPORTED, &[" 0 swarms"]);
    let peers = Peers::announced_to(daemon.address());
    eventually("the export is repeated", || {
        fs::read_to_string(&file).unwrap().lines().count() >= peers.hashes.len()
    });
    daemon.stop();
}

#[test]
fn a_failed_export_is_logged_and_the_tracker_serves() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("gone/scrape.txt");
    let configured = exporting(PLACEMENTS[0], &file, 0);
    for (launch, named) in [(configured, "gone/scrape.txt"), (Launch::on_loopback(), "export.file")]
    {
        let mut daemon = launch.serve();
        daemon.signal("USR1");
        daemon.line_with(NO_EXPORT, &[named]);
        daemon.check();
        daemon.stop();
    }
    let ended = exporting(PLACEMENTS[0], Path::new("/tmp/scrape.csv"), 0).start().end();
    assert_eq!(ended.code, Some(2));
    let parts = ["export.file", ".bencode"];
    assert!(parts.iter().all(|part| ended.text().contains(part)), "{}", ended.text());
}

#[test]
fn an_export_on_request_reports_path_and_size() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("scrape.txt");
    let config = format!("[export]\nfile = {file:?}\nevery = 0\n");
    let daemon = Launch::on_loopback().admin_api(&config).serve();
    Peers::announced_to(daemon.address());
    assert!(!file.exists(), "an export that was not requested");
    let ended = daemon.ctl(&["--json", "export"]);
    assert_eq!(ended.code, Some(0), "{}", ended.text());
    let written = ended.json();
    let text = fs::read_to_string(&file).unwrap();
    assert_eq!(text.lines().count(), 24);
    assert_eq!((&written["swarms"], &written["bytes"]), (&24.into(), &text.len().into()));
    assert_eq!(written["path"], file.display().to_string());
    assert!(written["seconds"].as_f64().unwrap() > 0.0, "{written}");
    let (ended, path) = (daemon.ctl(&["export"]), file.display().to_string());
    let values = ["24 swarms", &path, " KiB in "];
    assert!(values.iter().all(|value| ended.output.contains(value)), "{ended:?}");
    // The error names the removed directory.
    drop(directory);
    daemon.ctl(&["export"]).exits(1, &["scrape.txt"]);
}
