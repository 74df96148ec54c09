//! Reloads: the settings that apply without a restart, and the keys that need one.

use onrush_toml_keys::{Applied, Problems, Values};

use crate::host::Host;
use crate::keys::SCHEMA;
use crate::settings::Settings;

/// A changed configuration, compared with the running settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Changes {
    /// The settings that apply now: the changed ones, with the running values of the keys in
    /// `restart`.
    pub settings: Settings,
    /// Keys whose changes apply now, in the order of declaration.
    pub changed: Vec<String>,
    /// Keys whose changes need an upgrade or a restart.
    pub restart: Vec<String>,
}

impl Changes {
    /// Compares the running settings with those of a changed configuration on the same host. A key
    /// counts only if its change by itself has an effect: an explicit default has none.
    ///
    /// # Errors
    /// When the changed keys that apply now contradict the running values of the others.
    pub fn new(running: &Settings, read: Settings, host: &Host) -> Result<Self, Problems> {
        let (mut values, mut changed, mut restart) = (read.values.clone(), vec![], vec![]);
        let mut differing = SCHEMA.leaves();
        differing.retain(|(path, _)| running.values.get(path) != read.values.get(path));
        for (path, key) in differing {
            let applies = key.applied == Applied::OnReload;
            if !applies {
                copy(&path, &running.values, &mut values);
            }
            let mut alone = running.values.clone();
            copy(&path, &read.values, &mut alone);
            let alone = Settings::of_values(alone, host)
                .map(|settings| Settings { values: running.values.clone(), ..settings });
            if alone.as_ref() != Ok(running) {
                if applies { changed.push(path) } else { restart.push(path) }
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
