//! The keys of the table `xdp`.

use onrush_toml_keys::{Kind, integer, keys, list, switch, word};
use serde::Deserialize;

use crate::values::is_interface;

/// The key of the interfaces.
pub const XDP_INTERFACES: &str = "xdp.interfaces";
/// The key of the size of the queues' rings.
pub const XDP_RING: &str = "xdp.ring";
const INTERFACE: Kind = Kind::Text("the name of a network interface, in quotes", is_interface);

keys! {
    /// The XDP program.
    #[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
    pub struct XdpSettings {
        /// The network interfaces, like "eth0", in whose drivers the program inspects every frame.
        /// It serves the addresses of `listen` that the interface and its VLANs have; all else
        /// reaches the kernel and the sockets as without it. Each queue of an interface gets an
        /// AF_XDP socket of a worker. Linux 6.1 or newer is needed, and CAP_BPF, CAP_NET_ADMIN,
        /// CAP_NET_RAW and CAP_PERFMON at start. Flag: --xdp.
        pub interfaces: Vec<String> = list(&INTERFACE, 0..=16).default("[]"),

        /// Whether the tracker exits with status 2 where the program cannot be used on one of the
        /// interfaces, or one of their queues cannot be opened. Otherwise the tracker logs a
        /// warning and uses its UDP sockets there.
        pub required: bool = switch().default("false"),

        /// Who runs the program: "native" is the driver, before the kernel allocates memory for a
        /// frame; "generic" is the kernel's network stack, for drivers without XDP, which gains
        /// little.
        pub mode: XdpMode = word(&["native", "generic"]).default("\"native\"").on_restart(),

        /// Whether the device reads and writes the memory of the queues itself. Not all drivers
        /// can, and some have faults there: try it before you rely on it.
        pub zero_copy: bool = switch().default("false"),

        /// Entries of the receive and transmit rings of a queue, a power of two. A queue takes
        /// 8 KiB of locked memory for each entry, in all 16 MiB by default.
        pub ring: u32 = integer(64..=65_536, "entries").default("2048"),

        /// Who answers connects: "driver" is the program, "workers" are those with sockets. "auto"
        /// is the program, unless one of the interfaces is a veth device: it loses what a program
        /// transmits unless the device at the other end has an XDP program as well.
        pub connects: XdpConnects =
            word(&["auto", "driver", "workers"]).default("\"auto\""),

        /// Where the program sends replies: "back" to the MAC address that the request came from,
        /// "table" to the next hop of the kernel's routing table. The latter needs forwarding on
        /// the loopback device alone (net.ipv4.conf.lo.forwarding=1, and the same of net.ipv6).
        /// Where the table leads to another interface, or to a next hop whose MAC address is
        /// unknown, workers answer.
        pub replies: XdpReplies = word(&["back", "table"]).default("\"back\""),

        /// How long an idle worker polls the device of a queue at each look (SO_BUSY_POLL,
        /// SO_PREFER_BUSY_POLL); 0 leaves that to interrupts. It has effect while the worker does
        /// not sleep (`workers.spin`), and where interrupts are deferred
        /// (/sys/class/net/eth0/napi_defer_hard_irqs and gro_flush_timeout).
        pub busy_poll: u32 = integer(0..=10_000, "microseconds").default("0"),
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

impl XdpMode {
    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Generic => "generic",
        }
    }
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
