//! Loads the XDP program, attaches it to the configured interfaces and opens their queues, before
//! the process changes its user and drops the capabilities that this needs. The program passes
//! every frame until it has rules.

use std::fs;
use std::io;
use std::mem;
use std::os::fd::OwnedFd;

use caps::{CapSet, Capability};
use onrush_config::settings::{
    XDP_INTERFACES, XdpConnects, XdpMode, XdpReplies, XdpSettings as Keys,
};
use onrush_config::{Refused, Settings};
use onrush_net::mio;
use onrush_net::xdp::device::{Device, OLDEST, devices, is_too_old};
use onrush_net::xdp::{AttachError, Backend, Mode, OpenError, Queue, QueueOptions};
use onrush_tracker::xdp::{XdpIntake, XdpSettings};

use super::queues::{self, Queues, TakeQueue};
use crate::process::spawn_thread::SpawnThread;
use crate::process::user;

/// Capabilities to load and attach the program, and to open AF_XDP sockets (capabilities(7)).
/// Without CAP_PERFMON the verifier permits no arithmetic with pointers into a frame.
const NEEDED: [Capability; 4] = [
    Capability::CAP_BPF,
    Capability::CAP_NET_ADMIN,
    Capability::CAP_NET_RAW,
    Capability::CAP_PERFMON,
];
/// The consequences of failures.
const WITHOUT_PROGRAM: &str = "requests reach the sockets without the program";
const WITHOUT_QUEUE: &str = "requests of queues without an AF_XDP socket reach the UDP sockets";
/// The type of devices that lose what a program transmits, unless the other end has one too.
const VETH: &str = "veth";

/// A program that is loaded, and where it is attached.
#[derive(Debug)]
pub struct Loaded {
    pub(super) intake: XdpIntake,
    /// The interfaces that have it or will have it, with their indices.
    pub(super) interfaces: Vec<(String, u32)>,
    pub(super) settings: XdpSettings,
    /// The predecessor's links, on which this program replaces another one.
    pub(super) links: Vec<(u32, OwnedFd)>,
    /// The interfaces that have another program, which may be the predecessor's.
    occupied: Vec<(String, Refused)>,
    /// The queues of the interfaces, until the workers have them.
    pub(super) queues: Queues,
    pub(super) queue_count: usize,
}

/// The result of an attempt to attach the program.
#[derive(Debug, Default)]
pub struct Attempt {
    /// The program, if it is attached anywhere.
    pub loaded: Option<Loaded>,
    /// Why it is not attached to an interface, and what has no effect.
    pub warnings: Vec<String>,
    /// Starts a successor with the capabilities that the program takes, and opens AF_XDP sockets.
    pub spawn_thread: Option<SpawnThread>,
    /// Whether a failure is an error.
    required: bool,
    /// Capabilities that the next upgrade needs. A failure keeps them, as its cause may be gone
    /// then.
    needed: &'static [Capability],
}

impl Attempt {
    /// Loads the program and attaches it to the interfaces of `settings`. A successor may replace
    /// the program of its predecessor later by [`adopt`](Self::adopt).
    ///
    /// # Errors
    /// Why that fails, where the program is required.
    pub fn new(settings: &Settings, is_successor: bool) -> Result<Self, Refused> {
        let keys = &settings.xdp;
        let mut attempt = Self { required: keys.required, ..Self::default() };
        if !keys.interfaces.is_empty() {
            attempt.needed = &NEEDED;
            queues::raise_locked_memory();
            attempt.attach(settings, is_successor)?;
            attempt.drop_capabilities();
        }
        Ok(attempt)
    }

    fn attach(&mut self, settings: &Settings, is_successor: bool) -> Result<(), Refused> {
        let keys = &settings.xdp;
        let (intake, devices) = match load() {
            Ok(loaded) => loaded,
            Err(why) => return self.fail(Refused::new(XDP_INTERFACES, &why), WITHOUT_PROGRAM),
        };
        let mut loaded = Loaded {
            intake,
            interfaces: Vec::new(),
            settings: answers(keys, &devices),
            links: Vec::new(),
            occupied: Vec::new(),
            queues: Queues::new(),
            queue_count: 0,
        };
        for (nth, name) in keys.interfaces.iter().enumerate() {
            let key = || format!("{XDP_INTERFACES}.{nth}");
            match loaded.attach(name, keys.mode) {
                Ok(index) => {
                    if let Some(error) = loaded.add_queues(name, index, settings, None) {
                        self.fail(Refused::new(key(), &error), WITHOUT_QUEUE)?;
                    }
                    self.warnings.extend(queues::left_out(name, settings));
                }
                Err(error @ AttachError::Occupied(..)) if is_successor => {
                    loaded.occupied.push((name.clone(), Refused::new(key(), &error)));
                }
                Err(error) => self.fail(Refused::new(key(), &error), WITHOUT_PROGRAM)?,
            }
        }
        self.warnings.extend(without_table(keys));
        self.loaded = Some(loaded).filter(|it| it.interfaces.len() + it.occupied.len() > 0);
        Ok(())
    }

    /// The capabilities that have to survive a change of user, for the next upgrade.
    pub fn kept_capabilities(&self) -> &'static [Capability] {
        self.needed
    }

    /// Leaves what the program took to a thread that starts successors: this thread, and those that
    /// it starts, have no use for it. Root keeps everything.
    pub fn drop_capabilities(&mut self) {
        let has = |it: &Capability| caps::has_cap(None, CapSet::Permitted, *it).unwrap_or(false);
        let held: Vec<_> = self.needed.iter().copied().filter(has).collect();
        if held.is_empty() || self.spawn_thread.is_some() || user::is_root() {
            return;
        }
        match SpawnThread::start(&held) {
            Ok(thread) => self.spawn_thread = Some(thread),
            Err(error) => self.warnings.push(format!(
                "the capabilities of the XDP program cannot be left to a thread: {error}; the next \
                 upgrade serves without the program: permit capset(2) in SystemCallFilter= of the \
                 unit"
            )),
        }
    }

    /// Takes the links of the predecessor, and its queues by `take`; others are opened once it has
    /// ended. Without a link, another program is not the predecessor's.
    ///
    /// # Errors
    /// Why the program cannot be attached, where it is required.
    pub fn adopt(
        &mut self,
        mut links: Vec<(u32, OwnedFd)>,
        settings: &Settings,
        mut take: impl FnMut(&QueueOptions) -> Option<Queue>,
    ) -> Result<(), Refused> {
        let Some(mut loaded) = self.loaded.take() else { return Ok(()) };
        let devices = devices().unwrap_or_default();
        for (name, refused) in mem::take(&mut loaded.occupied) {
            let device = devices.iter().find(|device| device.name == name);
            let index = device.map(|device| device.index);
            match links.iter().position(|(of, _)| Some(*of) == index) {
                Some(at) => {
                    let (index, link) = links.swap_remove(at);
                    let failure = loaded.add_queues(&name, index, settings, Some(&mut take));
                    if let Some(error) = failure {
                        self.fail(Refused::new(refused.key, &error), WITHOUT_QUEUE)?;
                    }
                    self.warnings.extend(queues::left_out(&name, settings));
                    loaded.interfaces.push((name, index));
                    loaded.links.push((index, link));
                }
                None => self.fail(refused, WITHOUT_PROGRAM)?,
            }
        }
        self.loaded = Some(loaded).filter(|it| !it.interfaces.is_empty());
        Ok(())
    }

    /// Whether there are queues for the workers.
    pub fn has_queues(&self) -> bool {
        self.loaded.as_ref().is_some_and(|loaded| loaded.queues.count() > 0)
    }

    /// Gives the queues to the workers, whose sockets these are. Once.
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub fn share_queues(&mut self, sockets: Vec<mio::Backend>) -> io::Result<Vec<Backend>> {
        let loaded = self.loaded.as_mut().ok_or(io::ErrorKind::NotFound)?;
        let map = || loaded.intake.sockets();
        loaded.queues.share(sockets, map, self.spawn_thread.as_ref())
    }

    fn fail(&mut self, refused: Refused, consequence: &str) -> Result<(), Refused> {
        if self.required {
            return Err(refused);
        }
        self.warnings.push(format!("{refused}; {consequence}"));
        Ok(())
    }
}

impl Loaded {
    /// Adds the queues of an interface; returns why one of them is not open.
    fn add_queues(
        &mut self,
        name: &str,
        index: u32,
        settings: &Settings,
        take: Option<&mut TakeQueue<'_>>,
    ) -> Option<OpenError> {
        let ((first, count), failure) = self.queues.add(name, settings, take);
        self.queue_count = self.queues.count();
        let redirected = self.intake.redirect_queues(index, first, count);
        let other = |error| OpenError::Other(name.to_owned(), 0, error);
        failure.or(redirected.err().map(other))
    }

    fn attach(&mut self, name: &str, mode: XdpMode) -> Result<u32, AttachError> {
        let mode = match mode {
            XdpMode::Native => Mode::Native,
            XdpMode::Generic => Mode::Generic,
        };
        let index = self.intake.attach(name, mode)?;
        self.interfaces.push((name.to_owned(), index));
        Ok(index)
    }
}

/// Checks the configured interfaces on this host. Returns the values that a start refuses where the
/// program is required, and notes. Nothing is attached, so that a running tracker keeps its
/// program.
pub fn check(settings: &Settings) -> (Vec<Refused>, Vec<String>) {
    let keys = &settings.xdp;
    if keys.interfaces.is_empty() {
        return Default::default();
    }
    let devices = match host_problem().map_or_else(list, Err) {
        Ok(devices) => devices,
        Err(why) => return (vec![Refused::new(XDP_INTERFACES, &why)], Vec::new()),
    };
    let (mut refused, mut notes) = (Vec::new(), without_table(keys));
    for (nth, name) in keys.interfaces.iter().enumerate() {
        let key = format!("{XDP_INTERFACES}.{nth}");
        match devices.iter().find(|device| device.name == *name) {
            None => refused.push(Refused::new(key, &AttachError::NoInterface(name.clone()))),
            Some(Device { program: Some(id), .. }) => notes.push(format!(
                "{key}: {name} has an XDP program (id {id}): unless it is that of the running \
                 tracker, the start finds another one (`bpftool net`)"
            )),
            Some(_) => {}
        }
    }
    let is_there = |name: &&str| devices.iter().any(|device| device.name == **name);
    let found = keys.interfaces.iter().map(String::as_str).filter(is_there);
    notes.extend(found.clone().filter_map(|name| queues::left_out(name, settings)));
    notes.push(queues::note(found, settings));
    if keys.connects == XdpConnects::Auto && !answers(keys, &devices).answer_connects {
        notes.push(
            "xdp.connects: workers answer connects, as a device is a veth: write `connects = \
             \"driver\"` if the device at the other end has an XDP program"
                .to_owned(),
        );
    }
    (refused, notes)
}

/// Loads the program. Also returns the interfaces of the host.
fn load() -> Result<(XdpIntake, Vec<Device>), String> {
    if let Some(why) = host_problem() {
        return Err(why);
    }
    let missing = missing_capabilities();
    if !missing.is_empty() {
        return Err(format!(
            "the XDP program needs {}\n  start as root, or install onrush-xdp.conf as a drop-in of \
             the unit (docs/XDP.md)",
            missing.join(" and ")
        ));
    }
    let devices = list()?;
    let intake = XdpIntake::load().map_err(|error| {
        format!(
            "the kernel does not load the XDP program: {error}\n  permit bpf(2) in \
             SystemCallFilter= of the unit; a container needs the host's user namespace"
        )
    })?;
    Ok((intake, devices))
}

/// Why no interface of this host can have the program.
fn host_problem() -> Option<String> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let ([major, minor], release) = (OLDEST, release.trim());
    is_too_old(release).then(|| {
        format!(
            "Linux {release} is too old for the XDP program\n  use Linux {major}.{minor} or newer, \
             or remove the interfaces"
        )
    })
}

fn list() -> Result<Vec<Device>, String> {
    devices().map_err(|error| {
        format!(
            "the interfaces cannot be listed: {error}\n  permit AF_NETLINK in \
             RestrictAddressFamilies= of the unit"
        )
    })
}

/// The capabilities that the program needs and this thread lacks (capabilities(7)).
fn missing_capabilities() -> Vec<String> {
    let has = |capability| caps::has_cap(None, CapSet::Effective, capability).unwrap_or(false);
    NEEDED.into_iter().filter(|it| !has(*it)).map(|name| name.to_string()).collect()
}

/// Whether program or workers answer connects, and to which MAC address.
fn answers(keys: &Keys, devices: &[Device]) -> XdpSettings {
    let is_veth = |it: &Device| it.kind == VETH && keys.interfaces.contains(&it.name);
    XdpSettings {
        answer_connects: match keys.connects {
            XdpConnects::Auto => !devices.iter().any(is_veth),
            XdpConnects::Driver => true,
            XdpConnects::Workers => false,
        },
        next_hop: keys.replies == XdpReplies::Table,
    }
}

/// A warning for each sysctl without which bpf_fib_lookup() finds no route: it takes forwarding on
/// the interface that a lookup starts from.
fn without_table(keys: &Keys) -> Vec<String> {
    let families = ["ipv4", "ipv6"].iter().filter(|_| keys.replies == XdpReplies::Table);
    let sysctls = families.map(|family| format!("net/{family}/conf/lo/forwarding"));
    let is_off = |sysctl: &String| {
        fs::read_to_string(format!("/proc/sys/{sysctl}")).is_ok_and(|value| value.trim() == "0")
    };
    let warning = |sysctl: String| {
        format!(
            "xdp.replies = \"table\" has no effect while {sysctl} is 0, and workers answer: set it \
             to 1 (`sysctl -w {sysctl}=1`), or write `replies = \"back\"`"
        )
    };
    sysctls.filter(is_off).map(warning).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_veth_devices_workers_answer_unless_the_driver_is_configured() {
        let device = |name: &str, kind: &str| Device {
            name: name.to_owned(),
            kind: kind.to_owned(),
            ..Device::default()
        };
        let devices = [device("eth0", ""), device("vt", VETH), device("other", VETH)];
        for (keys, answer_connects, next_hop) in [
            ("interfaces = ['eth0']", true, false),
            ("interfaces = ['eth0', 'vt']", false, false),
            ("interfaces = ['vt']\nconnects = 'driver'", true, false),
            ("interfaces = ['eth0']\nconnects = 'workers'\nreplies = 'table'", false, true),
        ] {
            let settings = Settings::for_test(&format!("[xdp]\n{keys}"));
            let expected = XdpSettings { answer_connects, next_hop };
            assert_eq!(answers(&settings.xdp, &devices), expected, "{keys}");
        }
    }
}
