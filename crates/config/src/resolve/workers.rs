//! The number of workers of each kind, and their vCPUs.

use onrush_net::affinity::format_list;
use onrush_text::numbers::plural;
use onrush_tracker::limits::Placement;

use super::Resolution;
use crate::keys::{MAX_WORKERS, WorkerKeys};
use crate::placement;
use crate::values::{Pin, PlacementMode};

impl Resolution<'_> {
    /// Workers by kind. Where the keys contradict each other, a substitute.
    pub(super) fn placement(&mut self) -> Placement {
        let substitute = Placement::Colocated { workers: 1 };
        if !self.accepted("workers", &["total", "socket", "swarm", "placement"]) {
            return substitute;
        }
        let keys = &self.file.workers;
        let (mode, socket, swarm) = (keys.placement, keys.socket, keys.swarm);
        let workers = keys.total.unwrap_or_else(|| self.host.vcpu_count().min(MAX_WORKERS));
        if mode == PlacementMode::Split {
            return self.split(workers).unwrap_or(substitute);
        }
        for (given, key) in [(socket, "workers.socket"), (swarm, "workers.swarm")] {
            if given.is_some() {
                let what = "this key needs `placement = \"split\"`".to_owned();
                let remedy = "or write only `total`";
                self.document.problem(key, what, Some(remedy));
            }
        }
        match mode {
            PlacementMode::Colocated => Placement::Colocated { workers },
            _ => placement::auto(workers),
        }
    }

    fn split(&mut self, workers: usize) -> Option<Placement> {
        let WorkerKeys { socket, swarm, total, .. } = self.file.workers;
        let (given, kind, other) = match (socket, swarm) {
            (None, None) if total == Some(1) => {
                let what = "found 1, but a split placement needs at least 2 workers".to_owned();
                let remedy = "write 2 or more, or `placement = \"colocated\"`";
                self.document.problem("workers.total", what, Some(remedy));
                return None;
            }
            (None, None) => return Some(placement::split(workers)),
            (Some(socket_workers), Some(swarm_workers)) => {
                let sum = socket_workers + swarm_workers;
                if let Some(total) = total.filter(|total| *total != sum) {
                    let what =
                        format!("found {total}, but the sum of `socket` and `swarm` is {sum}");
                    let remedy = "remove one of the three keys";
                    self.document.problem("workers.total", what, Some(remedy));
                }
                return Some(Placement::Split { socket_workers, swarm_workers });
            }
            (Some(socket), None) => (socket, "socket", "swarm"),
            (None, Some(swarm)) => (swarm, "swarm", "socket"),
        };
        let what = match total {
            Some(total) if total > given => {
                let rest = total - given;
                return Some(Placement::Split {
                    socket_workers: socket.unwrap_or(rest),
                    swarm_workers: swarm.unwrap_or(rest),
                });
            }
            Some(total) => {
                format!("found {given} of {total} workers, which leaves no {other} workers")
            }
            None => {
                let given = plural(given, &format!("{kind} worker"));
                format!("found {given}, but no {other} workers")
            }
        };
        let remedy = format!("write `{other}` too, or a greater `total`");
        self.document.problem(&format!("workers.{kind}"), what, Some(&remedy));
        None
    }

    pub(super) fn pin(&mut self, placement: Placement) -> Option<Vec<usize>> {
        let workers = placement.workers();
        let usable = &self.host.vcpus;
        if workers > self.host.vcpu_count() {
            let vcpus = plural(self.host.vcpu_count(), "vCPU");
            self.notices
                .push(format!("{workers} workers share {vcpus}: one worker per vCPU is best"));
        }
        match self.file.workers.pin.clone() {
            Pin::Off => None,
            Pin::Vcpus(vcpus) => self.pin_to(&vcpus, workers),
            Pin::On if workers > usable.len() => {
                let what = format!(
                    "{} cannot be pinned to {}",
                    plural(workers, "worker"),
                    plural(usable.len(), "vCPU")
                );
                let remedy = "configure fewer workers, or write \"auto\"";
                self.document.problem("workers.pin", what, Some(remedy));
                None
            }
            // Under a quota, other processes are pinned to the same first vCPUs: all of them would
            // wait for these while the others are idle.
            Pin::Auto if workers > usable.len() || self.host.is_short_of_time() => None,
            Pin::Auto | Pin::On => Some(usable[..workers].to_vec()),
        }
    }

    /// Checks an explicit list of vCPUs.
    fn pin_to(&mut self, vcpus: &[usize], workers: usize) -> Option<Vec<usize>> {
        let usable = &self.host.vcpus;
        if vcpus.len() < workers {
            let (vcpus, workers) = (plural(vcpus.len(), "vCPU"), plural(workers, "worker"));
            let what = format!("found {vcpus} for {workers}");
            let remedy = "write one per worker, those of socket workers first";
            self.document.problem("workers.pin", what, Some(remedy));
        }
        let unusable: Vec<_> = vcpus.iter().copied().filter(|v| !usable.contains(v)).collect();
        if !unusable.is_empty() {
            let what = format!("this process cannot use vCPU {}", format_list(&unusable));
            let mut usable = usable.clone();
            usable.sort_unstable();
            let remedy = match usable.as_slice() {
                [] => "write \"auto\": the vCPUs of this host cannot be read".to_owned(),
                usable => format!("it can use vCPU {}", format_list(usable)),
            };
            self.document.problem("workers.pin", what, Some(&remedy));
        }
        let mut distinct = vcpus.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        if distinct.len() < vcpus.len() {
            let what = "workers.pin has a vCPU twice: its workers will wait for each other";
            self.notices.push(what.to_owned());
        }
        if vcpus.len() > workers {
            let unused = format_list(&vcpus[workers..]);
            self.notices.push(format!(
                "workers.pin has more vCPUs than there are workers: {unused} is not used"
            ));
        }
        Some(vcpus.iter().copied().take(workers).collect())
    }
}
