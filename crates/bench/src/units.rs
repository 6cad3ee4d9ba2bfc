//! Numbers for people: three digits, and the unit that fits.

/// `0.45 ms`, `12.3 ms`, `1.20 s`.
pub(crate) fn ms(value: f64) -> String {
    if value >= 1000.0 { format!("{} s", digits(value / 1000.0)) } else { format!("{} ms", digits(value)) }
}

/// `0.45`, `12.3`, `1234`.
pub(crate) fn rate(value: f64) -> String {
    digits(value)
}

pub fn digits(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude >= 99.95 {
        grouped(value.round())
    } else if magnitude >= 9.995 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

/// `12,345`
pub fn grouped(value: f64) -> String {
    let plain = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (at, digit) in plain.chars().enumerate() {
        if at > 0 && (plain.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0.0 { format!("-{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits() {
        for (value, text) in [
            (0.0, "0.00"),
            (0.456, "0.46"),
            (9.999, "10.0"),
            (12.34, "12.3"),
            (99.99, "100"),
            (1234.5, "1,235"),
            (1234567.0, "1,234,567"),
        ] {
            assert_eq!(digits(value), text);
        }
        assert_eq!((ms(999.0), ms(1200.0)), ("999 ms".into(), "1.20 s".into()));
    }
}
