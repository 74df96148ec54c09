//! Durations, dates and times of day in UTC.

use time::OffsetDateTime;

/// A duration in its two largest units: `5 s`, `2 min 5 s`, `2 h`, `3 d 4 h`.
pub fn duration(seconds: f64) -> String {
    let seconds = seconds as u64;
    let parts = [
        (seconds / 86_400, "d"),
        (seconds / 3_600 % 24, "h"),
        (seconds / 60 % 60, "min"),
        (seconds % 60, "s"),
    ];
    let first = parts.iter().position(|(number, _)| *number > 0).unwrap_or(parts.len() - 1);
    let mut text = format!("{} {}", parts[first].0, parts[first].1);
    if let Some((number, unit)) = parts.get(first + 1).filter(|(number, _)| *number > 0) {
        text += &format!(" {number} {unit}");
    }
    text
}

/// The date of seconds since 1970: `2026-11-23`; `-` beyond the year 9999.
pub fn date(unix: u64) -> String {
    time(unix).map_or_else(|| "-".to_owned(), |time| time.date().to_string())
}

/// The date and time of seconds since 1970: `2026-11-23T14:05:09Z`; `-` beyond the year 9999.
pub fn date_time(unix: u64) -> String {
    time(unix).map_or_else(
        || "-".to_owned(),
        |time| {
            let (hour, minute, second) = time.to_hms();
            format!("{}T{hour:02}:{minute:02}:{second:02}Z", time.date())
        },
    )
}

fn time(unix: u64) -> Option<OffsetDateTime> {
    OffsetDateTime::from_unix_timestamp(i64::try_from(unix).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_two_units() {
        let shown = [0.9, 59.0, 60.0, 125.0, 7_200.0, 86_399.0, 93_784.5, 1e6].map(duration);
        let expected =
            ["0 s", "59 s", "1 min", "2 min 5 s", "2 h", "23 h 59 min", "1 d 2 h", "11 d 13 h"];
        assert_eq!(shown, expected);
    }

    #[test]
    fn dates_are_in_utc() {
        assert_eq!(date(1_795_442_400), "2026-11-23");
        assert_eq!(date_time(1_790_000_000), "2026-09-21T14:13:20Z");
        assert_eq!([date(u64::MAX), date_time(u64::MAX)], ["-", "-"]);
    }
}
