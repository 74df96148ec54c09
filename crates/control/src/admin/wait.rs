//! Waiting for responses of other threads without blocking the admin thread.
//!
//! A worker cannot wake the admin thread, because that would take a lock; its response is polled.
//! The main thread can.

use std::time::Duration;

use axum::http::StatusCode;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};

use super::LONG_TIMEOUT;
use crate::api::Problem;
use crate::request::{Request, Responder};
use crate::view::View;
use onrush_tracker::gather::Gather;
use onrush_tracker::orders::WorkerUnresponsive;

/// Time between two polls of a worker's response.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

impl From<WorkerUnresponsive> for Problem {
    fn from(error: WorkerUnresponsive) -> Self {
        Self::unavailable(error.to_string())
    }
}

/// The results of workers, each of which is called `worker` in errors. When a connection is closed,
/// axum drops the handler and with it the gather, which ends walks.
pub(super) async fn gathered<R>(
    mut gather: Gather<R>,
    deadline: Instant,
    worker: &str,
) -> Result<Vec<R>, Problem> {
    loop {
        match gather.poll() {
            Ok(Some(results)) => return Ok(results),
            Err(_) => return Err(Problem::unavailable(format!("{worker} has exited"))),
            Ok(None) if Instant::now() >= deadline => return Err(Problem::timed_out(worker)),
            Ok(None) => sleep(POLL_INTERVAL).await,
        }
    }
}

/// Sends a request to the main thread and waits for its response.
pub(super) async fn main_thread<T: Send + 'static>(
    view: &View,
    limit: Duration,
    request: impl FnOnce(Responder<T>) -> Request,
) -> Result<T, Problem> {
    let (sender, response) = oneshot::channel();
    // The client may have closed the connection, and the receiver is gone.
    let responder = Responder::new(move |response| drop(sender.send(response)));
    view.request(request(responder)).map_err(|_| {
        Problem::unavailable("the tracker is busy with other requests: try again in a moment")
    })?;
    match timeout(limit, response).await {
        Ok(Ok(response)) => Ok(response),
        Ok(Err(_)) => Err(Problem::unavailable("the tracker is stopping")),
        Err(_) if limit == LONG_TIMEOUT => Err(Problem::new(
            StatusCode::GATEWAY_TIMEOUT,
            "not done within two minutes; it may still complete: see the log",
        )),
        Err(_) => Err(Problem::timed_out("the main thread")),
    }
}
