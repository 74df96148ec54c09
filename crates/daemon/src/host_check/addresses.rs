//! Checks that the addresses of the settings can be bound. An address that the running tracker of
//! the same configuration holds is no problem.

use std::io::ErrorKind;
use std::path::PathBuf;

use onrush_config::{Refused, Settings};
use onrush_control::{AdminError, server};
use onrush_net::bind::{self, BindError, Transport};
use onrush_store::lock;
use onrush_store::state::State;

use super::refusals;
use onrush_config::socket_holders::{Holder, Process};

/// Tries every address. `user` is that of the service, and its state directory may be any of
/// `state_dirs`.
pub(super) fn check(
    settings: &Settings,
    state_dirs: &[PathBuf],
    user: u32,
    refused: &mut Vec<Refused>,
    notes: &mut Vec<String>,
) {
    let running = Running { processes: lock_holders(settings, state_dirs), user };
    let mut judge = |holds: Option<bool>, found: Refused, optional: bool| match holds {
        Some(true) => {}
        Some(false) if optional => notes.push(format!("no admin side: {found}")),
        Some(false) => refused.push(found),
        None => {
            notes.push(format!("cannot see whether the running tracker holds the address: {found}"))
        }
    };
    // A service manager has bound sockets that it passes.
    let passed = settings.sockets_passed;
    let udp = settings.listen.iter().filter(|_| !passed.udp);
    let udp = udp.map(|listen| (*listen, None, Transport::Udp));
    let http = settings.http.listeners().into_iter();
    let http = http.filter(|(scheme, _)| !passed.listeners(*scheme));
    let http = http.map(|(scheme, listen)| (listen, Some(scheme), Transport::Tcp));
    for (listen, scheme, transport) in udp.chain(http) {
        let Err(error) = bind::check(listen, transport) else { continue };
        let holds = match error {
            // The tracker may have bound a low port before it dropped the capability for that.
            BindError::Taken { address, .. } | BindError::Forbidden { address } => {
                running.holds(&refusals::conflicts(transport, address), true)
            }
            _ => Some(false),
        };
        judge(holds, refusals::address(&error, scheme, settings), false);
    }
    let Some(listen) = settings.admin.listen else { return };
    let Err(error) = server::bind(listen) else { return };
    let holds = match error {
        AdminError::Taken(address) => {
            running.holds(&refusals::conflicts(Transport::Tcp, address), false)
        }
        _ => Some(false),
    };
    judge(holds, refusals::admin(&error), listen.optional);
}

/// The running tracker of the configuration, if there is one.
struct Running {
    /// Its process: the last ones that took the locks, which may be none. `None` if there is no
    /// directory, or its lock cannot be read.
    processes: Option<Vec<u32>>,
    /// The user that the service runs as.
    user: u32,
}

/// The processes of [`Running`], by the locks of the directories.
fn lock_holders(settings: &Settings, state_dirs: &[PathBuf]) -> Option<Vec<u32>> {
    let (mut found, mut is_hidden) = (Vec::new(), false);
    for holder in state_dirs.iter().map(|directory| lock::last_holder(directory)) {
        match holder {
            Ok(id) => found.push(id),
            Err(error) => is_hidden |= error.kind() == ErrorKind::PermissionDenied,
        }
    }
    if !found.is_empty() {
        return Some(found);
    }
    let of_settings = lock::last_holder(settings.state_dir.as_deref()?);
    let is_absent = of_settings.is_err_and(|error| error.kind() == ErrorKind::NotFound);
    // A directory that cannot be created has no lock although a tracker runs.
    let is_known = !is_hidden && is_absent && State::check_creation(settings).is_none();
    is_known.then_some(found)
}

impl Running {
    /// Whether all of these sockets are the tracker's, which `may_be_passed` by a service manager;
    /// `None` if their processes cannot be seen.
    fn holds(&self, sockets: &[Holder], may_be_passed: bool) -> Option<bool> {
        let is_own = |process: &Process| match &self.processes {
            // A socket unit holds what it passes to the tracker.
            _ if may_be_passed && process.name == "systemd" => true,
            Some(ids) => ids.contains(&process.id),
            None => process.name == "onrush",
        };
        let mut unseen = false;
        for Holder { user, processes, .. } in sockets {
            if processes.is_empty() && *user == self.user {
                unseen = true;
            } else if !processes.iter().any(is_own) {
                return Some(false);
            }
        }
        match sockets {
            [] => Some(false),
            _ => (!unseen).then_some(true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(user: u32, processes: &[(u32, &str)]) -> Holder {
        let process = |&(id, name): &(u32, &str)| Process { id, name: name.into(), unit: None };
        let processes = processes.iter().map(process).collect();
        Holder { address: "0.0.0.0:6969".parse().unwrap(), user, processes }
    }

    #[test]
    fn sockets_of_the_process_with_the_lock_are_the_trackers() {
        let running = Running { processes: Some(vec![7]), user: 100 };
        let holds = |sockets: &[Holder]| running.holds(sockets, true);
        assert_eq!(holds(&[held(100, &[(7, "onrush")])]), Some(true));
        // An upgrade is under way, or systemd has opened the socket.
        assert_eq!(holds(&[held(100, &[(6, "onrush"), (7, "onrush")])]), Some(true));
        assert_eq!(holds(&[held(0, &[(1, "systemd")])]), Some(true));
        // A second copy, another program, a process of another user.
        assert_eq!(holds(&[held(100, &[(8, "onrush")])]), Some(false));
        assert_eq!(holds(&[held(100, &[(7, "onrush")]), held(9, &[(9, "x")])]), Some(false));
        assert_eq!(holds(&[held(9, &[])]), Some(false));
        assert_eq!(holds(&[]), Some(false));
        // This user may not see the processes of the service.
        assert_eq!(holds(&[held(100, &[])]), None);
        assert_eq!(running.holds(&[held(0, &[(1, "systemd")])], false), Some(false));
    }

    /// A file without `state_dir`, checked by root: the service has the directory of its unit.
    #[test]
    fn the_lock_is_looked_for_in_each_directory() {
        let (own, service) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let settings = Settings::for_test(&format!("state_dir = {:?}\n", own.path()));
        let directories = [own.path().to_owned(), service.path().to_owned()];
        let of = || lock_holders(&settings, &directories);
        assert_eq!(of(), Some(vec![]));
        std::fs::write(service.path().join("lock"), "7\n").unwrap();
        assert_eq!(of(), Some(vec![7]));
        std::fs::write(own.path().join("lock"), "6\n").unwrap();
        assert_eq!(of(), Some(vec![6, 7]));
    }

    #[test]
    fn without_a_readable_lock_the_name_of_the_process_counts() {
        let holds = |processes, name| {
            Running { processes, user: 100 }.holds(&[held(100, &[(7, name)])], true)
        };
        assert_eq!(holds(None, "onrush"), Some(true));
        assert_eq!(holds(None, "opentracker"), Some(false));
        assert_eq!(holds(Some(vec![]), "onrush"), Some(false));
    }
}
