//! The subcommands of `onrush`: they query, control or check a tracker from outside of its process,
//! through the admin side, its UDP addresses or this host's files.
//!
//! | module | contents |
//! |---|---|
//! | [`ctl`] | queries and changes of a running tracker |
//! | [`top`] | the live view of a running tracker in a terminal |
//! | [`doctor`] | what on this host slows or stops a tracker, with remedies |
//! | [`probe`] | whether a tracker answers from outside |
//! | [`admin`] | how a running tracker is found and reached |
//! | `configuration` | the configuration of a tracker that may run already |
//! | [`exit`] | exit statuses and final messages, of the daemon, too |
//! | `lock_holder` | whether the tracker of a state directory runs |
//! | `format` | text for a terminal |

pub mod admin;
mod configuration;
pub mod ctl;
pub mod doctor;
pub mod exit;
mod format;
mod lock_holder;
pub mod probe;
pub mod top;
