//! The properties of the host that settings depend on. Passed as an argument, so that tests can
//! describe any host.

use std::cmp::Reverse;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::mem;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use onrush_tracker::running::Scheme;
use procfs_core::{FromRead, ProcessCGroups};
use serde::{Deserialize, Serialize};

/// The properties of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// The vCPUs that the process may use, each once, in the order in which workers take them: one
    /// of every core before the second ones. If empty, one vCPU and no pinning are assumed.
    pub vcpus: Vec<usize>,
    /// CPU time that the cgroup grants, in thousandths of a vCPU; `None` without a quota.
    pub cpu_quota: Option<u64>,
    /// Bytes of memory that the process may use: that of the host, or the limit of its cgroup.
    pub memory: Option<u64>,
    /// The sockets that a service manager has opened.
    pub passed: Passed,
    /// `$STATE_DIRECTORY`: set by systemd, directories separated by `:` (systemd.exec(5)).
    pub state_directory: Option<OsString>,
    /// `$XDG_STATE_HOME` (XDG Base Directory Specification).
    pub xdg_state_home: Option<OsString>,
    /// `$HOME`.
    pub home: Option<OsString>,
}

/// Sockets that a service manager has opened. The tracker opens those of a kind that has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// The addresses of UDP sockets, each once.
    pub udp: Vec<SocketAddr>,
    /// The number of UDP sockets per address, at least 1 if there are addresses.
    pub each: usize,
    /// The addresses of listeners for HTTP, each once.
    pub http: Vec<SocketAddr>,
    /// The addresses of listeners for HTTPS, each once.
    pub https: Vec<SocketAddr>,
}

/// The kinds of sockets that a service manager has opened: it decides on their addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PassedKinds {
    /// UDP sockets.
    pub udp: bool,
    /// Listeners for HTTP.
    pub http: bool,
    /// Listeners for HTTPS.
    pub https: bool,
}

impl Passed {
    /// The kinds of these sockets.
    pub fn kinds(&self) -> PassedKinds {
        let Self { udp, http, https, .. } = self;
        let [udp, http, https] = [udp, http, https].map(|of| !of.is_empty());
        PassedKinds { udp, http, https }
    }
}

impl PassedKinds {
    /// Whether these are listeners for this.
    pub fn listeners(self, scheme: Scheme) -> bool {
        match scheme {
            Scheme::Http => self.http,
            Scheme::Https => self.https,
        }
    }

    /// Their names, like `UDP and HTTP`; `None` without any.
    pub fn names(self) -> Option<String> {
        let kinds = [(self.udp, "UDP"), (self.http, "HTTP"), (self.https, "HTTPS")];
        let names: Vec<_> = kinds.iter().filter(|(has, _)| *has).map(|(_, name)| *name).collect();
        (!names.is_empty()).then(|| names.join(" and "))
    }
}

impl Host {
    /// This host, for a process whose workers take `vcpus` in this order (see
    /// [`onrush_net::affinity::cores_first`]). Properties that cannot be read are `None`.
    pub fn here(vcpus: Vec<usize>) -> Self {
        let Self { cpu_quota, memory, .. } = granted(Path::new("/"), "self");
        Self { vcpus, cpu_quota, memory, ..Self::environment() }
    }

    /// The environment of this process alone, for programs that only look for a running tracker.
    pub fn environment() -> Self {
        Self {
            state_directory: env::var_os("STATE_DIRECTORY"),
            xdg_state_home: env::var_os("XDG_STATE_HOME"),
            home: env::var_os("HOME"),
            ..Self::default()
        }
    }

    /// The number of vCPUs by CPU time, rounded up, at least 1.
    pub fn vcpu_count(&self) -> usize {
        let granted = self.cpu_quota.map_or(u64::MAX, |quota| quota.div_ceil(1000));
        self.vcpus.len().min(usize::try_from(granted).unwrap_or(usize::MAX)).max(1)
    }

    /// Whether the quota is less than the time of all usable vCPUs.
    pub fn is_short_of_time(&self) -> bool {
        self.cpu_quota.is_some_and(|quota| quota < 1000 * self.vcpus.len() as u64)
    }

    /// The default state directory: that of systemd, else that of the user. Relative paths are
    /// ignored, as the XDG specification requires.
    pub fn state_dir(&self) -> Option<PathBuf> {
        let absolute = |path: PathBuf| path.is_absolute().then_some(path);
        let systemd = || {
            let first = env::split_paths(self.state_directory.as_deref()?).next()?;
            absolute(first)
        };
        let under = |base: &Option<OsString>, rest: &str| {
            absolute(Path::new(base.as_deref().unwrap_or(OsStr::new(""))).join(rest))
        };
        systemd()
            .or_else(|| under(&self.xdg_state_home, "onrush"))
            .or_else(|| under(&self.home, ".local/state/onrush"))
    }
}

/// The CPU quota and memory of the process with this id (or `self`), read from /proc and /sys below
/// `root`; the other fields are empty.
pub fn granted(root: &Path, process: &str) -> Host {
    let [cpu, memory] = ["cpu", "memory"].map(|controller| groups(root, process, controller));
    let installed = fs::read_to_string(root.join("proc/meminfo")).ok();
    // "max" does not parse: no limit.
    let limits = memory.iter().filter_map(|group| read(group, "memory.max")?.trim().parse().ok());
    let v1 = memory.iter().filter_map(|it| memory_limit_v1(&read(it, "memory.limit_in_bytes")?));
    Host {
        cpu_quota: cpu.iter().filter_map(|group| cpu_quota(&read(group, "cpu.max")?)).min(),
        memory: limits.chain(v1).chain(installed.and_then(|text| mem_total(&text))).min(),
        ..Host::default()
    }
}

/// Periods of a CPU quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaPeriods {
    /// Periods in which a process of the group ran.
    pub all: u64,
    /// Periods in which the group had used up its quota, so that the kernel stopped its processes.
    pub throttled: u64,
}

/// The control groups of a process, with the periods of their quotas so far: none without a quota.
#[derive(Debug)]
pub struct Quotas(Vec<(PathBuf, QuotaPeriods)>);

impl Quotas {
    /// The groups of the process with this id (or `self`), read from /proc and /sys below `root`.
    pub fn of(root: &Path, process: &str) -> Self {
        let groups = groups(root, process, "cpu").into_iter();
        Self(groups.filter_map(|group| periods_of(&group).map(|it| (group, it))).collect())
    }

    /// The periods since the previous call, or the start, of the quota that has stopped the process
    /// most often in that time. Those of nested groups are not added up: they are the same time.
    pub fn tick(&mut self) -> QuotaPeriods {
        let periods = self.0.iter_mut().map(|(group, last)| {
            let new = periods_of(group).unwrap_or(*last);
            let QuotaPeriods { all, throttled } = mem::replace(last, new);
            QuotaPeriods {
                all: new.all.saturating_sub(all),
                throttled: new.throttled.saturating_sub(throttled),
            }
        });
        periods.max_by_key(|it| (it.throttled, Reverse(it.all))).unwrap_or_default()
    }
}

/// The periods of a control group so far: those of both versions have them in `cpu.stat`.
fn periods_of(group: &Path) -> Option<QuotaPeriods> {
    let cpu_stat = read(group, "cpu.stat")?;
    let count = |key: &str| {
        let after = |line: &str| line.strip_prefix(key)?.parse::<u64>().ok();
        cpu_stat.lines().find_map(after).unwrap_or(0)
    };
    Some(QuotaPeriods { all: count("nr_periods "), throttled: count("nr_throttled ") })
}

/// The directories of the control groups of a process that may limit it: those of version 2, and
/// those of version 1 for this controller.
fn groups(root: &Path, process: &str, controller: &str) -> Vec<PathBuf> {
    let file = root.join("proc").join(process).join("cgroup");
    let own = ProcessCGroups::from_file(file).map_or_else(|_| Vec::new(), |groups| groups.0);
    let top = root.join("sys/fs/cgroup");
    let directories = own.iter().filter_map(|group| {
        let v1 = group.controllers.iter().any(|name| name == controller);
        let top = if v1 { top.join(controller) } else { top.clone() };
        (v1 || group.hierarchy == 0).then(|| with_parents(&top, &group.pathname))
    });
    directories.flatten().collect()
}

/// Installed memory in bytes. Not parsed by procfs, which needs fields that sandboxes leave out.
fn mem_total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The directories below `top` of a cgroup and of those above it: each may limit. In a container
/// the cgroup may be the top itself, and its name that of the host, which does not exist here.
fn with_parents(top: &Path, name: &str) -> Vec<PathBuf> {
    let own = top.join(name.trim_start_matches('/'));
    own.ancestors().take_while(|path| path.starts_with(top)).map(Path::to_owned).collect()
}

/// `memory.limit_in_bytes` of version 1, which shows the greatest number of pages for no limit.
fn memory_limit_v1(limit: &str) -> Option<u64> {
    limit.trim().parse().ok().filter(|limit| *limit < 1 << 62)
}

fn read(group: &Path, file: &str) -> Option<String> {
    fs::read_to_string(group.join(file)).ok()
}

/// `cpu.max` is "quota period" in microseconds, or "max period" (kernel, cgroup-v2, "CPU
/// Interface Files").
fn cpu_quota(cpu_max: &str) -> Option<u64> {
    let (quota, period) = cpu_max.trim().split_once(' ')?;
    let (quota, period): (u64, u64) = (quota.parse().ok()?, period.parse().ok()?);
    (period > 0).then(|| (quota.saturating_mul(1000) / period).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(state_directory: &str, xdg: &str, home: &str) -> Host {
        let some = |text: &str| (!text.is_empty()).then(|| text.into());
        Host {
            state_directory: some(state_directory),
            xdg_state_home: some(xdg),
            home: some(home),
            ..Host::default()
        }
    }

    #[test]
    fn the_state_directory_is_that_of_systemd_else_that_of_the_user() {
        let dir = |s, x, h| host(s, x, h).state_dir().map(|path| path.display().to_string());
        assert_eq!(dir("/var/lib/a:/var/lib/b", "/x", "/h").as_deref(), Some("/var/lib/a"));
        assert_eq!(dir("relative", "/x", "/h").as_deref(), Some("/x/onrush"));
        assert_eq!(dir("", "/x", "/h").as_deref(), Some("/x/onrush"));
        assert_eq!(dir("", "x", "/h").as_deref(), Some("/h/.local/state/onrush"));
        assert_eq!(dir("", "", "/h").as_deref(), Some("/h/.local/state/onrush"));
        assert_eq!(dir("", "", ""), None);
    }

    #[test]
    fn a_quota_is_rounded_up_to_vcpus() {
        assert_eq!(cpu_quota("max 100000\n"), None);
        assert_eq!(cpu_quota("250000 100000\n"), Some(2500));
        assert_eq!(cpu_quota("1000 100000\n"), Some(10));
        assert_eq!(cpu_quota("5 0"), None);
        let host = |vcpus: usize, cpu_quota| {
            Host { vcpus: (0..vcpus).collect(), cpu_quota, ..Host::default() }.vcpu_count()
        };
        assert_eq!(
            [
                host(8, None),
                host(8, Some(2500)),
                host(2, Some(2500)),
                host(8, Some(10)),
                host(0, None)
            ],
            [8, 3, 2, 1, 1]
        );
        let short =
            |cpu_quota| Host { vcpus: vec![0, 1], cpu_quota, ..Host::default() }.is_short_of_time();
        assert_eq!([short(None), short(Some(2000)), short(Some(1500))], [false, false, true]);
    }

    #[test]
    fn limits_of_every_cgroup_above_and_installed_memory_apply() {
        let root = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("proc/7/cgroup", "0::/system.slice/onrush.service\n");
        write("proc/8/cgroup", "1:cpu:/a\n");
        // A sandbox may show this line only.
        write("proc/meminfo", "MemTotal:           4096 kB\n");
        write("sys/fs/cgroup/system.slice/onrush.service/memory.max", "max\n");
        write("sys/fs/cgroup/system.slice/memory.max", "1048576\n");
        write("sys/fs/cgroup/system.slice/onrush.service/cpu.max", "150000 100000\n");
        let limited = Host { cpu_quota: Some(1500), memory: Some(1 << 20), ..Host::default() };
        assert_eq!(granted(root.path(), "7"), limited);
        let unlimited = Host { memory: Some(4 << 20), ..Host::default() };
        assert_eq!(granted(root.path(), "8"), unlimited);
    }

    /// Of both versions, and of every group above, also if an older one was stopped more often.
    #[test]
    fn periods_of_the_quota_that_stops_most_since_the_last_call_are_counted() {
        let root = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let count = |group: &str, all: u64, throttled: u64| {
            let text = format!("usage_usec 7\nnr_periods {all}\nnr_throttled {throttled}\n");
            write(&format!("sys/fs/cgroup/{group}/cpu.stat"), &text);
        };
        write("proc/7/cgroup", "0::/a/b\n");
        write("proc/8/cgroup", "2:cpu,cpuacct:/c\n1:memory:/a\n");
        write("proc/9/cgroup", "0::/d\n");
        count("a", 2_000, 1_000);
        count("cpu/c", 4, 2);
        ["a/b", "cpu", "d"].into_iter().for_each(|group| count(group, 0, 0));
        let mut quotas = ["7", "8", "9", "10"].map(|process| Quotas::of(root.path(), process));
        let mut tick = || {
            quotas.each_mut().map(|quotas| {
                let QuotaPeriods { all, throttled } = quotas.tick();
                (all, throttled)
            })
        };
        assert_eq!(tick(), [(0, 0); 4], "none since the start");
        count("a", 2_010, 1_003);
        count("a/b", 9, 8);
        count("cpu/c", 14, 3);
        assert_eq!(tick(), [(9, 8), (10, 1), (0, 0), (0, 0)]);
        count("a", 2_020, 1_008);
        count("a/b", 19, 9);
        fs::remove_file(root.path().join("sys/fs/cgroup/cpu/c/cpu.stat")).unwrap();
        assert_eq!(tick(), [(10, 5), (0, 0), (0, 0), (0, 0)], "a group above");
    }

    #[test]
    fn the_memory_limit_of_version_1_applies() {
        let root = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let memory = |process| granted(root.path(), process).memory;
        let unlimited = "9223372036854771712\n";
        write("proc/7/cgroup", "9:cpu,cpuacct:/a\n8:memory:/docker/a\n0::/system.slice/docker\n");
        write("sys/fs/cgroup/memory/docker/a/memory.limit_in_bytes", "3145728\n");
        write("sys/fs/cgroup/memory/docker/memory.limit_in_bytes", "2097152\n");
        write("sys/fs/cgroup/memory/memory.limit_in_bytes", unlimited);
        assert_eq!(memory("7"), Some(2 << 20));
        // In a container the directory of the cgroup is mounted as the top.
        write("proc/8/cgroup", "8:memory:/kubepods/b\n");
        assert_eq!(memory("8"), None);
        write("proc/meminfo", "MemTotal:           4096 kB\n");
        assert_eq!(memory("8"), Some(4 << 20));
        write("sys/fs/cgroup/memory/memory.limit_in_bytes", "1048576\n");
        assert_eq!(memory("8"), Some(1 << 20));
    }

    #[test]
    fn this_host_has_memory() {
        let here = Host::here(vec![0]);
        assert!(here.memory.is_some_and(|bytes| bytes > 1 << 20), "{here:?}");
    }
}
