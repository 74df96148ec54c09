//! The peers of a tracker for another process that continues to serve them: the successor in an
//! upgrade, or another host that follows the same stream.
//!
//! | module | contents |
//! |---|---|
//! | [`handoff`] | the messages of a handoff |
//! | [`link`] | the connection between the two processes of a handoff |
//! | [`dump`] | all peers, in steps of running workers, and how they are loaded |
//! | [`delta`] | peers that have stopped or announced since a dump, and how they are merged |

pub mod delta;
pub mod dump;
pub mod handoff;
pub mod link;
