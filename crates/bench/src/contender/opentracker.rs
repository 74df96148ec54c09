//! opentracker: Debian's build, which serves only info hashes of an allow list, or another build,
//! which serves all.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::Context as _;

use super::{Contender, Found, Launch, Setup, USUAL, Variant, WHITELIST, output};
use crate::cpus::Assignment;
use crate::mix::Protocol;

const WORKERS: &str = "workers";
/// The version of a program that belongs to no Debian package.
pub const OWN_BUILD: &str = "own build";

/// opentracker.
pub const OPENTRACKER: Contender = Contender {
    name: "opentracker",
    keyword: "opentracker",
    remedy: "scripts/bench-peers --only opentracker (Debian's package, as root)",
    settings: "over UDP with listen.udp.workers for the cores (0, the event loop, too on one \
               core), as aquatic's bencher and the published comparisons set it; over HTTP it has \
               one event loop and closes each connection after a reply; Debian's build looks every \
               info hash up in a whitelist of the load's population, which a public build does not",
    protocols: &[Protocol::Udp, Protocol::Http],
    behind_hitch: true,
    version,
    variants,
    launch,
    needs_whitelist: |found| found.version != OWN_BUILD,
    ..USUAL
};

fn version(program: &Path) -> Option<String> {
    // The package's version counts only if it owns this program.
    let owner = output(Path::new("dpkg-query"), &["-S", program.to_str()?]);
    if !owner.is_some_and(|owner| owner.starts_with("opentracker:")) {
        return Some(OWN_BUILD.into());
    }
    output(Path::new("dpkg-query"), &["-W", "-f", "${Version}", "opentracker"])
}

fn variants(_: &Found, seats: &Assignment, protocol: Protocol) -> Vec<Variant> {
    if protocol != Protocol::Udp {
        return vec![Variant::new("opentracker", None, &[])];
    }
    let workers = match seats.tracker.len() {
        1 => vec![0, 1],
        cores => vec![cores],
    };
    workers.into_iter().map(|n| Variant::new("opentracker", None, &[(WORKERS, n)])).collect()
}

fn launch(found: &Found, variant: &Variant, setup: &Setup) -> anyhow::Result<Launch> {
    let mut program = found.program.clone();
    if !found.needs_whitelist() {
        // The account `nobody` may have no access to the directory of the build.
        program = setup.directory.join(found.contender.name);
        fs::copy(&found.program, &program)
            .and_then(|_| fs::set_permissions(&program, Permissions::from_mode(0o755)))
            .with_context(|| format!("cannot copy {}", found.program.display()))?;
    }
    let config = config(found, variant, setup);
    let launch =
        Launch::configured(&program, setup.directory, ["-f", "opentracker.conf"], &config)?;
    // Readable by the account `nobody` under any umask.
    fs::set_permissions(&launch.arguments[1], Permissions::from_mode(0o644))?;
    // As root it would change its user and lose the parent-death signal of the bench.
    Ok(Launch { unprivileged: true, ..launch })
}

/// The number of workers precedes the address that it applies to.
fn config(found: &Found, variant: &Variant, setup: &Setup) -> String {
    // opentracker changes to this directory before it reads the list.
    let list = match found.needs_whitelist() {
        true => format!("access.whitelist {WHITELIST}\n"),
        false => String::new(),
    };
    let address = match setup.protocol {
        Protocol::Udp => {
            let workers = variant.count(WORKERS).unwrap_or(0);
            format!("listen.udp.workers {workers}\nlisten.udp {}", setup.address)
        }
        _ => format!("listen.tcp {}", setup.address),
    };
    format!("{address}\ntracker.rootdir {}\n{list}", setup.directory.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contender::tests::{installed, setup};
    use crate::mix::Mix;

    fn found(program: &Path, version: &str) -> Found {
        let (program, version) = (program.to_owned(), version.into());
        Found { program, version, ..installed(&OPENTRACKER) }
    }

    #[test]
    fn workers_come_before_the_address() {
        let variant = Variant::new("opentracker", None, &[(WORKERS, 4)]);
        let setup = setup(Path::new("/tmp/x"), Mix::Spread);
        let text = config(&found(Path::new("opentracker"), OWN_BUILD), &variant, &setup);
        assert!(text.starts_with("listen.udp.workers 4\nlisten.udp 127.0.0.1:7000\n"), "{text}");
        let debians = found(Path::new("opentracker"), "1");
        assert!(!text.contains("whitelist"), "{text}");
        assert!(config(&debians, &variant, &setup).ends_with("access.whitelist whitelist.txt\n"));
    }

    #[test]
    fn another_build_is_not_debians() {
        let (build, directory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let program = build.path().join("opentracker");
        fs::write(&program, "a program").unwrap();
        assert_eq!(version(&program).as_deref(), Some(OWN_BUILD));
        let variant = Variant::new("opentracker", None, &[(WORKERS, 0)]);
        let setup = setup(directory.path(), Mix::Spread);
        let launches = found(&program, OWN_BUILD).launch(&variant, &setup).unwrap();
        let (launch, _) = &launches[0];
        assert_eq!(launch.program, setup.directory.join("opentracker"));
        assert!(launch.unprivileged);
        assert_eq!(fs::metadata(&launch.program).unwrap().permissions().mode() & 0o777, 0o755);
    }

    #[test]
    fn one_core_has_the_event_loop_too() {
        let of = |cores| -> Vec<_> {
            let cpus: Vec<_> = (0..=cores).collect();
            let seats = Assignment::new(&cpus, cores, 1).unwrap();
            let variants = found(Path::new("opentracker"), "1").variants(&seats, Protocol::Udp);
            variants.iter().map(|variant| variant.count(WORKERS).unwrap()).collect()
        };
        assert_eq!((of(1), of(4)), (vec![0, 1], vec![4]));
    }
}
