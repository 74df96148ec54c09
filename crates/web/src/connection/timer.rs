//! What a connection waits for, and for how long.

use onrush_tracker::limits::WebLimits;

/// Seconds for which a request waits for a free batch.
const BATCH_TIMEOUT: u32 = 2;
/// Seconds for which further input is discarded after the last reply: for unread input the kernel
/// resets the connection, and the client could lose the reply.
const LINGER: u32 = 1;
/// Seconds of silence after which a client by WebSocket gets a ping.
const SILENCE: u32 = 30;
/// Seconds in which the client has to answer it.
const PONG: u32 = 30;

/// What a connection waits for, with a limit of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Timer {
    /// The end of a head.
    Head,
    /// The next request.
    Idle,
    /// The client, which does not read.
    Output,
    /// A free batch or parcel.
    Batch,
    /// The client's end of the connection.
    Linger,
    /// A shard: without a limit, as each batch comes back.
    Shard,
    /// A sign of life of a client by WebSocket.
    Silence,
    /// The answer to a ping.
    Pong,
}

impl Timer {
    /// The second at which a wait that has begun in the second `since` is over.
    pub(super) fn deadline(self, since: u32, limits: &WebLimits) -> u32 {
        let seconds = match self {
            Self::Head | Self::Output => limits.timeout,
            Self::Idle => limits.keep_alive,
            Self::Batch => BATCH_TIMEOUT,
            Self::Linger => LINGER,
            Self::Silence => SILENCE,
            Self::Pong => PONG,
            Self::Shard => u32::MAX,
        };
        // One second more, as the first one had begun before.
        since.saturating_add(seconds).saturating_add(1)
    }
}
