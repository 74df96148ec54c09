//! Where a service manager has opened the sockets, they say where the tracker listens and how many
//! workers can have one.

use super::Resolution;
use super::workers::counted;
use crate::file::Origin;
use crate::settings::{Listen, Notice, Passed};
use onrush_tracker::limits::Placement;

impl Resolution<'_> {
    /// As many workers with sockets as there are sockets for each address.
    pub(super) fn by_sockets(&mut self, placement: Placement) -> Placement {
        let Some(Passed { each, .. }) = self.host.passed else { return placement };
        let asked = placement.socket_sides();
        if each == asked {
            return placement;
        }
        let written = self.written();
        let given = [&written.workers_total.origin, &written.workers_socket.origin]
            .into_iter()
            .find(|origin| origin.is_given());
        match given {
            Some(origin) if each > asked => {
                let what = format!(
                    "{each} sockets were passed for each address and {} can have one: those left \
                     over would swallow datagrams",
                    counted(asked, "worker")
                );
                let help = format!(
                    "have each ListenDatagram= line {asked} times in the socket unit, or ask for \
                     {each} workers with sockets"
                );
                self.problem(origin, "workers", what, Some(help));
                return placement;
            }
            _ if each < asked => self.notices.push(Notice::new(format!(
                "there are sockets for {each} of {asked} workers, so there are fewer workers: have each \
                 ListenDatagram= line {asked} times in the socket unit, with ReusePort=yes"
            ))),
            _ => {}
        }
        match placement {
            Placement::Colocated { .. } => Placement::Colocated { workers: each },
            Placement::Split { swarm_workers, .. } => {
                Placement::Split { socket_workers: each, swarm_workers }
            }
        }
    }

    /// The addresses of the sockets instead of those that were asked for.
    pub(super) fn passed_instead(&mut self, asked: Vec<Listen>) -> Vec<Listen> {
        let Some(Passed { addresses, .. }) = &self.host.passed else { return asked };
        let same = addresses.len() == asked.len()
            && asked.iter().all(|listen| addresses.contains(&listen.address));
        let by = match &self.written().listen.origin {
            Origin::Default | Origin::Broken => None,
            Origin::File(_) => Some(format!("`listen` of {}", self.config.source.name())),
            Origin::Flag(flag) => Some((*flag).to_owned()),
        };
        if let (Some(by), false) = (by, same) {
            let opened: Vec<_> = addresses.iter().map(ToString::to_string).collect();
            self.notices.push(Notice::new(format!(
                "the service manager has opened {}: {by} is not followed (change the socket unit \
                 instead, or disable it)",
                opened.join(" and ")
            )));
        }
        addresses.iter().map(|&address| Listen { address, optional: false }).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::file::{Config, Problems};
    use crate::flags::Flags;
    use crate::settings::{Host, Passed, Settings};
    use onrush_tracker::limits::Placement;

    fn settings(
        text: &str,
        vcpus: usize,
        each: usize,
    ) -> Result<(Settings, Vec<String>), Problems> {
        let addresses = ["0.0.0.0:6969", "[::]:6969"].map(|text| text.parse().unwrap()).to_vec();
        let passed = Some(Passed { addresses, each });
        let host = Host { vcpus: (0..vcpus).collect(), passed, ..Host::default() };
        let config = Config::parse("test.toml", text);
        let (settings, notices) = Settings::resolve(config, &Flags::default(), &host)?;
        Ok((settings, notices.iter().map(ToString::to_string).collect()))
    }

    #[test]
    fn enough_sockets_change_nothing() {
        let (settings, notices) = settings("listen = [\":6969\"]", 2, 2).unwrap();
        assert_eq!(settings.placement, Placement::Colocated { workers: 2 });
        assert_eq!(settings.pin, Some(vec![0, 1]));
        let addresses: Vec<_> = settings.listen.iter().map(|l| l.address.to_string()).collect();
        assert_eq!(addresses, ["0.0.0.0:6969", "[::]:6969"]);
        assert_eq!(notices, [""; 0]);
    }

    #[test]
    fn fewer_sockets_mean_fewer_workers_and_a_warning() {
        let (settings, notices) = settings("", 4, 1).unwrap();
        assert_eq!(settings.placement, Placement::Colocated { workers: 1 });
        assert_eq!(settings.pin, Some(vec![0]));
        assert_eq!(notices.len(), 1);
        assert!(notices[0].contains("sockets for 1 of 4 workers"), "{notices:?}");
        assert!(notices[0].contains("line 4 times in the socket unit, with ReusePort=yes"));
    }

    #[test]
    fn a_split_keeps_its_swarm_workers() {
        let text = "[workers]\nplacement = \"split\"\nsocket = 3\nswarm = 1\n";
        let (settings, notices) = settings(text, 4, 2).unwrap();
        let expected = Placement::Split { socket_workers: 2, swarm_workers: 1 };
        assert_eq!(settings.placement, expected);
        assert!(notices[0].contains("sockets for 2 of 3 workers"), "{notices:?}");
    }

    #[test]
    fn more_sockets_mean_more_workers_where_nobody_says_how_many() {
        let (settings, _) = settings("", 2, 3).unwrap();
        assert_eq!(settings.placement, Placement::Colocated { workers: 3 });
        let problems = super::tests::settings("[workers]\ntotal = 2\n", 4, 3).unwrap_err();
        let text = problems.to_string();
        assert!(
            text.contains("3 sockets were passed for each address and 2 workers can"),
            "{text}"
        );
        assert!(text.contains("ask for 3 workers"), "{text}");
    }

    #[test]
    fn what_is_asked_for_and_not_followed_is_named() {
        let (settings, notices) = settings("listen = [\"127.0.0.1:80\"]", 2, 2).unwrap();
        assert_eq!(settings.listen.len(), 2);
        assert!(notices[0].contains("`listen` of test.toml is not followed"), "{notices:?}");
        assert!(notices[0].contains("opened 0.0.0.0:6969 and [::]:6969"), "{notices:?}");
    }
}
