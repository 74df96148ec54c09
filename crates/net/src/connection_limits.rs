//! Which connections of a server stay open: how many there may be in all and from one source, which
//! one is closed for another, and a reserve for requests that have to be answered anyway.
//!
//! The table knows connections by number. What accepts, serves and closes them is the caller's.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr};
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
    /// How long a response may be written before its connection may be closed for another one.
    pub timeout: Duration,
}

/// Whose connections are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// An IPv4 address, or the /64 of an IPv6 address.
    Network(IpAddr),
    /// A user of this host. It has places of its own, outside of [`Limits::places`].
    User(u32),
}

impl Source {
    /// The source of a client's address.
    pub fn of(address: IpAddr) -> Self {
        Self::Network(match address.to_canonical() {
            IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into(),
            v4 => v4,
        })
    }
}

/// State of a connection, for the choice of the one to close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
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
    activity: Activity,
    value: T,
}

/// The order in which connections are closed for others: idle ones, then those whose response is
/// being written, then the others, and the oldest first.
type Rank = (u8, Option<Instant>, u64);

const IDLE: u8 = 0;
const WRITING: u8 = 1;
const SERVING: u8 = 2;

fn rank(activity: Activity, number: u64) -> Rank {
    match activity {
        Activity::Idle(since) => (IDLE, Some(since), number),
        Activity::Producing(since) | Activity::Writing(since) => (WRITING, Some(since), number),
        Activity::Serving => (SERVING, None, number),
    }
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

    /// The place for a new connection. Where the source has its share, or all places are taken, the
    /// connection that has been idle longest is closed. If none is idle, the one whose response has
    /// been written longest, if that is longer than the timeout: a client that takes a little
    /// before each timeout keeps its connection otherwise. If there is none, the place is in the
    /// reserve. `None` if that is in use, too.
    pub fn admit(&mut self, source: Source, value: T, now: Instant) -> Option<Admission<T>> {
        let limits = self.limits;
        let of_source = self.by_source.get(&source);
        let (mut in_reserve, mut closed) = (false, None);
        if of_source.map_or(0, BTreeSet::len) >= limits.per_source {
            closed = of_source.and_then(|of_source| self.closable(of_source, now));
            in_reserve = closed.is_none();
        } else if matches!(source, Source::Network(_)) && self.places.len() >= limits.places {
            closed = self.closable(&self.places, now);
            in_reserve = closed.is_none();
        }
        if in_reserve && self.reserve.len() >= limits.reserve {
            closed = Some(self.closable(&self.reserve, now)?);
        }
        let (number, activity) = (self.next, Activity::Idle(now));
        self.next += 1;
        let closed = closed.and_then(|number| self.remove(number));
        let connection = Connection { source, in_reserve, activity, value };
        self.update_sets(number, &connection, true);
        self.open.insert(number, connection);
        Some(Admission { number, in_reserve, closed })
    }

    /// The first connection of a set that may be closed for another one.
    fn closable(&self, of: &BTreeSet<Rank>, now: Instant) -> Option<u64> {
        match *of.first()? {
            (IDLE, _, number) => Some(number),
            (WRITING, Some(since), number) => {
                (now.saturating_duration_since(since) > self.limits.timeout).then_some(number)
            }
            _ => None,
        }
    }

    /// Adds the rank of a connection to its sets, or removes it.
    fn update_sets(&mut self, number: u64, connection: &Connection<T>, add: bool) {
        let rank = rank(connection.activity, number);
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

    /// Changes the state of a connection. Ignored where it has been closed.
    pub fn update(&mut self, number: u64, change: impl FnOnce(Activity) -> Activity) {
        if let Some(mut connection) = self.open.remove(&number) {
            self.update_sets(number, &connection, false);
            connection.activity = change(connection.activity);
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

    /// Whether a connection is open.
    pub fn contains(&self, number: u64) -> bool {
        self.open.contains_key(&number)
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
    }

    /// The same limits, by reading all connections each time.
    #[derive(Default)]
    struct Model {
        open: Vec<(u64, Source, bool, Activity)>,
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
                let closed = self.close(ordinary, now);
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
            self.open.push((number, source, !room, Activity::Idle(now)));
            Some(Admission { number, in_reserve: !room, closed })
        }

        fn count(&self, of: impl Fn(Source, bool) -> bool) -> usize {
            self.open.iter().filter(|(_, source, in_reserve, _)| of(*source, *in_reserve)).count()
        }

        /// Closes the connection idle longest, or the one written longest and too long.
        fn close(&mut self, of: impl Fn(Source, bool) -> bool, now: Instant) -> Option<u64> {
            let of = self.open.iter().filter(|(_, source, in_reserve, _)| of(*source, *in_reserve));
            let idle = of.clone().filter_map(|(number, .., activity)| match activity {
                Activity::Idle(since) => Some((*since, *number)),
                _ => None,
            });
            let slow = of.filter_map(|(number, .., activity)| match activity {
                Activity::Producing(since) | Activity::Writing(since)
                    if now - *since > LIMITS.timeout =>
                {
                    Some((*since, *number))
                }
                _ => None,
            });
            let (_, closed) = idle.min().or_else(|| slow.min())?;
            self.open.retain(|(number, ..)| *number != closed);
            Some(closed)
        }
    }

    proptest! {
        #[test]
        fn the_table_agrees_with_its_model(
            steps in prop::collection::vec((0..8u32, 0..5u32, 0..9usize), 1..200),
        ) {
            let (mut table, mut model) = (Table::new(LIMITS), Model::default());
            let start = Instant::now();
            for (second, (step, source, nth)) in steps.into_iter().enumerate() {
                let now = start + Duration::from_secs(second as u64);
                if step < 3 {
                    let source = match source {
                        0 => Source::User(0),
                        n => Source::of([192, 0, 2, n as u8].into()),
                    };
                    let expected = model.admit(source, now);
                    prop_assert_eq!(table.admit(source, model.next.wrapping_sub(1), now), expected);
                } else if step == 7 && nth < model.open.len() {
                    let (number, ..) = model.open.remove(nth);
                    prop_assert_eq!(table.remove(number), Some(number));
                } else if let Some(open) = model.open.get_mut(nth) {
                    let number = open.0;
                    open.3 = match step {
                        3 => Activity::Serving,
                        4 => Activity::Writing(now),
                        5 => Activity::Producing(now),
                        _ => Activity::Idle(now),
                    };
                    table.update(number, |_| open.3);
                }
                prop_assert_eq!(table.len(), model.open.len());
                prop_assert!(model.open.iter().all(|(number, ..)| table.contains(*number)));
            }
        }
    }
}
