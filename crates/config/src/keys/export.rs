//! The keys of the table `export`.

use std::path::PathBuf;
use std::time::Duration;

use onrush_toml_keys::{integer, keys};
use serde::Deserialize;

use super::{PATH, owner};
use crate::values::seconds;

keys! {
    /// Exports of the full scrape.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
    pub struct ExportSettings {
        /// The file, replaced by renaming a complete new one. Its name selects the format: .txt for
        /// one line per swarm (info hash in hexadecimal, seeders, leechers, completed), .bencode or
        /// .benc for the reply to a full scrape over HTTP (BEP 48), with .gz behind for
        /// compression. An export takes 32 bytes of memory per swarm. A directory that cannot be
        /// written is a warning, and an error of `--check-config`.
        pub file: Option<PathBuf> = PATH
            .derived("nothing is exported", "\"/var/lib/onrush/scrape.txt.gz\"")
            .on_reload(owner::FILES),

        /// The time between exports; with 0, only SIGUSR1 and `onrush ctl export` start one.
        #[serde(deserialize_with = "seconds")]
        pub every: Duration =
            integer(0..=604_800, "seconds").default("3600").on_reload(owner::FILES),
    }
}
