//! Searching rows of endpoints: most of the work of an announce in a swarm of a few dozen peers.

/// The index of a row.
///
/// Rows are compared by a part that fits a register and is rarely shared: the address in IPv4, the
/// interface half of the address in IPv6. That takes two instructions per row, eight rows per
/// iteration; a row is compared in full only where the part matches.
#[inline]
pub(super) fn find_row<const N: usize>(rows: &[[u8; N]], sought: &[u8; N]) -> Option<usize> {
    if N == 6 {
        by_part(rows, sought, |row| u32::from_ne_bytes(part(row, 0)))
    } else {
        by_part(rows, sought, |row| u64::from_ne_bytes(part(row, 8)))
    }
}

/// Reads both ends of a block, to bring most of its cache lines into the cache; the value has no
/// meaning.
#[inline]
pub(super) fn touch(block: &[u8]) -> u8 {
    if let [first, .., last] = block { first ^ last } else { 0 }
}

#[inline]
fn by_part<const N: usize, P: Eq>(
    rows: &[[u8; N]],
    sought: &[u8; N],
    part: impl Fn(&[u8; N]) -> P,
) -> Option<usize> {
    let key = part(sought);
    let (eights, rest) = rows.as_chunks::<8>();
    for (number, eight) in eights.iter().enumerate() {
        for (at, row) in eight.iter().enumerate() {
            if part(row) == key && row == sought {
                return Some(number * 8 + at);
            }
        }
    }
    let at = rest.iter().position(|row| part(row) == key && row == sought)?;
    Some(eights.len() * 8 + at)
}

#[inline]
fn part<const N: usize, const P: usize>(row: &[u8; N], from: usize) -> [u8; P] {
    let mut part = [0; P];
    part.copy_from_slice(&row[from..from + P]);
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_full_match_is_found() {
        for length in 0..40u8 {
            // Rows that share the address, and rows that share the interface.
            let v4: Vec<[u8; 6]> = (0..length).map(|port| [10, 0, 0, 1, 0, port]).collect();
            let v6: Vec<[u8; 18]> = (0..length)
                .map(|net| {
                    let mut row = [7; 18];
                    row[3] = net;
                    row
                })
                .collect();
            for at in 0..usize::from(length) {
                assert_eq!(find_row(&v4, &v4[at]), Some(at));
                assert_eq!(find_row(&v6, &v6[at]), Some(at));
            }
            assert_eq!(find_row(&v4, &[10, 0, 0, 1, 1, 0]), None);
            assert_eq!(find_row(&v6, &[7; 18]), v6.iter().position(|row| row == &[7; 18]));
        }
    }
}
