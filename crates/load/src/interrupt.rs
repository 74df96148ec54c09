//! Ctrl-C: the first one ends a run early with a report; a second one ends the process.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// The exit status of a process that was ended by Ctrl-C, by the convention of shells.
const INTERRUPTED: i32 = 130;

/// A flag that the first of these signals sets.
///
/// # Errors
/// When the signal handlers cannot be installed.
pub fn watch(signals: impl IntoIterator<Item = i32>) -> io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in signals {
        // In this order, so that the flag is unset at the first signal.
        flag::register_conditional_shutdown(signal, INTERRUPTED, Arc::clone(&stop))?;
        flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}
