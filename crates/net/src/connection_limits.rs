//! Which connections of a server stay open: how many there may be in all and from one source, which
//! one is closed for another, and a reserve for requests that have to be answered anyway.
//!
//! The table knows connections by number. What accepts, serves and closes them is the caller's.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

/// The limits of a [`Table`].
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections of networks, without those in the reserve.
    pub places: usize,
    /// Connections of one source, without those in the reserve.
    pub per_source: usize,
    /// Connections beyond these limits.
    pub reserve: usize,
    /// How long after the end of its last pause a connection that is written to may be closed for
    /// another.
    pub timeout: Duration,
}

/// Requests without a pause beyond which a connection is closed before all others.
const MOST_WITHOUT_PAUSE: u32 = 100;

/// Whose connections are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// An IPv4 address, 127.0.0.0/8 as a whole, or the /64 of an IPv6 address.
    Network(IpAddr),
    /// A user of this host. It has places of its own, outside of [`Limits::places`].
    User(u32),
}

impl Source {
    /// The source of a client's address.
    pub fn of(address: IpAddr) -> Self {
        Self::Network(match address.to_canonical() {
            IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into(),
            v4 if v4.is_loopback() => Ipv4Addr::LOCALHOST.into(),
            v4 => v4,
        })
    }
}

/// What happens on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The head of a request has arrived.
    Head(Instant),
    /// The whole request has arrived, or the rest of it is not read.
    Received,
    /// The response's body begins. It is produced as fast as the client takes it.
    Body,
    /// The whole response is in buffers, and the client may not have taken all of it.
    Produced,
    /// All bytes of responses so far are written.
    Written,
    /// No byte of the client has arrived that was not read: a pause, if all is written.
    Waits(Instant),
}

/// Connections in the order in which they are closed for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    WithoutPause,
    Idle,
    Receiving,
    Written,
    Serving,
}

/// The past of a connection, for the choice of the one to close.
#[derive(Clone, Copy, Debug)]
struct Progress {
    /// Without regard to its pauses.
    class: Class,
    /// Whether the whole response is in buffers, if it is written.
    is_produced: bool,
    /// The time of the last pause: its begin while it lasts, then its end. The first one begins
    /// when the connection is accepted.
    paused: Instant,
    /// Requests since the last pause.
    requests: u32,
}

impl Progress {
    fn new(accepted: Instant) -> Self {
        Self { class: Class::Idle, is_produced: false, paused: accepted, requests: 0 }
    }

    fn apply(&mut self, event: Event) {
        self.class = match (event, self.class) {
            (Event::Head(now), _) => {
                if self.requests == 0 {
                    self.paused = now;
                }
                self.requests = self.requests.saturating_add(1);
                Class::Receiving
            }
            (Event::Received, Class::Receiving) => Class::Serving,
            (Event::Body | Event::Produced, _) => {
                self.is_produced = event == Event::Produced;
                Class::Written
            }
            (Event::Written, Class::Written) if self.is_produced => Class::Idle,
            // Bytes of a head that arrive one by one are no pauses.
            (Event::Waits(now), Class::Idle) if self.requests > 0 => {
                (self.paused, self.requests) = (now, 0);
                Class::Idle
            }
            (_, unchanged) => unchanged,
        };
    }

    fn rank(&self, number: u64) -> Rank {
        let without_pause = self.requests > MOST_WITHOUT_PAUSE && self.class != Class::Serving;
        let class = if without_pause { Class::WithoutPause } else { self.class };
        (class, self.paused, number)
    }
}

/// The order in which connections are closed for others: by class, and in each of them the one that
/// paused first.
type Rank = (Class, Instant, u64);

/// The open connections, each with a value of the caller.
#[derive(Debug)]
pub struct Table<T> {
    limits: Limits,
    open: HashMap<u64, Connection<T>>,
    /// The number of the next connection.
    next: u64,
    places: BTreeSet<Rank>,
    reserve: BTreeSet<Rank>,
    by_source: HashMap<Source, BTreeSet<Rank>>,
}

#[derive(Debug)]
struct Connection<T> {
    source: Source,
    in_reserve: bool,
    progress: Progress,
    value: T,
}

/// The place of a new connection.
#[derive(Debug, PartialEq, Eq)]
pub struct Admission<T> {
    /// The number of the connection.
    pub number: u64,
    /// Whether it has a place in the reserve.
    pub in_reserve: bool,
    /// The value of the connection that is to be closed for it.
    pub closed: Option<T>,
}

impl<T> Table<T> {
    /// Without connections.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            open: HashMap::new(),
            next: 0,
            places: BTreeSet::new(),
            reserve: BTreeSet::new(),
            by_source: HashMap::new(),
        }
    }

    /// The place for a new connection. Where the source has its share, or all places are taken,
    /// another one is closed: one with more than a hundred requests without a pause, else the one
    /// that has been idle longest, else one whose request is incomplete, else one that is written
    /// to, if its last pause ended longer ago than the timeout: a client that takes a little before
    /// each timeout of a write keeps its connection otherwise. Else, for a place that is not of its
    /// own share, a connection of the source with the most, if that has more than this one will
    /// have. If there is none, the place is in the reserve. `None` if that is in use, too.
    pub fn admit(&mut self, source: Source, value: T, now: Instant) -> Option<Admission<T>> {
        let limits = self.limits;
        let of_source = self.by_source.get(&source);
        let (mut in_reserve, mut closed) = (false, None);
        if of_source.map_or(0, BTreeSet::len) >= limits.per_source {
            closed = of_source.and_then(|of_source| self.closable(of_source, now));
            in_reserve = closed.is_none();
        } else if matches!(source, Source::Network(_)) && self.places.len() >= limits.places {
            let own = of_source.map_or(0, BTreeSet::len);
            closed = self.closable(&self.places, now).or_else(|| self.of_largest_source(own));
            in_reserve = closed.is_none();
        }
        if in_reserve && self.reserve.len() >= limits.reserve {
            closed = Some(self.closable(&self.reserve, now)?);
        }
        let (number, progress) = (self.next, Progress::new(now));
        self.next += 1;
        let closed = closed.and_then(|number| self.remove(number));
        let connection = Connection { source, in_reserve, progress, value };
        self.update_sets(number, &connection, true);
        self.open.insert(number, connection);
        Some(Admission { number, in_reserve, closed })
    }

    /// The first connection of a set that may be closed for another one.
    fn closable(&self, of: &BTreeSet<Rank>, now: Instant) -> Option<u64> {
        let (class, paused, number) = *of.first()?;
        let late = now.saturating_duration_since(paused) > self.limits.timeout;
        (class < Class::Written || class == Class::Written && late).then_some(number)
    }

    /// The first connection of the source that has the most ones, for a source with `own` ones. Its
    /// response may be written for less than the timeout.
    fn of_largest_source(&self, own: usize) -> Option<u64> {
        let networks =
            self.by_source.iter().filter(|(source, _)| matches!(source, Source::Network(_)));
        let of_largest =
            networks.map(|(_, of)| of).max_by_key(|of| (of.len(), Reverse(of.first())))?;
        let (class, _, number) = *of_largest.first()?;
        (of_largest.len() > own + 1 && class != Class::Serving).then_some(number)
    }

    /// Adds the rank of a connection to its sets, or removes it.
    fn update_sets(&mut self, number: u64, connection: &Connection<T>, add: bool) {
        let rank = connection.progress.rank(number);
        let change = |set: &mut BTreeSet<Rank>| {
            if add { set.insert(rank) } else { set.remove(&rank) }
        };
        if connection.in_reserve {
            change(&mut self.reserve);
            return;
        }
        if matches!(connection.source, Source::Network(_)) {
            change(&mut self.places);
        }
        let of_source = self.by_source.entry(connection.source).or_default();
        change(of_source);
        if of_source.is_empty() {
            self.by_source.remove(&connection.source);
        }
    }

    /// Records an event of a connection. Ignored where it has been closed.
    pub fn observe(&mut self, number: u64, event: Event) {
        if let Some(mut connection) = self.open.remove(&number) {
            self.update_sets(number, &connection, false);
            connection.progress.apply(event);
            self.update_sets(number, &connection, true);
            self.open.insert(number, connection);
        }
    }

    /// The value of an open connection.
    pub fn value(&mut self, number: u64) -> Option<&mut T> {
        self.open.get_mut(&number).map(|connection| &mut connection.value)
    }

    /// Frees the place of a connection. Returns its value, unless it had been closed for another.
    pub fn remove(&mut self, number: u64) -> Option<T> {
        let connection = self.open.remove(&number)?;
        self.update_sets(number, &connection, false);
        Some(connection.value)
    }

    /// The number of open connections.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether no connection is open.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// The open connections by source, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (Source, &T)> {
        self.open.values().map(|connection| (connection.source, &connection.value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMITS: Limits =
        Limits { places: 4, per_source: 3, reserve: 2, timeout: Duration::from_secs(10) };

    #[test]
    fn addresses_of_one_network_are_one_source() {
        let of = |text: &str| Source::of(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::2:3"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("192.0.2.1"), of("::ffff:192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
        assert_eq!(of("127.0.0.1"), of("127.9.0.4"));
    }

    fn source(nth: u8) -> Source {
        Source::of([192, 0, 2, nth].into())
    }

    /// Requests that arrive without a pause, the last of whose responses is being written.
    fn answer(table: &mut Table<()>, number: u64, requests: u32, now: Instant) {
        for _ in 0..requests {
            for event in [Event::Written, Event::Head(now), Event::Received, Event::Produced] {
                table.observe(number, event);
            }
        }
    }

    #[test]
    fn the_time_to_write_to_a_connection_begins_at_the_end_of_its_last_pause() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut table = Table::new(Limits { places: 1, ..LIMITS });
        table.admit(source(1), (), at(0));
        // A pause after the response to the first one.
        answer(&mut table, 0, 1, at(1));
        table.observe(0, Event::Written);
        table.observe(0, Event::Waits(at(5)));
        // Two without a pause: the second one does not begin the time anew.
        answer(&mut table, 0, 1, at(20));
        answer(&mut table, 0, 1, at(24));
        table.observe(0, Event::Waits(at(28)));
        assert!(table.admit(source(2), (), at(21)).unwrap().in_reserve);
        assert!(!table.admit(source(3), (), at(31)).unwrap().in_reserve);
        assert!(table.value(0).is_none());
    }

    #[test]
    fn a_connection_without_pauses_is_closed_before_idle_ones() {
        let now = Instant::now();
        let mut table = Table::new(Limits { places: 2, ..LIMITS });
        table.admit(source(1), (), now);
        table.admit(source(2), (), now);
        answer(&mut table, 1, MOST_WITHOUT_PAUSE, now);
        assert_eq!(table.closable(&table.places, now), Some(0));
        answer(&mut table, 1, 1, now);
        assert_eq!(table.closable(&table.places, now), Some(1));
    }

    /// The same limits, by reading all connections each time.
    #[derive(Default)]
    struct Model {
        open: Vec<(u64, Source, bool, Progress)>,
        next: u64,
    }

    impl Model {
        fn admit(&mut self, source: Source, now: Instant) -> Option<Admission<u64>> {
            let is_user = matches!(source, Source::User(_));
            let of_source = |of: Source, in_reserve: bool| of == source && !in_reserve;
            let ordinary =
                |of: Source, in_reserve: bool| matches!(of, Source::Network(_)) && !in_reserve;
            let (room, closed) = if self.count(of_source) >= LIMITS.per_source {
                let closed = self.close(of_source, now);
                (closed.is_some(), closed)
            } else if !is_user && self.count(ordinary) >= LIMITS.places {
                let closed = self.close(ordinary, now).or_else(|| self.close_of_largest(source));
                (closed.is_some(), closed)
            } else {
                (true, None)
            };
            let mut closed = closed;
            if !room && self.count(|_, in_reserve| in_reserve) >= LIMITS.reserve {
                closed = Some(self.close(|_, in_reserve| in_reserve, now)?);
            }
            let number = self.next;
            self.next += 1;
            self.open.push((number, source, !room, Progress::new(now)));
            Some(Admission { number, in_reserve: !room, closed })
        }

        fn count(&self, of: impl Fn(Source, bool) -> bool) -> usize {
            self.open.iter().filter(|(_, source, in_reserve, _)| of(*source, *in_reserve)).count()
        }

        /// Closes the first connection of the source with the most, if that has two more.
        fn close_of_largest(&mut self, own: Source) -> Option<u64> {
            let ranks = |source: Source| {
                let of_source = move |(_, of, in_reserve, _): &&(u64, Source, bool, Progress)| {
                    *of == source && !in_reserve
                };
                let of_source = self.open.iter().filter(of_source);
                of_source.map(|(number, .., progress)| progress.rank(*number)).collect::<Vec<_>>()
            };
            let least = |ranks: &Vec<Rank>| Reverse(ranks.iter().min().copied());
            let largest =
                (1..5).map(|n| ranks(source(n))).max_by_key(|it| (it.len(), least(it)))?;
            let (class, _, closed) = largest.iter().min().copied()?;
            let may_close = largest.len() > ranks(own).len() + 1 && class != Class::Serving;
            self.open.retain(|(number, ..)| !may_close || *number != closed);
            may_close.then_some(closed)
        }

        /// Closes the first connection of the first class that has one.
        fn close(&mut self, of: impl Fn(Source, bool) -> bool, now: Instant) -> Option<u64> {
            let first = |belongs: &dyn Fn(&Progress) -> bool| {
                let of = self.open.iter().filter(|(_, source, in_reserve, progress)| {
                    of(*source, *in_reserve) && belongs(progress)
                });
                of.map(|(number, .., progress)| (progress.paused, *number)).min()
            };
            let is = |class| move |progress: &Progress| progress.class == class;
            let (_, closed) = first(&|progress| {
                progress.requests > MOST_WITHOUT_PAUSE && progress.class != Class::Serving
            })
            .or_else(|| first(&is(Class::Idle)))
            .or_else(|| first(&is(Class::Receiving)))
            .or_else(|| {
                first(&|progress| {
                    progress.class == Class::Written && now - progress.paused > LIMITS.timeout
                })
            })?;
            self.open.retain(|(number, ..)| *number != closed);
            Some(closed)
        }
    }

    #[test]
    fn a_source_with_most_connections_makes_room_for_others() {
        let now = Instant::now();
        let mut table = Table::new(LIMITS);
        for (number, of) in [1, 2, 2, 2].into_iter().enumerate() {
            table.admit(source(of), (), now);
            answer(&mut table, number as u64, 1, now);
        }
        for (other, closed) in [(3, 1), (4, 2)] {
            assert!(!table.admit(source(other), (), now).unwrap().in_reserve);
            assert!(table.value(closed).is_none());
            answer(&mut table, u64::from(other) + 1, 1, now);
        }
        assert!(table.admit(source(5), (), now).unwrap().in_reserve, "all have one");
    }

    proptest! {
        #[test]
        fn the_table_agrees_with_its_model(
            steps in prop::collection::vec((0..11u32, 0..5u32, 0..9usize), 1..200),
        ) {
            let (mut table, mut model) = (Table::new(LIMITS), Model::default());
            let start = Instant::now();
            for (second, (step, source, nth)) in steps.into_iter().enumerate() {
                let now = start + Duration::from_secs(second as u64);
                if step < 3 {
                    let source = match source {
                        0 => Source::User(0),
                        n => self::source(n as u8),
                    };
                    let expected = model.admit(source, now);
                    prop_assert_eq!(table.admit(source, model.next.wrapping_sub(1), now), expected);
                } else if step == 10 && nth < model.open.len() {
                    let (number, ..) = model.open.remove(nth);
                    prop_assert_eq!(table.remove(number), Some(number));
                } else if let Some((number, .., progress)) = model.open.get_mut(nth) {
                    let (event, times) = match step {
                        3 => (Event::Head(now), 1),
                        4 => (Event::Head(now), MOST_WITHOUT_PAUSE + 1),
                        5 => (Event::Received, 1),
                        6 => (Event::Body, 1),
                        7 => (Event::Produced, 1),
                        8 => (Event::Written, 1),
                        _ => (Event::Waits(now), 1),
                    };
                    for _ in 0..times {
                        progress.apply(event);
                        table.observe(*number, event);
                    }
                }
                prop_assert_eq!(table.len(), model.open.len());
                prop_assert!(model.open.iter().all(|(number, ..)| table.value(*number).is_some()));
            }
        }
    }
}
