//! Errors of single steps as refused values: the key, the problem, and the remedy.

use std::net::SocketAddr;
use std::path::Path;

use onrush_config::settings::{Access, HttpSettings};
use onrush_config::{Refused, Settings};
use onrush_control::{AdminError, TokenError};
use onrush_net::bind::{BindError, Transport};
use onrush_store::lists::file::{ListError, ListFault};
use onrush_store::state::StateError;
use onrush_tracker::running::Scheme;
use onrush_web::tls::certificates::CertificateError;

use crate::process::user::{self, UserError};
use onrush_config::socket_holders::{Holder, holders, overlap};

/// A user or group that cannot be changed to.
pub fn user(error: &UserError) -> Refused {
    let key = match error {
        UserError::Missing { key, .. } => *key,
        UserError::NotRoot(..) | UserError::Refused { .. } => "user",
    };
    Refused::new(key, error)
}

/// An address that cannot be bound, for UDP without a scheme.
pub fn address(error: &BindError, scheme: Option<Scheme>, settings: &Settings) -> Refused {
    let (list, transport) = match scheme {
        None => ("listen", Transport::Udp),
        Some(scheme) => (HttpSettings::list(scheme), Transport::Tcp),
    };
    match error {
        BindError::Taken { address, .. } => {
            taken(&settings.listen_key(list, *address), transport, *address)
        }
        BindError::Forbidden { address }
        | BindError::NotHere { address }
        | BindError::NoFamily { address }
        | BindError::System { address, .. } => {
            Refused::new(settings.listen_key(list, *address), error)
        }
        _ => Refused::new(list, error),
    }
}

/// An admin side that cannot be served.
pub fn admin(error: &AdminError) -> Refused {
    match error {
        AdminError::Taken(address) => taken("admin.listen", Transport::Tcp, *address),
        AdminError::Bind { .. } | AdminError::Start(_) => Refused::new("admin.listen", error),
    }
}

/// A file without a valid token.
pub fn token(error: &TokenError) -> Refused {
    let refused = Refused::new("admin.token_file", error);
    match error {
        TokenError::Read { .. } => refused.as_user(&user::current()),
        TokenError::Form { .. } => refused,
    }
}

/// A list that is not used.
pub fn list(error: &ListError, settings: &Settings) -> Refused {
    let files = match &settings.access {
        Access::Allow(listed) | Access::Deny(listed) => listed.files.as_slice(),
        Access::Open => &[],
    };
    let key = match files.iter().position(|file| file.path == error.path) {
        Some(number) => format!("access.files.{number}"),
        None => "access.blocked_file".to_owned(),
    };
    let refused = Refused::new(key, error);
    match error.fault {
        ListFault::Read(_) => refused.as_user(&user::current()),
        _ => refused,
    }
}

/// A certificate or a key that cannot be used.
pub fn certificate(error: &CertificateError) -> Refused {
    let list = if error.is_key { "http.keys" } else { "http.certificates" };
    let refused = Refused::new(format!("{list}.{}", error.number), error);
    match error.is_unreadable {
        true => refused.as_user(&user::current()),
        false => refused,
    }
}

/// A state directory or a key file that would be damaged.
pub fn state(error: &StateError, settings: &Settings) -> Refused {
    match error {
        StateError::Key(_) if settings.connection.key_file.is_some() => {
            Refused::new("connection.key_file", error)
        }
        _ => Refused::new("state_dir", error),
    }
}

/// An address that another process has.
fn taken(key: &str, transport: Transport, address: SocketAddr) -> Refused {
    let holders = conflicts(transport, address);
    let letter = transport.letter();
    let find = format!("find it as root: ss -{letter}lpn 'sport = :{}'", address.port());
    let (by, find) = match holders.first() {
        Some(Holder { processes, .. }) if !processes.is_empty() => {
            let process = &processes[0];
            (process.to_string(), format!("`systemctl status {}` shows it", process.id))
        }
        Some(Holder { user, .. }) => (format!("a process of user {}", user::name(*user)), find),
        None => ("another process".to_owned(), find),
    };
    let text = format!(
        "{address} is taken by {by}\n  {find}; stop it if it is not needed, or write another \
         address"
    );
    Refused::new(key, &text)
}

/// The sockets that keep an address from being bound.
pub(super) fn conflicts(transport: Transport, address: SocketAddr) -> Vec<Holder> {
    let mut found = holders(Path::new("/"), transport, |other| other.port() == address.port());
    if found.iter().any(|holder| overlap(address, holder.address)) {
        found.retain(|holder| overlap(address, holder.address));
    } else {
        // A socket of `::` may have IPv4's port as well.
        found.retain(|holder| holder.address.ip().is_unspecified());
    }
    found
}
