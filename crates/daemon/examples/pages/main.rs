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

use std::fs;
use std::path::PathBuf;

use clap::CommandFactory;
use clap_complete::{Shell, generate_to};
use commands::Pages;
use onrush::cli::Cli;

fn main() -> std::io::Result<()> {
    let Some(directory) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("pages: name the directory to write to");
        std::process::exit(2);
    };
    let place = |name: &str| {
        let place = directory.join(name);
        fs::create_dir_all(&place).map(|()| place)
    };
    let (related, commands) = ([configuration::PAGE], place("man8")?);
    Pages { section: "8", related: &related, place: &commands }.write(Cli::command())?;
    configuration::write(&place("man5")?)?;
    let completions = place("completions")?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        generate_to(shell, &mut Cli::command(), "onrush", &completions)?;
    }
    Ok(())
}
