//! Man pages and shell completions of `onrush`, from the same words as `--help` and the declaration
//! of the configuration's keys:
//!
//! ```sh
//! cargo run -p onrush --example pages -- DIR
//! ```
//!
//! writes DIR/man8/onrush.8 with a page for each subcommand, DIR/man5/onrush.toml.5, and
//! DIR/completions/.

mod commands;
mod configuration;

use clap::CommandFactory;
use commands::{Pages, place};
use onrush::cli::Cli;

fn main() -> std::io::Result<()> {
    let (related, man8) = ([configuration::PAGE], place("man8")?);
    Pages { section: "8", related: &related, place: &man8 }.write(Cli::command())?;
    configuration::write(&place("man5")?)?;
    commands::complete(Cli::command(), "onrush")
}
