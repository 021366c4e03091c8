//! Dates and timestamps as texts. Without a zone they are UTC.

use crate::delta::footer::{civil, day_of};

pub const NANOS_PER_DAY: i128 = 86_400_000_000_000;
const NANOS_PER_SECOND: i128 = 1_000_000_000;

/// `yyyy-MM-dd` to days since 1970-01-01.
pub fn parse_day(text: &str) -> Option<i64> {
    let (day, rest) = leading_day(text)?;
    rest.is_empty().then_some(day)
}

fn leading_day(text: &str) -> Option<(i64, &str)> {
    let (year, rest) = digits(text, 4)?;
    let (month, rest) = digits(rest.strip_prefix('-')?, 2)?;
    let (day, rest) = digits(rest.strip_prefix('-')?, 2)?;
    Some((day_of(year, month, day)?, rest))
}

fn digits(text: &str, count: usize) -> Option<(i64, &str)> {
    let (head, tail) = text.split_at_checked(count)?;
    if !head.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some((head.parse().ok()?, tail))
}

/// `yyyy-MM-dd[( |T)HH:mm[:ss[.f{1,9}]]][Z|±HH[[:]mm]]` to nanoseconds since 1970-01-01T00:00:00Z.
pub fn parse_instant(text: &str) -> Option<i128> {
    Instant::parse(text).map(|instant| instant.utc_nanos())
}

/// A timestamp as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instant {
    local_nanos: i128,
    pub offset_seconds: Option<i64>,
    /// False: only a day was given.
    pub has_time: bool,
}

impl Instant {
    /// `yyyy-MM-dd[( |T)HH:mm[:ss[.f{1,9}]]][Z|±HH[[:]mm]]`
    pub fn parse(text: &str) -> Option<Instant> {
        let (days, rest) = leading_day(text)?;
        let midnight = i128::from(days) * NANOS_PER_DAY;
        if rest.is_empty() {
            return Some(Instant { local_nanos: midnight, offset_seconds: None, has_time: false });
        }
        let (hour, rest) = digits(rest.strip_prefix([' ', 'T'])?, 2)?;
        let (minute, mut rest) = digits(rest.strip_prefix(':')?, 2)?;
        let (mut second, mut nanos) = (0, 0);
        if let Some(tail) = rest.strip_prefix(':') {
            (second, rest) = digits(tail, 2)?;
        }
        if let Some(tail) = rest.strip_prefix('.') {
            let length = tail.bytes().take_while(u8::is_ascii_digit).count();
            if !(1..=9).contains(&length) {
                return None;
            }
            let (fraction, tail) = digits(tail, length)?;
            nanos = fraction * 10_i64.pow(9 - u32::try_from(length).ok()?);
            rest = tail;
        }
        if hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        let seconds = i128::from(hour * 3_600 + minute * 60 + second);
        let local_nanos = midnight + seconds * NANOS_PER_SECOND + i128::from(nanos);
        Some(Instant { local_nanos, offset_seconds: offset(rest)?, has_time: true })
    }

    /// Without a zone: as if it were UTC.
    pub fn utc_nanos(&self) -> i128 {
        self.local_nanos - i128::from(self.offset_seconds.unwrap_or(0)) * NANOS_PER_SECOND
    }
}

/// Nothing: not an offset; `None` inside: there is none.
fn offset(text: &str) -> Option<Option<i64>> {
    match text {
        "" => return Some(None),
        "Z" | "z" => return Some(Some(0)),
        _ => {}
    }
    let (sign, rest) = match text.split_at_checked(1)? {
        ("+", rest) => (1, rest),
        ("-", rest) => (-1, rest),
        _ => return None,
    };
    let (hours, rest) = digits(rest, 2)?;
    let minutes = match rest.strip_prefix(':').unwrap_or(rest) {
        "" => 0,
        rest => digits(rest, 2).filter(|(_, rest)| rest.is_empty())?.0,
    };
    (hours <= 18 && minutes <= 59).then_some(Some(sign * (hours * 3_600 + minutes * 60)))
}

/// Year, month, day, hour, minute and second of an instant.
pub fn fields(nanos: i128) -> Option<[i64; 6]> {
    let (year, month, day) = civil(i64::try_from(nanos.div_euclid(NANOS_PER_DAY)).ok()?);
    let seconds = i64::try_from(nanos.rem_euclid(NANOS_PER_DAY) / NANOS_PER_SECOND).ok()?;
    Some([year, month, day, seconds / 3_600, seconds / 60 % 60, seconds % 60])
}

/// Patterns of whole fields only (`yyyy-MM-dd HH`); nothing for any other letter.
pub fn format(nanos: i128, pattern: &str) -> Option<String> {
    let found = fields(nanos)?;
    let names = ["yyyy", "MM", "dd", "HH", "mm", "ss"];
    let mut out = String::new();
    let mut rest = pattern;
    while let Some(first) = rest.chars().next() {
        let hit =
            names.iter().zip(found).find_map(|(name, value)| rest.strip_prefix(name).map(|tail| (name, value, tail)));
        match hit {
            Some((name, value, tail)) => {
                out.push_str(&format!("{value:0width$}", width = name.len()));
                // A longer run of the letter means something else.
                if tail.chars().next().is_some_and(|next| name.starts_with(next)) {
                    return None;
                }
                rest = tail;
            }
            None if first.is_ascii_alphabetic() || first == '\'' => return None,
            None => {
                out.push(first);
                rest = rest.get(first.len_utf8()..)?;
            }
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Option<i128> {
        Instant::parse(text).map(|instant| instant.utc_nanos())
    }

    #[test]
    fn days_count_from_1970() {
        for (text, days) in [
            ("1970-01-01", 0),
            ("1970-03-01", 59),
            ("1969-12-31", -1),
            ("2000-02-29", 11_016),
            ("2024-01-02", 19_724),
            ("0000-01-01", -719_528),
            ("9999-12-31", 2_932_896),
        ] {
            assert_eq!(parse_day(text), Some(days), "{text}");
        }
        for text in
            ["2023-02-29", "1900-02-29", "2024-13-01", "2024-1-1", "2024-01-01 ", "", "2024-01-0ü", "-001-01-01"]
        {
            assert_eq!(parse_day(text), None, "{text}");
        }
    }

    #[test]
    fn two_spellings_of_an_instant_are_one_value() {
        let base = at("2024-01-02 03:04:05.123456");
        assert!(base.is_some());
        for text in [
            "2024-01-02T03:04:05.123456",
            "2024-01-02T03:04:05.123456Z",
            "2024-01-02T03:04:05.123456000Z",
            "2024-01-02T05:34:05.123456+02:30",
            "2024-01-01T19:04:05.123456-0800",
            "2024-01-02 04:04:05.123456+01",
        ] {
            assert_eq!(at(text), base, "{text}");
        }
        assert_eq!(at("2024-01-02"), at("2024-01-02 00:00"));
        assert_eq!(at("1969-12-31 23:59:59.999999999"), Some(-1));
        for text in [
            "2024-01-02 25:00:00",
            "2024-01-02 03:04:05.",
            "2024-01-02 03:04:05.1234567890",
            "2024-01-02 03:04:05 UTC",
            "2024-01-02 03:04:05+99",
            "2024-01-02x03:04:05",
            "2024-01-02 3:04:05",
        ] {
            assert_eq!(at(text), None, "{text}");
        }
    }
}
