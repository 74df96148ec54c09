//! How a worker sleeps without missing a message, and how senders know whether to ring.
//!
//! The worker sets its flag, fences, looks at its queues once more, and only then waits. A sender
//! puts its message into the queue, fences, and looks at the flag. This is Dekker's pattern: of the
//! two looks at least one comes after the other side's write, so either the worker sees the message
//! or the sender sees the flag (both, at worst: one ring too many). A ring costs a system call, so a
//! worker that is busy is never rung.
//!
//! The test below runs every interleaving, and every stale read that the memory model allows, under
//! loom. It is built as a crate of its own (crates/tracker/model), so this file needs nothing of the others.

#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, Ordering, fence};

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, Ordering, fence};

/// The flag of one worker.
#[derive(Debug)]
pub struct SleepFlag {
    asleep: AtomicBool,
}

impl SleepFlag {
    /// A worker that is awake.
    #[allow(clippy::new_without_default, reason = "loom's atomics have no Default")]
    pub fn new() -> Self {
        Self { asleep: AtomicBool::new(false) }
    }

    /// For the worker: waits by `wait` unless `has_mail`, looked at after the flag is up.
    pub fn sleep(&self, has_mail: impl FnOnce() -> bool, wait: impl FnOnce()) {
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if !has_mail() {
            wait();
        }
        self.asleep.store(false, Ordering::Relaxed);
    }

    /// For a sender, after its message is in the queue: whether the worker has to be rung. Of
    /// several senders one is told so.
    #[inline]
    pub fn must_wake(&self) -> bool {
        fence(Ordering::SeqCst);
        // An exchange that fails writes nothing, so that no sender can put the flag down that the
        // worker has not put up.
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

    /// A waker that remembers a ring, as an eventfd and a parker do.
    #[derive(Default)]
    struct Token {
        rung: Mutex<bool>,
        changed: Condvar,
    }

    impl Token {
        fn wake(&self) {
            *self.rung.lock().unwrap() = true;
            self.changed.notify_one();
        }

        fn wait(&self) {
            let mut rung = self.rung.lock().unwrap();
            while !*rung {
                rung = self.changed.wait(rung).unwrap();
            }
            *rung = false;
        }
    }

    /// One worker and two senders of one message each. The queue is a counter with the orderings of
    /// a channel (release to send, acquire to look) and nothing stronger. If the worker could sleep
    /// through a message, loom would report a deadlock: nobody would be left to ring.
    #[test]
    fn no_message_is_slept_through() {
        // Bounded: with three threads the number of interleavings explodes, and bugs of this kind
        // show with two or three preemptions (loom's documentation advises the same).
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let sleeper = Arc::new(SleepFlag::new());
            let queue = Arc::new(AtomicUsize::new(0));
            let waker = Arc::new(Token::default());
            let senders: Vec<_> = (0..2)
                .map(|_| {
                    let (sleeper, queue, waker) = (sleeper.clone(), queue.clone(), waker.clone());
                    thread::spawn(move || {
                        queue.fetch_add(1, Ordering::Release);
                        if sleeper.must_wake() {
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
                    sleeper.sleep(|| queue.load(Ordering::Acquire) > seen, || waker.wait());
                }
            }
            for sender in senders {
                sender.join().unwrap();
            }
        });
    }
}
