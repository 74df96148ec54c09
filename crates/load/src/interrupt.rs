//! Ctrl-C: the first one ends a run early, with a report of what was measured; a second one ends
//! the process.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// The exit status of a process that was ended by Ctrl-C, as shells have it.
const INTERRUPTED: i32 = 130;

/// A flag that the first SIGINT or SIGTERM sets.
///
/// # Errors
/// When the system does not let these be caught.
pub fn watch() -> io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // In this order: the first signal finds the flag unset.
        flag::register_conditional_shutdown(signal, INTERRUPTED, Arc::clone(&stop))?;
        flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}
