//! Sets of vCPUs (`0-3,16-19`), and their assignment to tracker and load.
//!
//! The tracker gets cores from the lowest up, the load from the highest down, as in the published
//! comparisons, so that the set of one does not depend on the size of the other.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use strum::Display;

/// The unit in which vCPUs are assigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize, Display)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum CpuMode {
    /// Each vCPU: for hosts without SMT.
    Subsequent,
    /// The first vCPU of each core, with idle siblings: for virtual machines, whose
    /// siblings may not be real ones. Published comparisons on rented 48-vCPU hosts use this.
    SubsequentOnePerPair,
    /// Whole cores with all their vCPUs (0 and 16, 1 and 17 on a host numbered so): for bare metal
    /// with SMT.
    #[value(alias = "subsequent-pairs")]
    SplitPairs,
}

impl CpuMode {
    /// The default for a host whose cores have these vCPUs.
    pub fn for_cores(cores: &[Vec<usize>]) -> Self {
        match cores.iter().any(|core| core.len() > 1) {
            true => Self::SubsequentOnePerPair,
            false => Self::Subsequent,
        }
    }

    /// The vCPUs of each unit, in order.
    pub fn units(self, cores: &[Vec<usize>]) -> Vec<Vec<usize>> {
        match self {
            Self::Subsequent => ascending(cores).into_iter().map(|cpu| vec![cpu]).collect(),
            Self::SubsequentOnePerPair => cores.iter().map(|core| vec![core[0]]).collect(),
            Self::SplitPairs => cores.to_vec(),
        }
    }
}

/// vCPUs of a tracker and of its load.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Assignment {
    /// Cores of the tracker, as the [`CpuMode`] counts them.
    pub tracker_cores: usize,
    /// Their vCPUs, ascending.
    #[serde(with = "list")]
    pub tracker: Vec<usize>,
    /// Workers of the load.
    pub load_workers: usize,
    /// Their vCPUs, ascending.
    #[serde(with = "list")]
    pub load: Vec<usize>,
}

impl Assignment {
    /// Numbers of workers to try for the tracker: one per core, and one per vCPU if that is more.
    pub fn tracker_workers(&self) -> Vec<usize> {
        let mut workers = vec![self.tracker_cores, self.tracker.len()];
        workers.dedup();
        workers
    }

    /// `tracker_cores` units from the start, `load_workers` from the end; `None` when they overlap
    /// or one of them is empty.
    pub fn new(units: &[Vec<usize>], tracker_cores: usize, load_workers: usize) -> Option<Self> {
        let enough = tracker_cores + load_workers <= units.len();
        if !enough || tracker_cores == 0 || load_workers == 0 {
            return None;
        }
        Some(Self {
            tracker_cores,
            tracker: ascending(&units[..tracker_cores]),
            load_workers,
            load: ascending(&units[units.len() - load_workers..]),
        })
    }
}

/// The vCPUs of these units, ascending.
fn ascending(units: &[Vec<usize>]) -> Vec<usize> {
    let mut cpus = units.concat();
    cpus.sort_unstable();
    cpus
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

/// The assignments for all combinations of tracker cores and load workers, and a line for each one
/// that is left out. Without `cores`: those of the published comparisons that leave the load at
/// least as many units. Without `load_workers`: all remaining units.
pub fn sweep(
    units: &[Vec<usize>],
    cores: &[usize],
    load_workers: &[usize],
) -> (Vec<Assignment>, Vec<String>) {
    let have = units.len();
    let wanted: Vec<usize> = match cores {
        [] => PUBLISHED_CORES.into_iter().filter(|cores| cores * 2 <= have).collect(),
        _ => cores.to_vec(),
    };
    let (mut seats, mut cut) = (Vec::new(), Vec::new());
    for tracker in wanted {
        let rest = [have.saturating_sub(tracker)];
        for &load in if load_workers.is_empty() { &rest[..] } else { load_workers } {
            match Assignment::new(units, tracker, load) {
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

    /// Siblings numbered `0,24`, `1,25`...: how bare-metal hosts count.
    fn split(cores: usize) -> Vec<Vec<usize>> {
        (0..cores).map(|core| vec![core, core + cores]).collect()
    }

    /// Siblings numbered `0,1`, `2,3`...: how virtual machines count.
    fn adjacent(cores: usize) -> Vec<Vec<usize>> {
        (0..cores).map(|core| vec![2 * core, 2 * core + 1]).collect()
    }

    fn flat(cores: usize) -> Vec<Vec<usize>> {
        (0..cores).map(|core| vec![core]).collect()
    }

    fn written(units: &[Vec<usize>], tracker: usize, load: usize) -> Option<(String, String)> {
        let seats = Assignment::new(units, tracker, load)?;
        Some((format_list(&seats.tracker), format_list(&seats.load)))
    }

    #[test]
    fn lists_are_written_as_taskset_takes_them() {
        let seats = Assignment::new(&CpuMode::SplitPairs.units(&split(4)), 3, 1).unwrap();
        let text = serde_json::to_string(&seats).unwrap();
        assert!(text.contains("\"0-2,4-6\"") && text.contains("\"3,7\""), "{text}");
        assert_eq!(serde_json::from_str::<Assignment>(&text).unwrap(), seats);
        let error = serde_json::from_str::<Assignment>(&text.replace("3,7", "3-1")).unwrap_err();
        assert!(error.to_string().contains("3-1"), "{error}");
    }

    #[test]
    fn whole_cores_of_the_published_sixteen_core_host() {
        // The published report: 1 core (0,16), 2 cores (0-1,16-17), 8 load workers (8-15,24-31).
        let units = CpuMode::SplitPairs.units(&split(16));
        let seats = |t, l| written(&units, t, l).unwrap();
        assert_eq!(seats(1, 8), ("0,16".into(), "8-15,24-31".into()));
        assert_eq!(seats(2, 12), ("0-1,16-17".into(), "4-15,20-31".into()));
        assert_eq!(seats(4, 12), ("0-3,16-19".into(), "4-15,20-31".into()));
        assert_eq!(written(&units, 5, 12), None);
    }

    #[test]
    fn one_vcpu_of_each_core_of_a_rented_48_vcpu_host() {
        let cores = adjacent(24);
        assert_eq!(CpuMode::for_cores(&cores), CpuMode::SubsequentOnePerPair);
        let units = CpuMode::SubsequentOnePerPair.units(&cores);
        assert_eq!(written(&units, 2, 3).unwrap(), ("0,2".into(), "42,44,46".into()));
        let (seats, cut) = sweep(&units, &[], &[]);
        let found: Vec<_> = seats.iter().map(|s| (s.tracker_cores, s.load_workers)).collect();
        assert_eq!(found, [(1, 23), (2, 22), (4, 20), (6, 18), (8, 16), (12, 12)]);
        assert!(cut.is_empty());
        // Bare metal with the same cores: the first vCPU of each is another number.
        let units = CpuMode::SubsequentOnePerPair.units(&split(24));
        assert_eq!(written(&units, 2, 3).unwrap(), ("0-1".into(), "21-23".into()));
        // Each vCPU by itself: the published sweep up to 16.
        let units = CpuMode::Subsequent.units(&split(24));
        let cores: Vec<_> = sweep(&units, &[], &[]).0.iter().map(|s| s.tracker_cores).collect();
        assert_eq!(cores, PUBLISHED_CORES);
        assert_eq!(written(&units, 16, 32).unwrap(), ("0-15".into(), "16-47".into()));
    }

    #[test]
    fn two_vcpus_are_one_for_each() {
        let cores = flat(2);
        assert_eq!(CpuMode::for_cores(&cores), CpuMode::Subsequent);
        for mode in [CpuMode::Subsequent, CpuMode::SubsequentOnePerPair, CpuMode::SplitPairs] {
            let (seats, cut) = sweep(&mode.units(&cores), &[], &[]);
            assert_eq!(seats.len(), 1);
            assert_eq!((&seats[0].tracker[..], &seats[0].load[..]), (&[0][..], &[1][..]));
            assert!(cut.is_empty());
        }
        // Two hyperthreads of one core are one unit, and nothing is left for the load.
        assert!(sweep(&CpuMode::SplitPairs.units(&adjacent(1)), &[], &[]).0.is_empty());
    }

    #[test]
    fn sweeps_are_reduced_to_the_host() {
        let units = CpuMode::Subsequent.units(&flat(8));
        let (seats, cut) = sweep(&units, &[1, 4, 8], &[2, 4, 6]);
        let found: Vec<_> = seats.iter().map(|s| (s.tracker_cores, s.load_workers)).collect();
        assert_eq!(found, [(1, 2), (1, 4), (1, 6), (4, 2), (4, 4)]);
        assert_eq!(cut.len(), 4, "{cut:?}");
        assert!(cut[0].contains("4 tracker cores with 6 load workers"), "{cut:?}");
    }

    #[test]
    fn gaps_in_the_allowed_vcpus_are_skipped() {
        let cores = vec![vec![2], vec![3], vec![9]];
        let units = CpuMode::Subsequent.units(&cores);
        assert_eq!(written(&units, 1, 2).unwrap(), ("2".into(), "3,9".into()));
    }
}
