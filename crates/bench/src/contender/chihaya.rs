//! chihaya, whose Go runtime uses as many threads as it has vCPUs.

use std::path::Path;

use super::{Contender, Launch, Setup, USUAL, output};

/// chihaya.
pub const CHIHAYA: Contender = Contender {
    name: "chihaya",
    keyword: "chihaya",
    remedy: "scripts/bench-peers --only chihaya (go install by name; fails where the Go proxy \
             lacks the module)",
    settings: "UDP only, storage in memory, no hooks, at most 30 peers, as aquatic's bencher \
               (crates/bencher) sets it; it has no number of workers",
    version,
    launch: |found, _, setup| {
        let (config, file) = (config(setup), ["--config", "chihaya.yaml"]);
        Launch::configured(&found.program, setup.directory, file, &config)
    },
    ..USUAL
};

fn version(program: &Path) -> Option<String> {
    let text = output(Path::new("go"), &["version", "-m", program.to_str()?])?;
    let module = text.lines().find_map(|line| line.trim().strip_prefix("mod"))?;
    module.split_whitespace().nth(1).map(Into::into)
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
    use crate::contender::tests::setup;

    #[test]
    fn the_configuration_has_the_address_and_no_hooks() {
        let text = config(&setup(Path::new("/tmp/x")));
        assert!(text.contains("  udp:\n    addr: \"127.0.0.1:7000\"\n"), "{text}");
        assert!(!text.contains("hooks"), "{text}");
    }
}
