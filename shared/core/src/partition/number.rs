//! Exact decimal numbers of any length, and their order-preserving bytes.

use std::cmp::Ordering;

/// Exponents beyond this are not read: such a value counts as one that does not parse.
const EXPONENT_MAX: i64 = 1_000_000_000;
/// A canonical text is written for numbers with at most so many places before or after the point.
const PLAIN_PLACES_MAX: i64 = 1_100;

/// `±0.d1d2d3… × 10^exponent`, without leading or trailing zero digits; no digits is zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Number {
    negative: bool,
    exponent: i32,
    digits: Vec<u8>,
}

impl Number {
    /// Digits with an optional sign, leading zeros allowed.
    pub fn parse_integer(text: &str) -> Option<Self> {
        let (negative, digits) = split_sign(text);
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        Self::build(negative, digits.bytes(), i64::try_from(digits.len()).ok()?)
    }

    /// Digits with an optional sign, point and exponent.
    pub fn parse_decimal(text: &str) -> Option<Self> {
        let (negative, rest) = split_sign(text);
        let (mantissa, exponent) = match rest.split_once(['e', 'E']) {
            None => (rest, 0),
            Some((mantissa, exponent)) => (mantissa, parse_exponent(exponent)?),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let mut digits = whole.bytes().chain(fraction.bytes());
        if (whole.is_empty() && fraction.is_empty()) || !digits.all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let places = i64::try_from(whole.len()).ok()?;
        Self::build(negative, whole.bytes().chain(fraction.bytes()), exponent.checked_add(places)?)
    }

    fn build(negative: bool, ascii: impl Iterator<Item = u8>, exponent: i64) -> Option<Self> {
        let mut digits: Vec<u8> = ascii.map(|byte| byte - b'0').collect();
        let leading = digits.iter().take_while(|digit| **digit == 0).count();
        digits.drain(..leading);
        while digits.last() == Some(&0) {
            digits.pop();
        }
        if digits.is_empty() {
            return Some(Self { negative: false, exponent: 0, digits });
        }
        let exponent = exponent.checked_sub(i64::try_from(leading).ok()?)?;
        if exponent.abs() > EXPONENT_MAX {
            return None;
        }
        Some(Self { negative, exponent: i32::try_from(exponent).ok()?, digits })
    }

    /// The shortest plain way to write it; none for numbers that would take too many places.
    pub fn canonical(&self) -> Option<String> {
        if self.digits.is_empty() {
            return Some("0".to_owned());
        }
        let exponent = i64::from(self.exponent);
        if exponent.abs() > PLAIN_PLACES_MAX {
            return None;
        }
        let mut text = String::new();
        if self.negative {
            text.push('-');
        }
        let length = i64::try_from(self.digits.len()).ok()?;
        if exponent <= 0 {
            text.push_str("0.");
            (exponent..0).for_each(|_| text.push('0'));
        }
        for (at, digit) in self.digits.iter().enumerate() {
            if at > 0 && i64::try_from(at).ok()? == exponent {
                text.push('.');
            }
            text.push(char::from(b'0' + digit));
        }
        (length..exponent).for_each(|_| text.push('0'));
        Some(text)
    }

    /// Bytes whose order is the order of the numbers; none is a prefix of another.
    pub fn encode(&self, into: &mut Vec<u8>) {
        if self.digits.is_empty() {
            return into.push(0x80);
        }
        let start = into.len();
        into.push(0xc0);
        // The sign bit flipped: two's complement in unsigned order.
        into.extend_from_slice(&(self.exponent.cast_unsigned() ^ 0x8000_0000).to_be_bytes());
        for pair in self.digits.chunks(2) {
            let (tens, ones) = (pair.first().copied().unwrap_or(0), pair.get(1).copied().unwrap_or(0));
            into.push(tens * 10 + ones + 1);
        }
        into.push(0);
        if self.negative {
            into.iter_mut().skip(start).for_each(|byte| *byte = !*byte);
        }
    }
}

impl Ord for Number {
    fn cmp(&self, other: &Self) -> Ordering {
        let sign = |number: &Self| match (number.digits.is_empty(), number.negative) {
            (true, _) => 0,
            (false, true) => -1,
            (false, false) => 1,
        };
        let size =
            |left: &Self, right: &Self| left.exponent.cmp(&right.exponent).then_with(|| left.digits.cmp(&right.digits));
        sign(self).cmp(&sign(other)).then_with(|| if self.negative { size(other, self) } else { size(self, other) })
    }
}

impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

fn split_sign(text: &str) -> (bool, &str) {
    match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    }
}

fn parse_exponent(text: &str) -> Option<i64> {
    let (negative, digits) = split_sign(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let exponent: i64 = digits.parse().ok()?;
    Some(if negative { -exponent } else { exponent })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings() {
        for (text, expected) in [
            ("0", Some("0")),
            ("-0", Some("0")),
            ("000", Some("0")),
            ("01", Some("1")),
            ("+7", Some("7")),
            ("-20240101", Some("-20240101")),
            ("1200", Some("1200")),
            ("", None),
            ("-", None),
            ("+-1", None),
            ("1.0", None),
            (" 1", None),
            ("1e3", None),
            ("٣", None),
            ("null", None),
        ] {
            let read = Number::parse_integer(text).map(|number| number.canonical().unwrap());
            assert_eq!(read.as_deref(), expected, "{text}");
        }
        for (text, expected) in [
            ("1.50", Some("1.5")),
            ("10.13400", Some("10.134")),
            (".5", Some("0.5")),
            ("5.", Some("5")),
            ("-0.0", Some("0")),
            ("3e14", Some("300000000000000")),
            ("3E-3", Some("0.003")),
            ("12.34e1", Some("123.4")),
            ("0.00120", Some("0.0012")),
            ("1e", None),
            (".", None),
            ("1.2.3", None),
            ("1e99999999999999999999", None),
            ("1e2000000000", None),
            ("NaN", None),
        ] {
            let read = Number::parse_decimal(text).map(|number| number.canonical().unwrap());
            assert_eq!(read.as_deref(), expected, "{text}");
        }
        assert_eq!(Number::parse_decimal("1e900000000").unwrap().canonical(), None);
    }

    #[test]
    fn bytes_are_ordered_like_numbers() {
        let ordered = [
            "-1e9", "-123.5", "-123", "-12", "-1", "-0.5", "-0.05", "0", "0.001", "0.01", "0.1", "0.11", "1", "9",
            "10", "11", "99", "100", "101", "1e9",
        ];
        let encoded: Vec<Vec<u8>> = ordered
            .iter()
            .map(|text| {
                let mut bytes = Vec::new();
                Number::parse_decimal(text).unwrap().encode(&mut bytes);
                bytes
            })
            .collect();
        assert!(encoded.is_sorted(), "{encoded:?}");
        let numbers: Vec<Number> = ordered.iter().map(|text| Number::parse_decimal(text).unwrap()).collect();
        assert!(numbers.is_sorted());
    }
}
