//! The machine that measures, for reports: what one has to know to compare figures. Read from
//! /proc and /sys; what a host does not tell is left out.

use std::collections::BTreeMap;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::chart::Unit;

/// Settings of the kernel's network stack that decide what is dropped.
const SYSCTLS: [&str; 7] = [
    "net.core.rmem_max",
    "net.core.rmem_default",
    "net.core.wmem_max",
    "net.core.wmem_default",
    "net.core.netdev_max_backlog",
    "net.core.busy_poll",
    "net.core.busy_read",
];

/// A machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
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
    /// What the kernel does about each of the processor's weaknesses, those left out that the
    /// processor does not have.
    pub mitigations: BTreeMap<String, String>,
    /// The frequency governor of vCPU 0.
    pub governor: Option<String>,
    /// Settings of the network stack.
    pub sysctls: BTreeMap<String, String>,
    /// The hypervisor, or that there is one.
    pub virtualization: Option<String>,
    /// Load average over 1, 5 and 15 minutes, before the start.
    pub load_average: Vec<f64>,
    /// The commit that this tool was built from, where the build was told
    /// (`ONRUSH_COMMIT=$(git rev-parse HEAD) cargo build`).
    pub commit: Option<String>,
}

impl Environment {
    /// This machine, now.
    pub fn read() -> Self {
        Self::read_below(Path::new("/"))
    }

    /// A machine with its /proc and /sys below `root`.
    fn read_below(root: &Path) -> Self {
        let text = |path: &str| {
            let text = std::fs::read_to_string(root.join(path)).ok()?;
            Some(text.trim().to_owned()).filter(|text| !text.is_empty())
        };
        let cpuinfo = text("proc/cpuinfo").unwrap_or_default();
        let field = |name: &str| {
            let line = cpuinfo.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let memory = text("proc/meminfo").and_then(|meminfo| {
            let line = meminfo.lines().find(|line| line.starts_with("MemTotal:"))?;
            line.split_whitespace().nth(1)?.parse::<u64>().ok()
        });
        let siblings = text("sys/devices/system/cpu/cpu0/topology/thread_siblings_list");
        let sysctl = |name: &&str| {
            let path = format!("proc/sys/{}", name.replace('.', "/"));
            Some(((*name).to_owned(), text(&path)?))
        };
        let load = text("proc/loadavg").unwrap_or_default();
        let vcpus = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
        Self {
            cpu: field("model name").or_else(|| field("Model")).unwrap_or_default(),
            vcpus: vcpus as u32,
            threads_per_core: siblings.map_or(1, |list| listed(&list)),
            memory: memory.unwrap_or(0) * 1024,
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
            commit: option_env!("ONRUSH_COMMIT").map(ToOwned::to_owned),
        }
    }

    /// All of it in words, by name; what the host does not tell is left out.
    pub fn facts(&self) -> Vec<(String, String)> {
        let load: Vec<_> = self.load_average.iter().map(ToString::to_string).collect();
        let known = [
            ("processor", Some(self.cpu.clone())),
            ("vCPUs", Some(format!("{}, {} per core", self.vcpus, self.threads_per_core))),
            ("memory", Some(Unit::Bytes.label(self.memory as f64))),
            ("kernel", Some(self.kernel.clone())),
            ("virtualization", self.virtualization.clone()),
            ("governor", self.governor.clone()),
            ("load average before", Some(load.join(", "))),
            ("commit", self.commit.clone()),
        ];
        let known = known.into_iter().filter_map(|(name, text)| Some((name.to_owned(), text?)));
        let listed = self.sysctls.iter().chain(&self.mitigations);
        known.chain(listed.map(|(name, text)| (name.clone(), text.clone()))).collect()
    }

    /// What makes a measurement on this machine doubtful.
    pub fn warnings(&self) -> Vec<String> {
        let load = self.load_average.first().copied().unwrap_or(0.0);
        if load <= f64::from(self.vcpus) * 0.5 {
            return Vec::new();
        }
        let vcpus = self.vcpus;
        vec![format!(
            "the load average was {load:.1} on {vcpus} vCPUs before the start: others were at \
             work, so compare CPU times rather than rates, or wait until it is quiet"
        )]
    }
}

/// Numbers in a list of the kernel's, like 0-1,4.
fn listed(list: &str) -> u32 {
    let count = |part: &str| match part.split_once('-') {
        Some((from, to)) => Some(to.parse::<u32>().ok()?.checked_sub(from.parse().ok()?)? + 1),
        None => part.parse::<u32>().ok().map(|_| 1),
    };
    list.trim().split(',').filter_map(count).sum::<u32>().max(1)
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

    #[test]
    fn a_machine_is_read_from_its_files() {
        let root = tempfile::tempdir().unwrap();
        let cpu = "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nflags\t\t: fpu hypervisor\n\n";
        for (path, text) in [
            ("proc/cpuinfo", cpu.repeat(2).as_str()),
            ("proc/meminfo", "MemTotal:       1024 kB\nMemFree: 1 kB\n"),
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
        assert_eq!(fact("governor"), None, "not told");
        assert!(read.warnings()[0].contains("3.5 on 2 vCPUs"), "{:?}", read.warnings());
    }

    #[test]
    fn what_is_not_told_is_left_out() {
        let root = tempfile::tempdir().unwrap();
        let read = Environment::read_below(root.path());
        assert_eq!((read.vcpus, read.threads_per_core, read.memory), (0, 1, 0));
        assert!(read.warnings().is_empty() && read.mitigations.is_empty());
        assert!(!Environment::read().kernel.is_empty(), "and this host tells");
    }
}
