//! The AF_XDP queues of the program's interfaces: opened before the process drops the capabilities
//! that this needs, and given to the workers. The places of queues in the program are counted over
//! all interfaces; a queue belongs to the worker whose number is the remainder of its place.

use std::collections::BTreeMap;
use std::io;
use std::iter;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};
use onrush_config::Settings;
use onrush_net::xdp::backend::MAX_QUEUES;
use onrush_net::xdp::queue::{self, RELEASE, frame_bytes};
use onrush_net::xdp::{Backend, OpenError, Queue, QueueOptions, SocketMap, SocketSource, device};
use onrush_net::{QueueId, mio};
use onrush_text::numbers::{bytes, plural};

use crate::process::spawn_thread::SpawnThread;

/// The most queues of a program: the size of the map `sockets` in crates/net/bpf/sockets.h.
const MAX_PLACES: usize = 1_024;

/// Takes a queue of the predecessor, if that hands it over.
pub(super) type TakeQueue<'a> = dyn FnMut(&QueueOptions) -> Option<Queue> + 'a;

/// The queues of all interfaces by their places. One that is not open is opened by its worker.
#[derive(Debug)]
pub(super) struct Queues {
    all: Vec<(QueueOptions, Option<Queue>)>,
    /// Those that workers have open.
    pub(super) open: OpenQueues,
    /// How long queues may be busy in all: another process may have just ended.
    deadline: Instant,
}

impl Queues {
    pub(super) fn new() -> Self {
        Self { all: Vec::new(), open: OpenQueues::default(), deadline: Instant::now() + RELEASE }
    }

    /// The number of queues.
    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    /// Adds the queues of an interface up to the first that cannot be opened, unless it is busy.
    /// Where a predecessor has them, none is opened, and those that it hands over are taken.
    /// Returns their first place and their number, and the first failure.
    pub(super) fn add(
        &mut self,
        interface: &str,
        settings: &Settings,
        mut take: Option<&mut TakeQueue<'_>>,
    ) -> ((u32, u32), Option<OpenError>) {
        let first = self.all.len() as u32;
        let mut failure = None;
        for number in 0..count_of(interface, settings) {
            let options = options(interface, number, first + number, settings);
            let patience = self.deadline.saturating_duration_since(Instant::now());
            let queue = match &mut take {
                Some(take) => take(&options),
                None => match Queue::open(options.clone(), patience) {
                    Ok(queue) => Some(queue),
                    Err(error) => {
                        let is_busy = matches!(error, OpenError::Busy(..));
                        failure.get_or_insert(error);
                        if !is_busy {
                            break;
                        }
                        None
                    }
                },
            };
            self.all.push((options, queue));
        }
        ((first, self.all.len() as u32 - first), failure)
    }

    /// Gives the queues to the workers, whose sockets these are.
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub(super) fn share(
        &mut self,
        sockets: Vec<mio::Backend>,
        map: impl Fn() -> io::Result<SocketMap>,
        spawn_thread: Option<&SpawnThread>,
    ) -> io::Result<Vec<Backend>> {
        let mut shares: Vec<_> = iter::repeat_with(Vec::new).take(sockets.len()).collect();
        for (place, (options, queue)) in self.all.drain(..).enumerate() {
            shares[place % sockets.len()].push((options, queue));
        }
        let backend = |(sockets, queues)| {
            let open = OpenQueues { thread: spawn_thread.cloned(), ..self.open.clone() };
            Ok(Backend::new(sockets, queues, map()?)?.with_socket_source(open))
        };
        sockets.into_iter().zip(shares).map(backend).collect()
    }
}

/// The open queues of all workers, with copies of their descriptors for a successor.
#[derive(Clone, Debug, Default)]
pub struct OpenQueues {
    copies: Arc<Mutex<BTreeMap<QueueId, Vec<OwnedFd>>>>,
    /// The thread that has the capabilities, where workers lack them.
    thread: Option<SpawnThread>,
}

impl OpenQueues {
    /// Which queues are open.
    pub fn ids(&self) -> Vec<QueueId> {
        self.lock().keys().copied().collect()
    }

    /// Further copies of the descriptors of each.
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub fn copies(&self) -> io::Result<Vec<(QueueId, Vec<OwnedFd>)>> {
        let copy = |(id, descriptors): (&QueueId, &Vec<OwnedFd>)| {
            Ok((*id, descriptors.iter().map(OwnedFd::try_clone).collect::<io::Result<_>>()?))
        };
        self.lock().iter().map(copy).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<QueueId, Vec<OwnedFd>>> {
        self.copies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SocketSource for OpenQueues {
    fn socket(&self, options: &QueueOptions) -> io::Result<OwnedFd> {
        let Some(thread) = &self.thread else { return queue::socket(options) };
        let options = options.clone();
        thread.run(move || queue::socket(&options))
    }

    fn opened(&self, queue: &Queue) {
        // Without copies it is opened anew after an upgrade.
        if let Ok(copies) = queue.share() {
            self.lock().insert(queue.id(), copies);
        }
    }

    fn closed(&self, queue: QueueId) {
        self.lock().remove(&queue);
    }
}

/// The number of queues of an interface that are opened.
fn count_of(interface: &str, settings: &Settings) -> u32 {
    device::queues(interface).min(most(settings))
}

/// The most queues of an interface.
fn most(settings: &Settings) -> u32 {
    let of_all = (MAX_QUEUES * settings.placement.socket_sides()).min(MAX_PLACES);
    (of_all / settings.xdp.interfaces.len().max(1)) as u32
}

/// A warning for an interface with more queues than are opened.
pub(super) fn left_out(interface: &str, settings: &Settings) -> Option<String> {
    let (queues, most) = (device::queues(interface), most(settings));
    let left_out = queues.checked_sub(most).filter(|it| *it > 0)?;
    Some(format!(
        "{left_out} of the {queues} queues of {interface} have no AF_XDP socket, and their \
         requests reach the UDP sockets: a worker has {MAX_QUEUES} queues at most, all have \
         {MAX_PLACES} (`ethtool -L {interface} combined {most}`, or more workers)"
    ))
}

fn options(interface: &str, queue: u32, place: u32, settings: &Settings) -> QueueOptions {
    let keys = &settings.xdp;
    QueueOptions {
        interface: interface.to_owned(),
        queue,
        place,
        ring: keys.ring,
        batch: settings.socket.batch.min(keys.ring as usize),
        zero_copy: keys.zero_copy,
        busy_poll: keys.busy_poll,
    }
}

/// The number of queues, their workers and their memory, as text.
pub(super) fn line(queues: usize, settings: &Settings) -> String {
    if queues == 0 {
        return "no AF_XDP queue".to_owned();
    }
    let workers = settings.placement.socket_sides().min(queues);
    let memory = bytes(queues as u64 * frame_bytes(settings.xdp.ring));
    format!("{} of {} with {memory}", plural(queues, "AF_XDP queue"), plural(workers, "worker"))
}

/// What the queues of these interfaces would take on this host.
pub(super) fn note<'n>(interfaces: impl Iterator<Item = &'n str>, settings: &Settings) -> String {
    let queues: u32 = interfaces.map(|name| count_of(name, settings)).sum();
    let limit = match getrlimit(Resource::RLIMIT_MEMLOCK) {
        Ok((_, RLIM_INFINITY)) | Err(_) => "any amount".to_owned(),
        Ok((_, hard)) => bytes(hard),
    };
    format!(
        "xdp.interfaces: {} of locked memory, of which a process without CAP_IPC_LOCK may have \
         {limit} here; LimitMEMLOCK= in a unit sets that",
        line(queues as usize, settings)
    )
}

/// Raises the limit of locked memory as far as this process may: root's does not apply after a
/// change of user.
pub(super) fn raise_locked_memory() {
    let set = |limit| setrlimit(Resource::RLIMIT_MEMLOCK, limit, limit);
    if set(RLIM_INFINITY).is_err()
        && let Ok((_, hard)) = getrlimit(Resource::RLIMIT_MEMLOCK)
    {
        let _ = set(hard);
    }
}
