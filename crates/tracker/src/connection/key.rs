//! The keys of connection ids.

use std::fmt;

/// A secret key. Its `Debug` form does not reveal it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key(pub [u8; 16]);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// The keys of a tracker's connection ids.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Keys {
    /// Issues and checks ids.
    pub current: Key,
    /// Only checks ids: the current key before the last rotation.
    pub previous: Option<Key>,
    /// Only checks ids: the current key after the next rotation, which other hosts may issue ids
    /// with already.
    pub next: Option<Key>,
}

impl Keys {
    /// A random key from the system's source, without a previous and a next one.
    pub fn random() -> Self {
        Self { current: Key(rand::random()), previous: None, next: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_hides_the_secret() {
        assert_eq!(format!("{:?}", Key([0xAB; 16])), "Key(..)");
    }
}
