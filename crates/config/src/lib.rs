//! The configuration of the daemon: a file and flags, resolved into settings for this host, and the
//! facts of the host that these need.
//!
//! | module | contents |
//! |---|---|
//! | [`keys`] | every key of the file: type, range, default, documentation |
//! | [`values`] | the types of values that TOML does not have |
//! | [`flags`] | the flags that override keys |
//! | [`config_file`] | the file of a command line that names none |
//! | [`environment`] | the variables that override keys |
//! | [`host`] | the properties of the host that settings depend on |
//! | [`settings`] | the settings |
//! | [`placement`] | the default placement of workers |
//! | `resolve` | from file, flags and host to settings |
//! | `refused` | values that the host refuses, with their places |
//! | [`reload`] | from a changed file to the settings that apply without a restart |
//! | `summary` | the settings in a few lines |
//! | [`state_dirs`] | where the state directory of a tracker may be |
//! | [`service_unit`] | the user of the packaged unit |
//! | [`socket_holders`] | which processes hold an address of this host |
//! | [`export_format`] | the format of an export, by the name of its file |
//! | [`secret_file`] | who may read a file with a secret |
//! | [`regular_file`] | opens regular files only |

pub mod config_file;
pub mod environment;
pub mod export_format;
pub mod flags;
pub mod host;
pub mod keys;
pub mod placement;
mod refused;
pub mod reload;
mod resolve;
pub mod secret_file;
pub mod service_unit;
pub mod settings;
pub mod socket_holders;
pub mod state_dirs;
mod summary;
pub mod values;

pub use flags::Flags;
pub use host::{Host, Passed, PassedKinds};
pub use onrush_toml_keys::{Absent, Problem, Problems, Value, regular_file, seconds};
pub use refused::{Places, Refused};
pub use resolve::InPart;
pub use settings::Settings;

/// The default file, with every key and its documentation: `onrush --print-config`.
pub fn print_config() -> String {
    keys::SCHEMA.print()
}

/// The reference of all keys, in Markdown: `docs/CONFIGURATION.md`.
pub fn reference() -> String {
    keys::SCHEMA.markdown("Configuration", &[INTRODUCTION, FORMAT])
}

const INTRODUCTION: &str = "The keys of the configuration file, generated from \
    `crates/config/src/keys.rs`. The tracker runs without a file; a file needs only the keys that \
    differ from their defaults. `onrush --print-config` writes a file with all keys and these \
    texts ([config/onrush.toml](../config/onrush.toml)), `onrush --config FILE --check-config` \
    checks a file and shows its effect on this host. Variables like \
    `ONRUSH_ANNOUNCE__INTERVAL=30m` and flags (`onrush --help`) override it, in this order \
    ([OPERATING.md](OPERATING.md#change-the-configuration)).";

/// The format of the file, and when a change of it applies, for the reference and the manual.
pub const FORMAT: &str = "The file is TOML. Numbers are in the unit of the key; times and sizes \
    may have units instead, in quotes: `\"30m\"`, `\"1h30m\"`, `\"4MiB\"`. A change of the file \
    applies on a reload (`systemctl reload onrush`, SIGHUP, `onrush ctl reload`), on an upgrade \
    (`onrush ctl upgrade`) or on a restart, as given for each key; an invalid file changes \
    nothing.";
