//! Load for BitTorrent trackers over UDP, HTTP and WebSocket: the requests of many peers, with
//! every reply checked.
//!
//! A *population* (the swarms and their peers) is a function of a seed, not a table: whether a
//! listed endpoint belongs to the requested swarm is computed in constant time. A *profile* defines
//! the mix of requests. Workers, each with a backend of `onrush-net` over many sockets, keep
//! requests in flight or send them by a schedule, and check the replies.
//!
//! | module | contents |
//! |---|---|
//! | [`args`] | the command line |
//! | [`attack`] | attacks beside an honest load |
//! | [`options`] | parts of the command line that several commands have |
//! | [`plan`] | population and mix, from a seed |
//! | [`worker`] | what the workers of all protocols share: settings, pace, counts |
//! | [`generator`] | a worker over UDP |
//! | [`http`] | workers over HTTP and HTTPS |
//! | [`ws`] | workers over WebSocket |
//! | `turns` | the turns of a worker with connections |
//! | `connection` | a connection over TCP or TLS |
//! | [`check`] | checks of replies |
//! | [`tally`] | counts and measurements of a worker |
//! | [`series`] | the run over time, a sample per interval |
//! | `routes` | sources and URLs of connections |
//! | [`run`] | workers, warm-up, measured window, drain |
//! | [`search`] | the highest rate within bounds |
//! | [`report`] | the result, for people and for machines |
//! | [`live`] | progress of a run |
//! | [`sources`] | source addresses and their sockets |
//! | [`xdp`] | queues of a network interface beside these sockets |
//! | [`interrupt`] | Ctrl-C ends a run early |
//! | [`cpu`] | CPU time of processes and threads |
//! | [`process`] | CPU time, memory and kernel drops of a process |
//! | [`environment`] | facts about the measuring machine |
//! | [`transport`] | what transports cost, between two processes |
//! | [`stats`] | medians and spread |
//! | [`latency`] | a distribution of latencies in six figures |
//! | `text` | text for terminals of 80 columns |
//! | [`chart`] | pictures of lines and bars, as SVG |
//! | [`affinity`] | vCPUs (of `onrush-net`) |

pub mod args;
pub mod attack;
pub mod chart;
pub mod check;
mod connection;
pub mod cpu;
pub mod environment;
pub mod generator;
pub mod http;
pub mod interrupt;
pub mod latency;
pub mod live;
pub mod options;
pub mod plan;
pub mod process;
pub mod report;
mod routes;
pub mod run;
pub mod search;
pub mod series;
pub mod sources;
pub mod stats;
pub mod tally;
mod text;
pub mod transport;
mod turns;
pub mod worker;
pub mod ws;
pub mod xdp;

pub use onrush_net::affinity;
