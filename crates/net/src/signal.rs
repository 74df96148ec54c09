//! The sender of a signal.

use libc::siginfo_t;

/// The ids of the process that has sent a signal and of its user; `None` for a signal of the
/// kernel, as by Ctrl-C. The process id is 0 if the sender is in another PID namespace.
pub fn sender(info: &siginfo_t) -> Option<(i32, u32)> {
    let is_sent = [libc::SI_USER, libc::SI_QUEUE, libc::SI_TKILL].contains(&info.si_code);
    // SAFETY: with these codes the kernel has set both fields (sigaction(2)). Gains the ids, which
    // wrappers read with C code only.
    is_sent.then(|| unsafe { (info.si_pid(), info.si_uid()) })
}
