//! The control socket: a Unix socket in the state directory at which root and the tracker's
//! user need no token for the admin API. It is part of a handoff, so that it is never closed.

use std::io;
use std::sync::{Arc, Mutex};

use super::StateFiles;
use onrush_control::Server;
use onrush_store::state_socket::StateSocket;

/// Permissions of the socket: its group may read what the admin side serves without a token.
pub(super) const MODE: u32 = 0o660;

/// The control socket. A handoff holds the lock, and keeps it when it is complete, so that the
/// socket is not made again after the successor has received it.
pub type ControlSocket = Arc<Mutex<StateSocket>>;

impl StateFiles {
    /// Serves the admin side at the socket. Call when the tracker starts and every second: makes
    /// the socket if there is none or its file is lost, unless a handoff is under way.
    pub fn serve_control(&self, admin: &mut Server) {
        let socket = self.control.as_ref().and_then(|socket| socket.try_lock().ok());
        let Some(mut socket) = socket else { return };
        let (renewed, is_served) = (socket.renew(), admin.serves_socket());
        if renewed.is_none() && is_served {
            return;
        }
        let listener = || socket.listener().ok_or(io::ErrorKind::NotConnected)?.try_clone();
        let serve = |()| admin.serve_socket(listener()?, socket.path());
        let bound = renewed.unwrap_or(Ok(())).and_then(serve);
        let path = socket.path().display();
        match bound {
            Ok(()) if is_served => log::warn!("{path} is made again"),
            Ok(()) => {}
            Err(error) => {
                let why = format!("cannot listen at {path}: {error}");
                // The next second makes it again, and serves it.
                socket.remove();
                if admin.lacks_socket(&why) {
                    log::warn!(
                        "`onrush ctl` needs the admin token until there is a control socket: {why}"
                    );
                }
            }
        }
    }

    /// Removes the socket, as the tracker stops. During a handoff it is left behind, and replaced
    /// by the next start.
    pub fn remove_control(&mut self) {
        let socket = self.control.take();
        if let Some(mut socket) = socket.as_ref().and_then(|socket| socket.try_lock().ok()) {
            socket.remove();
        }
    }
}
