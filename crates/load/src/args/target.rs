//! Arguments about target and sources.

use clap::Args;

use crate::options::{NetworkArgs, RARELY, SOMETIMES, count};

/// Arguments about target and sources.
#[derive(Args, Debug)]
#[command(next_help_heading = SOMETIMES)]
pub struct TargetArgs {
    /// The addresses of the tracker and of clients.
    #[command(flatten)]
    pub network: NetworkArgs,

    /// Number of threads that send and receive.
    #[arg(
        long, short, value_name = "N", default_value_t = 1,
        value_parser = count(1..=1024), help_heading = None
    )]
    pub workers: u32,

    /// Pin each worker to a vCPU.
    #[arg(long, value_name = "CPU,CPU", value_delimiter = ',')]
    pub pin: Vec<usize>,

    /// Requests that leave through one socket at a time.
    #[arg(
        long, value_name = "N", default_value_t = 32,
        value_parser = count(1..=1024), help_heading = RARELY
    )]
    pub burst: u32,

    /// Send every request by itself: no segmentation of equally long requests (UDP_SEGMENT), which
    /// the kernel steers as one datagram.
    #[arg(long, help_heading = RARELY)]
    pub no_bursts: bool,
}

impl TargetArgs {
    /// Checks the arguments against each other.
    ///
    /// # Errors
    /// A sentence that names the contradiction.
    pub fn check(&self) -> Result<(), String> {
        let (pins, workers) = (self.pin.len(), self.workers as usize);
        if pins != 0 && pins != workers {
            return Err(format!("--pin names {pins} vCPUs for {workers} --workers"));
        }
        let targets = &self.network.target;
        for (n, target) in targets.iter().enumerate() {
            if targets[..n].contains(target) {
                return Err(format!("--target {target} is given twice"));
            }
        }
        Ok(())
    }
}
