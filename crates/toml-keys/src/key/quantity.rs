//! Times and sizes with units, in place of a plain integer in the unit of a key.

/// Units of a time or a size, each as a multiple of the unit of the key.
struct Units {
    /// The unit of the key.
    key: &'static str,
    units: &'static [(&'static str, u64)],
    /// How to describe and show such a value.
    example: &'static str,
}

const SIZES: &[(&str, u64)] = &[
    ("B", 1),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
];

const UNITS: [Units; 3] = [
    Units {
        key: "seconds",
        units: &[("s", 1), ("m", 60), ("min", 60), ("h", 3_600), ("d", 86_400)],
        example: "a time like \"90s\", \"30m\" or \"1h30m\"",
    },
    Units {
        key: "microseconds",
        units: &[("us", 1), ("ms", 1_000), ("s", 1_000_000)],
        example: "a time like \"50us\" or \"1ms\"",
    },
    Units { key: "bytes", units: SIZES, example: "a size like \"512KiB\" or \"4MiB\"" },
];

/// The seconds of a time with units, such as `90s` or `1h30m`.
pub fn seconds(text: &str) -> Option<u64> {
    parse(text, "seconds").and_then(|seconds| u64::try_from(seconds).ok())
}

/// Values with units that a key in this unit accepts, in words.
pub(crate) fn example(unit: &str) -> Option<&'static str> {
    of(unit).map(|units| units.example)
}

/// A value with units, as a number in the unit of the key. `None` if `text` is no such value, or
/// too large for any key.
pub(crate) fn parse(text: &str, unit: &str) -> Option<i64> {
    let units = of(unit)?.units;
    let mut rest = text.trim();
    let mut sum: u64 = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '_')?;
        let (number, behind) = rest.split_at(digits);
        let behind = behind.trim_start();
        let letters = behind.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(behind.len());
        let (name, behind) = behind.split_at(letters);
        let (_, factor) = units.iter().find(|(unit, _)| *unit == name)?;
        let number: u64 = number.replace('_', "").parse().ok()?;
        sum = sum.checked_add(number.checked_mul(*factor)?)?;
        rest = behind.trim_start();
    }
    (!text.trim().is_empty()).then_some(i64::try_from(sum).ok()?)
}

fn of(unit: &str) -> Option<&'static Units> {
    UNITS.iter().find(|units| units.key == unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes_have_units() {
        for (text, unit, value) in [
            ("90s", "seconds", Some(90)),
            ("30m", "seconds", Some(1_800)),
            ("30 min", "seconds", Some(1_800)),
            ("1h30m", "seconds", Some(5_400)),
            (" 1h 30m ", "seconds", Some(5_400)),
            ("7d", "seconds", Some(604_800)),
            ("0s", "seconds", Some(0)),
            ("1ms", "microseconds", Some(1_000)),
            ("4MiB", "bytes", Some(4_194_304)),
            ("4 MB", "bytes", Some(4_000_000)),
            ("4_096KiB", "bytes", Some(4_194_304)),
            ("", "seconds", None),
            ("30", "seconds", None),
            ("m", "seconds", None),
            ("30M", "seconds", None),
            ("1.5h", "seconds", None),
            ("-30m", "seconds", None),
            ("500ms", "seconds", None),
            ("4M", "bytes", None),
            ("4mib", "bytes", None),
            ("5%", "percent", None),
            ("99999999999999999999s", "seconds", None),
            ("9999999999999999999d", "seconds", None),
            ("18446744073709551615s", "seconds", None),
        ] {
            assert_eq!(parse(text, unit), value, "{text} in {unit}");
        }
    }
}
