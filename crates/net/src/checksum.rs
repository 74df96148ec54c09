//! The checksums of IPv4 and UDP (RFC 1071), in the byte order of the host: sums of words keep it.

/// Protocol number of UDP in both families (RFC 768).
pub(crate) const UDP: u8 = 17;

/// The sum of the 16-bit words of `bytes`, the last one padded with a zero; of at most 4 GiB.
#[inline]
pub(crate) fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks();
    let sum = words.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum::<u64>();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    sum + u64::from(u32::from_ne_bytes(last))
}

/// A sum as 16 bits: carries are added again.
#[inline]
pub(crate) fn fold(sum: u64) -> u16 {
    let mut sum = (sum & 0xFFFF_FFFF) + (sum >> 32);
    for _ in 0..3 {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    sum as u16
}

/// The sum of the pseudo header of a UDP datagram of `len` bytes with its header (RFC 768; RFC
/// 8200, section 8.1). Those of the two families differ in zeros only. `addresses` are source and
/// destination.
#[inline]
pub(crate) fn pseudo_header(addresses: &[u8], len: u16) -> u64 {
    sum(addresses) + u64::from(big_endian(UDP.into())) + u64::from(big_endian(len))
}

/// The checksum of a UDP datagram whose sum, with its pseudo header, is `sum`: 0 means that there
/// is none, and its other representation is sent.
#[inline]
pub(crate) fn of_udp(sum: u64) -> [u8; 2] {
    match !fold(sum) {
        0 => [0xFF; 2],
        checksum => checksum.to_ne_bytes(),
    }
}

/// A number as a sum of the bytes in a packet has it.
#[inline]
fn big_endian(number: u16) -> u16 {
    u16::from_ne_bytes(number.to_be_bytes())
}
