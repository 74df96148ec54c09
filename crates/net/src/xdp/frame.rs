//! Frames of UDP over Ethernet, with at most one tag of a VLAN (IEEE 802.1Q), IPv4 without options
//! (RFC 791) or IPv6 without extension headers (RFC 8200).
//!
//! crates/net/bpf/frame.h has the same rules for the XDP programs, which pass long frames and those
//! of link-local addresses as well. The length of IP counts, not that of the frame, which a device
//! pads to 60 bytes.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;

use crate::checksum::{UDP, fold, of_udp, pseudo_header, sum};

const ETHERNET_LEN: usize = 14;
const TAG_LEN: usize = 4;
const V4_LEN: usize = 20;
const V6_LEN: usize = 40;
const UDP_LEN: usize = 8;
/// Protocols of Ethernet (include/uapi/linux/if_ether.h).
const V4: [u8; 2] = [0x08, 0x00];
const V6: [u8; 2] = [0x86, 0xDD];
const VLAN: [u8; 2] = [0x81, 0x00];
/// The bits of a tag that are the number of its VLAN.
const VLAN_ID: u16 = 0x0FFF;
/// Hop limit of replies.
const HOPS: u8 = 64;
/// Don't fragment (RFC 791).
const DF: [u8; 2] = [0x40, 0];
/// The longest payload over IPv4 that no path fragments, so that it needs no identification: every
/// host takes packets of 576 bytes (RFC 791).
const MAX_ATOMIC: usize = 576 - V4_LEN - UDP_LEN;
/// The longest IPv6 packet that every path takes (RFC 8200, section 5).
const MIN_V6_MTU: usize = 1280;
/// Bytes of the longest headers.
const MAX_HEADERS: usize = ETHERNET_LEN + TAG_LEN + V6_LEN + UDP_LEN;

/// The Ethernet header of a frame: destination and source, and the tag (0 without one).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) macs: [[u8; 6]; 2],
    pub(super) tag: u16,
}

/// A received datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Datagram {
    pub(super) link: Link,
    pub(super) source: SocketAddr,
    pub(super) to: SocketAddr,
    /// Its payload, within the frame.
    pub(super) payload: Range<usize>,
}

/// Why a frame is not received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Invalid {
    /// It is not such a frame.
    Form,
    /// The UDP checksum is wrong.
    Checksum,
}

/// Address and port as a packet has them.
#[derive(Clone, Copy, Debug)]
pub(super) struct End<'a> {
    /// 4 or 16 bytes.
    pub(super) ip: &'a [u8],
    pub(super) port: [u8; 2],
}

/// The datagram in a frame.
///
/// # Errors
/// Why there is none.
pub(super) fn parse(frame: &[u8]) -> Result<Datagram, Invalid> {
    let (link, protocol, at) = parse_ethernet(frame).ok_or(Invalid::Form)?;
    let packet = &frame[at..];
    let (addresses, udp) = match protocol {
        V4 => parse_v4(packet),
        V6 => parse_v6(packet),
        _ => None,
    }
    .ok_or(Invalid::Form)?;
    let datagram = &packet[udp.clone()];
    if datagram.len() < UDP_LEN || two(datagram, 4) != (datagram.len() as u16).to_be_bytes() {
        return Err(Invalid::Form);
    }
    let is_v4 = protocol == V4;
    if !checksum_holds(&packet[addresses.clone()], datagram, is_v4) {
        return Err(Invalid::Checksum);
    }
    let addresses = &packet[addresses];
    let (source, to) = addresses.split_at(addresses.len() / 2);
    let payload = at + udp.start + UDP_LEN..at + udp.end;
    Ok(Datagram {
        link,
        source: end(source, two(datagram, 0)),
        to: end(to, two(datagram, 2)),
        payload,
    })
}

/// The Ethernet header, its protocol, and the offset of what follows.
fn parse_ethernet(frame: &[u8]) -> Option<(Link, [u8; 2], usize)> {
    let (header, rest) = frame.split_first_chunk::<ETHERNET_LEN>()?;
    let [a, b, c, d, e, f, g, h, i, j, k, l, protocol @ ..] = *header;
    let macs = [[a, b, c, d, e, f], [g, h, i, j, k, l]];
    // To or from a group: a reply would go to all.
    if (a | g) & 1 == 1 {
        return None;
    }
    if protocol != VLAN {
        return Some((Link { macs, tag: 0 }, protocol, ETHERNET_LEN));
    }
    let tag = u16::from_be_bytes(two(rest.get(..TAG_LEN)?, 0));
    let protocol = two(rest, 2);
    // Number 0 is a priority without a VLAN.
    (tag & VLAN_ID != 0).then_some((Link { macs, tag }, protocol, ETHERNET_LEN + TAG_LEN))
}

/// Where both addresses and the UDP datagram are in an IPv4 packet.
fn parse_v4(packet: &[u8]) -> Option<(Range<usize>, Range<usize>)> {
    let header = packet.first_chunk::<V4_LEN>()?;
    let len = usize::from(u16::from_be_bytes(two(header, 2)));
    let is_fragment = u16::from_be_bytes(two(header, 6)) & 0x3FFF != 0;
    let is_plain = header[0] == 0x45 && header[9] == UDP && !is_fragment;
    let fits = (V4_LEN..=packet.len()).contains(&len);
    (is_plain && fits && fold(sum(header)) == 0xFFFF).then_some((12..V4_LEN, V4_LEN..len))
}

/// The same in an IPv6 packet.
fn parse_v6(packet: &[u8]) -> Option<(Range<usize>, Range<usize>)> {
    let header = packet.first_chunk::<V6_LEN>()?;
    let end = V6_LEN + usize::from(u16::from_be_bytes(two(header, 4)));
    let is_plain = header[0] >> 4 == 6 && header[6] == UDP;
    (is_plain && end <= packet.len()).then_some((8..V6_LEN, V6_LEN..end))
}

/// Whether the checksum is right, absent (IPv4), or the pseudo header's sum, as a sender on this
/// host leaves it for its device (veth).
fn checksum_holds(addresses: &[u8], datagram: &[u8], is_v4: bool) -> bool {
    let found = u16::from_ne_bytes(two(datagram, 6));
    if found == 0 {
        return is_v4;
    }
    let pseudo = pseudo_header(addresses, datagram.len() as u16);
    found == fold(pseudo) || fold(pseudo + sum(datagram)) == 0xFFFF
}

/// Two bytes of a header that has them.
fn two(bytes: &[u8], at: usize) -> [u8; 2] {
    [bytes[at], bytes[at + 1]]
}

fn end(ip: &[u8], port: [u8; 2]) -> SocketAddr {
    let port = u16::from_be_bytes(port);
    match (<[u8; 4]>::try_from(ip), <[u8; 16]>::try_from(ip)) {
        (Ok(ip), _) => SocketAddr::new(Ipv4Addr::from(ip).into(), port),
        (_, ip) => SocketAddr::new(Ipv6Addr::from(ip.unwrap_or_default()).into(), port),
    }
}

/// The longest payload of a frame to a link with this MTU, by the length of an address.
pub(super) fn max_payload(ip_len: usize, mtu: usize) -> usize {
    let longest = super::umem::FRAME_BYTES - MAX_HEADERS;
    let (headers, mtu) = match ip_len {
        4 => (V4_LEN + UDP_LEN, mtu),
        _ => (V6_LEN + UDP_LEN, mtu.min(MIN_V6_MTU)),
    };
    mtu.saturating_sub(headers).min(longest)
}

/// Writes a datagram into a frame, and returns the frame's length. Both addresses are of one
/// family, and the payload is at most [`max_payload`] long. `identification` is that of a packet
/// that a router may have to fragment.
#[inline]
pub(super) fn write(
    frame: &mut [u8],
    link: &Link,
    (from, to): (End<'_>, End<'_>),
    payload: &[u8],
    identification: u16,
) -> usize {
    let is_v4 = from.ip.len() == 4;
    frame[..6].copy_from_slice(&link.macs[0]);
    frame[6..12].copy_from_slice(&link.macs[1]);
    let mut at = 12;
    if link.tag != 0 {
        frame[at..at + 2].copy_from_slice(&VLAN);
        frame[at + 2..at + 4].copy_from_slice(&link.tag.to_be_bytes());
        at += TAG_LEN;
    }
    frame[at..at + 2].copy_from_slice(if is_v4 { &V4 } else { &V6 });
    let packet = &mut frame[at + 2..];
    let len = (UDP_LEN + payload.len()) as u16;
    let (header, addresses) = match is_v4 {
        true => (write_v4(packet, len, identification), 12),
        false => (write_v6(packet, len), 8),
    };
    packet[addresses..addresses + from.ip.len()].copy_from_slice(from.ip);
    packet[addresses + from.ip.len()..header].copy_from_slice(to.ip);
    if is_v4 {
        let checksum = !fold(sum(&packet[..V4_LEN]));
        packet[10..12].copy_from_slice(&checksum.to_ne_bytes());
    }
    let (ip, datagram) = packet.split_at_mut(header);
    let datagram = &mut datagram[..usize::from(len)];
    datagram[..2].copy_from_slice(&from.port);
    datagram[2..4].copy_from_slice(&to.port);
    datagram[4..6].copy_from_slice(&len.to_be_bytes());
    datagram[6..8].fill(0);
    datagram[UDP_LEN..].copy_from_slice(payload);
    let checksum = of_udp(pseudo_header(&ip[addresses..], len) + sum(datagram));
    datagram[6..8].copy_from_slice(&checksum);
    at + 2 + header + usize::from(len)
}

/// Writes an IPv4 header without addresses and checksum; returns its length.
fn write_v4(packet: &mut [u8], len: u16, identification: u16) -> usize {
    let atomic = usize::from(len) <= MAX_ATOMIC + UDP_LEN;
    packet[..2].copy_from_slice(&[0x45, 0]);
    packet[2..4].copy_from_slice(&(V4_LEN as u16 + len).to_be_bytes());
    packet[4..6].copy_from_slice(&if atomic { 0 } else { identification }.to_be_bytes());
    packet[6..8].copy_from_slice(if atomic { &DF } else { &[0, 0] });
    packet[8..12].copy_from_slice(&[HOPS, UDP, 0, 0]);
    V4_LEN
}

/// Writes an IPv6 header without addresses; returns its length.
fn write_v6(packet: &mut [u8], len: u16) -> usize {
    // Version 6, no traffic class, no flow label.
    packet[..4].copy_from_slice(&[0x60, 0, 0, 0]);
    packet[4..6].copy_from_slice(&len.to_be_bytes());
    packet[6..8].copy_from_slice(&[UDP, HOPS]);
    V6_LEN
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
    use proptest::prelude::*;
    use std::net::IpAddr;

    const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];

    fn octets(ip: IpAddr) -> Vec<u8> {
        match ip {
            IpAddr::V4(ip) => ip.octets().to_vec(),
            IpAddr::V6(ip) => ip.octets().to_vec(),
        }
    }

    /// The frame as `write` writes it.
    fn written(link: Link, [from, to]: [SocketAddr; 2], payload: &[u8], id: u16) -> Vec<u8> {
        let mut frame = vec![0xEE; super::super::umem::FRAME_BYTES];
        let (from_ip, to_ip) = (octets(from.ip()), octets(to.ip()));
        let from = End { ip: &from_ip, port: from.port().to_be_bytes() };
        let to = End { ip: &to_ip, port: to.port().to_be_bytes() };
        let len = write(&mut frame, &link, (from, to), payload, id);
        frame.truncate(len);
        frame
    }

    /// The frame as an independent implementation writes it.
    fn built(link: Link, [from, to]: [SocketAddr; 2], payload: &[u8]) -> Vec<u8> {
        let mut frame = Vec::new();
        let ethernet = PacketBuilder::ethernet2(link.macs[1], link.macs[0]);
        let hops = 33;
        macro_rules! write {
            ($link:expr) => {
                match (from.ip(), to.ip()) {
                    (IpAddr::V4(from_ip), IpAddr::V4(to_ip)) => $link
                        .ipv4(from_ip.octets(), to_ip.octets(), hops)
                        .udp(from.port(), to.port())
                        .write(&mut frame, payload),
                    (IpAddr::V6(from_ip), IpAddr::V6(to_ip)) => $link
                        .ipv6(from_ip.octets(), to_ip.octets(), hops)
                        .udp(from.port(), to.port())
                        .write(&mut frame, payload),
                    _ => panic!("two families"),
                }
            };
        }
        match link.tag {
            0 => write!(ethernet),
            tag => write!(ethernet.single_vlan(tag.try_into().unwrap())),
        }
        .unwrap();
        frame
    }

    fn link() -> impl Strategy<Value = Link> {
        prop_oneof![Just(0), 1u16..=VLAN_ID].prop_map(|tag| Link { macs: MACS, tag })
    }

    /// Two addresses of one family.
    fn ends() -> impl Strategy<Value = [SocketAddr; 2]> {
        prop_oneof![
            any::<[(Ipv4Addr, u16); 2]>()
                .prop_map(|ends| ends.map(|(ip, port)| SocketAddr::new(ip.into(), port))),
            any::<[(Ipv6Addr, u16); 2]>()
                .prop_map(|ends| ends.map(|(ip, port)| SocketAddr::new(ip.into(), port))),
        ]
    }

    proptest! {
        #[test]
        fn another_parser_reads_what_is_written(
            link in link(), ends in ends(), id: u16,
            payload in proptest::collection::vec(any::<u8>(), 0..1_400),
        ) {
            let frame = written(link, ends, &payload, id);
            let [from, to] = ends;
            prop_assert_eq!((&frame[..6], &frame[6..12]), (&MACS[0][..], &MACS[1][..]));
            let packet = SlicedPacket::from_ethernet(&frame).unwrap();
            let tags: Vec<u16> = packet.vlan_ids().iter().map(|tag| tag.value()).collect();
            prop_assert_eq!(tags, Vec::from_iter((link.tag != 0).then_some(link.tag)));
            let Some(TransportSlice::Udp(udp)) = packet.transport else { panic!("no UDP") };
            prop_assert_eq!((udp.source_port(), udp.destination_port()), (from.port(), to.port()));
            prop_assert_eq!(udp.payload(), &payload);
            let header = udp.to_header();
            let expected = match packet.net {
                Some(NetSlice::Ipv4(ip)) => {
                    let ip = ip.header().to_header();
                    prop_assert_eq!(IpAddr::from(ip.source), from.ip());
                    prop_assert_eq!(IpAddr::from(ip.destination), to.ip());
                    prop_assert_eq!((ip.time_to_live, ip.dscp.value()), (64, 0));
                    prop_assert_eq!(ip.header_checksum, ip.calc_header_checksum());
                    let expected = if payload.len() <= 548 { (true, 0) } else { (false, id) };
                    prop_assert_eq!((ip.dont_fragment, ip.identification), expected);
                    header.calc_checksum_ipv4(&ip, &payload).unwrap()
                }
                Some(NetSlice::Ipv6(ip)) => {
                    let ip = ip.header().to_header();
                    prop_assert_eq!(IpAddr::from(ip.source), from.ip());
                    prop_assert_eq!(IpAddr::from(ip.destination), to.ip());
                    prop_assert_eq!((ip.hop_limit, ip.flow_label.value()), (64, 0));
                    header.calc_checksum_ipv6(&ip, &payload).unwrap()
                }
                other => panic!("{other:?}"),
            };
            prop_assert_eq!(header.checksum, expected);
            prop_assert_ne!(header.checksum, 0);
        }

        #[test]
        fn what_another_implementation_writes_is_read(
            link in link(), ends in ends(), padding in 0usize..60,
            payload in proptest::collection::vec(any::<u8>(), 0..1_400),
        ) {
            let mut frame = built(link, ends, &payload);
            frame.resize(frame.len() + padding, 0xEE);
            let found = parse(&frame).unwrap();
            prop_assert_eq!((found.link, found.source, found.to), (link, ends[0], ends[1]));
            prop_assert_eq!(&frame[found.payload], &payload);
        }

        /// A datagram with one bit inverted is not received, or no checksum covers the bit.
        #[test]
        fn a_changed_packet_is_not_received(
            ends in ends(), bit in 14usize * 8..,
            payload in proptest::collection::vec(any::<u8>(), 0..100),
        ) {
            let mut frame = built(Link { macs: MACS, tag: 0 }, ends, &payload);
            let (at, bit) = (14 + bit / 8 % (frame.len() - 14), bit % 8);
            frame[at] ^= 1 << bit;
            let is_v4 = ends[0].is_ipv4();
            // Traffic class, flow label and hop limit of IPv6, which has no checksum.
            let is_covered = is_v4 || !(14..18).contains(&at) && at != 21;
            if is_covered {
                let udp = if is_v4 { 34 } else { 54 };
                let absent = is_v4 && frame[udp + 6..udp + 8] == [0, 0];
                prop_assert!(parse(&frame).is_err() || absent);
            }
        }

        #[test]
        fn any_bytes_are_parsed(bytes in proptest::collection::vec(any::<u8>(), 0..200), v4: bool) {
            let mut bytes = bytes;
            for (at, byte) in if v4 {
                [(0, 2), (6, 2), (12, 8), (13, 0), (14, 0x45), (23, 17)]
            } else {
                [(0, 2), (6, 2), (12, 0x86), (13, 0xDD), (14, 0x60), (20, 17)]
            } {
                if let Some(place) = bytes.get_mut(at) {
                    *place = byte;
                }
            }
            let _ = parse(&bytes);
        }
    }

    fn checksum_at(frame: &mut [u8], is_v4: bool) -> &mut [u8] {
        let at = if is_v4 { 14 + 20 + 6 } else { 14 + 40 + 6 };
        &mut frame[at..at + 2]
    }

    #[test]
    fn checksums_may_be_absent_over_ipv4_or_partial() {
        for ends in [["9.9.9.9:1", "10.0.0.1:2"], ["[2001::1]:1", "[2001::2]:2"]] {
            let ends = ends.map(|end| end.parse::<SocketAddr>().unwrap());
            let is_v4 = ends[0].is_ipv4();
            let mut frame = built(Link { macs: MACS, tag: 0 }, ends, b"payload");
            let mut with = |checksum: [u8; 2]| {
                checksum_at(&mut frame, is_v4).copy_from_slice(&checksum);
                parse(&frame).err()
            };
            assert_eq!(with([0, 0]), (!is_v4).then_some(Invalid::Checksum));
            let addresses: Vec<u8> = ends.iter().flat_map(|end| octets(end.ip())).collect();
            let partial = fold(pseudo_header(&addresses, 15)).to_ne_bytes();
            assert_eq!(with(partial), None);
            assert_eq!(with([partial[0], partial[1] ^ 1]), Some(Invalid::Checksum));
        }
    }

    #[test]
    fn frames_of_another_form_are_not_received() {
        let ends = ["9.9.9.9:1", "10.0.0.1:2"].map(|end| end.parse::<SocketAddr>().unwrap());
        let plain = |tag| built(Link { macs: MACS, tag }, ends, b"payload");
        for (what, tag, changes) in [
            ("to a group", 0, &[(0, 3)][..]),
            ("from a group", 0, &[(6, 3)]),
            ("a tag of a priority only", 1, &[(15, 0)]),
            ("two tags", 1, &[(16, 0x81), (17, 0)]),
            ("another protocol", 0, &[(13, 6)]),
            // The checksum of the header holds.
            ("TCP", 0, &[(23, 6), (25, two(&plain(0), 24)[1].wrapping_add(11))]),
            ("UDP shorter than IP", 0, &[(39, 14)]),
        ] {
            let mut frame = plain(tag);
            changes.iter().for_each(|&(at, byte)| frame[at] = byte);
            assert_eq!(parse(&frame).err(), Some(Invalid::Form), "{what}");
        }
        let frame = plain(0);
        for len in 0..frame.len() {
            assert_eq!(parse(&frame[..len]).err(), Some(Invalid::Form), "{len}");
        }
    }

    #[test]
    fn a_payload_fits_link_and_frame() {
        let longest = |ip_len, mtu| max_payload(ip_len, mtu);
        assert_eq!((longest(4, 1500), longest(16, 1500)), (1472, 1232));
        assert_eq!((longest(4, 576), longest(16, 0)), (548, 0));
        assert_eq!(longest(4, 9000), 2048 - 66);
    }
}
