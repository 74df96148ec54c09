//! Sockets that the service manager has opened for this process: systemd's socket activation, or
//! any manager that follows sd_listen_fds(3).

use listenfd::ListenFd;
use onrush_net::adopt::Adopted;

/// Takes the sockets passed to this process; `None` if there are none. Call once, before threads
/// are started: it reads and clears environment variables.
///
/// # Errors
/// When a descriptor is not a UDP socket or the sockets do not form a group, with the remedy.
pub fn take() -> Result<Option<Adopted>, String> {
    let mut passed = ListenFd::from_env();
    let count = passed.len();
    if count == 0 {
        return Ok(None);
    }
    let mut sockets = Vec::with_capacity(count);
    for index in 0..count {
        sockets.extend(passed.take_udp_socket(index).map_err(|cause| {
            format!(
                "socket {} of the {count} that were passed (LISTEN_FDS) is no UDP socket: \
                 {cause}\n  a tracker takes UDP sockets alone: ListenDatagram=ADDRESS:PORT in the \
                 socket unit",
                index + 1
            )
        })?);
    }
    Adopted::new(sockets).map(Some)
}
