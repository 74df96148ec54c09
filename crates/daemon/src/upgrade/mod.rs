//! Upgrade without downtime: the process that serves (the *predecessor*) hands sockets and peers to
//! its *successor* while it still answers. They exchange messages over a Unix socket in the state
//! directory.
//!
//! ```text
//! successor                                  predecessor (serves)
//!  │── Request: protocol version ─────────────▶│
//!  │◀─ Handoff: addresses, shard key; sockets, listeners, links, queues, lock, control socket │
//!  │   (opens further sockets)                 │
//!  │   (maps queues)                           │
//!  │── Accept: addresses and queues to keep ──▶│
//!  │◀─ Dump: number of peers ──────────────────│ records stops and replacements from here on
//!  │◀─ all peers, as a snapshot ───────────────│ dumps in steps
//!  │   (workers wait at a gate)                │
//!  │── Ready: could serve ────────────────────▶│
//!  │                                           │ web workers stop accepting, finish what has begun
//!  │                                           │ refuses changes; workers stop receiving and drain
//!  │◀─ Release ────────────────────────────────│
//!  │   (late changes, rules; binds sockets)    │
//!  │── Acquired ──────────────────────────────▶│
//!  │   (replaces the XDP program on its links) │
//!  │ (serves)                                  │ drains addresses and queues not kept
//!  │◀─ a byte ─────────────────────────────────│ has named it to the service manager; workers stop
//!  │◀─ stops and peers since the dump ─────────│
//!  │                                           │ exits with 0
//! ```
//!
//! Both processes have the same sockets, so datagrams and connections queue in the kernel while
//! neither serves. Until the predecessor has read `Acquired` it can resume, and does so on any
//! failure; after that it never reads a shared socket or queue again, nor accepts from a shared
//! listener.
//! Every wait has a timeout. A shard's change log is bounded: peers whose stop it has dropped stay
//! listed until their lifetime ends.
//!
//! The messages, the dump and the delta are those of `onrush_replica`.
//!
//! | module | contents |
//! |---|---|
//! | [`predecessor`] | the predecessor's side of a handoff |
//! | [`successor`] | the successor's side |
//! | [`program`] | the program of this process and its command line |
//! | [`launcher`] | how the predecessor starts the successor |
//! | [`progress`] | the upgrade in progress, in the predecessor |

pub mod launcher;
pub mod predecessor;
pub mod program;
pub mod progress;
pub mod successor;

/// The Unix socket's name in the state directory.
pub const SOCKET: &str = "upgrade.sock";
