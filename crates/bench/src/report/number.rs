//! Numbers in the form of the published reports.

pub(super) use onrush_load::number::{grouped, mebibytes};

use crate::stats::Spread;

/// `95.5%`, `190%`.
pub(super) fn percent(percent: f64) -> String {
    if percent >= 100.0 { format!("{percent:.0}%") } else { format!("{percent:.1}%") }
}

/// `2.57`.
pub(super) fn hundredths(number: f64) -> String {
    format!("{number:.2}")
}

/// `2.57 [2.50-2.71]`: median, minimum and maximum; the number alone where there is only one.
pub(super) fn spread(spread: &Spread, number: fn(f64) -> String) -> String {
    let [median, min, max] = [spread.median, spread.min, spread.max].map(number);
    if spread.count == 1 { median } else { format!("{median} [{min}-{max}]") }
}

/// The UTC date, `2026-11-21`, of seconds since 1970 (inverse of days_from_civil, proleptic
/// Gregorian calendar).
pub(crate) fn date(seconds: u64) -> String {
    let days = (seconds / 86_400) as i64 + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_published() {
        assert_eq!([95.5, 190.4, 95.0].map(percent), ["95.5%", "190%", "95.0%"]);
        assert_eq!(mebibytes(201_850_880.0), "192.5 MiB");
        let of = Spread::of([2.5, 2.57, 2.714]).unwrap();
        assert_eq!(spread(&of, hundredths), "2.57 [2.50-2.71]");
        assert_eq!(spread(&Spread::of([1234.4]).unwrap(), grouped), "1,234");
    }

    #[test]
    fn dates_of_seconds() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(951_782_400), "2000-02-29");
        assert_eq!(date(1_795_219_200), "2026-11-21");
    }
}
