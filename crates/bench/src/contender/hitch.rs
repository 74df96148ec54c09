//! hitch, which terminates TLS in front of trackers that have none: both share the vCPUs.

use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context as _, bail};

use super::{Launch, Setup, Variant, output, unique};
use crate::certificate::{CERTIFICATE, KEY};
use crate::cpus::Assignment;

/// The file name of its program.
pub const PROGRAM: &str = "hitch";
/// The kind of variants behind it.
const KIND: &str = "hitch";
/// The name of its number of workers in variants.
pub const WORKERS: &str = "hitch workers";
/// Its settings, and what follows from them.
pub const SETTINGS: &str = "in front of opentracker and bittorrent-tracker over TLS, as the \
     comparison of 2022 sets it: one worker per core or one less, of which the tables by cores \
     have the better one; CPU time and memory are those of both programs. It names no client to \
     the tracker, for which all peers have the same address: peers that the load does not know \
     are not wrong there";
/// The command that installs it.
pub const REMEDY: &str = "scripts/bench-peers --only hitch (Debian's package, as root)";

/// Its version.
pub fn version(program: &Path) -> Option<String> {
    output(program, &["--version"])?.strip_prefix("hitch ").map(Into::into)
}

/// Each variant with one worker per core and with one less (the comparison of 2022).
pub(super) fn variants(of: &[Variant], seats: &Assignment) -> Vec<Variant> {
    let cores = seats.tracker.len();
    let counts = unique([cores, (cores - 1).max(1)]);
    let behind = |variant: &Variant, count| {
        let mut workers = variant.workers.clone();
        workers.push((WORKERS.into(), count));
        Variant { kind: Some(KIND.into()), workers, ..variant.clone() }
    };
    of.iter().flat_map(|variant| counts.iter().map(|&count| behind(variant, count))).collect()
}

/// The port of a tracker behind hitch: the next one.
pub const fn backend_port(port: u16) -> u16 {
    port + 1
}

/// The environment of the tracker behind hitch.
pub(super) fn backend<'a>(setup: &Setup<'a>) -> anyhow::Result<Setup<'a>> {
    let Some(protocol) = setup.protocol.in_tls() else {
        bail!("hitch has no part in {}", setup.protocol);
    };
    let mut address = setup.address;
    address.set_port(backend_port(address.port()));
    Ok(Setup { protocol, address, ..*setup })
}

/// hitch as in the appendix of the comparison, with the certificate of the round; but its
/// `keepalive = 0` is left out, with which hitch 1.7 logs an error for each connection.
pub(super) fn launch(
    program: &Path,
    workers: usize,
    setup: &Setup,
    backend: SocketAddr,
) -> anyhow::Result<Launch> {
    let endpoint = |address: SocketAddr| format!("[{}]:{}", address.ip(), address.port());
    let pem = setup.directory.join("hitch.pem");
    let parts = [KEY, CERTIFICATE].map(|name| fs::read_to_string(setup.directory.join(name)));
    let [key, certificate] = parts;
    fs::write(&pem, key? + &certificate?).context("cannot write hitch.pem")?;
    let config = format!(
        "backend = \"{}\"\nfrontend = \"{}\"\nworkers = {workers}\n\
         pem-file = \"{}\"\nocsp-dir = \"\"\n",
        endpoint(backend),
        endpoint(setup.address),
        pem.display()
    );
    let (name, option) = ("hitch.conf", "--config");
    let launch = Launch::configured(program, setup.directory, [option, name], &config)?;
    // As root it would change its user and lose the parent-death signal of the bench.
    for path in [&pem, &setup.directory.join(name)] {
        fs::set_permissions(path, Permissions::from_mode(0o644))?;
    }
    Ok(Launch { unprivileged: true, ..launch })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contender::ALL;
    use crate::contender::tests::{installed, setup};
    use crate::mix::{Mix, Protocol};

    #[test]
    fn a_tracker_without_tls_is_behind_hitch() {
        let opentracker = ALL.iter().find(|it| it.name == "opentracker").unwrap();
        let found = installed(opentracker);
        let seats = |cores: usize| {
            let cpus: Vec<_> = (0..=cores).collect();
            Assignment::new(&cpus, cores, 1).unwrap()
        };
        let of = |cores, protocol| -> Vec<_> {
            let variants = found.variants(&seats(cores), protocol);
            variants.iter().map(|it| format!("{} {}", it.name(), it.split())).collect()
        };
        assert_eq!(of(4, Protocol::Http), ["opentracker "]);
        let behind = |n: usize| format!("opentracker (hitch) hitch workers: {n}");
        assert_eq!(of(1, Protocol::Https), [behind(1)]);
        assert_eq!(of(16, Protocol::Https), [behind(16), behind(15)]);
        assert!(of(1, Protocol::Wss).is_empty());
        let without = crate::contender::Found { hitch: None, ..found.clone() };
        assert!(without.variants(&seats(1), Protocol::Https).is_empty());

        let directory = tempfile::tempdir().unwrap();
        crate::certificate::write(directory.path()).unwrap();
        let setup = setup(directory.path(), Mix::Https);
        let variant = &found.variants(&seats(4), Protocol::Https)[0];
        let launches = found.launch(variant, &setup).unwrap();
        let addresses: Vec<_> = launches.iter().map(|(_, address)| address.to_string()).collect();
        assert_eq!(addresses, ["127.0.0.1:7001", "127.0.0.1:7000"]);
        let [tracker, front] = [0, 1].map(|n| {
            let config = launches[n].0.arguments.last().unwrap();
            fs::read_to_string(config).unwrap()
        });
        assert!(tracker.contains("listen.tcp 127.0.0.1:7001\n"), "{tracker}");
        assert!(!tracker.contains("udp"), "{tracker}");
        let endpoints = "backend = \"[127.0.0.1]:7001\"\nfrontend = \"[127.0.0.1]:7000\"\n";
        assert!(front.starts_with(endpoints) && front.contains("workers = 4\n"), "{front}");
        let pem = fs::read_to_string(directory.path().join("hitch.pem")).unwrap();
        assert!(pem.contains("PRIVATE KEY") && pem.contains("BEGIN CERTIFICATE"), "{pem}");
        assert!(launches.iter().all(|(launch, _)| launch.unprivileged));
    }
}
