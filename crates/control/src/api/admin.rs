//! Requests and responses of the admin API.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::stats::ListState;
use onrush_text::times::date;

/// Info hashes to add to the access list, or to remove from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ListEntries {
    /// Each as 40 hexadecimal digits or 32 base32 characters. Behind a # may be a comment, which
    /// is kept with an entry that is in no file.
    pub info_hashes: Vec<String>,
}

/// Result of a change to the access list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct ListUpdate {
    /// `allow` or `deny`.
    pub mode: String,
    /// Number of info hashes on the list after the change.
    pub entries: u64,
    /// Number of named info hashes whose state changed.
    pub changed: u64,
    /// Whether the change survives a restart; it does with a state directory.
    pub lasting: bool,
    /// Why it could not be recorded there, if so. It is in force until the restart or
    /// the next upgrade.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unrecorded: Option<String>,
}

/// Query of `/list/changes`.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(test, derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct ChangesQuery {
    /// The first info hash; for further changes the `next` of the response before.
    #[serde(default)]
    pub from: Option<String>,
}

/// Changes on request that the files of the access list do not have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct ListChanges {
    /// Number of all changes.
    pub total: u64,
    /// Number of those that override a file.
    pub overrides: u64,
    /// The changes from the first info hash on, 10,000 at most.
    pub changes: Vec<ChangedEntry>,
    /// The first info hash that is not shown here; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A change that the files of the access list do not have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct ChangedEntry {
    /// In hexadecimal.
    pub info_hash: String,
    /// Whether the change has added it; otherwise it has removed it, and overrides a file.
    pub listed: bool,
    /// When, in seconds since 1970; absent for changes of former versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<u64>,
    /// User or address of its author.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Why it was added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
}

/// Whether, when and by whom it was added or removed.
impl fmt::Display for ChangedEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.listed { "added" } else { "removed" };
        let at = self.time.map_or_else(|| "at an unknown time".to_owned(), date);
        let by = self.by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
        write!(f, "{what} {at}{by}")
    }
}

/// Changes that override files of the access list: entries of the files that are not in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct ListOverrides {
    /// Number of these entries.
    pub entries: u64,
    /// The change of the first one by info hash.
    pub first: ChangedEntry,
}

impl fmt::Display for ListOverrides {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { entries, first: change @ ChangedEntry { info_hash, .. } } = self;
        let (entry, is, first) = match entries {
            1 => ("entry", "is", ""),
            _ => ("entries", "are", "the first is "),
        };
        write!(
            f,
            "{entries} {entry} of the list's files {is} overridden by changes on request: \
             {first}{info_hash}, {change}; `onrush ctl list changes` shows all, `onrush \
             ctl list reset INFO_HASH` returns to the file"
        )
    }
}

/// State of one info hash in the access list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct ListEntry {
    /// In hexadecimal.
    pub info_hash: String,
    /// Whether the list contains it.
    pub listed: bool,
    /// Whether the tracker serves it.
    pub served: bool,
    /// Why it is listed, if a file or a request says so.
    pub comment: Option<String>,
    /// The name of the part of the list that refuses it, if it is not served.
    pub refused_by: Option<String>,
    /// Its change on request that the files of the list do not have; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<ChangedEntry>,
}

/// The list of info hashes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct ListReport {
    /// Mode and length.
    #[serde(flatten)]
    pub list: ListState,
    /// Its files. The first one stands for the entries of the configuration and for those made
    /// while the tracker runs, too, and is there without files.
    pub parts: Vec<ListPart>,
}

/// A file of the list of info hashes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct ListPart {
    /// The name of the file; `access.info_hashes` if there is none.
    pub name: String,
    /// Counter: announces that it has refused since the start, or since the files have other names.
    pub refused: u64,
}

/// A written export.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct ExportReport {
    /// The file: `export.file` of the configuration.
    pub path: String,
    /// Number of swarms in the file.
    pub swarms: u64,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// How long the export took.
    pub seconds: f64,
}

impl fmt::Display for ExportReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, swarms, bytes, seconds } = self;
        let size = onrush_text::numbers::bytes(*bytes);
        write!(f, "{swarms} swarms to {path}, {size} in {seconds:.2} s")
    }
}

/// A written snapshot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct SnapshotReport {
    /// The file in the state directory.
    pub path: String,
    /// Number of peers in the file.
    pub peers: u64,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// How long the snapshot took.
    pub seconds: f64,
}

/// Query of `/list/check`.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct CheckQuery {
    /// `allow` or `deny`: the mode to check; by default the one in force.
    #[serde(default)]
    pub mode: Option<String>,
    /// The files of which the body consists, as `NAME:ENTRIES`, with a slash between two. A file is
    /// compared with the one of `access.files` that has its name, otherwise with that in its place.
    /// By default the body is one file without a name.
    #[serde(default)]
    pub files: Option<String>,
}

/// Effect of a list that would replace the files of the access list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct ListCheck {
    /// `allow` or `deny`.
    pub mode: String,
    /// Number of info hashes on the list then: those of the file, of the configuration, and of
    /// changes made while the tracker ran.
    pub entries: u64,
    /// Number of them that are not on the list in force.
    pub added: u64,
    /// Number of info hashes of the list in force that would not be on it.
    pub removed: u64,
    /// Number of swarms that would be removed, because the list does not permit them.
    pub swarms: u64,
    /// Number of peers in those swarms.
    pub peers: u64,
    /// Number of swarms examined.
    pub examined: u64,
    /// Changes that would override the files; absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overrides: Option<ListOverrides>,
    /// That a reload would refuse the list, perhaps only without force, and why; absent if it would
    /// not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// Query of `/reload` and `/upgrade`.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct ForceQuery {
    /// Accepts a list that lost more than half of its entries. An upgrade also drops the peers for
    /// which the successor has no room by `limits.peers`.
    #[serde(default)]
    #[cfg_attr(test, param(default = false))]
    pub force: bool,
}

/// Result of a reload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct ReloadReport {
    /// Keys whose values have changed.
    pub changed: Vec<String>,
    /// Keys whose new values need an upgrade or a restart; the old values stay in force.
    pub restart: Vec<String>,
    /// Warnings for the operator.
    pub notices: Vec<String>,
}

/// The configuration in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct ConfigReport {
    /// All keys, in the order of the reference.
    pub keys: Vec<ConfigValue>,
}

/// A key of the configuration and its value in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct ConfigValue {
    /// The path of the key, like `announce.interval`.
    pub key: String,
    /// The value in TOML; absent for a key that is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Whether neither the file nor a flag sets another value than the default.
    pub default: bool,
    /// The sender of the request that has changed it until the next reload; absent where none has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_by: Option<String>,
}

/// Differences of the configuration file from the values in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct ConfigDifferences {
    /// The keys whose values in the file would have an effect.
    pub differences: Vec<ConfigDifference>,
    /// Changes that override files of the access list; absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overrides: Option<ListOverrides>,
}

/// A key whose value in the file would have an effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct ConfigDifference {
    /// The path of the key.
    pub key: String,
    /// The value in force, in TOML; absent where it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_force: Option<String>,
    /// Value in the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The action that applies the value of the file: `reload`, `upgrade` or `restart`.
    pub applied_by: String,
}

/// The lowest level that is logged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct LogLevel {
    /// `off`, `error`, `warn`, `info`, `debug` or `trace`.
    pub level: String,
}

/// The process that serves after an upgrade.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct Successor {
    /// Its process id; the `pid` in `/stats.json` once it answers there.
    pub process: u32,
    /// Its version and build.
    pub version: String,
}

/// A swarm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct Swarm {
    /// In hexadecimal.
    pub info_hash: String,
    /// Peers that have the complete content.
    pub seeders: u32,
    /// The other peers.
    pub leechers: u32,
    /// Number of `completed` events.
    pub completed: u32,
    /// Seconds since the last peer left; absent while the swarm has peers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_for: Option<u32>,
}

/// Query of `/swarms/top`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(test, derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct TopQuery {
    /// Measure of a swarm's size.
    #[serde(default)]
    #[cfg_attr(test, param(inline))]
    pub by: Measure,
    /// Maximum number of swarms, 1 to 1000.
    #[serde(default = "default_limit")]
    #[cfg_attr(test, param(default = 20, minimum = 1, maximum = 1000))]
    pub limit: usize,
}

/// Entries of a list of the largest.
pub(super) fn default_limit() -> usize {
    20
}

/// Measure of a swarm's size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Measure {
    /// All peers.
    #[default]
    Peers,
    /// Peers that have the complete content.
    Seeders,
    /// The other peers.
    Leechers,
    /// Number of `completed` events.
    Completed,
}

/// The largest swarms.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct LargestSwarms {
    /// The measure.
    pub by: Measure,
    /// Number of swarms examined.
    pub examined: u64,
    /// The largest first. Swarms of size 0 by the measure are left out.
    pub swarms: Vec<Swarm>,
}
