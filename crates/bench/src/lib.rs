//! Compares BitTorrent trackers, this one and others, over UDP, HTTP(S) and WebSocket, under the
//! same load, one at a time and in turns.
//!
//! Every tracker is a process with its best published settings, pinned to its own vCPUs. The load
//! is `onrush-load`, a process on other vCPUs. The result of a round is appended to a file at once,
//! so that an interrupted bench has a report.
//!
//! | module | contents |
//! |---|---|
//! | [`args`] | the command line |
//! | [`certificate`] | the certificate of trackers over TLS |
//! | [`contender`] | each tracker: where it is found, how it is set up |
//! | [`cpus`] | sets of vCPUs, and their assignment |
//! | [`machine`] | facts about the host, cores, limits of socket buffers |
//! | [`mix`] | the kinds of load, and their protocols |
//! | [`plan`] | the rounds and their order |
//! | [`prepare`] | from arguments and host to a plan |
//! | [`process`] | starting, pinning and ending processes |
//! | [`tracker`] | the processes of a tracker |
//! | [`load`] | the load of one measurement, and its result |
//! | [`round`] | one round: start, wait, warm up, measure, stop |
//! | [`record`] | raw results |
//! | [`run`] | all rounds, with progress |
//! | [`summary`] | the results of all rounds together |
//! | [`report`] | the table and the picture |
//! | [`transport`] | transports, beside go-libp2p |

pub mod args;
pub mod certificate;
pub mod contender;
pub mod cpus;
pub mod load;
pub mod machine;
pub mod mix;
pub mod plan;
pub mod prepare;
pub mod process;
pub mod record;
pub mod report;
pub mod round;
pub mod run;
pub mod summary;
pub mod tracker;
pub mod transport;
