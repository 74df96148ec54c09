//! Whether the tracker of a state directory runs, by the lock file and /proc.

use std::io;
use std::path::Path;

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
    /// The holder of the lock of `directory`. A process that has got the number of one that has
    /// ended counts as the holder only if it has the same name as this one.
    pub(crate) fn of(directory: &Path) -> Self {
        let stat = |process: &str| Stat::from_file(format!("/proc/{process}/stat")).ok();
        let id = match lock::last_holder(directory) {
            Ok(id) => id,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Self::None,
            Err(_) => return Self::Unknown,
        };
        let holder = stat(&id.to_string()).filter(|_| id != std::process::id());
        match (holder, stat("self")) {
            (Some(holder), Some(own)) if holder.comm == own.comm && holder.state != 'Z' => {
                Self::Process(id, holder.state)
            }
            _ => Self::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A tracker that runs is tested with `onrush ctl health`.
    #[test]
    fn a_process_of_another_name_or_none_does_not_hold_the_lock() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(LockHolder::of(directory.path()), LockHolder::None);
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        for process in [child.id(), std::process::id(), u32::MAX] {
            fs::write(directory.path().join("lock"), format!("{process}\n")).unwrap();
            assert_eq!(LockHolder::of(directory.path()), LockHolder::None);
        }
        drop(child.stdin.take());
        child.wait().unwrap();
        fs::write(directory.path().join("lock"), "").unwrap();
        assert_eq!(LockHolder::of(directory.path()), LockHolder::Unknown);
    }
}
