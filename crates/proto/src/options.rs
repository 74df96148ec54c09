//! What may follow an announce: the UDP tracker protocol extensions (BEP 41).
//!
//! ```text
//! 0 EndOfOptions: 1 byte, the rest is nothing
//! 1 NOP:          1 byte
//! any other:      +------+--------+---------------+
//!                 | type | length | length bytes  |     (2 is URLData)
//!                 +------+--------+---------------+
//! ```
//!
//! A list that breaks off is no error here: its whole options count, the rest is ignored.

/// Ends the list (BEP 41, "Option types").
pub const END: u8 = 0;
/// Means nothing (BEP 41, "Option types").
pub const NOP: u8 = 1;
/// A part of the path and query of the tracker's URL (BEP 41, "URLData").
pub const URL_DATA: u8 = 2;

/// The bytes behind an announce, read as options on demand.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
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
    /// The options in order, up to the end mark or the first that breaks off.
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

    /// The parts of the URL's path and query; joined, they are what the client was given
    /// behind host and port (BEP 41: a long one is sent in several options).
    pub fn url_data(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.iter().filter(|option| option.kind == URL_DATA).map(|option| option.data)
    }
}

impl std::fmt::Debug for Options<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
