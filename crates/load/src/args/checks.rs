//! Arguments about the checks of replies.

use clap::Args;

use crate::check::Strictness;
use crate::options::{RARELY, SOMETIMES};

/// Arguments about the checks of replies.
#[derive(Args, Debug)]
#[command(next_help_heading = SOMETIMES)]
pub struct CheckArgs {
    /// Count replies as wrong that differ from the expected ones within what BEP 15 leaves open.
    #[arg(long)]
    pub strict: bool,

    /// Tolerate peers of other load testers, which share the swarms of this seed.
    #[arg(long, help_heading = RARELY)]
    pub strangers: bool,

    /// Check one in N long peer lists in full, and the first 16 peers of the others.
    #[arg(
        long, value_name = "N", default_value_t = 8,
        value_parser = clap::value_parser!(u32).range(1..), help_heading = RARELY
    )]
    pub sample: u32,
}

impl CheckArgs {
    /// The strictness that these arguments ask for.
    pub fn strictness(&self) -> Strictness {
        Strictness { strangers: self.strangers, sample: self.sample }
    }
}
