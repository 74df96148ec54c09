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
//! | [`exit`] | exit statuses and final messages, of the daemon, too |
//! | `format` | text for a terminal |

pub mod admin;
pub mod ctl;
pub mod doctor;
pub mod exit;
mod format;
pub mod probe;
pub mod top;
