//! Man pages and shell completions of `onrush-load`, from the same words as `--help`:
//!
//! ```sh
//! cargo run -p onrush-load --example load-pages -- DIR
//! ```
//!
//! writes DIR/man1/onrush-load.1 with a page for each subcommand, and DIR/completions/.

#[path = "../../daemon/examples/pages/commands.rs"]
mod commands;

use clap::CommandFactory as _;
use onrush_load::args::Args;

fn main() -> std::io::Result<()> {
    let man1 = commands::place("man1")?;
    let pages = commands::Pages { section: "1", related: &[("onrush", "8")], place: &man1 };
    pages.write(Args::command())?;
    commands::complete(Args::command(), "onrush-load")
}
