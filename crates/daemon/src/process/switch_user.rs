//! Switches to the configured user before any socket is opened. All sockets of a SO_REUSEPORT group
//! must have the same effective user (socket(7), SO_REUSEPORT), so a group begun by root could not
//! be extended after the switch.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, lchown};
use std::path::Path;

use caps::{CapSet, Capability, securebits};
use nix::unistd::{Gid, Uid, User, initgroups, setgid, setuid};

use super::user::{UserError, find};

/// The privilege that always survives the switch: binding ports below 1024. Dropped once the
/// sockets are bound.
const KEPT: Capability = Capability::CAP_NET_BIND_SERVICE;

/// Switches to `user` (and `group`, or the user's own), keeping only the capability to bind ports
/// below 1024 and those in `kept`. Creates a missing state directory for that user. Does nothing if
/// the process runs as that user already.
///
/// # Errors
/// [`UserError`], which names the remedy.
pub fn become_user(
    user: &str,
    group: Option<&str>,
    state_dir: Option<&Path>,
    kept: &[Capability],
) -> Result<(), UserError> {
    let (account, gid) = find(user, group)?;
    let refused = |why| UserError::Refused { user: user.to_owned(), why };
    let now = Uid::effective();
    if now == account.uid {
        if group.is_some() && gid != Gid::effective() {
            return setgid(gid).map_err(|cause| refused(format!("group: {cause}")));
        }
        return Ok(());
    }
    if !now.is_root() {
        return Err(UserError::NotRoot(now.as_raw(), user.to_owned()));
    }
    if let Some(directory) = state_dir {
        // The tracker works without a state directory, and warns when the user cannot open it.
        let _ = create_for(directory, account.uid, gid);
    }
    switch(&account, gid, kept).map_err(refused)
}

/// Drops the capability kept for binding. Does nothing in a process without it.
pub fn drop_capabilities() {
    for set in [CapSet::Effective, CapSet::Permitted] {
        if let Err(error) = caps::drop(None, set, KEPT) {
            log::warn!("cannot drop {KEPT}: {error}");
        }
    }
}

/// Creates a directory for a user. An existing directory keeps its owner.
fn create_for(directory: &Path, uid: Uid, gid: Gid) -> std::io::Result<()> {
    if directory.exists() {
        return Ok(());
    }
    // Parents keep default permissions; only the directory itself is private.
    if let Some(parent) = directory.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::DirBuilder::new().mode(0o700).create(directory)?;
    // Not through a link that has taken its place.
    lchown(directory, Some(uid.as_raw()), Some(gid.as_raw()))
}

fn switch(account: &User, gid: Gid, kept: &[Capability]) -> Result<(), String> {
    let name = std::ffi::CString::new(account.name.as_str())
        .map_err(|error| format!("the user's name: {error}"))?;
    // Without this, setuid would clear the permitted set (capabilities(7), "Effect of user ID
    // changes").
    securebits::set_keepcaps(true).map_err(|error| format!("keeping capabilities: {error}"))?;
    initgroups(&name, gid).map_err(|error| format!("supplementary groups: {error}"))?;
    setgid(gid).map_err(|error| format!("group: {error}"))?;
    setuid(account.uid).map_err(|error| format!("user: {error}"))?;
    // A container may lack a capability from the start; binding a high port works without it.
    let has = |it: &Capability| caps::has_cap(None, CapSet::Permitted, *it).unwrap_or(false);
    let kept = kept.iter().copied().chain([KEPT]).filter(has).collect();
    [CapSet::Effective, CapSet::Permitted]
        .into_iter()
        .try_for_each(|set| caps::set(None, set, &kept))
        .map_err(|error| format!("capabilities: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_names_are_errors_with_the_remedy() {
        let error = become_user("no-such-user-here", None, None, &[]).unwrap_err().to_string();
        assert!(error.contains("useradd --system no-such-user-here"), "{error}");
        let error =
            become_user("root", Some("no-such-group-here"), None, &[]).unwrap_err().to_string();
        assert!(error.contains("groupadd"), "{error}");
    }

    #[test]
    fn switching_to_the_current_user_changes_nothing() {
        let me = User::from_uid(Uid::effective()).unwrap().unwrap();
        become_user(&me.name, None, None, &[]).unwrap();
        assert_eq!(Uid::effective(), me.uid);
    }
}
