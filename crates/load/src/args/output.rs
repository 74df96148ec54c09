//! Arguments about output.

use std::path::PathBuf;

use clap::Args;

use crate::options::{RARELY, ReportArgs, SOMETIMES};

/// Arguments about output.
#[derive(Args, Debug)]
#[command(next_help_heading = SOMETIMES)]
pub struct OutputArgs {
    /// The tracker's process: its CPU time, memory and drops are reported.
    ///
    /// Drops are datagrams for which its sockets had no room. The report then says whether the
    /// tracker limited the rate. With several (PID,PID), as of a tracker and the proxy in front of
    /// it, and with their worker processes of the same name, figures are sums.
    #[arg(long, value_name = "PID", value_delimiter = ',', help_heading = None)]
    pub tracker_pid: Vec<u32>,

    /// The report.
    #[command(flatten, next_help_heading = None)]
    pub report: ReportArgs,

    /// Write the info hashes of the population, a line of 40 hexadecimal digits each, and exit: for
    /// a tracker with an allow list. They depend on --seed, targets, sources and profile.
    #[arg(long, value_name = "FILE", requires = "seed", help_heading = RARELY)]
    pub write_hashes: Option<PathBuf>,

    /// Write the report with its plots as one self-contained HTML page.
    #[arg(long, value_name = "FILE", help_heading = None)]
    pub html: Option<PathBuf>,
}
