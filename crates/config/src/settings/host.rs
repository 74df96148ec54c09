//! What this host is, as far as settings depend on it. Passed in, so that a test can be any host.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use onrush_net::adopt::Adopted;

/// What settings depend on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// The vCPUs that this process may run on, each once, in the order in which workers take them:
    /// one of every core before a core's second thread. None known is taken for one that nothing
    /// can be pinned to.
    pub vcpus: Vec<usize>,
    /// The time that the cgroup grants, in thousandths of a vCPU's; `None` without a quota.
    pub cpu_quota: Option<u64>,
    /// Bytes of memory that the process may take: the host's, or less by its cgroup.
    pub memory: Option<u64>,
    /// The sockets that a service manager has opened; `None` where the tracker opens its own.
    pub passed: Option<Passed>,
    /// `$STATE_DIRECTORY`: set by systemd, several directories with `:` between (systemd.exec(5)).
    pub state_directory: Option<OsString>,
    /// `$XDG_STATE_HOME` (XDG base directory specification).
    pub xdg_state_home: Option<OsString>,
    /// `$HOME`.
    pub home: Option<OsString>,
}

/// Sockets that a service manager has opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passed {
    /// Their addresses, each once.
    pub addresses: Vec<SocketAddr>,
    /// Sockets of each address, at least 1.
    pub each: usize,
}

impl Passed {
    /// What there is to know of them.
    pub fn of(sockets: &Adopted) -> Self {
        Self { addresses: sockets.addresses(), each: sockets.workers() }
    }
}

impl Host {
    /// This host, for a process whose workers take `vcpus` in this order (see
    /// `onrush_net::affinity::cores_first`). What cannot be found out is left out.
    pub fn here(vcpus: Vec<usize>) -> Self {
        let granted = granted(Path::new("/"), "self");
        Self {
            vcpus,
            cpu_quota: granted.cpu_quota,
            memory: granted.memory,
            passed: None,
            state_directory: env::var_os("STATE_DIRECTORY"),
            xdg_state_home: env::var_os("XDG_STATE_HOME"),
            home: env::var_os("HOME"),
        }
    }

    /// vCPUs' worth of time there is, at least 1; one of which there is a part counts.
    pub fn vcpu_count(&self) -> usize {
        let granted = self.cpu_quota.map_or(u64::MAX, |quota| quota.div_ceil(1000));
        self.vcpus.len().min(usize::try_from(granted).unwrap_or(usize::MAX)).max(1)
    }

    /// Whether the quota takes away time of the vCPUs that may be used.
    pub fn is_short_of_time(&self) -> bool {
        self.cpu_quota.is_some_and(|quota| quota < 1000 * self.vcpus.len() as u64)
    }

    /// Where state is kept when nobody says: systemd's directory, else the user's. Relative
    /// paths are passed over, as the XDG specification asks for.
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

/// What a process may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Granted {
    /// Thousandths of a vCPU's time; `None` without a quota.
    pub cpu_quota: Option<u64>,
    /// Bytes of memory.
    pub memory: Option<u64>,
}

/// What the process with this number (or `self`) may take, by the files of a host below `root`.
pub fn granted(root: &Path, process: &str) -> Granted {
    let own = fs::read_to_string(root.join("proc").join(process).join("cgroup"));
    let groups = cgroups(&own.unwrap_or_default(), &root.join("sys/fs/cgroup"));
    let installed = fs::read_to_string(root.join("proc/meminfo")).ok();
    // "max" is no number, and no limit.
    let limits = groups.iter().filter_map(|group| read(group, "memory.max")?.trim().parse().ok());
    Granted {
        cpu_quota: groups.iter().filter_map(|group| cpu_quota(&read(group, "cpu.max")?)).min(),
        memory: limits.chain(installed.and_then(|text| mem_total(&text))).min(),
    }
}

/// Thousandths as people write them: `1.5`.
pub fn thousandths(number: u64) -> String {
    let text = format!("{}.{:03}", number / 1000, number % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The directories of the process's cgroup (version 2) and of those above it: each may limit.
fn cgroups(proc_self_cgroup: &str, root: &Path) -> Vec<PathBuf> {
    let own = proc_self_cgroup.lines().find_map(|line| line.strip_prefix("0::/"));
    let Some(own) = own else { return Vec::new() };
    let own = root.join(own);
    own.ancestors().take_while(|path| path.starts_with(root)).map(Path::to_owned).collect()
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

fn mem_total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
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
    fn state_goes_to_systemds_directory_else_to_the_users() {
        let dir = |s, x, h| host(s, x, h).state_dir().map(|path| path.display().to_string());
        assert_eq!(dir("/var/lib/a:/var/lib/b", "/x", "/h").as_deref(), Some("/var/lib/a"));
        assert_eq!(dir("relative", "/x", "/h").as_deref(), Some("/x/onrush"));
        assert_eq!(dir("", "/x", "/h").as_deref(), Some("/x/onrush"));
        assert_eq!(dir("", "x", "/h").as_deref(), Some("/h/.local/state/onrush"));
        assert_eq!(dir("", "", "/h").as_deref(), Some("/h/.local/state/onrush"));
        assert_eq!(dir("", "", ""), None);
    }

    #[test]
    fn a_quota_counts_as_whole_vcpus_where_workers_are_counted() {
        assert_eq!(cpu_quota("max 100000\n"), None);
        assert_eq!(cpu_quota("250000 100000\n"), Some(2500));
        assert_eq!(cpu_quota("1000 100000\n"), Some(10));
        assert_eq!(cpu_quota("5 0"), None);
        assert_eq!([2500, 10, 2000, 333].map(thousandths), ["2.5", "0.01", "2", "0.333"]);
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
    fn limits_of_every_cgroup_above_count() {
        let root = tempfile::tempdir().unwrap();
        let own = root.path().join("system.slice/onrush.service");
        fs::create_dir_all(&own).unwrap();
        fs::write(own.join("memory.max"), "max\n").unwrap();
        let groups = cgroups("0::/system.slice/onrush.service\n", root.path());
        assert_eq!(groups, [own.clone(), own.parent().unwrap().to_owned(), root.path().to_owned()]);
        assert_eq!(read(&groups[0], "memory.max").as_deref(), Some("max\n"));
        assert!(cgroups("1:cpu:/a\n", root.path()).is_empty());
    }

    #[test]
    fn installed_memory_is_read_in_bytes() {
        assert_eq!(mem_total("MemTotal:        2048 kB\nMemFree: 1 kB\n"), Some(2 << 20));
        assert_eq!(mem_total(""), None);
    }

    #[test]
    fn this_host_has_memory() {
        let here = Host::here(vec![0]);
        assert!(here.memory.is_some_and(|bytes| bytes > 1 << 20), "{here:?}");
    }
}
