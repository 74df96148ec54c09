//! The open connections: their limits, the tasks that serve them, and which one of them is closed
//! for another.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use http_body_util::BodyExt;
use onrush_net::connection_limits::{Activity, Limits, Source, Table};
use onrush_tracker::declare_counters;
use tokio::task::AbortHandle;

use crate::mutex::lock;

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

    /// The place for a new connection. Clients over TCP take no place from users at the control
    /// socket.
    pub(crate) fn admit(self: &Arc<Self>, source: Source, now: Instant) -> Option<Slot> {
        let mut open = lock(&self.open);
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
        if let Some(connection) = lock(&self.open).value(number) {
            connection.task = Some(task);
        }
    }

    /// Changes what an open connection does.
    fn update(&self, number: u64, change: impl FnOnce(Activity) -> Activity) {
        lock(&self.open).update(number, change);
    }

    /// Whether a connection at the control socket was accepted whose request has not arrived.
    pub(crate) fn awaits_user(&self) -> bool {
        let open = lock(&self.open);
        open.iter().any(|(source, open)| !open.served && matches!(source, Source::User(_)))
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
        let mut open = lock(&self.connections.open);
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
        let mut open = lock(&self.connections.open);
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

impl InUse {
    /// The body of the response to the request, which begins now. The connection is in use until
    /// the whole body is produced.
    pub(crate) fn producing(
        self,
        body: Body,
    ) -> impl hyper::body::Body<Data = Bytes, Error = axum::Error> + use<> {
        self.connections.update(self.number, |_| Activity::Producing(Instant::now()));
        // The closure owns the request in progress, and is dropped with the body.
        body.inspect_err(move |_| _ = &self)
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.connections.update(self.number, |activity| match activity {
            Activity::Producing(since) => Activity::Writing(since),
            _ => Activity::Writing(Instant::now()),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(100);

    fn admit(connections: &Arc<Connections>, address: &str) -> Slot {
        connections.admit(Source::of(address.parse().unwrap()), Instant::now()).unwrap()
    }

    /// Whether the connection is still open.
    fn is_open(slot: &Slot) -> bool {
        lock(&slot.connections.open).contains(slot.number)
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
        let body = second.in_use().producing(Body::empty());
        let admit_later = |address: &str, seconds| {
            let now = Instant::now() + Duration::from_secs(seconds);
            all.admit(Source::of(address.parse().unwrap()), now).unwrap()
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
        let slot = all.admit(Source::User(0), Instant::now()).unwrap();
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
