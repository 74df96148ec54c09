//! The program is attached as long as the process runs, or its successor; and what happens where it
//! cannot be attached.

use std::fs;

use onrush_net::xdp::Mode;
use onrush_tracker::xdp::XdpIntake;

use crate::harness::{Daemon, eventually, meanwhile, run};
use crate::link::{
    INTERFACE, XDP, attached, client, frames, launch, launch_with, load, of_queue,
    open_to_all_users, with_program_of_clients,
};
use crate::sandbox::Hosts;

/// Keys for a change of user.
const NOBODY: &str = "user = \"nobody\"\nstate_dir = \"HOME/state\"\n";

/// Asserts that only the thread that starts a successor has capabilities, and that of the
/// allocator, which began before the program could drop anything.
#[track_caller]
fn assert_one_thread_has_capabilities(daemon: &Daemon) {
    let mut threads = daemon.threads("CapPrm");
    threads.retain(|(name, set)| name != "jemalloc_bg_thd" && set != "0000000000000000");
    assert_eq!(threads.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["spawn"]);
}

#[test]
fn the_program_is_detached_by_a_stop_and_by_a_kill() {
    with_program_of_clients(|hosts| {
        let daemon = launch("", XDP).serve();
        assert!(attached().is_some());
        client(hosts, 1).connect();
        daemon.stop();
        assert_eq!(attached(), None);
        let daemon = launch("", XDP).serve();
        assert!(attached().is_some());
        daemon.kill();
        eventually("the program is detached", || attached().is_none());
    });
}

/// Nothing is lost, connection ids stay valid, and the successor's program answers. Its workers
/// have the queues of the predecessor, however many they are, except in a change of the rings. One
/// thread keeps the capabilities for it.
#[test]
fn a_successor_replaces_the_program_under_load() {
    const OPENED_LATER: &str = "of tracker is open";
    let tables = |workers: u32, ring: &str| {
        let xdp = XDP.replace("ring = 256", &format!("ring = {ring}"));
        format!("{xdp}[workers]\ntotal = {workers}\n")
    };
    with_program_of_clients(|hosts| {
        let daemon = launch_with(&[], NOBODY, &tables(2, "256"));
        let mut daemon = open_to_all_users(daemon).serve();
        let first = attached().unwrap();
        let mut before = client(hosts, 0);
        before.connect();
        let loads = [client(hosts, 0), client(hosts, 1)];
        meanwhile(loads.map(load), || {
            for (workers, ring) in [(1, "256"), (2, "256"), (2, "256"), (2, "512")] {
                assert!(!daemon.log().iter().any(|line| line.contains(OPENED_LATER)));
                let tables = tables(workers, ring);
                daemon.configure(&format!("listen = [\":6969\"]\n{NOBODY}{tables}"));
                daemon.upgrade();
                if ring == "512" {
                    daemon.wait_for_line(OPENED_LATER);
                }
                assert_eq!(frames(&daemon, "stale"), 0);
                eventually("the queues receive", || {
                    [0, 1].iter().any(|it| of_queue(&daemon, "received_datagrams_total", *it) > 0)
                });
            }
        });
        assert_one_thread_has_capabilities(&daemon);
        let last = attached();
        assert!(last.is_some() && last != Some(first), "{last:?}");
        before.check_swarm();
        let answered = frames(&daemon, "answered");
        before.connect();
        eventually("the program answers", || frames(&daemon, "answered") > answered);
        daemon.stop();
        eventually("the program is detached", || attached().is_none());
    });
}

/// Without interfaces, the successor serves by its sockets alone.
#[test]
fn an_upgrade_removes_and_adds_the_program() {
    with_program_of_clients(|hosts| {
        let mut daemon = launch("", XDP).serve();
        daemon.configure("listen = [\":6969\"]\n");
        daemon.upgrade();
        eventually("the program is detached", || attached().is_none());
        client(hosts, 0).connect_and_check();
        daemon.configure(&format!("listen = [\":6969\"]\n{XDP}"));
        daemon.upgrade();
        assert!(attached().is_some());
        client(hosts, 0).connect_and_check();
        eventually("the program answers", || frames(&daemon, "answered") == 1);
        daemon.stop();
    });
}

/// Each is a warning, and an error where the program is required.
#[test]
fn without_the_program_sockets_serve_unless_it_is_required() {
    Hosts::with(|hosts| {
        let mut other = XdpIntake::load().expect("run it as root: scripts/xdp-test");
        other.attach(INTERFACE, Mode::Native).unwrap();
        let id = format!("id {}, onrush", attached().unwrap());
        for (interface, parts) in [
            ("eth9", &["xdp.interfaces.0", "there is no interface eth9", "ip link"][..]),
            ("tracker", &["another XDP program is attached to tracker", &id, "xdp off"]),
            ("lo", &["the driver of lo has no native XDP", "mode = \"generic\""]),
        ] {
            let keys = format!("[xdp]\ninterfaces = [\"{interface}\"]\n");
            let mut daemon = launch(NOBODY, &keys).serve();
            daemon.wait_for_line(parts[0]);
            // The cause may be gone at the next upgrade.
            assert_one_thread_has_capabilities(&daemon);
            let line = daemon.log().iter().find(|line| line.contains(parts[0])).unwrap();
            parts.iter().for_each(|part| assert!(line.contains(part), "{part}: {line}"));
            client(hosts, 0).connect_and_check();
            assert!(!daemon.get("/metrics").body.contains("onrush_xdp"));
            daemon.stop();
            let ended = launch("", &format!("{keys}required = true\n")).run();
            ended.exits(2, parts);
            ended.exits(2, &["onrush.toml:3:15: `xdp.interfaces.0`", "nothing was started"]);
        }
        drop(other);
        let keys = "[xdp]\ninterfaces = [\"lo\"]\nmode = \"generic\"\n";
        launch("", keys).serve().stop();
        let mut daemon = launch("", XDP).run_as_nobody().serve();
        daemon.wait_for_line("XDP program needs CAP_BPF and CAP_NET_ADMIN and CAP_NET_RAW and");
        daemon.stop();
    });
}

/// An interface that is removed takes its program and its queues with it, whose memory is released.
#[test]
fn an_interface_that_disappears_is_reported_and_sockets_serve() {
    Hosts::with(|_| {
        let mut daemon = launch("", XDP).serve();
        let descriptors = format!("/proc/{}/fd", daemon.pid());
        let has_memory = || {
            let links = fs::read_dir(&descriptors).unwrap().flatten();
            let mut names = links.flat_map(|link| fs::read_link(link.path()));
            names.any(|name| name.to_string_lossy().contains("memfd:onrush-xdp"))
        };
        assert!(has_memory());
        run("ip link delete tracker");
        daemon.wait_for_line("the interface tracker is gone");
        eventually("no copy of a queue is left", || !has_memory());
        daemon.stop();
    });
}
