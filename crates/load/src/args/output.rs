//! What is shown and written.

use std::path::PathBuf;

use clap::Args;

/// What is shown and written.
#[derive(Args, Debug)]
#[command(next_help_heading = "Output")]
pub struct OutputArgs {
    /// The tracker's process: its processor time, memory and the datagrams that the kernel dropped
    /// before it are reported.
    #[arg(long, value_name = "PID")]
    pub tracker_pid: Option<u32>,

    /// Write the report as JSON, `-` for standard output (the table then goes to standard error).
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Write the info hashes of the population, a line of 40 hexadecimal digits each, and exit: for a
    /// tracker that serves only a whitelist. It depends on --seed, targets, sources and profile.
    #[arg(long, value_name = "FILE", requires = "seed")]
    pub write_hashes: Option<PathBuf>,

    /// Write the report with its plots as one HTML page that needs nothing else.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Write latencies by percentile, in microseconds, as HdrHistogram's text: those of all
    /// requests into FILE, or into a directory that exists all.hgrm and one file per kind.
    #[arg(long, value_name = "FILE-OR-DIR")]
    pub hgrm: Option<PathBuf>,

    /// Print the JSON schema of reports, and end.
    #[arg(long)]
    pub print_schema: bool,

    /// Show no progress.
    #[arg(long, short)]
    pub quiet: bool,
}
