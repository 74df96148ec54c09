//! The network interfaces of this network namespace, by rtnetlink(7): what a program at one of them
//! has to know, and what prevents it.

use std::io;
use std::net::IpAddr;

use nix::ifaddrs::getifaddrs;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

/// Numbers of include/uapi/linux/{netlink,rtnetlink,if_link}.h.
const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
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
/// The flag of attributes that have attributes.
const NLA_F_NESTED: u16 = 0x8000;
/// Bytes of `struct nlmsghdr`, and of `struct ifinfomsg` behind it.
const HEAD_LEN: usize = 16;
const INFO_LEN: usize = 16;
/// Bytes of a datagram of a dump: the kernel fills no more unless it is asked to.
const DATAGRAM: usize = 32 << 10;

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
    let flags = SocketFlags::CLOEXEC;
    // No protocol is NETLINK_ROUTE.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    let mut request = Vec::with_capacity(HEAD_LEN + INFO_LEN);
    request.extend(((HEAD_LEN + INFO_LEN) as u32).to_ne_bytes());
    request.extend(RTM_GETLINK.to_ne_bytes());
    request.extend(NLM_F_REQUEST_DUMP.to_ne_bytes());
    request.resize(HEAD_LEN + INFO_LEN, 0);
    send(&socket, &request, SendFlags::empty())?;
    let (mut devices, mut buffer) = (Vec::new(), vec![0; DATAGRAM]);
    loop {
        let (_, len) = recv(&socket, &mut buffer[..], RecvFlags::empty())?;
        if len == 0 || read_datagram(&buffer[..len], &mut devices)? {
            return Ok(devices);
        }
    }
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

/// Appends the interfaces of a datagram. Returns whether it is the last one.
fn read_datagram(mut rest: &[u8], devices: &mut Vec<Device>) -> io::Result<bool> {
    while let Some(head) = rest.first_chunk::<HEAD_LEN>() {
        let len = word(&head[..4]) as usize;
        let Some(message) = rest.get(HEAD_LEN..len) else { return Ok(true) };
        match half(&head[4..6]) {
            NLMSG_DONE => return Ok(true),
            NLMSG_ERROR => {
                let error = message.get(..4).map_or(0, word) as i32;
                return Err(io::Error::from_raw_os_error(-error));
            }
            RTM_NEWLINK => devices.extend(read_device(message)),
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
        let link = message(RTM_NEWLINK, &parts.concat());
        let mut found = Vec::new();
        assert!(!read_datagram(&link, &mut found).unwrap());
        let expected = Device {
            index: 9,
            name: "eth0.7".to_owned(),
            mac: [2, 0, 0, 0, 0, 5],
            mtu: 0,
            kind: "vlan".to_owned(),
            vlan: Some((2, 7)),
            program: Some(44),
        };
        assert_eq!(found, [expected]);
        let end = [link.clone(), message(NLMSG_DONE, &[0; 4])].concat();
        assert!(read_datagram(&end, &mut found).unwrap() && found.len() == 2);
        let refused = message(NLMSG_ERROR, &(-libc::EPERM).to_ne_bytes());
        let error = read_datagram(&refused, &mut found).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EPERM));
        for len in 0..link.len() {
            let _ = read_datagram(&link[..len], &mut found);
        }
    }
}
