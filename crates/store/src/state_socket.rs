//! Unix sockets in the state directory. The file of one may be removed while the process runs, by
//! hand or by a restored backup: then no client can connect, and it has to be made again.

use std::fs::{self, Permissions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// A socket at which this process listens, or would. Use it only with the lock of the directory:
/// what is at the path is then left over from a process that has exited.
#[derive(Debug)]
pub struct StateSocket {
    path: PathBuf,
    mode: u32,
    listener: Option<UnixListener>,
    /// Device and inode of the listener's file: its inode stays in use as long as it listens.
    file: Option<(u64, u64)>,
}

impl StateSocket {
    /// A socket at this path with these permissions, which is not bound yet.
    pub fn new(path: PathBuf, mode: u32) -> Self {
        Self { path, mode, listener: None, file: None }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The listener, once it is bound.
    pub fn listener(&self) -> Option<&UnixListener> {
        self.listener.as_ref()
    }

    /// Device and inode of the listener's file, for a successor.
    pub fn file(&self) -> Option<(u64, u64)> {
        self.file
    }

    /// Listens by the socket of a predecessor, which had this `file`: another one may have replaced
    /// it at the path.
    pub fn adopt(&mut self, listener: UnixListener, file: Option<(u64, u64)>) {
        (self.listener, self.file) = (Some(listener), file);
    }

    /// Listens at the path. What is there is removed.
    ///
    /// # Errors
    /// When the path is a directory, or the socket cannot be made.
    pub fn bind(&mut self) -> io::Result<()> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&self.path)?;
        fs::set_permissions(&self.path, Permissions::from_mode(self.mode))?;
        self.adopt(listener, file_at(&self.path));
        Ok(())
    }

    /// Listens again if the file is lost. Call every second, until a successor has the directory.
    /// Returns whether it listens again, or why not; `None` if nothing was lost.
    pub fn renew(&mut self) -> Option<io::Result<()>> {
        if self.file.is_some() && self.file == file_at(&self.path) {
            return None;
        }
        Some(self.bind())
    }

    /// The next connection; `None` if none arrives within this time.
    ///
    /// # Errors
    /// When the socket is not bound, or the connection cannot be accepted.
    pub fn accept(&self, limit: Duration) -> io::Result<Option<UnixStream>> {
        let listener = self.listener.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let limit = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(listener.as_fd(), PollFlags::POLLIN)], limit) {
            Ok(0) | Err(Errno::EINTR) => Ok(None),
            ready => {
                ready?;
                Ok(Some(listener.accept()?.0))
            }
        }
    }

    /// Closes the socket and removes its file: the process stops.
    pub fn remove(&mut self) {
        if self.file.take().is_some_and(|file| file_at(&self.path) == Some(file)) {
            // Left behind, it is replaced by the next start.
            let _ = fs::remove_file(&self.path);
        }
        self.listener = None;
    }
}

/// Device and inode of the file at a path.
fn file_at(path: &Path) -> Option<(u64, u64)> {
    let metadata = path.symlink_metadata().ok()?;
    Some((metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_socket_replaces_a_stale_one_and_a_link_but_not_the_file_behind_the_link() {
        let directory = tempfile::tempdir().unwrap();
        let (path, other) = (directory.path().join("socket"), directory.path().join("other"));
        let bind = |mode| {
            let mut socket = StateSocket::new(path.clone(), mode);
            socket.bind().unwrap();
            socket
        };
        drop(bind(0o600));
        for right in [0o660, 0o600] {
            let _socket = bind(right);
            assert_eq!(mode(&path), right);
        }
        fs::write(&other, "precious").unwrap();
        fs::remove_file(&path).unwrap();
        symlink(&other, &path).unwrap();
        let _socket = bind(0o660);
        assert!(!fs::symlink_metadata(&path).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&other).unwrap(), "precious");
    }

    #[test]
    fn a_lost_socket_is_made_again_and_that_of_another_process_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let mut socket = StateSocket::new(path.clone(), 0o660);
        socket.bind().unwrap();
        assert!(socket.renew().is_none());
        let stale = || drop(UnixListener::bind(&path).unwrap());
        let losses: [&dyn Fn(); 3] = [&|| {}, &stale, &|| fs::write(&path, "").unwrap()];
        for replace in losses {
            fs::remove_file(&path).unwrap();
            replace();
            assert!(socket.renew().is_some_and(|renewed| renewed.is_ok()));
            let _client = UnixStream::connect(&path).unwrap();
            assert!(socket.accept(Duration::from_secs(60)).unwrap().is_some());
            assert_eq!(mode(&path), 0o660);
            assert!(socket.renew().is_none());
        }
        // A successor has adopted the listener.
        let mut adopted = StateSocket::new(path.clone(), 0o660);
        let adopt = |adopted: &mut StateSocket| {
            adopted.adopt(socket.listener().unwrap().try_clone().unwrap(), socket.file());
        };
        adopt(&mut adopted);
        assert!(adopted.renew().is_none());
        fs::remove_file(&path).unwrap();
        fs::write(&path, "").unwrap();
        adopt(&mut adopted);
        assert!(adopted.renew().is_some_and(|renewed| renewed.is_ok()), "replaced by a file");
        socket.remove();
        assert!(adopted.renew().is_none(), "the file of the other process is not removed");
        adopted.remove();
        assert!(!path.exists());
        // A socket that could not be served is removed, and made again.
        assert!(adopted.renew().is_some_and(|renewed| renewed.is_ok()));
    }

    #[test]
    fn a_socket_that_could_not_be_made_is_made_later() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("missing/socket");
        let mut socket = StateSocket::new(path.clone(), 0o600);
        assert!(socket.bind().is_err() && socket.accept(Duration::ZERO).is_err());
        assert!(socket.renew().is_some_and(|renewed| renewed.is_err()));
        fs::create_dir(path.parent().unwrap()).unwrap();
        assert!(socket.renew().is_some_and(|renewed| renewed.is_ok()));
        assert!(socket.accept(Duration::ZERO).unwrap().is_none());
    }
}
