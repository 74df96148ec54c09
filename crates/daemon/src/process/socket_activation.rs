//! Sockets that the service manager has opened for this process: systemd's socket activation, or
//! any manager that follows sd_listen_fds(3).

use listenfd::ListenFd;
use onrush_config::Passed;
use onrush_net::adopt::{self, Adopted};
use onrush_net::stream::listen::AddressListeners;
use onrush_tracker::running::Scheme;

/// The name of listeners for HTTPS (`FileDescriptorName=`); others are for HTTP.
const TLS: &str = "tls";

/// The sockets passed to this process.
#[derive(Debug, Default)]
pub struct PassedSockets {
    /// The UDP sockets; `None` if there are none.
    pub udp: Option<Adopted>,
    /// The listeners by address, with what is accepted there.
    pub listeners: Vec<(Scheme, AddressListeners)>,
}

impl PassedSockets {
    /// Addresses and numbers.
    pub fn describe(&self) -> Passed {
        let at = |scheme| {
            let of = self.listeners.iter().filter(|(of, _)| *of == scheme);
            of.map(|(_, group)| group.address).collect()
        };
        Passed {
            udp: self.udp.as_ref().map(Adopted::addresses).unwrap_or_default(),
            each: self.udp.as_ref().map_or(0, Adopted::workers),
            http: at(Scheme::Http),
            https: at(Scheme::Https),
        }
    }
}

/// Takes the sockets passed to this process. Call once, before threads are started: it reads and
/// clears environment variables.
///
/// # Errors
/// When a descriptor is neither a UDP socket nor a TCP listener, or the UDP sockets do not form a
/// group, with the remedy.
pub fn take() -> Result<PassedSockets, String> {
    // Without names, or with those for another process, no socket has one.
    let names: Vec<_> = match sd_notify::listen_fds_with_names() {
        Ok(all) => all.map(|(_, name)| name).collect(),
        Err(_) => Vec::new(),
    };
    let mut passed = ListenFd::from_env();
    let count = passed.len();
    let (mut udp, mut http, mut https) = (Vec::new(), Vec::new(), Vec::new());
    for index in 0..count {
        if let Ok(socket) = passed.take_udp_socket(index) {
            udp.extend(socket);
            continue;
        }
        let listener = passed.take_tcp_listener(index).map_err(|cause| {
            format!(
                "socket {} of the {count} that were passed (LISTEN_FDS) is neither for UDP nor for \
                 TCP: {cause}\n  a tracker takes ListenDatagram=ADDRESS:PORT and \
                 ListenStream=ADDRESS:PORT of a socket unit",
                index + 1
            )
        })?;
        match names.get(index).is_some_and(|name| name == TLS) {
            true => https.extend(listener),
            false => http.extend(listener),
        }
    }
    let listeners = |scheme, passed| {
        let groups = adopt::listeners(passed)?.into_iter();
        Ok::<_, String>(groups.map(move |group| (scheme, group)))
    };
    Ok(PassedSockets {
        udp: (!udp.is_empty()).then(|| Adopted::new(udp)).transpose()?,
        listeners: listeners(Scheme::Http, http)?.chain(listeners(Scheme::Https, https)?).collect(),
    })
}
