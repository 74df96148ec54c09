//! The compared trackers: search paths, variants, and configurations with the best published
//! settings.

pub mod aquatic;
pub mod aquatic_web;
pub mod chihaya;
pub mod floor;
pub mod hitch;
pub mod npm;
pub mod opentracker;
pub mod ours;
pub mod torrust;

use std::env;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::cpus::Assignment;
use crate::mix::{Mix, Protocol};

/// A tracker that can be compared.
#[derive(Debug)]
pub struct Contender {
    /// Its name, which is also the file name of its program.
    pub name: &'static str,
    /// The name on the command line.
    pub keyword: &'static str,
    /// The command that installs the tracker.
    pub remedy: &'static str,
    /// The settings and their source, in a sentence.
    pub settings: &'static str,
    /// The protocols that the tracker serves without a proxy.
    pub protocols: &'static [Protocol],
    /// Whether it is also measured behind hitch, for what it serves without TLS.
    pub behind_hitch: bool,
    /// Why it cannot be installed.
    pub unavailable: Option<&'static str>,
    /// Whether it is measured only where it is named.
    pub by_name: bool,
    /// Whether its replies are meant to be right; otherwise all of them count.
    pub checked: bool,
    /// The receive buffer in bytes that the tracker requests with these settings; `None` for the
    /// system's default.
    pub receive_buffer: Option<u64>,
    /// The version of a program that was found.
    version: fn(&Path) -> Option<String>,
    // The methods of an installed tracker, see `Found`.
    variants: fn(&Found, &Assignment, Protocol) -> Vec<Variant>,
    launch: fn(&Found, &Variant, &Setup) -> anyhow::Result<Launch>,
    needs_whitelist: fn(&Found) -> bool,
    /// A variant that the installed program lacks, and how to build it.
    pub(crate) missing_variant: fn(&Found) -> Option<String>,
}

/// All trackers, in the order of tables.
pub static ALL: [Contender; 11] = [
    ours::ONRUSH,
    ours::BEFORE,
    aquatic::AQUATIC,
    aquatic_web::HTTP,
    aquatic_web::WS,
    opentracker::OPENTRACKER,
    chihaya::CHIHAYA,
    torrust::TORRUST,
    npm::BITTORRENT_TRACKER,
    HEFUR,
    floor::FLOOR,
];

/// hefur, which the comparison of 2022 names and could not measure.
const HEFUR: Contender = Contender {
    name: "hefur",
    keyword: "hefur",
    protocols: &[Protocol::Http, Protocol::Https],
    unavailable: Some(
        "no package registry has it; in the comparison of 2022 it answered announces only with \
         errors (\"torrent not found\") in every configuration that was tried",
    ),
    ..USUAL
};

/// Defaults for the properties of a contender; the texts are empty, for each contender to set.
const USUAL: Contender = Contender {
    name: "",
    keyword: "",
    remedy: "",
    settings: "",
    protocols: &[Protocol::Udp],
    behind_hitch: false,
    unavailable: None,
    by_name: false,
    checked: true,
    receive_buffer: None,
    version: |_| None,
    variants: |found, _, _| vec![Variant::new(found.contender.name, None, &[])],
    launch: |_, _, _| Ok(Launch::default()),
    needs_whitelist: |_| false,
    missing_variant: |_| None,
};

impl Contender {
    /// Whether this is its name, in results or on the command line.
    pub fn is_called(&self, name: &str) -> bool {
        [self.keyword, self.name].contains(&name)
    }

    /// Whether it serves this, by itself or behind hitch.
    pub fn serves(&self, protocol: Protocol) -> bool {
        let inner = protocol.in_tls().filter(|_| self.behind_hitch);
        [Some(protocol), inner].into_iter().flatten().any(|it| self.protocols.contains(&it))
    }
}

/// The name of the allow list in a tracker's directory, a line of 40 hexadecimal digits for each
/// info hash of the load.
pub const WHITELIST: &str = "whitelist.txt";

/// One way to run a tracker.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Variant {
    /// The tracker's name.
    pub tracker: String,
    /// Its placement or backend, where it has several: `split`, `io_uring`.
    pub kind: Option<String>,
    /// Its workers by their name in its configuration: `socket workers: 2`.
    pub workers: Vec<(String, usize)>,
}

impl Variant {
    /// A variant of `tracker`.
    pub fn new(tracker: &str, kind: Option<&str>, workers: &[(&str, usize)]) -> Self {
        Self {
            tracker: tracker.into(),
            kind: kind.map(Into::into),
            workers: workers.iter().map(|(name, count)| ((*name).into(), *count)).collect(),
        }
    }

    /// The name in tables: `aquatic_udp (io_uring)`.
    pub fn name(&self) -> String {
        match &self.kind {
            Some(kind) => format!("{} ({kind})", self.tracker),
            None => self.tracker.clone(),
        }
    }

    /// Whether `name` is the name of the tracker or of the variant, for `--baseline`.
    pub fn is_called(&self, name: &str) -> bool {
        self.tracker == name || self.name() == name
    }

    /// The workers: `socket workers: 2, swarm workers: 1`; empty without such a setting.
    pub fn split(&self) -> String {
        let parts: Vec<_> =
            self.workers.iter().map(|(name, count)| format!("{name}: {count}")).collect();
        parts.join(", ")
    }

    /// Workers of one kind.
    pub fn count(&self, name: &str) -> Option<usize> {
        self.workers.iter().find(|(known, _)| known == name).map(|(_, count)| *count)
    }
}

/// The environment in which a tracker is started.
#[derive(Debug)]
pub struct Setup<'a> {
    /// The tracker's directory, readable by every user.
    pub directory: &'a Path,
    /// The address to listen on.
    pub address: SocketAddr,
    /// The protocol to serve there.
    pub protocol: Protocol,
    /// Whether connections serve more than one request.
    pub keeps_alive: bool,
    /// Peers in an announce reply of the floor.
    pub peers: usize,
}

impl<'a> Setup<'a> {
    /// The environment of a load, for a tracker at this address.
    pub fn new(mix: Mix, address: SocketAddr, directory: &'a Path, peers: usize) -> Self {
        let (protocol, keeps_alive) = (mix.protocol(), mix.keeps_alive());
        Self { directory, address, protocol, keeps_alive, peers }
    }
}

/// A command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Launch {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Additional environment variables.
    pub environment: Vec<(String, String)>,
    /// Whether the tracker runs as the account `nobody` when the bench runs as root.
    pub unprivileged: bool,
    /// Another network namespace than that of the bench (ip-netns(8)).
    pub namespace: Option<String>,
}

impl Launch {
    /// A program that reads `config` from a file in `directory`, which is written here and named
    /// after `option`.
    pub(crate) fn configured(
        program: &Path,
        directory: &Path,
        [option, file]: [&str; 2],
        config: &str,
    ) -> anyhow::Result<Self> {
        let file = directory.join(file);
        fs::write(&file, config).with_context(|| format!("cannot write {}", file.display()))?;
        let arguments = vec![option.into(), file.display().to_string()];
        Ok(Self { program: program.to_owned(), arguments, ..Self::default() })
    }
}

/// An installed tracker.
#[derive(Clone, Debug)]
pub struct Found {
    /// The tracker.
    pub contender: &'static Contender,
    /// Its program.
    pub program: PathBuf,
    /// Its version, by the program, cargo or dpkg.
    pub version: String,
    /// The program of hitch.
    pub hitch: Option<PathBuf>,
}

impl Found {
    /// The variants worth running on these vCPUs, the usual one first; none where it does not serve
    /// the protocol.
    pub fn variants(&self, seats: &Assignment, protocol: Protocol) -> Vec<Variant> {
        let of = |protocol| (self.contender.variants)(self, seats, protocol);
        if self.contender.protocols.contains(&protocol) {
            return of(protocol);
        }
        match protocol.in_tls().filter(|_| self.contender.serves(protocol)) {
            Some(inner) if self.hitch.is_some() => hitch::variants(&of(inner), seats),
            _ => Vec::new(),
        }
    }

    /// The command lines of a variant, that of the tracker first, and the address that each is
    /// to listen on; writes their files to the directory of `setup`.
    ///
    /// # Errors
    /// When a file cannot be written, or a program lacks a setting.
    pub fn launch(
        &self,
        variant: &Variant,
        setup: &Setup,
    ) -> anyhow::Result<Vec<(Launch, SocketAddr)>> {
        let alone = |setup: &Setup| (self.contender.launch)(self, variant, setup);
        let Some(workers) = variant.count(hitch::WORKERS) else {
            return Ok(vec![(alone(setup)?, setup.address)]);
        };
        let backend = hitch::backend(setup)?;
        let program = self.hitch.as_ref().context("hitch is not installed")?;
        let front = hitch::launch(program, workers, setup, backend.address)?;
        Ok(vec![(alone(&backend)?, backend.address), (front, setup.address)])
    }

    /// Whether the tracker serves only the info hashes of the allow list [`WHITELIST`], which is
    /// written before the start.
    pub fn needs_whitelist(&self) -> bool {
        (self.contender.needs_whitelist)(self)
    }
}

/// The row of a tracker in the table of contenders.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// Its version; `None` when it is absent.
    pub version: Option<String>,
    /// Its settings and their source; when it is absent, why and how to install it.
    pub text: String,
}

impl Listed {
    /// The row of `contender`.
    pub fn new(contender: &Contender, found: Option<&Found>) -> Self {
        let text = match (found, contender.unavailable) {
            (Some(_), _) => contender.settings.into(),
            (None, Some(reason)) => reason.into(),
            (None, None) => format!(
                "{} was not found in the install root nor on PATH; install it with: {}",
                contender.name, contender.remedy
            ),
        };
        let version = found.map(|found| found.version.clone());
        Self { name: contender.name.into(), version, text }
    }
}

/// The directories in which programs are searched.
#[derive(Clone, Debug, Default)]
pub struct Search {
    directories: Vec<PathBuf>,
}

impl Search {
    /// The directory of this program, the install root of `scripts/bench-peers`
    /// ($ONRUSH_PEERS, else `peers` in cargo's target directory), then PATH and /usr/sbin, where
    /// Debian has hitch.
    pub fn here() -> Self {
        let own = env::current_exe().ok().and_then(|path| Some(path.parent()?.to_owned()));
        let beside = own.as_ref().and_then(|own| Some(own.parent()?.join("peers/bin")));
        let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
        let peers = env::var_os("ONRUSH_PEERS").map(|root| PathBuf::from(root).join("bin"));
        let first = [peers, own, beside, Some(target.join("peers/bin"))];
        let path = env::var_os("PATH").unwrap_or_default();
        let paths = env::split_paths(&path).chain(["/usr/sbin".into()]);
        let directories = first.into_iter().flatten().chain(paths).collect();
        Self { directories }
    }

    /// The first executable of this name.
    pub fn program(&self, name: &str) -> Option<PathBuf> {
        let paths = self.directories.iter().map(|directory| directory.join(name));
        let found = paths.into_iter().find(|path| is_executable(path))?;
        Some(fs::canonicalize(&found).unwrap_or(found))
    }

    /// A tracker, if it is installed.
    pub fn find(&self, contender: &'static Contender) -> Option<Found> {
        let program = self.program(contender.name).filter(|_| contender.unavailable.is_none())?;
        let version = (contender.version)(&program).unwrap_or_else(|| "unknown".into());
        let hitch = self.program(hitch::PROGRAM);
        Some(Found { contender, program, version, hitch })
    }
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

/// The version that cargo noted when it installed `package` into the root of `program`
/// (`.crates.toml`: `"package 1.2.3 (registry...)" = [...]`).
pub(crate) fn version_by_cargo(program: &Path, package: &str) -> Option<String> {
    let notes = program.parent()?.parent()?.join(".crates.toml");
    let text = fs::read_to_string(notes).ok()?;
    let start = format!("\"{package} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&start))?;
    line.split(' ').next().map(Into::into)
}

/// The version of a program of this project: the output of --version after its name.
pub(crate) fn version_of_ours(program: &Path) -> Option<String> {
    let text = output(program, &["--version"])?;
    text.split_once(' ').map(|(_, version)| version.to_owned())
}

/// The standard output of a command that succeeds.
fn output(program: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The items in order, each once.
pub fn unique<T: PartialEq>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut unique = Vec::new();
    for item in items {
        if !unique.contains(&item) {
            unique.push(item);
        }
    }
    unique
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A tracker as installed, and hitch.
    pub(crate) fn installed(contender: &'static Contender) -> Found {
        let hitch = Some("hitch".into());
        Found { contender, program: "nowhere".into(), version: "1".into(), hitch }
    }

    /// All trackers that need not be named and can be installed, as installed.
    pub(crate) fn found() -> Vec<Found> {
        let usual = |it: &&Contender| !it.by_name && it.unavailable.is_none();
        ALL.iter().filter(usual).map(installed).collect()
    }

    /// An executable shell script.
    pub(crate) fn script(directory: &Path, name: &str, text: &str) -> PathBuf {
        let program = directory.join(name);
        fs::write(&program, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        program
    }

    /// A setup on port 7000 without an allow list.
    pub(crate) fn setup(directory: &Path, mix: Mix) -> Setup<'_> {
        Setup::new(mix, ([127, 0, 0, 1], 7000).into(), directory, 0)
    }

    #[test]
    fn variants_have_names_as_published() {
        let variant = Variant::new("aquatic_udp", Some("io_uring"), &[("socket workers", 2)]);
        assert_eq!(variant.name(), "aquatic_udp (io_uring)");
        assert_eq!(variant.split(), "socket workers: 2");
        let chihaya = Variant::new("chihaya", None, &[]);
        assert_eq!((chihaya.name().as_str(), chihaya.split().as_str()), ("chihaya", ""));
    }

    #[test]
    fn cargos_metadata_is_parsed() {
        let root = tempfile::tempdir().unwrap();
        let notes = "[v1]\n\"aquatic_udp 0.9.0 (registry+https://x)\" = [\"aquatic_udp\"]\n";
        fs::write(root.path().join(".crates.toml"), notes).unwrap();
        let program = root.path().join("bin/aquatic_udp");
        assert_eq!(version_by_cargo(&program, "aquatic_udp").unwrap(), "0.9.0");
        assert_eq!(version_by_cargo(&program, "aquatic"), None);
    }

    #[test]
    fn an_absent_tracker_has_a_remedy() {
        let nowhere = tempfile::tempdir().unwrap();
        let search = Search { directories: vec![nowhere.path().to_owned()] };
        for contender in &ALL {
            assert!(search.find(contender).is_none(), "{}", contender.name);
            let listed = Listed::new(contender, None);
            assert_eq!(listed.version, None);
            let expected = contender.unavailable.unwrap_or(contender.remedy);
            assert!(listed.text.contains(expected), "{listed:?}");
        }
        // A file that is not executable.
        fs::write(nowhere.path().join("chihaya"), "").unwrap();
        assert_eq!(search.program("chihaya"), None);
    }
}
