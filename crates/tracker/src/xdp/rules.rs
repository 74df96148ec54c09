//! The rules of a second and of those after it, as `struct rules` of the program.

use crate::connection::ConnectionIds;

use super::XdpSettings;

/// Seconds for which rules hold after they were given: the program serves that long without a
/// renewal.
const VALID: u64 = 30;
/// Phases of a set of rules: in 30 seconds ids of one bucket expire, and a new bucket begins.
const PHASES: usize = 4;
/// Sets of keys: of new ids, of the previous key, of the next key.
const KEY_SETS: usize = 3;
const PHASE_LEN: usize = 16;
const KEYS_LEN: usize = 4 * 16;
/// Bytes of the rules.
pub(super) const RULES_LEN: usize = PHASES * PHASE_LEN + KEY_SETS * KEYS_LEN + 8;

/// The tries of blocked sources.
pub(super) const BLOCKED: [&str; 2] = ["blocked_0", "blocked_1"];

/// Bits of `flags`.
const ANSWER_CONNECTS: u32 = 1;
const REFUSE_BOGONS: u32 = 2;
const BLOCKED_BY: [u32; 2] = [4, 8];
const NEXT_HOP: u32 = 16;

impl XdpSettings {
    /// `flags` of the rules, with the trie of blocked sources if any are.
    pub(super) fn flags(self, refuse_bogons: bool, trie: Option<usize>) -> u32 {
        let bit = |flag, is_set| if is_set { flag } else { 0 };
        bit(ANSWER_CONNECTS, self.answer_connects)
            | bit(REFUSE_BOGONS, refuse_bogons)
            | bit(NEXT_HOP, self.next_hop)
            | trie.map_or(0, |trie| BLOCKED_BY[trie])
    }
}

/// A time in which the same connection ids are issued and valid, until `end` (CLOCK_MONOTONIC,
/// nanoseconds).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Phase {
    end: u64,
    tag: u8,
    valid: u8,
}

/// The phases from the second `unix` on, which began at `began`. They end before ids of a bucket
/// whose keys are not in the rules.
fn phases(ids: &ConnectionIds, unix: u64, began: u64) -> Vec<Phase> {
    let last_bucket = ids.bucket(unix) + 1;
    let mut phases: Vec<Phase> = Vec::new();
    for ahead in 0..=VALID {
        let second = unix + ahead;
        if ids.bucket(second) > last_bucket {
            break;
        }
        let (tag, valid) = (ids.tag(second), ids.valid_tags(second));
        let end = began + (ahead + 1) * 1_000_000_000;
        if let Some(phase) = phases.last_mut()
            && (phase.tag, phase.valid) == (tag, valid)
        {
            phase.end = end;
        } else if phases.len() < PHASES {
            phases.push(Phase { end, tag, valid });
        } else {
            break;
        }
    }
    phases
}

/// The rules of the second `unix`, which began at `began`.
pub(super) fn encode(ids: &ConnectionIds, unix: u64, began: u64, flags: u32) -> [u8; RULES_LEN] {
    let mut bytes = Vec::with_capacity(RULES_LEN);
    for Phase { end, tag, valid } in phases(ids, unix, began) {
        bytes.extend(end.to_ne_bytes());
        bytes.extend(u32::from(tag).to_ne_bytes());
        bytes.extend(u32::from(valid).to_ne_bytes());
    }
    // A phase that ends at 0 is over.
    bytes.resize(PHASES * PHASE_LEN, 0);
    let sets = ids.key_sets(unix);
    let words = sets.iter().flatten().flatten();
    bytes.extend(words.flat_map(|word| word.to_ne_bytes()));
    bytes.resize(PHASES * PHASE_LEN + KEY_SETS * KEYS_LEN, 0);
    bytes.extend((sets.len() as u32).to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.try_into().expect("each part has its length")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::{Key, Keys, SKEW};

    const SECOND: u64 = 1_000_000_000;

    fn ids(validity: u32) -> ConnectionIds {
        ConnectionIds::new(&Keys { current: Key([7; 16]), previous: None, next: None }, validity)
    }

    #[test]
    fn phases_are_those_of_the_daemons_ids() {
        for validity in [1, 2, 11, 15, 120, 3_600] {
            let ids = ids(validity);
            for unix in 100_000..100_000 + 2 * u64::from(validity).min(130) {
                let phases = phases(&ids, unix, 77);
                let at = |second: u64| {
                    let time = 77 + second * SECOND;
                    phases.iter().find(|phase| time < phase.end)
                };
                let end = phases.last().unwrap().end;
                assert_eq!((end - 77) % SECOND, 0);
                for ahead in 0..(end - 77) / SECOND {
                    let (phase, second) = (at(ahead).unwrap(), unix + ahead);
                    assert_eq!(phase.tag, ids.tag(second), "{validity} {unix} {ahead}");
                    assert_eq!(phase.valid, ids.valid_tags(second), "{validity} {unix} {ahead}");
                }
            }
        }
    }

    #[test]
    fn rules_hold_for_thirty_seconds_where_their_keys_do() {
        let seconds = |validity, unix| {
            let phases = phases(&ids(validity), unix, 0);
            phases.last().unwrap().end / SECOND
        };
        assert!((1_200..1_320).all(|unix| seconds(120, unix) == VALID + 1));
        // The keys of this bucket and of the next one.
        assert_eq!((seconds(2, 1_200), seconds(2, 1_201)), (4, 3));
        const { assert!(SKEW < VALID) };
    }
}
