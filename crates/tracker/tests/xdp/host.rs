//! A loaded program and an intake with the same rules, and frames as other parsers write them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use etherparse::PacketBuilder;
use onrush_net::clock::monotonic;
use onrush_net::xdp::Verdict;
use onrush_testing::memory_tracker::{SPLIT, rules, settings};
use onrush_tracker::connection::{ConnectionIds, Key, Keys};
use onrush_tracker::intake::Intake;
use onrush_tracker::metrics::WorkerMetrics;
use onrush_tracker::rules::Rules;
use onrush_tracker::xdp::{Place, XdpIntake, XdpSettings};

/// The loopback device, on which a frame arrives in a run of the program.
const LOOPBACK: u32 = 1;
pub(crate) const PORT: u16 = 6969;
/// The MAC addresses of the tracker's device and of the next hop.
pub(crate) const OWN_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub(crate) const ROUTER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// The tracker's addresses, and the VLAN in which it has them as well.
pub(crate) const OWN_V4: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 5);
pub(crate) const OWN_V6: Ipv6Addr = Ipv6Addr::new(0x2a01, 0x4f8, 0, 0, 0, 0, 0, 5);
pub(crate) const VLAN: u16 = 7;
/// The time of all requests, seconds since 1970.
pub(crate) const NOW: u64 = 1_700_000_040;

/// Answers connects; replies go back to where the request came from.
pub(crate) const ANSWERING: XdpSettings = XdpSettings { answer_connects: true, next_hop: false };

/// Sources that [`Host::new`] blocks, some within others.
pub(crate) const BLOCKED: &str = "[access]\nblocked = [\"198.51.0.0/16\", \"2001:db8:bad::/48\"]\n";

pub(crate) struct Host {
    pub(crate) program: XdpIntake,
    pub(crate) intake: Intake,
    pub(crate) rules: Rules,
    pub(crate) ids: ConnectionIds,
    pub(crate) metrics: WorkerMetrics,
    out: Vec<u8>,
}

/// Three sets of keys, as in a rotation.
pub(crate) const KEYS: Keys =
    Keys { current: Key([7; 16]), previous: Some(Key([8; 16])), next: Some(Key([9; 16])) };

impl Host {
    /// By the rules of a configuration text.
    pub(crate) fn new(text: &str) -> Self {
        let mut program = XdpIntake::load().expect("run it as root: scripts/xdp-test");
        for vlan in [0, VLAN] {
            for ip in [IpAddr::from(OWN_V4), OWN_V6.into()] {
                let address = SocketAddr::new(ip, PORT);
                program.serve(&Place { interface: LOOPBACK, vlan, address }, OWN_MAC, 0).unwrap();
            }
        }
        let rules = rules(&settings(&format!("{text}{SPLIT}")));
        let ids = ConnectionIds::new(&KEYS, 120);
        let intake = Intake::new(&rules, 0, ids.clone());
        let mut host = Self {
            program,
            intake,
            rules,
            ids,
            metrics: WorkerMetrics::default(),
            out: Vec::new(),
        };
        host.program.block(&host.rules).unwrap();
        host.renew(ANSWERING);
        host
    }

    /// Gives the program the rules of this second.
    pub(crate) fn renew(&mut self, settings: XdpSettings) {
        self.renew_as_of(settings, monotonic());
    }

    /// The same, where the second began at this time.
    pub(crate) fn renew_as_of(&mut self, settings: XdpSettings, began: u64) {
        self.program.renew(&self.rules, &self.ids, settings, (NOW, began)).unwrap();
    }

    /// The program's verdict on a frame, and the frame as it has left it.
    pub(crate) fn run(&mut self, frame: &[u8]) -> (Verdict, &[u8]) {
        let verdict = self.program.run(frame, &mut self.out).unwrap();
        (verdict, &self.out)
    }
}

/// A frame with a datagram from `source` to the tracker, padded as a device pads it.
pub(crate) fn frame(source: SocketAddr, vlan: u16, datagram: &[u8]) -> Vec<u8> {
    let ethernet = PacketBuilder::ethernet2(ROUTER_MAC, OWN_MAC);
    let mut bytes = Vec::new();
    let (from, hop_limit) = (source.port(), 57);
    match (source.ip(), vlan) {
        (IpAddr::V4(ip), 0) => ethernet
            .ipv4(ip.octets(), OWN_V4.octets(), hop_limit)
            .udp(from, PORT)
            .write(&mut bytes, datagram),
        (IpAddr::V6(ip), 0) => ethernet
            .ipv6(ip.octets(), OWN_V6.octets(), hop_limit)
            .udp(from, PORT)
            .write(&mut bytes, datagram),
        (IpAddr::V4(ip), tag) => ethernet
            .single_vlan(tag.try_into().unwrap())
            .ipv4(ip.octets(), OWN_V4.octets(), hop_limit)
            .udp(from, PORT)
            .write(&mut bytes, datagram),
        (IpAddr::V6(ip), tag) => ethernet
            .single_vlan(tag.try_into().unwrap())
            .ipv6(ip.octets(), OWN_V6.octets(), hop_limit)
            .udp(from, PORT)
            .write(&mut bytes, datagram),
    }
    .unwrap();
    bytes.resize(bytes.len().max(60), 0);
    bytes
}
