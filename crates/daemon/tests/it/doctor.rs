//! `onrush doctor`: exit codes and output formats. The checks have unit tests on fixture hosts;
//! `scripts/unit-test` runs the command under the system call filters of the systemd unit.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use crate::harness::{Ended, Launch, assert_parts};

/// A fixture host with this net.core.rmem_max.
fn host(rmem_max: u64) -> TempDir {
    let host = tempfile::tempdir().unwrap();
    let core = host.path().join("proc/sys/net/core");
    fs::create_dir_all(&core).unwrap();
    fs::write(core.join("rmem_max"), format!("{rmem_max}\n")).unwrap();
    fs::write(core.join("wmem_max"), "1048576\n").unwrap();
    host
}

/// A tracker with one worker and few peers, so that the findings depend only on the host's files.
const CONFIG: &str = "[workers]\ntotal = 1\n[limits]\npeers = 1000\n";

fn doctor(root: &Path, flags: &[&str]) -> Ended {
    Launch::new(&["doctor"]).flag("--root", root).config(CONFIG).flags(flags).run()
}

#[test]
fn problems_have_an_exit_status() {
    let ended = doctor(host(212_992).path(), &[]);
    ended.exits(1, &[]);
    assert_parts(&ended.output, &["sysctl -w net.core.rmem_max=4194304"]);
    assert!(!ended.output.contains('\x1b'), "no colours outside a terminal");
    let ended = doctor(host(1).path(), &["--json"]);
    assert_eq!((ended.code, &ended.json()["problems"]), (Some(1), &1.into()));
    doctor(host(4_194_304).path(), &[]).prints(&["0 problems"]);
}

#[test]
fn an_unreadable_host_exits_with_2_and_a_wrong_configuration_is_a_warning() {
    let nothing = tempfile::tempdir().unwrap();
    doctor(nothing.path(), &[]).exits(2, &["/proc"]);
    let host = host(4_194_304);
    let with = |config: &str| Launch::new(&["doctor"]).flag("--root", host.path()).config(config);
    with(&format!("{CONFIG}nonsense\n")).run().prints(&["0 problems"]);
    let ended = with(&format!("unknown = 1\n{CONFIG}")).run();
    ended.prints(&["0 problems"]);
    assert_parts(&ended.text(), &["onrush.toml:1", "`unknown`"]);
}

#[test]
fn this_host_is_checked_and_the_start_logs_its_problems() {
    let config = "[socket]\nreceive_buffer = 1073741823\n";
    let ended = Launch::new(&["doctor"]).config(config).run();
    ended.exits(1, &[]);
    assert_parts(&ended.output, &["net.core.rmem_max"]);
    let ended = Launch::on_loopback().config(config).serve().stop();
    ended.has_line("onrush doctor", &[" WARN ", "rmem_max"]);
}
