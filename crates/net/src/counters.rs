//! Datagrams that the kernel dropped before they could be received.
//!
//! Per socket by SO_MEMINFO, which costs one system call and nothing on the path of a datagram (a
//! per-packet control message, SO_RXQ_OVFL, measured 7 %); for the whole system from
//! `/proc/net/snmp` and `/proc/net/snmp6`.

use std::fs;
use std::io;
use std::os::fd::BorrowedFd;

/// UDP datagrams that the system dropped, for all sockets of its network namespace since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SystemDrops {
    /// No room in a receive buffer, IPv4 (`RcvbufErrors`).
    pub receive_v4: u64,
    /// No room in a receive buffer, IPv6.
    pub receive_v6: u64,
    /// No room to send, IPv4 (`SndbufErrors`).
    pub send_v4: u64,
    /// No room to send, IPv6.
    pub send_v6: u64,
}

/// The system's counters, over all processes and sockets of the network namespace, for diagnosis.
/// Each backend counts the drops of its own sockets.
///
/// # Errors
/// Without a `/proc/net/snmp`. A host without IPv6 has zeros for it.
pub fn system_drops() -> io::Result<SystemDrops> {
    let v4 = fs::read_to_string("/proc/net/snmp")?;
    let v6 = fs::read_to_string("/proc/net/snmp6").unwrap_or_default();
    parse(&v4, &v6).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Datagrams that the kernel dropped at one socket, modulo 2^32.
///
/// # Errors
/// Where the system has no such counter (anything but Linux).
pub(crate) fn socket_drops(fd: BorrowedFd<'_>) -> io::Result<u32> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        let mut words = [0u32; 9];
        crate::sys::get_option(fd, libc::SOL_SOCKET, libc::SO_MEMINFO, &mut words)?;
        Ok(words[libc::SK_MEMINFO_DROPS as usize])
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    {
        let _ = fd;
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Extends a 32-bit counter that wraps to 64 bits; it must be read at least once per wrap.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wrapping {
    last: u32,
    total: u64,
}

impl Wrapping {
    /// Counts from a counter value of `first`.
    pub(crate) fn since(first: u32) -> Self {
        Self { last: first, total: 0 }
    }

    /// The total, given that the counter reads `now`.
    pub(crate) fn update(&mut self, now: u32) -> u64 {
        self.total += u64::from(now.wrapping_sub(self.last));
        self.last = now;
        self.total
    }
}

/// Reads the four counters from the two files.
fn parse(snmp: &str, snmp6: &str) -> Option<SystemDrops> {
    // The file has pairs of lines: names, then values.
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (names, values) = (lines.next()?, lines.next()?);
    let v4 = |wanted: &str| {
        let mut pairs = names.split_whitespace().zip(values.split_whitespace());
        pairs.find(|(name, _)| *name == wanted)?.1.parse().ok()
    };
    // The file has one line per counter.
    let v6 = |wanted: &str| {
        let mut pairs = snmp6.lines().filter_map(|line| line.split_once(char::is_whitespace));
        pairs.find(|(name, _)| *name == wanted)?.1.trim().parse().ok()
    };
    Some(SystemDrops {
        receive_v4: v4("RcvbufErrors")?,
        send_v4: v4("SndbufErrors")?,
        receive_v6: v6("Udp6RcvbufErrors").unwrap_or(0),
        send_v6: v6("Udp6SndbufErrors").unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bind::{Buffers, bind_client};
    use std::os::fd::AsFd;

    #[test]
    fn wrapping_counts_continue() {
        let mut count = Wrapping::default();
        assert_eq!(count.update(u32::MAX), u64::from(u32::MAX));
        assert_eq!(count.update(4), u64::from(u32::MAX) + 5);
        assert_eq!(count.update(4), u64::from(u32::MAX) + 5);
    }

    #[test]
    fn the_systems_files_are_parsed() {
        let snmp = "Ip: Forwarding\nIp: 1\n\
                    Udp: InDatagrams RcvbufErrors SndbufErrors InCsumErrors\n\
                    Udp: 207 11 12 0\nUdpLite: InDatagrams RcvbufErrors\nUdpLite: 1 2\n";
        let snmp6 =
            "Udp6InDatagrams \t5\nUdp6RcvbufErrors                \t21\nUdp6SndbufErrors \t22\n";
        let drops = SystemDrops { receive_v4: 11, receive_v6: 21, send_v4: 12, send_v6: 22 };
        assert_eq!(parse(snmp, snmp6), Some(drops));
        assert_eq!(parse(snmp, "").unwrap().receive_v6, 0);
        assert_eq!(parse("", snmp6), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_full_buffer_is_counted() {
        let any = "127.0.0.1:0".parse().unwrap();
        let (server, _) = bind_client(any, Buffers { receive: 4096, send: 0 }).unwrap();
        let (client, _) = bind_client(any, Buffers::default()).unwrap();
        assert_eq!(socket_drops(server.as_fd()).unwrap(), 0);
        let before = system_drops().unwrap();
        let mut sent = 0;
        while sent < 200 {
            sent += u32::from(client.as_udp().send_to(&[7; 1000], server.address()).is_ok());
        }
        let mut received = 0;
        while server.as_udp().recv_from(&mut [0; 2048]).is_ok() {
            received += 1;
        }
        // Loopback delivers within the sending call, so nothing is in flight any more.
        let drops = socket_drops(server.as_fd()).unwrap();
        assert_eq!(received + drops, sent);
        assert!(drops > 100, "{drops}");
        assert!(system_drops().unwrap().receive_v4 - before.receive_v4 >= u64::from(drops));
    }
}
