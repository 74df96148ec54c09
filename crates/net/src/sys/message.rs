//! Batches of datagrams in the kernel's own form: headers, names, control messages and bytes are
//! laid out once; afterwards only their lengths are rewritten.
//!
//! `recvmmsg` fills [`Inbound`] and `sendmmsg` sends [`Outbound`]. A system call for each datagram
//! would take 16 to 25 % more time per request and reply: 3.9 to 4.7 us instead of 3.1 to 4.0 us
//! over loopback (2026-11-20, 2 vCPUs, five interleaved runs).

use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::{mem, ptr};

use libc::{c_int, c_uint, cmsghdr, iovec, mmsghdr, msghdr};
use nix::errno::Errno;

use super::fixed::Fixed;
use crate::name;
use crate::socket::Return;

/// Bytes for one datagram. Larger ones are truncated; a datagram in one Ethernet frame never is.
pub(crate) const SLOT_BYTES: usize = 2048;

/// Bytes for a coalesced message: the kernel limits it to the size of one IP packet.
pub(crate) const COALESCED_BYTES: usize = 1 << 16;

/// Bytes for control messages: the larger of the two local addresses (40) and a segment size (24,
/// in either direction).
const CONTROL_BYTES: usize = 64;

/// Space for control messages, aligned for their headers.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
struct Control([u8; CONTROL_BYTES]);

/// An address as the kernel writes it, aligned so that copying it out is cheap.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(4))]
struct Name([u8; name::MAX_LEN]);

/// Memory for received datagrams.
pub(crate) struct Inbound {
    region: Fixed<u8>,
    place_bytes: usize,
    names: Fixed<Name>,
    /// Not read here: the headers point into it.
    _controls: Fixed<Control>,
    /// Not read here: the headers point into it.
    _iovecs: Fixed<iovec>,
    headers: Fixed<mmsghdr>,
}

// SAFETY: the raw pointers in the headers point only into this value's own arrays.
unsafe impl Send for Inbound {}

impl Inbound {
    /// Space for `batch` messages of up to `place_bytes`.
    pub(crate) fn new(batch: usize, place_bytes: usize) -> Self {
        let region = Fixed::bytes(batch * place_bytes);
        let names = Fixed::new(batch, |_| Name([0; name::MAX_LEN]));
        let controls = Fixed::new(batch, |_| Control([0; CONTROL_BYTES]));
        let iovecs = Fixed::new(batch, |i| iovec {
            iov_base: region.pointer(i * place_bytes).cast(),
            iov_len: place_bytes,
        });
        let headers = Fixed::new(batch, |i| {
            let mut header = empty_header();
            header.msg_hdr.msg_name = names.pointer(i).cast();
            header.msg_hdr.msg_namelen = name::MAX_LEN as _;
            header.msg_hdr.msg_iov = iovecs.pointer(i);
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_control = controls.pointer(i).cast();
            header.msg_hdr.msg_controllen = CONTROL_BYTES as _;
            header
        });
        Self { region, place_bytes, names, _controls: controls, _iovecs: iovecs, headers }
    }

    /// The bytes of all messages; number `i` starts at `i * place_bytes`.
    #[inline]
    pub(crate) fn region(&self) -> &[u8] {
        self.region.as_slice()
    }

    /// Receives up to `count` datagrams into the places from `first` on, without blocking. Each
    /// place must be [read](Self::read) before its next use.
    pub(crate) fn receive(
        &mut self,
        fd: BorrowedFd<'_>,
        first: usize,
        count: usize,
    ) -> Result<usize, Errno> {
        assert!(count > 0 && first + count <= self.headers.len());
        let headers = self.headers.pointer(first);
        // SAFETY: `count` headers from `first` on are ours (asserted above), and all that they
        // point to belongs to `self`, which is borrowed exclusively.
        // Reason: one call for a batch; std has only one datagram per call.
        let received = unsafe {
            libc::recvmmsg(
                fd.as_raw_fd(),
                headers,
                count as c_uint,
                libc::MSG_DONTWAIT as _,
                ptr::null_mut(),
            )
        };
        Errno::result(received).map(|received| received as usize)
    }

    /// Calls `each` with the offset and the metadata of each message in `places`, and prepares
    /// these for the next call. Control messages are parsed only if `controls` is set.
    #[inline]
    pub(crate) fn read(
        &mut self,
        places: Range<usize>,
        controls: bool,
        mut each: impl FnMut(u32, Arrived<'_>),
    ) {
        let place_bytes = self.place_bytes;
        let headers = self.headers.range_mut(places.clone());
        let names = self.names.range_mut(places.clone());
        for ((place, header), name) in places.zip(headers).zip(names) {
            let metadata = if controls { metadata(&header.msg_hdr) } else { Metadata::default() };
            let (len, name_len) = (header.msg_len, header.msg_hdr.msg_namelen as u8);
            header.msg_hdr.msg_namelen = name::MAX_LEN as _;
            header.msg_hdr.msg_controllen = CONTROL_BYTES as _;
            let Metadata { local, segment } = metadata;
            let offset = (place * place_bytes) as u32;
            each(offset, Arrived { len, name: &name.0, name_len, local, segment });
        }
    }
}

/// A received datagram without its bytes.
pub(crate) struct Arrived<'a> {
    /// Bytes received.
    pub(crate) len: u32,
    /// The sender.
    pub(crate) name: &'a [u8; name::MAX_LEN],
    /// Bytes of `name`.
    pub(crate) name_len: u8,
    /// The local address that it was sent to, where the socket reports it.
    pub(crate) local: Option<[u8; 16]>,
    /// For a coalesced message, the length of each datagram but the last.
    pub(crate) segment: Option<u16>,
}

/// Metadata of a message from its control messages.
#[derive(Clone, Copy, Debug, Default)]
struct Metadata {
    /// The local address that it was sent to.
    local: Option<[u8; 16]>,
    /// The length of the datagrams in a coalesced message.
    segment: Option<u16>,
}

/// Parses the control messages of a received message.
fn metadata(header: &msghdr) -> Metadata {
    let mut metadata = Metadata::default();
    // SAFETY: the kernel has just filled `msg_control` and set `msg_controllen`; CMSG_FIRSTHDR and
    // CMSG_NXTHDR stay within these, and each message's type says what its data is.
    // Reason: control messages are the only source of the local address of a wildcard socket and of
    // the segment size of a coalesced message.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(header);
        while let Some(control) = message.as_ref() {
            match (control.cmsg_level, control.cmsg_type) {
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    let info = libc::CMSG_DATA(message).cast::<libc::in_pktinfo>();
                    // `ipi_spec_dst` is an address of this host even for a broadcast, `ipi_addr` is
                    // not (ip(7)).
                    let address = ptr::read_unaligned(info).ipi_spec_dst.s_addr;
                    let mut local = [0; 16];
                    local[..4].copy_from_slice(&address.to_ne_bytes());
                    metadata.local = Some(local);
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    let info = libc::CMSG_DATA(message).cast::<libc::in6_pktinfo>();
                    let address = ptr::read_unaligned(info).ipi6_addr.s6_addr;
                    // A multicast address cannot be a source address.
                    metadata.local = (address[0] != 0xFF).then_some(address);
                }
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    let segment = ptr::read_unaligned(libc::CMSG_DATA(message).cast::<c_int>());
                    metadata.segment = u16::try_from(segment).ok().filter(|segment| *segment > 0);
                }
                _ => {}
            }
            message = libc::CMSG_NXTHDR(header, message);
        }
    }
    metadata
}

/// Messages to send. [`push`](Self::push) begins a message and [`add`](Self::add) extends it; the
/// bytes are not copied, which makes sending unsafe.
pub(crate) struct Outbound {
    headers: Fixed<mmsghdr>,
    iovecs: Fixed<iovec>,
    controls: Fixed<Control>,
    messages: usize,
    parts: usize,
}

// SAFETY: the pointers to borrowed bytes are used only within `send`, whose caller guarantees them;
// between calls they are never dereferenced.
unsafe impl Send for Outbound {}

impl Outbound {
    /// Space for `capacity` datagrams.
    pub(crate) fn new(capacity: usize) -> Self {
        let controls = Fixed::new(capacity, |_| Control([0; CONTROL_BYTES]));
        let iovecs = Fixed::new(capacity, |_| iovec { iov_base: ptr::null_mut(), iov_len: 0 });
        let headers = Fixed::new(capacity, |i| {
            let mut header = empty_header();
            // The kernel reads nothing from it while its length is 0.
            header.msg_hdr.msg_control = controls.pointer(i).cast();
            header
        });
        Self { headers, iovecs, controls, messages: 0, parts: 0 }
    }

    /// Removes all messages.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.messages = 0;
        self.parts = 0;
    }

    /// Begins a message with its first bytes; with `segment` the kernel splits all of its bytes
    /// into datagrams of that size.
    ///
    /// # Panics
    /// When all `capacity` messages are in use.
    #[inline]
    pub(crate) fn push(&mut self, to: &Return, bytes: &[u8], segment: Option<u16>) {
        let part = self.iovecs.pointer(self.parts);
        // SAFETY: `pointer` checked the index; nothing else refers to the part.
        // Reason: the header keeps this pointer, which also reaches the parts behind it; going
        // through a reference costs a second bounds check.
        unsafe { part.write(part_of(bytes)) };
        let header = &mut self.headers.get_mut(self.messages).msg_hdr;
        header.msg_name = to.name.as_ptr().cast_mut().cast();
        header.msg_namelen = to.name_len.into();
        header.msg_iov = part;
        header.msg_iovlen = 1;
        header.msg_controllen = 0;
        if to.has_local || segment.is_some() {
            let control = self.controls.get_mut(self.messages);
            header.msg_controllen = write_controls(control, to, segment) as _;
        }
        self.messages += 1;
        self.parts += 1;
    }

    /// Adds bytes to the last message.
    #[inline]
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        *self.iovecs.get_mut(self.parts) = part_of(bytes);
        self.headers.get_mut(self.messages - 1).msg_hdr.msg_iovlen += 1;
        self.parts += 1;
    }

    /// Sends the messages from `first` on without blocking; returns how many were sent, at least
    /// one, or the error of the first one.
    ///
    /// # Safety
    /// All bytes and all [`Return`]s given since the last [`clear`](Self::clear) are still
    /// borrowed.
    pub(crate) unsafe fn send(&mut self, fd: BorrowedFd<'_>, first: usize) -> Result<usize, Errno> {
        assert!(first < self.messages);
        let count = self.messages - first;
        let headers = self.headers.pointer(first);
        // SAFETY: `count` headers from `first` on were written since `clear`; names and bytes live
        // by this function's contract, the rest belongs to `self`.
        // Reason: one call for a batch; std has only one datagram per call.
        let sent = unsafe {
            libc::sendmmsg(fd.as_raw_fd(), headers, count as c_uint, libc::MSG_DONTWAIT as _)
        };
        Errno::result(sent).map(|sent| sent as usize)
    }
}

/// The place of bytes, for the kernel, which only reads them although the type is mutable.
#[inline]
fn part_of(bytes: &[u8]) -> iovec {
    iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}

/// A header of zeros.
fn empty_header() -> mmsghdr {
    // SAFETY: integers and pointers, for which zero is a value.
    // Reason: some C libraries (musl) have padding fields, which cannot be named.
    unsafe { mem::zeroed() }
}

/// Writes the control messages of a reply and returns their length.
fn write_controls(control: &mut Control, to: &Return, segment: Option<u16>) -> usize {
    let mut len = 0;
    if to.has_local {
        len = write_local(control, to);
    }
    if let Some(segment) = segment {
        len += write_control(control, len, libc::SOL_UDP, libc::UDP_SEGMENT, segment);
    }
    len
}

/// Writes the source address of a reply.
fn write_local(control: &mut Control, to: &Return) -> usize {
    if to.name_len == name::V6_LEN {
        // A link-local address needs its interface, which is the peer's scope.
        let link_local = to.local[0] == 0xFE && to.local[1] & 0xC0 == 0x80;
        let [.., a, b, c, d] = to.name;
        let scope = if link_local { u32::from_ne_bytes([a, b, c, d]) } else { 0 };
        let info = libc::in6_pktinfo {
            ipi6_addr: libc::in6_addr { s6_addr: to.local },
            ipi6_ifindex: scope as _,
        };
        return write_control(control, 0, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, info);
    }
    let [a, b, c, d, ..] = to.local;
    let info = libc::in_pktinfo {
        ipi_ifindex: 0,
        ipi_spec_dst: libc::in_addr { s_addr: u32::from_ne_bytes([a, b, c, d]) },
        ipi_addr: libc::in_addr { s_addr: 0 },
    };
    write_control(control, 0, libc::IPPROTO_IP, libc::IP_PKTINFO, info)
}

/// Writes one control message at `offset` and returns its length.
#[inline]
fn write_control<T>(
    control: &mut Control,
    offset: usize,
    level: c_int,
    kind: c_int,
    data: T,
) -> usize {
    // SAFETY: pure arithmetic on a length.
    let (space, len) = unsafe {
        let size = mem::size_of::<T>() as c_uint;
        (libc::CMSG_SPACE(size) as usize, libc::CMSG_LEN(size))
    };
    let room = &mut control.0[offset..offset + space];
    let message = room.as_mut_ptr().cast::<cmsghdr>();
    // SAFETY: `room` is `space` bytes, enough for a header and `data` behind it (cmsg(3)); it is
    // aligned, as `Control` is and spaces are multiples of the alignment.
    // Reason: control messages have no safe form that does not allocate.
    unsafe {
        (*message).cmsg_level = level;
        (*message).cmsg_type = kind;
        (*message).cmsg_len = len as _;
        ptr::write_unaligned(libc::CMSG_DATA(message).cast::<T>(), data);
    }
    space
}

const _: () = {
    // Both control messages at once fit. (CMSG_SPACE is const in libc.)
    // SAFETY: pure arithmetic on lengths.
    let both = unsafe {
        libc::CMSG_SPACE(mem::size_of::<libc::in6_pktinfo>() as c_uint) + libc::CMSG_SPACE(2)
    };
    assert!(both as usize <= CONTROL_BYTES);
};
