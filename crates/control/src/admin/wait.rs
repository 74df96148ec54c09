//! Waiting for others without a thread.
//!
//! Workers wake nobody, as that would take a lock: their answers are looked for. The main thread does.

use std::time::Duration;

use axum::http::StatusCode;
use crossbeam_channel::{Receiver, TryRecvError};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};

use super::AT_LENGTH;
use crate::problem::Problem;
use crate::request::{Answer, Ask};
use crate::source::Source;

/// Between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoAnswer {
    /// Not in time.
    Late,
    /// Whoever was to give it has gone.
    Gone,
}

/// The next answer of a worker, looked for until then.
pub(super) async fn answer<T>(from: &Receiver<T>, until: Instant) -> Result<T, NoAnswer> {
    loop {
        match from.try_recv() {
            Ok(answer) => return Ok(answer),
            Err(TryRecvError::Disconnected) => return Err(NoAnswer::Gone),
            Err(TryRecvError::Empty) if Instant::now() >= until => return Err(NoAnswer::Late),
            Err(TryRecvError::Empty) => sleep(LOOK_AGAIN).await,
        }
    }
}

/// Asks the main thread for something, and waits so long for its answer.
pub(super) async fn main_thread<T: Send + 'static>(
    source: &Source,
    patience: Duration,
    ask: impl FnOnce(Answer<T>) -> Ask,
) -> Result<T, Problem> {
    let (tell, told) = oneshot::channel();
    // Whoever asked may have given up.
    let answer = Answer::new(move |what| drop(tell.send(what)));
    let busy = "the tracker has too much to do for other requests: ask again in a moment";
    let unavailable = |why: &str| Problem::new(StatusCode::SERVICE_UNAVAILABLE, why);
    source.overview.ask(ask(answer)).map_err(|_| unavailable(busy))?;
    match timeout(patience, told).await {
        Ok(Ok(what)) => Ok(what),
        Ok(Err(_)) => Err(unavailable("the tracker is stopping")),
        Err(_) => Err(Problem::late("the main thread")),
    }
}

/// The same for what takes seconds on a large tracker. What is late may still be done, and the log says so.
pub(super) async fn at_length<T: Send + 'static>(
    source: &Source,
    ask: impl FnOnce(Answer<T>) -> Ask,
) -> Result<T, Problem> {
    main_thread(source, AT_LENGTH, ask).await.map_err(|problem| {
        let late = StatusCode::GATEWAY_TIMEOUT;
        match problem.status == late.as_u16() {
            true => {
                Problem::new(late, "not done in two minutes; it may still be: the log says when")
            }
            false => problem,
        }
    })
}
