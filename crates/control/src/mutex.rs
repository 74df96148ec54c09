//! Locks of the state that threads of the admin side share.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex whose critical sections leave a valid value behind at every point, so that a panic
/// in one of them does not matter.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
