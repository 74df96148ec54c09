//! Intake in the driver: an XDP program that answers connects and drops what [`intake`] would drop,
//! before the kernel's network stack sees a frame (docs/decisions/0102).
//!
//! The program (crates/tracker/bpf/onrush.c) has the checks of [`intake`] in the same order, for
//! plain frames to the tracker's own addresses. Other requests it redirects to the workers' AF_XDP
//! sockets, past the network stack. What it does not decide, and requests of queues without such a
//! socket, it passes: the workers' UDP sockets get them.
//!
//! | module | contents |
//! |---|---|
//! | [`rules`] | the rules of a second, as the program reads them |
//! | [`counters`] | what the program has counted |
//!
//! [`intake`]: crate::intake

pub mod counters;
pub mod rules;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{BorrowedFd, OwnedFd};

use ipnet::IpNet;
use onrush_net::xdp::{AttachError, Mode, Program, SocketMap, Verdict};

use crate::connection::ConnectionIds;
use crate::metrics::WorkerMetrics;
use crate::rules::Rules;
pub use counters::XdpCounters;
use rules::{BLOCKED, RULES_LEN, encode};

/// The program. The ELF parser needs it aligned.
static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!("../bpf/onrush.o"));

#[repr(align(8))]
struct Aligned<T: ?Sized>(T);

/// The most prefixes of blocked sources, as many as a map of the program holds. With more of them
/// the program passes every frame.
pub const MAX_PREFIXES: usize = 1 << 20;
/// The families of prefixes (include/linux/socket.h).
const AF_INET: u32 = 2;
const AF_INET6: u32 = 10;

/// The most interfaces that have counters of their own.
pub const MAX_INTERFACES: usize = 16;

/// An address of the tracker on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The index of the device.
    pub interface: u32,
    /// The tag of the VLAN (IEEE 802.1Q); 0 without one.
    pub vlan: u16,
    /// Address and port.
    pub address: SocketAddr,
}

impl Place {
    /// `struct place` of the program.
    fn encode(&self) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[..4].copy_from_slice(&self.interface.to_ne_bytes());
        bytes[4..6].copy_from_slice(&self.vlan.to_ne_bytes());
        bytes[6..8].copy_from_slice(&self.address.port().to_be_bytes());
        bytes[8..].copy_from_slice(&mapped(self.address.ip()));
        bytes
    }
}

/// The program in this process, which is given rules every second.
#[derive(Debug)]
pub struct XdpIntake {
    program: Program,
    /// The buffer of rules in force, and the trie of blocked sources that is filled.
    buffer: usize,
    trie: usize,
    /// Whether sources are blocked, and whether all of them fit.
    has_blocked: bool,
    fits: bool,
}

impl XdpIntake {
    /// Loads the program, which passes every frame until it has rules.
    ///
    /// # Errors
    /// When the kernel refuses it, or a capability is missing: CAP_BPF, CAP_NET_ADMIN and
    /// CAP_PERFMON are needed.
    pub fn load() -> io::Result<Self> {
        let program = Program::load(&OBJECT.0, "onrush")?;
        Ok(Self { program, buffer: 0, trie: 0, has_blocked: false, fits: true })
    }

    /// Attaches the program to an interface, until this is dropped; returns the interface's index.
    ///
    /// # Errors
    /// Why the kernel refuses that.
    pub fn attach(&mut self, interface: &str, mode: Mode) -> Result<u32, AttachError> {
        self.program.attach(interface, mode)
    }

    /// Replaces the program that another process holds at the interface `index` by this link.
    ///
    /// # Errors
    /// When the kernel refuses it; the other program stays.
    pub fn replace(&mut self, index: u32, link: OwnedFd) -> io::Result<()> {
        self.program.replace(index, link)
    }

    /// The links of the interfaces that the program is attached to, by their indices.
    pub fn links(&self) -> impl Iterator<Item = (u32, BorrowedFd<'_>)> {
        self.program.links()
    }

    /// Detaches the program, also where copies of its links are left.
    pub fn detach(&mut self) {
        self.program.detach();
    }

    /// Gives the queues of an interface their places among the AF_XDP sockets, as
    /// [`Program::redirect_queues`].
    ///
    /// # Errors
    /// When there are too many interfaces.
    pub fn redirect_queues(&mut self, interface: u32, first: u32, count: u32) -> io::Result<()> {
        self.program.redirect_queues(interface, first, count)
    }

    /// The AF_XDP sockets.
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub fn sockets(&self) -> io::Result<SocketMap> {
        self.program.sockets()
    }

    /// Serves requests to `place`, on a device with this MAC address, and counts them at this
    /// number, which is below [`MAX_INTERFACES`].
    ///
    /// # Errors
    /// When the program has no room for more of them.
    pub fn serve(&mut self, place: &Place, mac: [u8; 6], counters: u16) -> io::Result<()> {
        let mut device = [0; 8];
        device[..6].copy_from_slice(&mac);
        device[6..].copy_from_slice(&counters.to_ne_bytes());
        self.program.insert("places", place.encode(), device)
    }

    /// Passes requests to `place` from now on.
    ///
    /// # Errors
    /// When it was not served.
    pub fn leave(&mut self, place: &Place) -> io::Result<()> {
        self.program.remove::<24, 8>("places", place.encode())
    }

    /// Blocks the sources of `rules`, in place of the former ones, from the next
    /// [`renew`](Self::renew) on. A prefix takes a system call.
    ///
    /// # Errors
    /// When there are too many prefixes, or the kernel refuses one, as memory is short: requests
    /// are passed then.
    pub fn block(&mut self, rules: &Rules) -> io::Result<()> {
        let blocks = &rules.blocks;
        // No prefix of all sources is part of a block: the longest one of a source is its block.
        let all = || rules.blocked.prefixes().map(|net| (net, None));
        let count = all().take(MAX_PREFIXES + 1).count() + blocks.len();
        self.fits = false;
        if count > MAX_PREFIXES {
            return Err(io::Error::other(format!("more than {MAX_PREFIXES} prefixes")));
        }
        let trie = 1 - self.trie;
        let entries = all().chain(blocks.iter().map(|(net, slot)| (net, Some(slot))));
        let entries = entries.map(|(net, slot)| {
            let (bits, length) = prefix(net);
            (bits, length, number(slot).to_ne_bytes())
        });
        self.program.fill_trie(BLOCKED[trie], entries)?;
        (self.trie, self.has_blocked, self.fits) = (trie, count > 0, true);
        Ok(())
    }

    /// Whether the program has all sources of the last call of [`block`](Self::block).
    pub fn has_all_blocked(&self) -> bool {
        self.fits
    }

    /// Gives the program the rules of the second `unix` (since 1970), which began at `began`
    /// (CLOCK_MONOTONIC, nanoseconds), and of the 30 seconds after it. Call it every second: with
    /// older rules the program passes every frame.
    ///
    /// # Errors
    /// When the kernel refuses it.
    pub fn renew(
        &mut self,
        rules: &Rules,
        ids: &ConnectionIds,
        settings: XdpSettings,
        (unix, began): (u64, u64),
    ) -> io::Result<()> {
        let trie = self.has_blocked.then_some(self.trie);
        let rules: [u8; RULES_LEN] = match self.fits {
            true => encode(ids, unix, began, settings.flags(rules.refuse_bogons, trie)),
            false => [0; RULES_LEN],
        };
        let buffer = 1 - self.buffer;
        self.program.set("rules", buffer as u32, rules)?;
        self.program.set("in_force", 0, (buffer as u32).to_ne_bytes())?;
        self.buffer = buffer;
        Ok(())
    }

    /// What the program has counted so far at a number.
    ///
    /// # Errors
    /// When the kernel refuses it, or there is no such number.
    pub fn counters(&self, number: u16) -> io::Result<XdpCounters> {
        Ok(XdpCounters::new(&self.program.sums("counters", number.into())?))
    }

    /// Takes a turn of the member that is the program at the interface with this number: sets its
    /// counters to what the program has counted.
    ///
    /// # Errors
    /// As [`counters`](Self::counters).
    pub fn count(&self, number: u16, metrics: &WorkerMetrics) -> io::Result<()> {
        // The main thread runs, even if the counters cannot be read.
        metrics.turns.add(1);
        self.counters(number)?.write(metrics);
        Ok(())
    }

    /// Requests from the sources of a block that the program has dropped.
    ///
    /// # Errors
    /// When there is no such slot.
    pub fn of_block(&self, slot: usize) -> io::Result<u64> {
        let [count] = self.program.sums("block_counts", number(Some(slot)))?;
        Ok(count)
    }

    /// Sets the counts of the blocks in `rules`, by the number of a member that counts for the
    /// program alone.
    ///
    /// # Errors
    /// When the kernel refuses a count.
    pub fn count_blocks(&self, rules: &Rules, member: usize) -> io::Result<()> {
        rules.blocks.iter().try_for_each(|(_, slot)| {
            rules.blocks.set_count(member, slot, self.of_block(slot)?);
            Ok(())
        })
    }

    /// Runs the program on a frame as if it had arrived on the loopback device, for tests.
    ///
    /// # Errors
    /// As [`Program::run`].
    pub fn run(&mut self, frame: &[u8], out: &mut Vec<u8>) -> io::Result<Verdict> {
        self.program.run(frame, out)
    }
}

/// What the program does beside dropping and redirecting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XdpSettings {
    /// Whether it answers connects; otherwise it leaves them to the workers.
    pub answer_connects: bool,
    /// Whether the next hop of a reply is looked up in the routing table; otherwise a reply goes to
    /// the MAC address that the request came from.
    pub next_hop: bool,
}

/// The number of a block's counter in the program; 0 for sources that the configuration blocks.
fn number(slot: Option<usize>) -> u32 {
    slot.map_or(0, |slot| slot as u32 + 1)
}

/// `struct prefix` of the program, without the length in front: the family, then the address.
fn prefix(net: IpNet) -> ([u8; 20], u32) {
    let mut bits = [0; 20];
    let family = match net.network() {
        IpAddr::V4(ip) => {
            bits[4..8].copy_from_slice(&ip.octets());
            AF_INET
        }
        IpAddr::V6(ip) => {
            bits[4..].copy_from_slice(&ip.octets());
            AF_INET6
        }
    };
    bits[..4].copy_from_slice(&family.to_ne_bytes());
    (bits, 32 + u32::from(net.prefix_len()))
}

/// An address as 16 bytes, IPv4 as IPv4-mapped.
fn mapped(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}
