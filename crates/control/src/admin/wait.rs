//! Waiting for responses of other threads without blocking the admin thread.
//!
//! A worker cannot wake the admin thread, because that would take a lock; its response is polled.
//! The main thread can.

use std::time::Duration;

use axum::http::StatusCode;
use crossbeam_channel::{Receiver, TryRecvError};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};

use super::LONG_TIMEOUT;
use crate::api::Problem;
use crate::request::{Request, Responder};
use crate::view::View;

/// Time between two polls of a worker's response.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// The next response of a worker, called `worker` in errors.
pub(super) async fn worker_response<T>(
    responses: &Receiver<T>,
    deadline: Instant,
    worker: &str,
) -> Result<T, Problem> {
    loop {
        match responses.try_recv() {
            Ok(response) => return Ok(response),
            Err(TryRecvError::Disconnected) => {
                return Err(Problem::unavailable(format!("{worker} has exited")));
            }
            Err(TryRecvError::Empty) if Instant::now() >= deadline => {
                return Err(Problem::timed_out(worker));
            }
            Err(TryRecvError::Empty) => sleep(POLL_INTERVAL).await,
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
