//! The UDP sockets of a start: bound, passed by a service manager, or received from a predecessor;
//! their backends, and steering by the kernel.

use std::io;

use onrush_net::adopt::Adopted;
use onrush_net::bind::{self, BoundSocket, Buffers, Group};
use onrush_net::mio::{self, Backend, drops::DropReasons};
use onrush_net::regroup::{PendingSockets, regroup};
use onrush_net::steering::{self, Function, Steering};
use onrush_proto::scrape::{HASH_LEN, REQUEST_HEAD_LEN};
use onrush_swarm::ShardMap;

use super::StartError;
use crate::upgrade::successor::SuccessorSide;
use onrush_config::Settings;
use onrush_tracker::limits::Placement;

/// Offset of the info hash in announces, and of the first one in scrapes.
const INFO_HASH_OFFSET: usize = REQUEST_HEAD_LEN;

/// The passed sockets, or new ones at the configured addresses.
pub(super) fn open(settings: &Settings, passed: Option<Adopted>) -> Result<Group, StartError> {
    if let Some(sockets) = passed {
        return Ok(sockets.into_group(wanted_buffers(settings))?);
    }
    let options = bind::Options {
        workers: settings.placement.socket_sides(),
        buffers: wanted_buffers(settings),
        probe: true,
    };
    Ok(bind::bind_group(&settings.listen, &options)?)
}

/// The sockets of the predecessor, and new ones for further workers and addresses. The pending ones
/// are bound when the predecessor has released the others.
pub(super) fn take(
    settings: &Settings,
    side: &mut SuccessorSide,
) -> Result<(Group, PendingSockets), StartError> {
    let (kept, workers) = (std::mem::take(&mut side.kept), settings.placement.socket_sides());
    Ok(regroup(kept, &side.added, workers, wanted_buffers(settings))?)
}

fn wanted_buffers(settings: &Settings) -> Buffers {
    Buffers { receive: settings.socket.receive_buffer, send: settings.socket.send_buffer }
}

/// A backend for each worker's sockets. Duplicate descriptors stay in the group, for steering and
/// the next upgrade.
pub(super) fn backends(
    settings: &Settings,
    group: &mut Group,
    reasons: &DropReasons,
) -> io::Result<Vec<Backend>> {
    let duplicate =
        |sockets: &Vec<BoundSocket>| sockets.iter().map(BoundSocket::try_clone).collect();
    let duplicates = group.workers.iter().map(duplicate).collect::<io::Result<_>>()?;
    let options = mio::Options { batch: settings.socket.batch, ..mio::Options::default() };
    let sockets = std::mem::replace(&mut group.workers, duplicates).into_iter();
    let backend = |sockets| Ok(Backend::new(sockets, options)?.with_drop_reasons(reasons));
    sockets.map(backend).collect()
}

/// Makes the kernel steer announces and scrapes to the worker that owns their (first) info hash.
/// `None` where that is off, or no worker has both sockets and a shard.
pub(super) fn steer(settings: &Settings, map: ShardMap, group: &mut Group) -> Option<Steering> {
    let Placement::Colocated { workers: 2.. } = settings.placement else { return None };
    if !settings.socket.steering {
        return None;
    }
    let (steering, notices) = Steering::attach(function(map), group);
    group.notices.extend(notices);
    Some(steering)
}

/// Removes the steering program of the predecessor. Returns a warning if the kernel refuses.
pub(super) fn stop_steering(group: &Group) -> Option<String> {
    let error = steering::detach(group).err()?;
    Some(format!(
        "the kernel keeps the steering of the predecessor ({error}): some workers get \
         connects alone until a restart"
    ))
}

/// The shard map as a function of the kernel. Connects are shorter than `min_len`, and left to the
/// kernel's own hash.
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
        /// The crates net and swarm implement the same function independently.
        #[test]
        fn kernel_and_sorter_pick_the_same_shard(
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
