//! A process from outside: its processor time, its memory, and what the kernel dropped because
//! its UDP sockets were full. Everything is read from /proc (proc(5)), so any process will do, in
//! whichever network namespace.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader};
use std::time::{Duration, Instant};

use crate::cpu::Cpu;
use crate::series::ProcessSample;

/// File descriptors that are looked at when the process's sockets are searched.
const MOST_DESCRIPTORS: usize = 1 << 16;
/// The sockets are searched anew this often: they seldom change.
const SEARCH_EVERY: Duration = Duration::from_secs(5);
/// Looking for drops takes at most this share of the time: /proc/net/udp lists every socket of
/// the host, the load tester's thousands, too.
const SHARE: u32 = 100;

/// A process under observation.
#[derive(Debug)]
pub struct Process {
    pid: u32,
    before: Look,
    /// Per inode of a socket that the process has: its drops so far.
    sockets: HashMap<u64, u64>,
    /// Whether its descriptors may be looked at.
    seen: bool,
    searched: Instant,
    /// Drops of all sockets since the observation began.
    drops: u64,
    /// Of these, told.
    told: u64,
    /// When.
    told_at: Instant,
    /// Not looked for drops before this.
    rest_until: Instant,
    line: String,
}

#[derive(Clone, Copy, Debug)]
struct Look {
    at: Instant,
    cpu: Cpu,
}

/// Memory of a process, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Resident now (VmRSS).
    pub rss: u64,
    /// Resident at most since it began (VmHWM).
    pub peak: u64,
}

impl Process {
    /// Begins to observe.
    ///
    /// # Errors
    /// When there is no such process, or no /proc.
    pub fn observe(pid: u32) -> io::Result<Self> {
        let now = Instant::now();
        let before = Look { at: now, cpu: Cpu::of_process(pid)? };
        let mut process = Self {
            pid,
            before,
            sockets: HashMap::new(),
            seen: true,
            searched: now,
            drops: 0,
            told: 0,
            told_at: now,
            rest_until: now,
            line: String::new(),
        };
        process.search();
        process.look_for_drops();
        // What was dropped before is not of this run.
        process.drops = 0;
        Ok(process)
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// What came since the last call.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn sample(&mut self) -> io::Result<ProcessSample> {
        let now = Look { at: Instant::now(), cpu: Cpu::of_process(self.pid)? };
        let passed = (now.at - self.before.at).as_secs_f64();
        let time = (now.cpu - self.before.cpu).total();
        self.before = now;
        let cpu_percent = if passed > 0.0 { time / passed * 100.0 } else { 0.0 };
        let rss = Memory::of(self.pid)?.rss;
        let told_at = self.told_at;
        let drops = self.recent_drops();
        let drops_seconds = (self.told_at - told_at).as_secs_f64();
        Ok(ProcessSample { cpu_percent, rss, drops, drops_seconds })
    }

    /// Datagrams dropped since the observation began, looked at now; none when the sockets cannot
    /// be looked at. Sockets that the process has made meanwhile are among them.
    pub fn drops(&mut self) -> Option<u64> {
        self.search();
        self.look_for_drops();
        self.seen.then_some(self.drops)
    }

    /// Memory now.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn memory(&self) -> io::Result<Memory> {
        Memory::of(self.pid)
    }

    fn recent_drops(&mut self) -> Option<u64> {
        let begin = Instant::now();
        if begin < self.rest_until {
            return None;
        }
        if begin - self.searched >= SEARCH_EVERY {
            self.search();
        }
        self.look_for_drops();
        let cost = begin.elapsed();
        self.rest_until = begin + cost * SHARE;
        let recent = self.drops - self.told;
        self.told = self.drops;
        self.told_at = begin;
        self.seen.then_some(recent)
    }

    /// Looks which sockets the process has. A new one begins with the drops that it has had since
    /// it was made, all of them under observation.
    fn search(&mut self) {
        self.searched = Instant::now();
        let Ok(descriptors) = fs::read_dir(format!("/proc/{}/fd", self.pid)) else {
            self.seen = false;
            return;
        };
        self.seen = true;
        let inodes = descriptors.flatten().take(MOST_DESCRIPTORS).filter_map(|descriptor| {
            let link = fs::read_link(descriptor.path()).ok()?;
            link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
        });
        let before = std::mem::take(&mut self.sockets);
        self.sockets =
            inodes.map(|inode| (inode, before.get(&inode).copied().unwrap_or(0))).collect();
    }

    fn look_for_drops(&mut self) {
        for table in ["udp", "udp6"] {
            // A host without IPv6 has no udp6.
            let Ok(file) = File::open(format!("/proc/{}/net/{table}", self.pid)) else { continue };
            let mut lines = BufReader::new(file);
            loop {
                self.line.clear();
                match lines.read_line(&mut self.line) {
                    Ok(0) | Err(_) => break,
                    Ok(_) => {}
                }
                let Some((inode, drops)) = parse_socket(&self.line) else { continue };
                if let Some(before) = self.sockets.get_mut(&inode) {
                    self.drops += drops.saturating_sub(*before);
                    *before = drops;
                }
            }
        }
    }
}

/// Inode and drops of a line of /proc/net/udp; none of its heading.
fn parse_socket(line: &str) -> Option<(u64, u64)> {
    let mut fields = line.split_ascii_whitespace();
    let inode = fields.nth(9)?.parse().ok()?;
    let drops = fields.nth(2)?.parse().ok()?;
    Some((inode, drops))
}

impl Memory {
    /// Of a process.
    ///
    /// # Errors
    /// When there is no such process, or no /proc.
    pub fn of(pid: u32) -> io::Result<Self> {
        Ok(Self::parse(&fs::read_to_string(format!("/proc/{pid}/status"))?))
    }

    /// A process that has no memory any more (a zombie) has no such lines.
    fn parse(status: &str) -> Self {
        let field = |name: &str| {
            let rest = status.lines().find_map(|line| line.strip_prefix(name))?;
            let kib: u64 = rest.trim().strip_suffix("kB")?.trim().parse().ok()?;
            Some(kib * 1024)
        };
        Self { rss: field("VmRSS:").unwrap_or(0), peak: field("VmHWM:").unwrap_or(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As /proc/net/udp and udp6 have them; the last two columns of the fields before the drops
    /// are reference count and address of the socket.
    const UDP: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
 1147: 0100007F:1B39 00000000:0000 07 00000000:00000600 00:00000000 00000000  1000        0 345678 2 00000000a1b2c3d4 117
";
    const UDP6: &str = " 9142: 00000000000000000000000001000000:1B39 00000000000000000000000000000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 18446744073 2 0000000000000000 4294967295";

    #[test]
    fn lines_of_sockets_have_inode_and_drops() {
        let found: Vec<_> = UDP.lines().map(parse_socket).collect();
        assert_eq!(found, [None, Some((345_678, 117))]);
        assert_eq!(parse_socket(UDP6), Some((18_446_744_073, 4_294_967_295)));
        let cut = UDP.lines().nth(1).unwrap().strip_suffix(" 117").unwrap();
        assert_eq!(parse_socket(cut), None, "nothing is made of another column");
        assert_eq!(parse_socket(""), None);
    }

    #[test]
    fn memory_is_in_bytes() {
        let status = "Name:\tonrush\nVmPeak:\t  250000 kB\nVmHWM:\t   10240 kB\n\
                      VmRSS:\t    8192 kB\nRssAnon:\t    4096 kB\n";
        let expected = Memory { rss: 8 << 20, peak: 10 << 20 };
        assert_eq!(Memory::parse(status), expected);
        let zombie = "Name:\tonrush\nState:\tZ (zombie)\n";
        assert_eq!(Memory::parse(zombie), Memory::default(), "it has none any more");
    }

    /// What is read of this very process is what it has.
    #[test]
    fn a_process_has_memory_and_uses_it() {
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
}
