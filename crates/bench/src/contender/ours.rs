//! onrush, colocated and split.

use super::{Contender, Found, Launch, Setup, USUAL, Variant, unique, version_of_ours};
use crate::cpus::Assignment;
use crate::machine::buffer_limit;

const COLOCATED: &str = "colocated";
const SPLIT: &str = "split";
const WORKERS: &str = "workers";
const SOCKET: &str = "socket workers";
const SWARM: &str = "swarm workers";
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
               exceed as root and the others could not (onrush --print-config)",
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

fn variants(found: &Found, seats: &Assignment) -> Vec<Variant> {
    let name = found.contender.name;
    let colocated = |n| Variant::new(name, Some(COLOCATED), &[(WORKERS, n)]);
    let split = |s, w| Variant::new(name, Some(SPLIT), &[(SOCKET, s), (SWARM, w)]);
    let total = seats.tracker.len();
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
         [socket]\nreceive_buffer = {}\nsend_buffer = {}\n\n[log]\nlevel = \"warn\"\n",
        setup.address,
        setup.directory.join("state").display(),
        receive.unwrap_or(RECEIVE_BUFFER).min(RECEIVE_BUFFER),
        send.unwrap_or(SEND_BUFFER).min(SEND_BUFFER),
    )
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::contender::tests::{found, setup};

    #[test]
    fn every_capacity_has_both_placements() {
        let of = |cores| -> Vec<_> {
            let cpus: Vec<_> = (0..=cores).collect();
            let variants = found()[0].variants(&Assignment::new(&cpus, cores, 1).unwrap());
            variants.iter().map(|v| format!("{} {}", v.name(), v.split())).collect()
        };
        assert_eq!(
            of(1),
            ["onrush (colocated) workers: 1", "onrush (split) socket workers: 1, swarm workers: 1"]
        );
        assert_eq!(
            of(8),
            ["onrush (colocated) workers: 8", "onrush (split) socket workers: 6, swarm workers: 2",]
        );
        let before = Found { contender: &BEFORE, ..found()[0].clone() };
        let seats = Assignment::new(&[0, 1], 1, 1).unwrap();
        assert_eq!(before.variants(&seats)[0].name(), "onrush-before (colocated)");
    }

    #[test]
    fn the_configuration_has_the_split() {
        let variant = Variant::new("onrush", Some(SPLIT), &[(SOCKET, 3), (SWARM, 1)]);
        let setup = setup(Path::new("/tmp/x"));
        let text = config(&variant, &setup, None, None);
        assert!(text.contains("socket = 3\nswarm = 1\n"), "{text}");
        assert!(text.contains("receive_buffer = 4194304\nsend_buffer = 1048576\n"), "{text}");
        // As root onrush would exceed the limit of buffers, which the other trackers cannot.
        let text = config(&variant, &setup, Some(212_992), Some(100_000));
        assert!(text.contains("receive_buffer = 212992\nsend_buffer = 100000\n"), "{text}");
        assert!(text.contains("listen = [\"127.0.0.1:7000\"]"), "{text}");
    }
}
