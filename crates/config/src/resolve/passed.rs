//! Sockets that a service manager has opened: they determine the addresses to listen on and the
//! number of workers with sockets.

use onrush_text::numbers::plural;
use onrush_tracker::limits::Placement;

use super::Resolution;
use crate::host::Passed;
use crate::settings::Listen;

impl Resolution<'_> {
    /// The placement with as many workers with sockets as there are sockets per address.
    pub(super) fn by_sockets(&mut self, placement: Placement) -> Placement {
        let Some(Passed { each, .. }) = self.host.passed else { return placement };
        let asked = placement.socket_sides();
        if each == asked {
            return placement;
        }
        let given = ["workers.total", "workers.socket"];
        let given = given.into_iter().find(|key| self.document.is_given(key));
        match given {
            Some(key) if each > asked => {
                let what = format!(
                    "{each} sockets were passed per address, but only {} would read them: \
                     datagrams of the others would be lost",
                    plural(asked, "worker")
                );
                let remedy = format!(
                    "repeat each ListenDatagram= line {asked} times in the socket unit, or \
                     configure {each} workers with sockets"
                );
                self.document.problem(key, what, Some(&remedy));
                return placement;
            }
            _ if each < asked => self.notices.push(format!(
                "there are sockets for {each} of {asked} workers, and fewer workers are started: \
                 repeat each ListenDatagram= line {asked} times in the socket unit, with \
                 ReusePort=yes"
            )),
            _ => {}
        }
        match placement {
            Placement::Colocated { .. } => Placement::Colocated { workers: each },
            Placement::Split { swarm_workers, .. } => {
                Placement::Split { socket_workers: each, swarm_workers }
            }
        }
    }

    /// The addresses of passed sockets in place of the configured ones.
    pub(super) fn passed_instead(&mut self, configured: Vec<Listen>) -> Vec<Listen> {
        let Some(Passed { addresses, .. }) = &self.host.passed else { return configured };
        let same = addresses.len() == configured.len()
            && configured.iter().all(|listen| addresses.contains(&listen.address));
        if !same && self.document.is_given("listen") {
            let by = self.document.origin("listen").unwrap_or_default();
            let opened: Vec<_> = addresses.iter().map(ToString::to_string).collect();
            self.notices.push(format!(
                "`listen` of {by} is ignored, as the service manager has opened {}: change the \
                 socket unit instead, or disable it",
                opened.join(" and ")
            ));
        }
        addresses.iter().map(|&address| Listen { address, optional: false }).collect()
    }
}

#[cfg(test)]
mod tests {
    use onrush_toml_keys::Problems;
    use onrush_tracker::limits::Placement;

    use crate::{Flags, Host, Passed, Settings};

    fn settings(
        text: &str,
        vcpus: usize,
        each: usize,
    ) -> Result<(Settings, Vec<String>), Problems> {
        let addresses = ["0.0.0.0:6969", "[::]:6969"].map(|text| text.parse().unwrap()).to_vec();
        let passed = Some(Passed { addresses, each });
        let host = Host { vcpus: (0..vcpus).collect(), passed, ..Host::default() };
        Settings::parse("test.toml", text, &Flags::default(), &host)
    }

    #[test]
    fn sockets_determine_workers_and_addresses() {
        let colocated = |workers| Placement::Colocated { workers };
        let split = Placement::Split { socket_workers: 2, swarm_workers: 1 };
        let three = "[workers]\nplacement = 'split'\nsocket = 3\nswarm = 1\n";
        for (text, vcpus, each, placement, notice) in [
            ("listen = [':6969']", 2, 2, colocated(2), &[][..]),
            ("", 4, 1, colocated(1), &["1 of 4 workers", "line 4 times", "ReusePort=yes"]),
            (three, 4, 2, split, &["2 of 3 workers"]),
            ("", 2, 3, colocated(3), &["3 workers share 2 vCPUs"]),
            (
                "listen = ['127.0.0.1:80']",
                2,
                2,
                colocated(2),
                &["`listen` of test.toml", "0.0.0.0:6969 and [::]:6969"],
            ),
        ] {
            let (settings, notices) = settings(text, vcpus, each).unwrap();
            assert_eq!(settings.placement, placement, "{text}");
            let pinned = placement.workers() <= vcpus;
            assert_eq!(settings.pin, pinned.then(|| (0..placement.workers()).collect()));
            let addresses: Vec<_> = settings.listen.iter().map(|l| l.address.to_string()).collect();
            assert_eq!(addresses, ["0.0.0.0:6969", "[::]:6969"]);
            assert_eq!(notices.len(), usize::from(!notice.is_empty()), "{text}: {notices:?}");
            assert!(notice.iter().all(|part| notices[0].contains(part)), "{text}: {notices:?}");
        }
    }

    #[test]
    fn more_sockets_than_the_explicit_number_of_workers_are_an_error() {
        let problems = settings("[workers]\ntotal = 2\n", 4, 3).unwrap_err().to_string();
        assert!(problems.starts_with("test.toml:2:9: `workers.total`: 3 sockets"), "{problems}");
        assert!(problems.contains("2 workers"), "{problems}");
        assert!(problems.contains("configure 3 workers"), "{problems}");
    }
}
