//! How far the tracker is: what `/ready` goes by.

use std::sync::atomic::{AtomicU8, Ordering};

/// How far the tracker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Stage {
    /// Sockets are being bound, or what outlived the last process is being read.
    Starting,
    /// It serves.
    Serving,
    /// It has been asked to stop.
    Stopping,
}

impl Stage {
    /// Its name in replies.
    pub fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Serving => "serving",
            Self::Stopping => "stopping",
        }
    }
}

/// A [`Stage`] that the main thread sets and the HTTP thread reads.
#[derive(Debug)]
pub(super) struct StageCell(AtomicU8);

impl StageCell {
    pub(super) fn new() -> Self {
        Self(AtomicU8::new(Stage::Starting as u8))
    }

    pub(super) fn set(&self, stage: Stage) {
        self.0.store(stage as u8, Ordering::Release);
    }

    pub(super) fn get(&self) -> Stage {
        match self.0.load(Ordering::Acquire) {
            0 => Stage::Starting,
            1 => Stage::Serving,
            _ => Stage::Stopping,
        }
    }
}
