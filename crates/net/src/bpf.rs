//! Instructions of classic BPF. It has an accumulator A, a register X and scratch words M; all of
//! its arithmetic is 32 bits wide and wraps; loads from the packet are big endian. A load past the
//! packet's end ends the program with verdict 0.

use libc::sock_filter;

/// One instruction.
pub(crate) fn statement(code: u32, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

/// Compares A with `k`: skips `jt` instructions if it holds, else `jf`.
pub(crate) fn jump(comparison: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code: (libc::BPF_JMP | comparison | libc::BPF_K) as u16, jt, jf, k }
}
