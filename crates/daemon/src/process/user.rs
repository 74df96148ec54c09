//! Users and groups of this host: those of the process, and those that the configuration names.

use nix::unistd::{Gid, Group, Uid, User};
use thiserror::Error;

/// Why the process cannot switch to another user.
#[derive(Debug, Error)]
pub enum UserError {
    /// The user or group does not exist.
    #[error(
        "there is no {key} `{name}` on this host\n  create it (`{key}add --system {name}`) or \
         change `{key}`"
    )]
    Missing {
        /// `user` or `group`.
        key: &'static str,
        /// The configured name.
        name: String,
    },
    /// Only root can switch from the user of this id to the configured one.
    #[error(
        "started as user {0}, which cannot become `{1}`\n  start as root, or remove `user` from \
         the configuration"
    )]
    NotRoot(u32, String),
    /// A system call failed.
    #[error("cannot become user `{user}`: {why}")]
    Refused {
        /// The configured user.
        user: String,
        /// The call and its error.
        why: String,
    },
}

/// Loads the name service modules for this user and group, and for the current user. Call while
/// the process has one thread: glibc 2.36 was seen to crash when libnss_systemd was loaded while
/// threads were starting.
pub fn load_names(user: Option<&str>, group: Option<&str>) {
    // Missing names are reported by `become_user`.
    let _ = user.map(User::from_name);
    let _ = group.map(Group::from_name);
    current();
}

/// The name of the current user, or its id if it has no name.
pub fn current() -> String {
    name(Uid::effective().as_raw())
}

/// The name of the user with this id, or the id if there is none.
pub fn name(id: u32) -> String {
    match User::from_uid(Uid::from_raw(id)) {
        Ok(Some(user)) => user.name,
        _ => id.to_string(),
    }
}

/// The user and the group that the configuration names; without `group` that of the user.
///
/// # Errors
/// [`UserError::Missing`].
pub fn find(user: &str, group: Option<&str>) -> Result<(User, Gid), UserError> {
    let missing = |key, name: &str| UserError::Missing { key, name: name.to_owned() };
    let account = User::from_name(user).ok().flatten().ok_or_else(|| missing("user", user))?;
    let gid = match group.map(|name| (name, Group::from_name(name))) {
        None => account.gid,
        Some((_, Ok(Some(found)))) => found.gid,
        Some((name, _)) => return Err(missing("group", name)),
    };
    Ok((account, gid))
}

/// Whether this process runs as root.
pub fn is_root() -> bool {
    Uid::effective().is_root()
}
