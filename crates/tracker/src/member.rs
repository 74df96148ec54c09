//! Members of the data path: each has a role, a name and counters of its own, and a thread. Only
//! the XDP program at an interface has none: the kernel runs it, and the main thread reads what it
//! has counted.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use onrush_swarm::Shard;

use crate::clock::Now;
use crate::metrics::WorkerMetrics;

/// The part of a member in the data path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A worker with UDP sockets.
    Socket,
    /// A worker with a shard.
    Shard,
    /// A worker with UDP sockets and a shard.
    Both,
    /// A worker with connections of HTTP, without UDP sockets.
    Web,
    /// The XDP program at an interface. The main thread takes its turns, one a second.
    Program,
}

impl Role {
    /// Whether the member takes requests of clients.
    pub fn takes_requests(self) -> bool {
        self != Self::Shard
    }

    /// Whether the member has UDP sockets.
    pub fn has_sockets(self) -> bool {
        matches!(self, Self::Socket | Self::Both)
    }

    /// Whether the member has connections of HTTP.
    pub fn has_connections(self) -> bool {
        self == Self::Web
    }

    /// Whether the member owns a shard.
    pub fn has_shard(self) -> bool {
        matches!(self, Self::Shard | Self::Both)
    }

    /// The names of workers with this role: a kind, to which a number is added.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::Socket => "socket",
            Self::Shard => "swarm",
            Self::Both => "worker",
            Self::Web => "web",
            Self::Program => "xdp",
        }
    }
}

/// A member as other threads see it.
#[derive(Clone, Debug)]
pub struct Member {
    /// The name of its thread: the kind and the number among the members of this kind.
    pub name: String,
    /// Its part in the data path.
    pub role: Role,
    /// Its counters.
    pub metrics: Arc<WorkerMetrics>,
}

impl Member {
    /// The member number `nth` of its role.
    pub fn new(role: Role, nth: usize, metrics: Arc<WorkerMetrics>) -> Self {
        Self { name: format!("{}-{nth}", role.kind()), role, metrics }
    }

    /// The XDP program at this interface.
    pub fn program(interface: &str, metrics: Arc<WorkerMetrics>) -> Self {
        let role = Role::Program;
        Self { name: format!("{}-{interface}", role.kind()), role, metrics }
    }

    /// The interface, if this is an XDP program.
    pub fn interface(&self) -> Option<&str> {
        match self.role {
            Role::Program => self.name.split_once('-').map(|(_, interface)| interface),
            _ => None,
        }
    }
}

/// The work of a member's thread.
pub trait MemberThread: Send + 'static {
    /// The part of the member in the data path.
    fn role(&self) -> Role;

    /// Its counters.
    fn metrics(&self) -> &Arc<WorkerMetrics>;

    /// Does one turn of work without blocking. Returns whether more work may be waiting.
    ///
    /// # Errors
    /// When the member cannot work any more.
    fn turn(&mut self, now: Now) -> io::Result<bool>;

    /// Sleeps until there may be work, for `timeout` at most.
    ///
    /// # Errors
    /// When the member cannot work any more.
    fn wait(&mut self, timeout: Duration) -> io::Result<()>;

    /// Drops queued orders, which tells their requesters that these will not be carried out, and
    /// returns the member's shard.
    fn end(&mut self) -> Option<Shard>;
}
