//! Big-endian fields at fixed offsets. Every offset used in this crate is a constant below the
//! length of the array it reads from, so the bounds checks vanish when these are inlined.

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

/// Writes `field` at `at`. Panics when it does not fit: writers take arrays or check first.
#[inline(always)]
pub(crate) fn put<const N: usize>(into: &mut [u8], at: usize, field: [u8; N]) {
    into[at..at + N].copy_from_slice(&field);
}
