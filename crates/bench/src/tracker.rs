//! A tracker under measurement: its process and, where it is behind hitch, that of hitch.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::bail;
use onrush_load::process::{Memory, with_workers};

use crate::contender::{Found, Setup, Variant};
use crate::process::{Child, Stop};

/// How long a process may take to answer.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// The processes of a tracker. They end in reverse order: hitch first.
#[derive(Debug)]
pub struct Tracker {
    processes: Vec<Child>,
    /// The address that the tracker itself listens on.
    pub address: SocketAddr,
}

impl Tracker {
    /// Starts a variant on these vCPUs, and waits until each process answers. Processes that
    /// listen on any address are asked on 127.0.0.1.
    ///
    /// # Errors
    /// When a process ends or does not answer, or the bench is stopped.
    pub fn start(
        found: &Found,
        variant: &Variant,
        setup: &Setup,
        cpus: &[usize],
        stop: &Stop,
    ) -> anyhow::Result<Self> {
        let mut tracker = Self { processes: Vec::new(), address: setup.address };
        for (number, (launch, mut address)) in found.launch(variant, setup)?.into_iter().enumerate()
        {
            if address.ip().is_unspecified() {
                address.set_ip(Ipv4Addr::LOCALHOST.into());
            }
            if number == 0 {
                tracker.address = address;
            }
            let mut child = Child::start(&launch, cpus, setup.directory)?;
            child.wait_until_answering(address, setup.protocol, ANSWER_TIMEOUT, stop)?;
            tracker.processes.push(child);
        }
        Ok(tracker)
    }

    /// The process ids.
    pub fn pids(&self) -> Vec<u32> {
        self.processes.iter().map(Child::pid).collect()
    }

    /// The peak of resident memory of all processes together, in bytes.
    pub fn peak(&self) -> Option<u64> {
        let memory = Memory::of_all(&with_workers(&self.pids())).ok()?;
        Some(memory.peak).filter(|&peak| peak > 0)
    }

    /// Checks that all processes run.
    ///
    /// # Errors
    /// When one of them has ended, with its output.
    pub fn check(&mut self) -> anyhow::Result<()> {
        for child in &mut self.processes {
            if let Some(status) = child.ended()? {
                bail!("{} ended ({status}) under load: {}", child.name(), child.output_tail());
            }
        }
        Ok(())
    }

    /// The last part of the output of the tracker's own process.
    pub fn output_tail(&self) -> String {
        self.processes.first().map(Child::output_tail).unwrap_or_default()
    }
}

impl Drop for Tracker {
    fn drop(&mut self) {
        while let Some(child) = self.processes.pop() {
            drop(child);
        }
    }
}
