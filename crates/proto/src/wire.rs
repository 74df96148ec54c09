//! Big-endian fields at fixed offsets. Every offset used in this crate is a constant below the
//! length of the array it reads from, so the bounds checks vanish when these are inlined.

/// The longest response that a tracker should send, bytes, so that no response is fragmented: every
/// IPv6 path carries packets of 1280 bytes (RFC 8200, section 5), of which the IPv6 header takes 40
/// and the UDP header 8.
pub const MAX_RESPONSE_LEN: usize = 1280 - 40 - 8;

/// The `N` bytes at `at`. Panics when the slice is shorter: callers check lengths first.
#[inline(always)]
pub(crate) fn bytes<const N: usize>(from: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&from[at..at + N]);
    out
}

#[inline(always)]
pub(crate) fn u16(from: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(bytes(from, at))
}

#[inline(always)]
pub(crate) fn u32(from: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes(from, at))
}

#[inline(always)]
pub(crate) fn u64(from: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes(from, at))
}

/// Writes `field` at `at`. Panics when it does not fit: callers pass arrays or check lengths first.
#[inline(always)]
pub(crate) fn put<const N: usize>(into: &mut [u8], at: usize, field: [u8; N]) {
    into[at..at + N].copy_from_slice(&field);
}
