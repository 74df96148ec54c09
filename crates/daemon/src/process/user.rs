//! Becoming the user that the tracker runs as, before any socket is opened: a socket made after
//! a change of user cannot join a SO_REUSEPORT group that root made, so root makes none
//! (socket(7), SO_REUSEPORT: all sockets of a group have the same effective user).

use std::fs;
use std::os::unix::fs::{DirBuilderExt, chown};
use std::path::Path;

use caps::{CapSet, Capability, securebits};
use nix::unistd::{Gid, Group, Uid, User, initgroups, setgid, setuid};
use thiserror::Error;

/// What binding and serving may need of root's powers: ports below 1024, nothing else. Dropped
/// when the sockets are bound.
const KEPT: Capability = Capability::CAP_NET_BIND_SERVICE;

/// Why the process cannot become another user.
#[derive(Debug, Error)]
pub enum UserError {
    /// There is no such user.
    #[error(
        "there is no user `{0}` on this host\n  create it (`useradd --system {0}`) or change `user`"
    )]
    NoUser(String),
    /// There is no such group.
    #[error(
        "there is no group `{0}` on this host\n  create it (`groupadd --system {0}`) or change `group`"
    )]
    NoGroup(String),
    /// Only root can become somebody else.
    #[error(
        "started as user {now}, which cannot become `{wanted}`\n  start as root, or remove \
         `user` from the configuration"
    )]
    NotRoot {
        /// The number of the user that runs this process.
        now: u32,
        /// The user that it is to become.
        wanted: String,
    },
    /// The kernel refused.
    #[error("cannot become user `{user}`: {step}: {cause}")]
    Refused {
        /// The user.
        user: String,
        /// What was being done.
        step: &'static str,
        /// Why it failed.
        cause: String,
    },
}

/// Has the system load what it needs to look this user and group up. To be called while there is one thread: glibc
/// 2.36 was seen to crash in a module for names (libnss_systemd) that was loaded when others had just begun.
pub fn load_names(user: &str, group: Option<&str>) {
    // Whether they are there is asked later, and told.
    let _ = User::from_name(user);
    let _ = group.map(Group::from_name);
}

/// Becomes `user` (and `group`, or the user's own), keeping only the right to bind ports below
/// 1024. A state directory that does not exist is made for that user on the way. Nothing happens
/// when the process is that user already.
///
/// # Errors
/// [`UserError`]: what to do is part of its text.
pub fn become_user(
    user: &str,
    group: Option<&str>,
    state_dir: Option<&Path>,
) -> Result<(), UserError> {
    let account = User::from_name(user).ok().flatten().ok_or(UserError::NoUser(user.to_owned()))?;
    let gid = match group {
        None => account.gid,
        Some(name) => {
            Group::from_name(name).ok().flatten().ok_or(UserError::NoGroup(name.to_owned()))?.gid
        }
    };
    let now = Uid::effective();
    if now == account.uid {
        if group.is_some() && gid != Gid::effective() {
            return setgid(gid).map_err(|cause| UserError::Refused {
                user: user.to_owned(),
                step: "group",
                cause: cause.to_string(),
            });
        }
        return Ok(());
    }
    if !now.is_root() {
        return Err(UserError::NotRoot { now: now.as_raw(), wanted: user.to_owned() });
    }
    if let Some(directory) = state_dir {
        // A tracker works without a state directory. What fails here fails again for the user, and
        // is warned of there.
        let _ = hand_over(directory, account.uid, gid);
    }
    change(&account, gid).map_err(|(step, cause)| UserError::Refused {
        user: user.to_owned(),
        step,
        cause,
    })
}

/// Gives up what was kept for binding. Nothing happens in a process that had nothing to give up.
pub fn drop_capabilities() {
    for set in [CapSet::Effective, CapSet::Permitted] {
        if let Err(error) = caps::drop(None, set, KEPT) {
            log::warn!("cannot give up {KEPT}: {error}");
        }
    }
}

/// Whether this process runs with all of root's powers.
pub fn is_root() -> bool {
    Uid::effective().is_root()
}

/// A directory that exists already belongs to whom it belongs: only a new one is handed over.
fn hand_over(directory: &Path, uid: Uid, gid: Gid) -> std::io::Result<()> {
    if directory.exists() {
        return Ok(());
    }
    // Others have to pass through the parents; only the directory itself is private.
    if let Some(parent) = directory.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::DirBuilder::new().mode(0o700).create(directory)?;
    chown(directory, Some(uid.as_raw()), Some(gid.as_raw()))
}

fn change(account: &User, gid: Gid) -> Result<(), (&'static str, String)> {
    let step = |step: &'static str| move |error: &dyn std::fmt::Display| (step, error.to_string());
    let name = std::ffi::CString::new(account.name.as_str())
        .map_err(|error| step("the user's name")(&error))?;
    // Without this, setuid would clear the permitted set (capabilities(7), "Effect of user ID
    // changes").
    securebits::set_keepcaps(true).map_err(|error| step("keeping capabilities")(&error))?;
    initgroups(&name, gid).map_err(|error| step("supplementary groups")(&error))?;
    setgid(gid).map_err(|error| step("group")(&error))?;
    setuid(account.uid).map_err(|error| step("user")(&error))?;
    let kept = [KEPT].into_iter().collect();
    // A container may not have it to begin with: binding a high port still works then.
    let has = caps::has_cap(None, CapSet::Permitted, KEPT).unwrap_or(false);
    let wanted = if has { kept } else { Default::default() };
    caps::set(None, CapSet::Effective, &wanted).map_err(|error| step("capabilities")(&error))?;
    caps::set(None, CapSet::Permitted, &wanted).map_err(|error| step("capabilities")(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_names_are_errors_that_say_what_to_do() {
        let error = become_user("no-such-user-here", None, None).unwrap_err().to_string();
        assert!(error.contains("useradd --system no-such-user-here"), "{error}");
        let error = become_user("root", Some("no-such-group-here"), None).unwrap_err().to_string();
        assert!(error.contains("groupadd"), "{error}");
    }

    #[test]
    fn becoming_who_one_is_changes_nothing() {
        let me = User::from_uid(Uid::effective()).unwrap().unwrap();
        become_user(&me.name, None, None).unwrap();
        assert_eq!(Uid::effective(), me.uid);
    }
}
