//! Facts about the measuring machine that decide whether figures of two reports compare. Read
//! from /proc and /sys; facts that a host does not provide are left out.

use std::collections::BTreeMap;
use std::path::Path;

use onrush_net::affinity;
use procfs_core::{CpuInfo, FromRead as _, Meminfo};
use serde::{Deserialize, Serialize};

use onrush_text::numbers::bytes;

/// Settings of the kernel's network stack that decide when datagrams are dropped.
const SYSCTLS: [&str; 7] = [
    "net.core.rmem_max",
    "net.core.rmem_default",
    "net.core.wmem_max",
    "net.core.wmem_default",
    "net.core.netdev_max_backlog",
    "net.core.busy_poll",
    "net.core.busy_read",
];

/// The measuring machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// The processor's name.
    pub cpu: String,
    /// Online vCPUs.
    pub vcpus: u32,
    /// vCPUs per core: 2 with SMT.
    pub threads_per_core: u32,
    /// Memory in bytes.
    pub memory: u64,
    /// The kernel's version.
    pub kernel: String,
    /// The kernel's mitigation of each CPU vulnerability that affects this processor.
    pub mitigations: BTreeMap<String, String>,
    /// The frequency governor of vCPU 0.
    pub governor: Option<String>,
    /// Settings of the network stack.
    pub sysctls: BTreeMap<String, String>,
    /// The hypervisor's vendor or product; "a hypervisor" where neither is known.
    pub virtualization: Option<String>,
    /// Load average over 1, 5 and 15 minutes, before the start.
    pub load_average: Vec<f64>,
}

impl Environment {
    /// This machine, now.
    pub fn read() -> Self {
        Self::read_below(Path::new("/"))
    }

    /// A machine whose /proc and /sys are under `root`.
    fn read_below(root: &Path) -> Self {
        let text = |path: &str| {
            let text = std::fs::read_to_string(root.join(path)).ok()?;
            Some(text.trim().to_owned()).filter(|text| !text.is_empty())
        };
        let cpuinfo = CpuInfo::from_file(root.join("proc/cpuinfo")).ok();
        let field = |name: &str| Some(cpuinfo.as_ref()?.get_field(0, name)?.to_owned());
        let memory = Meminfo::from_file(root.join("proc/meminfo")).ok();
        let siblings = text("sys/devices/system/cpu/cpu0/topology/thread_siblings_list");
        let sysctl = |name: &&str| {
            let path = format!("proc/sys/{}", name.replace('.', "/"));
            Some(((*name).to_owned(), text(&path)?))
        };
        let load = text("proc/loadavg").unwrap_or_default();
        // Arm has no model name per vCPU; a board's name is in its device tree.
        let board = || Some(text("proc/device-tree/model")?.trim_end_matches('\0').to_owned());
        Self {
            cpu: field("model name").or_else(board).unwrap_or_default(),
            vcpus: cpuinfo.as_ref().map_or(0, |info| info.num_cores() as u32),
            threads_per_core: siblings
                .and_then(|list| affinity::parse_list(&list))
                .map_or(1, |all| all.len() as u32),
            memory: memory.map_or(0, |memory| memory.mem_total),
            kernel: text("proc/sys/kernel/osrelease").unwrap_or_default(),
            mitigations: mitigations(&root.join("sys/devices/system/cpu/vulnerabilities")),
            governor: text("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            sysctls: SYSCTLS.iter().filter_map(sysctl).collect(),
            virtualization: field("flags")
                .filter(|flags| flags.split(' ').any(|flag| flag == "hypervisor"))
                .map(|_| {
                    let product = text("sys/class/dmi/id/product_name");
                    let vendor = text("sys/class/dmi/id/sys_vendor");
                    vendor.or(product).unwrap_or_else(|| "a hypervisor".into())
                }),
            load_average: load.split(' ').take(3).filter_map(|n| n.parse().ok()).collect(),
        }
    }

    /// All known facts as pairs of name and text.
    pub fn facts(&self) -> Vec<(&str, String)> {
        let load: Vec<_> = self.load_average.iter().map(ToString::to_string).collect();
        let known = [
            ("processor", Some(self.cpu.clone())),
            ("vCPUs", Some(format!("{}, {} per core", self.vcpus, self.threads_per_core))),
            ("memory", Some(bytes(self.memory))),
            ("kernel", Some(self.kernel.clone())),
            ("virtualization", self.virtualization.clone()),
            ("governor", self.governor.clone()),
            ("load average before", Some(load.join(", "))),
        ];
        let known = known.into_iter().filter_map(|(name, text)| Some((name, text?)));
        let listed = self.sysctls.iter().chain(&self.mitigations);
        known.chain(listed.map(|(name, text)| (name.as_str(), text.clone()))).collect()
    }

    /// A reason to doubt a measurement on this machine.
    pub fn warning(&self) -> Option<String> {
        let (load, vcpus) = (*self.load_average.first()?, self.vcpus);
        (load > f64::from(vcpus) * 0.5).then(|| {
            format!(
                "the load average was {load:.1} on {vcpus} vCPUs before the start: other \
                 processes were busy, so compare CPU times rather than rates, or wait until the \
                 host is idle"
            )
        })
    }
}

fn mitigations(path: &Path) -> BTreeMap<String, String> {
    let Ok(files) = std::fs::read_dir(path) else { return BTreeMap::new() };
    let of = |file: std::fs::DirEntry| {
        let text = std::fs::read_to_string(file.path()).ok()?;
        let short = text.trim().split(';').next()?.trim();
        let name = file.file_name().into_string().ok()?;
        (short != "Not affected").then(|| (name, short.to_owned()))
    };
    files.flatten().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file as the kernel writes it, of 1 MiB of memory.
    fn meminfo() -> String {
        let others = "MemFree Buffers Cached SwapCached Active Inactive SwapTotal SwapFree Dirty \
                      Writeback Mapped Slab Committed_AS VmallocTotal VmallocUsed VmallocChunk";
        let others = others.split(' ').map(|name| format!("{name}: 1 kB\n"));
        format!("MemTotal:       1024 kB\n{}", others.collect::<String>())
    }

    #[test]
    fn facts_are_read_from_the_kernels_files() {
        let root = tempfile::tempdir().unwrap();
        let cpu = "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nflags\t\t: fpu hypervisor\n\n";
        for (path, text) in [
            ("proc/cpuinfo", cpu.repeat(2).as_str()),
            ("proc/meminfo", meminfo().as_str()),
            ("proc/loadavg", "3.50 0.25 0.10 1/100 4242\n"),
            ("proc/sys/kernel/osrelease", "6.18.1\n"),
            ("proc/sys/net/core/rmem_max", "212992\n"),
            ("sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "0-1\n"),
            ("sys/devices/system/cpu/vulnerabilities/meltdown", "Mitigation: PTI\n"),
            ("sys/devices/system/cpu/vulnerabilities/spectre_v2", "Mitigation: IBRS; IBPB: on\n"),
            ("sys/devices/system/cpu/vulnerabilities/l1tf", "Not affected\n"),
            ("sys/class/dmi/id/sys_vendor", "Some Cloud\n"),
        ] {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let read = Environment::read_below(root.path());
        assert_eq!(
            (read.cpu.as_str(), read.vcpus, read.threads_per_core),
            ("Some CPU @ 2 GHz", 2, 2)
        );
        assert_eq!((read.memory, read.kernel.as_str()), (1 << 20, "6.18.1"));
        assert_eq!(read.mitigations.len(), 2);
        assert_eq!(read.mitigations["spectre_v2"], "Mitigation: IBRS");
        assert_eq!(read.sysctls["net.core.rmem_max"], "212992");
        assert_eq!(read.virtualization.as_deref(), Some("Some Cloud"));
        assert_eq!((read.load_average.len(), read.governor.as_ref()), (3, None));
        let facts = read.facts();
        let fact =
            |name: &str| facts.iter().find(|fact| fact.0 == name).map(|fact| fact.1.as_str());
        assert_eq!(
            (fact("vCPUs"), fact("spectre_v2")),
            (Some("2, 2 per core"), Some("Mitigation: IBRS"))
        );
        assert_eq!(fact("governor"), None);
        let warning = read.warning().unwrap();
        assert!(warning.contains("3.5 on 2 vCPUs"), "{warning}");
    }

    #[test]
    fn missing_facts_are_left_out() {
        let root = tempfile::tempdir().unwrap();
        let read = Environment::read_below(root.path());
        assert_eq!((read.vcpus, read.threads_per_core, read.memory), (0, 1, 0));
        assert!(read.warning().is_none() && read.mitigations.is_empty());
        assert!(!Environment::read().kernel.is_empty(), "the kernel of this host");
    }
}
