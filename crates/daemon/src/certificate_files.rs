//! The files of certificates and keys: read at start and on a reload, and looked at for changes.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::panic;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use crossbeam_channel::Sender;
use onrush_config::settings::HttpSettings;
use onrush_web::tls::certificates::{CertificateError, Certificates, Files};

/// Certificates as they were read.
#[derive(Clone, Debug)]
pub struct LoadedCertificates {
    /// The certificates.
    pub certificates: Arc<Certificates>,
    /// Their files before they were read.
    pub state: FileStates,
}

/// The files of certificates and keys, with what tells whether they have changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileStates {
    /// The files.
    pub files: Vec<Files>,
    /// The states of each pair.
    states: Vec<[Option<FileState>; 2]>,
}

/// The time of the last change of a file, its mode or its owner (seconds and nanoseconds), its size
/// and its inode. A state that cannot be read is none.
type FileState = (i64, i64, u64, u64);

impl FileStates {
    fn of(files: &[Files]) -> Self {
        let state = |path: &Path| {
            let found = fs::metadata(path).ok()?;
            Some((found.ctime(), found.ctime_nsec(), found.size(), found.ino()))
        };
        let states = files.iter().map(|(certificate, key)| [state(certificate), state(key)]);
        Self { files: files.to_vec(), states: states.collect() }
    }
}

/// The result of a look at the files.
#[derive(Debug)]
pub struct Look {
    /// Their states when they were last read.
    pub known: FileStates,
    /// Their states now.
    pub state: FileStates,
    /// The certificates, if a file has changed.
    pub read: Option<Result<LoadedCertificates, CertificateError>>,
}

impl Look {
    fn at(known: FileStates) -> Self {
        let state = FileStates::of(&known.files);
        let read = (state != known).then(|| load_files(&state.files));
        Self { known, state, read }
    }
}

/// Reads the certificates of these settings; `None` without an address for HTTPS.
///
/// # Errors
/// For the first file that cannot be used.
pub fn load(http: &HttpSettings) -> Result<Option<LoadedCertificates>, CertificateError> {
    match http.tls_listen.is_empty() {
        true => Ok(None),
        false => load_files(&http.certificates).map(Some),
    }
}

/// Reads certificates of these files, of which there is at least one.
///
/// # Errors
/// For the first file that cannot be used.
pub fn load_files(files: &[Files]) -> Result<LoadedCertificates, CertificateError> {
    // Before they are read: a later change is then found by the next look.
    let state = FileStates::of(files);
    Ok(LoadedCertificates { certificates: Certificates::load(files)?.into(), state })
}

/// Looks at the files on a thread of its own, as a network file system may block. They are read if
/// one has changed since `known`. The result always comes: `None` without a thread, or if it
/// panics.
pub fn look(known: FileStates, to: Sender<Option<Look>>) {
    let failed = to.clone();
    let look = move || {
        // The receiver lives as long as the process.
        let _ = to.send(panic::catch_unwind(|| Look::at(known)).ok());
    };
    if let Err(error) = thread::Builder::new().name("certificates".into()).spawn(look) {
        log::warn!("cannot look for changed certificates: {error}");
        let _ = failed.send(None);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::{Duration, Instant};

    use super::*;

    /// A file that the tracker's user may not read is read again when it may.
    #[test]
    fn a_change_of_the_mode_is_a_change() {
        let directory = tempfile::tempdir().unwrap();
        let pair = [directory.path().join("a.crt"), directory.path().join("a.key")];
        pair.iter().for_each(|file| fs::write(file, "").unwrap());
        let [certificate, key] = pair.clone();
        let state = || FileStates::of(&[(certificate.clone(), key.clone())]);
        let known = state();
        assert_eq!(state(), known);
        let deadline = Instant::now() + Duration::from_secs(10);
        // The clock of the file system may not have advanced.
        while state() == known {
            assert!(Instant::now() < deadline);
            fs::set_permissions(&pair[1], Permissions::from_mode(0o640)).unwrap();
        }
    }
}
