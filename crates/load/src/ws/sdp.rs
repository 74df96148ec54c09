//! Session descriptions from a seed: text as it is within a JSON string, of which no two are alike.

use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};

use super::Sizes;
use crate::plan::population::mix;

/// Bytes of a line with its escaped end.
const LINE: usize = 64;
/// The end of a line, as it is within a JSON string.
const END: &[u8] = br"\r\n";
/// The first lines, around a number that no other description has.
const START: &[u8] = br"v=0\r\no=- ";
const ORIGIN: &[u8] = br" 1 IN IP6 ::\r\n";
/// Bytes of the shortest description: the first lines with the number in hexadecimal.
pub(super) const MIN: usize = START.len() + 16 + ORIGIN.len();
/// Lines that descriptions are cut from: as many as stay in a CPU's first cache.
const LINES: usize = 128;

/// Writes session descriptions.
#[derive(Debug)]
pub(super) struct Descriptions {
    sizes: Sizes,
    /// Pseudo-random lines.
    lines: Vec<u8>,
}

impl Descriptions {
    pub(super) fn new(sizes: Sizes, seed: u64) -> Self {
        const DIGITS: &[u8; 64] =
            b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz:.";
        let mut chance = SmallRng::seed_from_u64(mix(seed ^ 0x5344_5000));
        let mut lines = Vec::new();
        // The last line of a description may begin in the last of these.
        for _ in 0..LINES + sizes.max.div_ceil(LINE) {
            lines.extend_from_slice(b"a=");
            lines.extend(
                (2..LINE - END.len()).map(|_| DIGITS[chance.random::<u64>() as usize % 64]),
            );
            lines.extend_from_slice(END);
        }
        Self { sizes, lines }
    }

    /// Appends the description of this seed.
    pub(super) fn write(&self, seed: u64, out: &mut Vec<u8>) {
        let begin = out.len();
        let range = (self.sizes.max - self.sizes.min + 1) as u64;
        let size = self.sizes.min + ((u64::from(seed as u32) * range) >> 32) as usize;
        out.extend_from_slice(START);
        let mut number = [0; 16];
        for (digits, byte) in number.as_chunks_mut::<2>().0.iter_mut().zip(seed.to_be_bytes()) {
            *digits = [byte >> 4, byte & 15].map(|digit| b"0123456789abcdef"[usize::from(digit)]);
        }
        out.extend_from_slice(&number);
        out.extend_from_slice(ORIGIN);
        let rest = size.saturating_sub(out.len() - begin);
        // An escaped line end is not cut in two.
        let cut = (rest % LINE).saturating_sub(LINE - END.len());
        let from = (seed >> 32) as usize % LINES * LINE;
        out.extend_from_slice(&self.lines[from..from + rest - cut]);
        out.extend_from_slice(&b"a=-"[..cut]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_are_strings_of_all_sizes_and_differ() {
        let sizes = Sizes { min: MIN, max: 260 };
        let descriptions = Descriptions::new(sizes, 1);
        let mut found = std::collections::BTreeSet::new();
        for n in 0..5000 {
            let mut out = b"\"".to_vec();
            descriptions.write(mix(n), &mut out);
            let size = out.len() - 1;
            assert!((sizes.min..=sizes.max).contains(&size), "{size}");
            out.push(b'"');
            let text: String = serde_json::from_slice(&out).unwrap();
            assert!(text.starts_with("v=0\r\no=- ") && !text.contains('\\'), "{text}");
            assert!(found.insert((size, text)));
        }
        let found_sizes: std::collections::BTreeSet<_> = found.iter().map(|it| it.0).collect();
        assert_eq!(found_sizes.len(), sizes.max - sizes.min + 1);
    }
}
