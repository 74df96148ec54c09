//! Warns once of a file that cannot be written.

/// Passes on the first of successive failures, so that a file that cannot be written is warned of
/// once.
#[derive(Debug, Default)]
pub(super) struct FirstFailure {
    failed: bool,
}

impl FirstFailure {
    /// `why` the last write failed, unless the one before failed too. `None` is a success.
    pub(super) fn of<E>(&mut self, why: Option<E>) -> Option<E> {
        let had_failed = std::mem::replace(&mut self.failed, why.is_some());
        why.filter(|_| !had_failed)
    }
}
