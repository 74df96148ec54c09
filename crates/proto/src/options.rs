//! Options behind an announce: the UDP tracker protocol extensions (BEP 41).
//!
//! ```text
//! 0 EndOfOptions: 1 byte, ends the list
//! 1 NOP:          1 byte
//! any other:      +------+--------+---------------+
//!                 | type | length | length bytes  |     (2 is URLData)
//!                 +------+--------+---------------+
//! ```
//!
//! A truncated list is not an error here: its complete options are read and the rest is ignored.
//! Some clients append bytes that are no options: aria2 ends each announce with two end marks.

/// The end of the list (BEP 41, EndOfOptions).
pub const END: u8 = 0;
/// Padding without a meaning (BEP 41, NOP).
pub const NOP: u8 = 1;
/// A part of the path and query of the tracker's URL (BEP 41, URLData).
pub const URL_DATA: u8 = 2;
/// The largest value of one option, bytes: its length is one byte.
pub const MAX_DATA_LEN: usize = 255;

/// The bytes behind an announce, read as options on demand.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Options<'a>(pub &'a [u8]);

/// One option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opt<'a> {
    /// Its type; neither [`END`] nor [`NOP`].
    pub kind: u8,
    /// Its value, at most 255 bytes.
    pub data: &'a [u8],
}

impl<'a> Options<'a> {
    /// The options in order, up to the end mark or the first truncated option.
    pub fn iter(&self) -> impl Iterator<Item = Opt<'a>> + use<'a> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            loop {
                match *rest {
                    [NOP, ref after @ ..] => rest = after,
                    [END, ..] | [_] | [] => return None,
                    [kind, length, ref after @ ..] => {
                        let (data, after) = after.split_at_checked(usize::from(length))?;
                        rest = after;
                        return Some(Opt { kind, data });
                    }
                }
            }
        })
    }

    /// The parts of the URL's path and query; joined, they are the tracker URL behind host and port
    /// (BEP 41: a long one is sent in several options).
    pub fn url_data(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.iter().filter(|option| option.kind == URL_DATA).map(|option| option.data)
    }
}
