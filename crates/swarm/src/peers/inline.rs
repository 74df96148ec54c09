//! The one or two peers that fit into a swarm's own entry: rows of endpoint and stamp, `M` bytes,
//! two more than the endpoint's `N`.

use super::{Announcer, Counts, Found, Stamp, is_hidden};
use crate::batch::Announce;
use crate::sample::Draw;

/// A row of an endpoint and its stamp.
#[inline]
pub(super) fn join<const N: usize, const M: usize>(endpoint: &[u8; N], stamp: Stamp) -> [u8; M] {
    const { assert!(M == N + 2) };
    let mut row = [0; M];
    row[..N].copy_from_slice(endpoint);
    row[N..].copy_from_slice(&stamp.0);
    row
}

/// The endpoint of a row.
#[inline]
pub(super) fn endpoint<const N: usize, const M: usize>(row: &[u8; M]) -> &[u8; N] {
    const { assert!(M == N + 2) };
    row.first_chunk().expect("rows are longer than endpoints")
}

/// The stamp of a row.
#[inline]
pub(super) fn stamp<const M: usize>(row: &[u8; M]) -> Stamp {
    Stamp([row[M - 2], row[M - 1]])
}

/// The index of an endpoint's row.
#[inline]
pub(super) fn find<const N: usize, const M: usize>(
    rows: &[[u8; M]],
    sought: &[u8; N],
) -> Option<usize> {
    rows.iter().position(|row| endpoint::<N, M>(row) == sought)
}

/// The number of peers of each kind.
#[inline]
pub(super) fn counts<const M: usize>(rows: &[[u8; M]]) -> Counts {
    let seeders = rows.iter().filter(|row| stamp(row).seeder()).count() as u32;
    Counts { seeders, leechers: rows.len() as u32 - seeders }
}

/// Stores an announcer; `None` if it is new and there is no space.
#[inline]
pub(super) fn announce<const N: usize, const M: usize>(
    len: &mut u8,
    rows: &mut [[u8; M]],
    row: &[u8; N],
    announcer: Announcer<'_>,
) -> Option<Found> {
    let Announcer { stamp: new, settles, may_store, .. } = announcer;
    let used = usize::from(*len);
    let before = match find(&rows[..used], row) {
        Some(at) => {
            let before = stamp(&rows[at]);
            rows[at] = join(row, new.after(before, settles));
            Some(before.seeder())
        }
        None if used < rows.len() && may_store => {
            rows[used] = join(row, new);
            *len += 1;
            None
        }
        None => return None,
    };
    Some(Found { before, own: None })
}

/// Appends the endpoints that an announcer gets.
#[inline]
pub(super) fn sample<const N: usize, const M: usize>(
    rows: &[[u8; M]],
    own: &[u8; N],
    announce: &Announce,
    draw: &mut Draw,
    out: &mut Vec<u8>,
) {
    let fits = |row: &&[u8; M]| {
        let endpoint = endpoint::<N, M>(row);
        endpoint != own && !is_hidden(endpoint) && !(announce.seeder && stamp(row).seeder())
    };
    let mut take = announce.want;
    let mut skip = 0;
    // Two rows mean that the announcer could not be stored. If it wants one peer, either serves.
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
