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

/// `yyyy-MM-dd[( |T)HH:mm[:ss[.f{1,9}]]][Z|±HH[:]mm]` to nanoseconds since 1970-01-01T00:00:00Z.
pub fn parse_instant(text: &str) -> Option<i128> {
    let (day, rest) = leading_day(text)?;
    let midnight = i128::from(day) * NANOS_PER_DAY;
    if rest.is_empty() {
        return Some(midnight);
    }
    let (hour, rest) = digits(rest.strip_prefix([' ', 'T'])?, 2)?;
    let (minute, mut rest) = digits(rest.strip_prefix(':')?, 2)?;
    let (mut second, mut nanos) = (0, 0);
    if let Some(tail) = rest.strip_prefix(':') {
        (second, rest) = digits(tail, 2)?;
    }
    if let Some(tail) = rest.strip_prefix('.') {
        let length = tail.bytes().take_while(u8::is_ascii_digit).count();
        let scale = 9_usize.checked_sub(length).filter(|_| length > 0)?;
        let (fraction, tail) = digits(tail, length)?;
        nanos = fraction * 10_i64.pow(u32::try_from(scale).ok()?);
        rest = tail;
    }
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let seconds = i128::from(hour * 3_600 + minute * 60 + second - offset_seconds(rest)?);
    Some(midnight + seconds * NANOS_PER_SECOND + i128::from(nanos))
}

fn offset_seconds(text: &str) -> Option<i64> {
    let (sign, rest) = match text.split_at_checked(1) {
        None => return Some(0),
        Some(("Z" | "z", "")) => return Some(0),
        Some(("+", rest)) => (1, rest),
        Some(("-", rest)) => (-1, rest),
        Some(_) => return None,
    };
    let (hours, rest) = digits(rest, 2)?;
    let minutes = match rest.strip_prefix(':').unwrap_or(rest) {
        "" => 0,
        rest => digits(rest, 2).filter(|(_, rest)| rest.is_empty())?.0,
    };
    (hours <= 18 && minutes <= 59).then_some(sign * (hours * 3_600 + minutes * 60))
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
