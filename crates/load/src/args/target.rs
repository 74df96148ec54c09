//! Who is asked, and from where.

use std::net::SocketAddr;

use clap::Args;

use crate::sources::{MAX_SOURCES, Range};

/// Who is asked, and from where.
#[derive(Args, Debug)]
#[command(next_help_heading = "To whom and from where")]
pub struct TargetArgs {
    /// The tracker's address; repeat it for several, of either family.
    #[arg(long, short, value_name = "ADDR", default_value = "127.0.0.1:6969", value_parser = target)]
    pub target: Vec<SocketAddr>,

    /// Source addresses in 127/8, for a tracker on 127/8.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SOURCES)))]
    pub sources: u32,

    /// Send from this address of the host instead; repeat it, or give FIRST-LAST.
    #[arg(long, value_name = "IP")]
    pub source: Vec<Range>,

    /// Threads that send.
    #[arg(long, short, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub workers: u32,

    /// A vCPU for each worker.
    #[arg(long, value_name = "CPU,CPU", value_delimiter = ',')]
    pub pin: Vec<usize>,

    /// Requests through one socket at a time.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub burst: u32,

    /// Hand every request to the kernel by itself: no runs of one length (UDP_SEGMENT), which a
    /// kernel steers as one.
    #[arg(long)]
    pub no_bursts: bool,

    /// Take every reply from the kernel by itself, also those that were sent in one piece
    /// (UDP_GRO off). Over loopback the tracker then pays for cutting them.
    #[arg(long)]
    pub no_coalescing: bool,
}

impl TargetArgs {
    /// What fits no single argument: several that contradict each other.
    ///
    /// # Errors
    /// A sentence that names them.
    pub fn check(&self) -> Result<(), String> {
        let (pins, workers) = (self.pin.len(), self.workers as usize);
        if pins != 0 && pins != workers {
            return Err(format!("--pin names {pins} vCPUs for {workers} --workers"));
        }
        for (n, target) in self.target.iter().enumerate() {
            if target.port() == 0 {
                return Err(format!("--target {target}: port 0 cannot be sent to"));
            }
            if self.target[..n].contains(target) {
                return Err(format!("--target {target} is given twice"));
            }
        }
        Ok(())
    }
}

pub(super) fn target(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "expected IP:PORT, like 127.0.0.1:6969 or [::1]:6969 (names are not looked up)".to_owned()
    })
}
