//! Names of users, groups and hosts in a program that contains glibc.
//!
//! glibc loads the modules that /etc/nsswitch.conf names, such as libnss_systemd, and with them a
//! second glibc: in a static program the call crashes. The sources `files` and `dns` are part of
//! glibc itself (since 2.34).

use crate::sys;

/// Databases that the programs look into, with the sources that need no module.
const DATABASES: [(&std::ffi::CStr, &std::ffi::CStr); 4] = [
    (c"passwd", c"files"),
    (c"group", c"files"),
    (c"initgroups", c"files"),
    (c"hosts", c"files dns"),
];

/// Looks names up without loading modules: in /etc/passwd, /etc/group and /etc/hosts, and by DNS.
/// Call it first in a static program, before any name is looked up.
pub fn use_built_in_sources() {
    for (database, sources) in DATABASES {
        // It fails only for databases and sources that glibc does not know.
        let done = sys::configure_name_service(database, sources);
        debug_assert!(done.is_ok(), "{database:?}: {done:?}");
    }
}

#[cfg(test)]
mod tests {
    use std::net::ToSocketAddrs as _;

    use nix::unistd::User;

    use super::*;

    #[test]
    fn users_and_hosts_are_found_without_modules() {
        use_built_in_sources();
        assert_eq!(User::from_name("root").unwrap().unwrap().uid.as_raw(), 0);
        assert!(User::from_name("no-such-user").unwrap().is_none());
        assert!(("localhost", 80).to_socket_addrs().unwrap().all(|it| it.ip().is_loopback()));
    }
}
