//! What is known of the host. Plain data: `None` where the host has no such thing or does not tell.

use std::net::SocketAddr;

/// Everything that the checks go by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// What the tracker will ask of the host.
    pub asked: Asked,
    /// Whether no network card has an address of IPv6: nobody comes over it then.
    pub no_ipv6: bool,
    /// `net.core.rmem_max`, bytes.
    pub rmem_max: Option<u64>,
    /// `net.core.wmem_max`, bytes.
    pub wmem_max: Option<u64>,
    /// `net.core.netdev_max_backlog`, packets.
    pub backlog: Option<u64>,
    /// `net.core.rps_sock_flow_entries`: RFS, where it is not 0.
    pub flow_entries: Option<u64>,
    /// Packets that found that backlog full since the host was started.
    pub backlog_drops: Option<u64>,
    /// `net.ipv4.udp_early_demux`, where `ip_early_demux` is on too.
    pub early_demux: Option<bool>,
    /// UDP datagrams over both families since the host was started.
    pub udp: Option<Udp>,
    /// Connection tracking, where it is loaded.
    pub conntrack: Option<Conntrack>,
    /// Network cards.
    pub cards: Vec<Card>,
    /// Who has the tracker's ports.
    pub holders: Vec<Holder>,
    /// Each vCPU's governor, where frequencies are governed.
    pub governors: Vec<Governor>,
    /// The clock that the kernel reads.
    pub clock: Option<String>,
    /// The tracker that has the port: limits, filter, user, quota and memory are of that process. `None`
    /// where none runs or it may not be looked at: they are of this process.
    pub tracker: Option<u32>,
    /// Open files that the process may have.
    pub files: Option<u64>,
    /// Bytes that the process may lock; `None` also without a limit.
    pub locked_bytes: Option<u64>,
    /// Whether a system-call filter is on the process.
    pub filtered: Option<bool>,
    /// `kernel.io_uring_disabled`.
    pub io_uring_disabled: Option<u64>,
    /// Transparent huge pages: the word in brackets.
    pub huge_pages: Option<String>,
    /// Swap, bytes in all and in use.
    pub swap: Option<(u64, u64)>,
    /// Whether the process is root's.
    pub root: Option<bool>,
    /// What could not be seen, with the reason.
    pub unseen: Vec<String>,
}

/// What the tracker will ask of the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Where it listens.
    pub addresses: Vec<SocketAddr>,
    /// Workers with sockets.
    pub socket_workers: u64,
    /// All of its workers.
    pub workers: u64,
    /// Receive buffer, bytes.
    pub receive_buffer: u64,
    /// Send buffer, bytes.
    pub send_buffer: u64,
    /// Bytes that `limits.peers` may take.
    pub peer_bytes: u64,
    /// Whether it becomes another user.
    pub becomes_user: bool,
    /// vCPUs that it may use.
    pub vcpus: u64,
    /// The time that its cgroup grants, in thousandths of a vCPU's.
    pub quota: Option<u64>,
    /// Memory that it may take, bytes.
    pub memory: Option<u64>,
}

/// How a vCPU's frequency is governed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Governor {
    /// The governor's name.
    pub name: String,
    /// The driver that it works through.
    pub driver: String,
    /// What the hardware was told to prefer, where it chooses frequencies itself.
    pub preference: Option<String>,
}

/// UDP counters of the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Udp {
    /// Datagrams received.
    pub received: u64,
    /// Dropped because a receive buffer was full.
    pub receive_drops: u64,
    /// Not sent because a send buffer was full.
    pub send_drops: u64,
}

/// Connection tracking.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conntrack {
    /// Entries now.
    pub count: u64,
    /// Entries at most.
    pub max: u64,
    /// The firewall's rules, where they can be read.
    pub rules: Option<Rules>,
}

/// A firewall's rules as each tool writes them, empty where it cannot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// nft, of either family.
    pub nft: String,
    /// iptables-save, of IPv4.
    pub iptables: String,
    /// ip6tables-save, of IPv6.
    pub ip6tables: String,
}

/// A network card that is up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Card {
    /// Its name.
    pub name: String,
    /// Receive queues.
    pub queues: u64,
    /// Queues whose packets are handed on to other vCPUs (RPS).
    pub rps_queues: u64,
    /// For each interrupt the vCPUs that it may reach.
    pub interrupts: Vec<Vec<usize>>,
}

/// A process that has a port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    /// The port.
    pub port: u16,
    /// Its number and name; `None` where this user may not see it.
    pub process: Option<(u32, String)>,
}

impl Facts {
    /// Whether not even the most common files were there.
    pub fn nothing_seen(&self) -> bool {
        self.rmem_max.is_none() && self.files.is_none() && self.swap.is_none() && self.udp.is_none()
    }
}
