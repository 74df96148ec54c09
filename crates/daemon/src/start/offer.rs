//! The last step of a start: the process listens for a successor, which gets its sockets.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crossbeam_channel::unbounded;
use onrush_net::bind::Group;
use onrush_net::stream::listen::AddressListeners;

use super::{Tracker, web};
use crate::upgrade::SOCKET;
use crate::upgrade::predecessor::{PredecessorSide, unavailable};
use crate::xdp::XdpProgram;
use onrush_config::Settings;
use onrush_replica::handoff::{Handoff, Section, SectionKind};
use onrush_store::lock::StateLock;
use onrush_text::version::version;

impl Tracker {
    /// Listens for a successor, unless this process is still `merging` the delta of its own
    /// predecessor.
    pub(super) fn listen_for_successor(
        &mut self,
        settings: &Settings,
        (group, listeners): (Group, Vec<web::Group>),
        shard_key: [u32; 5],
        merging: Arc<AtomicBool>,
    ) {
        let (Some(lock), Some(directory)) = (&self.files.lock, &settings.state_dir) else { return };
        let (events, handoffs) = unbounded();
        let path = directory.join(SOCKET);
        let sections = sections(&group, listeners, self.xdp.as_ref(), lock);
        let listening = sections.and_then(|(sections, descriptors)| {
            let handoff = Handoff {
                version: version().to_owned(),
                process: std::process::id(),
                sections,
                passed: settings.sockets_passed,
                shard_key,
                admin: self.admin.address.into_iter().collect(),
                control_file: None,
                current: None,
            };
            let side = PredecessorSide {
                handoff,
                descriptors,
                queues: self.xdp.as_ref().map(XdpProgram::open_queues).unwrap_or_default(),
                control: self.files.control.clone(),
                orders: self.running.orders().clone(),
                limit: settings.limits.peers,
                merging,
                events,
            };
            side.listen(path.clone(), self.clock)
        });
        if let Err(error) | Ok(Some(error)) = &listening {
            self.warnings.push(unavailable(path.display(), error));
        }
        if listening.is_ok() {
            self.handoffs = handoffs;
        }
    }
}

/// The descriptors that a successor gets, by section.
fn sections(
    group: &Group,
    listeners: Vec<web::Group>,
    xdp: Option<&XdpProgram>,
    lock: &StateLock,
) -> io::Result<(Vec<Section>, Vec<Vec<OwnedFd>>)> {
    let mut all = Vec::new();
    for &address in &group.addresses {
        let sockets = group.sockets_at(address).into_iter();
        let sockets = sockets.map(|socket| socket.as_fd().try_clone_to_owned());
        all.push((SectionKind::Udp(address), sockets.collect::<io::Result<_>>()?));
    }
    for (scheme, AddressListeners { address, listeners }) in listeners {
        let kind = SectionKind::of_listeners((scheme, address));
        all.push((kind, listeners.into_iter().map(OwnedFd::from).collect()));
    }
    if let Some(xdp) = xdp {
        for (index, link) in xdp.links() {
            all.push((SectionKind::Xdp(index), vec![link.try_clone_to_owned()?]));
        }
    }
    all.push((SectionKind::Lock, lock.share()?));
    let of = |(kind, descriptors): (_, Vec<OwnedFd>)| {
        (Section { kind, count: descriptors.len() }, descriptors)
    };
    Ok(all.into_iter().map(of).unzip())
}
