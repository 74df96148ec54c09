//! Where the facts stand: files below a root, and what tools say.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::facts::{Asked, Card, Conntrack, Facts, Holder, Udp};
use crate::settings::{BYTES_PER_PEER, Host, Settings};

/// Runs a tool: what it writes, or why that cannot be had.
pub(super) type Tool<'a> = &'a dyn Fn(&[&str]) -> Result<String, String>;

/// The real ones.
pub(super) fn tool(command: &[&str]) -> Result<String, String> {
    let (program, arguments) = command.split_first().ok_or("no program")?;
    let done = Command::new(program)
        .args(arguments)
        // Where firewall tools are, which users' paths often leave out.
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| error.to_string())?;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
    }
    Err(String::from_utf8_lossy(&done.stderr).lines().next().unwrap_or("it failed").to_owned())
}

impl Facts {
    /// Looks at the files of a host below `root`, and asks `tool`.
    pub fn gather(
        root: &Path,
        settings: &Settings,
        host: &Host,
        tool: &dyn Fn(&[&str]) -> Result<String, String>,
    ) -> Self {
        let mut look = Look { root, unseen: Vec::new() };
        let status = look.text("proc/self/status").unwrap_or_default();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.map(|rest| rest.trim_start_matches(':').trim().to_owned())
        };
        let limits = look.text("proc/self/limits").unwrap_or_default();
        let demux = (
            look.number("proc/sys/net/ipv4/ip_early_demux"),
            look.number("proc/sys/net/ipv4/udp_early_demux"),
        );
        let asked = asked(settings, host);
        let ports: BTreeSet<u16> = asked.addresses.iter().map(|address| address.port()).collect();
        let mut facts = Self {
            asked,
            rmem_max: look.number("proc/sys/net/core/rmem_max"),
            wmem_max: look.number("proc/sys/net/core/wmem_max"),
            backlog: look.number("proc/sys/net/core/netdev_max_backlog"),
            backlog_drops: look.text("proc/net/softnet_stat").map(|text| backlog_drops(&text)),
            early_demux: demux.1.map(|udp| udp != 0 && demux.0 != Some(0)),
            udp: udp(&mut look),
            conntrack: conntrack(&mut look, tool),
            cards: cards(&mut look),
            holders: holders(&mut look, &ports),
            governors: governors(&mut look),
            clock: look
                .text("sys/devices/system/clocksource/clocksource0/current_clocksource")
                .map(|text| text.trim().to_owned()),
            files: limit(&limits, "Max open files"),
            locked_bytes: limit(&limits, "Max locked memory"),
            filtered: field("Seccomp").map(|mode| mode != "0"),
            io_uring_disabled: look.number("proc/sys/kernel/io_uring_disabled"),
            huge_pages: look
                .text("sys/kernel/mm/transparent_hugepage/enabled")
                .and_then(|text| Some(text.split_once('[')?.1.split_once(']')?.0.to_owned())),
            swap: look.text("proc/meminfo").and_then(|text| swap(&text)),
            root: field("Uid").and_then(|ids| Some(ids.split_whitespace().nth(1)? == "0")),
            unseen: Vec::new(),
        };
        facts.unseen = look.unseen;
        facts
    }

    /// The ports of the tracker's addresses, each once. Port 0 is any.
    pub fn ports(&self) -> Vec<u16> {
        let ports: BTreeSet<u16> = self.asked.addresses.iter().map(|a| a.port()).collect();
        ports.into_iter().filter(|port| *port != 0).collect()
    }
}

fn asked(settings: &Settings, host: &Host) -> Asked {
    Asked {
        addresses: settings.listen.iter().map(|listen| listen.address).collect(),
        socket_workers: settings.placement.socket_sides() as u64,
        workers: settings.placement.workers() as u64,
        receive_buffer: settings.socket.receive_buffer as u64,
        send_buffer: settings.socket.send_buffer as u64,
        peer_bytes: settings.limits.peers.saturating_mul(BYTES_PER_PEER),
        becomes_user: settings.user.is_some(),
        vcpus: host.vcpus.len().max(1) as u64,
        quota: host.cpu_quota.map(|quota| quota as u64),
        memory: host.memory,
    }
}

/// Reads below a root, and remembers what it was not let see.
struct Look<'a> {
    root: &'a Path,
    unseen: Vec<String>,
}

impl Look<'_> {
    fn text(&mut self, path: &str) -> Option<String> {
        match fs::read_to_string(self.root.join(path)) {
            Ok(text) => Some(text),
            Err(error) => {
                self.not_seen(path, &error);
                None
            }
        }
    }

    fn number(&mut self, path: &str) -> Option<u64> {
        self.text(path)?.trim().parse().ok()
    }

    /// The entries of a directory, in order.
    fn entries(&mut self, path: &str) -> Vec<PathBuf> {
        match fs::read_dir(self.root.join(path)) {
            Ok(entries) => {
                let mut paths: Vec<_> =
                    entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
                paths.sort();
                paths
            }
            Err(error) => {
                self.not_seen(path, &error);
                Vec::new()
            }
        }
    }

    /// What is not there is no secret; what is denied is.
    fn not_seen(&mut self, path: &str, error: &std::io::Error) {
        if error.kind() == ErrorKind::PermissionDenied {
            self.unseen.push(format!("/{path}: {error}"));
        }
    }
}

/// The second column, hexadecimal, a line for each vCPU (net/core/net-procfs.c).
fn backlog_drops(softnet: &str) -> u64 {
    let column = |line: &str| u64::from_str_radix(line.split_whitespace().nth(1)?, 16).ok();
    softnet.lines().filter_map(column).sum()
}

/// IPv4's counters stand in columns under their names, IPv6's in lines.
fn udp(look: &mut Look<'_>) -> Option<Udp> {
    let v4 = look.text("proc/net/snmp")?;
    let mut lines = v4.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (names, values) = (lines.next()?, lines.next()?);
    let mut all: BTreeMap<String, u64> = names
        .split_whitespace()
        .zip(values.split_whitespace())
        .filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?)))
        .collect();
    for line in look.text("proc/net/snmp6").unwrap_or_default().lines() {
        let mut words = line.split_whitespace();
        if let (Some(name), Some(Ok(value))) = (words.next(), words.next().map(str::parse::<u64>))
            && let Some(name) = name.strip_prefix("Udp6")
        {
            *all.entry(name.to_owned()).or_default() += value;
        }
    }
    let of = |name| all.get(name).copied().unwrap_or(0);
    Some(Udp {
        received: of("InDatagrams"),
        receive_drops: of("RcvbufErrors"),
        send_drops: of("SndbufErrors"),
    })
}

fn conntrack(look: &mut Look<'_>, tool: Tool<'_>) -> Option<Conntrack> {
    let max = look.number("proc/sys/net/netfilter/nf_conntrack_max")?;
    let count = look.number("proc/sys/net/netfilter/nf_conntrack_count")?;
    if count == 0 {
        return Some(Conntrack { count, max, rules: None });
    }
    let nft = tool(&["nft", "--stateless", "list", "ruleset"]);
    let legacy = ["iptables-save", "ip6tables-save"].map(|name| tool(&[name, "-t", "raw"]));
    let rules: Vec<String> = [nft]
        .into_iter()
        .chain(legacy)
        .filter_map(|said| {
            said.map_err(|why| look.unseen.push(format!("the firewall's rules: {why}"))).ok()
        })
        .collect();
    look.unseen.dedup();
    Some(Conntrack { count, max, rules: (!rules.is_empty()).then(|| rules.join("\n")) })
}

/// Cards that have a device behind them and are up: no bridges, tunnels or loopback.
fn cards(look: &mut Look<'_>) -> Vec<Card> {
    let mut cards = Vec::new();
    for path in look.entries("sys/class/net") {
        let up = fs::read_to_string(path.join("operstate")).is_ok_and(|text| text.trim() == "up");
        if !up || !path.join("device").exists() {
            continue;
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let queues: Vec<PathBuf> = fs::read_dir(path.join("queues"))
            .into_iter()
            .flatten()
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|queue| {
                queue.file_name().is_some_and(|n| n.to_string_lossy().starts_with("rx-"))
            })
            .collect();
        let rps = |queue: &&PathBuf| {
            let mask = fs::read_to_string(queue.join("rps_cpus")).unwrap_or_default();
            mask.chars().any(|digit| digit.is_ascii_hexdigit() && digit != '0')
        };
        let rps_queues = queues.iter().filter(rps).count() as u64;
        let numbers = fs::read_dir(path.join("device/msi_irqs")).into_iter().flatten();
        let mut numbers: Vec<u32> =
            numbers.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
        numbers.sort_unstable();
        let interrupts = numbers
            .into_iter()
            .filter_map(|irq| look.text(&format!("proc/irq/{irq}/effective_affinity_list")))
            .map(|text| cpu_list(&text))
            .filter(|cpus| !cpus.is_empty())
            .collect();
        cards.push(Card { name, queues: queues.len() as u64, rps_queues, interrupts });
    }
    cards
}

/// `0-2,5` as numbers.
fn cpu_list(text: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<usize>().ok()?..=last.parse().ok()?)
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}

fn governors(look: &mut Look<'_>) -> Vec<String> {
    let cpus = look.entries("sys/devices/system/cpu");
    let governor = |cpu: PathBuf| fs::read_to_string(cpu.join("cpufreq/scaling_governor")).ok();
    cpus.into_iter().filter_map(governor).map(|text| text.trim().to_owned()).collect()
}

/// The soft limit, second of the columns that begin behind the name; `None` without a limit.
fn limit(limits: &str, name: &str) -> Option<u64> {
    let rest = limits.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// Bytes in all and in use.
fn swap(meminfo: &str) -> Option<(u64, u64)> {
    let of = |name: &str| {
        let rest = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        rest.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    };
    let all = of("SwapTotal:")?;
    Some((all, all.saturating_sub(of("SwapFree:")?)))
}

/// Who has sockets at these ports: by their inodes, which processes' descriptors name.
fn holders(look: &mut Look<'_>, ports: &BTreeSet<u16>) -> Vec<Holder> {
    let mut inodes: BTreeMap<String, u16> = BTreeMap::new();
    for file in ["proc/net/udp", "proc/net/udp6"] {
        let text = look.text(file).unwrap_or_default();
        for fields in text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()) {
            let port = fields.get(1).and_then(|local| local.rsplit_once(':'));
            let port = port.and_then(|(_, port)| u16::from_str_radix(port, 16).ok());
            if let (Some(port), Some(inode)) =
                (port.filter(|port| ports.contains(port)), fields.get(9))
            {
                inodes.insert(format!("socket:[{inode}]"), port);
            }
        }
    }
    if inodes.is_empty() {
        return Vec::new();
    }
    let mut holders = Vec::new();
    let mut known = BTreeSet::new();
    for process in look.entries("proc") {
        let pid = process.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok());
        let (Some(pid), Ok(files)) = (pid, fs::read_dir(process.join("fd"))) else { continue };
        let links = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
        let held: BTreeSet<u16> =
            links.filter_map(|link| inodes.get(link.to_str()?).copied()).collect();
        for port in held {
            let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
            known.insert(port);
            holders.push(Holder { port, process: Some((pid, name.trim().to_owned())) });
        }
    }
    let hidden: BTreeSet<u16> = inodes.into_values().filter(|port| !known.contains(port)).collect();
    holders.extend(hidden.into_iter().map(|port| Holder { port, process: None }));
    holders
}

#[cfg(test)]
mod tests;
