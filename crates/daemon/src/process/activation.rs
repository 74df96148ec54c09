//! Sockets that the service manager has opened for this process (systemd's socket activation, and
//! whoever keeps to sd_listen_fds(3)).

use std::io;
use std::net::UdpSocket;

use listenfd::ListenFd;
use onrush_net::adopt::{AdoptError, Adopted};
use thiserror::Error;

/// Why sockets that were passed cannot be used.
#[derive(Debug, Error)]
pub enum ActivationError {
    /// One is none of ours.
    #[error(
        "socket {number} of the {count} that were passed (LISTEN_FDS) is no UDP socket: {cause}\n  \
         a tracker takes UDP sockets alone: ListenDatagram=ADDRESS:PORT in the socket unit"
    )]
    NotUdp {
        /// Which one, from 1.
        number: usize,
        /// How many there are.
        count: usize,
        /// What it is.
        cause: io::Error,
    },
    /// Together they do not fit.
    #[error(transparent)]
    Adopt(#[from] AdoptError),
}

/// Takes the sockets that were passed to this process; `None` where none were. To be called once,
/// before threads are started.
///
/// # Errors
/// [`ActivationError`], whose text says what would be right.
pub fn take() -> Result<Option<Adopted>, ActivationError> {
    let mut passed = ListenFd::from_env();
    let count = passed.len();
    if count == 0 {
        return Ok(None);
    }
    let sockets: Result<Vec<UdpSocket>, _> = (0..count)
        .filter_map(|index| {
            let taken = passed.take_udp_socket(index).transpose()?;
            Some(taken.map_err(|cause| ActivationError::NotUdp { number: index + 1, count, cause }))
        })
        .collect();
    Ok(Some(Adopted::new(sockets?)?))
}
