//! Notifications to the service manager, by sd_notify(3): datagrams to the Unix socket that
//! `$NOTIFY_SOCKET` names. Without a manager they do nothing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub use sd_notify::NotifyState;

/// Time granted by each extension of a timeout.
const EXTENSION: Duration = Duration::from_secs(30);
/// How often the timeout is extended.
const EXTEND_EVERY: Duration = Duration::from_secs(5);

/// Whether this process is the main one of its unit.
static IS_MAIN: AtomicBool = AtomicBool::new(true);

/// States whether the manager follows this process. It takes notifications of the main process of a
/// unit only (NotifyAccess=main), and logs a warning for each of another one: none is sent until it
/// has learned of a successor, and after it has learned of the next one.
pub fn set_main(is_main: bool) {
    IS_MAIN.store(is_main, Ordering::Release);
}

/// A reload has begun. [`NotifyState::Ready`] ends it, whether it succeeds or fails.
pub fn reloading() {
    // With Type=notify-reload the manager matches the reload to its request by the time.
    match NotifyState::monotonic_usec_now() {
        Ok(now) => send(&[NotifyState::Reloading, now]),
        Err(_) => send(&[NotifyState::Reloading]),
    }
}

/// A callback for long work, to be called every few milliseconds. It extends the manager's timeout
/// for starting, reloading or stopping every few seconds, so only work that hangs is killed.
pub fn progress() -> impl FnMut() {
    let mut last = None;
    move || {
        if extension_due(&mut last, Instant::now()) {
            let micros = u32::try_from(EXTENSION.as_micros()).unwrap_or(u32::MAX);
            send(&[NotifyState::ExtendTimeoutUsec(micros)]);
        }
    }
}

fn extension_due(last: &mut Option<Instant>, now: Instant) -> bool {
    let due = last.is_none_or(|last| now.duration_since(last) >= EXTEND_EVERY);
    if due {
        *last = Some(now);
    }
    due
}

/// Sends a notification of the main process. A failure is logged and has no other effect.
pub fn send(state: &[NotifyState<'_>]) {
    if !IS_MAIN.load(Ordering::Acquire) {
        return;
    }
    // The tracker serves whether or not the manager receives its notifications.
    if let Err(error) = sd_notify::notify(state) {
        log::debug!("cannot notify the service manager: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_extended_every_few_seconds() {
        let start = Instant::now();
        let mut last = None;
        let due: Vec<_> = (0..14)
            .filter(|second| extension_due(&mut last, start + Duration::from_secs(*second)))
            .collect();
        assert_eq!(due, [0, 5, 10]);
        assert!(EXTENSION > 2 * EXTEND_EVERY);
    }
}
