//! A process observed from outside: its CPU time, its memory, and the datagrams that the kernel
//! dropped because the receive buffers of its UDP sockets were full. All figures come from /proc
//! (proc(5)), so the process may live in another network namespace.

use std::collections::{HashMap, HashSet};
use std::fs::{self, DirEntry};
use std::io;

use procfs_core::FromRead as _;
use procfs_core::process::Status;

use crate::cpu::{Cpu, Meter};
use crate::report::TrackerReport;
use crate::series::ProcessSample;

/// Upper bound on the file descriptors that are read to find the process's sockets.
const MAX_DESCRIPTORS: usize = 1 << 16;

/// A process under observation.
#[derive(Debug)]
pub struct Process {
    pid: u32,
    cpu: Meter,
    /// Drops of each socket, by its inode, when the observation began.
    before: HashMap<u64, u64>,
}

/// Memory of a process, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Resident memory (VmRSS).
    pub rss: u64,
    /// Peak resident memory since the process started (VmHWM).
    pub peak: u64,
}

impl Process {
    /// Starts to observe the process with this id.
    ///
    /// # Errors
    /// When there is no such process, or no /proc.
    pub fn observe(pid: u32) -> io::Result<Self> {
        let cpu = Meter::new(Cpu::of(pid)?);
        Ok(Self { pid, cpu, before: drops_by_socket(pid).unwrap_or_default() })
    }

    /// CPU time since the last call, and memory.
    ///
    /// # Errors
    /// When the process has ended.
    pub fn sample(&mut self) -> io::Result<ProcessSample> {
        let cpu_percent = self.cpu.percent(Cpu::of(self.pid)?);
        Ok(ProcessSample { cpu_percent, rss: Memory::of(self.pid)?.rss })
    }

    /// Datagrams dropped since the observation began, read now, including those of sockets made
    /// meanwhile; `None` when the process's descriptors are not readable.
    pub fn drops(&self) -> Option<u64> {
        let before = |inode: u64| self.before.get(&inode).copied().unwrap_or(0);
        let now = drops_by_socket(self.pid)?.into_iter();
        Some(now.map(|(inode, drops)| drops.saturating_sub(before(inode))).sum())
    }

    /// Memory now, and the drops since the observation began.
    ///
    /// # Errors
    /// When the process has ended.
    pub fn report(&self) -> io::Result<TrackerReport> {
        let Memory { rss, peak: peak_rss } = Memory::of(self.pid)?;
        Ok(TrackerReport { pid: self.pid, rss, peak_rss, drops: self.drops() })
    }
}

/// Drops of each UDP socket of a process by its inode; `None` where the process's descriptors are
/// not readable, which takes the same user, or root.
fn drops_by_socket(pid: u32) -> Option<HashMap<u64, u64>> {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    let inode = |descriptor: DirEntry| -> Option<u64> {
        let link = fs::read_link(descriptor.path()).ok()?;
        link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    };
    let own: HashSet<u64> = descriptors.flatten().take(MAX_DESCRIPTORS).filter_map(inode).collect();
    // A host without IPv6 has no udp6.
    let read =
        |table: &str| fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
    let tables = ["udp", "udp6"].map(read);
    let sockets = tables.iter().flat_map(|table| table.lines().filter_map(parse_socket));
    Some(sockets.filter(|(inode, _)| own.contains(inode)).collect())
}

/// Inode and drops of a line of /proc/net/udp; `None` for the heading. procfs-core reads this file
/// without its last column, the drops.
fn parse_socket(line: &str) -> Option<(u64, u64)> {
    let mut fields = line.split_ascii_whitespace();
    let inode = fields.nth(9)?.parse().ok()?;
    let drops = fields.nth(2)?.parse().ok()?;
    Some((inode, drops))
}

impl Memory {
    /// Memory of a process: 0 for a zombie, which has none.
    ///
    /// # Errors
    /// When there is no such process, or no /proc.
    pub fn of(pid: u32) -> io::Result<Self> {
        let status = Status::from_file(format!("/proc/{pid}/status")).map_err(io::Error::other)?;
        let bytes = |kib: Option<u64>| kib.unwrap_or(0) * 1024;
        Ok(Self { rss: bytes(status.vmrss), peak: bytes(status.vmhwm) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    /// Lines of /proc/net/udp and udp6; the two columns before the drops are the reference count
    /// and the address of the socket.
    const UDP: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when \
                       retrnsmt   uid  timeout inode ref pointer drops
 1147: 0100007F:1B39 00000000:0000 07 00000000:00000600 00:00000000 00000000  1000        0 \
                       345678 2 00000000a1b2c3d4 117
";
    const UDP6: &str = " 9142: 00000000000000000000000001000000:1B39 \
                        00000000000000000000000000000000:0000 07 00000000:00000000 00:00000000 \
                        00000000     0        0 18446744073 2 0000000000000000 4294967295";

    #[test]
    fn socket_lines_have_inode_and_drops() {
        let found: Vec<_> = UDP.lines().map(parse_socket).collect();
        assert_eq!(found, [None, Some((345_678, 117))]);
        assert_eq!(parse_socket(UDP6), Some((18_446_744_073, 4_294_967_295)));
        let cut = UDP.lines().nth(1).unwrap().strip_suffix(" 117").unwrap();
        assert_eq!(parse_socket(cut), None, "no other column is taken for the drops");
        assert_eq!(parse_socket(""), None);
    }

    #[test]
    fn memory_is_in_bytes() {
        let pid = std::process::id();
        let before = Memory::of(pid).unwrap();
        let large = vec![1u8; 64 << 20];
        let after = Memory::of(pid).unwrap();
        assert!(large.iter().all(|byte| *byte == 1));
        assert!(after.peak >= after.rss && before.peak <= after.peak, "{before:?} {after:?}");
        assert!(after.peak >= 64 << 20, "{after:?}");
        assert!(Memory::of(u32::MAX).is_err());
        assert!(Process::observe(u32::MAX).is_err());
    }

    #[test]
    fn a_zombie_has_no_memory() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(120);
        // The child is not waited for, so it stays a zombie once it has ended.
        while Memory::of(child.id()).unwrap() != Memory::default() {
            assert!(Instant::now() < deadline);
            std::thread::yield_now();
        }
        child.wait().unwrap();
    }
}
