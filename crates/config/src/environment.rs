//! Variables of the environment that override keys of the configuration file:
//! `ONRUSH_ANNOUNCE__INTERVAL` is `announce.interval`, and `ONRUSH_LISTEN` is `listen`. With
//! `_FILE` behind the name the value is read from the file that the variable names, as secrets of
//! containers are passed.
//!
//! Variables with one word that is no key are not looked at: container platforms set some for each
//! service, like `ONRUSH_PORT` for one with the name `onrush`.

use std::collections::BTreeMap;
use std::env;
use std::ffi::{OsStr, OsString};
use std::io::Read as _;
use std::path::Path;

use onrush_toml_keys::{Document, Problem, regular_file};

use crate::keys::SCHEMA;

/// Prefix of the names of all variables.
const PREFIX: &str = "ONRUSH_";
/// Replacement of the dots of a path.
const DOT: &str = "__";
/// End of the path made of a variable's name whose value is the path of a file.
const FROM_FILE: &str = "_file";
/// Bytes of a file with a value.
const MAX_VALUE: u64 = 64 << 10;

/// The variables that override keys, by their names. Empty ones count as absent.
#[derive(Clone, Debug, Default)]
pub struct Environment(BTreeMap<String, OsString>);

impl Environment {
    /// The variables of this process.
    pub fn of_process() -> Self {
        Self::new(env::vars_os())
    }

    /// The variables of onrush among `variables`.
    pub fn new(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let of_keys = |(name, value): (OsString, OsString)| {
            let name = name.into_string().ok()?;
            let path = path_of(&name)?;
            let is_key = path.contains('.') || key_of(&path).is_some();
            (is_key && !value.is_empty()).then_some((name, value))
        };
        Self(variables.into_iter().filter_map(of_keys).collect())
    }

    /// Their names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Replaces values of the file.
    pub(crate) fn apply(&self, document: &mut Document) {
        for (name, value) in &self.0 {
            let Some(path) = path_of(name) else { continue };
            match read(name, &path, value) {
                Ok((path, value)) => document.set_plain(name, path, &value),
                Err(what) => document.add(Problem::in_named(name, "", what)),
            }
        }
    }
}

/// The key that a variable sets, by the path made of its name, and whether the value is the path of
/// a file.
fn key_of(path: &str) -> Option<(&str, bool)> {
    let is_key = |path: &&str| SCHEMA.key(path).is_some();
    let of_file = || path.strip_suffix(FROM_FILE).filter(is_key).map(|path| (path, true));
    Some(path).filter(is_key).map(|path| (path, false)).or_else(of_file)
}

/// The path of the key in the name of a variable.
fn path_of(name: &str) -> Option<String> {
    let name = name.strip_prefix(PREFIX)?;
    let is_plain = name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
    is_plain.then(|| name.replace(DOT, ".").to_ascii_lowercase())
}

/// The path of the key and its value. An error says what is wrong.
fn read<'p>(name: &str, path: &'p str, value: &OsStr) -> Result<(&'p str, String), String> {
    match (key_of(path), value.to_str()) {
        (Some((key, true)), _) => Ok((key, value_in(Path::new(value))?)),
        (_, Some(text)) => Ok((path, text.to_owned())),
        (_, None) => Err(format!("the value of {name} is not UTF-8")),
    }
}

/// The value in a file: its text without the line break at the end.
fn value_in(path: &Path) -> Result<String, String> {
    let shown = path.display();
    let mut text = String::new();
    regular_file::open(path)
        .and_then(|file| file.take(MAX_VALUE + 1).read_to_string(&mut text))
        .map_err(|error| format!("{shown} cannot be read: {error}"))?;
    if text.len() as u64 > MAX_VALUE {
        return Err(format!("{shown} is longer than {MAX_VALUE} bytes"));
    }
    Ok(text.trim_end_matches(['\n', '\r']).to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

    use super::*;
    use crate::flags::Flags;
    use crate::host::Host;
    use crate::settings::Settings;

    fn flags(variables: &[(&str, &str)]) -> Flags {
        let owned = variables.iter().map(|(name, value)| (name.into(), value.into()));
        Flags { environment: Environment::new(owned), ..Flags::default() }
    }

    fn settings(text: &str, flags: &Flags) -> Result<Settings, String> {
        let parsed = Settings::parse("t.toml", text, flags, &Host::default());
        parsed.map(|(settings, _)| settings).map_err(|problems| problems.to_string())
    }

    #[test]
    fn variables_override_the_file_and_flags_override_variables() {
        let mut flags = flags(&[
            ("ONRUSH_ANNOUNCE__INTERVAL", "30m"),
            ("ONRUSH_LISTEN", "127.0.0.1:80, [::1]:80"),
            ("ONRUSH_ACCESS__MODE", "deny"),
            ("ONRUSH_LOG__LEVEL", "debug"),
            ("ONRUSH_STATE_DIR", "/x"),
            ("ONRUSH_EXPORT__PEERS", ""),
        ]);
        let read = settings("announce.interval = 900\nlog.level = 'error'\n", &flags).unwrap();
        assert_eq!(read.announce.interval, 1_800);
        let listen: Vec<_> = read.listen.iter().map(|at| at.address.to_string()).collect();
        assert_eq!(listen, ["127.0.0.1:80", "[::1]:80"]);
        assert_eq!(read.state_dir.as_deref(), Some(Path::new("/x")));
        assert_eq!(read.shown()["log.level"], "\"debug\"");
        flags.log_level = Some("warn".into());
        let read = settings("", &flags).unwrap();
        assert_eq!(read.shown()["log.level"], "\"warn\"");
    }

    #[test]
    fn variables_of_container_platforms_are_ignored() {
        let ignored = [
            ("ONRUSH_PORT", "tcp://10.0.0.1:6969"),
            ("ONRUSH_SERVICE_HOST", "10.0.0.1"),
            ("ONRUSH_PORT_6969_UDP_PORT", "6969"),
            ("ONRUSH_CONFIG", "/x"),
            ("onrush_announce__interval", "0"),
            ("OTHER__KEY", "0"),
        ];
        assert!(flags(&ignored).environment.0.is_empty());
        assert!(settings("", &flags(&ignored)).is_ok());
    }

    #[test]
    fn a_wrong_variable_is_named_with_its_key() {
        for (name, value, parts) in [
            ("ONRUSH_ANNOUNCE__INTERVALL", "5", ["`announce.intervall`", "`interval`"]),
            ("ONRUSH_ANOUNCE__INTERVAL", "5", ["`anounce`", "[announce]"]),
            ("ONRUSH_ANNOUNCE__INTERVAL", "5", ["`announce.interval`: found 5", "expected"]),
            ("ONRUSH_LOG__LEVEL", "warning", ["`log.level`: found \"warning\"", "\"warn\""]),
            ("ONRUSH_LISTEN", ":80,nowhere", ["`listen`: found \"nowhere\"", "expected"]),
            ("ONRUSH_LISTEN_FILE", "/nonexistent/file", ["/nonexistent/file", "cannot be read"]),
        ] {
            let shown = settings("", &flags(&[(name, value)])).unwrap_err();
            assert!(shown.starts_with(&format!("{name}: ")), "{shown}");
            assert!(parts.iter().all(|part| shown.contains(part)), "{shown}");
        }
        let value = OsString::from_vec(vec![0xff]);
        let environment = Environment::new([("ONRUSH_STATE_DIR".into(), value)]);
        let shown = settings("", &Flags { environment, ..Flags::default() }).unwrap_err();
        assert!(shown.contains("ONRUSH_STATE_DIR is not UTF-8"), "{shown}");
    }

    #[test]
    fn a_value_is_read_from_the_file_that_a_variable_names() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, "/x\n").unwrap();
        let path = file.path().to_str().unwrap();
        let read = settings("", &flags(&[("ONRUSH_STATE_DIR_FILE", path)])).unwrap();
        assert_eq!(read.state_dir.as_deref(), Some(Path::new("/x")));
        // A key whose own name ends so.
        let read = settings("", &flags(&[("ONRUSH_ADMIN__TOKEN_FILE", "/t")])).unwrap();
        assert_eq!(read.shown()["admin.token_file"], "\"/t\"");
        std::fs::write(&file, vec![b'x'; MAX_VALUE as usize + 1]).unwrap();
        let shown = settings("", &flags(&[("ONRUSH_STATE_DIR_FILE", path)])).unwrap_err();
        assert!(shown.contains("is longer than 65536 bytes"), "{shown}");
    }
}
