//! An XDP program, its maps, the interfaces that it is attached to, and a run of it on one frame.
//!
//! Keys and values are bytes as the program's C structs lay them out. The program and its maps
//! exist until the [`Program`] is dropped, and it is detached then, however the process ends:
//! interfaces are held by links (bpf(2), `BPF_LINK_CREATE`; Linux 5.9).

use std::error::Error;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use aya::maps::lpm_trie::Key;
use aya::maps::{Array, HashMap, LpmTrie, Map, MapData, MapError, PerCpuArray, XskMap};
use aya::programs::{TestRun as _, TestRunAttrs, TestRunOptions, Xdp, loaded_programs};
use aya::{Ebpf, EbpfLoader};
use nix::errno::Errno;
use nix::net::if_::if_nametoindex;

use super::device::devices;
use crate::sys::link;

/// Bytes of the largest frame that [`Program::run`] takes: a page less what the kernel puts around
/// a frame.
const MAX_FRAME: usize = 3_400;

/// What a program decides about a frame (include/uapi/linux/bpf.h, `enum xdp_action`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It has failed, and the frame is dropped.
    Aborted,
    /// The frame is dropped.
    Drop,
    /// The kernel's network stack takes the frame.
    Pass,
    /// The frame leaves by the interface on which it arrived.
    Transmit,
    /// The frame goes to a socket or another interface.
    Redirect,
}

/// Where a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The driver, before the kernel allocates memory for a frame.
    Native,
    /// The kernel's network stack, for drivers without XDP. It gains little.
    Generic,
}

/// Flags of include/uapi/linux/if_link.h.
const XDP_FLAGS_SKB_MODE: u32 = 2;
const XDP_FLAGS_DRV_MODE: u32 = 4;

/// Why a program is not attached to an interface. The second line of a message is the remedy.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// There is no interface of this name.
    #[error("there is no interface {0}\n  `ip link` shows those of this host")]
    NoInterface(String),
    /// Another program is attached, of which this is known.
    #[error(
        "another XDP program is attached to {0}: {1}\n  detach it (`ip link set dev {0} xdp off`), \
         or end the process that holds it (`bpftool link`)"
    )]
    Occupied(String, String),
    /// The driver does not run programs.
    #[error(
        "the driver of {0} has no native XDP, or not with the MTU and the features in use ({1})\n  \
         write `mode = \"generic\"`, which works with every driver and gains little; `ethtool -i \
         {0}` names the driver"
    )]
    NoNative(String, io::Error),
    /// The process lacks a capability.
    #[error(
        "attaching a program to {0} needs CAP_NET_ADMIN\n  start as root, or add it to \
         AmbientCapabilities= of the unit"
    )]
    NoPermission(String),
    /// Any other reason.
    #[error("the kernel does not attach a program to {0}: {1}")]
    Other(String, io::Error),
}

/// The program that only redirects (crates/net/bpf/redirect.c). The ELF parser needs it aligned.
static REDIRECT: &Aligned<[u8]> = &Aligned(*include_bytes!("../../bpf/redirect.o"));
/// The program that transmits frames of a client (crates/net/bpf/live.c).
static LIVE: &Aligned<[u8]> = &Aligned(*include_bytes!("../../bpf/live.o"));

#[repr(align(8))]
struct Aligned<T: ?Sized>(T);

/// A loaded program with its maps.
#[derive(Debug)]
pub struct Program {
    object: Ebpf,
    name: &'static str,
    /// The link of each interface that the program is attached to, by the interface's index.
    links: Vec<(u32, OwnedFd)>,
}

impl Program {
    /// Loads the XDP program `name` of an ELF object and creates its maps.
    ///
    /// # Errors
    /// When the object is none, the kernel refuses the program, or a capability is missing:
    /// CAP_BPF, CAP_NET_ADMIN, and CAP_PERFMON for pointers into frames.
    pub fn load(object: &[u8], name: &'static str) -> io::Result<Self> {
        let object = EbpfLoader::new().load(object).map_err(io_error)?;
        let mut program = Self { object, name, links: Vec::new() };
        program.xdp()?.load().map_err(io_error)?;
        Ok(program)
    }

    /// Loads the program that redirects plain frames for the UDP ports of each worker to the AF_XDP
    /// sockets of their queues, and passes all others. Queue q is one of worker q mod their number;
    /// a frame that arrives on a queue of another worker is passed to the port's UDP socket.
    ///
    /// # Errors
    /// As [`load`](Self::load), and for more than 4,096 ports.
    pub fn redirect(workers: &[Vec<u16>]) -> io::Result<Self> {
        let mut program = Self::load(&REDIRECT.0, "redirect")?;
        let count = (workers.len() as u16).to_ne_bytes();
        for (worker, ports) in (0u16..).zip(workers) {
            let [a, b] = worker.to_ne_bytes();
            for port in ports {
                program.insert("ports", port.to_be_bytes(), [a, b, count[0], count[1]])?;
            }
        }
        Ok(program)
    }

    /// Loads the program that transmits frames of a client.
    pub(super) fn live() -> io::Result<Self> {
        Self::load(&LIVE.0, "transmit")
    }

    /// Gives the queues of an interface their places among the program's AF_XDP sockets: `first` is
    /// that of queue 0. Frames of other queues, and of those whose place has no socket, are passed.
    ///
    /// # Errors
    /// When the program redirects no frames, or there are too many interfaces.
    pub fn redirect_queues(&mut self, interface: u32, first: u32, count: u32) -> io::Result<()> {
        let ([a, b, c, d], [e, f, g, h]) = (first.to_ne_bytes(), count.to_ne_bytes());
        self.insert("queues", interface.to_ne_bytes(), [a, b, c, d, e, f, g, h])
    }

    /// The program's AF_XDP sockets.
    ///
    /// # Errors
    /// When the program redirects no frames, or the process has no descriptors left.
    pub fn sockets(&self) -> io::Result<SocketMap> {
        let Some(Map::XskMap(map)) = self.object.map("sockets") else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let map = MapData::from_fd(map.fd().as_fd().try_clone_to_owned()?).map_err(io_error)?;
        Ok(SocketMap { map: Map::XskMap(map).try_into().map_err(io_error)? })
    }

    /// Attaches the program to an interface and returns the interface's index.
    ///
    /// # Errors
    /// Why the kernel refuses that.
    pub fn attach(&mut self, interface: &str, mode: Mode) -> Result<u32, AttachError> {
        let name = || interface.to_owned();
        let index = if_nametoindex(interface).map_err(|_| AttachError::NoInterface(name()))?;
        let flags = match mode {
            Mode::Native => XDP_FLAGS_DRV_MODE,
            Mode::Generic => XDP_FLAGS_SKB_MODE,
        };
        let program = self.descriptor().map_err(|error| AttachError::Other(name(), error))?;
        let link = link::create(program, index, flags).map_err(|error| match (error, mode) {
            (Errno::EBUSY | Errno::EEXIST, _) => AttachError::Occupied(name(), attached(index)),
            (Errno::EOPNOTSUPP | Errno::EINVAL | Errno::ERANGE, Mode::Native) => {
                AttachError::NoNative(name(), error.into())
            }
            (Errno::EPERM, _) => AttachError::NoPermission(name()),
            _ => AttachError::Other(name(), error.into()),
        })?;
        self.links.push((index, link));
        Ok(index)
    }

    /// Replaces the program that another process holds at an interface by this link.
    ///
    /// # Errors
    /// When the kernel refuses it; the other program stays.
    pub fn replace(&mut self, index: u32, link: OwnedFd) -> io::Result<()> {
        link::replace(link.as_fd(), self.descriptor()?)?;
        self.links.push((index, link));
        Ok(())
    }

    /// The links of the interfaces that the program is attached to, by their indices.
    pub fn links(&self) -> impl Iterator<Item = (u32, BorrowedFd<'_>)> {
        self.links.iter().map(|(index, link)| (*index, link.as_fd()))
    }

    /// Detaches the program, also where copies of its links are left.
    pub fn detach(&mut self) {
        for (_, link) in self.links.drain(..) {
            // The interface may be gone.
            let _ = link::detach(link.as_fd());
        }
    }

    /// Sets an element of an array.
    ///
    /// # Errors
    /// When the program has no such array, or its values have another size.
    pub fn set<const V: usize>(&mut self, map: &str, at: u32, value: [u8; V]) -> io::Result<()> {
        let mut array: Array<_, [u8; V]> = self.map(map)?;
        array.set(at, value, 0).map_err(io_error)
    }

    /// Adds or replaces an entry of a hash table.
    ///
    /// # Errors
    /// When the program has no such table, its keys or values have other sizes, or it is full.
    pub fn insert<const K: usize, const V: usize>(
        &mut self,
        map: &str,
        key: [u8; K],
        value: [u8; V],
    ) -> io::Result<()> {
        let mut table: HashMap<_, [u8; K], [u8; V]> = self.map(map)?;
        table.insert(key, value, 0).map_err(io_error)
    }

    /// Removes an entry of a hash table.
    ///
    /// # Errors
    /// When the program has no such table, its keys or values have other sizes, or there is no such
    /// entry.
    pub fn remove<const K: usize, const V: usize>(
        &mut self,
        map: &str,
        key: [u8; K],
    ) -> io::Result<()> {
        let mut table: HashMap<_, [u8; K], [u8; V]> = self.map(map)?;
        table.remove(&key).map_err(io_error)
    }

    /// Makes a trie of prefixes hold exactly these: a prefix's bits and number of bits, and its
    /// value.
    ///
    /// # Errors
    /// When the program has no such trie, its keys or values have other sizes, or it is full.
    pub fn fill_trie<const K: usize, const V: usize>(
        &mut self,
        map: &str,
        prefixes: impl IntoIterator<Item = ([u8; K], u32, [u8; V])>,
    ) -> io::Result<()> {
        let mut trie: LpmTrie<_, [u8; K], [u8; V]> = self.map(map)?;
        let former: Vec<_> = trie.keys().collect::<Result<_, _>>().map_err(io_error)?;
        for key in former {
            trie.remove(&key).map_err(io_error)?;
        }
        prefixes.into_iter().try_for_each(|(bits, length, value)| {
            trie.insert(&Key::new(length, bits), value, 0).map_err(io_error)
        })
    }

    /// The sums over all vCPUs of the counters in an element of an array per vCPU.
    ///
    /// # Errors
    /// When the program has no such array, or its values have another size.
    pub fn sums<const N: usize>(&self, map: &str, at: u32) -> io::Result<[u64; N]> {
        let map = self.object.map(map).ok_or(io::ErrorKind::NotFound)?;
        let array: PerCpuArray<_, [u64; N]> = map.try_into().map_err(io_error)?;
        let mut sums = [0; N];
        for counters in array.get(&at, 0).map_err(io_error)?.iter() {
            sums.iter_mut().zip(counters).for_each(|(sum, count)| *sum += count);
        }
        Ok(sums)
    }

    /// Runs the program once on a frame, as if it had arrived on the loopback device; returns the
    /// verdict, and writes the frame that leaves to `out`.
    ///
    /// # Errors
    /// When the frame is shorter than an Ethernet header, or too long.
    pub fn run(&mut self, frame: &[u8], out: &mut Vec<u8>) -> io::Result<Verdict> {
        out.resize(MAX_FRAME, 0);
        let options =
            TestRunOptions { data_in: Some(frame), data_out: Some(out), ..Default::default() };
        let result = self.xdp()?.test_run(options).map_err(io_error)?;
        out.truncate(result.data_size_out as usize);
        Ok(match result.return_value {
            1 => Verdict::Drop,
            2 => Verdict::Pass,
            3 => Verdict::Transmit,
            4 => Verdict::Redirect,
            _ => Verdict::Aborted,
        })
    }

    /// Runs the program `count` times on a frame, whose verdicts are carried out (Linux 5.18).
    pub(super) fn run_live(&self, frame: &[u8], context: &[u8], count: u32) -> io::Result<()> {
        let options = TestRunOptions {
            data_in: Some(frame),
            ctx_in: Some(context),
            repeat: count,
            attrs: TestRunAttrs::new().xdp_live_frames(count),
            ..Default::default()
        };
        self.loaded()?.test_run(options).map(drop).map_err(io_error)
    }

    /// The descriptor of an array.
    pub(super) fn descriptor_of(&self, map: &str) -> io::Result<BorrowedFd<'_>> {
        match self.object.map(map) {
            Some(Map::Array(array)) => Ok(array.fd().as_fd()),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn descriptor(&self) -> io::Result<BorrowedFd<'_>> {
        Ok(self.loaded()?.fd().map_err(io_error)?.as_fd())
    }

    fn loaded(&self) -> io::Result<&Xdp> {
        let program = self.object.program(self.name).ok_or(io::ErrorKind::NotFound)?;
        program.try_into().map_err(io_error)
    }

    fn xdp(&mut self) -> io::Result<&mut Xdp> {
        let program = self.object.program_mut(self.name).ok_or(io::ErrorKind::NotFound)?;
        program.try_into().map_err(io_error)
    }

    /// A map of the program, by its name.
    fn map<'p, M>(&'p mut self, name: &str) -> io::Result<M>
    where
        M: TryFrom<&'p mut Map, Error = MapError>,
    {
        let map = self.object.map_mut(name).ok_or(io::ErrorKind::NotFound)?;
        map.try_into().map_err(io_error)
    }
}

/// The AF_XDP sockets of a [`Program`], which a worker can set without capabilities. The kernel
/// removes a socket with the last copy of its descriptor.
pub struct SocketMap {
    map: XskMap<MapData>,
}

impl SocketMap {
    /// Puts an AF_XDP socket in a place.
    ///
    /// # Errors
    /// When there is no such place, or the socket is of another kind.
    pub(super) fn set(&mut self, place: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.map.set(place, socket.as_raw_fd(), 0).map_err(io_error)
    }

    /// Removes the socket of a place, whose frames are passed from now on.
    ///
    /// # Errors
    /// When there is none.
    pub(super) fn unset(&mut self, place: u32) -> io::Result<()> {
        self.map.unset(place).map_err(io_error)
    }
}

/// The program that is attached to an interface, as far as this process has access to it.
fn attached(index: u32) -> String {
    let devices = devices().unwrap_or_default();
    let device = devices.iter().find(|device| device.index == index);
    let Some(id) = device.and_then(|device| device.program) else { return "unknown".to_owned() };
    let mut programs = loaded_programs().filter_map(Result::ok);
    let program = programs.find(|program| program.id() == id);
    match program.as_ref().and_then(|program| program.name_as_str()) {
        Some(name) => format!("id {id}, {name}"),
        None => format!("id {id}"),
    }
}

/// An error with those that caused it.
fn io_error(error: impl Error) -> io::Error {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    io::Error::other(text)
}
