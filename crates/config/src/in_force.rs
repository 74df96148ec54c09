//! The values in force by their keys, those included that are derived from the host, and how a file
//! that was read again differs from them.

use onrush_toml_keys::{Applied, Problems, Value};
use onrush_tracker::limits::Placement;

use crate::host::Host;
use crate::keys::{SCHEMA, is_restart_only};
use crate::reload::{Changes, KeyChange};
use crate::settings::Settings;

/// A key and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InForce {
    /// The path of the key.
    pub key: String,
    /// The value in TOML; `None` for a key that is not set and has no number or address to show.
    pub value: Option<String>,
    /// Whether neither the file nor a flag sets another value than the default.
    pub is_default: bool,
}

/// A key whose value in the file would have an effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The path of the key.
    pub key: String,
    /// The value in force, in TOML; `None` where it is not set.
    pub in_force: Option<String>,
    /// Value in the file.
    pub file: Option<String>,
    /// When that of the file would be in force.
    pub applied: Applied,
}

impl Settings {
    /// All keys in the order of their declaration, each with its value in force.
    pub fn in_force(&self) -> Vec<InForce> {
        let defaults = SCHEMA.defaults();
        let of = |key: String| {
            let given = self.values.get(&key);
            let is_default = given == defaults.get(&key);
            let value = given.cloned().or_else(|| self.derived(&key));
            InForce { value: value.map(|value| value.to_string()), is_default, key }
        };
        SCHEMA.leaves().into_iter().map(|(key, _)| of(key)).collect()
    }

    /// The value of a key that is derived where the file does not have it.
    fn derived(&self, key: &str) -> Option<Value> {
        let number = |number: u64| i64::try_from(number).ok().map(Value::Integer);
        let (total, kinds) = match self.placement {
            Placement::Split { socket_workers, swarm_workers } => {
                (socket_workers + swarm_workers, Some((socket_workers, swarm_workers)))
            }
            Placement::Colocated { workers } => (workers, None),
        };
        match key {
            "state_dir" => Some(self.state_dir.as_ref()?.to_str()?.into()),
            "workers.total" => number(total as u64),
            "workers.socket" => number(kinds?.0 as u64),
            "workers.swarm" => number(kinds?.1 as u64),
            "workers.spin" => number(self.spin.as_micros() as u64),
            "announce.peer_lifetime" => number(self.announce.peer_lifetime.into()),
            "overload.longest_interval" => number(self.overload.longest_interval.into()),
            "limits.peers" => number(self.limits.peers),
            "limits.source_peers" => number(self.limits.source_peers?),
            "limits.batches_in_flight" => number(self.limits.batches_in_flight as u64),
            "admin.listen" => Some(self.admin.listen?.address.to_string().into()),
            _ => None,
        }
    }

    /// The keys whose values in a file that was `read` again would have an effect: first those that
    /// a reload applies.
    ///
    /// # Errors
    /// As [`Changes::new`].
    pub fn differences(&self, read: Self, host: &Host) -> Result<Vec<Difference>, Problems> {
        let file = read.in_force();
        let Changes { changed, restart, .. } = Changes::new(self, read, host)?;
        let in_force = self.in_force();
        let value = |keys: &[InForce], key: &str| {
            keys.iter().find(|known| known.key == key).and_then(|known| known.value.clone())
        };
        let difference = |applied: fn(&str) -> Applied| {
            let (in_force, file) = (&in_force, &file);
            move |KeyChange { key, .. }: KeyChange| Difference {
                in_force: value(in_force, &key),
                file: value(file, &key),
                applied: applied(&key),
                key,
            }
        };
        let later = |key: &str| match is_restart_only(key) {
            true => Applied::OnRestart,
            false => Applied::OnUpgrade,
        };
        let changed = changed.into_iter().map(difference(|_| Applied::OnReload));
        Ok(changed.chain(restart.into_iter().map(difference(later))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onrush_toml_keys::Absent;

    fn value(settings: &Settings, key: &str) -> (Option<String>, bool) {
        let found = settings.in_force().into_iter().find(|known| known.key == key).unwrap();
        (found.value, found.is_default)
    }

    #[test]
    fn values_are_those_of_the_file_the_default_or_the_host() {
        let text = "[announce]\ninterval = 900\nmax_peers_v4 = 200\n[access]\nmode = \"deny\"\n";
        let settings = Settings::for_test(text);
        let is = |key, value: &str, is_default| {
            assert_eq!(self::value(&settings, key), (Some(value.to_owned()), is_default), "{key}");
        };
        is("announce.interval", "900", false);
        is("announce.max_peers_v4", "200", true);
        is("announce.peer_lifetime", "1800", true);
        is("access.mode", "\"deny\"", false);
        is("admin.listen", "\"127.0.0.1:6970\"", true);
        is("workers.total", "1", true);
        assert_eq!(value(&settings, "user"), (None, true));
    }

    /// A derived key without a value here must be one that is simply not set.
    #[test]
    fn every_derived_number_is_shown() {
        let split = "[workers]\nplacement = \"split\"\nsocket = 2\nswarm = 2\n";
        let settings = Settings::for_test(split);
        let unset = SCHEMA.leaves().into_iter().filter(|(key, declared)| {
            matches!(declared.absent, Absent::Derived { .. }) && value(&settings, key).0.is_none()
        });
        let unset: Vec<String> = unset.map(|(key, _)| key).collect();
        assert_eq!(
            unset,
            [
                "state_dir",
                "user",
                "group",
                "connection.key_file",
                "access.blocked_file",
                "admin.token_file",
                "export.file"
            ]
        );
    }

    #[test]
    fn differences_have_both_values_and_say_what_applies_them() {
        let running = Settings::for_test("[announce]\ninterval = 900\n");
        let read = Settings::for_test(
            "user = \"nobody\"\n[announce]\ninterval = 600\n[limits]\npeers = 5000\n",
        );
        let found = running.differences(read, &Host::default()).unwrap();
        let difference = |key: &str, in_force: Option<&str>, file: &str, applied| Difference {
            key: key.to_owned(),
            in_force: in_force.map(str::to_owned),
            file: Some(file.to_owned()),
            applied,
        };
        assert_eq!(
            found,
            [
                difference("announce.interval", Some("900"), "600", Applied::OnReload),
                difference("user", None, "\"nobody\"", Applied::OnRestart),
                difference("limits.peers", Some("20000000"), "5000", Applied::OnUpgrade),
            ]
        );
        assert_eq!(running.differences(running.clone(), &Host::default()), Ok(Vec::new()));
    }
}
