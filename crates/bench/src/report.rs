//! The report of a result directory: Markdown for people, JSON for machines, pictures.

mod markdown;
mod number;
mod pictures;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::plan::Plan;
use crate::record;
use crate::summary::Summary;

pub use markdown::markdown;

/// Reads `directory` and writes its report there; returns the files.
///
/// # Errors
/// When there are no results, or nothing can be written.
pub fn write(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let plan = Plan::read(directory)?;
    let summary = Summary::new(&plan, &record::read(directory)?);
    let pictures = pictures::pictures(&summary);
    let names: Vec<_> = pictures.iter().map(|(name, _)| name.clone()).collect();
    let mut files = pictures;
    files.push(("report.md".into(), markdown(&summary, &names)));
    files.push(("summary.json".into(), serde_json::to_string_pretty(&summary)? + "\n"));
    let mut written = Vec::new();
    for (name, text) in files {
        let path = directory.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        written.push(path);
    }
    Ok(written)
}

#[cfg(test)]
mod tests;
