//! The log messages that tests wait for, in one place. Tests assert values (keys, numbers, paths);
//! rewording a message changes one line here.

/// The addresses of the listeners, at the start.
pub(crate) const SERVES: &str = " serves udp://";
/// The start is complete.
pub(crate) const READY: &str = " ready: ";
/// The last line of a clean stop, with the totals.
pub(crate) const STOPPED: &str = "stopped: ";
/// The admin side listens.
pub(crate) const ADMIN_LISTENS: &str = " shows metrics";
/// The admin side cannot listen, and the tracker serves without it.
pub(crate) const NO_ADMIN: &str = "no metrics, health and admin API over HTTP";
/// A reload was applied; for whom and the changed keys follow.
pub(crate) const RELOADED: &str = "configuration reloaded";
/// A reload was rejected; the former configuration stays in force.
pub(crate) const RELOAD_REJECTED: &str = "the configuration in force stays";
/// The admin API has changed the list; what and for whom follow.
pub(crate) const LIST_CHANGED: &str = " list changed by ";
/// The purge after a list change has removed one swarm.
pub(crate) const PURGED_ONE: &str = "removed 1 swarm";
/// Log lines were lost; their number is before it.
pub(crate) const LINES_LOST: &str = " log lines were lost";
/// The kernel dropped datagrams because a receive buffer was full.
pub(crate) const KERNEL_DROPPED: &str = "the kernel dropped ";
/// The announce interval has changed by a step.
pub(crate) const OVERLOAD: &str = "overload: ";
/// Newcomers were not stored because a limit was reached; the key comes before.
pub(crate) const LIMIT_REACHED: &str = " is reached";
/// The kernel drops datagrams that are no valid request.
pub(crate) const FILTER_ON: &str = "the kernel's filter is on";
/// Steering to a worker was suspended.
pub(crate) const SUSPENDED: &str = " while others are idle";
/// A snapshot was written.
pub(crate) const SNAPSHOT: &str = "snapshot: ";
/// A snapshot was not written.
pub(crate) const SNAPSHOT_FAILED: &str = "snapshot failed";
/// Peers were restored from a snapshot; a file that cannot be used gives `NO_PEERS`.
pub(crate) const PEERS_RESTORED: &str = " of a snapshot from ";
/// The snapshot cannot be used.
pub(crate) const NO_PEERS: &str = "snapshot not loaded";
/// Peers of the snapshot were dropped for their age.
pub(crate) const TOO_OLD: &str = " expired";
/// An export was written.
pub(crate) const EXPORTED: &str = "export: ";
/// An export was not written.
pub(crate) const NO_EXPORT: &str = "export failed";
/// The state directory cannot be used.
pub(crate) const NO_STATE: &str = "will not survive a restart";
/// The daemon runs with root's rights.
pub(crate) const AS_ROOT: &str = "running as root";
/// A successor is started; for whom follows.
pub(crate) const UPGRADE_REQUESTED: &str = "upgrade requested by ";
/// A successor has connected and receives the peers; its process id and user are in the line.
pub(crate) const UPGRADE_BEGINS: &str = "handoff begins: ";
/// The successor has received the changes made during the transfer.
pub(crate) const UPGRADE_RECEIVED: &str = "upgrade: delta merged: ";
/// The predecessor has sent everything and stops; the successor's process id is in the line.
pub(crate) const UPGRADE_DONE: &str = " serves; delta sent: ";
/// The handoff failed; the predecessor keeps serving.
pub(crate) const UPGRADE_FAILED: &str = "upgrade failed";
/// The successor started by this process has exited before it had the sockets.
pub(crate) const SUCCESSOR_FAILED: &str = "the successor failed";
/// A successor has disconnected before it requested the peers.
pub(crate) const UPGRADE_LEFT: &str = "left before it accepted the handoff";
/// A request was refused because an upgrade is in progress.
pub(crate) const UPGRADE_RUNNING: &str = "under way";
