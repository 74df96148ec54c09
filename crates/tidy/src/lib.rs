//! Reads the repository for the house rules, which are the tests in `tests/`.
//!
//! Rust files are read as tokens, so that comments and strings are not taken for code, and code in
//! macros is covered.

mod source;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

pub use source::{Source, Token};

/// Columns of a line of Rust at most, as in rustfmt.toml.
pub const COLUMNS: usize = 100;

/// The repository's root.
pub fn root() -> PathBuf {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tidy is in crates/");
    crates.parent().expect("crates/ is in the root").to_path_buf()
}

/// Directories of what programs have written: builds, and inputs and findings of fuzzing.
const GENERATED: [&str; 3] = ["target", "corpus", "artifacts"];

/// Every file below `directory` whose name ends in `extension` (with its dot), as paths relative
/// to the root, sorted. Generated and hidden directories are left out.
///
/// # Panics
/// When a directory cannot be read, so that a rule over no files fails.
pub fn files(directory: &str, extension: &str) -> Vec<String> {
    let root = root();
    let mut found = Vec::new();
    let mut open = vec![root.join(directory)];
    while let Some(directory) = open.pop() {
        let entries = fs::read_dir(&directory)
            .unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
        for entry in entries {
            let path = entry.expect("a directory entry").path();
            let name = path.file_name().expect("an entry has a name").to_string_lossy();
            if path.is_dir() {
                if !GENERATED.contains(&name.as_ref()) && !name.starts_with('.') {
                    open.push(path);
                }
            } else if name.ends_with(extension) {
                let path = path.strip_prefix(&root).expect("it is below the root");
                found.push(path.to_string_lossy().into_owned());
            }
        }
    }
    found.sort();
    found
}

/// The text of a file given by its path relative to the root.
///
/// # Panics
/// When it cannot be read.
pub fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every Rust file of the repository, read once for all tests of a process.
pub fn sources() -> &'static [Source] {
    static SOURCES: LazyLock<Vec<Source>> = LazyLock::new(|| {
        let mut paths = files("crates", ".rs");
        paths.extend(files("fuzz", ".rs"));
        paths.iter().map(|path| Source::read(path)).collect()
    });
    &SOURCES
}

/// The crate that a path lies in: `net` for `crates/net/src/lib.rs`.
pub fn crate_of(path: &str) -> Option<&str> {
    path.strip_prefix("crates/")?.split('/').next()
}

/// Fails with every broken rule at once, a line each.
///
/// # Panics
/// When there is any.
pub fn demand(rule: &str, broken: Vec<String>) {
    assert!(broken.is_empty(), "\n{rule}:\n  {}\n", broken.join("\n  "));
}
