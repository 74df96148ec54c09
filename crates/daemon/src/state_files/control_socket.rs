//! The control socket: a Unix socket in the state directory at which root and the tracker's
//! user need no token for the admin API. It is part of a handoff, so that it is never closed.

use std::fs;

use super::StateFiles;
use onrush_config::Settings;
use onrush_control::Server;
use onrush_store::state_file;

/// Permissions of the socket: its group may read what the admin side serves without a token.
const MODE: u32 = 0o660;

impl StateFiles {
    /// Binds the socket, unless it was part of a handoff. Without the lock of the directory,
    /// another process may have it.
    pub fn bind_control(&mut self, settings: &Settings, warnings: &mut Vec<String>) {
        let Some(path) = settings.control_socket().filter(|_| self.lock.is_some()) else { return };
        if self.control.is_some() {
            return;
        }
        match state_file::bind_socket(&path, MODE) {
            Ok(listener) => self.control = Some(listener),
            Err(error) => warnings.push(format!(
                "`onrush ctl` needs the admin token: cannot listen at {}: {error}; correct this \
                 and restart",
                path.display()
            )),
        }
    }

    /// Serves the admin side at the socket, unless that is done already.
    pub fn serve_control(&self, admin: &mut Server) {
        let Some(listener) = self.control.as_ref().filter(|_| !admin.serves_socket()) else {
            return;
        };
        let served = listener.try_clone().and_then(|listener| admin.serve_socket(listener));
        if let Err(error) = served {
            log::warn!("`onrush ctl` needs the admin token: no control socket: {error}");
        }
    }

    /// Removes the socket: the tracker stops.
    pub fn remove_control(&mut self) {
        let address = self.control.take().and_then(|listener| listener.local_addr().ok());
        if let Some(path) = address.as_ref().and_then(|address| address.as_pathname()) {
            // Left behind, it is replaced by the next start.
            let _ = fs::remove_file(path);
        }
    }
}
