//! Real rounds with real processes: our own tracker in two placements and over HTTPS, one behind
//! hitch, one that dies, a bench that is ended in the middle; and transports. Needs two vCPUs, as a
//! comparison does. No test depends on a rate: on a host that leaves the programs no CPU time a
//! measurement has no reply, which is a failed round.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use onrush_bench::record::{Measured, Record, RoundOutcome, read};

const BENCH: &str = env!("CARGO_BIN_EXE_onrush-bench");
/// Deadline of every wait.
const DEADLINE: Duration = Duration::from_secs(300);

/// Builds the tracker and the load tester beside the bench, as the bench expects them: they are
/// separate packages, so cargo does not build them for this test.
fn built() {
    // scripts/test has built them, and lints hold cargo's lock beside the tests.
    if std::env::var_os("ONRUSH_BIN").is_some() {
        return;
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let target = Path::new(BENCH).parent().and_then(Path::parent).unwrap();
        let mut cargo = Command::new(env!("CARGO"));
        // With the tests, as `cargo test --workspace` has just done it: dependencies have the same
        // features then, and nothing is built twice.
        cargo.args(["build", "--quiet", "--locked", "--workspace", "--exclude", "onrush-lab"]);
        cargo.args(["--bins", "--tests"]);
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let status = cargo.current_dir(root).env("CARGO_TARGET_DIR", target).status().unwrap();
        assert!(status.success());
    });
}

/// An unused port outside of the ephemeral range.
fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = std::process::id() + NEXT.fetch_add(1, Ordering::Relaxed);
        let port = 10_000 + (number % 10_000) as u16;
        if UdpSocket::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// A bench of short rounds of these contenders over UDP.
fn bench(port: u16, peers: &Path, contenders: &str, out: &Path) -> Command {
    bench_of("spread", port, peers, contenders, out)
}

/// A bench of short rounds of these contenders under one load.
fn bench_of(mix: &str, port: u16, peers: &Path, contenders: &str, out: &Path) -> Command {
    built();
    let mut command = Command::new(BENCH);
    command.arg("run").env("ONRUSH_PEERS", peers).arg("--out").arg(out);
    command.args(["--mix", mix, "--seconds", "0.4", "--warmup", "0.2", "--swarms", "2000"]);
    command.args(["--cores", "1", "--load-workers", "1", "--latency-at", "50"]);
    command.args(["--port", &port.to_string(), "--contenders", contenders]);
    command
}

/// The exit status and the output of a command.
fn ran(command: &mut Command) -> (Option<i32>, String) {
    let Output { stdout, stderr, status } = command.output().unwrap();
    let text = [stdout, stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    (status.code(), text)
}

/// The output of a command that ends with this exit status.
#[track_caller]
fn ended(command: &mut Command, status: i32) -> String {
    let (found, text) = ran(command);
    assert_eq!(found, Some(status), "{text}");
    text
}

/// A shell script in an install root.
fn script(root: &Path, name: &str, lines: &str) {
    let program: PathBuf = root.join("bin").join(name);
    fs::create_dir_all(program.parent().unwrap()).unwrap();
    fs::write(&program, format!("#!/bin/sh\n{lines}\n")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A program that ends at once, in an install root.
fn exiting_program(root: &Path, name: &str) {
    script(root, name, "echo no such setting >&2\nexit 3");
}

/// The measurements of the records, whose replies are all right.
fn measurements(records: &[Record]) -> Vec<&Measured> {
    let measured = records.iter().filter_map(|record| match &record.outcome {
        RoundOutcome::Measured(measured) => Some(&**measured),
        RoundOutcome::Failed(_) => None,
    });
    measured.inspect(|it| assert_eq!(it.most.wrong, 0, "{it:?}")).collect()
}

/// Repeated until each placement has been measured.
#[test]
fn both_placements_are_measured_and_right() {
    let peers = tempfile::tempdir().unwrap();
    let (end, mut done) = (Instant::now() + DEADLINE, HashSet::new());
    while done.len() < 2 {
        assert!(Instant::now() < end, "only {done:?} was measured");
        let out = tempfile::tempdir().unwrap();
        let mut strict = bench(free_port(), peers.path(), "onrush", out.path());
        let (status, text) = ran(strict.args(["--rounds", "2", "--strict"]));
        let records = read(out.path()).unwrap();
        let kind = |record: &Record| record.case.variant.kind.clone().unwrap();
        let order: Vec<_> = records.iter().map(|record| (record.round, kind(record))).collect();
        let turns = [(1, "colocated"), (1, "split"), (2, "colocated"), (2, "split")];
        assert_eq!(order, turns.map(|(round, kind)| (round, kind.to_owned())));
        for record in &records {
            for measured in measurements(std::slice::from_ref(record)) {
                assert!(measured.most.rate > 0.0 && measured.peak_rss.unwrap() > 1 << 20);
                let share = &measured.shares[0];
                assert!((share.asked - measured.most.rate / 2.0).abs() < 1.0, "{share:?}");
                assert!(share.point.p99.unwrap() > 0.0);
                done.insert(kind(record));
            }
        }
        let all = measurements(&records).len() == records.len();
        assert_eq!(status, Some((!all).into()), "{text}");
        let report = fs::read_to_string(out.path().join("report.md")).unwrap();
        for name in ["onrush (colocated)", "onrush (split)"] {
            assert!(report.contains(name), "{report}");
        }
        // A second bench in the same directory would mix results.
        let again = ended(&mut bench(free_port(), peers.path(), "onrush", out.path()), 2);
        assert!(again.contains("holds results already"), "{again}");
    }
}

/// The program of the tracker, where every user may run it, in an install root that every user may
/// write to.
fn readable_tracker(root: &Path) -> PathBuf {
    built();
    let copy = root.join("tracker");
    fs::copy(Path::new(BENCH).with_file_name("onrush"), &copy).unwrap();
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(root, fs::Permissions::from_mode(0o777)).unwrap();
    copy
}

/// Two processes of our tracker under the names of others: one without TLS is called
/// bittorrent-tracker, one with TLS is called hitch and answers without a backend. Repeated until
/// both have been measured.
#[test]
fn processes_behind_hitch_count_as_one() {
    let peers = tempfile::tempdir().unwrap();
    let program = readable_tracker(peers.path());
    // Arguments: --http --http-hostname IP --port PORT ...
    let plain = "--http \"$3:$5\" --listen \"$3:$5\" --state-dir \"$PWD/state\"";
    script(peers.path(), "bittorrent-tracker", &format!("exec {} {plain}", program.display()));
    // The bench has asked for its version before.
    let front = format!(
        "[ $1 = --config ] || exit 1\n\
         address=$(sed -n 's/^frontend = \"\\[\\(.*\\)\\]\\(.*\\)\"/\\1\\2/p' $2)\n\
         printf '%s\\n' \"listen = ['$address']\" '[http]' \"tls_listen = ['$address']\" \
         \"certificates = ['$PWD/certificate.pem']\" \"keys = ['$PWD/key.pem']\" > {0}/front.toml\n\
         exec {1} --config {0}/front.toml --state-dir {0}/state",
        peers.path().display(),
        program.display()
    );
    script(peers.path(), "hitch", &front);
    let (end, mut peaks) = (Instant::now() + DEADLINE, HashMap::new());
    while peaks.len() < 2 {
        assert!(Instant::now() < end, "only {peaks:?} was measured");
        let (out, names) = (tempfile::tempdir().unwrap(), "onrush,bittorrent-tracker");
        let mut command = bench_of("https", free_port(), peers.path(), names, out.path());
        let (_, text) = ran(command.args(["--rounds", "1"]));
        let records = read(out.path()).unwrap();
        assert_eq!(records.len(), 2, "{text}");
        for record in &records {
            for measured in measurements(std::slice::from_ref(record)) {
                assert!(measured.most.rate > 0.0 && measured.most.cpu_per_reply > 0.0, "{text}");
                assert_eq!(measured.shares.len(), 1);
                peaks.insert(record.case.variant.name(), measured.peak_rss.unwrap());
            }
        }
        let report = fs::read_to_string(out.path().join("report.md")).unwrap();
        let head = "| cores | onrush | bittorrent-tracker (hitch) |";
        assert!(measurements(&records).is_empty() || report.contains(head), "{report}");
    }
    let (alone, both) = (peaks["onrush"], peaks["bittorrent-tracker (hitch)"]);
    assert!(both > alone + alone / 2, "{alone} and {both} bytes");
}

#[test]
fn a_tracker_that_exits_is_a_failed_round() {
    let (out, peers) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    exiting_program(peers.path(), "chihaya");
    let run = |directory: &Path, strict: &[&str]| {
        let mut command = bench(free_port(), peers.path(), "chihaya,onrush", directory);
        ran(command.args(["--rounds", "1", "--no-latency"]).args(strict))
    };
    let (status, text) = run(out.path(), &[]);
    let records = read(out.path()).unwrap();
    assert_eq!(records.len(), 3);
    for record in records.iter().filter(|record| record.case.variant.tracker == "chihaya") {
        let RoundOutcome::Failed(reason) = &record.outcome else { panic!("{record:?}") };
        assert!(reason.contains("no such setting") && reason.contains('3'), "{reason}");
    }
    // It costs the others nothing.
    let none = measurements(&records).is_empty();
    assert_eq!(status, Some(none.into()), "{text}");
    let report = fs::read_to_string(out.path().join("report.md")).unwrap();
    let failed = report.split_once("## Failed rounds\n\n").unwrap().1;
    assert!(failed.contains("- round 1 of chihaya"), "{report}");
    let strict = tempfile::tempdir().unwrap();
    let (status, text) = run(strict.path(), &["--strict"]);
    assert_eq!(status, Some(1), "{text}");
}

/// The tracker exits at once without workers. With one it never answers.
#[test]
fn an_interrupted_bench_has_a_report() {
    let (out, peers) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    script(peers.path(), "opentracker", "grep -q 'workers 0' \"$2\" || exec sleep 600\nexit 3");
    let mut running = bench(free_port(), peers.path(), "opentracker", out.path())
        .args(["--rounds", "3"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The second round runs when the first one is reported.
    let mut lines = BufReader::new(running.stderr.take().unwrap()).lines();
    let told = lines.find(|line| line.as_ref().unwrap().contains("1 of 6")).unwrap().unwrap();
    assert!(told.contains("FAILED"), "{told}");
    kill(Pid::from_raw(running.id().try_into().unwrap()), Signal::SIGINT).unwrap();
    let rest: Vec<_> = lines.map(Result::unwrap).collect();
    assert_eq!(running.wait().unwrap().code(), Some(130), "{rest:?}");
    assert_eq!(read(out.path()).unwrap().len(), 1);
    let text = ended(Command::new(BENCH).arg("report").arg(out.path()), 0);
    assert!(text.contains("5 of 6 rounds are not done"), "{text}");
    assert!(text.contains("**failed**") && text.contains("**not done**"), "{text}");
}

#[test]
fn a_port_in_use_is_refused() {
    let (out, peers) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    exiting_program(peers.path(), "opentracker");
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let bench = || bench(port, peers.path(), "opentracker", out.path());
    let text = ended(&mut bench(), 2);
    assert!(text.contains("is in use") && text.contains("--port"), "{text}");
    // The remedy in the message works, as no round had begun.
    drop(taken);
    let text = ended(bench().args(["--rounds", "1"]), 1);
    assert!(text.contains("no round has a figure"), "{text}");
}

#[test]
fn an_unprivileged_tracker_ends_with_a_killed_bench() {
    let (out, peers) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // Like one of one's own builds: it never answers, and tells its process id.
    let told = tempfile::tempdir().unwrap();
    fs::set_permissions(told.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let file = told.path().join("pid");
    let tells = format!("echo $$ > {0}.new; mv {0}.new {0}; exec sleep 600", file.display());
    script(peers.path(), "opentracker", &tells);
    let mut running = bench(free_port(), peers.path(), "opentracker", out.path())
        .args(["--rounds", "1"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let end = Instant::now() + DEADLINE;
    let pid = loop {
        match fs::read_to_string(&file) {
            Ok(pid) => break pid.trim().to_owned(),
            Err(_) => assert!(Instant::now() < end, "the tracker was not started"),
        }
        std::thread::yield_now();
    };
    let status = format!("/proc/{pid}/status");
    if nix::unistd::geteuid().is_root() {
        let status = fs::read_to_string(&status).unwrap();
        assert!(status.contains("Uid:\t65534\t65534\t65534\t65534"), "{status}");
    }
    running.kill().unwrap();
    running.wait().unwrap();
    let gone = || fs::read_to_string(&status).map_or(true, |status| status.contains("State:\tZ"));
    while !gone() {
        assert!(Instant::now() < end, "process {pid} was left behind");
        std::thread::yield_now();
    }
}

/// The reference is ours, by its name and without the name of the command.
#[test]
fn transports_are_measured_beside_the_reference() {
    built();
    let (out, peers) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let load = Path::new(BENCH).with_file_name("onrush-load");
    let version = "[ $1 != --version ] || { echo libp2p go-libp2p v9; exit; }";
    script(peers.path(), "libp2p", &format!("{version}\nexec {} transport \"$@\"", load.display()));
    let transport = |out: &Path| {
        let mut command = Command::new(BENCH);
        command.arg("transport").env("ONRUSH_PEERS", peers.path()).arg("--out").arg(out);
        command.args(["--preset", "2x3", "--ramp-factor", "1000", "--seconds", "0.5"]);
        command
    };
    let text = ended(transport(out.path()).args(["--rounds", "1", "--strict"]), 0);
    assert!(text.contains("- go-libp2p go-libp2p v9: "), "{text}");
    for row in ["| 2x3 | onrush-load webrtc | ", "| 2x3 | go-libp2p webrtc | "] {
        assert!(text.contains(row), "{text}");
    }
    assert!(!text.contains("**failed**") && !text.contains("**not done**"), "{text}");
    let again = ended(Command::new(BENCH).arg("report").arg(out.path()), 0);
    assert_eq!(again, fs::read_to_string(out.path().join("report.md")).unwrap());
    assert!(ended(&mut transport(out.path()), 2).contains("holds results already"));
    // One that ends at once fails its measurements alone.
    exiting_program(peers.path(), "libp2p");
    let out = tempfile::tempdir().unwrap();
    let text = ended(transport(out.path()).args(["--rounds", "1", "--strict"]), 1);
    assert!(text.contains("3 of 7 measurements failed"), "{text}");
}

#[test]
fn absent_trackers_are_listed_with_a_remedy() {
    let peers = tempfile::tempdir().unwrap();
    exiting_program(peers.path(), "torrust-tracker");
    let text = ended(Command::new(BENCH).arg("list").env("ONRUSH_PEERS", peers.path()), 0);
    for name in
        ["onrush", "aquatic_udp", "opentracker", "chihaya", "torrust-tracker", "onrush-load"]
    {
        assert!(text.lines().any(|line| line.starts_with(name)), "{name}: {text}");
    }
    for line in text.lines().filter(|line| line.contains("absent: ")) {
        let reason = if line.starts_with("hefur") { "no package" } else { "install it with: " };
        assert!(line.contains(reason), "{line}");
    }
    let torrust = text.lines().find(|line| line.starts_with("torrust-tracker")).unwrap();
    assert!(torrust.contains(&*peers.path().to_string_lossy()), "{torrust}");
}
