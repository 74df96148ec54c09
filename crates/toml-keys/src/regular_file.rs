//! Opens regular files only. Opening a pipe waits for its other end, and reading a device may never
//! end.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::OFlag;

/// Opens a file to read it.
///
/// # Errors
/// As [`open_with`].
pub fn open(path: &Path) -> io::Result<File> {
    open_with(File::options().read(true), OFlag::empty(), path)
}

/// Opens a file with these options, whose own flags are replaced by `flags`. It is opened without
/// blocking, which changes nothing for a regular file.
///
/// # Errors
/// When the file cannot be opened, or is not a regular file.
pub fn open_with(options: &mut OpenOptions, flags: OFlag, path: &Path) -> io::Result<File> {
    let file = options.custom_flags((flags | OFlag::O_NONBLOCK).bits()).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("not a regular file")),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use nix::sys::stat::Mode;

    #[test]
    fn only_regular_files_are_opened_and_nothing_is_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("file"), "text").unwrap();
        std::os::unix::fs::symlink("file", at("link")).unwrap();
        nix::unistd::mkfifo(&at("pipe"), Mode::S_IRWXU).unwrap();
        for name in ["file", "link"] {
            assert_eq!(io::read_to_string(open(&at(name)).unwrap()).unwrap(), "text");
        }
        for other in [at("pipe"), at("."), "/dev/null".into()] {
            let error = open(&other).unwrap_err().to_string();
            assert!(error.contains("not a regular file"), "{}: {error}", other.display());
        }
        let to_pipe = open_with(File::options().append(true), OFlag::empty(), &at("pipe"));
        assert!(to_pipe.is_err());
    }
}
