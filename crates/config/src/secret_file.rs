//! Files with secrets: who may read them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Whether users other than the owner of the file may read it; with `group_may`, other than its
/// owner and its group. False for a file whose permissions cannot be read.
pub fn readable_by_others(path: &Path, group_may: bool) -> bool {
    let others = if group_may { 0o007 } else { 0o077 };
    fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & others != 0)
}
