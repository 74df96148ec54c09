//! torrust-tracker, whose runtime uses as many threads as it has vCPUs.

use std::fs;

use super::{Contender, Launch, Setup, USUAL, version_by_cargo};

/// The variable that names its configuration file.
const CONFIG: &str = "TORRUST_TRACKER_CONFIG_TOML_PATH";

/// torrust-tracker from crates.io.
pub const TORRUST: Contender = Contender {
    name: "torrust-tracker",
    keyword: "torrust",
    remedy: "scripts/bench-peers --only torrust",
    settings: "UDP only, errors only in the log, no statistics, nothing kept in its database: its \
               own share/default/config/tracker.udp.benchmarking.toml, which its report used; it \
               has no number of workers",
    version: |program| version_by_cargo(program, "torrust-tracker"),
    launch: |found, _, setup| {
        let file = setup.directory.join("torrust.toml");
        fs::write(&file, config(setup))?;
        let environment = vec![(CONFIG.into(), file.display().to_string())];
        Ok(Launch { program: found.program.clone(), environment, ..Launch::default() })
    },
    ..USUAL
};

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
    use crate::contender::Variant;
    use crate::contender::tests::{installed, setup};
    use crate::mix::Mix;

    #[test]
    fn the_configuration_is_named_by_a_variable() {
        let directory = tempfile::tempdir().unwrap();
        let variant = Variant::new("torrust-tracker", None, &[]);
        let setup = setup(directory.path(), Mix::Spread);
        let (launch, _) = installed(&TORRUST).launch(&variant, &setup).unwrap().pop().unwrap();
        assert_eq!(launch.environment[0].0, CONFIG);
        let text = fs::read_to_string(&launch.environment[0].1).unwrap();
        assert!(text.contains("bind_address = \"127.0.0.1:7000\"\n"), "{text}");
    }
}
