//! The values in force by their keys, those included that are derived from the host, and how a file
//! that was read again differs from them.

use crate::api::admin::{ConfigDifference, ConfigValue};
use onrush_config::keys::{SCHEMA, is_restart_only};
use onrush_config::reload::Changes;
use onrush_config::{Host, Problems, Settings, Value};
use onrush_tracker::limits::Placement;

/// All keys in the order of their declaration, each with its value in force.
pub fn in_force(settings: &Settings) -> Vec<ConfigValue> {
    let defaults = SCHEMA.defaults();
    let of = |key: String| {
        let given = settings.values.get(&key);
        let default = given == defaults.get(&key);
        let value = given.cloned().or_else(|| derived(settings, &key));
        let value = value.map(|value| value.to_string());
        ConfigValue { value, default, changed_by: None, key }
    };
    SCHEMA.leaves().into_iter().map(|(key, _)| of(key)).collect()
}

/// The value of a key that is derived where the file does not have it.
fn derived(settings: &Settings, key: &str) -> Option<Value> {
    let number = |number: u64| i64::try_from(number).ok().map(Value::Integer);
    let placement = settings.placement;
    let is_split = matches!(placement, Placement::Split { .. });
    match key {
        "state_dir" => Some(settings.state_dir.as_ref()?.to_str()?.into()),
        "workers.total" => number(placement.workers() as u64),
        "workers.socket" if is_split => number(placement.socket_sides() as u64),
        "workers.swarm" if is_split => number(placement.shards() as u64),
        "workers.spin" => number(settings.spin.as_micros() as u64),
        "http.workers" => number(settings.http.workers as u64),
        "announce.peer_lifetime" => number(settings.announce.peer_lifetime.into()),
        "overload.longest_interval" => number(settings.overload.longest_interval.into()),
        "limits.peers" => number(settings.limits.peers),
        "limits.source_peers" => number(settings.limits.source_peers?),
        "limits.batches_in_flight" => number(settings.limits.batches_in_flight as u64),
        "admin.listen" => Some(settings.admin.listen?.address.to_string().into()),
        _ => None,
    }
}

/// The keys whose values in a file that was `read` again would have an effect: first those that a
/// reload applies.
///
/// # Errors
/// As [`Changes::new`].
pub fn differences(
    running: &Settings,
    read: Settings,
    host: &Host,
) -> Result<Vec<ConfigDifference>, Problems> {
    let (shown, file) = (in_force(running), in_force(&read));
    let Changes { changed, restart, .. } = Changes::new(running, read, host)?;
    let value = |keys: &[ConfigValue], key: &str| {
        keys.iter().find(|known| known.key == key).and_then(|known| known.value.clone())
    };
    let difference = |key: String, applied_by: &str| ConfigDifference {
        in_force: value(&shown, &key),
        file: value(&file, &key),
        applied_by: applied_by.to_owned(),
        key,
    };
    let changed = changed.into_iter().map(|change| difference(change.key, "reload"));
    let later = restart.into_iter().map(|change| match is_restart_only(&change.key) {
        true => difference(change.key, "restart"),
        false => difference(change.key, "upgrade"),
    });
    Ok(changed.chain(later).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use onrush_config::Absent;

    fn value(settings: &Settings, key: &str) -> (Option<String>, bool) {
        let found = in_force(settings).into_iter().find(|known| known.key == key).unwrap();
        (found.value, found.default)
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
        let found = differences(&running, read, &Host::default()).unwrap();
        let difference =
            |key: &str, in_force: Option<&str>, file: &str, by: &str| ConfigDifference {
                key: key.to_owned(),
                in_force: in_force.map(str::to_owned),
                file: Some(file.to_owned()),
                applied_by: by.to_owned(),
            };
        assert_eq!(
            found,
            [
                difference("announce.interval", Some("900"), "600", "reload"),
                difference("user", None, "\"nobody\"", "restart"),
                difference("limits.peers", Some("20000000"), "5000", "upgrade"),
            ]
        );
        assert_eq!(differences(&running, running.clone(), &Host::default()), Ok(Vec::new()));
    }
}
