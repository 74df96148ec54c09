//! Links of XDP programs to interfaces (bpf(2)).

use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libc::{c_int, c_long};
use nix::errno::Errno;

/// Numbers of include/uapi/linux/bpf.h.
const BPF_LINK_CREATE: c_int = 28;
const BPF_LINK_UPDATE: c_int = 29;
const BPF_LINK_DETACH: c_int = 34;
const BPF_XDP: u32 = 37;

/// Holds a program at an interface until all descriptors of the link are closed.
pub(crate) fn create(
    program: BorrowedFd<'_>,
    interface: u32,
    flags: u32,
) -> Result<OwnedFd, Errno> {
    let link = call(BPF_LINK_CREATE, [program.as_raw_fd() as u32, interface, BPF_XDP, flags])?;
    // SAFETY: the kernel has opened this descriptor for the call, and nothing else owns it.
    // Reason: aya has no access to the descriptor of a link, which a successor gets.
    Ok(unsafe { OwnedFd::from_raw_fd(link as c_int) })
}

/// Replaces the program of a link, between two frames.
pub(crate) fn replace(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> Result<(), Errno> {
    let (link, program) = (link.as_raw_fd() as u32, program.as_raw_fd() as u32);
    call(BPF_LINK_UPDATE, [link, program, 0, 0]).map(drop)
}

/// Detaches the program of a link, whoever else has it.
pub(crate) fn detach(link: BorrowedFd<'_>) -> Result<(), Errno> {
    call(BPF_LINK_DETACH, [link.as_raw_fd() as u32, 0, 0, 0]).map(drop)
}

/// A command whose part of `union bpf_attr` is four words; the kernel takes the rest as zeros.
fn call(command: c_int, words: [u32; 4]) -> Result<c_long, Errno> {
    let len = mem::size_of_val(&words);
    // SAFETY: the kernel reads `len` bytes at `words`, which lives until it returns, and writes
    // nothing for these commands.
    // Reason: aya attaches by netlink where the kernel refuses a link, which outlives the process.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, words.as_ptr(), len) };
    Errno::result(result)
}
