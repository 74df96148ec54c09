//! A lenient reader of bencoding (BEP 3, "bencoding"), so that one fault of a reply fails one
//! check. `onrush_proto::http::client` is the strict one.

/// Values within each other, at most.
const DEPTH: u32 = 16;

/// A bencoded value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Value {
    /// An integer.
    Number(i64),
    /// A string, which may be any bytes.
    Text(Vec<u8>),
    /// A list.
    List(Vec<Value>),
    /// A dictionary, with its keys as they come.
    Dictionary(Vec<(Vec<u8>, Value)>),
}

impl Value {
    /// The value with which a text begins.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        read(&mut &text[..], DEPTH)
    }

    /// The value of a key, if this is a dictionary with it.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        let Self::Dictionary(pairs) = self else { return None };
        pairs.iter().find(|(name, _)| name == key.as_bytes()).map(|(_, value)| value)
    }

    /// The number of a key.
    pub(super) fn number(&self, key: &str) -> Option<i64> {
        if let Some(Self::Number(number)) = self.get(key) { Some(*number) } else { None }
    }

    /// The string of a key.
    pub(super) fn text(&self, key: &str) -> Option<&[u8]> {
        if let Some(Self::Text(text)) = self.get(key) { Some(text) } else { None }
    }
}

fn read(rest: &mut &[u8], depth: u32) -> Option<Value> {
    let depth = depth.checked_sub(1)?;
    let first = *rest.first()?;
    if first.is_ascii_digit() {
        let length = until(rest, b':')?.parse().ok()?;
        let (text, behind) = rest.split_at_checked(length)?;
        *rest = behind;
        return Some(Value::Text(text.to_vec()));
    }
    *rest = &rest[1..];
    match first {
        b'i' => until(rest, b'e')?.parse().ok().map(Value::Number),
        b'l' => {
            let mut list = Vec::new();
            while !is_end(rest) {
                list.push(read(rest, depth)?);
            }
            Some(Value::List(list))
        }
        b'd' => {
            let mut pairs = Vec::new();
            while !is_end(rest) {
                let Value::Text(key) = read(rest, depth)? else { return None };
                pairs.push((key, read(rest, depth)?));
            }
            Some(Value::Dictionary(pairs))
        }
        _ => None,
    }
}

/// Takes the text before a byte, and the byte.
fn until<'a>(rest: &mut &'a [u8], end: u8) -> Option<&'a str> {
    let at = rest.iter().position(|byte| *byte == end)?;
    let text = std::str::from_utf8(&rest[..at]).ok();
    *rest = &rest[at + 1..];
    text
}

/// Takes the end of a list or a dictionary, if that is next.
fn is_end(rest: &mut &[u8]) -> bool {
    let found = rest.first() == Some(&b'e');
    *rest = &rest[usize::from(found)..];
    found
}
