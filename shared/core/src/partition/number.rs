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

/// A number as it stands in a text: read, and compared with a [`Number`], without copying a digit.
#[derive(Clone, Copy, Debug)]
pub struct NumberText<'a> {
    negative: bool,
    exponent: i32,
    /// Digits before and after the point, without those that [`Number`] leaves out.
    whole: &'a [u8],
    fraction: &'a [u8],
}

impl<'a> NumberText<'a> {
    /// Digits with an optional sign, leading zeros allowed.
    pub fn integer(text: &'a str) -> Option<Self> {
        let (negative, digits) = split_sign(text);
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        Self::build(negative, digits.as_bytes(), &[], 0)
    }

    /// Digits with an optional sign, point and exponent.
    pub fn decimal(text: &'a str) -> Option<Self> {
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
        Self::build(negative, whole.as_bytes(), fraction.as_bytes(), exponent)
    }

    fn build(negative: bool, whole: &'a [u8], fraction: &'a [u8], exponent: i64) -> Option<Self> {
        let exponent = exponent.checked_add(i64::try_from(whole.len()).ok()?)?;
        let places = whole.len() + fraction.len();
        let (mut whole, mut fraction) = (without_leading_zeros(whole), fraction);
        if whole.is_empty() {
            fraction = without_leading_zeros(fraction);
        }
        let leading = places - whole.len() - fraction.len();
        fraction = without_trailing_zeros(fraction);
        if fraction.is_empty() {
            whole = without_trailing_zeros(whole);
        }
        if whole.is_empty() && fraction.is_empty() {
            return Some(Self { negative: false, exponent: 0, whole, fraction });
        }
        let exponent = exponent.checked_sub(i64::try_from(leading).ok()?)?;
        if exponent.abs() > EXPONENT_MAX {
            return None;
        }
        Some(Self { negative, exponent: i32::try_from(exponent).ok()?, whole, fraction })
    }

    fn digits(&self) -> impl Iterator<Item = u8> {
        self.whole.iter().chain(self.fraction).map(|byte| byte - b'0')
    }

    fn sign(&self) -> i8 {
        sign_of(self.whole.is_empty() && self.fraction.is_empty(), self.negative)
    }

    /// Its place relative to `other`.
    pub fn compare(&self, other: &Number) -> Ordering {
        self.sign().cmp(&other.sign()).then_with(|| {
            let size = self.exponent.cmp(&other.exponent).then_with(|| self.digits().cmp(other.digits.iter().copied()));
            if self.negative { size.reverse() } else { size }
        })
    }

    pub fn to_number(&self) -> Number {
        Number { negative: self.negative, exponent: self.exponent, digits: self.digits().collect() }
    }
}

fn without_leading_zeros(digits: &[u8]) -> &[u8] {
    digits.iter().position(|digit| *digit != b'0').and_then(|at| digits.get(at..)).unwrap_or_default()
}

fn without_trailing_zeros(digits: &[u8]) -> &[u8] {
    digits.iter().rposition(|digit| *digit != b'0').and_then(|at| digits.get(..=at)).unwrap_or_default()
}

fn sign_of(is_zero: bool, negative: bool) -> i8 {
    match (is_zero, negative) {
        (true, _) => 0,
        (false, true) => -1,
        (false, false) => 1,
    }
}

impl Number {
    /// Digits with an optional sign, leading zeros allowed.
    pub fn parse_integer(text: &str) -> Option<Self> {
        NumberText::integer(text).map(|number| number.to_number())
    }

    /// Digits with an optional sign, point and exponent.
    pub fn parse_decimal(text: &str) -> Option<Self> {
        NumberText::decimal(text).map(|number| number.to_number())
    }

    fn sign(&self) -> i8 {
        sign_of(self.digits.is_empty(), self.negative)
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
        let size =
            |left: &Self, right: &Self| left.exponent.cmp(&right.exponent).then_with(|| left.digits.cmp(&right.digits));
        self.sign().cmp(&other.sign()).then_with(|| if self.negative { size(other, self) } else { size(self, other) })
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

    #[test]
    fn a_text_compares_like_the_number_it_says() {
        let texts = [
            "-1e9", "-123.5", "-123.50", "-0012", "-1", "-.5", "-0.05", "-0", "0", "0e5", "0.000", "0.001", "00.0010",
            "0.1", ".10", "1", "1.", "001", "1.0", "9", "10", "1e1", "10.0", "11", "100", "0.1e3", "101", "1e9",
        ];
        for left in texts {
            for right in texts {
                let number = Number::parse_decimal(right).unwrap();
                let expected = Number::parse_decimal(left).unwrap().cmp(&number);
                assert_eq!(NumberText::decimal(left).unwrap().compare(&number), expected, "{left} {right}");
            }
        }
    }
}
