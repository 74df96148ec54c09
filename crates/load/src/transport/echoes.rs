//! The client's part without its transport: which connection opens when, which stream writes when,
//! and whether what comes back is what was written. Time is an argument.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use serde::{Deserialize, Serialize};

use super::pattern::{BLOCK, BlockId, Pattern};
use crate::latency::{Latencies, Nanos};

/// Blocks of a stream that may be without their echo. Further ones are not written, and count as
/// refused, so that memory is bounded where a side is too slow.
pub const OUTSTANDING: usize = 8;
/// Pause between two blocks of a stream.
pub const PERIOD: Nanos = 500_000_000;
/// Pause between the first blocks of two streams of a connection in the published load, where ten
/// streams open per second: the streams of a connection write in five groups.
const PUBLISHED_PAUSE: Nanos = 100_000_000;
/// First wrong echoes that are described.
const EXAMPLES: usize = 4;
const SECOND: f64 = 1e9;

/// The size of a load, and how it grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Shape {
    /// Connections.
    pub connections: u32,
    /// Streams on each.
    pub streams: u32,
    /// Connections that begin per second.
    pub connect_rate: f64,
    /// Streams that each connection opens per second.
    pub open_rate: f64,
}

impl Shape {
    /// All streams.
    pub fn all_streams(&self) -> u32 {
        self.connections * self.streams
    }

    /// Blocks due per second when all streams are open.
    pub fn due_rate(&self) -> f64 {
        f64::from(self.all_streams()) * SECOND / PERIOD as f64
    }

    /// Seconds until all streams are open, where connecting takes no time.
    pub fn ramp(&self) -> f64 {
        f64::from(self.connections - 1) / self.connect_rate
            + f64::from(self.streams - 1) / self.open_rate
    }
}

/// What the client has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Begin to establish a connection.
    Connect(u32),
    /// Write a block, and say whether it was accepted ([`Echoes::written`]).
    Write(Due),
}

/// A block that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// The block.
    pub block: BlockId,
    at: Nanos,
    stream: usize,
}

/// Counts of blocks.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Blocks that were due.
    pub due: u64,
    /// Those that were not written.
    pub refused: u64,
    /// Right echoes.
    pub right: u64,
    /// Wrong echoes.
    pub wrong: u64,
    /// From the due time of a block to its echo.
    pub round_trip: Latencies<3>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Waiting,
    Open,
    Lost,
}

#[derive(Clone, Copy, Debug, Default)]
struct Connection {
    state: State,
    asked: Nanos,
    established: Nanos,
    /// Streams that have opened.
    opened: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    written: u32,
    echoed: u32,
    /// Bytes of the next echo that have arrived, and whether one of them is wrong.
    position: u16,
    is_wrong: bool,
    /// Due times of the blocks without an echo, by their number.
    due: [Nanos; OUTSTANDING],
}

/// Times, the earliest first, with numbers of connections or streams.
type Times = BinaryHeap<Reverse<(Nanos, u32)>>;

/// All streams of the client.
#[derive(Debug)]
pub struct Echoes {
    shape: Shape,
    pattern: Pattern,
    connections: Vec<Connection>,
    streams: Vec<Stream>,
    /// Connections that have begun, and when the next one does.
    begun: u32,
    next_connection: Nanos,
    /// When each connection opens another stream.
    openings: Times,
    /// When each open stream writes.
    writes: Times,
    opened: u32,
    established: u32,
    window: Option<(Nanos, Nanos)>,
    /// Blocks that were due within the window.
    pub measured: Counts,
    /// Everything since [`Echoes::take_recent`].
    recent: Counts,
    /// Right echoes that arrived within the window.
    pub arrived: u64,
    /// Blocks of the window that were written and have no echo yet.
    pending: u64,
    /// From the due time of a block to its writing.
    pub behind: Latencies<3>,
    /// From the beginning of a connection until it was established.
    pub connect: Latencies<3>,
    /// Descriptions of the first wrong echoes.
    pub examples: Vec<String>,
    /// The first connection that ended before it was established, with the reason.
    failed: Option<(u32, String)>,
    /// Connections that ended, with the reason for the first.
    pub lost: (u32, Option<String>),
}

impl Echoes {
    /// A load that begins at time 0.
    pub fn new(shape: Shape) -> Self {
        Self {
            shape,
            pattern: Pattern::default(),
            connections: vec![Connection::default(); shape.connections as usize],
            streams: vec![Stream::default(); shape.all_streams() as usize],
            begun: 0,
            next_connection: 0,
            openings: Times::new(),
            writes: Times::new(),
            opened: 0,
            established: 0,
            window: None,
            measured: Counts::default(),
            recent: Counts::default(),
            arrived: 0,
            pending: 0,
            behind: Latencies::default(),
            connect: Latencies::default(),
            examples: Vec::new(),
            failed: None,
            lost: (0, None),
        }
    }

    /// Counts what is due from `start` to `end`. May be called again with an earlier end.
    pub fn measure(&mut self, start: Nanos, end: Nanos) {
        self.window = Some((start, end));
    }

    /// Whether all streams are open, and write within a period.
    pub fn is_complete(&self) -> bool {
        self.opened == self.shape.all_streams()
    }

    /// Connections that have been established, and streams that have opened.
    pub fn progress(&self) -> [u32; 2] {
        [self.established, self.opened]
    }

    /// Blocks of the window that were written and have no echo yet.
    pub fn pending(&self) -> u64 {
        self.pending
    }

    /// Why a connection was not established: it ended, or took longer than `patience` at `now`.
    pub fn unestablished(&self, now: Nanos, patience: Nanos) -> Option<String> {
        if let Some((number, reason)) = &self.failed {
            return Some(format!("connection {number} was not established: {reason}"));
        }
        let begun = &self.connections[..self.begun as usize];
        let late = |of: &Connection| of.state == State::Waiting && of.asked + patience < now;
        let number = begun.iter().position(late)?;
        let seconds = patience as f64 / SECOND;
        Some(format!("connection {number} was not established within {seconds} s"))
    }

    /// Counts since the last call.
    pub fn take_recent(&mut self) -> Counts {
        std::mem::take(&mut self.recent)
    }

    /// When [`next`](Self::next) has something to do.
    pub fn deadline(&self) -> Nanos {
        let connect = self.is_ramping().then_some(self.next_connection);
        let first = |times: &Times| times.peek().map(|Reverse((at, _))| *at);
        let all = [connect, first(&self.openings), first(&self.writes)];
        all.into_iter().flatten().min().unwrap_or(Nanos::MAX)
    }

    fn is_ramping(&self) -> bool {
        self.begun < self.shape.connections
    }

    /// What is due at `now`; `None` when everything has been done.
    pub fn next(&mut self, now: Nanos) -> Option<Action> {
        loop {
            let at = self.deadline();
            if at > now {
                return None;
            }
            if self.is_ramping() && self.next_connection == at {
                return Some(self.begin(now));
            }
            if let Some(&Reverse((opens, connection))) = self.openings.peek()
                && opens == at
            {
                self.openings.pop();
                self.open(connection, at);
                continue;
            }
            let Reverse((_, stream)) = self.writes.pop()?;
            self.writes.push(Reverse((at + PERIOD, stream)));
            let due = self.due(stream as usize, at);
            let of = &self.streams[due.stream];
            let state = self.connections[due.block.connection as usize].state;
            if state == State::Open && (of.written - of.echoed) < OUTSTANDING as u32 {
                return Some(Action::Write(due));
            }
            self.refuse(at);
        }
    }

    fn begin(&mut self, now: Nanos) -> Action {
        let connection = self.begun;
        self.connections[connection as usize].asked = now;
        self.begun += 1;
        self.next_connection += (SECOND / self.shape.connect_rate) as Nanos;
        Action::Connect(connection)
    }

    /// Opens the next stream of a connection. It writes in the group that it would have in the
    /// published load, also where streams open faster.
    fn open(&mut self, connection: u32, at: Nanos) {
        let of = &mut self.connections[connection as usize];
        let stream = connection * self.shape.streams + of.opened;
        let phase = phase(of.opened, at - of.established);
        of.opened += 1;
        self.opened += 1;
        if of.opened < self.shape.streams {
            let next = at + (SECOND / self.shape.open_rate) as Nanos;
            self.openings.push(Reverse((next, connection)));
        }
        self.writes.push(Reverse((at + phase, stream)));
    }

    /// The block that a stream has to write at `at`.
    fn due(&self, stream: usize, at: Nanos) -> Due {
        let number = self.streams[stream].written;
        let (connection, of) = (stream as u32 / self.shape.streams, self.shape.streams);
        let block = BlockId { connection, stream: stream as u32 % of, number };
        Due { block, at, stream }
    }

    fn is_measured(&self, at: Nanos) -> bool {
        self.window.is_some_and(|(start, end)| (start..end).contains(&at))
    }

    /// The counts that a block of this due time belongs to.
    fn counts(&mut self, at: Nanos) -> impl Iterator<Item = &mut Counts> {
        let measured = self.is_measured(at).then_some(&mut self.measured);
        std::iter::once(&mut self.recent).chain(measured)
    }

    fn refuse(&mut self, at: Nanos) {
        for counts in self.counts(at) {
            counts.due += 1;
            counts.refused += 1;
        }
    }

    /// Writes the content of a block.
    pub fn write(&self, due: &Due, block: &mut [u8; BLOCK]) {
        self.pattern.write(due.block, block);
    }

    /// A block was handed to the transport at `now`, or refused by it.
    pub fn written(&mut self, due: &Due, accepted: bool, now: Nanos) {
        if !accepted {
            return self.refuse(due.at);
        }
        self.counts(due.at).for_each(|counts| counts.due += 1);
        if self.is_measured(due.at) {
            self.behind.0.saturating_record(now - due.at);
            self.pending += 1;
        }
        let stream = &mut self.streams[due.stream];
        stream.due[stream.written as usize % OUTSTANDING] = due.at;
        stream.written += 1;
    }

    /// A connection was established at `now`: its first stream opens.
    pub fn connected(&mut self, connection: u32, now: Nanos) {
        let of = &mut self.connections[connection as usize];
        if of.state == State::Waiting {
            of.state = State::Open;
            of.established = now;
            self.connect.0.saturating_record(now - of.asked);
            self.established += 1;
            self.open(connection, now);
        }
    }

    /// A connection has ended.
    pub fn ended(&mut self, connection: u32, reason: String) {
        let of = &mut self.connections[connection as usize];
        match std::mem::replace(&mut of.state, State::Lost) {
            State::Lost => {}
            State::Waiting => drop(self.failed.get_or_insert((connection, reason))),
            State::Open => {
                self.lost.0 += 1;
                self.lost.1.get_or_insert(reason);
            }
        }
    }

    /// Bytes of a stream arrived at `now`.
    pub fn received(&mut self, connection: u32, stream: u32, mut bytes: &[u8], now: Nanos) {
        if stream >= self.shape.streams {
            let text = format!("connection {connection}: bytes of stream {stream}, which is none");
            return self.wrong(text);
        }
        let at = (connection * self.shape.streams + stream) as usize;
        while !bytes.is_empty() {
            let Stream { written, echoed, position, .. } = self.streams[at];
            let block = BlockId { connection, stream, number: echoed };
            if echoed == written {
                return self.wrong(format!("{}: it was not written", described(block)));
            }
            let from = usize::from(position);
            let (part, rest) = bytes.split_at(bytes.len().min(BLOCK - from));
            bytes = rest;
            let matches = self.pattern.matches(block, from, part);
            let of = &mut self.streams[at];
            of.is_wrong |= !matches;
            of.position += part.len() as u16;
            if usize::from(of.position) == BLOCK {
                let (is_wrong, due) = (of.is_wrong, of.due[echoed as usize % OUTSTANDING]);
                (of.echoed, of.position, of.is_wrong) = (echoed + 1, 0, false);
                self.echoed(block, is_wrong, due, now);
            }
        }
    }

    /// An echo is complete.
    fn echoed(&mut self, block: BlockId, is_wrong: bool, due: Nanos, now: Nanos) {
        self.pending -= u64::from(self.is_measured(due));
        if is_wrong {
            return self.wrong(format!("{}: its bytes differ", described(block)));
        }
        for counts in self.counts(due) {
            counts.right += 1;
            counts.round_trip.0.saturating_record(now - due);
        }
        self.arrived += u64::from(self.is_measured(now));
    }

    /// Wrong echoes count whenever they arrive.
    fn wrong(&mut self, text: String) {
        self.recent.wrong += 1;
        self.measured.wrong += 1;
        if self.examples.len() < EXAMPLES {
            self.examples.push(text);
        }
    }
}

/// The time from the opening of a connection's stream `number` to its first block; `opened` is when
/// it opened, counted from the establishment of its connection.
fn phase(number: u32, opened: Nanos) -> Nanos {
    (u64::from(number) * PUBLISHED_PAUSE + PERIOD - opened % PERIOD) % PERIOD
}

fn described(block: BlockId) -> String {
    let BlockId { connection, stream, number } = block;
    format!("connection {connection}, stream {stream}, echo {number}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: Nanos = 1_000_000;

    fn shape(connections: u32, streams: u32) -> Shape {
        Shape { connections, streams, connect_rate: 1.0, open_rate: 10.0 }
    }

    /// A server that returns everything at once, after `change`; calls `see` with each action.
    fn run(
        shape: Shape,
        until: Nanos,
        mut change: impl FnMut(&Due, &mut Vec<u8>),
        mut see: impl FnMut(Nanos, &Action),
    ) -> Echoes {
        let mut echoes = Echoes::new(shape);
        echoes.measure(0, Nanos::MAX);
        let mut block = [0; BLOCK];
        while echoes.deadline() <= until {
            let now = echoes.deadline();
            while let Some(action) = echoes.next(now) {
                see(now, &action);
                match action {
                    Action::Connect(number) => echoes.connected(number, now + MS),
                    Action::Write(due) => {
                        echoes.write(&due, &mut block);
                        echoes.written(&due, true, now);
                        let mut bytes = block.to_vec();
                        change(&due, &mut bytes);
                        let BlockId { connection, stream, .. } = due.block;
                        echoes.received(connection, stream, &bytes, now + 2 * MS);
                    }
                }
            }
        }
        echoes
    }

    #[test]
    fn connections_and_streams_open_at_their_rates() {
        let (mut connects, mut first) = (Vec::new(), Vec::new());
        let echoes = run(
            shape(3, 4),
            5_000 * MS,
            |_, _| (),
            |now, action| match action {
                Action::Connect(_) => connects.push(now / MS),
                Action::Write(due) if due.block.number == 0 => first.push(now / MS),
                Action::Write(_) => {}
            },
        );
        assert_eq!(connects, [0, 1000, 2000]);
        let opened = (0..12u64).map(|stream| stream / 4 * 1000 + 1 + stream % 4 * 100);
        let mut wanted: Vec<_> = opened.collect();
        wanted.sort_unstable();
        assert_eq!(first, wanted);
        assert!(echoes.is_complete());
        assert_eq!((shape(3, 4).ramp(), shape(100, 100).due_rate()), (2.3, 20_000.0));
    }

    /// The model: a stream whose first block is at `t` writes at `t`, `t + PERIOD`, ..., in the
    /// group of the published load, in which ten streams open per second.
    #[test]
    fn every_stream_writes_once_per_period_in_its_group() {
        let mut last = std::collections::HashMap::new();
        let echoes = run(
            Shape { open_rate: 7.0, ..shape(3, 12) },
            6_000 * MS,
            |_, _| (),
            |now, action| {
                let Action::Write(due) = action else { return };
                let group = Nanos::from(due.block.stream % 5) * 100 * MS;
                assert_eq!(now % PERIOD, MS + group, "{due:?}");
                let key = (due.block.connection, due.block.stream);
                if let Some((number, before)) = last.insert(key, (due.block.number, now)) {
                    assert_eq!((due.block.number, now - before), (number + 1, PERIOD));
                }
            },
        );
        let Counts { due, right, wrong, refused, round_trip } = &echoes.measured;
        assert_eq!((*due, *wrong, *refused, echoes.pending()), (*right, 0, 0, 0));
        assert!((round_trip.0.mean() - 2e6).abs() < 2e3 && *due > 100);
    }

    proptest! {
        /// Faults of a server: each is found where the echo is complete.
        #[test]
        fn faults_are_found(at in 0..BLOCK, fault in 0..4) {
            let change = |due: &Due, bytes: &mut Vec<u8>| {
                if due.block.number != 1 {
                    return;
                }
                match fault {
                    0 => bytes[at] ^= 0x80,
                    1 => drop(bytes.remove(at)),
                    2 => bytes.extend_from_within(..=at),
                    _ => bytes.clear(),
                }
            };
            let echoes = run(shape(1, 1), 3_000 * MS, change, |_, _| ());
            prop_assert!(echoes.measured.wrong > 0, "{:?}", echoes.measured);
            prop_assert!(echoes.examples[0].contains("connection 0, stream 0, echo "));
        }
    }

    /// Bytes arrive cut anywhere.
    #[test]
    fn echoes_are_complete_with_their_last_byte() {
        let mut echoes = Echoes::new(shape(1, 2));
        echoes.measure(0, 90 * MS);
        assert_eq!(echoes.next(0), Some(Action::Connect(0)));
        echoes.connected(0, 7 * MS);
        let Some(Action::Write(due)) = echoes.next(7 * MS) else { panic!("the first stream") };
        let mut block = [0; BLOCK];
        echoes.write(&due, &mut block);
        echoes.written(&due, true, 8 * MS);
        for (number, part) in block.chunks(100).enumerate() {
            assert_eq!((echoes.measured.right, echoes.pending()), (0, 1), "{number}");
            echoes.received(0, 0, part, 9 * MS);
        }
        assert_eq!((echoes.measured.right, echoes.pending(), echoes.arrived), (1, 0, 1));
        echoes.received(0, 0, &[1], 9 * MS);
        echoes.received(0, 2, &[1], 9 * MS);
        assert_eq!((echoes.measured.wrong, echoes.examples.len()), (2, 2));
    }

    #[test]
    fn blocks_without_room_or_connection_are_refused() {
        let mut echoes = Echoes::new(shape(1, 1));
        echoes.measure(0, Nanos::MAX);
        echoes.next(0);
        assert_eq!(echoes.unestablished(40 * MS, 40 * MS), None);
        let late = "connection 0 was not established within 0.04 s";
        assert_eq!(echoes.unestablished(50 * MS, 40 * MS).as_deref(), Some(late));
        echoes.connected(0, 0);
        let mut written = 0;
        let mut write_until = |echoes: &mut Echoes, now: Nanos| {
            while let Some(Action::Write(due)) = echoes.next(now) {
                echoes.written(&due, written > 0, now);
                written += 1;
            }
        };
        write_until(&mut echoes, 9 * PERIOD);
        assert_eq!((echoes.measured.due, echoes.measured.refused), (10, 2), "the first, the last");
        echoes.ended(0, "reset".into());
        write_until(&mut echoes, 11 * PERIOD);
        assert_eq!((echoes.measured.due, echoes.measured.refused), (12, 4));
        assert_eq!(echoes.pending(), 8);
        assert_eq!(echoes.lost, (1, Some("reset".into())));
        assert_eq!(echoes.unestablished(11 * PERIOD, PERIOD), None);
        let mut echoes = Echoes::new(shape(1, 1));
        echoes.next(0);
        echoes.ended(0, "refused".into());
        let failed = "connection 0 was not established: refused";
        assert_eq!(echoes.unestablished(0, PERIOD).as_deref(), Some(failed));
    }
}
