//! The open connections: their limits, the tasks that serve them, and which one of them is closed
//! for another.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use hyper::body::{Frame, SizeHint};
use onrush_net::connections::{Activity, Limits, Source, Table};
use onrush_tracker::declare_counters;
use tokio::task::AbortHandle;

/// Connections above `admin.connections`, which serve `/health` and `/ready` only.
const RESERVE: usize = 16;

/// A source may have one connection in this many of `admin.connections`, but at least
/// [`LEAST_SHARE`]: a browser opens six at once, and Prometheus and `onrush ctl` on the same host
/// have the same address.
const SHARE: usize = 4;
const LEAST_SHARE: usize = 8;

/// Calls the macro `$then` with the table of the admin side's counters, in the form of
/// [`onrush_tracker::counter_table`].
macro_rules! admin_table {
    ($then:ident) => {
        $then! {

/// Counters of the admin side.
AdminCounters (AdminStats) {
    counters {
        Counter All "onrush_admin_requests" [] "HTTP requests answered" { requests }
        Gauge All "onrush_admin_connections" [] "Open HTTP connections" { connections }
        Counter All "onrush_admin_evicted_connections" []
            "HTTP connections, idle or read slowly, closed for another one because too many were \
             open"
            { evicted }
        Counter All "onrush_admin_rejected_connections" []
            "HTTP connections refused because too many were in use"
            { rejected }
    }
    named {}
    hidden {}
    also {}
}

        }
    };
}
pub(crate) use admin_table;

admin_table!(declare_counters);

/// The open connections.
#[derive(Debug)]
pub(crate) struct Connections {
    open: Mutex<Table<Connection>>,
    pub(crate) counters: Arc<AdminCounters>,
}

#[derive(Debug, Default)]
struct Connection {
    /// Whether a request has arrived.
    served: bool,
    task: Option<AbortHandle>,
}

/// The limits for so many connections.
fn limits(connections: usize, timeout: Duration) -> Limits {
    let per_source = (connections / SHARE).max(LEAST_SHARE).min(connections);
    Limits { places: connections, per_source, reserve: RESERVE, timeout }
}

impl Connections {
    pub(crate) fn new(connections: usize, timeout: Duration) -> Arc<Self> {
        Arc::new(Self {
            open: Mutex::new(Table::new(limits(connections, timeout))),
            counters: Arc::default(),
        })
    }

    /// The place for a new connection over TCP.
    pub(crate) fn admit(self: &Arc<Self>, address: IpAddr, now: Instant) -> Option<Slot> {
        self.admit_source(Source::of(address), now)
    }

    /// The place for a new connection of this user at the control socket. Clients over TCP take no
    /// place from it.
    pub(crate) fn admit_user(self: &Arc<Self>, user: u32, now: Instant) -> Option<Slot> {
        self.admit_source(Source::User(user), now)
    }

    fn admit_source(self: &Arc<Self>, source: Source, now: Instant) -> Option<Slot> {
        let mut open = self.lock();
        let Some(admitted) = open.admit(source, Connection::default(), now) else {
            self.counters.rejected.add(1);
            return None;
        };
        self.counters.connections.set(open.len() as u64);
        drop(open);
        if let Some(closed) = admitted.closed {
            closed.task.inspect(AbortHandle::abort);
            self.counters.evicted.add(1);
        }
        let (number, in_reserve) = (admitted.number, admitted.in_reserve);
        Some(Slot { connections: self.clone(), number, in_reserve })
    }

    /// Names the task that serves a connection. Ignored where it has ended.
    pub(crate) fn serves(&self, number: u64, task: AbortHandle) {
        if let Some(connection) = self.lock().value(number) {
            connection.task = Some(task);
        }
    }

    /// Changes what an open connection does.
    fn update(&self, number: u64, change: impl FnOnce(Activity) -> Activity) {
        self.lock().update(number, change);
    }

    /// Whether a connection at the control socket was accepted whose request has not arrived.
    pub(crate) fn awaits_user(&self) -> bool {
        let open = self.lock();
        open.iter().any(|(source, open)| !open.served && matches!(source, Source::User(_)))
    }

    /// Each critical section leaves complete entries, so a poisoned mutex holds a valid value.
    fn lock(&self) -> MutexGuard<'_, Table<Connection>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of a connection, free again when dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    connections: Arc<Connections>,
    pub(crate) number: u64,
    /// Whether only `/health` and `/ready` are served.
    pub(crate) in_reserve: bool,
}

impl Slot {
    /// Marks the connection as in use until the value is dropped, and then until the response is
    /// [`written`](Self::written).
    pub(crate) fn in_use(&self) -> InUse {
        let mut open = self.connections.lock();
        open.update(self.number, |_| Activity::Serving);
        if let Some(connection) = open.value(self.number) {
            connection.served = true;
        }
        drop(open);
        InUse { connections: self.connections.clone(), number: self.number }
    }

    /// Call whenever all bytes of responses so far are written.
    pub(crate) fn written(&self) {
        self.connections.update(self.number, |activity| match activity {
            Activity::Writing(_) => Activity::Idle(Instant::now()),
            unchanged => unchanged,
        });
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut open = self.connections.lock();
        open.remove(self.number);
        self.connections.counters.connections.set(open.len() as u64);
    }
}

/// A request in progress on a connection.
#[derive(Debug)]
pub(crate) struct InUse {
    connections: Arc<Connections>,
    number: u64,
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.connections.update(self.number, |activity| match activity {
            Activity::Producing(since) => Activity::Writing(since),
            _ => Activity::Writing(Instant::now()),
        });
    }
}

/// The body of a response. The connection is in use until the whole body is produced.
#[derive(Debug)]
pub(crate) struct ResponseBody {
    body: Body,
    _in_use: InUse,
}

impl ResponseBody {
    /// The body of the response to the request in progress, which begins now.
    pub(crate) fn new(body: Body, in_use: InUse) -> Self {
        in_use.connections.update(in_use.number, |_| Activity::Producing(Instant::now()));
        Self { body, _in_use: in_use }
    }
}

impl hyper::body::Body for ResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(100);

    fn admit(connections: &Arc<Connections>, address: &str) -> Slot {
        connections.admit(address.parse().unwrap(), Instant::now()).unwrap()
    }

    /// Whether the connection is still open.
    fn is_open(slot: &Slot) -> bool {
        slot.connections.lock().contains(slot.number)
    }

    #[test]
    fn a_connection_is_idle_once_its_response_is_written() {
        let all = Connections::new(2, TIMEOUT);
        let [first, second] = ["10.0.0.1", "10.0.0.2"].map(|address| admit(&all, address));
        let in_use = first.in_use();
        // The bytes written belong to the previous response.
        first.written();
        drop(second.in_use());
        assert!(admit(&all, "10.0.0.3").in_reserve, "served, and not written");
        drop(in_use);
        assert!(admit(&all, "10.0.0.3").in_reserve, "produced, but not written");
        first.written();
        assert!(!admit(&all, "10.0.0.3").in_reserve);
        assert_eq!([&first, &second].map(is_open), [false, true]);
        assert_eq!((all.counters.evicted.get(), all.counters.rejected.get()), (1, 0));
        drop(first);
        drop(second);
        assert_eq!(all.counters.connections.get(), 0);
    }

    /// As that of a published list, which is produced while it is read.
    #[test]
    fn a_connection_whose_body_is_produced_too_slowly_is_closed_if_none_is_idle() {
        let all = Connections::new(2, TIMEOUT);
        let [first, second] = ["10.0.0.1", "10.0.0.2"].map(|address| admit(&all, address));
        let _serving = first.in_use();
        let body = ResponseBody::new(Body::empty(), second.in_use());
        let admit_later = |address: &str, seconds| {
            let now = Instant::now() + Duration::from_secs(seconds);
            all.admit(address.parse().unwrap(), now).unwrap()
        };
        // A part of it was written.
        second.written();
        assert!(admit_later("10.0.0.3", 50).in_reserve);
        let fourth = admit_later("10.0.0.4", 101);
        assert!(!fourth.in_reserve && is_open(&first) && !is_open(&second));
        drop(body);
    }

    #[test]
    fn a_user_without_a_request_is_waited_for() {
        let all = Connections::new(8, TIMEOUT);
        let _network = admit(&all, "10.0.0.9");
        assert!(!all.awaits_user(), "clients over TCP are not waited for");
        let slot = all.admit_user(0, Instant::now()).unwrap();
        assert!(all.awaits_user());
        drop(slot.in_use());
        assert!(!all.awaits_user());
    }

    #[test]
    fn a_source_has_a_quarter_of_the_places() {
        for (places, share) in [(1, 1), (8, 8), (20, 8), (64, 16), (4096, 1024)] {
            assert_eq!(limits(places, TIMEOUT).per_source, share, "of {places}");
        }
    }
}
