//! Durations as Delta's table properties spell them.

/// Milliseconds of `interval 7 days`, `interval 1 week 12 hours`, with or without the first word. `None` for anything
/// else: months and years have no fixed length, and a guess would delete.
pub(super) fn parse_ms(text: &str) -> Option<i64> {
    let lower = text.trim().to_ascii_lowercase();
    let mut words = lower.split_ascii_whitespace().peekable();
    if words.peek() == Some(&"interval") {
        words.next();
    }
    let mut total_ms: i64 = 0;
    let mut is_empty = true;
    while let Some(number) = words.next() {
        let number: i64 = number.parse().ok().filter(|number| *number >= 0)?;
        total_ms = total_ms.checked_add(unit_ms(words.next()?, number)?)?;
        is_empty = false;
    }
    if is_empty { None } else { Some(total_ms) }
}

fn unit_ms(unit: &str, number: i64) -> Option<i64> {
    let unit = unit.strip_suffix('s').unwrap_or(unit);
    match unit {
        // Rounded up: longer only keeps.
        "nanosecond" => Some(number / 1_000_000 + i64::from(number % 1_000_000 != 0)),
        "microsecond" => Some(number / 1_000 + i64::from(number % 1_000 != 0)),
        "millisecond" => Some(number),
        "second" => number.checked_mul(1_000),
        "minute" => number.checked_mul(60_000),
        "hour" => number.checked_mul(3_600_000),
        "day" => number.checked_mul(86_400_000),
        "week" => number.checked_mul(7 * 86_400_000),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_that_are_read_and_forms_that_are_not() {
        let day = 86_400_000;
        for (text, expected) in [
            ("interval 7 days", Some(7 * day)),
            ("INTERVAL 1 Week", Some(7 * day)),
            ("168 hours", Some(7 * day)),
            ("interval 1 day 12 hours", Some(day + day / 2)),
            ("interval 0 seconds", Some(0)),
            ("interval 1 microsecond", Some(1)),
            ("interval 1 month", None),
            ("interval -7 days", None),
            ("interval 7", None),
            ("interval", None),
            ("7", None),
            ("", None),
            ("interval 1.5 days", None),
            ("interval 9223372036854775807 weeks", None),
        ] {
            assert_eq!(parse_ms(text), expected, "{text}");
        }
    }
}
