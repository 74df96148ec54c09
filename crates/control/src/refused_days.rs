//! Announces that each part of the list of info hashes has refused, by day (UTC).

use std::collections::BTreeMap;

use crate::api::history::RefusedByDay;

/// Days that are kept, today included.
const DAYS: u64 = 31;
/// Seconds of a day.
const DAY: u64 = 24 * 3_600;

/// The numbers of the last days.
#[derive(Debug, Default)]
pub(crate) struct RefusedDays {
    /// By the second at which a day begins, and the name of the part.
    pub(crate) days: RefusedByDay,
    /// The counters when they were last read. They begin at 0.
    before: BTreeMap<String, u64>,
}

impl RefusedDays {
    /// Adds what the counters of the parts have counted since the last call to the day of `unix`,
    /// seconds since 1970. A counter that is lower than before has begun again at 0.
    pub(crate) fn record<'a>(
        &mut self,
        unix: u64,
        totals: impl IntoIterator<Item = (&'a str, u64)>,
    ) {
        let today = unix - unix % DAY;
        for (part, total) in totals {
            let before = self.before.get(part).copied().unwrap_or(0);
            if total == before {
                continue;
            }
            let count = self.days.entry(today).or_default().entry(part.to_owned()).or_default();
            *count += total.checked_sub(before).unwrap_or(total);
            self.before.insert(part.to_owned(), total);
        }
        self.keep_last(today);
    }

    /// Puts the numbers of the process before into place.
    pub(crate) fn restore(&mut self, days: RefusedByDay, unix: u64) {
        self.days = days;
        self.keep_last(unix - unix % DAY);
    }

    /// A clock that was ahead leaves days of the future, which are kept until they have passed.
    fn keep_last(&mut self, today: u64) {
        let first = today.saturating_sub((DAYS - 1) * DAY);
        if self.days.first_key_value().is_some_and(|(day, _)| *day < first) {
            self.days = self.days.split_off(&first);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_added_to_their_day_and_31_days_are_kept() {
        let mut refused = RefusedDays::default();
        let day = |number: u64| 20_000 * DAY + number * DAY;
        refused.record(day(0) + 5, [("a", 3), ("b", 0)]);
        refused.record(day(0) + 6, [("a", 3), ("b", 2)]);
        refused.record(day(1), [("a", 10), ("b", 2)]);
        // The counters begin again.
        refused.record(day(1) + 1, [("a", 4)]);
        let shown = |refused: &RefusedDays| -> Vec<(u64, String, u64)> {
            let days = refused.days.iter();
            let number = |day: u64| (day - 20_000 * DAY) / DAY;
            days.flat_map(|(day, parts)| {
                parts.iter().map(move |(part, count)| (number(*day), part.clone(), *count))
            })
            .collect()
        };
        let expected = [(0, "a", 3), (0, "b", 2), (1, "a", 11)];
        assert_eq!(shown(&refused), expected.map(|(day, part, n)| (day, part.to_owned(), n)));
        let mut later = RefusedDays::default();
        later.restore(refused.days.clone(), day(30));
        assert_eq!(shown(&later), shown(&refused));
        later.record(day(31), [("b", 1)]);
        let expected = [(1, "a", 11), (31, "b", 1)];
        assert_eq!(shown(&later), expected.map(|(day, part, n)| (day, part.to_owned(), n)));
    }
}
