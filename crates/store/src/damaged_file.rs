//! Files of the state directory that are read and not valid: renamed, and only the newest kept.

use std::fmt::Display;
use std::fs;
use std::path::Path;

use crate::atomic_file::numbered_files;

/// Damaged files that are kept at most.
const MAX_DAMAGED: usize = 3;

/// Renames a damaged file, so that it is neither read again nor overwritten. Returns the sentence
/// for the operator: `what` is not loaded, and `why`.
pub fn set_aside(what: &str, path: &Path, why: &dyn Display, unix: u64) -> String {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".damaged-{unix}"));
    let renamed = path.with_file_name(name);
    let outcome = match fs::rename(path, &renamed) {
        Ok(()) => format!("the file was renamed to {} and may be removed", renamed.display()),
        Err(error) => format!("it cannot be renamed either: {error}"),
    };
    remove_oldest_damaged(path);
    format!("{what} not loaded: {}: {why}; {outcome}", path.display())
}

/// Removes all but the youngest [`MAX_DAMAGED`] damaged files, so that repeated restarts cannot
/// fill the disk.
fn remove_oldest_damaged(path: &Path) {
    let mut damaged = numbered_files(path, ".damaged-", "");
    damaged.sort_unstable();
    let surplus = damaged.len().saturating_sub(MAX_DAMAGED);
    for (_, path) in damaged.iter().take(surplus) {
        // Damaged files cost only disk space.
        let _ = fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Repeated starts with a damaged file do not fill the disk.
    #[test]
    fn a_few_damaged_files_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(directory.path().join("file.damaged-by-hand"), "mine").unwrap();
        for unix in [50, 9, 100, 70, 60] {
            fs::write(&path, unix.to_string()).unwrap();
            let text = set_aside("file", &path, &"why", unix);
            assert!(
                text.contains(&format!(
                    "file: why; the file was renamed to {}.damaged-{unix}",
                    path.display()
                )),
                "{text}"
            );
        }
        let names = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        let left = ["100", "60", "70", "by-hand"].map(|end| format!("file.damaged-{end}"));
        assert_eq!(names, left);
    }
}
