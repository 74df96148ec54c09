//! The onrush daemon: composes protocol, network and swarms into a running UDP BitTorrent tracker.
//! For Linux only; `proto`, `net` and `swarm` are for any Unix.
//!
//! The walk of a datagram, forward only, is drawn in [`worker`]. Around it:
//!
//! | room | what is in it |
//! |---|---|
//! | [`args`], [`config`], [`settings`] | the command line, the file as written, and both as meant on this host |
//! | [`start`] | settings to a running tracker: user, sockets, state, workers |
//! | [`running`], [`supervise`] | workers on their threads; watching them until the end |
//! | [`placement`] | which workers there are, and the lanes between them |
//! | [`worker`] | one turn: receive, sort, serve, send |
//! | [`clients`] | which software announces, by the prefix of its peer ids |
//! | [`intake`], [`connection`], [`access`] | the checks at the door, each refusal with a name |
//! | [`sorter`], [`lanes`], [`scrape_join`] | one batch per shard; its way there and back; answers that meet again |
//! | [`rules`], [`orders`], [`chores`], [`reload`], [`enforce`] | what may change while workers run, and how they are told |
//! | [`state`], [`process`] | what outlives the process; lock, user, signals, logging, the service manager |
//! | [`doctor`] | what on this host will hurt |
//! | [`relief`], [`overload`] | when not to steer to a worker; what to do when there is too much to do |
//! | [`snapshot`] | the peers in a file, over restarts |
//! | [`export`] | the full scrape in a file |
//! | [`upgrade`] | a new process takes over sockets and peers |
//! | [`http`] | control and observation over HTTP |
//! | [`ctl`] | a running tracker asked and told from the command line |
//! | [`top`] | a running tracker as a live picture in the terminal |
//! | [`clock`], [`metrics`], [`exporter`] | time, counters, and what people read of them |
//! | [`overview`] | what the main thread shows to others |
//! | [`version`] | which build this is |

#![forbid(unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!(
    "the daemon is for Linux: capabilities, steering and signals are Linux's (the crates proto, \
     net and swarm are portable)"
);

pub mod access;
pub mod args;
pub mod chores;
pub mod clients;
pub mod clock;
pub mod config;
pub mod connection;
pub mod ctl;
pub mod doctor;
pub mod enforce;
pub mod export;
pub mod exporter;
pub mod http;
pub mod intake;
pub mod lanes;
pub mod metrics;
pub mod orders;
pub mod overload;
pub mod overview;
pub mod placement;
pub mod process;
pub mod relief;
pub mod reload;
pub mod rules;
pub mod running;
pub mod scrape_join;
pub mod settings;
pub mod snapshot;
pub mod sorter;
pub mod start;
pub mod state;
pub mod supervise;
pub mod top;
pub mod upgrade;
pub mod version;
pub mod worker;

pub use running::Running;
pub use settings::Settings;
pub use start::{StartError, Tracker};
