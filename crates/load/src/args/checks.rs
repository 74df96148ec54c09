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

    /// Strictness of the checks.
    #[command(flatten, next_help_heading = RARELY)]
    pub strictness: Strictness,
}
