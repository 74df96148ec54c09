//! opentracker: the build of Debian, which serves only info hashes of a whitelist.

use std::fs;
use std::path::Path;

use anyhow::Context as _;

use super::{Contender, Found, Launch, Room, Stage, Variant, output};

/// opentracker.
#[derive(Debug)]
pub struct Opentracker;

const WORKERS: &str = "workers";
const WHITELIST: &str = "whitelist.txt";

impl Contender for Opentracker {
    fn name(&self) -> &'static str {
        "opentracker"
    }

    fn word(&self) -> &'static str {
        "opentracker"
    }

    fn program(&self) -> &'static str {
        "opentracker"
    }

    fn remedy(&self) -> &'static str {
        "scripts/bench-peers --only opentracker (Debian's package, as root)"
    }

    fn settings(&self) -> &'static str {
        "only UDP, listen.udp.workers for the cores (0, the event loop, too on one core), as aquatic's bencher and the published comparisons set it; Debian's build looks every info hash up in a whitelist of the load's population, which a public build does not"
    }

    fn receive_buffer(&self) -> Option<u64> {
        None
    }

    fn version(&self, _: &Path) -> Option<String> {
        output(Path::new("dpkg-query"), &["-W", "-f", "${Version}", "opentracker"])
    }

    fn variants(&self, _: &Found, room: Room) -> Vec<Variant> {
        let mut workers = room.workers();
        if room.cores == 1 {
            workers.insert(0, 0);
        }
        workers.into_iter().map(|n| Variant::new("opentracker", None, &[(WORKERS, n)])).collect()
    }

    fn launch(&self, found: &Found, variant: &Variant, stage: &Stage) -> anyhow::Result<Launch> {
        let whitelist = stage.whitelist.context("opentracker needs a whitelist")?;
        // It changes its root directory to this one before it reads the list.
        let list = stage.directory.join(WHITELIST);
        fs::hard_link(whitelist, &list)
            .or_else(|_| fs::copy(whitelist, &list).map(drop))
            .with_context(|| format!("cannot copy {}", whitelist.display()))?;
        let file = stage.directory.join("opentracker.conf");
        fs::write(&file, config(variant, stage))?;
        let arguments = vec!["-f".into(), file.display().to_string()];
        Ok(Launch { program: found.program.clone(), arguments, environment: Vec::new() })
    }

    fn needs_whitelist(&self) -> bool {
        true
    }
}

/// The number of workers has to stand before the address that it is for.
fn config(variant: &Variant, stage: &Stage) -> String {
    format!(
        "listen.udp.workers {}\nlisten.udp {}\ntracker.rootdir {}\naccess.whitelist {WHITELIST}\n",
        variant.count(WORKERS).unwrap_or(0),
        stage.address,
        stage.directory.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_come_before_the_address() {
        let variant = Variant::new("opentracker", None, &[(WORKERS, 4)]);
        let stage = Stage {
            directory: Path::new("/tmp/x"),
            address: ([127, 0, 0, 1], 7000).into(),
            whitelist: None,
        };
        let text = config(&variant, &stage);
        assert!(text.starts_with("listen.udp.workers 4\nlisten.udp 127.0.0.1:7000\n"), "{text}");
        let found = Found { program: "opentracker".into(), version: "1".into() };
        assert!(Opentracker.launch(&found, &variant, &stage).is_err(), "without a whitelist");
    }

    #[test]
    fn one_core_has_the_event_loop_too() {
        let found = Found { program: "opentracker".into(), version: "1".into() };
        let of = |cores| -> Vec<_> {
            let room = Room { cores, vcpus: cores };
            Opentracker.variants(&found, room).iter().map(|v| v.count(WORKERS).unwrap()).collect()
        };
        assert_eq!((of(1), of(4)), (vec![0, 1], vec![4]));
    }
}
