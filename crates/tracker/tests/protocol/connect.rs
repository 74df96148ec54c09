//! Connect.

use onrush::intake::Refusal;

use crate::support::packets::{MAGIC, head};
use crate::support::served::both;

/// Both families of the loopback interface.
const SOURCES: [&str; 2] = ["127.0.0.1", "::1"];

/// Packets: request 0: magic, 8: action 0, 12: transaction id; response, exactly 16 bytes, 0: 0,
/// 4: transaction id, 8: connection id, never 0 (BEP 15, "Connect").
#[test]
fn a_connect_is_answered_with_sixteen_bytes() {
    both("", |tracker| {
        for source in SOURCES {
            let client = tracker.stranger(source);
            let request =
                [0, 0, 4, 0x17, 0x27, 0x10, 0x19, 0x80, 0, 0, 0, 0, 0xDE, 0xAD, 0xBE, 0xEF];
            client.send(&request);
            let reply = client.receive();
            assert_eq!(reply.len(), 16);
            assert_eq!(reply[..8], [0, 0, 0, 0, 0xDE, 0xAD, 0xBE, 0xEF]);
            assert_ne!(reply[8..], [0; 8]);
        }
        tracker.until("both are counted", || tracker.summary().connects == 2);
    });
}

/// Connect: wrong magic is met with silence, and counted (BEP 15, "Connect").
#[test]
fn a_connect_without_the_magic_number_is_ignored() {
    both("", |tracker| {
        for source in SOURCES {
            let client = tracker.client(source);
            for wrong in [0, MAGIC + 1, MAGIC.swap_bytes(), MAGIC << 16, client.id] {
                client.is_ignored(tracker, &head(wrong, 0, 7), Refusal::Magic);
            }
        }
    });
}
