//! The predicted capacity of a host of 1 to 48 vCPUs in each placement, from costs measured on a
//! small one: the tables and the picture of `docs/benchmarks/scaling-model.md`.
//!
//! ```text
//! cargo run --release -p onrush-lab --bin scaling              prints the tables
//! cargo run --release -p onrush-lab --bin scaling -- --write   rewrites them in docs/benchmarks
//! ```

mod model;
mod page;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::{fs, io};

fn main() -> io::Result<()> {
    let tables = page::tables();
    if std::env::args().nth(1).as_deref() != Some("--write") {
        print!("{tables}");
        return Ok(());
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/benchmarks");
    let file = folder.join("scaling-model.md");
    let old = fs::read_to_string(&file)?;
    let new = page::with_tables(&old, &tables)
        .ok_or_else(|| io::Error::other("scaling-model.md has lost its marks"))?;
    fs::write(file, new)?;
    fs::write(folder.join("scaling-model.svg"), page::picture())
}
