//! From settings to a running tracker. The order matters: user, sockets, state, workers.

use std::io;
use std::sync::Arc;

use onrush_net::adopt::Adopted;
use onrush_net::bind::{self, Address, Buffers, Group};
use onrush_net::steering::{Function, Steering};
use onrush_net::{mio, notice::Notice};
use onrush_proto::scrape::{HASH_LEN, REQUEST_HEAD_LEN};
use onrush_swarm::ShardMap;
use thiserror::Error;

use crate::access::Lists;
use crate::access::journal::Journal;
use crate::access::list_file::ListError;
use crate::access::listing::Listing;
use crate::placement::{Secrets, assemble, shard_map};
use crate::process::lock::StateLock;
use crate::process::user;
use crate::running::Running;
use crate::settings::{Placement, Settings};
use crate::state::{State, StateError};

/// Where the info hash is in announces, and the first one in scrapes.
const INFO_HASH_OFFSET: usize = REQUEST_HEAD_LEN;

/// A tracker that has just been started.
pub struct Tracker {
    /// Its workers.
    pub running: Running,
    /// The kernel's part in bringing announces to their worker, where there is one.
    pub steering: Option<Steering>,
    /// What went less well than asked for, in sentences with the remedy.
    pub warnings: Vec<String>,
    /// The lists that are in force.
    pub lists: Lists,
    /// Where changes of the list of info hashes are kept; `None` without a state directory.
    pub journal: Option<Journal>,
    /// Held until the end; `None` without a state directory.
    pub lock: Option<StateLock>,
}

/// Why a tracker cannot start. Each says what to do.
#[derive(Debug, Error)]
pub enum StartError {
    /// The user to run as.
    #[error(transparent)]
    User(#[from] user::UserError),
    /// The addresses to listen on.
    #[error(transparent)]
    Bind(#[from] bind::BindError),
    /// What should have outlived the last process.
    #[error(transparent)]
    State(#[from] StateError),
    /// The lists of info hashes and sources.
    #[error(transparent)]
    List(#[from] ListError),
    /// Polling of the sockets.
    #[error(
        "cannot set up polling: {0}\n  raise the limit of open files: LimitNOFILE= in the unit, or `ulimit -n`"
    )]
    Poll(io::Error),
    /// Threads of the workers.
    #[error(
        "cannot start the workers' threads: {0}\n  raise the limit of tasks: TasksMax= in the unit, or `ulimit -u`"
    )]
    Threads(io::Error),
}

impl Tracker {
    /// Starts a tracker on sockets of its own.
    ///
    /// # Errors
    /// [`StartError`]; nothing of a tracker that did not start stays behind.
    pub fn start(settings: &Settings) -> Result<Self, StartError> {
        Self::start_on(settings, None)
    }

    /// Starts a tracker, on these sockets where there are any. The settings have to be for as many workers.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_on(settings: &Settings, passed: Option<Adopted>) -> Result<Self, StartError> {
        let mut warnings = Vec::new();
        if let Some(name) = &settings.user {
            user::become_user(name, settings.group.as_deref(), settings.state_dir.as_deref())?;
        } else if user::is_root() {
            warnings.push(
                "running as root, with more power than a tracker needs: name a user to become as \
                 `user` in the configuration"
                    .to_owned(),
            );
        }
        // Before there are sockets that fill up meanwhile, and as the user that reads it again later.
        let mut lists = Lists::load(settings)?;
        let mut group = match passed {
            Some(sockets) => sockets.into_group(buffers(settings))?,
            None => bind_group(settings)?,
        };
        if settings.user.is_some() {
            user::drop_capabilities();
        }
        let state = State::open(settings)?;
        warnings.extend(state.warnings);
        let journal = settings.state_dir.as_deref().filter(|_| state.lock.is_some());
        let journal = journal.map(Journal::new);
        if let Some(journal) = &journal {
            warnings.extend(resume(&mut lists, journal));
        }
        warnings.extend(lists.access.warning().map(str::to_owned));
        let secrets = Secrets::random(state.keys);
        let steering = steer(settings, shard_map(settings, &secrets), &mut group);
        warnings.extend(group.notices.iter().map(Notice::to_string));
        let options = mio::Options { batch: settings.socket.batch, ..mio::Options::default() };
        let sockets = group
            .workers
            .into_iter()
            .map(|sockets| mio::Backend::new(sockets, options))
            .collect::<io::Result<Vec<_>>>()
            .map_err(StartError::Poll)?;
        let workers = assemble(settings, &secrets, sockets, &lists);
        let running =
            Running::launch(settings, group.addresses, workers).map_err(StartError::Threads)?;
        Ok(Self { running, steering, warnings, lists, journal, lock: state.lock })
    }

    /// Stops the workers, then gives the state directory back.
    pub fn stop(self) -> crate::metrics::Summary {
        let summary = self.running.stop();
        drop(self.lock);
        summary
    }
}

/// Puts the changes that were made to the list while trackers ran into force again. Returns what is odd.
fn resume(lists: &mut Lists, journal: &Journal) -> Vec<String> {
    let resumed = journal.resume((*lists.access).clone());
    let kept = journal
        .compact(&resumed)
        .err()
        .map(|error| format!("{} cannot be made shorter: {error}", journal.path().display()));
    let list = resumed.list;
    let ragged = list.listing().is_some_and(Listing::is_ragged);
    lists.access = Arc::new(if ragged { list.merged() } else { list });
    resumed.warning.into_iter().chain(kept).collect()
}

fn bind_group(settings: &Settings) -> Result<Group, bind::BindError> {
    let addresses: Vec<Address> = settings
        .listen
        .iter()
        .map(|listen| Address { address: listen.address, optional: listen.optional })
        .collect();
    let options = bind::Options {
        workers: settings.placement.socket_sides(),
        buffers: buffers(settings),
        probe: true,
    };
    bind::bind_group(&addresses, &options)
}

fn buffers(settings: &Settings) -> Buffers {
    Buffers { receive: settings.socket.receive_buffer, send: settings.socket.send_buffer }
}

/// Has the kernel bring announces and scrapes to the worker that owns their (first) info hash.
/// Worth nothing to a split tracker, whose shards are never where the sockets are.
fn steer(settings: &Settings, map: ShardMap, group: &mut Group) -> Option<Steering> {
    let Placement::Colocated { workers: 2.. } = settings.placement else { return None };
    if !settings.socket.steering {
        return None;
    }
    let (steering, notices) = Steering::attach(function(map), group);
    group.notices.extend(notices);
    Some(steering)
}

/// The map as the kernel can compute it. Connects are shorter, and left to the kernel's own hash.
fn function(map: ShardMap) -> Function {
    Function {
        offset: INFO_HASH_OFFSET as u32,
        multipliers: map.key(),
        min_len: (INFO_HASH_OFFSET + HASH_LEN) as u32,
        buckets: map.shards(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onrush_proto::InfoHash;
    use proptest::prelude::*;

    proptest! {
        /// The kernel's function and the sorter's are written down in two crates that must not
        /// know each other: this is where they have to agree.
        #[test]
        fn the_kernel_picks_the_sorters_shard(
            key: [u32; 5],
            shards in 1u16..1024,
            mut datagram in proptest::collection::vec(any::<u8>(), 36..200),
            hash: [u8; 20],
        ) {
            datagram[16..36].copy_from_slice(&hash);
            let map = ShardMap::new(key, shards);
            let bucket = function(map).bucket(&datagram).map(usize::from);
            prop_assert_eq!(bucket, Some(map.shard_of(&InfoHash(hash))));
            prop_assert_eq!(function(map).bucket(&datagram[..35]), None);
        }
    }
}
