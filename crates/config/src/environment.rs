//! Variables of the environment that override keys of the configuration file:
//! `ONRUSH_ANNOUNCE__INTERVAL` is `announce.interval`, and `ONRUSH_LISTEN` is `listen`. No value is
//! a secret: keys like `admin.token_file` name files with secrets.
//!
//! Variables with one word that is no key are not looked at: container platforms set some for each
//! service, like `ONRUSH_PORT` for one with the name `onrush`.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;

use onrush_toml_keys::{Document, Problem};

use crate::keys::SCHEMA;

/// Prefix of the names of all variables.
const PREFIX: &str = "ONRUSH_";
/// Replacement of the dots of a path.
const DOT: &str = "__";

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
            let is_key = path.contains('.') || SCHEMA.key(&path).is_some();
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
            match value.to_str() {
                Some(value) => document.set_plain(name, &path, value),
                None => {
                    let what = format!("the value of {name} is not UTF-8");
                    document.add(Problem::in_named(name, "", what));
                }
            }
        }
    }
}

/// The path of the key in the name of a variable.
fn path_of(name: &str) -> Option<String> {
    let name = name.strip_prefix(PREFIX)?;
    let is_plain = name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
    is_plain.then(|| name.replace(DOT, ".").to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;
    use std::path::Path;

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
}
