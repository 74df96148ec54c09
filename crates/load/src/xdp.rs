//! The queues of a network interface (AF_XDP) beside the UDP sockets of all workers.
//!
//! Queue q is one of worker q mod their number. A worker's sockets share ports that are no other
//! worker's, so that a few ports tell the program whose frame it is, with any number of sources.

use std::io;
use std::net::SocketAddr;

use anyhow::{Context as _, anyhow, ensure};
use caps::{CapSet, Capability};
use onrush_net::xdp::device::{self, devices};
use onrush_net::xdp::queue::RELEASE;
use onrush_net::xdp::{
    AttachError, Backend, LiveProgram, Mode, Program, Queue, QueueOptions, SocketMap,
};

use crate::generator::Generator;
use crate::plan::Plan;
use crate::sources::Network;
use crate::worker::{LoadSettings, Prepared, Window};

/// Capabilities for a program and for AF_XDP sockets (capabilities(7)).
const NEEDED: [Capability; 4] = [
    Capability::CAP_BPF,
    Capability::CAP_NET_ADMIN,
    Capability::CAP_NET_RAW,
    Capability::CAP_PERFMON,
];
/// Entries of the rings of a queue, which then takes 16 MiB.
const RING: u32 = 2_048;
/// What an error is about.
const LIVE_FRAMES: &str = "--live-frames";
/// Datagrams of a batch: that of the UDP sockets.
const BATCH: usize = 128;

/// How the queues of an interface are used, in native mode.
#[derive(Clone, Debug)]
pub struct XdpSettings {
    /// Its name.
    pub interface: String,
    /// Whether an XDP program transmits the frames in place of AF_XDP sockets.
    pub live_frames: bool,
}

/// Checks that there is such an interface, and that this process may use its queues.
///
/// # Errors
/// The missing capabilities, or that there is no such interface.
pub fn check(interface: &str) -> anyhow::Result<()> {
    let has = |it: &Capability| caps::has_cap(None, CapSet::Effective, *it).unwrap_or(false);
    let missing: Vec<_> = NEEDED.iter().filter(|it| !has(it)).map(ToString::to_string).collect();
    ensure!(missing.is_empty(), "this needs {}: start as root", missing.join(" and "));
    let all = devices().context("the interfaces cannot be listed")?;
    ensure!(
        all.iter().any(|device| device.name == interface),
        AttachError::NoInterface(interface.to_owned())
    );
    Ok(())
}

/// A program that passes every frame, at the interface until it is dropped. A veth device loses
/// what an XDP program at its other end transmits unless it has one itself, and the program of a
/// tracker may answer the first connects.
///
/// # Errors
/// When it cannot be attached.
pub fn passing(interface: &str) -> anyhow::Result<Program> {
    Ok(attached(interface, &[])?.0)
}

/// The program for these ports of each worker at an interface, whose index is returned as well.
fn attached(interface: &str, ports: &[Vec<u16>]) -> anyhow::Result<(Program, u32)> {
    let program = Program::redirect(ports);
    let mut program = program.context("the kernel does not load the XDP program")?;
    let index = program.attach(interface, Mode::Native).map_err(|error| match error {
        AttachError::NoNative(name, error) => anyhow!(
            "the driver of {name} has no native XDP, or not with the MTU and the features in use \
             ({error}): leave --xdp out"
        ),
        error => error.into(),
    })?;
    Ok((program, index))
}

/// A worker's sockets and queues.
pub(crate) struct XdpNetwork {
    network: Network,
    queues: Vec<(QueueOptions, Option<Queue>)>,
    map: SocketMap,
    targets: Vec<SocketAddr>,
}

/// Opens all queues of an interface for workers with these sockets. The program is attached until
/// it is dropped.
///
/// # Errors
/// When the program cannot be attached, a queue cannot be opened, or there are fewer than workers.
pub(crate) fn open(
    settings: &XdpSettings,
    networks: Vec<Network>,
    targets: &[SocketAddr],
) -> anyhow::Result<(Vec<XdpNetwork>, Program)> {
    let XdpSettings { interface, live_frames } = settings;
    let (workers, count) = (networks.len(), device::queues(interface));
    ensure!(
        count as usize >= workers,
        "{workers} --workers need as many queues, and {interface} has {count}: use fewer workers, \
         or `ethtool -L {interface} combined {workers}`"
    );
    let ports: Vec<_> = networks.iter().map(|network| network.ports.clone()).collect();
    let (mut program, index) = attached(interface, &ports)?;
    let live = live_frames.then(LiveProgram::load).transpose().context(LIVE_FRAMES)?;
    let mut queues: Vec<_> = networks.iter().map(|_| Vec::new()).collect();
    for queue in 0..count {
        let options = QueueOptions {
            interface: interface.clone(),
            queue,
            place: queue,
            ring: RING,
            batch: BATCH,
            zero_copy: false,
            busy_poll: 0,
        };
        let mut open = Queue::open(options.clone(), RELEASE)?;
        if let Some(live) = &live {
            open = open.with_live_frames(live).context(LIVE_FRAMES)?;
        }
        queues[queue as usize % workers].push((options, Some(open)));
    }
    program.redirect_queues(index, 0, count)?;
    let network = |(network, queues)| {
        Ok(XdpNetwork { network, queues, map: program.sockets()?, targets: targets.to_vec() })
    };
    let networks = networks.into_iter().zip(queues).map(network).collect::<io::Result<_>>()?;
    Ok((networks, program))
}

impl Prepared for XdpNetwork {
    type Worker<'p> = Generator<'p, Backend>;

    fn start(
        self,
        plan: &Plan,
        settings: LoadSettings,
        number: usize,
        window: Window,
    ) -> io::Result<Generator<'_, Backend>> {
        let Self { network: Network { socket, routes, .. }, queues, map, targets } = self;
        let backend = Backend::new(socket, queues, map)?.with_peers(&targets);
        Ok(Generator::new(backend, plan, routes, settings, number, window))
    }
}
