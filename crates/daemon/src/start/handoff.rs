//! The steps of a start that belong to a handoff: binding the admin address that the predecessor
//! has, acquiring its sockets, and listening for a successor.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crossbeam_channel::unbounded;
use onrush_net::bind::Group;
use onrush_net::regroup::{AddressSockets, PendingSockets};

use super::{StartError, Tracker};
use crate::process::service_manager::{self, NotifyState};
use crate::time::Time;
use crate::upgrade::SOCKET;
use crate::upgrade::predecessor::PredecessorSide;
use crate::upgrade::successor::{self, HandoffError, SuccessorSide};
use onrush_config::Settings;
use onrush_config::settings::Listen;
use onrush_control::AdminError;
use onrush_control::server::{self, Bound};
use onrush_replica::delta;
use onrush_replica::handoff::{Handoff, Section, SectionKind};
use onrush_store::lock::StateLock;
use onrush_text::version::version;

/// Binds the admin address. If the predecessor may have it, it is bound once that has exited.
pub(super) fn bind_admin(settings: &Settings, listen: Listen) -> Result<Bound, AdminError> {
    match server::bind(listen) {
        Err(AdminError::Taken(address)) => {
            // Without a predecessor the start fails at the handoff, with a better message.
            let held =
                successor::inspect(settings).is_none_or(|handoff| handoff.may_hold_admin(address));
            if held { Ok(server::bind_later(address)) } else { Err(AdminError::Taken(address)) }
        }
        bound => bound,
    }
}

impl Tracker {
    /// Acquires the sockets of the predecessor, whose peers are loaded. From its release to the
    /// acquisition neither process serves, so only what cannot be done earlier is done in between.
    /// `journal_length` is the journal's length in bytes when it was replayed.
    pub(super) fn acquire_sockets(
        &mut self,
        client: &mut SuccessorSide,
        pending: PendingSockets,
        settings: &Settings,
        (journal_length, merging): (u64, &Arc<AtomicBool>),
    ) -> Result<(), StartError> {
        let link = client.link.try_clone().map_err(HandoffError::Broken)?;
        let start_merge = delta::start_merge(
            link,
            (self.running.orders().clone(), self.map),
            merging.clone(),
            std::mem::take(&mut client.stops),
            // Before its first byte, the predecessor has named this one as the main process.
            // Earlier notifications were ignored (NotifyAccess=main).
            || service_manager::send(&[NotifyState::Ready, NotifyState::Watchdog]),
        )
        .map_err(StartError::Threads)?;
        self.overload.adopt(client.wait_for_release()?, Instant::now());
        self.read_late_changes(journal_length);
        let rules = Arc::new(self.overload.rules(settings, self.access.lists()));
        // Workers wait at the gate, so their lanes have room.
        if let Err(error) = self.running.orders().update_rules(&rules) {
            self.warnings.push(format!("{error}: it keeps the rules from before the upgrade"));
        }
        pending.bind().map_err(HandoffError::Broken)?;
        // Before the upgrade socket is opened, which refuses requests during the merge.
        merging.store(true, Ordering::Release);
        client.acquire()?;
        if let Some(lock) = &mut self.files.lock {
            lock.take_ownership();
        }
        // Fails only if the merging thread has ended.
        let _ = start_merge.send(self.access.lists().access.clone());
        Ok(())
    }

    /// Applies list changes that the predecessor has made since the journal was replayed, when it
    /// had this length in bytes, and continues its blocks.
    fn read_late_changes(&mut self, journal_length: u64) {
        let Some(records) = self.files.records() else { return };
        let time = Time::of(self.clock);
        if let Some(kind) = self.access.lists().access.kind() {
            match records.journal.since(kind, journal_length) {
                Ok(changes) => self.access.apply_late_changes(&changes, time.now),
                Err(error) => self.warnings.push(format!(
                    "{} cannot be read again: {error}; list changes made during the upgrade apply \
                     after the next reload",
                    records.journal.path().display()
                )),
            }
        }
        self.access.load_blocks(records.load_blocks(time.unix), time);
    }

    /// Listens for a successor, unless this process is still `merging` the delta of its own
    /// predecessor.
    pub(super) fn listen_for_successor(
        &mut self,
        settings: &Settings,
        group: Group,
        shard_key: [u32; 5],
        merging: Arc<AtomicBool>,
    ) {
        let (Some(lock), Some(directory)) = (&self.files.lock, &settings.state_dir) else { return };
        let (events, handoffs) = unbounded();
        let path = directory.join(SOCKET);
        let sections = sections(group, lock, self.files.control.as_ref());
        let listening = sections.and_then(|(sections, descriptors)| {
            let handoff = Handoff {
                version: version().to_owned(),
                process: std::process::id(),
                sections,
                passed: settings.sockets_passed,
                shard_key,
                admin: self.admin.address().into_iter().collect(),
                current: None,
            };
            let server = PredecessorSide {
                handoff,
                descriptors,
                orders: self.running.orders().clone(),
                limit: settings.limits.peers,
                merging,
                events,
            };
            server.listen(&path, self.clock)
        });
        if let Err(error) | Ok(Some(error)) = &listening {
            self.warnings.push(format!(
                "upgrades without downtime are unavailable: cannot listen at {}: {error}",
                path.display()
            ));
        }
        if listening.is_ok() {
            self.handoffs = handoffs;
        }
    }
}

/// The descriptors that a successor gets, by section.
fn sections(
    group: Group,
    lock: &StateLock,
    control: Option<&UnixListener>,
) -> io::Result<(Vec<Section>, Vec<Vec<OwnedFd>>)> {
    let mut all = Vec::new();
    for AddressSockets { address, sockets } in group.into_address_sockets() {
        let sockets = sockets.into_iter().map(OwnedFd::from).collect();
        all.push((SectionKind::Udp(address), sockets));
    }
    all.push((SectionKind::Lock, lock.share()?));
    if let Some(control) = control {
        all.push((SectionKind::Control, vec![control.as_fd().try_clone_to_owned()?]));
    }
    let of = |(kind, descriptors): (_, Vec<OwnedFd>)| {
        (Section { kind, count: descriptors.len() }, descriptors)
    };
    Ok(all.into_iter().map(of).unzip())
}
