//! The configuration of the daemon: the file as written, the flags, and both as settings on this host.
//!
//! | module | contents |
//! |---|---|
//! | [`file`] | the configuration file: its keys, errors with file, line and key |
//! | [`flags`] | the flags that override keys of the file |
//! | [`settings`] | file and flags resolved against this host |
//! | [`export_format`] | the format of an export, by the name of its file |
//! | [`secret_file`] | who may read a file with a secret |

#![forbid(unsafe_code)]

pub mod export_format;
pub mod file;
pub mod flags;
pub mod secret_file;
pub mod settings;

pub use settings::Settings;
