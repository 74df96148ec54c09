//! XDP: programs that see each frame before the kernel's network stack does.
//!
//! | module | contents |
//! |---|---|
//! | [`program`] | a program, its maps, and where it is attached |

pub mod program;

pub use program::{AttachError, Mode, Program, Verdict};
