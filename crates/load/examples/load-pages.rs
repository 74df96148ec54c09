//! Man pages and shell completions of `onrush-load`, from the same words as `--help`:
//!
//! ```sh
//! cargo run -p onrush-load --example load-pages -- DIR
//! ```
//!
//! writes DIR/man1/onrush-load.1 with a page for each subcommand, and DIR/completions/.

#[path = "../../daemon/examples/pages/commands.rs"]
mod commands;

use std::fs;
use std::path::PathBuf;

use clap::CommandFactory as _;
use clap_complete::{Shell, generate_to};
use onrush_load::args::Args;

fn main() -> std::io::Result<()> {
    let Some(directory) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("pages: name the directory to write to");
        std::process::exit(2);
    };
    let (man, completions) = (directory.join("man1"), directory.join("completions"));
    fs::create_dir_all(&man)?;
    fs::create_dir_all(&completions)?;
    let pages = commands::Pages { section: "1", related: &[("onrush", "8")], place: &man };
    pages.write(Args::command())?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        generate_to(shell, &mut Args::command(), "onrush-load", &completions)?;
    }
    Ok(())
}
