//! The AF_XDP socket of one queue of a network device (Documentation/networking/af_xdp.rst).

use std::io;
use std::mem;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::net::if_::if_nametoindex;
use nix::sys::resource::{Resource, getrlimit};
use rustix::io::Errno;
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING,
    XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING, XdpMmapOffsets, XdpOptionsFlags,
};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with,
    sockopt,
};

use super::live::{LiveFrames, LiveProgram};
use super::ring::Place;
use super::rings::{Layout, Rings};
use super::umem::{FRAME_BYTES, Umem};
use crate::socket::QueueId;
use crate::sys;

/// Frames of a queue per entry of its receive ring.
const FRAMES: u32 = 4;
/// How long the kernel may take to release the queue of a closed socket.
pub const RELEASE: Duration = Duration::from_secs(5);
/// The smallest MTU of IPv6 (RFC 8200, section 5).
const MIN_MTU: usize = 1_280;
/// The most frames that a call sends in copy mode (include/uapi/linux/if_xdp.h).
const XDP_MAX_TX_SKB_BUDGET: libc::c_int = 9;
/// Pause between two attempts to open a queue that another socket still has.
const RETRY: Duration = Duration::from_millis(20);

/// Which queue to open, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueOptions {
    /// The name of the interface.
    pub interface: String,
    /// The number of the queue, which receives and sends.
    pub queue: u32,
    /// Its place among the AF_XDP sockets of the program
    /// ([`Program::redirect_queues`](super::Program::redirect_queues)).
    pub place: u32,
    /// Entries of its receive and transmit rings, a power of two; it has four times as many frames
    /// of 2 KiB.
    pub ring: u32,
    /// The most datagrams of a batch; at most as many as the ring has entries.
    pub batch: usize,
    /// Whether the device reads and writes the frames itself, without a copy by the kernel.
    pub zero_copy: bool,
    /// Microseconds for which a receive call that finds nothing polls the device (socket(7),
    /// SO_BUSY_POLL); 0 for none.
    pub busy_poll: u32,
}

impl QueueOptions {
    /// Which queue it is; `None` while there is no such interface.
    pub fn id(&self) -> Option<QueueId> {
        Some((if_nametoindex(self.interface.as_str()).ok()?, self.queue))
    }
}

/// Creates the sockets of a backend's queues, and is told which queues the backend has: a process
/// may keep copies of their descriptors.
pub trait SocketSource: Send {
    /// Creates the [`socket`] of a queue.
    ///
    /// # Errors
    /// As [`socket`].
    fn socket(&self, options: &QueueOptions) -> io::Result<OwnedFd> {
        socket(options)
    }

    /// The backend has this queue from now on.
    fn opened(&self, _: &Queue) {}

    /// The backend has closed this queue, which the kernel releases with the last copy.
    fn closed(&self, _: QueueId) {}
}

/// For a thread that has the capabilities.
impl SocketSource for () {}

/// Bytes of the frames of a queue with rings of so many entries.
pub fn frame_bytes(ring: u32) -> u64 {
    u64::from(FRAMES * ring) * FRAME_BYTES as u64
}

/// Why a queue cannot be opened, with a remedy.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The kernel has no AF_XDP, or the unit forbids it.
    #[error(
        "this system has no AF_XDP sockets: the kernel needs CONFIG_XDP_SOCKETS, a systemd unit \
         RestrictAddressFamilies= with AF_XDP"
    )]
    NoFamily,
    /// The process lacks a capability.
    #[error("an AF_XDP socket needs CAP_NET_RAW")]
    NoPermission,
    /// There is no interface of this name.
    #[error("there is no interface {0} (try: ip link)")]
    NoInterface(String),
    /// The interface has fewer queues.
    #[error("{0} has no queue {1} that both receives and sends (try: ethtool --show-channels {0})")]
    NoQueue(String, u32),
    /// The MTU does not permit IPv6.
    #[error(
        "the MTU of {0} is {1}, and IPv6 needs {min} (try: ip link set {0} mtu 1500)",
        min = MIN_MTU
    )]
    SmallMtu(String, usize),
    /// Another socket has the queue.
    #[error("queue {1} of {0} has another AF_XDP socket (try: ss --xdp --processes)")]
    Busy(String, u32),
    /// The limit of locked memory is too low.
    #[error(
        "a queue needs {needed} bytes of locked memory, and all sockets of this user may have \
         {allowed}: raise RLIMIT_MEMLOCK (LimitMEMLOCK= in a systemd unit), or use smaller rings"
    )]
    NoMemory {
        /// Bytes of the queue's frames.
        needed: u64,
        /// The limit, which counts for all processes of the user.
        allowed: u64,
    },
    /// The driver has no zero-copy.
    #[error("the driver of {0} has no zero-copy on queue {1}: set zero_copy = false")]
    NoZeroCopy(String, u32),
    /// Any other reason.
    #[error("queue {1} of {0} cannot be opened: {2}")]
    Other(String, u32, #[source] io::Error),
}

/// The AF_XDP socket of a queue, with its frames.
#[derive(Debug)]
pub struct Queue {
    pub(super) options: QueueOptions,
    pub(super) rings: Rings,
    /// In place of the transmit ring, if the queue has some.
    live: Option<LiveFrames>,
    /// The MTU of the interface.
    pub(super) mtu: usize,
    /// The identification of the next IPv4 packet that has one.
    pub(super) identification: u16,
    /// Whether frames were added since the last [`transmit`](Self::transmit).
    pub(super) has_added: bool,
    /// Whether another process may use the rings until the first call.
    is_adopted: bool,
    /// Frames that the kernel dropped before this process had the queue.
    dropped_before: u64,
    /// The index of the interface.
    interface: u32,
    socket: OwnedFd,
}

impl Queue {
    /// Opens a queue. While another socket has it, this is tried again until `patience` has passed:
    /// at startup [`RELEASE`], as a process that has just ended may have had the queue.
    ///
    /// # Errors
    /// Why the kernel refuses that.
    pub fn open(options: QueueOptions, patience: Duration) -> Result<Self, OpenError> {
        let no_interface = || OpenError::NoInterface(options.interface.clone());
        let (interface, _) = options.id().ok_or_else(no_interface)?;
        Self::at(interface, options, &mut None, socket, patience)
    }

    /// The same of the interface with this index, whatever its name is now, on a new [`socket`].
    /// The frames are those in `spare`, which gets them back if the queue cannot be opened.
    pub(super) fn at(
        interface: u32,
        options: QueueOptions,
        spare: &mut Option<Umem>,
        socket: impl FnOnce(&QueueOptions) -> io::Result<OwnedFd>,
        patience: Duration,
    ) -> Result<Self, OpenError> {
        let (name, number) = (options.interface.clone(), options.queue);
        let other = |error: io::Error| OpenError::Other(name.clone(), number, error);
        let mtu = sys::mtu(interface).map_err(|_| OpenError::NoInterface(name.clone()))? as usize;
        if mtu < MIN_MTU {
            return Err(OpenError::SmallMtu(name, mtu));
        }
        let socket = socket(&options).map_err(|error| match error.raw_os_error() {
            Some(libc::EAFNOSUPPORT) => OpenError::NoFamily,
            Some(libc::EPERM) => OpenError::NoPermission,
            _ => other(error),
        })?;
        let umem = match spare.take() {
            Some(umem) => umem,
            None => Umem::new(FRAMES * options.ring).map_err(other)?,
        };
        if let Err(error) = umem.register(socket.as_fd()) {
            *spare = Some(umem);
            return Err(match error.raw_os_error() {
                Some(libc::ENOBUFS) => no_memory(options.ring),
                _ => other(error),
            });
        }
        set_sizes(socket.as_fd(), options.ring).map_err(other)?;
        let rings = map_rings(socket.as_fd(), umem, &options).map_err(other)?;
        if let Err(error) = bind_to(socket.as_fd(), interface, &options, patience) {
            *spare = Some(rings.umem);
            return Err(match error {
                Errno::BUSY => OpenError::Busy(name, number),
                Errno::NODEV => OpenError::NoInterface(name),
                Errno::INVAL => OpenError::NoQueue(name, number),
                Errno::OPNOTSUPP if options.zero_copy => OpenError::NoZeroCopy(name, number),
                error => other(error.into()),
            });
        }
        let mut queue = Self::new(options, (interface, mtu), rings, socket);
        queue.end_batch();
        Ok(queue)
    }

    fn new(
        options: QueueOptions,
        (interface, mtu): (u32, usize),
        rings: Rings,
        socket: OwnedFd,
    ) -> Self {
        Self {
            options,
            rings,
            live: None,
            mtu,
            identification: 0,
            has_added: false,
            is_adopted: false,
            dropped_before: 0,
            interface,
            socket,
        }
    }

    /// Maps the queue of another process, which has [shared](Self::share) it and still uses it. The
    /// first call of the [`Backend`](super::Backend) continues where that process has
    /// [released](crate::Socket::release) the queue. It takes no capability, and Linux 6.4: an
    /// older one maps the fill ring of a socket only once.
    ///
    /// # Errors
    /// When the queue has another ring or other options, there is no such interface, or the kernel
    /// does not map its rings.
    pub fn adopt(options: QueueOptions, descriptors: Vec<OwnedFd>) -> io::Result<Self> {
        let invalid = |_| io::Error::from(io::ErrorKind::InvalidInput);
        let [socket, file] = <[OwnedFd; 2]>::try_from(descriptors).map_err(invalid)?;
        let flags = sockopt::xdp_options(&socket)?;
        let mut busy_poll: libc::c_int = 0;
        sys::get_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_BUSY_POLL, &mut busy_poll)?;
        if flags.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY) != options.zero_copy
            || busy_poll != options.busy_poll as libc::c_int
        {
            return Err(io::Error::other("it has other options"));
        }
        let interface = if_nametoindex(options.interface.as_str())?;
        let mtu = sys::mtu(interface)? as usize;
        let umem = Umem::adopt(file, FRAMES * options.ring)?;
        let rings = map_rings(socket.as_fd(), umem, &options)?;
        Ok(Self { is_adopted: true, ..Self::new(options, (interface, mtu), rings, socket) })
    }

    /// Copies of its descriptors, for a process that [adopts](Self::adopt) the queue.
    ///
    /// # Errors
    /// When this process may not open as many.
    pub fn share(&self) -> io::Result<Vec<OwnedFd>> {
        [self.as_fd(), self.rings.umem.file()].iter().map(BorrowedFd::try_clone_to_owned).collect()
    }

    /// Makes the kernel transmit frames as if the interface's XDP program did, for a client: over
    /// veth that takes less time on both sides than sending by an AF_XDP socket.
    ///
    /// # Errors
    /// Before Linux 5.18, where the interface has no program, and for queue 16 and above.
    pub fn with_live_frames(mut self, program: &LiveProgram) -> io::Result<Self> {
        self.live = Some(LiveFrames::new(program.clone(), self.interface, self.options.queue)?);
        Ok(self)
    }

    /// Which queue it is.
    pub fn id(&self) -> QueueId {
        (self.interface, self.options.queue)
    }

    /// Continues where the process that this one has adopted the queue from has released it.
    pub(super) fn resume(&mut self) {
        if mem::take(&mut self.is_adopted) {
            self.rings.resume();
            self.dropped_before = self.dropped();
        }
    }

    /// Ends the batch: its frames can receive again.
    pub(super) fn end_batch(&mut self) {
        if self.rings.end_batch() {
            self.call_driver();
        }
    }

    /// Lets the kernel poll the device, if the options ask for it.
    pub(super) fn poll_device(&self) {
        if self.options.busy_poll > 0 {
            self.call_driver();
        }
    }

    /// Wakes the driver, or polls it where the socket has a time for that.
    fn call_driver(&self) {
        // It fails while the interface is down.
        let _ = recv(&self.socket, &mut [0u8; 0][..], RecvFlags::DONTWAIT);
    }

    /// Adds a frame to send, which `write` writes; `false` without room.
    #[inline]
    pub(super) fn add(&mut self, write: impl FnOnce(&mut [u8]) -> usize) -> bool {
        if let Some(live) = &mut self.live {
            self.has_added = true;
            return live.push(write);
        }
        if !mem::replace(&mut self.has_added, true) {
            self.rings.complete();
        }
        self.rings.send(write)
    }

    /// Lets the kernel send the frames that were added, and returns the number of calls. What it
    /// does not take now is left for the next call.
    pub(super) fn transmit(&mut self) -> u64 {
        self.has_added = false;
        if let Some(live) = &mut self.live {
            if let Err(error) = live.transmit() {
                log::warn!("queue {} does not transmit: {error}", self.options.queue);
            }
            return 1;
        }
        if !self.rings.publish() {
            return 0;
        }
        // In copy mode a call may fail with EAGAIN after it has sent some frames; so it does when
        // as many are in flight as the send buffer holds.
        let (mut calls, mut unsent) = (0, self.rings.unsent());
        while unsent > 0 {
            calls += 1;
            let _ = send(&self.socket, &[], SendFlags::DONTWAIT);
            let left = self.rings.unsent();
            if left == unsent {
                break;
            }
            unsent = left;
        }
        calls
    }

    /// Frames that the kernel dropped since this process has had the queue: no frame to receive
    /// into, or the receive ring was full.
    pub(super) fn dropped(&self) -> u64 {
        sockopt::xdp_statistics(&self.socket)
            .map_or(0, |counts| counts.rx_dropped + counts.rx_ring_full.unwrap_or(0))
            .saturating_sub(self.dropped_before)
    }

    /// Checks whether the queue works, and reads the MTU of its interface again.
    ///
    /// # Errors
    /// ENETDOWN after the interface was deleted, of which poll(2) reports nothing.
    pub(super) fn check(&mut self) -> io::Result<()> {
        sockopt::socket_error(&self.socket)??;
        // A process without descriptors left cannot read it, and the queue works nevertheless.
        self.mtu = sys::mtu(self.interface).map_or(self.mtu, |mtu| mtu as usize);
        Ok(())
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Creates an AF_XDP socket with those of the options that take a capability.
///
/// # Errors
/// When this system has no such sockets, CAP_NET_RAW is missing, or CAP_NET_ADMIN for busy polling.
pub fn socket(options: &QueueOptions) -> io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    grow_send_buffer(socket.as_fd(), options.ring);
    if options.busy_poll > 0 {
        for (option, value) in [
            (libc::SO_PREFER_BUSY_POLL, 1),
            (libc::SO_BUSY_POLL, options.busy_poll as libc::c_int),
            (libc::SO_BUSY_POLL_BUDGET, options.batch as libc::c_int),
        ] {
            sys::set_option(socket.as_fd(), libc::SOL_SOCKET, option, &value)?;
        }
    }
    Ok(socket)
}

/// Binds a socket to its queue; while another one has that, again until `patience` has passed.
fn bind_to(
    socket: BorrowedFd<'_>,
    interface: u32,
    options: &QueueOptions,
    patience: Duration,
) -> Result<(), Errno> {
    let copy = match options.zero_copy {
        true => SocketAddrXdpFlags::XDP_ZEROCOPY,
        false => SocketAddrXdpFlags::XDP_COPY,
    };
    let flags = copy | SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
    let address = SocketAddrXdp::new(flags, interface, options.queue);
    let start = Instant::now();
    loop {
        match bind(socket, &address) {
            Err(Errno::BUSY) if start.elapsed() < patience => pause(),
            result => return result,
        }
    }
}

fn no_memory(ring: u32) -> OpenError {
    let allowed = getrlimit(Resource::RLIMIT_MEMLOCK).map_or(0, |(soft, _)| soft);
    OpenError::NoMemory { needed: frame_bytes(ring), allowed }
}

#[expect(clippy::disallowed_methods, reason = "no event reports that a queue was released")]
fn pause() {
    std::thread::sleep(RETRY);
}

/// Sets the sizes of the rings of a socket.
fn set_sizes(socket: BorrowedFd<'_>, ring: u32) -> io::Result<()> {
    sockopt::set_xdp_umem_fill_ring_size(socket, 2 * ring)?;
    sockopt::set_xdp_umem_completion_ring_size(socket, ring)?;
    sockopt::set_xdp_rx_ring_size(socket, ring)?;
    sockopt::set_xdp_tx_ring_size(socket, ring)?;
    // Before Linux 6.17 a call sends 32.
    let budget = ring as libc::c_int;
    let _ = sys::set_option(socket, libc::SOL_XDP, XDP_MAX_TX_SKB_BUDGET, &budget);
    Ok(())
}

/// Maps the rings of a socket.
fn map_rings(socket: BorrowedFd<'_>, umem: Umem, options: &QueueOptions) -> io::Result<Rings> {
    let ring = options.ring;
    let XdpMmapOffsets { rx, tx, fr, cr } = sockopt::xdp_mmap_offsets(socket)?;
    let layout = Layout {
        fill: Place { file: XDP_UMEM_PGOFF_FILL_RING, parts: fr, size: 2 * ring },
        completion: Place { file: XDP_UMEM_PGOFF_COMPLETION_RING, parts: cr, size: ring },
        receive: Place { file: XDP_PGOFF_RX_RING, parts: rx, size: ring },
        transmit: Place { file: XDP_PGOFF_TX_RING, parts: tx, size: ring },
    };
    Rings::new(socket, umem, &layout, options.batch)
}

/// Makes the send buffer, which limits frames in flight in copy mode, large enough for a ring of
/// frames. Without CAP_NET_ADMIN the limit of the system applies.
fn grow_send_buffer(socket: BorrowedFd<'_>, ring: u32) {
    let size = libc::c_int::try_from(ring as usize * 2 * FRAME_BYTES).unwrap_or(libc::c_int::MAX);
    if sys::set_option(socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &size).is_err() {
        let _ = sys::set_option(socket, libc::SOL_SOCKET, libc::SO_SNDBUF, &size);
    }
}
