//! Dates and timestamps of partition keys: proleptic Gregorian, years 0000 to 9999, no zone.

use std::fmt;

/// A calendar day that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Date {
    year: u16,
    month: u8,
    day: u8,
}

/// A moment of a day, to the nanosecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    date: Date,
    second_of_day: u32,
    nanos: u32,
}

/// Exactly `length` digits at the start, at most 9.
fn digits(text: &str, length: usize) -> Option<(u32, &str)> {
    let (head, tail) = text.split_at_checked(length)?;
    let mut number = 0;
    for byte in head.bytes() {
        if !byte.is_ascii_digit() {
            return None;
        }
        number = number * 10 + u32::from(byte - b'0');
    }
    Some((number, tail))
}

impl Date {
    /// Reads `yyyy-MM-dd`, nothing else.
    pub fn parse(text: &str) -> Option<Self> {
        let (date, rest) = Self::read(text)?;
        rest.is_empty().then_some(date)
    }

    fn read(text: &str) -> Option<(Self, &str)> {
        let (year, rest) = digits(text, 4)?;
        let (month, rest) = digits(rest.strip_prefix('-')?, 2)?;
        let (day, rest) = digits(rest.strip_prefix('-')?, 2)?;
        let leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
        let days = match month {
            1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
            4 | 6 | 9 | 11 => 30,
            2 if leap => 29,
            2 => 28,
            _ => return None,
        };
        if !(1..=days).contains(&day) {
            return None;
        }
        let date =
            Self { year: u16::try_from(year).ok()?, month: u8::try_from(month).ok()?, day: u8::try_from(day).ok()? };
        Some((date, rest))
    }

    /// The number yyyymmdd.
    pub(crate) fn digits(self) -> i64 {
        i64::from(self.year) * 10_000 + i64::from(self.month) * 100 + i64::from(self.day)
    }

    /// Four bytes in order of time.
    pub fn encode(self, into: &mut Vec<u8>) {
        into.extend_from_slice(&self.year.to_be_bytes());
        into.extend_from_slice(&[self.month, self.day]);
    }
}

impl Timestamp {
    /// Reads `yyyy-MM-dd HH:mm:ss[.f{1,9}]`, nothing else.
    pub fn parse(text: &str) -> Option<Self> {
        let (date, rest) = Date::read(text)?;
        let (hour, rest) = digits(rest.strip_prefix(' ')?, 2)?;
        let (minute, rest) = digits(rest.strip_prefix(':')?, 2)?;
        let (second, rest) = digits(rest.strip_prefix(':')?, 2)?;
        if hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        let nanos = match rest.strip_prefix('.') {
            None if rest.is_empty() => 0,
            Some(fraction) if (1..=9).contains(&fraction.len()) => {
                let places = u32::try_from(fraction.len()).ok()?;
                digits(fraction, fraction.len())?.0 * 10_u32.pow(9 - places)
            }
            _ => return None,
        };
        Some(Self { date, second_of_day: hour * 3600 + minute * 60 + second, nanos })
    }

    /// The number yyyymmddHHMMSS, and whether that is all of it: it may have a fraction of a second besides.
    pub(crate) fn digits(self) -> (i64, bool) {
        let Self { date, second_of_day, nanos } = self;
        let time = second_of_day / 3600 * 10_000 + second_of_day / 60 % 60 * 100 + second_of_day % 60;
        (date.digits() * 1_000_000 + i64::from(time), nanos == 0)
    }

    /// Whether `text`, which was read as this, is the shortest way to write it.
    pub fn is_canonical(text: &str) -> bool {
        text.split_once('.').is_none_or(|(_, fraction)| !fraction.ends_with('0'))
    }

    /// Twelve bytes in order of time.
    pub fn encode(self, into: &mut Vec<u8>) {
        self.date.encode(into);
        into.extend_from_slice(&self.second_of_day.to_be_bytes());
        into.extend_from_slice(&self.nanos.to_be_bytes());
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

/// The shortest way to write it.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (hour, minute, second) = (self.second_of_day / 3600, self.second_of_day / 60 % 60, self.second_of_day % 60);
        write!(f, "{} {hour:02}:{minute:02}:{second:02}", self.date)?;
        match self.nanos {
            0 => Ok(()),
            nanos => write!(f, ".{}", format!("{nanos:09}").trim_end_matches('0')),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_real_days_in_the_one_form_are_dates() {
        for text in ["2024-02-29", "0000-01-01", "9999-12-31", "2000-02-29"] {
            assert!(Date::parse(text).is_some(), "{text}");
        }
        for text in [
            "2023-02-29",
            "1900-02-29",
            "2024-13-01",
            "2024-00-01",
            "2024-01-00",
            "2024-1-1",
            "20240101",
            "2024-01-01 ",
            "",
            "2024-01-0ü",
            "2024-01-01 00:00:00",
        ] {
            assert!(Date::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn timestamps_are_read_to_the_nanosecond() {
        let at = |text: &str| Timestamp::parse(text);
        assert_eq!(at("2024-01-01 00:00:00"), at("2024-01-01 00:00:00.0"));
        assert_eq!(at("2024-01-01 00:00:00.5"), at("2024-01-01 00:00:00.500000000"));
        assert!(at("2024-01-01 00:00:00.000000001") > at("2024-01-01 00:00:00"));
        for text in [
            "2024-01-01",
            "2024-01-01T00:00:00",
            "2024-01-01 00:00:00.",
            "2024-01-01 24:00:00",
            "2024-01-01 00:60:00",
            "2024-01-01 00:00:00.0000000001",
            "2024-01-01 00:00:00Z",
            "2024-01-01 00:00:00.5é",
        ] {
            assert!(at(text).is_none(), "{text}");
        }
        assert!(Timestamp::is_canonical("2024-01-01 00:00:00"));
        assert!(Timestamp::is_canonical("2024-01-01 00:00:00.05"));
        assert!(!Timestamp::is_canonical("2024-01-01 00:00:00.50"));
    }

    #[test]
    fn written_the_shortest_way() {
        for text in ["0000-01-01", "2024-02-29", "9999-12-31"] {
            assert_eq!(Date::parse(text).unwrap().to_string(), text);
        }
        for (text, shortest) in [
            ("2024-01-01 00:00:00", "2024-01-01 00:00:00"),
            ("2024-01-01 23:59:01.000", "2024-01-01 23:59:01"),
            ("2024-01-01 23:59:01.050", "2024-01-01 23:59:01.05"),
            ("2024-01-01 23:59:01.000000001", "2024-01-01 23:59:01.000000001"),
        ] {
            let read = Timestamp::parse(text).unwrap();
            assert_eq!(read.to_string(), shortest);
            assert!(Timestamp::is_canonical(shortest) && Timestamp::parse(shortest) == Some(read));
        }
    }
}
