//! The program and the command line of this process. A launcher and a successor are started with
//! the same ones, so that `ps` and `systemctl status` show the same before and after an upgrade.
//! Their environment differs.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::exit::UPGRADE_ROLE;

/// Environment variable with the effect of `--force`, set together with [`UPGRADE_ROLE`].
pub(super) const UPGRADE_FORCE: &str = "ONRUSH_UPGRADE_FORCE";
/// The flags of a successor that an operator has started: later successors lack them.
const FLAGS: [&str; 2] = ["--upgrade", "--force"];

/// The program of this process and its arguments, by which a successor is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The path of the executable.
    pub path: PathBuf,
    /// The name by which it was started.
    name: OsString,
    args: Vec<OsString>,
}

impl Program {
    /// The program of this process. Call first of all: the file is replaced before an upgrade.
    pub fn current() -> Self {
        let mut args = env::args_os();
        let name = args.next().unwrap_or_default();
        let executable = env::current_exe().ok();
        let path = find_program(Path::new(&name), env::var_os("PATH"), executable.as_deref());
        let is_kept = |arg: &OsString| !FLAGS.iter().any(|flag| arg == flag);
        Self { path, name, args: args.filter(is_kept).collect() }
    }

    /// A command that starts it again, for a process with this [`UPGRADE_ROLE`].
    pub(super) fn command(&self, role: &str, force: bool) -> Command {
        let mut command = Command::new(&self.path);
        command.arg0(&self.name).args(&self.args).env(UPGRADE_ROLE, role);
        match force {
            true => command.env(UPGRADE_FORCE, "1"),
            false => command.env_remove(UPGRADE_FORCE),
        };
        // Passed sockets arrive by the handoff. The watchdog is for the main process, whose id
        // the manager gets by MAINPID; the one in the environment is that of the predecessor.
        for name in ["LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "WATCHDOG_PID"] {
            command.env_remove(name);
        }
        command
    }
}

/// The path by which the program was started. A symbolic link is not resolved: it may lead to the
/// next version later. `name` counts only if it leads to the `executable` of this process.
fn find_program(name: &Path, path: Option<OsString>, executable: Option<&Path>) -> PathBuf {
    let is_executable = |path: &Path| match (fs::metadata(path), executable.map(fs::metadata)) {
        (Ok(this), Some(Ok(other))) => (this.dev(), this.ino()) == (other.dev(), other.ino()),
        _ => false,
    };
    let given = match name.components().count() {
        0 | 1 if !name.is_absolute() => {
            let directories = path.as_deref().map(env::split_paths).into_iter().flatten();
            directories.map(|directory| directory.join(name)).find(|path| is_executable(path))
        }
        _ => std::path::absolute(name).ok().filter(|path| is_executable(path)),
    };
    given.or_else(|| executable.map(Path::to_owned)).unwrap_or_else(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_the_started_path_with_links_unresolved() {
        let directory = tempfile::tempdir().unwrap();
        let (file, link) = (directory.path().join("onrush-1"), directory.path().join("onrush"));
        fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let path = Some(directory.path().as_os_str().to_owned());
        let found = |name: &Path, path| find_program(name, path, Some(&file));
        assert_eq!(found(&link, None), link);
        assert_eq!(found(Path::new("onrush"), path.clone()), link);
        // A path to another file is ignored.
        let other = directory.path().join("other");
        fs::write(&other, "").unwrap();
        assert_eq!(found(&other, None), file);
        assert_eq!(found(Path::new("other"), path), file);
        assert_eq!(find_program(Path::new("onrush"), None, None), Path::new("onrush"));
    }
}
