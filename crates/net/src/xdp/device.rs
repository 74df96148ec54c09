//! The network interfaces of this network namespace, by rtnetlink(7): what a program at one of them
//! needs to know, and what prevents attaching it. What their drivers do, by the family `netdev` of
//! netlink (Documentation/netlink/specs/netdev.yaml) and by the requests of ethtool(8).

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;

use nix::ifaddrs::getifaddrs;
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send,
    socket_with,
};

use crate::sys;

/// Numbers of include/uapi/linux/{netlink,rtnetlink,if_link}.h.
const RTM_GETLINK: u16 = 18;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLMSG_MIN_TYPE: u16 = 16;
const NLM_F_REQUEST_DUMP: u16 = 0x301;
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const IFLA_VLAN_ID: u16 = 1;
const IFLA_XDP: u16 = 43;
const IFLA_XDP_PROG_ID: u16 = 4;
/// Numbers of include/uapi/linux/{genetlink,netdev,ethtool}.h.
const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const NETDEV_CMD_DEV_GET: u8 = 1;
const NETDEV_A_DEV_IFINDEX: u16 = 1;
const NETDEV_A_DEV_XDP_FEATURES: u16 = 3;
const NETDEV_XDP_ACT_BASIC: u64 = 1;
const NETDEV_XDP_ACT_REDIRECT: u64 = 2;
const NETDEV_XDP_ACT_XSK_ZEROCOPY: u64 = 8;
const ETH_FLAG_RXVLAN: u32 = 1 << 8;
const ETH_FLAG_LRO: u32 = 1 << 15;
/// The flag of attributes that have attributes.
const NLA_F_NESTED: u16 = 0x8000;
/// Bytes of `struct nlmsghdr`, and of `struct ifinfomsg` behind it.
const HEAD_LEN: usize = 16;
const INFO_LEN: usize = 16;
/// Bytes of a datagram of a dump: the kernel fills no more unless it is asked to.
const DATAGRAM: usize = 32 << 10;

/// The oldest version of Linux whose programs have what ours use.
pub const OLDEST: [u32; 2] = [6, 1];

/// Whether this version of Linux is too old; an unknown one is not.
pub fn is_too_old(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => [major, minor] < OLDEST,
        _ => false,
    }
}

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// Its number in this network namespace.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its MAC address; zeros where it has none of six bytes.
    pub mac: [u8; 6],
    /// Bytes of the largest IP datagram.
    pub mtu: u32,
    /// The type of a virtual device, like `veth` or `vlan`; empty for others.
    pub kind: String,
    /// The number of the device below it, and its tag, if it is a VLAN.
    pub vlan: Option<(u32, u16)>,
    /// The number of the XDP program that is attached.
    pub program: Option<u32>,
}

/// All interfaces.
///
/// # Errors
/// When a sandbox forbids AF_NETLINK, or the kernel refuses the request.
pub fn devices() -> io::Result<Vec<Device>> {
    let mut devices = Vec::new();
    // No protocol is NETLINK_ROUTE.
    dump(None, RTM_GETLINK, &[0; INFO_LEN], |message| devices.extend(read_device(message)))?;
    Ok(devices)
}

/// What the driver of an interface does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Driver {
    /// The XDP that it has; none before Linux 6.3, which does not report it.
    pub xdp: Option<XdpSupport>,
    /// Whether it joins received packets of a connection (LRO).
    pub joins_packets: bool,
    /// Whether it removes the tags of VLANs (rx-vlan-offload).
    pub removes_tags: bool,
    /// Frames that each receive ring holds, and how many it could hold.
    pub ring: Option<[u32; 2]>,
}

/// The XDP of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpSupport {
    /// The driver has none: the kernel's network stack runs programs.
    Generic,
    /// The driver runs programs.
    Native,
    /// It receives into the frames of AF_XDP sockets, too.
    ZeroCopy,
}

/// What the driver of each of these interfaces does, in their order.
pub fn drivers(devices: &[Device]) -> Vec<Driver> {
    // What cannot be asked is unknown.
    let xdp = xdp_support().unwrap_or_default();
    let driver = |Device { index, name, .. }: &Device| {
        let offloads = sys::offloads(name).unwrap_or(0);
        Driver {
            xdp: xdp.get(index).copied(),
            joins_packets: offloads & ETH_FLAG_LRO != 0,
            removes_tags: offloads & ETH_FLAG_RXVLAN != 0,
            ring: sys::receive_ring(name).ok(),
        }
    };
    devices.iter().map(driver).collect()
}

/// The XDP of all interfaces, by their numbers; empty before Linux 6.3.
fn xdp_support() -> io::Result<HashMap<u32, XdpSupport>> {
    let (mut family, mut support) = (None, HashMap::new());
    let of = |message: &[u8], wanted| {
        let content = message.get(4..).unwrap_or_default();
        attributes(content).find(|(kind, _)| *kind == wanted).map(|(_, value)| value.to_vec())
    };
    let request = [CTRL_CMD_GETFAMILY, 1, 0, 0];
    dump(Some(netlink::GENERIC), GENL_ID_CTRL, &request, |message| {
        if of(message, CTRL_ATTR_FAMILY_NAME).is_some_and(|name| name == *b"netdev\0") {
            family = of(message, CTRL_ATTR_FAMILY_ID).map(|id| half(&id));
        }
    })?;
    let Some(family) = family else { return Ok(support) };
    dump(Some(netlink::GENERIC), family, &[NETDEV_CMD_DEV_GET, 1, 0, 0], |message| {
        let index = of(message, NETDEV_A_DEV_IFINDEX).map(|index| word(&index));
        let bits = of(message, NETDEV_A_DEV_XDP_FEATURES).and_then(|it| it.try_into().ok());
        support.extend(index.zip(bits.map(u64::from_ne_bytes).map(support_of)));
    })?;
    Ok(support)
}

/// Bits of `enum netdev_xdp_act`.
fn support_of(bits: u64) -> XdpSupport {
    let native = NETDEV_XDP_ACT_BASIC | NETDEV_XDP_ACT_REDIRECT;
    match (bits & native == native, bits & NETDEV_XDP_ACT_XSK_ZEROCOPY != 0) {
        (false, _) => XdpSupport::Generic,
        (true, false) => XdpSupport::Native,
        (true, true) => XdpSupport::ZeroCopy,
    }
}

/// Passes what the kernel has of a kind to `read`, message by message.
fn dump(
    protocol: Option<Protocol>,
    kind: u16,
    content: &[u8],
    mut read: impl FnMut(&[u8]),
) -> io::Result<()> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?;
    let mut request = Vec::with_capacity(HEAD_LEN + content.len());
    request.extend(((HEAD_LEN + content.len()) as u32).to_ne_bytes());
    request.extend(kind.to_ne_bytes());
    request.extend(NLM_F_REQUEST_DUMP.to_ne_bytes());
    request.resize(HEAD_LEN, 0);
    request.extend(content);
    send(&socket, &request, SendFlags::empty())?;
    let mut buffer = vec![0; DATAGRAM];
    loop {
        let (_, len) = recv(&socket, &mut buffer[..], RecvFlags::empty())?;
        if len == 0 || read_datagram(&buffer[..len], &mut read)? {
            return Ok(());
        }
    }
}

/// The number of queues of an interface (ethtool(8), `--show-channels`); 1 where the driver names
/// none.
pub fn queues(interface: &str) -> u32 {
    sys::queues(interface).unwrap_or(1).max(1)
}

/// The addresses of all interfaces, with the name of each one's interface.
///
/// # Errors
/// When a sandbox forbids AF_NETLINK.
pub fn addresses() -> io::Result<Vec<(String, IpAddr)>> {
    let of = |found: nix::ifaddrs::InterfaceAddress| {
        let address = found.address?;
        let v4 = address.as_sockaddr_in().map(|it| IpAddr::from(it.ip()));
        let ip = v4.or_else(|| address.as_sockaddr_in6().map(|it| it.ip().into()))?;
        Some((found.interface_name, ip))
    };
    Ok(getifaddrs()?.filter_map(of).collect())
}

/// Reads the messages of a datagram. Returns whether it is the last one.
fn read_datagram(mut rest: &[u8], read: &mut impl FnMut(&[u8])) -> io::Result<bool> {
    while let Some(head) = rest.first_chunk::<HEAD_LEN>() {
        let len = word(&head[..4]) as usize;
        let Some(message) = rest.get(HEAD_LEN..len) else { return Ok(true) };
        match half(&head[4..6]) {
            NLMSG_DONE => return Ok(true),
            NLMSG_ERROR => {
                let error = message.get(..4).map_or(0, word) as i32;
                return Err(io::Error::from_raw_os_error(-error));
            }
            NLMSG_MIN_TYPE.. => read(message),
            _ => {}
        }
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

fn read_device(message: &[u8]) -> Option<Device> {
    let (info, rest) = message.split_at_checked(INFO_LEN)?;
    let mut device = Device { index: word(&info[4..8]), ..Device::default() };
    let (mut below, mut tag) = (None, None);
    for (kind, value) in attributes(rest) {
        match kind {
            IFLA_ADDRESS => device.mac = value.try_into().unwrap_or_default(),
            IFLA_IFNAME => device.name = string(value),
            IFLA_MTU => device.mtu = word(value),
            IFLA_LINK => below = Some(word(value)),
            IFLA_XDP => {
                let id = attributes(value).find(|(kind, _)| *kind == IFLA_XDP_PROG_ID);
                device.program = id.map(|(_, value)| word(value)).filter(|id| *id != 0);
            }
            IFLA_LINKINFO => {
                for (kind, value) in attributes(value) {
                    match kind {
                        IFLA_INFO_KIND => device.kind = string(value),
                        IFLA_INFO_DATA => {
                            let id = attributes(value).find(|(kind, _)| *kind == IFLA_VLAN_ID);
                            tag = id.map(|(_, value)| half(value));
                        }
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    // The attributes of other types have other numbers.
    device.vlan = below.zip(tag).filter(|_| device.kind == "vlan");
    Some(device)
}

/// The attributes in these bytes: the type and the value of each.
fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let len = usize::from(half(rest.get(..2)?));
        let (kind, value) = (half(rest.get(2..4)?), rest.get(4..len)?);
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind & !NLA_F_NESTED, value))
    })
}

/// A number of the kernel; 0 from other bytes.
fn word(bytes: &[u8]) -> u32 {
    bytes.try_into().map_or(0, u32::from_ne_bytes)
}

fn half(bytes: &[u8]) -> u16 {
    bytes.try_into().map_or(0, u16::from_ne_bytes)
}

/// A string with a final zero.
fn string(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.strip_suffix(&[0]).unwrap_or(bytes)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_before_6_1_are_too_old() {
        for old in ["5.15.0-91-generic", "6.0.19", "4.19", "6.0"] {
            assert!(is_too_old(old), "{old}");
        }
        for new in ["6.1.0-18-amd64\n", "6.18.44", "7.0-rc1", "10.2", "", "unknown"] {
            assert!(!is_too_old(new), "{new}");
        }
    }

    #[test]
    fn the_loopback_interface_is_found_with_its_address() {
        let devices = devices().unwrap();
        let loopback = devices.iter().find(|device| device.name == "lo").unwrap();
        let expected =
            Device { index: 1, name: "lo".to_owned(), mtu: loopback.mtu, ..Device::default() };
        assert!(*loopback == expected && loopback.mtu > 1_280, "{loopback:?}");
        assert!(addresses().unwrap().contains(&("lo".to_owned(), [127, 0, 0, 1].into())));
    }

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = ((4 + value.len()) as u16).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn message(kind: u16, content: &[u8]) -> Vec<u8> {
        let mut bytes = ((HEAD_LEN + content.len()) as u32).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.resize(HEAD_LEN, 0);
        bytes.extend(content);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn a_vlan_and_an_attached_program_are_read() {
        let data = attribute(IFLA_INFO_DATA | NLA_F_NESTED, &attribute(IFLA_VLAN_ID, &[7, 0]));
        let vlan = [attribute(IFLA_INFO_KIND, b"vlan\0"), data].concat();
        let parts = [
            vec![0, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            attribute(IFLA_IFNAME, b"eth0.7\0"),
            attribute(IFLA_LINK, &2u32.to_ne_bytes()),
            attribute(IFLA_ADDRESS, &[2, 0, 0, 0, 0, 5]),
            attribute(IFLA_LINKINFO, &vlan),
            attribute(IFLA_XDP, &attribute(IFLA_XDP_PROG_ID, &44u32.to_ne_bytes())),
        ];
        let link = message(NLMSG_MIN_TYPE, &parts.concat());
        let mut found = Vec::new();
        let mut read = |message: &[u8]| found.extend(read_device(message));
        for len in 0..link.len() {
            let _ = read_datagram(&link[..len], &mut read);
        }
        let refused = message(NLMSG_ERROR, &(-libc::EPERM).to_ne_bytes());
        let error = read_datagram(&refused, &mut read).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EPERM));
        assert!(!read_datagram(&link, &mut read).unwrap());
        let end = [link.clone(), message(NLMSG_DONE, &[0; 4])].concat();
        assert!(read_datagram(&end, &mut read).unwrap());
        let expected = Device {
            index: 9,
            name: "eth0.7".to_owned(),
            mac: [2, 0, 0, 0, 0, 5],
            mtu: 0,
            kind: "vlan".to_owned(),
            vlan: Some((2, 7)),
            program: Some(44),
        };
        assert_eq!(found, [expected.clone(), expected]);
    }

    #[test]
    fn drivers_tell_what_they_do() {
        let devices = devices().unwrap();
        let drivers = drivers(&devices);
        let at = devices.iter().position(|device| device.name == "lo").unwrap();
        let loopback = drivers[at];
        assert_eq!((loopback.removes_tags, loopback.ring), (false, None));
        // Linux before 6.3 does not report it.
        assert!(matches!(loopback.xdp, None | Some(XdpSupport::Generic)), "{loopback:?}");
        for (bits, expected) in [
            (0, XdpSupport::Generic),
            (0b1001, XdpSupport::Generic),
            (0b0111, XdpSupport::Native),
            (0b1011, XdpSupport::ZeroCopy),
        ] {
            assert_eq!(support_of(bits), expected);
        }
    }
}
