//! Numbers in messages.

/// A number of bytes in decimal units: `1.3 GB`.
pub fn bytes(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{} kB", bytes / 1_000),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

/// A number of thousandths as a decimal: 1500 is `1.5`.
pub fn thousandths(number: u64) -> String {
    let text = format!("{}.{:03}", number / 1000, number % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A number of things: `1 vCPU`, `2 vCPUs`.
pub fn count(number: usize, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_units() {
        assert_eq!(bytes(12_345), "12 kB");
        assert_eq!(bytes(2_560_000_000), "2.6 GB");
        assert_eq!(bytes(128_000_000), "128.0 MB");
        assert_eq!([2500, 10, 2000, 333].map(thousandths), ["2.5", "0.01", "2", "0.333"]);
        assert_eq!([count(1, "vCPU"), count(2, "vCPU")], ["1 vCPU", "2 vCPUs"]);
    }
}
