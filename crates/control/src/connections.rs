//! The open connections: their limits, the tasks that serve them, and which one of them is closed
//! for another.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use hyper::body::{Body, Bytes};
use onrush_net::connection_limits::{Event, Limits, Source, Table};
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
            "HTTP connections, idle, incomplete, read slowly or without a pause, closed for \
             another one because too many were open"
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
    /// Records an event of the connection.
    pub(crate) fn observe(&self, event: Event) {
        lock(&self.connections.open).observe(self.number, event);
    }

    /// Records that a request has begun. The first report is for the request's body, the second one
    /// for that of the response.
    pub(crate) fn begin_request(&self) -> (Report, Report) {
        self.observe(Event::Head(Instant::now()));
        if let Some(connection) = lock(&self.connections.open).value(self.number) {
            connection.served = true;
        }
        let (number, connections) = (self.number, &self.connections);
        let report = |event| Report { connections: connections.clone(), number, event };
        (report(Event::Received), report(Event::Produced))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut open = lock(&self.connections.open);
        open.remove(self.number);
        self.connections.counters.connections.set(open.len() as u64);
    }
}

/// Records an event of a connection when it is dropped.
#[derive(Debug)]
pub(crate) struct Report {
    connections: Arc<Connections>,
    number: u64,
    event: Event,
}

impl Report {
    /// The body, which owns the report from now on: a body is dropped once all of it is taken, or
    /// the rest of it is not wanted.
    pub(crate) fn at_the_end_of<B: Body<Data = Bytes>>(
        self,
        body: B,
    ) -> impl Body<Data = Bytes, Error = B::Error> + use<B> {
        body.inspect_err(move |_| _ = &self)
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        lock(&self.connections.open).observe(self.number, self.event);
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
        lock(&slot.connections.open).value(slot.number).is_some()
    }

    /// The whole request arrives. The report is made when its response is in buffers.
    fn in_use(slot: &Slot) -> Report {
        slot.begin_request().1
    }

    #[test]
    fn a_connection_is_idle_once_its_response_is_written() {
        let all = Connections::new(2, TIMEOUT);
        let [first, second] = ["10.0.0.1", "10.0.0.2"].map(|address| admit(&all, address));
        let first_in_use = in_use(&first);
        // The bytes written belong to the previous response.
        first.observe(Event::Written);
        drop(in_use(&second));
        assert!(admit(&all, "10.0.0.3").in_reserve, "served, and not written");
        drop(first_in_use);
        assert!(admit(&all, "10.0.0.3").in_reserve, "produced, but not written");
        first.observe(Event::Written);
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
        let _serving = in_use(&first);
        let body = in_use(&second).at_the_end_of(http_body_util::Empty::new());
        second.observe(Event::Body);
        let admit_later = |address: &str, seconds| {
            let now = Instant::now() + Duration::from_secs(seconds);
            all.admit(Source::of(address.parse().unwrap()), now).unwrap()
        };
        // A part of it was written.
        second.observe(Event::Written);
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
        drop(slot.begin_request());
        assert!(!all.awaits_user());
    }

    #[test]
    fn a_source_has_a_quarter_of_the_places() {
        for (places, share) in [(1, 1), (8, 8), (20, 8), (64, 16), (4096, 1024)] {
            assert_eq!(limits(places, TIMEOUT).per_source, share, "of {places}");
        }
    }
}
