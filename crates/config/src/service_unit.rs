//! The user of the unit `onrush.service`: before its first start nothing else on the host says as
//! which user the tracker will run.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Directories of units, the first with the unit counts (systemd.unit(5)).
const DIRECTORIES: [&str; 5] = [
    "etc/systemd/system",
    "run/systemd/system",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
    "lib/systemd/system",
];
/// The name of the unit.
const UNIT: &str = "onrush.service";

/// `User=` of the unit, or of the files in `onrush.service.d` over it, below `root` (`/`, or a
/// directory in a test). `None` without the unit, or if it runs as root.
pub fn service_user(root: &Path) -> Option<String> {
    let units = DIRECTORIES.map(|directory| root.join(directory).join(UNIT));
    let unit = units.iter().find_map(|path| fs::read_to_string(path).ok())?;
    // By name: a file in an earlier directory replaces one of the same name.
    let mut over = BTreeMap::new();
    for directory in DIRECTORIES.iter().rev() {
        let files = fs::read_dir(root.join(directory).join(format!("{UNIT}.d")));
        over.extend(files.into_iter().flatten().flatten().map(|it| (it.file_name(), it.path())));
    }
    let over = over.values().filter(|path| path.extension().is_some_and(|it| it == "conf"));
    // The last assignment counts.
    let texts = [unit].into_iter().chain(over.filter_map(|path| fs::read_to_string(path).ok()));
    let lines = texts.collect::<Vec<_>>().join("\n");
    let user = lines.lines().rev().find_map(|line| line.trim().strip_prefix("User="));
    user.map(|user| user.trim().to_owned())
        .filter(|user| !matches!(user.as_str(), "" | "root" | "0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_is_that_of_the_unit_and_of_the_files_over_it() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let user = || service_user(root.path());
        assert_eq!(user(), None);
        write(
            "usr/lib/systemd/system/onrush.service",
            include_str!("../../../config/onrush.service"),
        );
        assert_eq!(user().as_deref(), Some("onrush"));
        write("etc/systemd/system/onrush.service.d/10-limits.conf", "[Service]\nNice=1\n");
        write("etc/systemd/system/onrush.service.d/20-user.conf", "[Service]\nUser=tracker\n");
        write("etc/systemd/system/onrush.service.d/30.conf~", "[Service]\nUser=editor\n");
        assert_eq!(user().as_deref(), Some("tracker"));
        write("usr/local/lib/systemd/system/onrush.service.d/10-user.conf", "[Service]\nUser=a\n");
        assert_eq!(user().as_deref(), Some("tracker"));
        write("usr/lib/systemd/system/onrush.service.d/30-user.conf", "[Service]\nUser=vendor\n");
        assert_eq!(user().as_deref(), Some("vendor"));
        write("etc/systemd/system/onrush.service.d/30-user.conf", "");
        assert_eq!(user().as_deref(), Some("tracker"));
        write("etc/systemd/system/onrush.service.d/20-user.conf", "[Service]\nUser=root\n");
        assert_eq!(user(), None);
    }
}
