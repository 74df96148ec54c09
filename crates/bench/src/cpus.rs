//! Sets of vCPUs (`0-3,16-19`), and their assignment to tracker and load: one vCPU of each core.
//!
//! The tracker gets cores from the lowest up, the load from the highest down, as in the published
//! comparisons, so that the set of one does not depend on the size of the other.

use serde::{Deserialize, Serialize};

/// vCPUs of a tracker and of its load, each on a core of its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Assignment {
    /// Those of the tracker, ascending.
    #[serde(with = "list")]
    pub tracker: Vec<usize>,
    /// Those of the load, ascending; each has a worker.
    #[serde(with = "list")]
    pub load: Vec<usize>,
}

impl Assignment {
    /// `tracker` vCPUs of `cpus` from the start, `load` from the end; `None` when they overlap or
    /// one of them is empty.
    pub fn new(cpus: &[usize], tracker: usize, load: usize) -> Option<Self> {
        if tracker + load > cpus.len() || tracker == 0 || load == 0 {
            return None;
        }
        let (tracker, load) = (&cpus[..tracker], &cpus[cpus.len() - load..]);
        Some(Self { tracker: tracker.into(), load: load.into() })
    }
}

/// vCPUs in the text form of `taskset -c`.
mod list {
    use onrush_load::affinity;
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(cpus: &[usize], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&affinity::format_list(cpus))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<usize>, D::Error> {
        let text = String::deserialize(from)?;
        affinity::parse_list(&text)
            .ok_or_else(|| D::Error::custom(format!("{text:?} is no list of vCPUs, like 0-3,8")))
    }
}

/// Default numbers of tracker cores: those of the published comparisons.
pub const PUBLISHED_CORES: [usize; 7] = [1, 2, 4, 6, 8, 12, 16];

/// The assignments for all combinations of tracker cores and load workers, from one vCPU of each
/// core, and a line for each one that is left out. Without `cores`: those of the published
/// comparisons that leave the load at least as many. Without `load_workers`: all remaining cores.
pub fn sweep(
    cpus: &[usize],
    cores: &[usize],
    load_workers: &[usize],
) -> (Vec<Assignment>, Vec<String>) {
    let have = cpus.len();
    let wanted: Vec<usize> = match cores {
        [] => PUBLISHED_CORES.into_iter().filter(|cores| cores * 2 <= have).collect(),
        _ => cores.to_vec(),
    };
    let (mut seats, mut cut) = (Vec::new(), Vec::new());
    for tracker in wanted {
        let rest = [have.saturating_sub(tracker)];
        for &load in if load_workers.is_empty() { &rest[..] } else { load_workers } {
            match Assignment::new(cpus, tracker, load) {
                Some(found) => seats.push(found),
                None => cut.push(format!(
                    "left out: {tracker} tracker cores with {load} load workers, as this host has \
                     {have} for both"
                )),
            }
        }
    }
    (seats, cut)
}

#[cfg(test)]
mod tests {
    use super::*;
    use onrush_load::affinity::format_list;

    fn written(cpus: &[usize], tracker: usize, load: usize) -> Option<(String, String)> {
        let seats = Assignment::new(cpus, tracker, load)?;
        Some((format_list(&seats.tracker), format_list(&seats.load)))
    }

    fn counts(seats: &[Assignment]) -> Vec<(usize, usize)> {
        seats.iter().map(|seats| (seats.tracker.len(), seats.load.len())).collect()
    }

    #[test]
    fn lists_are_written_as_taskset_takes_them() {
        let seats = Assignment::new(&[0, 1, 2, 4, 5, 7], 4, 1).unwrap();
        let text = serde_json::to_string(&seats).unwrap();
        assert!(text.contains("\"0-2,4\"") && text.contains("\"7\""), "{text}");
        assert_eq!(serde_json::from_str::<Assignment>(&text).unwrap(), seats);
        let error = serde_json::from_str::<Assignment>(&text.replace("0-2", "3-1")).unwrap_err();
        assert!(error.to_string().contains("3-1"), "{error}");
    }

    #[test]
    fn one_vcpu_of_each_core_of_a_rented_48_vcpu_host() {
        let cpus: Vec<_> = (0..48).step_by(2).collect();
        assert_eq!(written(&cpus, 2, 3).unwrap(), ("0,2".into(), "42,44,46".into()));
        let (seats, cut) = sweep(&cpus, &[], &[]);
        assert_eq!(counts(&seats), [(1, 23), (2, 22), (4, 20), (6, 18), (8, 16), (12, 12)]);
        assert!(cut.is_empty());
    }

    #[test]
    fn without_smt_the_published_sweep_goes_up_to_sixteen() {
        let cpus: Vec<_> = (0..48).collect();
        let cores: Vec<_> = sweep(&cpus, &[], &[]).0.iter().map(|s| s.tracker.len()).collect();
        assert_eq!(cores, PUBLISHED_CORES);
        assert_eq!(written(&cpus, 16, 32).unwrap(), ("0-15".into(), "16-47".into()));
        assert_eq!(written(&cpus, 17, 32), None);
    }

    #[test]
    fn two_vcpus_are_one_for_each() {
        let (seats, cut) = sweep(&[0, 1], &[], &[]);
        assert_eq!(seats, [Assignment { tracker: vec![0], load: vec![1] }]);
        assert!(cut.is_empty());
        // Nothing is left for the load.
        assert!(sweep(&[0], &[], &[]).0.is_empty());
    }

    #[test]
    fn sweeps_are_reduced_to_the_host() {
        let (seats, cut) = sweep(&[0, 1, 2, 3, 4, 5, 6, 7], &[1, 4, 8], &[2, 4, 6]);
        assert_eq!(counts(&seats), [(1, 2), (1, 4), (1, 6), (4, 2), (4, 4)]);
        assert_eq!(cut.len(), 4, "{cut:?}");
        assert!(cut[0].contains("4 tracker cores with 6 load workers"), "{cut:?}");
    }

    #[test]
    fn gaps_in_the_allowed_vcpus_are_skipped() {
        assert_eq!(written(&[2, 3, 9], 1, 2).unwrap(), ("2".into(), "3,9".into()));
    }
}
