//! onrush, colocated and split.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::{Capacity, Contender, Found, Launch, Setup, Variant, version_of_ours};
use crate::machine::BufferLimits;

/// onrush.
#[derive(Debug)]
pub struct Onrush;

const COLOCATED: &str = "colocated";
const SPLIT: &str = "split";
const SOCKET: &str = "socket workers";
const SWARM: &str = "swarm workers";
/// The default of `socket.receive_buffer`.
const RECEIVE_BUFFER: u64 = 4_194_304;
/// The default of `socket.send_buffer`.
const SEND_BUFFER: u64 = 1_048_576;

impl Contender for Onrush {
    fn name(&self) -> &'static str {
        "onrush"
    }

    fn keyword(&self) -> &'static str {
        "onrush"
    }

    fn program(&self) -> &'static str {
        "onrush"
    }

    fn remedy(&self) -> &'static str {
        "cargo build --release"
    }

    fn settings(&self) -> &'static str {
        "the defaults, but for placement and numbers of workers, warnings only in the log, and \
         buffers no larger than net.core.rmem_max and wmem_max, which onrush could exceed as root \
         and the others could not (onrush --print-config)"
    }

    fn receive_buffer(&self) -> Option<u64> {
        Some(RECEIVE_BUFFER)
    }

    fn version(&self, program: &Path) -> Option<String> {
        version_of_ours(program)
    }

    fn variants(&self, _: &Found, capacity: Capacity) -> Vec<Variant> {
        let colocated = |n| Variant::new(self.name(), Some(COLOCATED), &[("workers", n)]);
        let split = |s, w| Variant::new(self.name(), Some(SPLIT), &[(SOCKET, s), (SWARM, w)]);
        let mut variants: Vec<_> = capacity.workers().into_iter().map(colocated).collect();
        for total in capacity.workers() {
            // One swarm worker in seven is the daemon's default; one in four suits
            // costlier swarms than those of the cost model.
            let mut swarm = vec![total.div_ceil(7), total.div_ceil(4)];
            swarm.dedup();
            for swarm in swarm {
                let variant = split(total.saturating_sub(swarm).max(1), swarm);
                // With one or two workers in all there is one of each kind.
                if !variants.contains(&variant) {
                    variants.push(variant);
                }
            }
        }
        variants
    }

    fn launch(&self, found: &Found, variant: &Variant, setup: &Setup) -> anyhow::Result<Launch> {
        let file = setup.directory.join("onrush.toml");
        fs::write(&file, config(variant, setup, BufferLimits::read()))?;
        let arguments = vec!["--config".into(), file.display().to_string()];
        Ok(Launch {
            program: found.program.clone(),
            arguments,
            environment: Vec::new(),
            unprivileged: false,
        })
    }
}

fn config(variant: &Variant, setup: &Setup, limits: BufferLimits) -> String {
    let mut text = format!(
        "listen = [\"{}\"]\nstate_dir = \"{}\"\n\n[workers]\n",
        setup.address,
        setup.directory.join("state").display()
    );
    let workers = match (variant.count(SOCKET), variant.count(SWARM)) {
        (Some(socket), Some(swarm)) => {
            format!("placement = \"split\"\nsocket = {socket}\nswarm = {swarm}\n")
        }
        _ => {
            let total = variant.total().unwrap_or(1);
            format!("placement = \"colocated\"\ntotal = {total}\n")
        }
    };
    let receive = limits.receive.map_or(RECEIVE_BUFFER, |limit| limit.min(RECEIVE_BUFFER));
    let send = limits.send.map_or(SEND_BUFFER, |limit| limit.min(SEND_BUFFER));
    let _ = write!(
        text,
        "{workers}\n[socket]\nreceive_buffer = {receive}\nsend_buffer = {send}\n\n\
         [log]\nlevel = \"warn\"\n"
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_capacity_has_both_placements() {
        let found = Found { program: "onrush".into(), version: "1".into() };
        let of = |cores, vcpus| -> Vec<_> {
            let capacity = Capacity { cores, vcpus };
            Onrush
                .variants(&found, capacity)
                .iter()
                .map(|v| format!("{} {}", v.name(), v.split()))
                .collect()
        };
        assert_eq!(
            of(1, 1),
            ["onrush (colocated) workers: 1", "onrush (split) socket workers: 1, swarm workers: 1"]
        );
        assert_eq!(
            of(8, 8),
            ["onrush (colocated) workers: 8", "onrush (split) socket workers: 6, swarm workers: 2",]
        );
        assert_eq!(of(1, 2).len(), 3, "{:?}", of(1, 2));
    }

    #[test]
    fn the_configuration_has_the_split() {
        let variant = Variant::new("onrush", Some(SPLIT), &[(SOCKET, 3), (SWARM, 1)]);
        let setup = Setup {
            directory: Path::new("/tmp/x"),
            address: ([127, 0, 0, 1], 6969).into(),
            whitelist: None,
        };
        let text = config(&variant, &setup, BufferLimits::default());
        assert!(text.contains("socket = 3\nswarm = 1\n"), "{text}");
        assert!(text.contains("receive_buffer = 4194304\nsend_buffer = 1048576\n"), "{text}");
        // As root onrush would exceed the limit of buffers, which the other trackers cannot.
        let limits = BufferLimits { receive: Some(212_992), send: Some(100_000) };
        let text = config(&variant, &setup, limits);
        assert!(text.contains("receive_buffer = 212992\nsend_buffer = 100000\n"), "{text}");
        assert!(text.contains("listen = [\"127.0.0.1:6969\"]"), "{text}");
    }
}
