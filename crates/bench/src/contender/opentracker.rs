//! opentracker: Debian's build, which serves only info hashes of an allow list, or another build,
//! which serves all.

use std::fs;
use std::path::Path;

use std::os::unix::fs::PermissionsExt as _;

use anyhow::Context as _;

use super::{Capacity, Contender, Found, Launch, Setup, Variant, output};

/// opentracker.
#[derive(Debug)]
pub struct Opentracker;

const WORKERS: &str = "workers";
/// The version of a program that belongs to no Debian package.
pub const OWN_BUILD: &str = "own build";
const WHITELIST: &str = "whitelist.txt";

impl Contender for Opentracker {
    fn name(&self) -> &'static str {
        "opentracker"
    }

    fn keyword(&self) -> &'static str {
        "opentracker"
    }

    fn program(&self) -> &'static str {
        "opentracker"
    }

    fn remedy(&self) -> &'static str {
        "scripts/bench-peers --only opentracker (Debian's package, as root)"
    }

    fn settings(&self) -> &'static str {
        "only UDP, listen.udp.workers for the cores (0, the event loop, too on one core), as \
         aquatic's bencher and the published comparisons set it; Debian's build looks every info \
         hash up in a whitelist of the load's population, which a public build does not"
    }

    fn receive_buffer(&self) -> Option<u64> {
        None
    }

    fn version(&self, program: &Path) -> Option<String> {
        // The package's version counts only if it owns this program.
        let owner = output(Path::new("dpkg-query"), &["-S", program.to_str()?]);
        if !owner.is_some_and(|owner| owner.starts_with("opentracker:")) {
            return Some(OWN_BUILD.into());
        }
        output(Path::new("dpkg-query"), &["-W", "-f", "${Version}", "opentracker"])
    }

    fn variants(&self, _: &Found, capacity: Capacity) -> Vec<Variant> {
        let mut workers = capacity.workers();
        if capacity.cores == 1 {
            workers.insert(0, 0);
        }
        workers.into_iter().map(|n| Variant::new("opentracker", None, &[(WORKERS, n)])).collect()
    }

    fn launch(&self, found: &Found, variant: &Variant, setup: &Setup) -> anyhow::Result<Launch> {
        let mut program = found.program.clone();
        if self.needs_whitelist(found) {
            let whitelist = setup.whitelist.context("opentracker needs a whitelist")?;
            let list = setup.directory.join(WHITELIST);
            fs::hard_link(whitelist, &list)
                .or_else(|_| fs::copy(whitelist, &list).map(drop))
                .with_context(|| format!("cannot copy {}", whitelist.display()))?;
        } else {
            // The user nobody may have no access to the directory of the build.
            program = setup.directory.join(self.program());
            fs::copy(&found.program, &program)
                .and_then(|_| fs::set_permissions(&program, fs::Permissions::from_mode(0o755)))
                .with_context(|| format!("cannot copy {}", found.program.display()))?;
        }
        let file = setup.directory.join("opentracker.conf");
        fs::write(&file, config(variant, setup))?;
        // Readable by the user nobody, whatever the umask is.
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644))?;
        let arguments = vec!["-f".into(), file.display().to_string()];
        // As root it would change its user and lose the parent-death signal of the bench.
        Ok(Launch { program, arguments, environment: Vec::new(), unprivileged: true })
    }

    fn needs_whitelist(&self, found: &Found) -> bool {
        found.version != OWN_BUILD
    }
}

/// The number of workers precedes the address that it applies to.
fn config(variant: &Variant, setup: &Setup) -> String {
    // opentracker changes to this directory before it reads the list.
    let list = setup.whitelist.map_or(String::new(), |_| format!("access.whitelist {WHITELIST}\n"));
    format!(
        "listen.udp.workers {}\nlisten.udp {}\ntracker.rootdir {}\n{list}",
        variant.count(WORKERS).unwrap_or(0),
        setup.address,
        setup.directory.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_come_before_the_address() {
        let variant = Variant::new("opentracker", None, &[(WORKERS, 4)]);
        let setup = Setup {
            directory: Path::new("/tmp/x"),
            address: ([127, 0, 0, 1], 7000).into(),
            whitelist: None,
        };
        let text = config(&variant, &setup);
        assert!(text.starts_with("listen.udp.workers 4\nlisten.udp 127.0.0.1:7000\n"), "{text}");
        let found = Found { program: "opentracker".into(), version: "1".into() };
        assert!(Opentracker.launch(&found, &variant, &setup).is_err(), "without a whitelist");
        assert!(!text.contains("whitelist"), "{text}");
        let setup = Setup { whitelist: Some(Path::new("/tmp/list")), ..setup };
        assert!(config(&variant, &setup).ends_with("access.whitelist whitelist.txt\n"));
    }

    #[test]
    fn another_build_is_not_debians() {
        let (build, setup) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let program = build.path().join("opentracker");
        fs::write(&program, "a program").unwrap();
        let version = Opentracker.version(&program).unwrap();
        assert_eq!(version, OWN_BUILD);
        let found = Found { program, version };
        let variant = Variant::new("opentracker", None, &[(WORKERS, 0)]);
        let setup = Setup {
            directory: setup.path(),
            address: ([127, 0, 0, 1], 7000).into(),
            whitelist: None,
        };
        let launch = Opentracker.launch(&found, &variant, &setup).unwrap();
        assert_eq!(launch.program, setup.directory.join("opentracker"));
        assert!(launch.unprivileged);
        assert_eq!(fs::metadata(&launch.program).unwrap().permissions().mode() & 0o777, 0o755);
    }

    #[test]
    fn one_core_has_the_event_loop_too() {
        let found = Found { program: "opentracker".into(), version: "1".into() };
        let of = |cores| -> Vec<_> {
            let capacity = Capacity { cores, vcpus: cores };
            Opentracker
                .variants(&found, capacity)
                .iter()
                .map(|v| v.count(WORKERS).unwrap())
                .collect()
        };
        assert_eq!((of(1), of(4)), (vec![0, 1], vec![4]));
    }
}
