//! Man pages and shell completions of `onrush`, from the same words as `--help`:
//!
//! ```sh
//! cargo run -p onrush --example pages -- DIR
//! ```
//!
//! writes DIR/man1/onrush.1 with a page for each subcommand, and DIR/completions/.

#![forbid(unsafe_code)]

use std::fs;
use std::path::PathBuf;

use clap::CommandFactory;
use clap_complete::{Shell, generate_to};
use onrush::cli::Cli;

fn main() -> std::io::Result<()> {
    let Some(directory) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("pages: name the directory to write to");
        std::process::exit(2);
    };
    let (man, completions) = (directory.join("man1"), directory.join("completions"));
    fs::create_dir_all(&man)?;
    fs::create_dir_all(&completions)?;
    clap_mangen::generate_to(Cli::command(), &man)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        generate_to(shell, &mut Cli::command(), "onrush", &completions)?;
    }
    Ok(())
}
