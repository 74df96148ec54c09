//! The keys of the table `xdp`.

use onrush_toml_keys::{Kind, keys, list, switch, word};
use serde::Deserialize;

use crate::values::is_interface;

/// The key of the interfaces.
pub const XDP_INTERFACES: &str = "xdp.interfaces";
const INTERFACE: Kind = Kind::Text("the name of a network interface, in quotes", is_interface);

keys! {
    /// The XDP program.
    #[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
    pub struct XdpSettings {
        /// The network interfaces, like "eth0", in whose drivers the program inspects every frame.
        /// It serves the addresses of `listen` that the interface and its VLANs have; all else
        /// reaches the kernel and the sockets as without it. Linux 6.1 or newer is needed, and
        /// CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON at start. Flag: --xdp.
        pub interfaces: Vec<String> = list(&INTERFACE, 0..=16).default("[]"),

        /// Whether the tracker exits with status 2 where the program cannot be used on one of the
        /// interfaces. Otherwise the tracker logs a warning and uses its sockets there.
        pub required: bool = switch().default("false"),

        /// Who runs the program: "native" is the driver, before the kernel allocates memory for a
        /// frame; "generic" is the kernel's network stack, for drivers without XDP, which gains
        /// little.
        pub mode: XdpMode = word(&["native", "generic"]).default("\"native\"").on_restart(),

        /// Who answers connects: "driver" is the program, "workers" are those with sockets. "auto"
        /// is the program, unless one of the interfaces is a veth device: it loses what a program
        /// transmits unless the device at the other end has an XDP program as well.
        pub connects: XdpConnects =
            word(&["auto", "driver", "workers"]).default("\"auto\""),

        /// Where the program sends replies: "back" to the MAC address that the request came from,
        /// "table" to the next hop of the kernel's routing table. The latter needs forwarding on
        /// the interface (net.ipv4.conf.eth0.forwarding=1, and the same of net.ipv6). Where the
        /// table leads to another interface, or to a next hop whose MAC address is unknown, workers
        /// answer.
        pub replies: XdpReplies = word(&["back", "table"]).default("\"back\""),
    }
}

/// `xdp.mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum XdpMode {
    /// The driver runs the program.
    Native,
    /// The kernel's network stack runs it.
    Generic,
}

/// `xdp.connects`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum XdpConnects {
    /// The program, unless one of the interfaces is a veth device.
    Auto,
    /// The program answers them.
    Driver,
    /// The workers answer them.
    Workers,
}

/// `xdp.replies`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum XdpReplies {
    /// To where the request came from.
    Back,
    /// To the next hop of the routing table.
    Table,
}
