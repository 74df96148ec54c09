//! How many workers of which kind, and on which vCPUs.

use std::time::Duration;

use super::Resolution;
use crate::file::keys::MAX_WORKERS;
use crate::file::{Field, Origin, Pin, Shape, Written};
use crate::settings::summary::{ranges, set};
use crate::settings::{Notice, placement};
use onrush_tracker::limits::Placement;

impl Resolution<'_> {
    /// Workers by kind. Where that cannot be settled, a stand-in that the rest can go on with.
    pub(super) fn placement(&mut self) -> Placement {
        let written = self.written();
        let stand_in = Placement::Colocated { workers: 1 };
        let Written { workers_total: total, workers_socket: socket, workers_swarm: swarm, .. } =
            written;
        if [&total.origin, &socket.origin, &swarm.origin, &written.placement.origin]
            .contains(&&Origin::Broken)
        {
            return stand_in;
        }
        let workers =
            total.value.unwrap_or_else(|| self.host.vcpu_count().min(MAX_WORKERS as usize));
        let placement = match written.placement.value {
            Shape::Split => self.split(workers),
            shape => {
                for (field, key) in [(socket, "workers.socket"), (swarm, "workers.swarm")] {
                    if field.value.is_some() {
                        let what = "this needs `placement = \"split\"`".to_owned();
                        let help = "or give `total` alone, and the rest follows from the placement";
                        self.problem(&field.origin, key, what, Some(help.to_owned()));
                    }
                }
                match shape {
                    Shape::Colocated => Some(Placement::Colocated { workers }),
                    _ => Some(placement::auto(workers)),
                }
            }
        };
        placement.unwrap_or(stand_in)
    }

    fn split(&mut self, workers: usize) -> Option<Placement> {
        let Written { workers_total: total, workers_socket: socket, workers_swarm: swarm, .. } =
            self.written();
        let (socket_workers, swarm_workers) = match (socket.value, swarm.value, total.value) {
            (None, None, Some(1)) => {
                let what = "found 1, but a split placement needs 2 workers at least".to_owned();
                let help = "one for the sockets and one for the swarms; or take \"colocated\"";
                self.problem(&total.origin, "workers.total", what, Some(help.to_owned()));
                return None;
            }
            (None, None, _) => return Some(placement::split(workers)),
            (Some(socket_workers), Some(swarm_workers), total_workers) => {
                let sum = socket_workers + swarm_workers;
                if let Some(total_workers) = total_workers.filter(|total| *total != sum) {
                    let what =
                        format!("found {total_workers}, but `socket` and `swarm` make {sum}");
                    let help = "leave one of the three out, and it follows from the others";
                    self.problem(&total.origin, "workers.total", what, Some(help.to_owned()));
                }
                (socket_workers, swarm_workers)
            }
            (Some(given), None, total_workers) => {
                (given, self.other_kind(given, socket, "socket", "swarm", total_workers)?)
            }
            (None, Some(given), total_workers) => {
                (self.other_kind(given, swarm, "swarm", "socket", total_workers)?, given)
            }
        };
        Some(Placement::Split { socket_workers, swarm_workers })
    }

    /// The workers of one kind, when those of the other are given.
    fn other_kind(
        &mut self,
        given: usize,
        field: &Field<Option<usize>>,
        kind: &str,
        other: &str,
        total: Option<usize>,
    ) -> Option<usize> {
        let what = match total {
            Some(total) if total > given => return Some(total - given),
            Some(total) => {
                format!("found {given} of {total} workers, which leaves no {other} workers")
            }
            None => format!(
                "found {}, but no {other} workers",
                counted(given, &format!("{kind} worker"))
            ),
        };
        let help = format!("give `{other}` too, or a `total` that leaves some");
        self.problem(&field.origin, &format!("workers.{kind}"), what, Some(help));
        None
    }

    pub(super) fn pin(&mut self, placement: Placement) -> Option<Vec<usize>> {
        let workers = placement.workers();
        let field = &self.written().pin;
        let usable = self.host.vcpus.as_slice();
        if workers > self.host.vcpu_count() {
            self.notices.push(Notice::new(format!(
                "{workers} workers share {}; one worker for each vCPU is best",
                counted(self.host.vcpu_count(), "vCPU")
            )));
        }
        match &field.value {
            Pin::Off => None,
            Pin::List(vcpus) => self.pin_to(vcpus, workers),
            Pin::On if workers > usable.len() => {
                let what = format!(
                    "{} cannot be pinned to {}",
                    counted(workers, "worker"),
                    counted(usable.len(), "vCPU")
                );
                let help = "take fewer workers, or leave pinning to \"auto\"".to_owned();
                self.problem(&field.origin, "workers.pin", what, Some(help));
                None
            }
            // Under a quota other processes have the same first vCPUs: pinned there, all would
            // queue for them while the rest of the host is idle.
            Pin::Auto if workers > usable.len() || self.host.is_short_of_time() => None,
            Pin::Auto | Pin::On => Some(usable[..workers].to_vec()),
        }
    }

    pub(super) fn spin(&self, placement: Placement, pinned: bool) -> Duration {
        let micros = self.written().spin.value;
        micros.map_or_else(
            || placement::auto_spin(placement, pinned),
            |micros| Duration::from_micros(u64::from(micros)),
        )
    }

    /// A list by hand: long enough, of vCPUs that may be used.
    fn pin_to(&mut self, vcpus: &[usize], workers: usize) -> Option<Vec<usize>> {
        let origin = &self.written().pin.origin;
        let usable = &self.host.vcpus;
        if vcpus.len() < workers {
            let what = format!(
                "found {} for {}",
                counted(vcpus.len(), "vCPU"),
                counted(workers, "worker")
            );
            let help = "name one for each worker, those of socket workers first".to_owned();
            self.problem(origin, "workers.pin", what, Some(help));
        }
        let foreign: Vec<usize> = vcpus.iter().copied().filter(|v| !usable.contains(v)).collect();
        if !foreign.is_empty() {
            let what = format!("vCPU {} cannot be used here", ranges(&foreign));
            let help = match usable.as_slice() {
                [] => "this host does not tell which vCPUs there are; take \"auto\"".to_owned(),
                usable => format!("this process may run on vCPU {}", set(usable)),
            };
            self.problem(origin, "workers.pin", what, Some(help));
        }
        let mut seen = vcpus.to_vec();
        seen.sort_unstable();
        seen.dedup();
        if seen.len() < vcpus.len() {
            self.notices.push(Notice::new(
                "workers.pin names a vCPU twice: its workers will wait for each other".to_owned(),
            ));
        }
        if vcpus.len() > workers {
            let unused = ranges(&vcpus[workers..]);
            self.notices.push(Notice::new(format!(
                "workers.pin names more vCPUs than there are workers: {unused} stays unused"
            )));
        }
        Some(vcpus.iter().copied().take(workers).collect())
    }
}

/// A number of things: `1 vCPU`, `2 vCPUs`.
pub(super) fn counted(number: usize, thing: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {thing}{plural}")
}
