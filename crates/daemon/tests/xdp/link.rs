//! A tracker with its program on one host, and clients on the other.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use onrush_net::xdp::Mode;
use onrush_net::xdp::device::devices;
use onrush_tracker::xdp::XdpIntake;

use crate::harness::{Client, Daemon, Launch, Metrics, eventually, random_hash, request, run};
use crate::sandbox::{CLIENTS, Hosts, TRACKER};

/// The port of the tracker.
pub(crate) const PORT: u16 = 6_969;
/// The tracker's interface.
pub(crate) const INTERFACE: &str = "tracker";
/// The keys with which the program answers connects, although it is on a veth device. The memory of
/// the queues is within the limit of an ordinary user.
pub(crate) const XDP: &str =
    "[xdp]\ninterfaces = [\"tracker\"]\nconnects = \"driver\"\nring = 256\n";

/// The same where workers answer connects, as they do for a veth device.
pub(crate) const QUEUES: &str = "[xdp]\ninterfaces = [\"tracker\"]\nring = 256\n";

/// Runs a test on the tracker's host. What a program transmits reaches the clients' host, as the
/// device there has a program too.
pub(crate) fn with_program_of_clients<T: Send>(test: impl FnOnce(&Hosts) -> T + Send) -> T {
    Hosts::with(|hosts| {
        let _program = hosts.on_clients(|| {
            let mut program = XdpIntake::load().expect("run it as root: scripts/xdp-test");
            program.attach("clients", Mode::Native).unwrap();
            program
        });
        test(hosts)
    })
}

/// A command line for a tracker at all addresses, with these lines in front of its tables.
pub(crate) fn launch(keys: &str, tables: &str) -> Launch {
    launch_with(&["--workers", "2"], keys, tables)
}

/// The same with these flags.
pub(crate) fn launch_with(flags: &[&str], keys: &str, tables: &str) -> Launch {
    let config = format!("listen = [\":{PORT}\"]\n{keys}{tables}");
    // A successor serves the admin side at the same address.
    let flags = [&["--admin", "127.0.0.1:6970"], flags].concat();
    Launch::new(&flags).configured_admin().config(&config)
}

/// The same with a copy of the program in the home directory, both open to all users: the daemon
/// starts it again after it has changed its user.
pub(crate) fn open_to_all_users(mut launch: Launch) -> Launch {
    let config = launch.config_path();
    let home = config.parent().unwrap();
    let copy = home.join("onrush");
    // By another process: a program that is open for writing cannot be started.
    run(&format!("cp {} {}", env!("CARGO_BIN_EXE_onrush"), copy.display()));
    fs::set_permissions(home, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new(copy);
    command.stdin(Stdio::null());
    launch.replace(command);
    launch
}

/// A client of the tracker over IPv4 (0) or IPv6 (1).
pub(crate) fn client(hosts: &Hosts, family: usize) -> Client {
    client_of(hosts, family, TRACKER[family])
}

/// A client of the tracker's host at this address.
pub(crate) fn client_of(hosts: &Hosts, family: usize, address: &str) -> Client {
    let tracker = (address.parse::<std::net::IpAddr>().unwrap(), PORT).into();
    hosts.on_clients(|| Client::at(CLIENTS[family].parse().unwrap(), tracker))
}

/// A load of which every request gets a reply.
pub(crate) fn load(mut client: Client) -> impl FnMut() + Send {
    // New swarms all the time would reach the limit of the source.
    let hashes = [(); 16].map(|()| random_hash());
    move || {
        client.connect();
        client.burst(&hashes);
    }
}

/// The metrics, once a successor has the admin side.
pub(crate) fn metrics(daemon: &Daemon) -> Metrics {
    let mut page = None;
    eventually("the admin side answers", || {
        page = request(daemon.admin(), "GET", "/metrics", "", "").ok();
        page.as_ref().is_some_and(|page| page.status == 200)
    });
    Metrics::parse(&page.unwrap().body)
}

/// The frames with this verdict.
pub(crate) fn frames(daemon: &Daemon, verdict: &str) -> u64 {
    let verdict = format!("verdict=\"{verdict}\"");
    metrics(daemon).sum("onrush_xdp_frames_total", &[&verdict]) as u64
}

/// A number of a queue of the tracker's interface.
pub(crate) fn of_queue(daemon: &Daemon, series: &str, queue: u32) -> u64 {
    let queue = format!("queue=\"{queue}\"");
    metrics(daemon).sum(&format!("onrush_xdp_queue_{series}"), &[&queue]) as u64
}

/// The number of the program that is attached to the tracker's interface.
pub(crate) fn attached() -> Option<u32> {
    let devices = devices().unwrap();
    devices.iter().find(|device| device.name == INTERFACE).unwrap().program
}
