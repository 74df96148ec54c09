//! A process or several observed from outside: CPU time, memory, and the datagrams that the kernel
//! dropped because the receive buffers of their UDP sockets were full. All figures come from /proc
//! (proc(5)), so the processes may live in another network namespace.

use std::collections::{HashMap, HashSet};
use std::fs::{self, DirEntry};
use std::io;

use procfs_core::FromRead as _;
use procfs_core::process::{Stat, Status};

use crate::cpu::{Cpu, Meter};
use crate::report::TrackerReport;
use crate::series::ProcessSample;

/// Upper bound on the file descriptors that are read to find the process's sockets.
const MAX_DESCRIPTORS: usize = 1 << 16;

/// Processes under observation, as one.
#[derive(Debug)]
pub struct Process {
    pids: Vec<u32>,
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
    /// Starts to observe the processes with these ids.
    ///
    /// # Errors
    /// When one of them does not exist, or no /proc.
    pub fn observe(pids: &[u32]) -> io::Result<Self> {
        let cpu = Meter::new(Cpu::of_all(pids)?);
        let before = drops_by_socket(pids).unwrap_or_default();
        Ok(Self { pids: pids.into(), cpu, before })
    }

    /// CPU time since the last call, and memory.
    ///
    /// # Errors
    /// When a process has ended.
    pub fn sample(&mut self) -> io::Result<ProcessSample> {
        let cpu_percent = self.cpu.percent(Cpu::of_all(&self.pids)?);
        Ok(ProcessSample { cpu_percent, rss: Memory::of_all(&self.pids)?.rss })
    }

    /// Datagrams dropped since the observation began, read now, including those of sockets made
    /// meanwhile; `None` when a process's descriptors are not readable.
    pub fn drops(&self) -> Option<u64> {
        let before = |inode: u64| self.before.get(&inode).copied().unwrap_or(0);
        let now = drops_by_socket(&self.pids)?.into_iter();
        Some(now.map(|(inode, drops)| drops.saturating_sub(before(inode))).sum())
    }

    /// Memory now, and the drops since the observation began.
    ///
    /// # Errors
    /// When a process has ended.
    pub fn report(&self) -> io::Result<TrackerReport> {
        let Memory { rss, peak: peak_rss } = Memory::of_all(&self.pids)?;
        let pid = self.pids.first().copied().unwrap_or_default();
        Ok(TrackerReport { pid, rss, peak_rss, drops: self.drops() })
    }
}

/// These processes and their workers: processes of the same name that they have started, at any
/// depth. Servers like hitch and nginx serve by children.
pub fn with_workers(pids: &[u32]) -> Vec<u32> {
    let mut all = pids.to_vec();
    if all.is_empty() {
        return all;
    }
    let stat = |entry: DirEntry| -> Option<Stat> {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        Stat::from_file(format!("/proc/{pid}/stat")).ok()
    };
    let stats: Vec<_> =
        fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(stat).collect();
    let mut from = 0;
    while let Some(&next) = all.get(from) {
        from += 1;
        let Some(parent) = stats.iter().find(|stat| stat.pid as u32 == next) else { continue };
        let workers = stats.iter().filter(|it| it.ppid == parent.pid && it.comm == parent.comm);
        let workers: Vec<_> = workers.map(|it| it.pid as u32).collect();
        all.extend(workers.into_iter().filter(|pid| !pids.contains(pid)));
    }
    all
}

/// Drops of each UDP socket of processes by its inode; `None` where the descriptors of one are not
/// readable, which takes the same user, or root.
fn drops_by_socket(pids: &[u32]) -> Option<HashMap<u64, u64>> {
    let mut all = HashMap::new();
    for &pid in pids {
        all.extend(drops_of(pid)?);
    }
    Some(all)
}

fn drops_of(pid: u32) -> Option<HashMap<u64, u64>> {
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

    /// The sum over processes: pages that they share count for each.
    ///
    /// # Errors
    /// As [`Self::of`].
    pub fn of_all(pids: &[u32]) -> io::Result<Self> {
        pids.iter().try_fold(Self::default(), |sum, pid| {
            let Self { rss, peak } = Self::of(*pid)?;
            Ok(Self { rss: sum.rss + rss, peak: sum.peak + peak })
        })
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
        assert!(Process::observe(&[pid, u32::MAX]).is_err());
    }

    /// A shell with a child, as hitch has workers.
    #[test]
    fn processes_are_observed_with_their_workers() {
        use std::process::Stdio;
        let mut shell = std::process::Command::new("sh");
        // The copy of the shell waits for input that does not come.
        shell.args(["-c", "exec 3<&0; (read line <&3) & echo; wait"]);
        let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        std::io::Read::read_exact(&mut shell.stdout.take().unwrap(), &mut [0]).unwrap();
        let both = with_workers(&[shell.id()]);
        assert_eq!((both.len(), both[0]), (2, shell.id()));
        let rss = |pids: &[u32]| Process::observe(pids).unwrap().sample().unwrap().rss;
        assert!(rss(&both) > rss(&both[..1]) && rss(&both[1..]) > 0);
        assert_eq!(with_workers(&both), both);
        assert!(with_workers(&[]).is_empty());
        // A process of another name is no worker.
        let own = std::process::id();
        assert_eq!(with_workers(&[own]), [own]);
        drop(shell.stdin.take());
        shell.wait().unwrap();
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
