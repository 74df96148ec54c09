//! The user of the unit `onrush.service`: before its first start nothing else on the host says as
//! which user the tracker will run.

use std::fs;
use std::path::Path;

/// Directories of units, the first with the unit counts (systemd.unit(5)).
const DIRECTORIES: [&str; 4] =
    ["etc/systemd/system", "run/systemd/system", "usr/lib/systemd/system", "lib/systemd/system"];
/// The name of the unit.
const UNIT: &str = "onrush.service";

/// `User=` of the unit, or of the files of `systemctl edit` over it, below `root` (`/`, or a
/// directory in a test). `None` without the unit, or if it runs as root.
pub fn service_user(root: &Path) -> Option<String> {
    let units = DIRECTORIES.map(|directory| root.join(directory).join(UNIT));
    let unit = units.iter().find_map(|path| fs::read_to_string(path).ok())?;
    let over = fs::read_dir(root.join(DIRECTORIES[0]).join(format!("{UNIT}.d")));
    let mut over: Vec<_> = over.into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    over.sort();
    let over = over.iter().filter(|path| path.extension().is_some_and(|it| it == "conf"));
    let texts = [unit].into_iter().chain(over.filter_map(|path| fs::read_to_string(path).ok()));
    let users = texts.filter_map(|text| {
        let user = text.lines().rev().find_map(|line| line.trim().strip_prefix("User="));
        user.map(|user| user.trim().to_owned())
    });
    users.last().filter(|user| !matches!(user.as_str(), "" | "root" | "0"))
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
        write("etc/systemd/system/onrush.service.d/20-user.conf", "[Service]\nUser=root\n");
        assert_eq!(user(), None);
    }
}
