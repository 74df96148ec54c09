//! The secrets that connection ids are made with.

use std::fmt;

/// A secret. Its `Debug` form does not show it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key(pub [u8; 16]);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// The keys of a tracker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Keys {
    /// Makes ids and checks them.
    pub current: Key,
    /// Only checks them.
    pub previous: Option<Key>,
}

impl Keys {
    /// Fresh keys from the system's random source, without a previous one.
    pub fn random() -> Self {
        Self { current: Key(rand::random()), previous: None }
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
