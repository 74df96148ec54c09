//! The program of a [`Filter`], as the kernel runs it on the datagrams of one socket.

use std::io;
use std::os::fd::AsFd;

use libc::sock_filter;
use nix::errno::Errno;

use crate::bind::BoundSocket;
use crate::bpf::{jump, statement};
use crate::filter::{Check, Filter, Kind, TAG};
use crate::sys;

/// The UDP header in front of the payload.
const UDP_HEADER: u32 = 8;
/// Verdicts: no byte, or all bytes of a datagram.
const DROP: u32 = 0;
const QUEUE: u32 = u32::MAX;

/// Attaches the program to a socket in place of the former one; `None` detaches that.
pub(super) fn set(socket: &BoundSocket, filter: Option<&Filter>) -> io::Result<()> {
    let Some(filter) = filter else {
        let detached =
            sys::set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0);
        return match detached {
            // There is no program.
            Err(Errno::ENOENT) => Ok(()),
            other => Ok(other?),
        };
    };
    sys::attach_program(socket.as_fd(), libc::SO_ATTACH_FILTER, &program(filter))?;
    Ok(())
}

/// The instructions of a filter.
fn program(filter: &Filter) -> Vec<sock_filter> {
    let mut program = vec![load(libc::BPF_H, 0)];
    // Port 0.
    program.extend([jump(libc::BPF_JEQ, 0, 0, 1), verdict(DROP)]);
    // A load past the end of a datagram drops it.
    program.push(load(libc::BPF_W, UDP_HEADER + filter.kind_at));
    for kind in &filter.kinds {
        let of_kind = check(kind);
        // The blocks are far shorter than the longest jump.
        program.push(jump(libc::BPF_JEQ, kind.value, 0, of_kind.len() as u8));
        program.extend(of_kind);
    }
    program.push(verdict(DROP));
    program
}

/// The instructions for a payload of a kind. Each path ends with a verdict.
fn check(kind: &Kind) -> Vec<sock_filter> {
    let mut block = vec![
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_LEN, 0),
        jump(libc::BPF_JGE, UDP_HEADER + kind.min_len, 1, 0),
        verdict(DROP),
    ];
    match &kind.check {
        Check::Head(head) => {
            for (at, word) in [0, 4].into_iter().zip(head) {
                block.push(load(libc::BPF_W, UDP_HEADER + at));
                block.extend([jump(libc::BPF_JEQ, *word, 1, 0), verdict(DROP)]);
            }
            block.push(verdict(QUEUE));
        }
        Check::Tag { at, valid } => {
            block.push(load(libc::BPF_W, UDP_HEADER + at));
            block.push(statement(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, TAG));
            for tag in (0..=TAG).filter(|tag| valid >> tag & 1 == 1) {
                block.extend([jump(libc::BPF_JEQ, tag, 0, 1), verdict(QUEUE)]);
            }
            block.push(verdict(DROP));
        }
    }
    block
}

fn load(size: u32, at: u32) -> sock_filter {
    statement(libc::BPF_LD | size | libc::BPF_ABS, at)
}

fn verdict(bytes: u32) -> sock_filter {
    statement(libc::BPF_RET | libc::BPF_K, bytes)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use libc::sock_filter;
    use proptest::prelude::*;

    use super::*;

    /// The result of classic BPF over a UDP datagram from this port.
    fn run(program: &[sock_filter], payload: &[u8], port: u16) -> u32 {
        let mut udp = port.to_be_bytes().to_vec();
        udp.extend([0x1B, 0x39, 0, 0, 0, 0]);
        udp.extend(payload);
        let load = |at: u32, bytes: usize| {
            let word = udp.get(at as usize..)?.get(..bytes)?;
            Some(word.iter().fold(0, |word, byte| word << 8 | u32::from(*byte)))
        };
        let (mut a, mut at) = (0u32, 0);
        loop {
            let sock_filter { code, jt, jf, k } = program[at];
            at += 1;
            let taken = |holds: bool| usize::from(if holds { jt } else { jf });
            match u32::from(code) {
                0x06 => return k,
                0x20 | 0x28 => match load(k, if code == 0x20 { 4 } else { 2 }) {
                    Some(word) => a = word,
                    None => return 0,
                },
                0x80 => a = udp.len() as u32,
                0x54 => a &= k,
                0x15 => at += taken(a == k),
                0x35 => at += taken(a >= k),
                other => panic!("instruction {other:#x}"),
            }
        }
    }

    fn filters() -> impl Strategy<Value = Filter> {
        (0u8..16, 12u32..120).prop_map(|(valid, min_len)| Filter {
            kind_at: 8,
            kinds: [
                Kind { value: 0, min_len: 16, check: Check::Head([0x417, 0x2710_1980]) },
                Kind { value: 1, min_len, check: Check::Tag { at: 4, valid } },
                Kind { value: 2, min_len: 16, check: Check::Tag { at: 4, valid } },
            ],
        })
    }

    /// Payloads of which many begin as a kind does.
    fn payloads() -> impl Strategy<Value = Vec<u8>> {
        let payload = proptest::collection::vec(any::<u8>(), 0..160);
        (payload, 0u8..5, any::<bool>()).prop_map(|(mut payload, kind, magic)| {
            if let Some(head) = payload.first_chunk_mut::<12>() {
                head[8..].copy_from_slice(&[0, 0, 0, kind]);
                if magic {
                    head[..8].copy_from_slice(&[0, 0, 4, 0x17, 0x27, 0x10, 0x19, 0x80]);
                }
            }
            payload
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]
        #[test]
        fn the_program_passes_what_the_function_passes(
            filter in filters(),
            payload in payloads(),
            port in prop_oneof![1 => Just(0u16), 9 => any::<u16>()],
        ) {
            let verdict = run(&super::program(&filter), &payload, port);
            let source = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            prop_assert_eq!(verdict, if filter.passes(&payload, source) { u32::MAX } else { 0 });
        }
    }
}
