//! Sockets that the service manager has opened for this process: systemd's socket activation, or
//! any manager that follows sd_listen_fds(3).

use std::io;
use std::net::UdpSocket;

use listenfd::ListenFd;
use onrush_net::adopt::{AdoptError, Adopted};
use thiserror::Error;

/// Why sockets passed by the service manager cannot be used.
#[derive(Debug, Error)]
pub enum ActivationError {
    /// A descriptor is not a UDP socket.
    #[error(
        "socket {number} of the {count} that were passed (LISTEN_FDS) is no UDP socket: {cause}\n  \
         a tracker takes UDP sockets alone: ListenDatagram=ADDRESS:PORT in the socket unit"
    )]
    NotUdp {
        /// Its position, from 1.
        number: usize,
        /// The number of descriptors passed.
        count: usize,
        /// The error of the conversion.
        cause: io::Error,
    },
    /// The sockets do not form a group.
    #[error(transparent)]
    Adopt(#[from] AdoptError),
}

/// Takes the sockets passed to this process; `None` if there are none. Call once, before threads
/// are started: it reads and clears environment variables.
///
/// # Errors
/// [`ActivationError`], which names the remedy.
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
