//! Upgrade without downtime: a new process takes over sockets and peers while the running one still
//! answers. They talk over a Unix socket in the state directory.
//!
//! ```text
//! incoming                                   outgoing (serves)
//!  │── Request: protocol version ─────────────▶│
//!  │◀─ Handoff: addresses, shard key; sockets and state lock as descriptors ─│
//!  │   (opens further sockets)                 │
//!  │── Accept: addresses to keep ─────────────▶│
//!  │◀─ all peers, as a snapshot ───────────────│ dumps in steps; records stops from here on
//!  │   (workers wait at a gate)                │
//!  │── Ready: could serve ────────────────────▶│
//!  │                                           │ refuses changes; workers stop receiving and drain
//!  │◀─ Release ────────────────────────────────│
//!  │   (late changes; binds pending sockets)   │
//!  │── Acquired ──────────────────────────────▶│
//!  │ (serves)                                  │ drains addresses not kept; workers stop
//!  │◀─ stops and peers since the dump ─────────│
//!  │                                           │ exits with 0
//! ```
//!
//! Both processes have the same sockets, so datagrams queue in the kernel while neither receives.
//! Until the outgoing process has read `Acquired` it can resume, and does so on any failure; after
//! that it never reads a shared socket again. Every wait has a timeout. A shard's change log
//! is bounded: peers whose stop it has dropped stay listed until their lifetime ends.
//!
//! | module | contents |
//! |---|---|
//! | [`message`] | the messages between the two processes |
//! | [`outgoing`] | the running process's side |
//! | [`incoming`] | the new process's side |
//! | [`delta`] | peers that have stopped or announced since the dump |
//! | [`successor`] | how the running process starts the new one |

pub mod delta;
pub mod incoming;
pub mod message;
pub mod outgoing;
pub mod successor;

/// The Unix socket's name in the state directory.
pub const SOCKET: &str = "upgrade.sock";
