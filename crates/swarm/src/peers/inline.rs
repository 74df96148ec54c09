//! The one or two peers that fit into a swarm's own entry: rows of endpoint and stamp, `M` bytes,
//! two more than the endpoint's `N`.

use rand::Rng;
use rand::rngs::SmallRng;

use super::{Counts, Expiry, Found, Stamp, Wanted, is_hidden};
use crate::sample::{self, Draw};

/// Up to `MAX` peers of one family. An entry of one peer has one whenever it is read: [`Peers`]
/// replaces it when the peer is removed, so that no length has to be checked.
///
/// [`Peers`]: super::Peers
#[derive(Debug)]
pub(crate) struct Rows<const M: usize, const MAX: usize> {
    len: u8,
    rows: [[u8; M]; MAX],
}

impl<const M: usize, const MAX: usize> Rows<M, MAX> {
    pub(super) const EMPTY: Self = Self { len: 0, rows: [[0; M]; MAX] };

    /// One peer.
    pub(super) fn single<const N: usize>(endpoint: &[u8; N], stamp: Stamp) -> Self {
        let mut rows = Self { len: 1, ..Self::EMPTY };
        rows.rows[0] = join(endpoint, stamp);
        rows
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        if MAX == 1 { 1 } else { usize::from(self.len) }
    }

    /// Whether the last peer was removed.
    pub(super) fn is_emptied(&self) -> bool {
        self.len == 0
    }

    #[inline]
    fn used(&self) -> &[[u8; M]] {
        if MAX == 1 { &self.rows } else { &self.rows[..self.len()] }
    }

    #[inline]
    fn find<const N: usize>(&self, sought: &[u8; N]) -> Option<usize> {
        self.used().iter().position(|row| endpoint::<N, M>(row) == sought)
    }

    /// The number of peers of each kind.
    #[inline]
    pub(super) fn counts(&self) -> Counts {
        let seeders = self.used().iter().filter(|row| stamp(row).seeder()).count() as u32;
        Counts { seeders, leechers: self.len() as u32 - seeders }
    }

    /// Stores an announcer; `None` if it is new and there is no space.
    #[inline]
    pub(super) fn announce<const N: usize>(
        &mut self,
        row: &[u8; N],
        new: Stamp,
        may_store: bool,
    ) -> Option<Found> {
        let before = match self.find(row) {
            Some(at) => {
                let before = stamp(&self.rows[at]).seeder();
                self.rows[at] = join(row, new);
                Some(before)
            }
            None if self.len() < MAX && may_store => {
                self.rows[self.len()] = join(row, new);
                self.len += 1;
                None
            }
            None => return None,
        };
        Some(Found { before, own: None })
    }

    /// Removes a peer; returns its stamp, if it was stored.
    pub(super) fn remove<const N: usize>(&mut self, row: &[u8; N]) -> Option<Stamp> {
        self.find(row).map(|at| self.remove_at(at))
    }

    fn remove_at(&mut self, at: usize) -> Stamp {
        let stamp = stamp(&self.rows[at]);
        self.len -= 1;
        self.rows.swap(at, usize::from(self.len));
        stamp
    }

    /// Removes the expired peers.
    pub(super) fn sweep<const N: usize>(
        &mut self,
        expiry: Expiry,
        mut expired: impl FnMut(&[u8; N], Stamp),
    ) {
        for at in (0..self.len()).rev() {
            let row = self.rows[at];
            if expiry.is_over(stamp(&row)) {
                expired(endpoint(&row), self.remove_at(at));
            }
        }
    }

    /// Calls `f` with each peer.
    pub(super) fn each<const N: usize>(&self, mut f: impl FnMut(&[u8; N], Stamp)) {
        self.used().iter().for_each(|row| f(endpoint(row), stamp(row)));
    }

    /// A uniformly random peer, of at least one.
    pub(super) fn any<const N: usize>(&self, rng: &mut SmallRng) -> [u8; N] {
        *endpoint(&self.used()[sample::scale(rng.next_u32(), self.len())])
    }

    /// The stamp of a peer, if it is stored.
    pub(super) fn stamp<const N: usize>(&self, row: &[u8; N]) -> Option<Stamp> {
        self.find(row).map(|at| stamp(&self.rows[at]))
    }

    /// Appends the endpoints that an announcer gets.
    #[inline]
    pub(super) fn sample<const N: usize>(
        &self,
        own: &[u8; N],
        wanted: Wanted<'_>,
        draw: &mut Draw,
        out: &mut Vec<u8>,
    ) {
        let rows = self.used();
        let fits = |row: &&[u8; M]| {
            let endpoint = endpoint::<N, M>(row);
            endpoint != own && !is_hidden(endpoint) && !(wanted.seeder && stamp(row).seeder())
        };
        let mut take = wanted.want;
        let mut skip = 0;
        // Two rows mean that the announcer could not be stored. If it wants one peer, either
        // serves.
        if take == 1 && rows.len() == 2 && rows.iter().all(|row| fits(&row)) {
            skip = draw.below(2);
        }
        for row in rows.iter().filter(fits).skip(skip) {
            if take == 0 {
                return;
            }
            out.extend_from_slice(endpoint::<N, M>(row));
            take -= 1;
        }
    }
}

/// A row of an endpoint and its stamp.
#[inline]
fn join<const N: usize, const M: usize>(endpoint: &[u8; N], stamp: Stamp) -> [u8; M] {
    const { assert!(M == N + 2) };
    let mut row = [0; M];
    row[..N].copy_from_slice(endpoint);
    row[N..].copy_from_slice(&stamp.to_bytes());
    row
}

/// The endpoint of a row.
#[inline]
fn endpoint<const N: usize, const M: usize>(row: &[u8; M]) -> &[u8; N] {
    const { assert!(M == N + 2) };
    row.first_chunk().expect("rows are longer than endpoints")
}

/// The stamp of a row.
#[inline]
fn stamp<const M: usize>(row: &[u8; M]) -> Stamp {
    Stamp::from_bytes([row[M - 2], row[M - 1]])
}
