//! Short texts as machine numbers, so that a comparison is one instruction or two.

/// Texts of up to so many bytes are short.
const SHORT_MAX_BYTES: usize = 15;

/// A short text as a number: its bytes, zeros, and its length last, which tells texts apart that end in zeros. Numbers are in
/// the order of the texts.
#[inline]
pub(super) fn pack(text: &[u8]) -> Option<u128> {
    let length = text.len();
    let bytes = match length {
        0..=7 => u128::from(pack_eight(text)) << 64,
        8..=SHORT_MAX_BYTES => {
            let first = u128::from(u64::from_be_bytes(*text.first_chunk()?)) << 64;
            // What both have is the same.
            first | (u128::from(u64::from_be_bytes(*text.last_chunk()?)) << (8 * (16 - length)))
        }
        _ => return None,
    };
    Some(bytes | u128::try_from(length).unwrap_or(0))
}

/// Up to eight bytes, the first one highest; zero for more.
#[inline]
fn pack_eight(text: &[u8]) -> u64 {
    let length = text.len();
    if let (Some(first), Some(last), 4..=8) = (text.first_chunk(), text.last_chunk(), length) {
        let (first, last) = (u32::from_be_bytes(*first), u32::from_be_bytes(*last));
        return (u64::from(first) << 32) | (u64::from(last) << (8 * (8 - length)));
    }
    match *text {
        [one] => u64::from(one) << 56,
        [one, two] => (u64::from(one) << 56) | (u64::from(two) << 48),
        [one, two, three] => (u64::from(one) << 56) | (u64::from(two) << 48) | (u64::from(three) << 40),
        _ => 0,
    }
}

/// One to eight digits as a number; none if there is anything else, or nothing, or more.
#[inline]
pub(super) fn few_digits(text: &[u8]) -> Option<u32> {
    const ZEROS: u64 = 0x3030_3030_3030_3030;
    const HIGH_HALVES: u64 = 0xf0f0_f0f0_f0f0_f0f0;
    const SIX: u64 = 0x0606_0606_0606_0606;
    let length = text.len();
    if !(1..=8).contains(&length) {
        return None;
    }
    // Zeros before the first one.
    let missing = u32::try_from(8 * (8 - length)).unwrap_or(0);
    let digits = (pack_eight(text) >> missing) | ZEROS.checked_shl(64 - missing).unwrap_or(0);
    let above_nine = digits.wrapping_add(SIX) & HIGH_HALVES;
    if (digits & HIGH_HALVES) != ZEROS || above_nine != ZEROS {
        return None;
    }
    // Neighbours to pairs, pairs to fours, fours to the number; the first digit lowest.
    let ones = digits.swap_bytes() & 0x0f0f_0f0f_0f0f_0f0f;
    let pairs = (ones.wrapping_mul(10 * 256 + 1) >> 8) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs.wrapping_mul(100 * 65536 + 1) >> 16) & 0x0000_ffff_0000_ffff;
    u32::try_from(fours.wrapping_mul(10_000 * (1 << 32) + 1) >> 32).ok()
}

/// A day as the number yyyymmdd; none for the 29th of February, which not every year has, and for what is no day.
#[inline]
pub(super) fn day_digits(text: &[u8]) -> Option<u32> {
    let &[y0, y1, y2, y3, b'-', m0, m1, b'-', d0, d1] = text else { return None };
    let number = few_digits(&[y0, y1, y2, y3, m0, m1, d0, d1])?;
    let (month, day) = (number / 100 % 100, number % 100);
    let exists = match day {
        1..=28 => (1..=12).contains(&month),
        29 | 30 => matches!(month, 1 | 3..=12),
        31 => matches!(month, 1 | 3 | 5 | 7 | 8 | 10 | 12),
        _ => false,
    };
    exists.then_some(number)
}

/// A second of such a day, `yyyy-MM-dd HH:mm:ss`, as the number yyyymmddHHMMSS; none for anything else.
#[inline]
pub(super) fn second_digits(text: &[u8]) -> Option<i64> {
    let (day, time) = text.split_first_chunk::<10>()?;
    let &[b' ', h0, h1, b':', m0, m1, b':', s0, s1] = time else { return None };
    let time = few_digits(&[h0, h1, m0, m1, s0, s1])?;
    let exists = time < 240_000 && time / 100 % 100 < 60 && time % 100 < 60;
    if exists { Some(i64::from(day_digits(day)?) * 1_000_000 + i64::from(time)) } else { None }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::partition::{Date, Timestamp};

    #[test]
    fn digits_are_what_they_say() {
        for number in (0..2000).chain([9999, 10_000, 99_999, 123_456, 7_654_321, 12_345_678, 99_999_999]) {
            let text = number.to_string();
            assert_eq!(few_digits(text.as_bytes()), Some(number));
            for length in text.len()..=8 {
                assert_eq!(few_digits(format!("{number:0length$}").as_bytes()), Some(number));
            }
        }
        for text in
            ["", "123456789", "-1", "+1", "1 ", "1/", "1:", "a", "12345678901", "1.5", "\u{663}", "0000000:", "\0"]
        {
            assert_eq!(few_digits(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn days_and_seconds_are_what_they_say() {
        assert_eq!(day_digits(b"2024-02-28"), Some(20_240_228));
        assert_eq!(day_digits(b"0000-12-31"), Some(1231));
        assert_eq!(second_digits(b"9999-12-31 23:59:59"), Some(99_991_231_235_959));
        for text in ["2024-02-29", "2023-02-30", "2024-04-31", "2024-00-01", "2024-13-01", "2024-01-00", "2024-01-32"] {
            assert_eq!(day_digits(text.as_bytes()), None, "{text}");
        }
        for time in ["24:00:00", "00:60:00", "00:00:60", "0:00:000", "00:00:00.", "00:00:00.5", "00-00-00", "00:00:0"] {
            assert_eq!(second_digits(format!("2024-01-01 {time}").as_bytes()), None, "{time}");
        }
        // Every day of some years, and those around.
        for (year, month, day) in [0, 1900, 2000, 2023, 2024]
            .into_iter()
            .flat_map(|y| (0..14).flat_map(move |m| (0..34).map(move |d| (y, m, d))))
        {
            let text = format!("{year:04}-{month:02}-{day:02}");
            let date = Date::parse(&text).filter(|_| (month, day) != (2, 29));
            assert_eq!(day_digits(text.as_bytes()).map(i64::from), date.map(Date::digits), "{text}");
            let text = format!("{text} 23:05:59");
            let second = Timestamp::parse(&text).filter(|_| (month, day) != (2, 29));
            assert_eq!(second_digits(text.as_bytes()), second.map(|second| second.digits().0), "{text}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn packed_texts_are_in_order(
            left in prop::collection::vec(prop::sample::select(vec![0_u8, 1, b'0', b'a', 0xff]), 0..18),
            right in prop::collection::vec(prop::sample::select(vec![0_u8, 1, b'0', b'a', 0xff]), 0..18),
        ) {
            prop_assert_eq!(pack(&left).is_some(), left.len() <= SHORT_MAX_BYTES);
            if let (Some(one), Some(other)) = (pack(&left), pack(&right)) {
                prop_assert_eq!(one.cmp(&other), left.cmp(&right));
            }
        }

        #[test]
        fn digits_are_read_or_refused(bytes in prop::collection::vec(prop_oneof![9 => b'0'..=b'9', 1 => any::<u8>()], 0..10)) {
            let is_number = (1..=8).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_digit);
            let expected = is_number.then(|| bytes.iter().fold(0, |all, digit| all * 10 + u32::from(digit - b'0')));
            prop_assert_eq!(few_digits(&bytes), expected);
        }
    }
}
