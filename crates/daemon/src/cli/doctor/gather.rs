//! Gathers the facts from files below a root: `/` on a host, a directory in a test.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, ErrorKind};
use std::path::{Path, PathBuf};

use nix::sys::statvfs::statvfs;
use onrush_config::host::granted;
use onrush_config::{Host, Settings};
use onrush_net::{affinity, clock};
use onrush_store::snapshot;
use procfs_core::net::{Snmp, Snmp6};
use procfs_core::process::{LimitValue, Limits, Status};
use procfs_core::{FromRead, Meminfo};

use super::facts::{Card, Conntrack, Facts, Governor, StateDisk, Udp, ports};
use crate::ports::{Protocol, holders};

impl Facts {
    /// Reads the files of a host below `root`. A `quick` look leaves out what takes long on a busy
    /// host: the descriptors of all processes and the table of connection tracking. The state of
    /// the clock is left out too: at boot the tracker may start before it is synchronised.
    pub fn gather(root: &Path, settings: &Settings, host: &Host, quick: bool) -> Self {
        let mut files = Files { root, unreadable: Vec::new() };
        let early_demux = files
            .number("proc/sys/net/ipv4/udp_early_demux")
            .map(|udp| udp != 0 && files.number("proc/sys/net/ipv4/ip_early_demux") != Some(0));
        let ports = ports(settings);
        let mut facts = Self {
            settings: settings.clone(),
            vcpus: host.vcpus.len().max(1) as u64,
            quota: host.cpu_quota,
            memory: host.memory,
            rmem_max: files.number("proc/sys/net/core/rmem_max"),
            wmem_max: files.number("proc/sys/net/core/wmem_max"),
            backlog: files.number("proc/sys/net/core/netdev_max_backlog"),
            flow_entries: files.number("proc/sys/net/core/rps_sock_flow_entries"),
            backlog_drops: files.text("proc/net/softnet_stat").map(|text| backlog_drops(&text)),
            early_demux,
            udp: udp(&mut files),
            cards: cards(&mut files),
            governors: governors(&mut files),
            clock: files
                .text("sys/devices/system/clocksource/clocksource0/current_clocksource")
                .map(|text| text.trim().to_owned()),
            huge_pages: files
                .text("sys/kernel/mm/transparent_hugepage/enabled")
                .and_then(|text| Some(text.split_once('[')?.1.split_once(']')?.0.to_owned())),
            swap: files.parse::<Meminfo>("proc/meminfo").map(|memory| {
                (memory.swap_total, memory.swap_total.saturating_sub(memory.swap_free))
            }),
            conntrack: conntrack(&mut files, &ports, quick),
            holders: match quick {
                true => Vec::new(),
                false => holders(root, Protocol::Udp, |address| ports.contains(&address.port())),
            },
            // From the running kernel, as no file has it.
            clock_error: clock::max_error().ok().filter(|_| !quick && root == Path::new("/")),
            state_disk: state_disk(root, settings),
            records: None,
            tracker: None,
            files: None,
            root: None,
            unreadable: Vec::new(),
        };
        limits(&mut files, &mut facts);
        facts.unreadable = files.unreadable;
        facts
    }
}

/// Reads files below a root and records those that exist but cannot be read.
struct Files<'a> {
    root: &'a Path,
    unreadable: Vec<String>,
}

impl Files<'_> {
    fn text(&mut self, path: impl AsRef<Path>) -> Option<String> {
        let path = self.root.join(path);
        fs::read_to_string(&path).map_err(|error| self.record(&path, &error)).ok()
    }

    fn number(&mut self, path: &str) -> Option<u64> {
        self.text(path)?.trim().parse().ok()
    }

    /// A file in a format that procfs knows.
    fn parse<T: FromRead>(&mut self, path: &str) -> Option<T> {
        let text = self.text(path)?;
        let parsed = T::from_read(text.as_bytes());
        parsed.map_err(|error| self.unreadable.push(format!("/{path}: {error}"))).ok()
    }

    /// The entries of a directory, sorted.
    fn entries(&mut self, path: impl AsRef<Path>) -> Vec<PathBuf> {
        let path = self.root.join(path);
        let entries = fs::read_dir(&path).map_err(|error| self.record(&path, &error));
        let entries = entries.into_iter().flatten();
        let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        paths.sort();
        paths
    }

    /// A missing file is a fact; only a denied one is reported.
    fn record(&mut self, path: &Path, error: &io::Error) {
        if error.kind() == ErrorKind::PermissionDenied {
            self.unreadable.push(format!("{}: {error}", path.display()));
        }
    }
}

/// The last part of a path.
fn name(path: &Path) -> Cow<'_, str> {
    path.file_name().unwrap_or_default().to_string_lossy()
}

/// Sum of the second column, hexadecimal, of a line per vCPU (net/core/net-procfs.c).
fn backlog_drops(softnet: &str) -> u64 {
    let column = |line: &str| u64::from_str_radix(line.split_whitespace().nth(1)?, 16).ok();
    softnet.lines().filter_map(column).sum()
}

/// The UDP counters of both families; a host without IPv6 has no file for it.
fn udp(files: &mut Files<'_>) -> Option<Udp> {
    let v4: Snmp = files.parse("proc/net/snmp")?;
    let mut udp = Udp {
        received: v4.udp_in_datagrams,
        receive_drops: v4.udp_rcvbuf_errors,
        send_drops: v4.udp_sndbuf_errors,
    };
    if let Some(v6) = files.parse::<Snmp6>("proc/net/snmp6") {
        udp.received += v6.udp_in_datagrams;
        udp.receive_drops += v6.udp_rcvbuf_errors;
        udp.send_drops += v6.udp_sndbuf_errors;
    }
    Some(udp)
}

fn conntrack(files: &mut Files<'_>, ports: &BTreeSet<u16>, quick: bool) -> Option<Conntrack> {
    let max = files.number("proc/sys/net/netfilter/nf_conntrack_max")?;
    let entries = files.number("proc/sys/net/netfilter/nf_conntrack_count")?;
    let of_tracker = if quick || entries == 0 { None } else { tracked(files, ports) };
    Some(Conntrack { entries, max, of_tracker })
}

/// Entries of these UDP ports in the table of connection tracking: lines with `udp` and the port as
/// `sport=` or `dport=`. Root may read the table if the kernel was built with
/// CONFIG_NF_CONNTRACK_PROCFS.
fn tracked(files: &mut Files<'_>, ports: &BTreeSet<u16>) -> Option<u64> {
    let path = files.root.join("proc/net/nf_conntrack");
    let table = File::open(&path).map_err(|error| files.record(&path, &error));
    let is_ours = |line: &str| {
        line.split_whitespace().any(|word| word == "udp")
            && line.split_whitespace().any(|word| {
                let port = word.strip_prefix("dport=").or_else(|| word.strip_prefix("sport="));
                port.and_then(|port| port.parse().ok()).is_some_and(|port| ports.contains(&port))
            })
    };
    let lines = BufReader::new(table.ok()?).lines().map_while(Result::ok);
    Some(lines.filter(|line| is_ours(line)).count() as u64)
}

/// The file system of the state directory, or of the directory that it will be created in.
fn state_disk(root: &Path, settings: &Settings) -> Option<StateDisk> {
    let directory = settings.state_dir.as_ref().filter(|_| settings.snapshot.enabled)?;
    let here = root.join(directory.strip_prefix("/").unwrap_or(directory));
    let found = here.ancestors().find_map(|directory| statvfs(directory).ok())?;
    let snapshot = fs::metadata(here.join(snapshot::FILE)).map_or(0, |metadata| metadata.len());
    let free = found.blocks_available() * found.fragment_size();
    Some(StateDisk { directory: directory.clone(), free, snapshot })
}

fn governors(files: &mut Files<'_>) -> Vec<Governor> {
    let cpus = files.entries("sys/devices/system/cpu");
    let mut read = |cpu: &Path, file: &str| {
        let text = files.text(cpu.join("cpufreq").join(file))?;
        Some(text.trim().to_owned())
    };
    let governor = |cpu: &PathBuf| {
        Some(Governor {
            name: read(cpu, "scaling_governor")?,
            driver: read(cpu, "scaling_driver").unwrap_or_default(),
            preference: read(cpu, "energy_performance_preference"),
        })
    };
    cpus.iter().filter_map(governor).collect()
}

/// Cards that are up and have a device: no bridges, tunnels or loopback.
fn cards(files: &mut Files<'_>) -> Vec<Card> {
    let mut cards = Vec::new();
    for path in files.entries("sys/class/net") {
        let up = files.text(path.join("operstate")).is_some_and(|text| text.trim() == "up");
        if !up || !path.join("device").exists() {
            continue;
        }
        let mut queues = files.entries(path.join("queues"));
        queues.retain(|queue| name(queue).starts_with("rx-"));
        let moves_packets = |queue: &&PathBuf| {
            let mask = files.text(queue.join("rps_cpus")).unwrap_or_default();
            mask.chars().any(|digit| digit.is_ascii_hexdigit() && digit != '0')
        };
        let rps_queues = queues.iter().filter(moves_packets).count() as u64;
        // The device of a virtio card is a child of the PCI device, which has the interrupts; `..`
        // follows the link, as in the kernel.
        let mut irqs = files.entries(path.join("device/msi_irqs"));
        if irqs.is_empty() {
            irqs = files.entries(path.join("device/../msi_irqs"));
        }
        let interrupts = irqs
            .iter()
            .filter_map(|irq| files.text(format!("proc/irq/{}/effective_affinity_list", name(irq))))
            .filter_map(|text| affinity::parse_list(&text))
            .collect();
        let (name, queues) = (name(&path).into_owned(), queues.len() as u64);
        cards.push(Card { name, queues, rps_queues, interrupts });
    }
    cards
}

/// Limits, user and resources of the tracker that holds the port; of the current process if there
/// is none. The limits of a shell differ from those of a unit.
fn limits(files: &mut Files<'_>, facts: &mut Facts) {
    let mut processes = facts.holders.iter().flat_map(|holder| &holder.processes);
    let tracker = processes.find(|process| process.name == "onrush").map(|process| process.id);
    let of_tracker =
        tracker.and_then(|pid| Some((pid, files.parse::<Limits>(&format!("proc/{pid}/limits"))?)));
    facts.tracker = of_tracker.as_ref().map(|(pid, _)| *pid);
    let process = facts.tracker.map_or_else(|| "self".to_owned(), |pid| pid.to_string());
    let limits = of_tracker.map(|(_, limits)| limits).or_else(|| files.parse("proc/self/limits"));
    facts.files = limits.and_then(|limits| match limits.max_open_files.soft_limit {
        LimitValue::Value(files) => Some(files),
        LimitValue::Unlimited => None,
    });
    let status = files.parse::<Status>(&format!("proc/{process}/status"));
    facts.root = status.as_ref().map(|status| status.euid == 0);
    if facts.tracker.is_some() {
        let granted = granted(files.root, &process);
        facts.quota = granted.cpu_quota;
        facts.memory = granted.memory.or(facts.memory);
        if let Some(cpus) = status.and_then(|status| status.cpus_allowed_list) {
            facts.vcpus = cpus.iter().map(|(first, last)| u64::from(last - first) + 1).sum();
        }
    }
}

#[cfg(test)]
mod tests;
