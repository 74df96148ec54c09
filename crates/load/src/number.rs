//! Numbers as reports, pictures and messages write them.

/// The unit of a number, and the prefixes that it is written with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// No unit; k, M and G for thousands, millions and billions.
    Plain,
    /// Microseconds, written as us, ms or s.
    Micros,
    /// Bytes, written as B, KiB, MiB or GiB.
    Bytes,
}

impl Unit {
    /// `value` with three significant digits at most and its unit, like `1.5 ms`.
    pub fn label(self, value: f64) -> String {
        let steps: &[(f64, &str)] = match self {
            Self::Plain => &[(1e9, " G"), (1e6, " M"), (1e3, " k"), (1.0, "")],
            Self::Micros => &[(1e6, " s"), (1e3, " ms"), (1.0, " us")],
            Self::Bytes => &[
                ((1u64 << 30) as f64, " GiB"),
                ((1u64 << 20) as f64, " MiB"),
                (1024.0, " KiB"),
                (1.0, " B"),
            ],
        };
        let smallest = (1.0, steps[steps.len() - 1].1);
        let step = steps.iter().find(|(step, _)| value.abs() >= step * 0.999_999);
        let (step, name) = step.copied().unwrap_or(smallest);
        let name = if self == Self::Plain && value == 0.0 { "" } else { name };
        format!("{}{name}", significant(value / step))
    }
}

/// Rounds to a whole number and separates thousands: `1,234,567`. Negative numbers become 0.
pub fn grouped(number: f64) -> String {
    let digits = format!("{:.0}", number.max(0.0));
    let mut out = String::new();
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Memory with one decimal: `192.5 MiB`.
pub fn mebibytes(bytes: f64) -> String {
    format!("{:.1} MiB", bytes / f64::from(1 << 20))
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
    fn thousands_are_separated() {
        let found = [0.0, 999.4, 1000.0, 1_234_567.0].map(grouped);
        assert_eq!(found, ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn units_have_prefixes() {
        assert_eq!(Unit::Plain.label(100_000.0), "100 k");
        assert_eq!(Unit::Micros.label(1500.0), "1.5 ms");
        assert_eq!(Unit::Bytes.label(32.0 * 1_048_576.0), "32 MiB");
        assert_eq!(mebibytes(201_850_880.0), "192.5 MiB");
        assert_eq!((Unit::Plain.label(0.0), Unit::Bytes.label(0.0)), ("0".into(), "0 B".into()));
    }
}
