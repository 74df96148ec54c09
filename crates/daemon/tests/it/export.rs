//! The full scrape in a file: periodically, on a signal and on request, in every format.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use onrush_proto::{InfoHash, ScrapeCounts};

use crate::ctl::AdminDaemon;
use crate::harness::client::Client;
use crate::harness::messages::{EXPORTED, NO_EXPORT};
use crate::harness::process::{Daemon, Launch, TIMEOUT, mode};
use crate::snapshot::{PLACEMENTS, populate, swarm_state};

/// Starts a daemon that exports to this file.
fn exporting(flags: &[&str], file: &Path, every: u32) -> Daemon {
    let config = format!("[export]\nfile = {file:?}\nevery = {every}\n");
    // The umask of the systemd unit.
    let strict = ["sh", "-c", "umask 077; exec \"$0\" \"$@\""];
    Launch::new(flags).flag("--listen", "127.0.0.1:0").config(&config).under(&strict).start()
}

/// Decompresses a file with a program of Debian's base system.
fn unpacked(program: &str, file: &Path) -> Vec<u8> {
    let output = Command::new(program).arg("-dc").arg(file).output().unwrap();
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn hex(hash: &InfoHash) -> String {
    hash.0.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The expected lines, sorted.
fn lines(hashes: &[InfoHash], counts: &[ScrapeCounts]) -> Vec<String> {
    let line = |(hash, counts): (&InfoHash, &ScrapeCounts)| {
        let ScrapeCounts { seeders, leechers, completed } = counts;
        format!("{} {seeders} {leechers} {completed}", hex(hash))
    };
    let mut lines: Vec<_> = hashes.iter().zip(counts).map(line).collect();
    lines.sort_unstable();
    lines
}

#[test]
fn every_format_agrees_with_scrapes() {
    let names = ["a.txt", "a.txt.gz", "a.bencode", "a.benc.gz"];
    for (number, name) in names.into_iter().enumerate() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join(name);
        let mut daemon = exporting(PLACEMENTS[number % 3], &file, 0);
        let address = daemon.serving()[0];
        let hashes = populate(address);
        let counts = swarm_state(&mut Client::new(address), &hashes).counts;
        assert!(!file.exists(), "an export that was not requested");
        daemon.signal("USR1");
        let line = daemon.line(EXPORTED);
        assert!(line.contains("24 swarms") && line.contains(name), "{line}");
        // Readable by others, whatever the umask of the service is.
        assert_eq!(mode(&file), 0o644);
        let bytes = match name.rsplit_once('.').unwrap().1 {
            "gz" => unpacked("gzip", &file),
            _ => fs::read(&file).unwrap(),
        };
        let got = if name.contains(".txt") {
            let mut got: Vec<String> =
                String::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect();
            got.sort_unstable();
            got
        } else {
            of_bencode(&bytes)
        };
        assert_eq!(got, lines(&hashes, &counts), "{name}");
        daemon.stop();
    }
}

/// Parses a full scrape strictly and independently of the product: sorted keys, canonical numbers.
fn of_bencode(mut bytes: &[u8]) -> Vec<String> {
    fn consume(bytes: &mut &[u8], expected: &[u8]) {
        let rest = bytes.strip_prefix(expected);
        *bytes = rest.unwrap_or_else(|| panic!("no {}", String::from_utf8_lossy(expected)));
    }
    fn number(bytes: &mut &[u8]) -> u32 {
        consume(bytes, b"i");
        let end = bytes.iter().position(|byte| *byte == b'e').unwrap();
        let text = String::from_utf8(bytes[..end].to_vec()).unwrap();
        *bytes = &bytes[end + 1..];
        let number: u32 = text.parse().unwrap();
        assert_eq!(number.to_string(), text);
        number
    }
    let (mut lines, mut before) = (Vec::new(), None);
    consume(&mut bytes, b"d5:filesd");
    while bytes[0] != b'e' {
        consume(&mut bytes, b"20:");
        let hash = InfoHash(bytes[..20].try_into().unwrap());
        bytes = &bytes[20..];
        assert!(before < Some(hash), "keys are sorted");
        before = Some(hash);
        consume(&mut bytes, b"d8:complete");
        let seeders = number(&mut bytes);
        consume(&mut bytes, b"10:downloaded");
        let completed = number(&mut bytes);
        consume(&mut bytes, b"10:incomplete");
        let leechers = number(&mut bytes);
        consume(&mut bytes, b"e");
        lines.push(format!("{} {seeders} {leechers} {completed}", hex(&hash)));
    }
    assert_eq!(bytes, b"ee");
    lines
}

#[test]
fn the_export_is_repeated() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("scrape.txt");
    let mut daemon = exporting(PLACEMENTS[1], &file, 1);
    let address = daemon.serving()[0];
    let line = daemon.line(EXPORTED);
    assert!(line.contains(" 0 swarms"), "{line}");
    let hashes = populate(address);
    let deadline = Instant::now() + TIMEOUT;
    while fs::read_to_string(&file).unwrap().lines().count() < hashes.len() {
        assert!(Instant::now() < deadline, "the export is not repeated");
        std::thread::yield_now();
    }
    daemon.stop();
}

#[test]
fn a_failed_export_is_logged_and_the_tracker_serves() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("gone/scrape.txt");
    let mut daemon = exporting(PLACEMENTS[0], &file, 0);
    let address = daemon.serving()[0];
    daemon.signal("USR1");
    let line = daemon.line(NO_EXPORT);
    assert!(line.contains("gone/scrape.txt"), "{line}");
    Client::new(address).connect_and_check();
    daemon.stop();
    let mut daemon = Launch::on_loopback().start();
    daemon.serving();
    daemon.signal("USR1");
    let line = daemon.line(NO_EXPORT);
    assert!(line.contains("export.file"), "{line}");
    daemon.stop();
    let text = exporting(PLACEMENTS[0], Path::new("/tmp/scrape.csv"), 0).end();
    assert_eq!(text.code, Some(2));
    assert!(
        text.text().contains("export.file") && text.text().contains(".bencode"),
        "{}",
        text.text()
    );
}

#[test]
fn an_export_on_request_reports_path_and_size() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("scrape.txt");
    let admin = AdminDaemon::start_with(&format!("[export]\nfile = {file:?}\nevery = 0\n"));
    populate(admin.address());
    assert!(!file.exists(), "an export that was not requested");
    let (code, json, error) = admin.ctl(&["--json", "export"]);
    assert_eq!(code, Some(0), "{error}");
    let written: serde_json::Value = serde_json::from_str(&json).unwrap();
    let text = fs::read_to_string(&file).unwrap();
    assert_eq!(text.lines().count(), 24);
    assert_eq!((&written["swarms"], &written["bytes"]), (&24.into(), &text.len().into()), "{json}");
    assert_eq!(written["path"], file.display().to_string());
    assert!(written["seconds"].as_f64().unwrap() > 0.0, "{json}");
    let (code, output, _) = admin.ctl(&["export"]);
    let values = ["24 swarms".into(), file.display().to_string(), format!("{} bytes", text.len())];
    assert!(code == Some(0) && values.iter().all(|value| output.contains(value)), "{output}");
    // The error names the removed directory.
    drop(directory);
    let (code, _, error) = admin.ctl(&["export"]);
    assert!(code == Some(1) && error.contains("scrape.txt"), "{error}");
}
