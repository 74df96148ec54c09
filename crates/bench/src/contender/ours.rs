//! onrush, colocated and split; over HTTP and WebSocket with web workers.

use super::{Contender, Found, Launch, Setup, USUAL, Variant, unique, version_of_ours};
use crate::certificate::{CERTIFICATE, KEY};
use crate::cpus::Assignment;
use crate::machine::buffer_limit;
use crate::mix::Protocol;

const COLOCATED: &str = "colocated";
const SPLIT: &str = "split";
const WORKERS: &str = "workers";
const SOCKET: &str = "socket workers";
const SWARM: &str = "swarm workers";
const WEB: &str = "web workers";
/// Over veth devices.
const SOCKETS: &str = "sockets";
const QUEUES: &str = "AF_XDP";
const DRIVER: &str = "AF_XDP, connects in the driver";
/// Web workers per colocated worker, which serves their announces: a default host has one web
/// worker for eight vCPUs; here every core is for HTTP.
const WEB_PER_WORKER: usize = 8;
/// The default of `socket.receive_buffer`.
const RECEIVE_BUFFER: u64 = 4_194_304;
/// The default of `socket.send_buffer`.
const SEND_BUFFER: u64 = 1_048_576;

/// onrush.
pub const ONRUSH: Contender = Contender {
    name: "onrush",
    keyword: "onrush",
    remedy: "cargo build --release",
    settings: "the defaults, but for placement and numbers of workers, warnings only in the log, \
               and buffers no larger than net.core.rmem_max and wmem_max, which onrush could \
               exceed as root and the others could not (onrush --print-config); over HTTP and \
               WebSocket a web worker per core, a colocated worker per eight of them, and any \
               number of connections per source, as load testers have few addresses; over veth \
               devices the load's addresses are trusted, as those of 127/8 are",
    protocols: &Protocol::ALL,
    receive_buffer: Some(RECEIVE_BUFFER),
    version: version_of_ours,
    variants,
    launch: |found, variant, setup| {
        let config = config(variant, setup, buffer_limit("rmem_max"), buffer_limit("wmem_max"));
        Launch::configured(&found.program, setup.directory, ["--config", "onrush.toml"], &config)
    },
    ..USUAL
};

/// Another build of onrush, for a comparison of versions.
pub const BEFORE: Contender = Contender {
    name: "onrush-before",
    keyword: "before",
    remedy: "cp OLDER/onrush target/peers/bin/onrush-before",
    settings: "those of onrush",
    by_name: true,
    ..ONRUSH
};

fn variants(found: &Found, seats: &Assignment, protocol: Protocol) -> Vec<Variant> {
    let name = found.contender.name;
    let colocated = |n| Variant::new(name, Some(COLOCATED), &[(WORKERS, n)]);
    let split = |s, w| Variant::new(name, Some(SPLIT), &[(SOCKET, s), (SWARM, w)]);
    let total = seats.tracker.len();
    if protocol == Protocol::Veth {
        let kinds = [SOCKETS, QUEUES, DRIVER];
        return kinds.map(|kind| Variant::new(name, Some(kind), &[(WORKERS, total)])).into();
    }
    if protocol != Protocol::Udp {
        let workers = [(WEB, total), (WORKERS, total.div_ceil(WEB_PER_WORKER))];
        return vec![Variant::new(name, None, &workers)];
    }
    let mut variants = vec![colocated(total)];
    // One swarm worker in seven is the daemon's default; one in four suits costlier swarms than
    // those of the cost model.
    for swarm in [total.div_ceil(7), total.div_ceil(4)] {
        variants.push(split(total.saturating_sub(swarm).max(1), swarm));
    }
    // With one or two workers in all there is one of each kind.
    unique(variants)
}

/// `receive` and `send` are the kernel's limits of buffers.
fn config(variant: &Variant, setup: &Setup, receive: Option<u64>, send: Option<u64>) -> String {
    let workers = match (variant.count(SOCKET), variant.count(SWARM)) {
        (Some(socket), Some(swarm)) => {
            format!("placement = \"split\"\nsocket = {socket}\nswarm = {swarm}")
        }
        _ => {
            format!("placement = \"colocated\"\ntotal = {}", variant.count(WORKERS).unwrap_or(1))
        }
    };
    format!(
        "listen = [\"{}\"]\nstate_dir = \"{}\"\n\n[workers]\n{workers}\n\n\
         [socket]\nreceive_buffer = {}\nsend_buffer = {}\n\n[log]\nlevel = \"warn\"\n{}{}",
        setup.address,
        setup.directory.join("state").display(),
        receive.unwrap_or(RECEIVE_BUFFER).min(RECEIVE_BUFFER),
        send.unwrap_or(SEND_BUFFER).min(SEND_BUFFER),
        web(variant, setup).unwrap_or_default(),
        if setup.protocol == Protocol::Veth { veth(variant) } else { String::new() }
    )
}

/// The part about veth devices: the addresses of the load, and the device of the tracker
/// (scripts/bench-xdp).
fn veth(variant: &Variant) -> String {
    let trusted = "\n[limits]\ntrusted_sources = [\"198.18.0.0/15\"]\n";
    let connects = match variant.kind.as_deref() {
        Some(QUEUES) => "workers",
        Some(DRIVER) => "driver",
        _ => return trusted.to_owned(),
    };
    format!(
        "{trusted}\n[xdp]\ninterfaces = [\"onrush0\"]\nrequired = true\n\
         connects = \"{connects}\"\n"
    )
}

/// The part about HTTP, on the port of UDP.
fn web(variant: &Variant, setup: &Setup) -> Option<String> {
    let workers = variant.count(WEB)?;
    let file = |name| setup.directory.join(name).display().to_string();
    let listen = match setup.protocol.in_tls() {
        None => format!("listen = [\"{}\"]", setup.address),
        Some(_) => format!(
            "tls_listen = [\"{}\"]\ncertificates = [\"{}\"]\nkeys = [\"{}\"]",
            setup.address,
            file(CERTIFICATE),
            file(KEY)
        ),
    };
    Some(format!("\n[http]\n{listen}\nworkers = {workers}\nconnections_per_source = 1000000\n"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::contender::tests::{installed, setup};
    use crate::mix::Mix;

    #[test]
    fn every_capacity_has_both_placements() {
        let of = |cores, protocol| -> Vec<_> {
            let cpus: Vec<_> = (0..=cores).collect();
            let seats = Assignment::new(&cpus, cores, 1).unwrap();
            let variants = installed(&ONRUSH).variants(&seats, protocol);
            variants.iter().map(|v| format!("{} {}", v.name(), v.split())).collect()
        };
        assert_eq!(
            of(1, Protocol::Udp),
            ["onrush (colocated) workers: 1", "onrush (split) socket workers: 1, swarm workers: 1"]
        );
        assert_eq!(
            of(8, Protocol::Udp),
            ["onrush (colocated) workers: 8", "onrush (split) socket workers: 6, swarm workers: 2",]
        );
        assert_eq!(of(9, Protocol::Wss), ["onrush web workers: 9, workers: 2"]);
        let seats = Assignment::new(&[0, 1], 1, 1).unwrap();
        let before = installed(&BEFORE).variants(&seats, Protocol::Udp);
        assert_eq!(before[0].name(), "onrush-before (colocated)");
    }

    #[test]
    fn the_configuration_has_the_split() {
        let variant = Variant::new("onrush", Some(SPLIT), &[(SOCKET, 3), (SWARM, 1)]);
        let of = |mix| setup(Path::new("/tmp/x"), mix);
        let setup = of(Mix::Spread);
        let text = config(&variant, &setup, None, None);
        assert!(text.contains("socket = 3\nswarm = 1\n"), "{text}");
        assert!(text.contains("receive_buffer = 4194304\nsend_buffer = 1048576\n"), "{text}");
        // As root onrush would exceed the limit of buffers, which the other trackers cannot.
        let text = config(&variant, &setup, Some(212_992), Some(100_000));
        assert!(text.contains("receive_buffer = 212992\nsend_buffer = 100000\n"), "{text}");
        assert!(
            text.contains("listen = [\"127.0.0.1:7000\"]") && !text.contains("[http]"),
            "{text}"
        );
        let variant = Variant::new("onrush", None, &[(WEB, 4), (WORKERS, 1)]);
        let text = config(&variant, &of(Mix::Https), None, None);
        let tls = "[http]\ntls_listen = [\"127.0.0.1:7000\"]\n\
                   certificates = [\"/tmp/x/certificate.pem\"]\nkeys = [\"/tmp/x/key.pem\"]\n\
                   workers = 4\n";
        assert!(text.contains(tls) && text.contains("total = 1\n"), "{text}");
        let text = config(&variant, &of(Mix::Http), None, None);
        assert!(text.contains("[http]\nlisten = [\"127.0.0.1:7000\"]\n"), "{text}");
        for (kind, connects) in
            [(SOCKETS, None), (QUEUES, Some("workers")), (DRIVER, Some("driver"))]
        {
            let variant = Variant::new("onrush", Some(kind), &[(WORKERS, 1)]);
            let text = config(&variant, &of(Mix::VethClassic), None, None);
            let found = text.split_once("required = true\nconnects = \"").map(|(_, rest)| rest);
            assert_eq!(found.map(|rest| rest.trim_end_matches("\"\n")), connects, "{text}");
            assert!(text.contains("total = 1\n") && text.contains("trusted_sources"), "{text}");
        }
    }
}
