//! The configuration file of a command line that names none.

use std::env;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

/// The file that the package installs.
pub(crate) const PACKAGED: &str = "/etc/onrush/onrush.toml";

/// The file to read: the one `given` by a flag, else that of `$ONRUSH_CONFIG`, else `PACKAGED` if
/// it exists. An empty variable means none.
pub fn config_file(given: Option<PathBuf>) -> Option<PathBuf> {
    select(given, env::var_os("ONRUSH_CONFIG"), Path::new(PACKAGED))
}

fn select(given: Option<PathBuf>, named: Option<OsString>, packaged: &Path) -> Option<PathBuf> {
    match (given, named) {
        (Some(given), _) => Some(given),
        (None, Some(named)) => (!named.is_empty()).then(|| named.into()),
        // A file that may not be looked at is an error when it is read, and not the defaults.
        (None, None) => match packaged.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            _ => Some(packaged.to_owned()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_comes_before_the_variable_and_the_packaged_file_is_last() {
        let directory = tempfile::tempdir().unwrap();
        let packaged = directory.path().join("onrush.toml");
        let select = |given: Option<&str>, named: Option<&str>| {
            select(given.map(PathBuf::from), named.map(OsString::from), &packaged)
        };
        assert_eq!(select(None, None), None, "it does not exist");
        std::fs::write(&packaged, "").unwrap();
        assert_eq!(select(None, None), Some(packaged.clone()));
        assert_eq!(select(None, Some("")), None);
        assert_eq!(select(None, Some("b")), Some("b".into()));
        assert_eq!(select(Some("a"), Some("b")), Some("a".into()));
    }
}
