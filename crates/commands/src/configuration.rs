//! The configuration of a tracker as its commands read it: an error in the file of a tracker that
//! serves is a warning.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use onrush_config::config_file::config_file;
use onrush_config::state_dirs::are_of_service;
use onrush_config::{Flags, Host, InPart, Problems, Settings};

/// The readable part of a configuration.
pub(crate) struct Configuration {
    /// The file, if there is one.
    pub(crate) file: Option<PathBuf>,
    /// The settings, with the defaults in place of values that are wrong or cannot be read.
    pub(crate) settings: Settings,
    /// Whether keys that the file has may be missing.
    is_partial: bool,
    /// Lines about the errors; empty without any.
    pub(crate) warning: String,
}

impl Configuration {
    /// Reads the `named` file, else that of `$ONRUSH_CONFIG` or the package.
    ///
    /// # Errors
    /// When the file does not exist: then the command line is wrong.
    pub(crate) fn read(named: Option<PathBuf>, host: &Host) -> Result<Self, Problems> {
        let file = config_file(named);
        let read = Settings::load_in_part(&Flags::of_file(file.clone()), host);
        let InPart { settings, is_partial, problems } = read;
        let warning = match problems {
            Some(problems) if file.as_deref().is_some_and(is_missing) => return Err(problems),
            Some(problems) => {
                format!(
                    "onrush: warning: the configuration is read as far as possible:\n{problems}"
                )
            }
            None => String::new(),
        };
        Ok(Self { file, settings, is_partial, warning })
    }

    /// The file that decides which state directories are searched; `None` for a file that is read
    /// in part, as its `state_dir` may be missing: the packaged directory is searched as well.
    pub(crate) fn deciding_file(&self) -> Option<&Path> {
        self.file.as_deref().filter(|_| !self.is_partial)
    }

    /// Whether the file, one other than the packaged one, cannot be read as far as its `state_dir`:
    /// a tracker that is found may be another one.
    pub(crate) fn is_ambiguous(&self) -> bool {
        let is_named = self.settings.values.contains_key("state_dir");
        self.is_partial && !is_named && !are_of_service(&self.settings, self.file.as_deref())
    }
}

fn is_missing(path: &Path) -> bool {
    path.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound)
}
