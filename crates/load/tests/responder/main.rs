//! The command against a server that stores nothing and answers at a chosen rate. Apart from the
//! other tests, as these measure latency and throughput.

mod find_max;
mod server;
mod sources;
mod stalls;
