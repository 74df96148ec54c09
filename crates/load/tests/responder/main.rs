//! The command against a server that answers at a chosen rate. Apart from the other tests, as these
//! measure latency and throughput.

#[path = "../it/command.rs"]
mod command;
#[path = "../../../verify/tests/it/faulty.rs"]
mod faulty;
mod find_max;
mod server;
mod sources;
mod stalls;
