//! Where the facts stand: files below a root, and what tools say.
//!
//! | room | what is in it |
//! |---|---|
//! | `cards` | network cards and the vCPUs that their packets reach |
//! | `processes` | who has the ports, and what the tracker's own process may have and do |

mod cards;
mod processes;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::facts::{Asked, Conntrack, Facts, Governor, Rules, Udp};
use onrush_config::settings::BYTES_PER_PEER;
use onrush_config::{Host, Settings};

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
    /// Looks at the files of a host below `root`, and asks `tool`. Without one it is a quick look: what
    /// only tools know, and who has the ports (each process's descriptors tell), is left out.
    pub fn gather(root: &Path, settings: &Settings, host: &Host, tool: Option<Tool<'_>>) -> Self {
        let mut look = Look { root, unseen: Vec::new() };
        let demux = (
            look.number("proc/sys/net/ipv4/ip_early_demux"),
            look.number("proc/sys/net/ipv4/udp_early_demux"),
        );
        let mut facts = Self {
            asked: asked(settings, host),
            no_ipv6: match look.text("proc/net/if_inet6") {
                Some(text) => text.lines().all(|line| line.ends_with(" lo")),
                // Where other counters of the network are, this one is not there without IPv6.
                None => look.text("proc/net/snmp").is_some(),
            },
            rmem_max: look.number("proc/sys/net/core/rmem_max"),
            wmem_max: look.number("proc/sys/net/core/wmem_max"),
            backlog: look.number("proc/sys/net/core/netdev_max_backlog"),
            flow_entries: look.number("proc/sys/net/core/rps_sock_flow_entries"),
            backlog_drops: look.text("proc/net/softnet_stat").map(|text| backlog_drops(&text)),
            early_demux: demux.1.map(|udp| udp != 0 && demux.0 != Some(0)),
            udp: udp(&mut look),
            conntrack: conntrack(&mut look, tool),
            cards: cards::cards(&mut look),
            governors: governors(&mut look),
            clock: look
                .text("sys/devices/system/clocksource/clocksource0/current_clocksource")
                .map(|text| text.trim().to_owned()),
            io_uring_disabled: look.number("proc/sys/kernel/io_uring_disabled"),
            huge_pages: look
                .text("sys/kernel/mm/transparent_hugepage/enabled")
                .and_then(|text| Some(text.split_once('[')?.1.split_once(']')?.0.to_owned())),
            swap: look.text("proc/meminfo").and_then(|text| swap(&text)),
            ..Self::default()
        };
        if tool.is_some() {
            let ports: BTreeSet<u16> = facts.asked.addresses.iter().map(|a| a.port()).collect();
            facts.holders = processes::holders(&mut look, &ports);
        }
        processes::limits(&mut look, &mut facts);
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
        quota: host.cpu_quota,
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

fn conntrack(look: &mut Look<'_>, tool: Option<Tool<'_>>) -> Option<Conntrack> {
    let max = look.number("proc/sys/net/netfilter/nf_conntrack_max")?;
    let count = look.number("proc/sys/net/netfilter/nf_conntrack_count")?;
    let Some(tool) = tool.filter(|_| count > 0) else {
        return Some(Conntrack { count, max, rules: None });
    };
    let mut read = |command: &[&str]| {
        let said = tool(command);
        said.map_err(|why| look.unseen.push(format!("the firewall's rules: {why}"))).ok()
    };
    let nft = read(&["nft", "--stateless", "list", "ruleset"]);
    let [v4, v6] = ["iptables-save", "ip6tables-save"].map(|name| read(&[name, "-t", "raw"]));
    look.unseen.dedup();
    let any = nft.is_some() || v4.is_some() || v6.is_some();
    let rules = any.then(|| Rules {
        nft: nft.unwrap_or_default(),
        iptables: v4.unwrap_or_default(),
        ip6tables: v6.unwrap_or_default(),
    });
    Some(Conntrack { count, max, rules })
}

fn governors(look: &mut Look<'_>) -> Vec<Governor> {
    let read = |cpu: &Path, file: &str| {
        let text = fs::read_to_string(cpu.join("cpufreq").join(file)).ok()?;
        Some(text.trim().to_owned())
    };
    let governor = |cpu: PathBuf| {
        Some(Governor {
            name: read(&cpu, "scaling_governor")?,
            driver: read(&cpu, "scaling_driver").unwrap_or_default(),
            preference: read(&cpu, "energy_performance_preference"),
        })
    };
    look.entries("sys/devices/system/cpu").into_iter().filter_map(governor).collect()
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

#[cfg(test)]
mod tests;
