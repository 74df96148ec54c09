//! The open connections: how many there may be in all and from one source, which one is closed for
//! another, and the reserve for `/health` and `/ready`.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use hyper::body::{Frame, SizeHint};
use onrush_tracker::metrics::Counter;
use tokio::task::AbortHandle;

/// Connections above `admin.connections`, which serve `/health` and `/ready` only.
const RESERVE: usize = 16;

/// A source may have one connection in this many of `admin.connections`, but at least
/// [`LEAST_SHARE`]: a browser opens six at once, and Prometheus and `onrush ctl` on the same host
/// have the same address.
const SHARE: usize = 4;
const LEAST_SHARE: usize = 8;

/// The open connections.
#[derive(Debug)]
pub(crate) struct Connections {
    limit: usize,
    share: usize,
    /// How long a response may be written before its connection may be closed for another one.
    timeout: Duration,
    open: Mutex<Open>,
    /// Connections that were closed for another one.
    pub(crate) evicted: Counter,
    /// Connections that got status 503 because all others were in use.
    pub(crate) rejected: Counter,
}

#[derive(Debug, Default)]
struct Open {
    by_number: BTreeMap<u64, Connection>,
    /// The number of the next connection.
    next: u64,
}

/// Whose connections are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// An IPv4 address, or the /64 of an IPv6 address.
    Network(IpAddr),
    /// A user of the control socket. Clients over TCP take no place from it: its connections are
    /// outside of `admin.connections`.
    User(u32),
}

#[derive(Debug)]
struct Connection {
    source: Source,
    in_reserve: bool,
    /// Whether a request has arrived.
    served: bool,
    activity: Activity,
    task: Option<AbortHandle>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Activity {
    /// No request since then: its last response was written or, before the first, it was accepted.
    Idle(Instant),
    /// A request is served, from the end of its head to the beginning of the response's body.
    Serving,
    /// The response's body is produced since then, as fast as the client takes it.
    Producing(Instant),
    /// Its body began then, the whole response is in buffers, and the client may not have taken all
    /// of it.
    Writing(Instant),
}

impl Connections {
    pub(crate) fn new(limit: usize, timeout: Duration) -> Arc<Self> {
        Arc::new(Self {
            limit,
            share: (limit / SHARE).max(LEAST_SHARE).min(limit),
            timeout,
            open: Mutex::default(),
            evicted: Counter::default(),
            rejected: Counter::default(),
        })
    }

    /// The place for a new connection over TCP.
    pub(crate) fn admit(self: &Arc<Self>, address: IpAddr, now: Instant) -> Option<Slot> {
        self.admit_source(Source::of(address), now)
    }

    /// The place for a new connection of this user at the control socket.
    pub(crate) fn admit_user(self: &Arc<Self>, user: u32, now: Instant) -> Option<Slot> {
        self.admit_source(Source::User(user), now)
    }

    /// The place for a new connection. Where the source has its share, or all places are taken, the
    /// one that has been idle longest is closed, or one that is read too slowly. If there is none,
    /// the place is in the reserve, unless that is in use, too.
    fn admit_source(self: &Arc<Self>, source: Source, now: Instant) -> Option<Slot> {
        let mut open = self.lock();
        let is_user = matches!(source, Source::User(_));
        let ordinary = |c: &Connection| !c.in_reserve && matches!(c.source, Source::Network(_));
        let of_source = |c: &Connection| !c.in_reserve && c.source == source;
        let has_room = if open.count(of_source) >= self.share {
            self.evict(&mut open, now, of_source)
        } else {
            is_user || open.count(ordinary) < self.limit || self.evict(&mut open, now, ordinary)
        };
        let in_reserve = |c: &Connection| c.in_reserve;
        let is_full = !has_room && open.count(in_reserve) >= RESERVE;
        if is_full && !self.evict(&mut open, now, in_reserve) {
            self.rejected.add(1);
            return None;
        }
        let (number, activity) = (open.next, Activity::Idle(now));
        open.next += 1;
        let (in_reserve, served) = (!has_room, false);
        let connection = Connection { source, in_reserve, served, activity, task: None };
        open.by_number.insert(number, connection);
        Some(Slot { connections: self.clone(), number, in_reserve: !has_room })
    }

    /// Names the task that serves a connection. Ignored where it has ended.
    pub(crate) fn serves(&self, number: u64, task: AbortHandle) {
        self.change(number, |connection| connection.task = Some(task));
    }

    /// Changes an open connection.
    fn change(&self, number: u64, change: impl FnOnce(&mut Connection)) {
        if let Some(connection) = self.lock().by_number.get_mut(&number) {
            change(connection);
        }
    }

    /// Changes what an open connection does.
    fn update(&self, number: u64, change: impl FnOnce(Activity) -> Activity) {
        self.change(number, |connection| connection.activity = change(connection.activity));
    }

    /// Whether a connection at the control socket was accepted whose request has not arrived.
    pub(crate) fn awaits_user(&self) -> bool {
        let awaits = |c: &Connection| !c.served && matches!(c.source, Source::User(_));
        self.lock().count(awaits) > 0
    }

    /// The number of open connections.
    pub(crate) fn len(&self) -> usize {
        self.lock().by_number.len()
    }

    /// Closes the one of these connections that has been idle longest. If none is idle, the one
    /// whose response has been written longest, if that is longer than the timeout: a client that
    /// takes a little before each timeout keeps its connection otherwise. False if there is none.
    fn evict(&self, open: &mut Open, now: Instant, of: impl Fn(&Connection) -> bool) -> bool {
        let of = open.by_number.iter().filter(|(_, connection)| of(connection));
        let closable = of.filter_map(|(number, connection)| match connection.activity {
            Activity::Idle(since) => Some((false, since, *number)),
            Activity::Producing(since) | Activity::Writing(since) => {
                let is_slow = now.saturating_duration_since(since) > self.timeout;
                is_slow.then_some((true, since, *number))
            }
            Activity::Serving => None,
        });
        let Some((.., number)) = closable.min() else { return false };
        let connection = open.by_number.remove(&number);
        if let Some(task) = connection.and_then(|connection| connection.task) {
            task.abort();
        }
        self.evicted.add(1);
        true
    }

    /// Each critical section leaves complete entries, so a poisoned mutex holds a valid value.
    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    fn count(&self, of: impl Fn(&Connection) -> bool) -> usize {
        self.by_number.values().filter(|connection| of(connection)).count()
    }
}

impl Source {
    fn of(address: IpAddr) -> Self {
        Self::Network(match address.to_canonical() {
            IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into(),
            v4 => v4,
        })
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
        self.connections.change(self.number, |connection| {
            connection.activity = Activity::Serving;
            connection.served = true;
        });
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
        self.connections.lock().by_number.remove(&self.number);
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
        slot.connections.lock().by_number.contains_key(&slot.number)
    }

    #[test]
    fn the_connection_idle_longest_is_closed_for_another() {
        let all = Connections::new(3, TIMEOUT);
        let [first, second, third] = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(|a| admit(&all, a));
        // A request, and a response that was written: idle from then on.
        drop(first.in_use());
        first.written();
        let in_use = second.in_use();
        // The bytes written belong to the previous response.
        second.written();
        let fourth = admit(&all, "10.0.0.4");
        assert_eq!([&first, &second, &third, &fourth].map(is_open), [true, true, false, true]);
        let fifth = admit(&all, "10.0.0.5");
        assert_eq!([&first, &second, &fourth].map(is_open), [false, true, true]);
        // Produced, but not written.
        drop(in_use);
        drop(third);
        assert_eq!((all.len(), all.evicted.get(), all.rejected.get()), (3, 2, 0));
        assert!(!fifth.in_reserve);
        drop(fifth);
        assert_eq!(all.len(), 2);
        let [sixth, seventh, eighth] = ["10.0.0.6", "10.0.0.7", "10.0.0.8"].map(|a| admit(&all, a));
        assert_eq!([&second, &fourth, &sixth].map(is_open), [true, false, false]);
        assert!(is_open(&seventh) && is_open(&eighth));
        second.written();
        let later = ["10.0.0.9", "10.0.0.10", "10.0.0.11"].map(|address| admit(&all, address));
        assert!(!is_open(&second) && later.iter().all(is_open));
    }

    /// As that of a published list, which is produced while it is read.
    #[test]
    fn a_connection_whose_body_is_produced_too_slowly_is_closed_if_none_is_idle() {
        let all = Connections::new(2, TIMEOUT);
        let [first, second] = ["10.0.0.1", "10.0.0.2"].map(|a| admit(&all, a));
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
    fn a_connection_that_is_read_too_slowly_is_closed_if_none_is_idle() {
        let all = Connections::new(3, TIMEOUT);
        let [first, second, third] = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(|a| admit(&all, a));
        let _in_use = first.in_use();
        drop(third.in_use());
        drop(second.in_use());
        let admit_later = |address: &str, seconds| {
            let now = Instant::now() + Duration::from_secs(seconds);
            all.admit(address.parse().unwrap(), now).unwrap()
        };
        assert!(admit_later("10.0.0.4", 50).in_reserve);
        let fifth = admit_later("10.0.0.5", 101);
        let open = [&first, &second, &third, &fifth].map(is_open);
        assert!(!fifth.in_reserve && open == [true, true, false, true], "{open:?}");
        // The idle one comes first.
        let sixth = admit_later("10.0.0.6", 101);
        let open = [&first, &second, &fifth, &sixth].map(is_open);
        assert_eq!(open, [true, true, false, true]);
        assert_eq!(all.evicted.get(), 2);
    }

    #[test]
    fn a_source_has_a_quarter_of_the_places() {
        let all = Connections::new(64, TIMEOUT);
        let other = admit(&all, "10.0.0.1");
        // Addresses of one /64, and an IPv4 address in both forms, are one source each.
        for addresses in [["2001:db8::1", "2001:db8::2:3"], ["10.0.0.2", "::ffff:10.0.0.2"]] {
            let before = all.len();
            let slots: Vec<Slot> = (0..100).map(|nth| admit(&all, addresses[nth % 2])).collect();
            assert_eq!(all.len() - before, 16);
            assert_eq!(slots.iter().filter(|slot| is_open(slot)).count(), 16);
            assert!(slots[84..].iter().all(is_open), "the newest");
        }
        assert!(is_open(&other), "the oldest of all");
        for (limit, share) in [(1, 1), (8, 8), (20, 8), (64, 16), (4096, 1024)] {
            assert_eq!(Connections::new(limit, TIMEOUT).share, share, "of {limit}");
        }
    }

    #[test]
    fn users_of_the_control_socket_have_places_of_their_own() {
        let all = Connections::new(8, TIMEOUT);
        let networks: Vec<Slot> = (0..8).map(|nth| admit(&all, &format!("10.0.0.{nth}"))).collect();
        let _in_use: Vec<InUse> = networks.iter().map(Slot::in_use).collect();
        let user = |id| all.admit_user(id, Instant::now()).unwrap();
        let of_one: Vec<Slot> = (0..9).map(|_| user(0)).collect();
        assert!(of_one.iter().all(|slot| !slot.in_reserve));
        assert!(!is_open(&of_one[0]) && of_one[1..].iter().all(is_open), "8 are its share");
        assert!(!user(1).in_reserve && is_open(&of_one[1]));
        assert!(networks.iter().all(is_open));
        assert!(admit(&all, "10.0.0.9").in_reserve);
        assert!(all.awaits_user());
        drop(of_one);
        assert!(!all.awaits_user(), "clients over TCP are not waited for");
        let slot = user(0);
        assert!(all.awaits_user());
        drop(slot.in_use());
        assert!(!all.awaits_user());
    }

    #[test]
    fn without_an_idle_connection_the_reserve_is_used() {
        let all = Connections::new(8, TIMEOUT);
        let ordinary: Vec<Slot> = (0..8).map(|_| admit(&all, "::1")).collect();
        let in_use: Vec<InUse> = ordinary.iter().map(Slot::in_use).collect();
        let reserve: Vec<Slot> = (0..2 * RESERVE).map(|_| admit(&all, "10.0.0.1")).collect();
        assert!(reserve.iter().all(|slot| slot.in_reserve));
        assert_eq!(all.len(), 8 + RESERVE);
        assert!(ordinary.iter().all(is_open) && reserve[RESERVE..].iter().all(is_open));
        let _reserve_in_use: Vec<InUse> = reserve.iter().map(Slot::in_use).collect();
        assert!(all.admit("10.0.0.2".parse().unwrap(), Instant::now()).is_none());
        assert_eq!(all.rejected.get(), 1);
        drop(in_use);
        ordinary.iter().for_each(Slot::written);
        assert!(!admit(&all, "10.0.0.2").in_reserve);
    }
}
