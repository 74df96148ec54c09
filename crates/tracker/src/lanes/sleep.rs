//! How a member sleeps without missing a message, and when a sender has to wake it.
//!
//! The member sets its flag, fences, checks its queues once more, and only then waits. A sender
//! puts its message into the queue, fences, and reads the flag. This is Dekker's pattern: at least
//! one of the two reads comes after the other side's write, so that either the member sees the
//! message or the sender sees the flag (at worst both: one unnecessary wake). A wake costs a system
//! call, so a busy member is never woken.
//!
//! The test below runs every interleaving, and every stale read that the memory model allows, under
//! loom. It is built as a crate of its own (crates/tracker/model), so that this file imports no
//! other.

#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, Ordering, fence};

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, Ordering, fence};

/// The flag of one member: whether it sleeps.
#[derive(Debug)]
pub struct SleepFlag {
    asleep: AtomicBool,
}

impl SleepFlag {
    /// The flag of a member that is awake.
    #[allow(clippy::new_without_default, reason = "loom's atomics have no Default")]
    pub fn new() -> Self {
        Self { asleep: AtomicBool::new(false) }
    }

    /// Called by the member: sets the flag, then calls `wait` unless `has_mail` returns true.
    pub fn sleep(&self, has_mail: impl FnOnce() -> bool, wait: impl FnOnce()) {
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if !has_mail() {
            wait();
        }
        self.asleep.store(false, Ordering::Relaxed);
    }

    /// Called by a sender after its message is in the queue: whether it has to wake the member.
    /// True for exactly one of several senders.
    #[inline]
    pub fn must_wake(&self) -> bool {
        fence(Ordering::SeqCst);
        // An exchange that fails writes nothing, so that a sender clears the flag only if it is
        // set.
        self.asleep.load(Ordering::Relaxed)
            && self
                .asleep
                .compare_exchange(true, false, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }
}

#[cfg(all(loom, test))]
mod model {
    use super::*;
    use loom::sync::atomic::AtomicUsize;
    use loom::sync::{Arc, Condvar, Mutex};
    use loom::thread;

    /// A waker that remembers a wake, as an eventfd and a parker do.
    #[derive(Default)]
    struct Token {
        woken: Mutex<bool>,
        changed: Condvar,
    }

    impl Token {
        fn wake(&self) {
            *self.woken.lock().unwrap() = true;
            self.changed.notify_one();
        }

        fn wait(&self) {
            let mut woken = self.woken.lock().unwrap();
            while !*woken {
                woken = self.changed.wait(woken).unwrap();
            }
            *woken = false;
        }
    }

    /// One member and two senders of one message each. The queue is a counter with the orderings of
    /// a channel (release to send, acquire to receive) and nothing stronger. If the member missed a
    /// message, no sender would be left to wake it, and loom would report a deadlock.
    #[test]
    fn a_sleeping_member_misses_no_message() {
        // Bounded: with three threads the number of interleavings explodes, and bugs of this kind
        // appear with two or three preemptions (loom's documentation advises the same).
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let flag = Arc::new(SleepFlag::new());
            let queue = Arc::new(AtomicUsize::new(0));
            let waker = Arc::new(Token::default());
            let senders: Vec<_> = (0..2)
                .map(|_| {
                    let (flag, queue, waker) = (flag.clone(), queue.clone(), waker.clone());
                    thread::spawn(move || {
                        queue.fetch_add(1, Ordering::Release);
                        if flag.must_wake() {
                            waker.wake();
                        }
                    })
                })
                .collect();
            let mut seen = 0;
            while seen < 2 {
                let sent = queue.load(Ordering::Acquire);
                if sent > seen {
                    seen = sent;
                } else {
                    flag.sleep(|| queue.load(Ordering::Acquire) > seen, || waker.wait());
                }
            }
            for sender in senders {
                sender.join().unwrap();
            }
        });
    }
}
