//! Writes to a file that another process may have made non-blocking: the flag belongs to the open
//! file, which standard error shares with the shell or the service manager.

use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Waits until the file takes bytes, whether it is blocking or not.
#[derive(Debug)]
pub(super) struct BlockingWriter<W>(pub(super) W);

impl<W: Write + AsFd> Write for BlockingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.0.write(bytes) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                written => return written,
            }
            // Also ends when the reader has gone, which the next write reports.
            let file = PollFd::new(self.0.as_fd(), PollFlags::POLLOUT);
            poll(&mut [file], PollTimeout::NONE)?;
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, pipe};
    use std::thread;

    use nix::fcntl::{FcntlArg, OFlag, fcntl};

    use super::*;

    #[test]
    fn a_full_pipe_that_does_not_block_loses_no_line() {
        let (mut log, to) = pipe().unwrap();
        fcntl(&to, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
        fcntl(&to, FcntlArg::F_SETPIPE_SZ(4096)).unwrap();
        let lines = "a line of the log\n".repeat(5_000);
        let mut read = String::new();
        thread::scope(|scope| {
            // The pipe is closed after everything is written.
            scope.spawn(|| BlockingWriter(to).write_all(lines.as_bytes()).unwrap());
            log.read_to_string(&mut read).unwrap();
        });
        assert!(read == lines);
    }

    #[test]
    fn a_pipe_without_a_reader_is_an_error() {
        let (log, mut to) = pipe().unwrap();
        fcntl(&to, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
        while to.write(&[0; 4096]).is_ok() {}
        drop(log);
        let error = BlockingWriter(to).write(b"line\n").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    }
}
