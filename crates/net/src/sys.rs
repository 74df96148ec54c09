//! System calls that no wrapper offers in the required form, behind safe functions: socket options
//! by number, batches of messages ([`message`]), links of XDP programs ([`link`]), memory with
//! stable addresses ([`fixed`]) and memory that is shared ([`mapped`]). All of the crate's `unsafe`
//! is in this module, in the frames of [`xdp`](crate::xdp), and in the calls of backend and raw
//! sender that pass borrowed bytes to the kernel.

pub(crate) mod fixed;
pub(crate) mod link;
pub(crate) mod mapped;
pub(crate) mod message;

use std::ffi::CStr;
#[cfg(target_env = "gnu")]
use std::ffi::c_char;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};

use libc::{c_int, socklen_t};
use nix::errno::Errno;

/// Sets a socket option of any plain type.
pub(crate) fn set_option<T: Plain>(
    fd: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: &T,
) -> Result<(), Errno> {
    let len = mem::size_of::<T>() as socklen_t;
    let value: *const T = value;
    // SAFETY: the kernel reads `len` bytes at `value`, which is a live reference of that size.
    // Reason: socket2 and nix have neither the forced buffer sizes nor steering programs.
    let result = unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, value.cast(), len) };
    Errno::result(result).map(drop)
}

/// Reads a socket option into `value`; returns how many bytes the kernel wrote.
pub(crate) fn get_option<T: Plain>(
    fd: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: &mut T,
) -> Result<usize, Errno> {
    let mut len = mem::size_of::<T>() as socklen_t;
    let value: *mut T = value;
    // SAFETY: the kernel writes at most `len` bytes at `value`, and any bytes are a valid `T` (the
    // contract of `Plain`).
    // Reason: no wrapper reads SO_MEMINFO.
    let result = unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, value.cast(), &mut len) };
    Errno::result(result).map(|_| len as usize)
}

/// The bound of the wall clock's error in microseconds, by adjtimex(2).
pub(crate) fn clock_error() -> Result<u64, Errno> {
    let mut state = mem::MaybeUninit::<libc::timex>::zeroed();
    // SAFETY: the kernel writes within `state`, of which zero bytes are a valid value; its `modes`
    // of 0 make the call a read.
    // Reason: neither nix nor rustix has the call.
    let (result, micros) = unsafe {
        let result = libc::adjtimex(state.as_mut_ptr());
        (result, state.assume_init_ref().maxerror)
    };
    Errno::result(result).map(|_| u64::try_from(micros).unwrap_or(0))
}

/// The MTU of the interface with this index, bytes (netdevice(7)).
pub(crate) fn mtu(interface: u32) -> std::io::Result<u32> {
    let mut name = [0u8; libc::IF_NAMESIZE];
    // SAFETY: the function writes at most as many bytes, with a zero at their end.
    // Reason: nix's wrapper allocates, and a worker calls this every second.
    if unsafe { libc::if_indextoname(interface, name.as_mut_ptr().cast()) }.is_null() {
        return Err(std::io::Error::last_os_error());
    }
    let name = CStr::from_bytes_until_nul(&name).ok().and_then(|name| name.to_str().ok());
    let request = ask_interface(name.unwrap_or_default(), libc::SIOCGIFMTU, &mut [])?;
    // SAFETY: the kernel has written the MTU.
    Ok(u32::try_from(unsafe { request.ifr_ifru.ifru_mtu }).unwrap_or(0))
}

/// The number of queues of an interface that receive or send, whichever is greater
/// (include/uapi/linux/ethtool.h).
pub(crate) fn queues(interface: &str) -> std::io::Result<u32> {
    const ETHTOOL_GCHANNELS: u32 = 0x3c;
    // `struct ethtool_channels`: the command, the limits of the following numbers, and those.
    let mut channels = [ETHTOOL_GCHANNELS, 0, 0, 0, 0, 0, 0, 0, 0];
    ask_interface(interface, libc::SIOCETHTOOL, &mut channels)?;
    let [.., receive, send, _, both] = channels;
    Ok(both + receive.max(send))
}

/// The flags of an interface (include/uapi/linux/ethtool.h, `enum ethtool_flags`).
pub(crate) fn offloads(interface: &str) -> std::io::Result<u32> {
    const ETHTOOL_GFLAGS: u32 = 0x25;
    // `struct ethtool_value`
    let mut flags = [ETHTOOL_GFLAGS, 0];
    ask_interface(interface, libc::SIOCETHTOOL, &mut flags)?;
    Ok(flags[1])
}

/// Frames that each receive ring of an interface holds, and how many it could hold.
pub(crate) fn receive_ring(interface: &str) -> std::io::Result<[u32; 2]> {
    const ETHTOOL_GRINGPARAM: u32 = 0x10;
    // `struct ethtool_ringparam`: the command, the limits of the following numbers, and those.
    let mut rings = [ETHTOOL_GRINGPARAM, 0, 0, 0, 0, 0, 0, 0, 0];
    ask_interface(interface, libc::SIOCETHTOOL, &mut rings)?;
    let [_, most, _, _, _, now, ..] = rings;
    Ok([now, most])
}

/// Asks about the interface with this name. `data` is the request behind the first one, with its
/// full length; empty where there is none.
fn ask_interface(
    interface: &str,
    what: libc::Ioctl,
    data: &mut [u32],
) -> std::io::Result<libc::ifreq> {
    // Any socket of the network namespace.
    let socket = std::os::unix::net::UnixDatagram::unbound()?;
    // SAFETY: zero bytes are a valid value.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    let Some(name) = request.ifr_name.get_mut(..interface.len()) else {
        return Err(Errno::ENODEV.into());
    };
    name.iter_mut().zip(interface.bytes()).for_each(|(to, byte)| *to = byte as _);
    if !data.is_empty() {
        request.ifr_ifru.ifru_data = data.as_mut_ptr().cast();
    }
    let to: *mut libc::ifreq = &mut request;
    // SAFETY: the kernel reads the name, which ends with a zero or has the full length, and writes
    // within `request` and within `data`, whose length is that of its request.
    // Reason: no wrapper has the call, and /sys may be that of another network namespace.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), what, to) };
    Errno::result(result)?;
    Ok(request)
}

/// Sets the sources of a name service database in place of those in /etc/nsswitch.conf.
#[cfg(target_env = "gnu")]
pub(crate) fn configure_name_service(database: &CStr, sources: &CStr) -> Result<(), Errno> {
    unsafe extern "C" {
        // <nss.h> of glibc.
        fn __nss_configure_lookup(database: *const c_char, sources: *const c_char) -> c_int;
    }
    // SAFETY: both are strings with a final zero, of which glibc makes copies.
    // Reason: the libc crate does not declare the function.
    let result = unsafe { __nss_configure_lookup(database.as_ptr(), sources.as_ptr()) };
    Errno::result(result).map(drop)
}

/// Types that the kernel may read and write as bytes.
///
/// # Safety
/// `repr(C)` or primitive, and valid whatever its bytes are.
pub(crate) unsafe trait Plain {}

// SAFETY: any four bytes are an int.
unsafe impl Plain for c_int {}
// SAFETY: any bytes are an array of integers.
unsafe impl<const N: usize> Plain for [u32; N] {}

/// Attaches a classic BPF program (`struct sock_fprog`) by the socket option `option`.
pub(crate) fn attach_program(
    fd: BorrowedFd<'_>,
    option: c_int,
    program: &[libc::sock_filter],
) -> Result<(), Errno> {
    let Ok(len) = u16::try_from(program.len()) else { return Err(Errno::EINVAL) };
    // The kernel copies the instructions and never writes through the pointer.
    let program = libc::sock_fprog { len, filter: program.as_ptr().cast_mut() };
    set_option(fd, libc::SOL_SOCKET, option, &program)
}

// SAFETY: a length and a pointer, repr(C); only ever passed to the kernel, which checks both.
unsafe impl Plain for libc::sock_fprog {}
