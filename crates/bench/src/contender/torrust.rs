//! torrust-tracker, whose runtime uses as many threads as it has vCPUs.

use std::fs;
use std::path::Path;

use super::{Capacity, Contender, Found, Launch, Setup, Variant, version_by_cargo};

/// torrust-tracker from crates.io.
#[derive(Debug)]
pub struct Torrust;

/// The variable that names its configuration file.
const CONFIG: &str = "TORRUST_TRACKER_CONFIG_TOML_PATH";

impl Contender for Torrust {
    fn name(&self) -> &'static str {
        "torrust-tracker"
    }

    fn keyword(&self) -> &'static str {
        "torrust"
    }

    fn program(&self) -> &'static str {
        "torrust-tracker"
    }

    fn remedy(&self) -> &'static str {
        "scripts/bench-peers --only torrust"
    }

    fn settings(&self) -> &'static str {
        "UDP only, errors only in the log, no statistics, nothing kept in its database: its own \
         share/default/config/tracker.udp.benchmarking.toml, which its report used; it has no \
         number of workers"
    }

    fn receive_buffer(&self) -> Option<u64> {
        None
    }

    fn version(&self, program: &Path) -> Option<String> {
        version_by_cargo(program, "torrust-tracker")
    }

    fn variants(&self, _: &Found, _: Capacity) -> Vec<Variant> {
        vec![Variant::new("torrust-tracker", None, &[])]
    }

    fn launch(&self, found: &Found, _: &Variant, setup: &Setup) -> anyhow::Result<Launch> {
        let file = setup.directory.join("torrust.toml");
        fs::write(&file, config(setup))?;
        let environment = vec![(CONFIG.into(), file.display().to_string())];
        Ok(Launch {
            program: found.program.clone(),
            arguments: Vec::new(),
            environment,
            unprivileged: false,
        })
    }
}

fn config(setup: &Setup) -> String {
    format!(
        "[metadata]\nschema_version = \"2.0.0\"\n\n[logging]\nthreshold = \"error\"\n\n\
         [core]\nlisted = false\nprivate = false\ntracker_usage_statistics = false\n\n\
         [core.database]\ndriver = \"sqlite3\"\npath = \"{}\"\n\n\
         [core.tracker_policy]\npersistent_torrent_completed_stat = false\n\
         remove_peerless_torrents = false\n\n[[udp_trackers]]\nbind_address = \"{}\"\n",
        setup.directory.join("torrust.db").display(),
        setup.address
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_is_named_by_a_variable() {
        let directory = tempfile::tempdir().unwrap();
        let setup = Setup {
            directory: directory.path(),
            address: ([127, 0, 0, 1], 7000).into(),
            whitelist: None,
        };
        let found = Found { program: "torrust-tracker".into(), version: "1".into() };
        let launch =
            Torrust.launch(&found, &Variant::new("torrust-tracker", None, &[]), &setup).unwrap();
        assert_eq!(launch.environment[0].0, CONFIG);
        let text = fs::read_to_string(&launch.environment[0].1).unwrap();
        assert!(text.contains("bind_address = \"127.0.0.1:7000\"\n"), "{text}");
    }
}
