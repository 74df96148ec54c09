//! The vCPUs that this process may use, which of them share a core, and pinning a thread to one.

use std::collections::BTreeMap;
use std::fs;
use std::io;

use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// This thread, in the calls of affinity (sched_setaffinity(2)).
const THIS_THREAD: Pid = Pid::from_raw(0);

/// Why the affinity mask could not be read or a thread not be pinned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AffinityError {
    /// The system refuses the call.
    #[error("cannot read which vCPUs this process may use: {0}")]
    Unreadable(io::Error),
    /// The vCPU is not in the process's mask, or offline.
    #[error(
        "vCPU {cpu} cannot be used: it is offline or outside of this process's affinity mask \
         (see: taskset -pc $$, or AllowedCPUs= and CPUAffinity= in the systemd unit)"
    )]
    NotAllowed {
        /// The vCPU.
        cpu: usize,
    },
    /// The system refuses to pin the thread.
    #[error("cannot pin a thread to vCPU {cpu}: {cause}")]
    Refused {
        /// The vCPU.
        cpu: usize,
        /// The system's error.
        cause: io::Error,
    },
}

/// The vCPUs in this process's affinity mask, ascending. Never empty.
///
/// # Errors
/// [`AffinityError::Unreadable`]; the caller then runs unpinned.
pub fn allowed() -> Result<Vec<usize>, AffinityError> {
    let set = sched_getaffinity(THIS_THREAD).map_err(|e| AffinityError::Unreadable(e.into()))?;
    let is_set = |cpu: &usize| set.is_set(*cpu).unwrap_or(false);
    let cpus: Vec<usize> = (0..CpuSet::count()).filter(is_set).collect();
    if cpus.is_empty() {
        return Err(AffinityError::Unreadable(io::ErrorKind::NotFound.into()));
    }
    Ok(cpus)
}

/// The vCPUs on the same core as `cpu`, itself included, ascending; `None` where the system does
/// not report them.
pub fn siblings(cpu: usize) -> Option<Vec<usize>> {
    let file = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
    parse_list(&fs::read_to_string(file).ok()?)
}

/// The same vCPUs, ordered so that the first ones have a core each: the first thread of every core,
/// then the second threads. Placement takes them from the front.
pub fn cores_first(cpus: &[usize]) -> Vec<usize> {
    order(cpus, siblings)
}

/// The given vCPUs grouped by core, each group ascending, in order of the cores' first given vCPU.
/// A vCPU whose siblings are unknown is a core of its own.
pub fn cores(cpus: &[usize]) -> Vec<Vec<usize>> {
    group(cpus, siblings)
}

/// Pins the calling thread to one vCPU.
///
/// # Errors
/// [`AffinityError::NotAllowed`] or [`AffinityError::Refused`].
pub fn pin_current_thread(cpu: usize) -> Result<(), AffinityError> {
    let mut set = CpuSet::new();
    let pinned = set.set(cpu).and_then(|()| sched_setaffinity(THIS_THREAD, &set));
    pinned.map_err(|cause| match cause {
        Errno::EINVAL => AffinityError::NotAllowed { cpu },
        _ => AffinityError::Refused { cpu, cause: cause.into() },
    })
}

/// Parses the list form of the kernel and of `taskset -c`, like `0-3,8,10-11`; `None` where the
/// text is no such list. (Linux, Documentation/admin-guide/cputopology.rst.)
pub fn parse_list(list: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        // A bound on the numbers: a corrupt file must not exhaust memory.
        if first > last || last > 65_536 {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

/// Writes ascending vCPU numbers in the form that [`parse_list`] reads: `0-3,8`.
pub fn format_list(cpus: &[usize]) -> String {
    let mut ranges = Vec::new();
    let mut rest = cpus;
    while let [first, ..] = rest {
        let run = rest.iter().zip(*first..).take_while(|(cpu, next)| *cpu == next).count();
        ranges.push(match run {
            1 => first.to_string(),
            _ => format!("{first}-{}", first + run - 1),
        });
        rest = &rest[run..];
    }
    ranges.join(",")
}

/// [`cores`] with another source of siblings.
fn group(cpus: &[usize], siblings: impl Fn(usize) -> Option<Vec<usize>>) -> Vec<Vec<usize>> {
    let mut cores = BTreeMap::<usize, Vec<usize>>::new();
    for &cpu in cpus {
        let first = siblings(cpu).and_then(|all| all.first().copied()).unwrap_or(cpu);
        cores.entry(first).or_default().push(cpu);
    }
    let mut cores: Vec<_> = cores.into_values().collect();
    cores.iter_mut().for_each(|core| core.sort_unstable());
    cores.sort_by_key(|core| core[0]);
    cores
}

/// Orders by rank within the core, then by number. Only siblings in `cpus` count.
fn order(cpus: &[usize], siblings: impl Fn(usize) -> Option<Vec<usize>>) -> Vec<usize> {
    let cores = group(cpus, siblings).into_iter();
    let mut ranked: Vec<(usize, usize)> =
        cores.flat_map(|core| core.into_iter().enumerate()).collect();
    ranked.sort_unstable();
    ranked.into_iter().map(|(_, cpu)| cpu).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn lists_are_parsed() {
        assert_eq!(parse_list("0-3,8,10-11\n"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!(parse_list("5"), Some(vec![5]));
        assert_eq!(parse_list(""), None);
        assert_eq!(parse_list("0-999999999"), None);
        assert_eq!(parse_list("3-1"), None);
    }

    #[test]
    fn lists_are_written_as_they_are_parsed() {
        for text in ["3", "0-3", "0,2,4-6", "0-3,16-19"] {
            assert_eq!(format_list(&parse_list(text).unwrap()), text);
        }
        assert_eq!(format_list(&[]), "");
    }

    #[test]
    fn siblings_are_grouped_by_core() {
        let four_apart = |cpu: usize| Some(vec![cpu % 4, cpu % 4 + 4]);
        assert_eq!(group(&[0, 1, 4, 5], four_apart), [vec![0, 4], vec![1, 5]]);
        let adjacent = |cpu: usize| Some(vec![cpu & !1, cpu | 1]);
        assert_eq!(group(&[0, 1, 2, 3], adjacent), [vec![0, 1], vec![2, 3]]);
        // vCPU 0 is not given, and the siblings of 7 are unknown.
        let partial = |cpu: usize| (cpu < 7).then(|| vec![0, 4]);
        assert_eq!(group(&[4, 7], partial), [vec![4], vec![7]]);
    }

    #[test]
    fn cores_come_before_their_second_threads() {
        // Four cores with two threads each, numbered n and n + 4, as Linux does on Epyc.
        let pair = |cpu: usize| Some(vec![cpu % 4, cpu % 4 + 4]);
        assert_eq!(order(&[0, 1, 2, 3, 4, 5, 6, 7], pair), [0, 1, 2, 3, 4, 5, 6, 7]);
        // Numbered in pairs.
        let next = |cpu: usize| Some(vec![cpu & !1, cpu | 1]);
        assert_eq!(order(&[0, 1, 2, 3, 4, 5], next), [0, 2, 4, 1, 3, 5]);
        // A first thread outside of the mask does not count.
        assert_eq!(order(&[1, 2, 3], next), [1, 2, 3]);
        assert_eq!(order(&[3, 1], |_| None), [1, 3]);
    }

    #[test]
    fn a_pinned_thread_is_allowed_only_its_cpu() {
        thread::spawn(|| {
            let all = allowed().unwrap();
            let last = *all.last().unwrap();
            pin_current_thread(last).unwrap();
            assert_eq!(allowed().unwrap(), [last]);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn an_absent_cpu_is_named() {
        let error = thread::spawn(|| pin_current_thread(1000).unwrap_err()).join().unwrap();
        assert!(matches!(error, AffinityError::NotAllowed { cpu: 1000 }), "{error}");
    }
}
