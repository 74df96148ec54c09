//! Arguments about target and sources.

use clap::Args;

use crate::options::{NetworkArgs, RARELY, SOMETIMES, count};
use crate::xdp::XdpSettings;

/// Default number of requests in flight per worker in a closed loop. A kernel's usual receive
/// buffer holds some 500 small datagrams.
const IN_FLIGHT: usize = 256;

/// Arguments of a load over UDP: target, sources, and requests at a time.
#[derive(Args, Debug)]
#[command(next_help_heading = SOMETIMES)]
pub struct TargetArgs {
    /// The addresses of the tracker and of clients.
    #[command(flatten)]
    pub network: NetworkArgs,

    /// Closed loop: requests in flight per worker [default: 256]. Open loop (--rate, --steps,
    /// --find-max): the limit per worker, above which requests wait [default: 1.25 times the
    /// requests of the rate within the timeout].
    #[arg(long, short = 'n', value_name = "N", value_parser = count(1..=1 << 20))]
    pub in_flight: Option<u32>,

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

    /// Send and receive by the queues of this network interface (AF_XDP), past the kernel's UDP
    /// stack. Needs root, and a driver with native XDP.
    #[arg(long, value_name = "IFACE")]
    pub xdp: Option<String>,

    /// With --xdp, send what an XDP program transmits (BPF_F_TEST_XDP_LIVE_FRAMES) instead of what
    /// an AF_XDP socket sends: over veth it costs both sides less. Needs Linux 5.18.
    #[arg(long, requires = "xdp", help_heading = RARELY)]
    pub live_frames: bool,
}

impl TargetArgs {
    /// Checks the arguments against each other.
    ///
    /// # Errors
    /// A sentence that names the contradiction.
    pub fn check(&self) -> Result<(), String> {
        let targets = &self.network.target;
        if let Some(interface) = &self.xdp
            && (interface == "lo" || targets.iter().any(|target| target.ip().is_loopback()))
        {
            return Err(format!(
                "--xdp {interface}: the loopback interface has no queues: name another interface, \
                 and each --target by an address beyond it, or leave --xdp out"
            ));
        }
        for (n, target) in targets.iter().enumerate() {
            if targets[..n].contains(target) {
                return Err(format!("--target {target} is given twice"));
            }
        }
        Ok(())
    }

    /// How the queues of an interface are used, if they are.
    pub fn xdp_settings(&self) -> Option<XdpSettings> {
        let live_frames = self.live_frames;
        self.xdp.clone().map(|interface| XdpSettings { interface, live_frames })
    }

    /// Requests in flight of a closed loop.
    pub fn in_flight(&self) -> usize {
        self.in_flight.map_or(IN_FLIGHT, |count| count as usize)
    }
}
