//! The model's knowledge of one peer: the states that it may have had, and when.
//!
//! A request takes effect at a time between its arrival and its reply. While requests are in
//! flight, such as behind a stalled worker, several states are possible. Requests of one peer take
//! effect in the order of their arrival.

/// Numbers of datagrams in the order in which they passed the sockets.
pub(crate) type Sequence = u64;

/// A state that begins with an announce.
#[derive(Clone, Copy, Debug)]
pub(crate) struct State {
    /// The arrival of its announce.
    pub(crate) arrival: Sequence,
    /// The reply to its announce, or the greatest number before that.
    pub(crate) reply: Sequence,
    /// Whether the peer is a seeder; `None` after a stop.
    pub(crate) seeder: Option<bool>,
    /// The first and last second in which the announce may have been served.
    /// Negative if an upgrade has made it older than the run.
    pub(crate) seen: (i64, i64),
    /// A reason other than its age for which the peer may not be stored.
    pub(crate) doubt: Option<Doubt>,
}

/// Why a peer may not be stored. The greatest reason counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Doubt {
    /// Only if its source shares cells of a table with another.
    Misjudged,
    /// A limit kept it out, or a newcomer has replaced it.
    Limited,
    /// Its swarm was removed, or an upgrade may have brought it back.
    Lost,
}

/// The states of a peer, in order. Before the first one it was unknown.
#[derive(Clone, Debug, Default)]
pub(crate) struct History(pub(crate) Vec<State>);

/// Possible states of a peer at some time: unknown, a leecher, a seeder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Possible {
    pub(crate) unknown: bool,
    pub(crate) kinds: [bool; 2],
}

impl Possible {
    /// The kind, if it is certain.
    pub(crate) fn only(self) -> Option<bool> {
        match self {
            Self { unknown: false, kinds: [leecher, seeder] } if leecher != seeder => Some(seeder),
            _ => None,
        }
    }
}

impl History {
    /// The announce that arrived then was answered.
    pub(crate) fn answered(&mut self, arrival: Sequence, reply: Sequence, second: i64) {
        for state in self.0.iter_mut().filter(|state| state.arrival == arrival) {
            state.reply = reply;
            state.seen.1 = second;
        }
    }

    /// The announce that arrived then was refused.
    pub(crate) fn refused(&mut self, arrival: Sequence) {
        self.0.retain(|state| state.arrival != arrival);
    }

    /// Possible states of the peer between `from` and `to`. `alive` tells of a time whether a peer
    /// that announced then must still be stored, and whether it may be.
    pub(crate) fn between(
        &self,
        from: Sequence,
        to: Sequence,
        alive: &dyn Fn(i64) -> (bool, bool),
    ) -> Possible {
        let mut possible = Possible::default();
        // The earliest reply to a later announce: no earlier state was left after it.
        let mut over = Sequence::MAX;
        for state in self.0.iter().rev() {
            if state.arrival <= to && over >= from {
                match state.seeder {
                    Some(seeder) if alive(state.seen.1).1 => {
                        possible.kinds[usize::from(seeder)] = true;
                        possible.unknown |= state.doubt.is_some() || !alive(state.seen.0).0;
                    }
                    _ => possible.unknown = true,
                }
            }
            over = over.min(state.reply);
        }
        possible.unknown |= over >= from;
        possible
    }

    /// Drops all but the last state: no request is in flight. Returns whether the peer is unknown.
    pub(crate) fn settle(&mut self) -> bool {
        let keep = self.0.len().saturating_sub(1);
        self.0.drain(..keep);
        self.0.last().is_none_or(|state| state.seeder.is_none())
    }

    /// An upgrade may have kept or lost the peer, and may have brought it back if it was replaced
    /// meanwhile.
    pub(crate) fn doubt_upgrade(&mut self) {
        self.0.retain(|state| state.arrival != state.reply);
        self.doubt(Doubt::Lost);
    }

    /// The announce that arrived then stored nothing: the peer was unknown, and is.
    pub(crate) fn not_stored(&mut self, arrival: Sequence) {
        let states = self.0.iter_mut().filter(|state| state.arrival == arrival);
        states.for_each(|state| state.seeder = None);
    }

    /// The peer may not be stored.
    pub(crate) fn doubt(&mut self, reason: Doubt) {
        self.0.iter_mut().for_each(|state| state.doubt = state.doubt.max(Some(reason)));
    }

    /// Why the announce that arrived then may not have been stored.
    pub(crate) fn doubt_announce(&mut self, arrival: Sequence, reason: Doubt) {
        let states = self.0.iter_mut().filter(|state| state.arrival == arrival);
        states.for_each(|state| state.doubt = state.doubt.max(Some(reason)));
    }

    /// Whether it was in doubt when this announce arrived whether the peer is stored.
    pub(crate) fn in_doubt_before(&self, arrival: Sequence) -> bool {
        self.0.iter().any(|state| state.arrival < arrival && state.doubt.is_some())
    }

    /// Whether the peer is stored has become certain, with nothing in flight. Returns why it was
    /// not, and whether the last state may have ended by its age.
    pub(crate) fn resolve(&mut self, stored: bool, now: Sequence) -> Option<(Doubt, State)> {
        let last = self.0.last_mut()?;
        let doubt = last.doubt.take()?;
        let state = *last;
        if !stored {
            // Without a request, so it arrives with its reply.
            self.0.push(State { arrival: now, reply: now, seeder: None, ..state });
        }
        Some((doubt, state))
    }

    /// Its announces count as up to this many seconds earlier.
    pub(crate) fn age(&mut self, seconds: i64) {
        for state in &mut self.0 {
            state.seen.0 -= seconds;
        }
    }
}
