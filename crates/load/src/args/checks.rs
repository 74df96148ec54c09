//! How strict the checks are.

use clap::Args;

use crate::check::Strictness;

/// How strict the checks are.
#[derive(Args, Debug)]
#[command(next_help_heading = "Checks")]
pub struct CheckArgs {
    /// Count replies as wrong that do what BEP 15 leaves open in another way than expected.
    #[arg(long)]
    pub strict: bool,

    /// Tolerate peers of other load testers, which share the swarms of this seed.
    #[arg(long)]
    pub strangers: bool,

    /// Look at one in N long peer lists in full, of the others at the first 16 peers.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    pub sample: u32,
}

impl CheckArgs {
    /// As the checks take it.
    pub fn strictness(&self) -> Strictness {
        Strictness { strangers: self.strangers, sample: self.sample }
    }
}
