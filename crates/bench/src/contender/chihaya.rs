//! chihaya, whose Go runtime uses as many threads as it has vCPUs.

use std::fs;
use std::path::Path;

use super::{Capacity, Contender, Found, Launch, Setup, Variant, output};

/// chihaya.
#[derive(Debug)]
pub struct Chihaya;

impl Contender for Chihaya {
    fn name(&self) -> &'static str {
        "chihaya"
    }

    fn keyword(&self) -> &'static str {
        "chihaya"
    }

    fn program(&self) -> &'static str {
        "chihaya"
    }

    fn remedy(&self) -> &'static str {
        "scripts/bench-peers --only chihaya (go install by name; fails where the Go proxy lacks \
         the module)"
    }

    fn settings(&self) -> &'static str {
        "UDP only, storage in memory, no hooks, at most 30 peers, as aquatic's bencher \
         (crates/bencher) sets it; it has no number of workers"
    }

    fn receive_buffer(&self) -> Option<u64> {
        None
    }

    fn version(&self, program: &Path) -> Option<String> {
        let path = program.to_str()?;
        let text = output(Path::new("go"), &["version", "-m", path])?;
        let module = text.lines().find_map(|line| line.trim().strip_prefix("mod"))?;
        module.split_whitespace().nth(1).map(Into::into)
    }

    fn variants(&self, _: &Found, _: Capacity) -> Vec<Variant> {
        vec![Variant::new("chihaya", None, &[])]
    }

    fn launch(&self, found: &Found, _: &Variant, setup: &Setup) -> anyhow::Result<Launch> {
        let file = setup.directory.join("chihaya.yaml");
        fs::write(&file, config(setup))?;
        let arguments = vec!["--config".into(), file.display().to_string()];
        Ok(Launch {
            program: found.program.clone(),
            arguments,
            environment: Vec::new(),
            unprivileged: false,
        })
    }
}

fn config(setup: &Setup) -> String {
    format!(
        "chihaya:\n  announce_interval: 30m\n  min_announce_interval: 15m\n  \
         metrics_addr: \"127.0.0.1:0\"\n  udp:\n    addr: \"{}\"\n    \
         private_key: \"a key of a benchmark\"\n    max_clock_skew: 10s\n    \
         max_numwant: 30\n    default_numwant: 30\n    max_scrape_infohashes: 70\n  \
         storage:\n    name: memory\n    config:\n      gc_interval: 10m\n      peer_lifetime: \
         31m\n shard_count: 1024\n      prometheus_reporting_interval: 10m\n",
        setup.address
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_has_the_address_and_no_hooks() {
        let setup = Setup {
            directory: Path::new("/tmp/x"),
            address: ([127, 0, 0, 1], 7000).into(),
            whitelist: None,
        };
        let text = config(&setup);
        assert!(text.contains("  udp:\n    addr: \"127.0.0.1:7000\"\n"), "{text}");
        assert!(!text.contains("hooks"), "{text}");
    }
}
