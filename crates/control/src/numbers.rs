//! Numbers for people.

/// Digits in groups of three: `12,345`.
pub fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_in_groups_of_three() {
        for (value, text) in
            [(0, "0"), (999, "999"), (1_000, "1,000"), (12_345, "12,345"), (1_000_000, "1,000,000")]
        {
            assert_eq!(grouped(value), text);
        }
    }
}
