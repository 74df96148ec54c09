//! `scripts/attack-test` with a tracker and a load tester that do nothing: what it starts ends with
//! it.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, pipe};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/attack-test");
/// A program that writes a line to its standard input, which is a pipe to the test.
const SLEEPS: &str = "#!/bin/sh\necho started >&0\necho ' ready'\nexec sleep 120\n";
/// Less than these programs sleep.
const BOUND: Duration = Duration::from_secs(100);

fn programs(tracker: &str) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in [("onrush", tracker), ("onrush-load", SLEEPS)] {
        let path = directory.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    directory
}

fn script(programs: &Path) -> Command {
    let mut command = Command::new(SCRIPT);
    command.args(["--only", "connects"]).env("ONRUSH_BIN", programs);
    command
}

fn text(output: &Output) -> String {
    let [out, error] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    format!("{out}{error}")
}

/// Every process that the script starts has the write end of a pipe as its standard input, so the
/// pipe ends with the last of them.
#[test]
fn no_process_survives_an_interrupted_run() {
    for signal in ["TERM", "INT", "KILL"] {
        let (begin, programs) = (Instant::now(), programs(SLEEPS));
        let (alive, input) = pipe().unwrap();
        let mut running = script(programs.path())
            .stdin(input)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("bash is needed");
        let mut alive = BufReader::new(alive);
        let mut lines = String::new();
        for _ in ["onrush", "onrush-load"] {
            alive.read_line(&mut lines).unwrap();
        }
        assert_eq!(lines, "started\nstarted\n", "{signal}");
        let sent = Command::new("kill").args(["-s", signal, &running.id().to_string()]).status();
        assert!(sent.unwrap().success());
        assert!(!running.wait().unwrap().success(), "{signal}");
        alive.read_to_string(&mut lines).unwrap();
        assert!(begin.elapsed() < BOUND, "{signal}: programs went on");
    }
}

#[test]
fn a_tracker_that_does_not_start_fails_the_row() {
    let programs = programs("#!/bin/sh\necho 'address in use'\nexit 1\n");
    let output = script(programs.path()).output().expect("bash is needed");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    for part in ["FAILED    connects", "address in use", "0 passed, 1 failed"] {
        assert!(text(&output).contains(part), "{part}: {}", text(&output));
    }
}

/// A user namespace in which no further namespaces may be made.
#[test]
fn the_right_to_make_namespaces_is_needed() {
    let forbid = "echo 0 >/proc/sys/user/max_user_namespaces; \
                  echo 0 >/proc/sys/user/max_net_namespaces; exec \"$0\"";
    let output = Command::new("unshare")
        .args(["--map-root-user", "--", "sh", "-c", forbid, SCRIPT])
        .output()
        .expect("`unshare` of util-linux is needed");
    assert!(!output.status.success());
    assert!(text(&output).contains("no network namespaces"), "{}", text(&output));
    assert!(output.stdout.is_empty(), "no row runs");
}
