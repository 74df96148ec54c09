//! Counts, sizes and measured values.

use std::fmt::Display;

/// The unit of a value, with its prefixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// No unit; k, M and G for thousands, millions and billions.
    Plain,
    /// Microseconds, written as us, ms or s.
    Micros,
    /// Bytes, written as B, KiB, MiB, GiB or TiB.
    Bytes,
}

impl Unit {
    /// `value` with about three significant digits and its unit: `1.5 ms`.
    pub fn label(self, value: f64) -> String {
        let steps: &[(f64, &str)] = match self {
            Self::Plain => &[(1e9, " G"), (1e6, " M"), (1e3, " k"), (1.0, "")],
            Self::Micros => &[(1e6, " s"), (1e3, " ms"), (1.0, " us")],
            Self::Bytes => &[
                ((1u64 << 40) as f64, " TiB"),
                ((1u64 << 30) as f64, " GiB"),
                ((1u64 << 20) as f64, " MiB"),
                (1024.0, " KiB"),
                (1.0, " B"),
            ],
        };
        let smallest = (1.0, steps[steps.len() - 1].1);
        let step = steps.iter().find(|(step, _)| value.abs() >= step * 0.999_999);
        let (step, name) = step.copied().unwrap_or(smallest);
        format!("{}{name}", significant(value / step))
    }
}

/// A size or an amount of memory: `192 MiB`.
pub fn bytes(bytes: u64) -> String {
    Unit::Bytes.label(bytes as f64)
}

/// A number of 0 or more, rounded to a whole one, with its digits in groups of three: `12,345`.
pub fn grouped(number: impl Display) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count or a rate in at most nine columns below 10^13: `0.2`, `12,345`, `12.3 M`.
pub fn compact(value: f64) -> String {
    match value {
        v if v >= 1e10 => format!("{:.1} G", v / 1e9),
        v if v >= 1e7 => format!("{:.1} M", v / 1e6),
        v if v > 0.0 && v < 10.0 && v.fract() != 0.0 => format!("{v:.1}"),
        v => grouped(v),
    }
}

/// A number of thousandths as a decimal: 1500 is `1.5`.
pub fn thousandths(number: u64) -> String {
    let text = format!("{}.{:03}", number / 1000, number % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A number of things: `1 vCPU`, `2 vCPUs`.
pub fn plural(number: usize, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

/// Three significant digits at most, without trailing zeros.
fn significant(value: f64) -> String {
    let digits = if value == 0.0 { 0 } else { value.abs().log10().floor() as i32 };
    let decimals = (2 - digits).clamp(0, 9) as usize;
    let text = format!("{value:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_in_groups_of_three() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([0.0, 999.4, 12_345.6].map(grouped), ["0", "999", "12,346"]);
        let shown = [0.0, 0.25, 7.0, 1_000.0, 9_999_999.0, 12_340_000.0, 2e10].map(compact);
        assert_eq!(shown, ["0", "0.2", "7", "1,000", "9,999,999", "12.3 M", "20.0 G"]);
    }

    #[test]
    fn units_have_prefixes() {
        assert_eq!(Unit::Plain.label(100_000.0), "100 k");
        assert_eq!(Unit::Micros.label(1500.0), "1.5 ms");
        assert_eq!(
            [0, 12_345, 32 << 20, 5 << 29].map(bytes),
            ["0 B", "12.1 KiB", "32 MiB", "2.5 GiB"]
        );
        assert_eq!([2500, 10, 2000, 333].map(thousandths), ["2.5", "0.01", "2", "0.333"]);
        assert_eq!([plural(1, "vCPU"), plural(2, "vCPU")], ["1 vCPU", "2 vCPUs"]);
    }
}
