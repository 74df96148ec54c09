//! The comparative bench: UDP BitTorrent trackers, ours and others', under the same load, one after
//! the other, taking turns.
//!
//! Every tracker is a process with its best published settings, pinned to its own vCPUs; the load is
//! `onrush-load`, a process too, on others. What a round measured is appended to a file at once, so a
//! bench that was ended goes on where it stopped.
//!
//! | room | what is in it |
//! |---|---|
//! | [`args`] | the command line |
//! | [`contender`] | each tracker: where it is found, how it is set up |
//! | [`cpus`] | sets of vCPUs: who gets which |
//! | [`machine`] | which vCPUs there are and which share a core |
//! | [`plan`] | which rounds there are, in which order |
//! | [`prepare`] | from what is asked for and what is here to a plan |
//! | [`process`] | starting, pinning and ending processes |
//! | [`load`] | the load of one measurement, and what it found |
//! | [`resume`] | whether a bench that was begun can go on |
//! | [`round`] | start, wait, warm, measure, stop |
//! | [`record`] | raw results, as they come |
//! | [`run`] | all rounds, with progress |
//! | [`stats`] | medians and spread |
//! | [`summary`] | what the rounds say together |
//! | [`report`] | Markdown, JSON and pictures of it |

#![forbid(unsafe_code)]

pub mod args;
pub mod contender;
pub mod cpus;
pub mod load;
pub mod machine;
pub mod plan;
pub mod prepare;
pub mod process;
pub mod record;
pub mod report;
pub mod resume;
pub mod round;
pub mod run;
pub mod stats;
pub mod summary;
