//! An upgrade without a gap: a new process takes over sockets and peers while the old one still answers.
//!
//! ```text
//! new                                        old (serves)
//!  │── Ask: which version of this is spoken ──▶│
//!  │◀─ Offer: addresses, multipliers; the sockets and the state's lock as descriptors ─│
//!  │   (are they what is configured here?)     │
//!  │── Go ────────────────────────────────────▶│
//!  │◀─ all peers, as a snapshot ───────────────│ dumps in small steps; notes who stops from then on
//!  │── Ready: all of it is loaded ────────────▶│
//!  │                                           │ workers stop reading, and answer what they have
//!  │◀─ Yours ──────────────────────────────────│
//!  │── Mine ──────────────────────────────────▶│
//!  │ (serves)                                  │ workers end
//!  │◀─ who has stopped since; what is younger than the dump ─│
//!  │                                           │ ends with 0
//! ```
//!
//! Both have the same sockets, so what arrives while neither reads waits in the kernel. Until it has heard `Mine`
//! the old process can go on, and does so whenever anything fails; once the new one has said so, the old one never
//! reads again.
//!
//! | room | what is in it |
//! |---|---|
//! | [`words`] | what the two say to each other |
//! | [`give`] | the old process's part |
//! | [`take`] | the new one's |
//! | [`delta`] | what came after the dump |

pub mod delta;
pub mod give;
pub mod take;
pub mod words;

/// The Unix socket's name in the state directory.
pub const SOCKET: &str = "upgrade.sock";
