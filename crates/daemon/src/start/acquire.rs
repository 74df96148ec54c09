//! The step of a successor's start in which it acquires the sockets of its predecessor.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use onrush_net::regroup::PendingSockets;
use onrush_net::stream::listen::PendingListeners;

use super::{StartError, Tracker};
use crate::process::service_notify::{self, NotifyState};
use crate::time::Time;
use crate::upgrade::successor::{HandoffError, SuccessorSide};
use crate::xdp::XdpProgram;
use onrush_config::Settings;
use onrush_replica::delta;

/// UDP sockets that are bound, and TCP listeners that listen, once the predecessor has released its
/// own.
pub(super) struct Pending {
    pub(super) sockets: PendingSockets,
    pub(super) listeners: PendingListeners,
}

impl Tracker {
    /// Acquires the sockets of the predecessor, whose peers are loaded. From its release to the
    /// acquisition neither process serves, so only what cannot be done earlier is done in between.
    /// `journal_length` is the journal's length in bytes when it was replayed.
    pub(super) fn acquire_sockets(
        &mut self,
        side: &mut SuccessorSide,
        pending: Pending,
        settings: &Settings,
        (journal_length, merging): (u64, &Arc<AtomicBool>),
    ) -> Result<(), StartError> {
        let link = side.link.try_clone().map_err(HandoffError::Broken)?;
        let start_merge = delta::start_merge(
            link,
            (self.running.orders().clone(), self.map),
            merging.clone(),
            std::mem::take(&mut side.stops),
            // When the predecessor has named this process as the main one.
            || {
                service_notify::set_main(true);
                service_notify::send(&[NotifyState::Ready, NotifyState::Watchdog]);
            },
        )
        .map_err(StartError::Threads)?;
        // A long list of blocked sources takes a while.
        self.update_xdp(settings);
        self.overload.adopt(side.wait_for_release()?, Instant::now());
        self.read_late_changes(journal_length);
        let rules = Arc::new(self.overload.rules(settings, self.access.lists()));
        // Workers wait at the gate, so their lanes have room.
        if let Err(error) = self.running.orders().update_rules(&rules) {
            self.warnings.push(format!("{error}: it keeps the rules from before the upgrade"));
        }
        pending.sockets.bind().map_err(HandoffError::Broken)?;
        pending.listeners.listen().map_err(HandoffError::Broken)?;
        // Before the upgrade socket is opened, which refuses requests during the merge.
        merging.store(true, Ordering::Release);
        side.acquire()?;
        self.warnings.extend(self.xdp.iter_mut().flat_map(XdpProgram::take_over));
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
}
