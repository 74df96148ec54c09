//! The configuration file of a command line that names none, and the files that are read over it.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use onrush_toml_keys::Problem;

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

/// The directory beside a configuration file whose `*.toml` are read over it.
const OVER: &str = "conf.d";

/// The files that are read over `file`: `conf.d/*.toml` beside it, in the order of their names.
/// Hidden ones are not among them.
///
/// # Errors
/// When the directory exists and cannot be read.
pub fn files_over(file: &Path) -> Result<Vec<PathBuf>, Problem> {
    let directory = file.with_file_name(OVER);
    let unreadable = |error: io::Error| {
        let what = format!("the directory cannot be read: {error}");
        Problem::in_file(&directory.display().to_string(), "", what)
    };
    let entries = match fs::read_dir(&directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(unreadable)?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(unreadable)?.path();
        let is_hidden = path.file_name().is_some_and(|name| name.as_bytes().starts_with(b"."));
        if !is_hidden && path.extension().is_some_and(|extension| extension == "toml") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::Flags;
    use crate::host::Host;
    use crate::refused::Refused;
    use crate::settings::Settings;

    #[test]
    fn files_in_conf_d_are_read_over_the_file_in_the_order_of_their_names() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("onrush.toml");
        let flags = Flags { config: Some(file.clone()), ..Flags::default() };
        let write = |name: &str, text: &str| {
            fs::write(directory.path().join(name), text).unwrap();
        };
        let load = || Settings::load(&flags, &Host::default()).map(|(settings, _)| settings);
        write("onrush.toml", "[announce]\ninterval = 900\ninterval_jitter_percent = 3\n");
        assert_eq!(load().unwrap().announce.interval, 900);
        fs::create_dir(directory.path().join(OVER)).unwrap();
        write("conf.d/20-b.toml", "listen = [':80']\n\n[announce]\ninterval = 700\n");
        write("conf.d/10-a.toml", "[announce]\ninterval = 600\n");
        for ignored in [".hidden.toml", "30.toml~", "README"] {
            write(&format!("conf.d/{ignored}"), "no TOML");
        }
        let announce = load().unwrap().announce;
        assert_eq!((announce.interval, announce.interval_jitter_percent), (700, 3));
        // A value that the host refuses is reported at its place.
        let taken = Refused::new("listen.0", &"it is taken");
        let shown = flags.places().problems([taken]).to_string();
        let place =
            format!("{}:1:11: `listen.0`: ", directory.path().join("conf.d/20-b.toml").display());
        assert!(shown.starts_with(&place), "{shown}");
        // All problems of all files.
        write("conf.d/10-a.toml", "[anounce]\n");
        write("conf.d/30-c.toml", "log.level = 5\n");
        fs::create_dir(directory.path().join("conf.d/40-d.toml")).unwrap();
        let shown = load().unwrap_err().to_string();
        for part in ["10-a.toml:1:2: `anounce`", "30-c.toml:1:13: `log.level`", "40-d.toml: "] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
    }

    #[test]
    fn a_conf_d_that_is_no_directory_is_a_problem() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("onrush.toml");
        fs::write(&file, "").unwrap();
        fs::write(directory.path().join(OVER), "").unwrap();
        let flags = Flags { config: Some(file), ..Flags::default() };
        let shown = Settings::load(&flags, &Host::default()).unwrap_err().to_string();
        assert!(shown.contains("/conf.d: the directory cannot be read"), "{shown}");
    }

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
