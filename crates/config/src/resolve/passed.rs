//! Sockets that a service manager has opened: they determine the addresses to listen on, and those
//! of UDP the number of workers with sockets.

use std::net::SocketAddr;

use onrush_text::numbers::plural;
use onrush_tracker::limits::Placement;

use super::Resolution;
use crate::settings::Listen;

impl Resolution<'_> {
    /// The placement with as many workers with sockets as there are sockets per address.
    pub(super) fn by_sockets(&mut self, placement: Placement) -> Placement {
        let (each, asked) = (self.host.passed.each, placement.socket_sides());
        if each == asked || self.host.passed.udp.is_empty() {
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

    /// The addresses of passed sockets in place of the configured ones of `key`, if there are any.
    pub(super) fn passed_instead(
        &mut self,
        key: &str,
        addresses: &[SocketAddr],
        configured: Vec<Listen>,
    ) -> Vec<Listen> {
        if addresses.is_empty() {
            return configured;
        }
        let same = addresses.len() == configured.len()
            && configured.iter().all(|listen| addresses.contains(&listen.address));
        if !same && !configured.is_empty() && self.document.is_given(key) {
            let by = self.document.origin(key).unwrap_or_default();
            let opened: Vec<_> = addresses.iter().map(ToString::to_string).collect();
            self.notices.push(format!(
                "`{key}` of {by} is ignored, as the service manager has opened {}: change the \
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

    use crate::settings::Listen;
    use crate::{Flags, Host, Passed, PassedKinds, Settings};

    fn settings(
        text: &str,
        vcpus: usize,
        each: usize,
    ) -> Result<(Settings, Vec<String>), Problems> {
        let udp = ["0.0.0.0:6969", "[::]:6969"].map(|text| text.parse().unwrap()).to_vec();
        let passed = Passed { udp, each, ..Passed::default() };
        let host = Host { vcpus: (0..vcpus).collect(), passed, ..Host::default() };
        Settings::parse("test.toml", text, &Flags::default(), &host)
    }

    #[test]
    fn listeners_determine_the_addresses_of_their_kind_alone() {
        let at = |text: &str| vec![text.parse().unwrap()];
        let (http, https) = (at("0.0.0.0:80"), at("0.0.0.0:443"));
        let passed = Passed { http: http.clone(), https: https.clone(), ..Passed::default() };
        let host = Host { vcpus: vec![0, 1], passed, ..Host::default() };
        let parse = |text: &str| Settings::parse("test.toml", text, &Flags::default(), &host);
        let problems = parse("").unwrap_err().to_string();
        assert!(problems.contains("`http.certificates`: HTTPS needs"), "{problems}");
        let pair = "http.certificates = ['/c']\nhttp.keys = ['/k']\n";
        let parse = |text: &str| parse(&format!("{text}{pair}")).unwrap();
        let shown = |listen: &[Listen]| listen.iter().map(|it| it.address).collect::<Vec<_>>();
        let (settings, notices) = parse("listen = ['127.0.0.1:1']\nhttp.workers = 2\n");
        assert_eq!(notices, Vec::<String>::new());
        assert_eq!((shown(&settings.http.listen), shown(&settings.http.tls_listen)), (http, https));
        assert_eq!((shown(&settings.listen), settings.http.workers), (at("127.0.0.1:1"), 2));
        let kinds = PassedKinds { udp: false, http: true, https: true };
        assert_eq!(settings.sockets_passed, kinds);
        assert_eq!(kinds.names().unwrap(), "HTTP and HTTPS");
        let (settings, notices) = parse("http.listen = ['127.0.0.1:1']\n");
        assert_eq!(shown(&settings.http.listen), at("0.0.0.0:80"));
        assert!(notices.len() == 1 && notices[0].starts_with("`http.listen` of "), "{notices:?}");
        let (_, notices) = parse("http.client_address = 'forwarded'\n");
        assert!(notices.len() == 1 && notices[0].contains("http.proxies"), "{notices:?}");
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
