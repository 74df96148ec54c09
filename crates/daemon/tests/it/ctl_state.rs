//! Commands of `onrush ctl` about what a running daemon has in force: version, configuration, level
//! of the log, snapshot, list. At the control socket, without a token.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::thread;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::harness::messages::{LIST_CHANGED, PURGED_ONE};
use crate::harness::{
    Daemon, Ended, Launch, Peers, assert_parts, leecher, mode, nobody, random_hash, require_root,
    seeder,
};
use crate::snapshot::FILE;

/// The begin of each configuration.
const LOCAL: &str = "state_dir = \"HOME/state\"\n";

fn serve(tables: &str) -> Daemon {
    Launch::on_loopback().config(&format!("{LOCAL}{tables}")).serve()
}

#[test]
fn version_names_the_tracker_and_the_command() {
    let daemon = serve("");
    let text = daemon.local_output(&["version"]);
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(text.matches(version).count(), 2, "{text}");
    assert!(text.contains(&daemon.pid().to_string()), "{text}");
    let json = daemon.local_ctl(&["--json", "version"]).json();
    assert_eq!(json["process"], daemon.pid());
}

/// The contents of the lines are tested in `onrush_control::in_force`.
#[test]
fn config_shows_what_is_in_force_and_how_the_file_differs() {
    let daemon = serve("[announce]\ninterval = 900\n");
    let shown = daemon.local_output(&["config"]);
    assert_parts(&shown, &["announce.interval = 900\n", "admin.listen = \"off\"\n"]);
    // The lines are a valid file.
    let file = daemon.home().join("shown.toml");
    fs::write(&file, &shown).unwrap();
    Launch::new(&["--check-config"]).flag("--config", &file).run().prints(&[]);
    let same = daemon.local_ctl(&["--json", "config", "--diff"]).json();
    assert_eq!(same["differences"].as_array().unwrap().len(), 0, "{same}");
    daemon.configure(&format!("{LOCAL}[announce]\ninterval = 600\n[limits]\npeers = 5000\n"));
    let text = daemon.local_output(&["config", "--diff"]);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.len() == 2 && lines[0].contains("announce.interval"), "{text}");
    assert_parts(lines[1], &["limits.peers", "upgrade"]);
    assert_eq!(daemon.local_output(&["config"]), shown, "nothing has changed");
    // The file of the tracker is wrong; that of the command leads to the same socket.
    let correct = daemon.home().join("correct.toml");
    fs::copy(daemon.config_path(), &correct).unwrap();
    daemon.configure(&format!("{LOCAL}[announce]\nintervall = 600\n"));
    let differs = Launch::new(&["ctl", "config", "--diff"]).flag("--config", &correct).run();
    differs.exits(1, &["`announce.intervall`"]);
}

/// Until the next reload: `src/supervise/tests.rs`.
#[test]
fn the_level_of_the_log_changes() {
    let mut daemon = serve("");
    assert_parts(&daemon.local_output(&["log-level", "error"]), &["info -> error"]);
    daemon.line_with("log level: ", &["info -> error", "by user "]);
    let shown = daemon.local_output(&["config"]);
    assert_parts(&shown, &["log.level = \"error\"  # by user ", "until the next reload"]);
    let differs = daemon.local_output(&["config", "--diff"]);
    assert_eq!(differs, "log.level: \"error\", in the file \"info\" (by reload)");
    let again = daemon.local_ctl(&["--json", "log-level", "off"]).json();
    assert_eq!(again["level"], "error");
    daemon.line_with("log level: ", &["error -> off", "by user "]);
    assert_parts(&daemon.local_output(&["--timeout", "60", "health"]), &["the log is off"]);
    assert_parts(&daemon.local_output(&["metrics"]), &["\nonrush_log_level 0"]);
    assert_parts(&daemon.local_output(&["reload"]), &["changed: log.level"]);
    assert!(!daemon.local_output(&["--timeout", "60", "health"]).contains("log"));
    assert_eq!(daemon.local_ctl(&["log-level", "loud"]).code, Some(2));
}

#[test]
fn a_snapshot_is_written_at_once_and_copied() {
    let daemon = serve("[snapshot]\nevery = 0\n");
    let client = daemon.client();
    let hash = random_hash();
    (0..3).for_each(|port| drop(client.announce(&seeder(hash, 7_000 + port))));
    let text = daemon.local_output(&["snapshot"]);
    let file = daemon.home().join("state/onrush.snapshot");
    assert!(text.starts_with("3 peers ") && text.contains(file.to_str().unwrap()), "{text}");
    // The copy is a snapshot for another tracker.
    let other = tempfile::tempdir().unwrap();
    let copy = other.path().join("onrush.snapshot");
    daemon.local_output(&["snapshot", "--to", copy.to_str().unwrap()]);
    assert_eq!(mode(&copy), 0o600);
    // It replaces an earlier one, and no other file.
    let other_file = other.path().join("precious");
    fs::write(&other_file, "precious").unwrap();
    for (to, code) in [(&copy, 0), (&other_file, 2), (&other.path().to_owned(), 2)] {
        let ended = daemon.local_ctl(&["snapshot", "--to", to.to_str().unwrap()]);
        let parts: &[&str] = if code == 0 { &[] } else { &[to.to_str().unwrap(), "--to"] };
        ended.exits(code, parts);
    }
    assert_eq!(fs::read_to_string(&other_file).unwrap(), "precious");
    let second = Launch::on_loopback().flag("--state-dir", other.path()).serve();
    assert_eq!(second.client().counts(hash).seeders, 3);
    second.stop();

    let remote = ["--url", "http://127.0.0.1:1", "snapshot", "--to", copy.to_str().unwrap()];
    Launch::new(&["ctl"]).flags(&remote).run().exits(2, &["--to"]);
}

/// The tracker's user needs it in place of a lost one.
#[test]
fn a_copy_by_root_belongs_to_the_trackers_user() {
    require_root("copies as root");
    let daemon = Launch::on_loopback().config(LOCAL).run_as_nobody().serve();
    let other = tempfile::tempdir().unwrap();
    let copy = other.path().join("copy");
    daemon.local_output(&["snapshot", "--to", copy.to_str().unwrap()]);
    let (metadata, nobody) = (copy.metadata().unwrap(), nobody());
    assert_eq!((metadata.uid(), metadata.gid()), (nobody.uid.as_raw(), nobody.gid.as_raw()));
}

#[test]
fn without_snapshots_there_is_no_file_and_the_command_says_why() {
    let state = tempfile::tempdir().unwrap();
    let tables =
        format!("state_dir = {:?}\n[snapshot]\nenabled = false\nevery = 1\n", state.path());
    let daemon = Launch::on_loopback().config(&tables).serve();
    Peers::announced_to(daemon.address());
    daemon.local_ctl(&["snapshot"]).exits(1, &["snapshot.enabled"]);
    assert!(!daemon.stop().text().contains("snapshot"));
    assert!(!state.path().join(FILE).exists());
}

#[test]
fn the_list_is_exported_and_another_file_is_checked() {
    let list = tempfile::tempdir().unwrap();
    let (file, new) = (list.path().join("list"), list.path().join("new"));
    let names = [(); 4].map(|()| random_hash().to_string());
    fs::write(&file, names[..2].join("\n")).unwrap();
    let tables = format!("[access]\nmode = \"deny\"\nfiles = [{file:?}]\n[workers]\ntotal = 2\n");
    let daemon = serve(&tables);
    daemon.local_output(&["list", "add", &names[2]]);
    let exported = daemon.local_output(&["list", "export"]);
    assert_eq!(exported.lines().filter(|line| !line.starts_with('#')).count(), 3, "{exported}");
    assert!(names[..3].iter().all(|name| exported.contains(name)), "{exported}");

    // Two swarms, of which the new file denies one. A change on request stays over reloads.
    let (client, denied) = (daemon.client(), names[3].parse().unwrap());
    for (hash, port) in [(denied, 7_000), (denied, 7_001), (random_hash(), 7_000)] {
        client.announce(&leecher(hash, port));
    }
    fs::write(&new, names[1..].join("\n")).unwrap();
    let check = ["--json", "list", "check", new.to_str().unwrap()];
    let checked = daemon.local_ctl(&check).json();
    for (field, value) in
        [("entries", 3), ("added", 1), ("removed", 1), ("swarms", 1), ("peers", 2), ("examined", 2)]
    {
        assert_eq!(checked[field], value, "{field}: {checked}");
    }
    assert_eq!(client.counts(denied).leechers, 2, "nothing has changed");
    fs::write(&new, "no hash\n").unwrap();
    assert_eq!(daemon.local_ctl(&check).code, Some(2));
    daemon.stop();

    // Before the first list, of a pipe and of standard input.
    let open = serve("");
    let lines = names[..2].join("\n");
    fs::write(&new, &lines).unwrap();
    open.local_ctl(&["list", "check", new.to_str().unwrap()]).exits(1, &["access.mode", "--mode"]);
    let pipe = list.path().join("pipe");
    mkfifo(&pipe, Mode::S_IRWXU).unwrap();
    let writer = pipe.clone();
    let write = thread::spawn(move || fs::write(writer, lines).unwrap());
    let checked = open.local_ctl(&["list", "check", "--mode", "deny", pipe.to_str().unwrap()]);
    checked.prints(&["deny, 2 info hashes: 2 added, 0 removed"]);
    write.join().unwrap();
    let from = ["sh", "-c", "exec \"$@\" <\"$0\"", new.to_str().unwrap()];
    let check = open.command(&["ctl", "list", "check", "--mode", "allow", "-"]).under(&from).run();
    check.prints(&["allow, 2 info hashes: 2 added, 0 removed"]);
    fs::write(&new, "").unwrap();
    let refused = open.local_ctl(&["list", "check", "--mode", "allow", new.to_str().unwrap()]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert_parts(&refused.output, &["a reload refuses this: ", "access.mode"]);
}

#[test]
fn a_check_refuses_what_a_reload_refuses() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let lines = |number: usize| (0..number).map(|n| format!("{n:040x}\n")).collect::<String>();
    fs::write(at("a"), lines(90)).unwrap();
    fs::write(at("b"), lines(9)).unwrap();
    let tables = format!("[access]\nmode = \"deny\"\nfiles = [{:?}, {:?}]\n", at("a"), at("b"));
    let daemon = serve(&tables);
    fs::write(at("new"), lines(44).repeat(3)).unwrap();
    let check = |files: &[&str]| {
        let files: Vec<_> = files.iter().map(|file| at(file).display().to_string()).collect();
        let arguments = ["list", "check"].into_iter().chain(files.iter().map(String::as_str));
        daemon.local_ctl(&arguments.collect::<Vec<_>>())
    };
    let refused = |ended: Ended, parts: &[&str]| {
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert_parts(&ended.output, parts);
    };
    check(&["a", "b"]).prints(&["0 removed"]);
    // By its name, in whatever place; a file without a namesake by its place.
    check(&["b"]).prints(&["81 removed"]);
    let reason = ["46 removed", "a reload refuses this without --force", " 44 ", " 90 "];
    refused(check(&["new", "b"]), &reason);
    check(&["b", "new"]).prints(&["46 removed"]);
    fs::write(at("a"), lines(44)).unwrap();
    refused(check(&["b", "a"]), &reason);
    daemon.local_ctl(&["reload"]).exits(1, &["/a: ", "--force", " 44 ", " 90 "]);
    daemon.local_ctl(&["reload", "--force"]).prints(&[]);
    check(&["b", "a"]).prints(&["0 removed"]);
}

/// An entry that was removed on request stays removed when a later file has it: everything that
/// reads the file says so.
#[test]
fn an_overridden_entry_is_named_until_it_is_reset() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("denied");
    let [denied, added] = [(); 2].map(|()| random_hash());
    let name = denied.to_string();
    fs::write(&file, format!("{denied}\n")).unwrap();
    let list = format!("[access]\nmode = \"deny\"\nfiles = [{file:?}]\n");
    let mut daemon = serve(&list);
    daemon.local_output(&["list", "remove", &name]);
    daemon.local_output(&["list", "add", &added.to_string(), "--reason", "order 7"]);
    let named = |ended: Ended| ended.prints(&["1 entry of", &name, "removed 20", "by user "]);
    let assert_overrides = |daemon: &Daemon, number: u32| {
        let metrics = daemon.local_output(&["metrics"]);
        assert!(metrics.contains(&format!("\nonrush_list_overrides {number}.0\n")), "{metrics}");
    };
    named(daemon.local_ctl(&["reload"]));
    daemon.line_with("1 entry of", &[" WARN ", &name]);
    named(daemon.local_ctl(&["config", "--diff"]));
    named(daemon.local_ctl(&["list", "check", file.to_str().unwrap()]));
    named(Launch::new(&["--check-config"]).flag("--config", daemon.config_path()).run());
    daemon.local_ctl(&["list", "show"]).prints(&["overridden entries of its files: 1"]);
    let shown = daemon.local_ctl(&["list", "show", &name]);
    shown.prints(&["is not listed, and served; removed 20", "overrides a file"]);
    assert_overrides(&daemon, 1);
    let changes = daemon.local_output(&["list", "changes"]);
    let line = |hash: &str| changes.lines().find(|line| line.contains(hash)).unwrap();
    assert_parts(line(&name), &["removed", " user ", "overrides a file"]);
    assert_parts(line(&added.to_string()), &["added", " user ", "order 7"]);
    let json = daemon.local_ctl(&["--json", "list", "changes"]).json();
    assert_eq!((&json["total"], &json["overrides"]), (&2.into(), &1.into()), "{json}");
    // Over an upgrade, too.
    let before = daemon.log().len();
    daemon.upgrade();
    assert!(daemon.log()[before..].iter().any(|line| line.contains("1 entry of")));
    named(daemon.local_ctl(&["config", "--diff"]));
    drop(daemon.client().announce(&leecher(denied, 7_000)));
    daemon.local_ctl(&["list", "reset", &name]).prints(&["1 changed", "deny list has 2 "]);
    daemon.line_with(LIST_CHANGED, &["by user ", &format!("added {denied}")]);
    daemon.line(PURGED_ONE);
    daemon.client().announce_refused(&leecher(denied, 7_000));
    assert_overrides(&daemon, 0);
    // The reset is recorded.
    daemon.upgrade();
    assert_overrides(&daemon, 0);
    daemon.client().announce_refused(&leecher(denied, 7_000));
    let same = daemon.local_output(&["config", "--diff"]);
    let is_same = same.starts_with("the file has the values in force");
    assert!(is_same && !same.contains("note:"), "{same}");
    // Once the file lacks it, too.
    fs::write(&file, "").unwrap();
    daemon.local_ctl(&["reload", "--force"]).prints(&[]);
    drop(daemon.client().announce(&leecher(denied, 7_000)));
}
