//! Numbers in the form of the published reports.

pub(super) use onrush_load::number::grouped;

use crate::stats::Spread;

/// `192.5 MiB`, `8.2 GiB`.
pub(super) fn bytes(bytes: f64) -> String {
    const MIB: f64 = 1_048_576.0;
    if bytes >= 1024.0 * MIB {
        return format!("{} GiB", short(bytes / MIB / 1024.0));
    }
    format!("{} MiB", short(bytes / MIB))
}

/// One decimal place, none where it is a zero.
fn short(number: f64) -> String {
    let text = format!("{number:.1}");
    text.strip_suffix(".0").map_or(text.clone(), Into::into)
}

/// `95.5%`, `190%`.
pub(super) fn percent(percent: f64) -> String {
    if percent >= 100.0 { format!("{percent:.0}%") } else { format!("{}%", short(percent)) }
}

/// `2.57 [2.50-2.71]`: median, minimum and maximum with `places` decimal places.
pub(super) fn spread(spread: &Spread, places: usize) -> String {
    if spread.count == 1 {
        return format!("{:.places$}", spread.median);
    }
    format!("{:.places$} [{:.places$}-{:.places$}]", spread.median, spread.min, spread.max)
}

/// Microseconds, from 1,000 on in milliseconds.
pub(super) fn time(microseconds: f64) -> String {
    match microseconds {
        us if us >= 10_000.0 => format!("{:.0} ms", us / 1000.0),
        us if us >= 1000.0 => format!("{:.1} ms", us / 1000.0),
        us => format!("{us:.0} us"),
    }
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
        assert_eq!(grouped(351_834.4), "351,834");
        assert_eq!((grouped(7.0), grouped(1_270_832.0)), ("7".into(), "1,270,832".into()));
        assert_eq!(bytes(201_850_880.0), "192.5 MiB");
        assert_eq!(
            (bytes(214.0 * 1_048_576.0), bytes(8.2 * 1_073_741_824.0)),
            ("214 MiB".into(), "8.2 GiB".into())
        );
        assert_eq!(
            (percent(95.5), percent(190.4), percent(95.0)),
            ("95.5%".into(), "190%".into(), "95%".into())
        );
        let of = Spread::of([2.5, 2.57, 2.714]).unwrap();
        assert_eq!(spread(&of, 2), "2.57 [2.50-2.71]");
        assert_eq!(spread(&Spread::of([2.5]).unwrap(), 1), "2.5");
        assert_eq!(
            (time(90.4), time(1500.0), time(12_345.0)),
            ("90 us".into(), "1.5 ms".into(), "12 ms".into())
        );
    }

    #[test]
    fn dates_of_seconds() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(951_782_400), "2000-02-29");
        assert_eq!(date(1_795_219_200), "2026-11-21");
    }
}
