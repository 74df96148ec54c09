//! Keys, from the bytes that a terminal sends.

use ratatui::crossterm::event::KeyCode;

/// Ctrl-C.
pub const INTERRUPT: KeyCode = KeyCode::Char('\u{3}');

/// The keys in what a terminal has sent at once, without those that have no meaning here.
pub fn keys(sent: &[u8]) -> Vec<KeyCode> {
    let mut keys = Vec::new();
    let mut left = sent;
    while let [first, rest @ ..] = left {
        left = rest;
        keys.extend(match first {
            0x1b => {
                let (key, length) = sequence(rest);
                left = &rest[length..];
                key
            }
            0x03 | b' '..=b'~' => Some(KeyCode::Char(char::from(*first))),
            _ => None,
        });
    }
    keys
}

/// The key of the sequence after an escape character, and the length of the sequence.
fn sequence(after: &[u8]) -> (Option<KeyCode>, usize) {
    match after {
        [] | [0x1b, ..] => (Some(KeyCode::Esc), 0),
        [b'[' | b'O', rest @ ..] => {
            // It ends with the first byte from @ to ~ (ECMA-48).
            let last = rest.iter().position(|byte| (b'@'..=b'~').contains(byte));
            let length = last.map_or(after.len(), |last| last + 2);
            (named(&after[1..length]), length)
        }
        // Alt and a key.
        _ => (None, 1),
    }
}

/// The key of a control sequence, without its introducer.
fn named(sequence: &[u8]) -> Option<KeyCode> {
    Some(match sequence {
        b"A" => KeyCode::Up,
        b"B" => KeyCode::Down,
        b"H" | b"1~" | b"7~" => KeyCode::Home,
        b"F" | b"4~" | b"8~" => KeyCode::End,
        b"5~" => KeyCode::PageUp,
        b"6~" => KeyCode::PageDown,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sequences_are_keys_and_what_is_unknown_is_skipped() {
        use KeyCode::*;
        for (sent, expected) in [
            (&b"q"[..], &[Char('q')][..]),
            (b"\x03", &[INTERRUPT]),
            (b"\x1b", &[Esc]),
            (b"\x1b\x1b", &[Esc, Esc]),
            (b"\x1b[A\x1b[B\x1bOA", &[Up, Down, Up]),
            (b"\x1b[5~\x1b[6~s", &[PageUp, PageDown, Char('s')]),
            (b"\x1b[H\x1b[1~\x1bOH\x1b[F\x1b[4~", &[Home, Home, Home, End, End]),
            // Insert, Shift-F5, an answer about the terminal, Alt-q, UTF-8.
            (b"\x1b[2~\x1b[15;2~\x1b[?1;2c\x1bq\xc3\xbcj", &[Char('j')]),
            (b"\x1b[", &[]),
            (b"\x1b[12;", &[]),
        ] {
            assert_eq!(keys(sent), expected, "{:?}", sent.escape_ascii().to_string());
        }
    }

    proptest! {
        #[test]
        fn any_bytes_can_be_read(sent in proptest::collection::vec(any::<u8>(), 0..40)) {
            prop_assert!(keys(&sent).len() <= sent.len());
        }
    }
}
