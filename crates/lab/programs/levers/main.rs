//! The worth of each lever of the receive and send path: a server that answers every datagram, one
//! per lever, and clients, all in one thread over loopback.
//!
//! ```text
//! cargo run --release -p onrush-lab --bin levers -- [rounds] [name of one lever ...]
//! ```
//!
//! In every round each server in turn gets 512 requests and answers them; only its receiving and
//! sending is timed. A lever's ratio is taken round by round against the base (the tracker's own
//! options), so that other load on the machine affects both alike. Two kinds of traffic: *spread*,
//! where no client sends twice, and *repeating*, 16 clients with 32 requests each, sent in one
//! call. `scripts/bench-levers` generates the table of docs/benchmarks/levers.md from this.

#[cfg(target_os = "linux")]
mod linux;

#[cfg(target_os = "linux")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    linux::run()
}

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("these levers are Linux's");
}
