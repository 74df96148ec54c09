//! Reloads: the settings that apply without a restart, and the keys that need one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use onrush_toml_keys::{Applied, Problems, Value, Values};

use crate::host::Host;
use crate::keys::{CERTIFICATE_KEYS, SCHEMA};
use crate::settings::Settings;

/// Entries of a list that are shown. A longer one is shown by their number.
const SHOWN: usize = 4;

/// A key that has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyChange {
    /// Its path.
    pub key: String,
    /// The old and the new value, or what else has changed.
    pub what: String,
}

impl KeyChange {
    fn new(key: &str, old: Option<String>, new: Option<String>) -> Self {
        let unset = || "unset".to_owned();
        let what = format!("{} -> {}", old.unwrap_or_else(unset), new.unwrap_or_else(unset));
        Self { key: key.to_owned(), what }
    }

    /// All changes between two configurations, each as [`Settings::shown`] shows it.
    pub fn between(old: &ShownValues, new: &ShownValues) -> Vec<Self> {
        let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        let changed = keys.into_iter().filter(|key| old.get(*key) != new.get(*key));
        changed.map(|key| Self::new(key, old.get(key).cloned(), new.get(key).cloned())).collect()
    }
}

/// Changes in one line. Values may have commas.
pub fn joined<'a>(changes: impl IntoIterator<Item = &'a KeyChange>) -> String {
    changes.into_iter().map(KeyChange::to_string).collect::<Vec<_>>().join("; ")
}

/// Values as the log shows them, by the paths of their keys.
pub type ShownValues = BTreeMap<String, String>;

impl Settings {
    /// The value of each key that has one, for [`KeyChange::between`].
    pub fn shown(&self) -> ShownValues {
        self.values.iter().map(|(key, value)| (key.clone(), shown(value))).collect()
    }
}

impl fmt::Display for KeyChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.what)
    }
}

/// A value as it is written in the file.
fn shown(value: &Value) -> String {
    match value {
        Value::Array(list) if list.len() > SHOWN => format!("{} entries", list.len()),
        value => value.to_string(),
    }
}

/// A changed configuration, compared with the running settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Changes {
    /// The settings that apply now: the changed ones, with the running values of the keys in
    /// `restart`.
    pub settings: Settings,
    /// Keys whose changes apply now, in the order of declaration.
    pub changed: Vec<KeyChange>,
    /// Keys whose changes need an upgrade or a restart.
    pub restart: Vec<KeyChange>,
}

impl Changes {
    /// Compares the running settings with those of a changed configuration on the same host. A key
    /// counts only if its change by itself has an effect: an explicit default has none.
    /// HTTPS that is turned off runs until a restart, and keeps its certificates and keys.
    ///
    /// # Errors
    /// When the changed keys that apply now contradict the running values of the others.
    pub fn new(running: &Settings, read: Settings, host: &Host) -> Result<Self, Problems> {
        let (mut values, mut changed, mut restart) = (read.values.clone(), vec![], vec![]);
        let mut differing = SCHEMA.leaves();
        differing.retain(|(path, _)| running.values.get(path) != read.values.get(path));
        let keeps_certificates =
            !running.http.tls_listen.is_empty() && read.http.certificates.is_empty();
        for (path, key) in differing {
            let is_kept = keeps_certificates && CERTIFICATE_KEYS.contains(&path.as_str());
            let applies = key.applied == Applied::OnReload && !is_kept;
            if !applies {
                copy(&path, &running.values, &mut values);
            }
            let mut alone = running.values.clone();
            copy(&path, &read.values, &mut alone);
            let alone = Settings::of_values(alone, host)
                .map(|settings| Settings { values: running.values.clone(), ..settings });
            if alone.as_ref() != Ok(running) {
                let of = |values: &Values| values.get(&path).map(shown);
                let change = KeyChange::new(&path, of(&running.values), of(&read.values));
                if applies { changed.push(change) } else { restart.push(change) }
            }
        }
        Ok(Self { settings: Settings::of_values(values, host)?, changed, restart })
    }
}

/// Gives a key the value that it has in `from`, or none.
fn copy(path: &str, from: &Values, into: &mut Values) {
    match from.get(path) {
        Some(value) => into.insert(path.to_owned(), value.clone()),
        None => into.remove(path),
    };
}
