//! An upgrade without a gap: a new process takes over sockets and peers while the old one still answers.
//!
//! ```text
//! new                                        old (serves)
//!  │── Ask: which version of this is spoken ──▶│
//!  │◀─ Offer: addresses, multipliers; the sockets and the state's lock as descriptors ─│
//!  │   (opens what it has not)                 │
//!  │── Go: these addresses ───────────────────▶│
//!  │◀─ all peers, as a snapshot ───────────────│ dumps in small steps; notes who stops from then on
//!  │   (threads wait at a gate)                │
//!  │── Ready: nothing is left to be done ─────▶│
//!  │                                           │ nothing more is changed; workers stop reading, and answer what they have
//!  │◀─ Yours ──────────────────────────────────│
//!  │   (what was changed; one socket more)     │
//!  │── Mine ──────────────────────────────────▶│
//!  │ (serves)                                  │ what is left at addresses that nobody else has; workers end
//!  │◀─ who has stopped since; what is younger than the dump ─│
//!  │                                           │ ends with 0
//! ```
//!
//! Both have the same sockets, so what arrives while neither reads waits in the kernel. Until it has heard `Mine`
//! the old process can go on, and does so whenever anything fails; once the new one has said so, the old one never
//! reads again what both have. Every wait has an end. What is noted of who stops is limited too: of who stops after a million
//! have in one shard nobody learns, and they are listed until their lifetime is over.
//!
//! | room | what is in it |
//! |---|---|
//! | [`words`] | what the two say to each other |
//! | [`give`] | the old process's part |
//! | [`take`] | the new one's |
//! | [`delta`] | what came after the dump |
//! | [`successor`] | how the old process starts the new one |

pub mod delta;
pub mod give;
pub mod message;
pub mod successor;
pub mod take;

/// The Unix socket's name in the state directory.
pub const SOCKET: &str = "upgrade.sock";
