//! Which processes hold the sockets at an address, found by the inodes that the descriptors of
//! processes name in /proc.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use onrush_net::bind::Transport;
use procfs_core::net::{TcpNetEntries, TcpState, UdpNetEntries};
use procfs_core::{ExplicitSystemInfo, FromRead as _, FromReadSI as _, ProcessCGroups};

/// How often the kernel's list is read at most until it has a socket. A program reads it in parts,
/// and a socket that is closed meanwhile shifts the rest, so that another one is in no part.
const READINGS: usize = 20;

/// A socket, and the processes that hold it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its address.
    pub address: SocketAddr,
    /// The id of the user who has opened it.
    pub user: u32,
    /// The processes; none that the current user may not see.
    pub processes: Vec<Process>,
}

/// A process that holds a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// The unit of systemd that it belongs to.
    pub unit: Option<String>,
}

impl Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, name, unit } = self;
        write!(f, "{name} (process {id}")?;
        unit.iter().try_for_each(|unit| write!(f, ", {unit}"))?;
        f.write_str(")")
    }
}

/// The sockets whose addresses are `wanted`, by the files below `root`; of TCP those that listen.
/// Sockets of one address, user and set of processes are one.
pub fn holders(
    root: &Path,
    transport: Transport,
    wanted: impl Fn(SocketAddr) -> bool,
) -> Vec<Holder> {
    let read = || -> BTreeMap<String, Holder> {
        let all = open(root, transport).into_iter().filter(|(address, ..)| wanted(*address));
        let holder = |(address, user, inode)| {
            (format!("socket:[{inode}]"), Holder { address, user, processes: Vec::new() })
        };
        all.map(holder).collect()
    };
    let found = (0..READINGS).map(|_| read()).find(|sockets| !sockets.is_empty());
    let Some(mut sockets) = found else { return Vec::new() };
    for entry in fs::read_dir(root.join("proc")).into_iter().flatten().flatten() {
        let id = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let (Some(id), Ok(files)) = (id, fs::read_dir(entry.path().join("fd"))) else { continue };
        let links = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
        let mut process = None;
        for link in links {
            let Some(socket) = link.to_str().and_then(|link| sockets.get_mut(link)) else {
                continue;
            };
            let process = process.get_or_insert_with(|| describe(&entry.path(), id));
            if !socket.processes.contains(process) {
                socket.processes.push(process.clone());
            }
        }
    }
    let mut holders: Vec<Holder> = Vec::new();
    for mut socket in sockets.into_values() {
        socket.processes.sort_by_key(|process| process.id);
        if !holders.contains(&socket) {
            holders.push(socket);
        }
    }
    holders
}

/// Whether a socket at `other` keeps `address` from being bound alone.
pub fn overlap(address: SocketAddr, other: SocketAddr) -> bool {
    let (ip, theirs) = (address.ip(), other.ip());
    let same = ip == theirs || ip.is_unspecified() || theirs.is_unspecified();
    address.port() == other.port() && address.is_ipv4() == other.is_ipv4() && same
}

/// Address, user and inode of every socket over both families.
fn open(root: &Path, transport: Transport) -> Vec<(SocketAddr, u32, u64)> {
    // Addresses, users and inodes do not depend on the rest.
    let system = ExplicitSystemInfo {
        boot_time_secs: 0,
        ticks_per_second: 100,
        page_size: 4096,
        is_little_endian: cfg!(target_endian = "little"),
    };
    let file = |name: &str| root.join("proc/net").join(name);
    let udp = |name: &str| {
        let entries = UdpNetEntries::from_file(file(name), &system);
        let entries = entries.map_or_else(|_| Vec::new(), |entries| entries.0);
        entries.into_iter().map(|it| (it.local_address, it.uid, it.inode)).collect::<Vec<_>>()
    };
    let tcp = |name: &str| {
        let entries = TcpNetEntries::from_file(file(name), &system);
        let entries = entries.map_or_else(|_| Vec::new(), |entries| entries.0);
        let entries = entries.into_iter().filter(|it| it.state == TcpState::Listen);
        entries.map(|it| (it.local_address, it.uid, it.inode)).collect::<Vec<_>>()
    };
    match transport {
        Transport::Udp => [udp("udp"), udp("udp6")].concat(),
        Transport::Tcp => [tcp("tcp"), tcp("tcp6")].concat(),
    }
}

fn describe(process: &Path, id: u32) -> Process {
    let name = fs::read_to_string(process.join("comm")).unwrap_or_default().trim().to_owned();
    let groups = ProcessCGroups::from_file(process.join("cgroup"));
    let groups = groups.map_or_else(|_| Vec::new(), |groups| groups.0);
    // systemd's own hierarchy: the unified one, or `name=systemd` of version 1.
    let is_unit = |name: &&str| name.ends_with(".service") || name.ends_with(".socket");
    let unit = |path: &str| path.rsplit('/').find(is_unit).map(str::to_owned);
    Process { id, name, unit: groups.iter().find_map(|group| unit(&group.pathname)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, UdpSocket};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    #[test]
    fn sockets_of_this_process_are_found() {
        let (udp, tcp) =
            (UdpSocket::bind("127.0.0.1:0").unwrap(), TcpListener::bind("[::1]:0").unwrap());
        for (transport, address) in
            [(Transport::Udp, udp.local_addr()), (Transport::Tcp, tcp.local_addr())]
        {
            let address = address.unwrap();
            let found = holders(Path::new("/"), transport, |other| other == address);
            assert_eq!(found.len(), 1, "{found:?}");
            let ids: Vec<_> = found[0].processes.iter().map(|process| process.id).collect();
            assert!(ids.contains(&std::process::id()), "{found:?}");
            assert!(!found[0].processes[0].name.is_empty(), "{found:?}");
        }
    }

    #[test]
    fn a_socket_is_found_while_others_are_closed() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let some = (0..500).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap());
                    drop(some.collect::<Vec<_>>());
                }
            });
            let is_found = |_: &u32| {
                !holders(Path::new("/"), Transport::Udp, |other| other == address).is_empty()
            };
            let found = (0..100).filter(is_found).count();
            over.store(true, Ordering::Relaxed);
            assert_eq!(found, 100);
        });
    }

    #[test]
    fn addresses_overlap_within_a_family() {
        let overlap =
            |one: &str, other: &str| super::overlap(one.parse().unwrap(), other.parse().unwrap());
        assert!(overlap("127.0.0.1:80", "0.0.0.0:80") && overlap("[::]:80", "[::1]:80"));
        assert!(!overlap("127.0.0.1:80", "127.0.0.2:80") && !overlap("0.0.0.0:80", "0.0.0.0:81"));
        assert!(!overlap("0.0.0.0:80", "[::]:80"));
    }

    #[test]
    fn a_process_is_named_with_its_unit() {
        let process = Process { id: 7, name: "nginx".into(), unit: Some("nginx.service".into()) };
        assert_eq!(process.to_string(), "nginx (process 7, nginx.service)");
        assert_eq!(Process { unit: None, ..process }.to_string(), "nginx (process 7)");
    }
}
