//! Numbers as texts write them.

use crate::delta::footer::Datum;

/// A number without sign, with the suffix that tells its type: `1e3` and `1D` are doubles, `1.5` is a decimal.
pub fn number(digits: &str, suffix: &str) -> Option<Datum> {
    let is_double = suffix.eq_ignore_ascii_case("D") || digits.contains(['e', 'E']);
    match suffix.to_ascii_uppercase().as_str() {
        "" | "D" if is_double => digits.parse().ok().map(Datum::Float),
        _ if is_double => None,
        _ if digits.contains('.') => {
            let scale = digits.split_once('.').map_or(0, |(_, part)| part.len());
            let unscaled = digits.replace('.', "").parse().ok()?;
            Some(Datum::Decimal { unscaled, scale: u32::try_from(scale).ok()? })
        }
        _ => digits.parse().ok().map(Datum::Int),
    }
}

/// Plain digits with a sign and a point.
pub fn parse_decimal(text: &str) -> Option<Datum> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let is_plain = [whole, part].iter().all(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
    if !is_plain || (whole.is_empty() && part.is_empty()) {
        return None;
    }
    let unscaled: i128 = format!("{whole}{part}").parse().ok()?;
    let unscaled = if text.starts_with('-') { -unscaled } else { unscaled };
    match part.len() {
        0 => Some(Datum::Int(unscaled)),
        scale => Some(Datum::Decimal { unscaled, scale: u32::try_from(scale).ok()? }),
    }
}
