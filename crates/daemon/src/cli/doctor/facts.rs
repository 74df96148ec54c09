//! Facts about the host, as plain data. `None` means that the host does not have it or does not
//! show it.

use std::collections::BTreeSet;
use std::net::{IpAddr, ToSocketAddrs as _, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;

use onrush_config::Settings;

use crate::ports::Holder;

/// The input of all checks.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The settings of the tracker.
    pub settings: Settings,
    /// vCPUs that the process may use.
    pub vcpus: u64,
    /// CPU quota of the cgroup, in thousandths of a vCPU.
    pub quota: Option<u64>,
    /// Memory that the process may use, bytes.
    pub memory: Option<u64>,
    /// `net.core.rmem_max`, bytes.
    pub rmem_max: Option<u64>,
    /// `net.core.wmem_max`, bytes.
    pub wmem_max: Option<u64>,
    /// `net.core.netdev_max_backlog`, packets.
    pub backlog: Option<u64>,
    /// `net.core.rps_sock_flow_entries`; RFS is on unless it is 0.
    pub flow_entries: Option<u64>,
    /// Packets dropped because that backlog was full, since the host was booted.
    pub backlog_drops: Option<u64>,
    /// `net.ipv4.udp_early_demux`, and `ip_early_demux` is on too.
    pub early_demux: Option<bool>,
    /// UDP datagrams over both families since the host was booted.
    pub udp: Option<Udp>,
    /// Connection tracking, if the module is loaded.
    pub conntrack: Option<Conntrack>,
    /// Network cards.
    pub cards: Vec<Card>,
    /// The sockets at the tracker's ports, and their processes.
    pub holders: Vec<Holder>,
    /// Estimated error of the wall clock.
    pub clock_error: Option<Duration>,
    /// The file system of the state directory, if snapshots are written to it.
    pub state_disk: Option<StateDisk>,
    /// The addresses of the tracker's name, if it was given.
    pub records: Option<Records>,
    /// The frequency governor of each vCPU that has one.
    pub governors: Vec<Governor>,
    /// The clock source of the kernel.
    pub clock: Option<String>,
    /// Process id of the tracker that holds a port: limits, user, quota and memory are those of
    /// this process. `None` if none runs or it cannot be read: they are those of the current
    /// process.
    pub tracker: Option<u32>,
    /// Limit of open files of the process (RLIMIT_NOFILE).
    pub files: Option<u64>,
    /// Mode of transparent huge pages.
    pub huge_pages: Option<String>,
    /// Swap: total and used bytes.
    pub swap: Option<(u64, u64)>,
    /// Whether the process runs as root.
    pub root: Option<bool>,
    /// Files that could not be read, with the reason.
    pub unreadable: Vec<String>,
}

/// The frequency governor of a vCPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Governor {
    /// The name of the governor.
    pub name: String,
    /// The name of its driver.
    pub driver: String,
    /// The energy performance preference, if the hardware chooses frequencies.
    pub preference: Option<String>,
}

/// UDP counters of the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Udp {
    /// Datagrams received.
    pub received: u64,
    /// Datagrams dropped because a receive buffer was full.
    pub receive_drops: u64,
    /// Datagrams not sent because a send buffer was full.
    pub send_drops: u64,
}

/// Connection tracking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conntrack {
    /// Entries in the table.
    pub entries: u64,
    /// Maximum number of entries.
    pub max: u64,
    /// Entries of the tracker's ports; `None` if the table cannot be read.
    pub of_tracker: Option<u64>,
}

/// A network card that is up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Card {
    /// The name of its interface.
    pub name: String,
    /// Receive queues.
    pub queues: u64,
    /// Receive queues whose packets RPS moves to other vCPUs.
    pub rps_queues: u64,
    /// The vCPUs that each of its interrupts may reach.
    pub interrupts: Vec<Vec<usize>>,
}

/// The file system of the state directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateDisk {
    /// The state directory.
    pub directory: PathBuf,
    /// Bytes that the tracker may still write.
    pub free: u64,
    /// Bytes of the last snapshot; 0 without one.
    pub snapshot: u64,
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
            let record = |address| {
                // Only an address of this host can be bound.
                Record { address, is_local: UdpSocket::bind((address, 0)).is_ok() }
            };
            addresses.into_iter().map(record).collect()
        });
        Self { name: name.to_owned(), found }
    }
}

impl Facts {
    /// Whether not even the files that every Linux host has were found.
    pub fn is_empty(&self) -> bool {
        self.rmem_max.is_none() && self.files.is_none() && self.swap.is_none() && self.udp.is_none()
    }
}

/// The ports of the tracker, each once, without port 0.
pub(super) fn ports(settings: &Settings) -> BTreeSet<u16> {
    settings.listen.iter().map(|listen| listen.address.port()).filter(|port| *port != 0).collect()
}
