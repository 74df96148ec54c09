//! Where the state directory of a tracker may be, as seen from a shell, which does not know the
//! directory that a unit gives to its service.

use std::path::{Path, PathBuf};

use crate::Settings;
use crate::config_file::PACKAGED;

/// The state directory of the packaged unit (StateDirectory=).
const SERVICE_STATE: &str = "/var/lib/onrush";

/// The state directory of the settings and, where the file does not name it, that of the packaged
/// unit, if the file is the unit's.
pub fn state_dirs(settings: &Settings, config: Option<&Path>) -> Vec<PathBuf> {
    let is_service = !settings.values.contains_key("state_dir")
        && config.is_none_or(|path| path == Path::new(PACKAGED));
    let of_service = is_service.then(|| SERVICE_STATE.into());
    settings.state_dir.iter().cloned().chain(of_service).collect()
}

/// Whether the settings of a file are those of the packaged service.
pub fn are_of_service(settings: &Settings, config: Option<&Path>) -> bool {
    config.is_some() && state_dirs(settings, config).contains(&SERVICE_STATE.into())
}
