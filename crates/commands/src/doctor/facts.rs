//! The host below a root (`/`, or a directory in a test): its files, and facts that several checks
//! need or that no file has.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, ErrorKind};
use std::net::{IpAddr, ToSocketAddrs as _, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Duration;

use onrush_config::host::granted;
use onrush_config::{Host, Settings};
use onrush_net::bind::Transport;
use onrush_net::clock;
use onrush_net::xdp::device::{Device, Driver, devices, drivers};
use procfs_core::FromRead;
use procfs_core::process::{LimitValue, Limits, Status};

use onrush_config::socket_holders::{Holder, holders};

/// The input of all checks. `None` means that the host does not have it or does not show it.
#[derive(Debug)]
pub struct Facts {
    /// The files of the host.
    pub files: Files,
    /// The settings of the tracker.
    pub settings: Settings,
    /// Whether checks that take long on a busy host are left out.
    pub quick: bool,
    /// vCPUs that the process may use.
    pub vcpus: u64,
    /// CPU quota of the cgroup, in thousandths of a vCPU.
    pub quota: Option<u64>,
    /// Memory that the process may use, bytes.
    pub memory: Option<u64>,
    /// The sockets at the tracker's ports, and their processes.
    pub holders: Vec<Holder>,
    /// Process id of the tracker that holds a port: limits, user, quota and memory are those of
    /// this process. `None` if none runs or it cannot be read: they are those of the current
    /// process.
    pub tracker: Option<u32>,
    /// Limit of open files of the process (RLIMIT_NOFILE).
    pub open_files: Option<u64>,
    /// Memory that the process may lock (RLIMIT_MEMLOCK), bytes; `None` for any.
    pub memory_lock: Option<u64>,
    /// Whether the process runs as root.
    pub root: Option<bool>,
    /// Estimated error of the wall clock.
    pub clock_error: Option<Duration>,
    /// The network interfaces, and what their drivers do.
    pub interfaces: Vec<(Device, Driver)>,
    /// The addresses of the tracker's name, if it was given.
    pub records: Option<Records>,
}

impl Facts {
    /// The facts of a host. A `quick` look leaves out what takes long on a busy host: the
    /// descriptors of all processes and the table of connection tracking. The state of the clock is
    /// left out too: at boot the tracker may start before it is synchronised.
    pub fn gather(root: &Path, settings: &Settings, host: &Host, quick: bool) -> Self {
        let ports = ports(settings, Transport::Udp);
        let mut facts = Self {
            files: Files { root: root.to_owned(), unreadable: RefCell::default() },
            settings: settings.clone(),
            quick,
            vcpus: host.vcpus.len().max(1) as u64,
            quota: host.cpu_quota,
            memory: host.memory,
            holders: match quick {
                true => Vec::new(),
                false => holders(root, Transport::Udp, |address| ports.contains(&address.port())),
            },
            tracker: None,
            open_files: None,
            memory_lock: None,
            root: None,
            // From the running kernel, as no file has it.
            clock_error: clock::max_error().ok().filter(|_| !quick && root == Path::new("/")),
            interfaces: if quick || root != Path::new("/") { Vec::new() } else { interfaces() },
            records: None,
        };
        facts.gather_limits();
        facts
    }

    /// Limits, user and resources of the tracker that holds the port; of the current process if
    /// there is none. The limits of a shell differ from those of a unit.
    fn gather_limits(&mut self) {
        let limits_of =
            |process: &str| self.files.parse::<Limits>(&format!("proc/{process}/limits"));
        let mut processes = self.holders.iter().flat_map(|holder| &holder.processes);
        let tracker = processes.find(|process| process.name == "onrush").map(|process| process.id);
        let of_tracker = tracker.and_then(|id| Some((id, limits_of(&id.to_string())?)));
        self.tracker = of_tracker.as_ref().map(|(id, _)| *id);
        let process = self.tracker.map_or_else(|| "self".to_owned(), |id| id.to_string());
        let limits = of_tracker.map(|(_, limits)| limits).or_else(|| limits_of("self"));
        let value = |limit| match limit {
            LimitValue::Value(value) => Some(value),
            LimitValue::Unlimited => None,
        };
        let limits = limits.as_ref();
        self.open_files = limits.and_then(|limits| value(limits.max_open_files.soft_limit));
        self.memory_lock = limits.and_then(|limits| value(limits.max_locked_memory.soft_limit));
        let status = self.files.parse::<Status>(&format!("proc/{process}/status"));
        self.root = status.as_ref().map(|status| status.euid == 0);
        if self.tracker.is_some() {
            let granted = granted(&self.files.root, &process);
            self.quota = granted.cpu_quota;
            self.memory = granted.memory.or(self.memory);
            if let Some(cpus) = status.and_then(|status| status.cpus_allowed_list) {
                self.vcpus = cpus.iter().map(|(first, last)| u64::from(last - first) + 1).sum();
            }
        }
    }
}

/// The files of a host.
#[derive(Debug)]
pub struct Files {
    /// The directory that they are below.
    pub root: PathBuf,
    /// Those that exist but cannot be read, with the reason.
    unreadable: RefCell<Vec<String>>,
}

impl Files {
    /// Whether not even one of the files that every Linux host has is there.
    pub fn is_empty(&self) -> bool {
        let common =
            ["proc/sys/net/core/rmem_max", "proc/self/limits", "proc/meminfo", "proc/net/snmp"];
        !common.iter().any(|path| self.root.join(path).exists())
    }

    /// The files that exist but could not be read, with the reason.
    pub fn unreadable(&self) -> Vec<String> {
        self.unreadable.borrow().clone()
    }

    /// The text of a file, without white space around it.
    pub(super) fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        let path = self.root.join(path);
        let text = fs::read_to_string(&path).map_err(|error| self.record(&path, &error)).ok()?;
        Some(text.trim().to_owned())
    }

    pub(super) fn number(&self, path: &str) -> Option<u64> {
        self.text(path)?.parse().ok()
    }

    /// A file in a format that procfs knows.
    pub(super) fn parse<T: FromRead>(&self, path: &str) -> Option<T> {
        let parsed = T::from_read(self.text(path)?.as_bytes());
        parsed.map_err(|error| self.unreadable.borrow_mut().push(format!("/{path}: {error}"))).ok()
    }

    /// The lines of a file that may be long.
    pub(super) fn lines(&self, path: &str) -> Option<impl Iterator<Item = String> + use<>> {
        let path = self.root.join(path);
        let file = File::open(&path).map_err(|error| self.record(&path, &error)).ok()?;
        Some(BufReader::new(file).lines().map_while(Result::ok))
    }

    /// The entries of a directory, sorted.
    pub(super) fn entries(&self, path: impl AsRef<Path>) -> Vec<PathBuf> {
        let path = self.root.join(path);
        let entries = fs::read_dir(&path).map_err(|error| self.record(&path, &error));
        let entries = entries.into_iter().flatten();
        let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        paths.sort();
        paths
    }

    /// A missing file is a fact; only a denied one is reported.
    fn record(&self, path: &Path, error: &io::Error) {
        if error.kind() == ErrorKind::PermissionDenied {
            self.unreadable.borrow_mut().push(format!("{}: {error}", path.display()));
        }
    }
}

fn interfaces() -> Vec<(Device, Driver)> {
    let devices = devices().unwrap_or_default();
    let drivers = drivers(&devices);
    devices.into_iter().zip(drivers).collect()
}

/// The last part of a path.
pub(super) fn name(path: &Path) -> Cow<'_, str> {
    path.file_name().unwrap_or_default().to_string_lossy()
}

/// The addresses of the tracker's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Records {
    /// The name.
    pub name: String,
    /// Its addresses, or why there are none.
    pub found: Result<Vec<Record>, String>,
}

/// An address of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The address.
    pub address: IpAddr,
    /// Whether this host has it.
    pub is_local: bool,
}

impl Records {
    /// Asks the resolver of this host.
    pub fn look_up(name: &str) -> Self {
        let found = (name, 0).to_socket_addrs().map_err(|error| error.to_string());
        let found = found.map(|addresses| {
            let addresses: BTreeSet<IpAddr> = addresses.map(|address| address.ip()).collect();
            let record = |address| Record { address, is_local: is_local(address) };
            addresses.into_iter().map(record).collect()
        });
        Self { name: name.to_owned(), found }
    }
}

/// Whether this host has an address: no other one can be bound.
pub(super) fn is_local(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

/// The ports of the tracker over a protocol, each once, without port 0.
pub(super) fn ports(settings: &Settings, transport: Transport) -> BTreeSet<u16> {
    let listen = match transport {
        Transport::Udp => settings.listen.clone(),
        Transport::Tcp => settings.http.listeners().into_iter().map(|(_, it)| it).collect(),
    };
    listen.iter().map(|listen| listen.address.port()).filter(|port| *port != 0).collect()
}
