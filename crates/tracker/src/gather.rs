//! One result from each of several shards or workers, for a thread that waits for all of them.

use std::mem;
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};
use thiserror::Error;

/// Results that running workers send. [`Orders`](crate::orders::Orders) makes it with the order
/// that asks for them.
#[derive(Debug)]
pub struct Gather<R> {
    results: Receiver<R>,
    arrived: Vec<R>,
    /// How many results there are.
    all: usize,
    /// A walk ends when this is dropped, after the receiver of its result.
    pub(crate) wanted: Arc<()>,
}

/// A result does not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a worker has ended, or is stalled")]
pub struct ResultMissing;

impl<R> Gather<R> {
    /// A gather of this many results, and the sender whose clones send one each.
    pub(crate) fn new(all: usize) -> (Sender<R>, Self) {
        let (to, results) = bounded(all);
        (to, Self { results, arrived: Vec::with_capacity(all), all, wanted: Arc::new(()) })
    }

    /// All results, in any order, once; `None` while one is missing. Does not wait.
    ///
    /// # Errors
    /// [`ResultMissing`], when a worker has ended without its result.
    pub fn poll(&mut self) -> Result<Option<Vec<R>>, ResultMissing> {
        while self.arrived.len() < self.all {
            match self.results.try_recv() {
                Ok(result) => self.arrived.push(result),
                Err(TryRecvError::Empty) => return Ok(None),
                Err(TryRecvError::Disconnected) => return Err(ResultMissing),
            }
        }
        Ok(Some(mem::take(&mut self.arrived)))
    }

    /// Waits for all results, for each by `receive`. They are in any order.
    ///
    /// # Errors
    /// [`ResultMissing`], when `receive` fails.
    pub fn wait_by<E>(
        mut self,
        mut receive: impl FnMut(&Receiver<R>) -> Result<R, E>,
    ) -> Result<Vec<R>, ResultMissing> {
        while self.arrived.len() < self.all {
            self.arrived.push(receive(&self.results).map_err(|_| ResultMissing)?);
        }
        Ok(self.arrived)
    }
}
