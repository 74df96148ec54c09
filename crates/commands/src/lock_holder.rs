//! Whether the tracker of a state directory runs, by the lock file and /proc.

use std::io;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;
use onrush_store::lock;
use procfs_core::FromRead;
use procfs_core::process::Stat;

/// The tracker of a state directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockHolder {
    /// This process holds the lock, in this state of proc_pid_stat(5).
    Process(u32, char),
    /// None runs.
    None,
    /// This user may not know.
    Unknown,
}

impl LockHolder {
    /// The holder of the lock of `directory`. A process with another name than this one is unknown:
    /// it may be a tracker under another name, or have got the number of one that has ended.
    pub(crate) fn of(directory: &Path) -> Self {
        let stat = |process: &str| Stat::from_file(format!("/proc/{process}/stat")).ok();
        let id = match lock::last_holder(directory) {
            Ok(id) => id,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Self::None,
            Err(_) => return Self::Unknown,
        };
        // /proc may hide the processes of other users.
        let exists = |id| kill(Pid::from_raw(id), None) != Err(Errno::ESRCH);
        if id == std::process::id() || !i32::try_from(id).is_ok_and(exists) {
            return Self::None;
        }
        match (stat(&id.to_string()), stat("self")) {
            (Some(holder), _) if holder.state == 'Z' => Self::None,
            (Some(holder), Some(own)) if holder.comm == own.comm => Self::Process(id, holder.state),
            _ => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A tracker that runs is tested with `onrush ctl health`.
    #[test]
    fn a_process_that_does_not_exist_does_not_hold_the_lock_and_one_of_another_name_may() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(LockHolder::of(directory.path()), LockHolder::None);
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        for (process, holder) in [
            (child.id(), LockHolder::Unknown),
            (std::process::id(), LockHolder::None),
            (u32::MAX, LockHolder::None),
        ] {
            fs::write(directory.path().join("lock"), format!("{process}\n")).unwrap();
            assert_eq!(LockHolder::of(directory.path()), holder);
        }
        drop(child.stdin.take());
        child.wait().unwrap();
        fs::write(directory.path().join("lock"), "").unwrap();
        assert_eq!(LockHolder::of(directory.path()), LockHolder::Unknown);
    }
}
