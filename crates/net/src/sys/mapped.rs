//! Memory that is shared with the kernel or with another process (mmap(2)). Numbers in it are
//! accessed as atomics, bytes by the addresses that the caller asks for.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A mapping, until it is dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the process, and all access is atomic or by raw pointers.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `len` bytes of a file from `offset` on, shared and writable.
    pub(crate) fn new(file: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: the kernel chooses an address that nothing else uses.
        // Reason: rings of AF_XDP exist only as mappings.
        let start = unsafe { mmap(ptr::null_mut(), len, protection, flags, file, offset)? };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, len })
    }

    /// The address of the byte at `offset`.
    pub(crate) fn address(&self, offset: usize) -> *mut u8 {
        assert!(offset <= self.len, "{offset} of {}", self.len);
        // SAFETY: within the mapping by the line above.
        unsafe { self.start.as_ptr().add(offset) }
    }

    /// The 32-bit number at `offset`.
    #[inline]
    pub(crate) fn word(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.len, "{offset} of {}", self.len);
        // SAFETY: within the mapping and aligned by the line above; any bytes are a number, and all
        // sides access it as one.
        unsafe { AtomicU32::from_ptr(self.start.as_ptr().add(offset).cast()) }
    }

    /// The 64-bit number at `offset`.
    #[inline]
    pub(crate) fn long(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.len, "{offset} of {}", self.len);
        // SAFETY: as for `word`.
        unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(offset).cast()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the whole mapping, made by `new`; references into it borrow `self`.
        // It fails for no mapping that exists.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}
