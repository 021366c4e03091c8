//! Functions and casts that all engines compute alike.

use super::eval::{Evaluated, arithmetic};
use super::expr::Arithmetic;
use super::literal::parse_decimal;
use super::time::{self, NANOS_PER_DAY, parse_day, parse_instant};
use crate::delta::footer::Datum;
use crate::delta::schema::Primitive;

/// Calls a function with its values; null among them makes most of them null.
pub fn call(name: &str, values: &[Option<Datum>]) -> Evaluated {
    let unknown = || Err(format!("the function `{name}` with {} values is not known", values.len()));
    match (name, values) {
        ("coalesce", _) | ("nvl" | "ifnull", [_, _]) => return Ok(values.iter().flatten().next().cloned()),
        ("isnull", [value]) => return Ok(Some(Datum::Flag(value.is_none()))),
        ("isnotnull", [value]) => return Ok(Some(Datum::Flag(value.is_some()))),
        ("isnan", [None]) => return Ok(Some(Datum::Flag(false))),
        ("if", [Some(Datum::Flag(flag)), then, other]) => return Ok(if *flag { then.clone() } else { other.clone() }),
        ("if", [None, _, other]) => return Ok(other.clone()),
        _ => {}
    }
    let Some(values) = values.iter().map(Option::as_ref).collect::<Option<Vec<&Datum>>>() else {
        return if is_known(name) { Ok(None) } else { unknown() };
    };
    let found = match (name, values.as_slice()) {
        ("abs", [value]) => match value.to_f64() {
            Some(number) if number < 0.0 => arithmetic(Arithmetic::Subtract, &Datum::Int(0), value)?,
            Some(_) => (*value).clone(),
            None => return unknown(),
        },
        ("isnan", [value]) => Datum::Flag(value.is_nan()),
        ("mod", [a, b]) => arithmetic(Arithmetic::Remainder, a, b)?,
        ("floor", [value]) => round(value, f64::floor, 0).ok_or("floor of what is no number")?,
        ("ceil" | "ceiling", [value]) => round(value, f64::ceil, 1).ok_or("ceil of what is no number")?,
        ("date" | "to_date", [value]) => cast(value, &Primitive::Date)?,
        ("year" | "month" | "day" | "dayofmonth" | "hour" | "minute" | "second", [value]) => field(name, value)?,
        ("date_format", [value, Datum::Text(pattern)]) => {
            let text = time::format(instant(value)?, pattern);
            Datum::Text(text.ok_or_else(|| format!("the pattern `{pattern}` is not known"))?)
        }
        ("trunc", [value, Datum::Text(unit)]) => Datum::Day(day_of(truncated(unit, value)?)?),
        ("date_trunc", [Datum::Text(unit), value]) => Datum::Instant(truncated(unit, value)?),
        _ => return text(name, &values).map_or_else(unknown, |value| Ok(Some(value))),
    };
    Ok(Some(found))
}

const KNOWN: [&str; 31] = [
    "abs",
    "mod",
    "floor",
    "ceil",
    "ceiling",
    "date",
    "to_date",
    "year",
    "month",
    "day",
    "dayofmonth",
    "hour",
    "minute",
    "second",
    "date_format",
    "trunc",
    "date_trunc",
    "length",
    "char_length",
    "character_length",
    "lower",
    "lcase",
    "upper",
    "ucase",
    "trim",
    "concat",
    "substring",
    "substr",
    "left",
    "startswith",
    "endswith",
];

fn is_known(name: &str) -> bool {
    KNOWN.contains(&name)
}

fn text(name: &str, values: &[&Datum]) -> Option<Datum> {
    Some(match (name, values) {
        ("length" | "char_length" | "character_length", [Datum::Text(text)]) => {
            Datum::Int(i128::try_from(text.chars().count()).ok()?)
        }
        ("lower" | "lcase", [Datum::Text(text)]) => Datum::Text(text.to_lowercase()),
        ("upper" | "ucase", [Datum::Text(text)]) => Datum::Text(text.to_uppercase()),
        ("trim", [Datum::Text(text)]) => Datum::Text(text.trim_matches(' ').to_owned()),
        ("startswith", [Datum::Text(text), Datum::Text(start)]) => Datum::Flag(text.starts_with(start.as_str())),
        ("endswith", [Datum::Text(text), Datum::Text(end)]) => Datum::Flag(text.ends_with(end.as_str())),
        ("concat", parts) => {
            let parts = parts.iter().map(|part| cast(part, &Primitive::String).ok().map(|part| part.to_string()));
            Datum::Text(parts.collect::<Option<String>>()?)
        }
        ("left", [Datum::Text(text), Datum::Int(count)]) => {
            Datum::Text(text.chars().take(usize::try_from(*count).ok()?).collect())
        }
        ("substring" | "substr", [Datum::Text(text), Datum::Int(from)]) => {
            Datum::Text(text.chars().skip(usize::try_from(from - 1).ok()?).collect())
        }
        ("substring" | "substr", [Datum::Text(text), Datum::Int(from), Datum::Int(count)]) => {
            let letters = text.chars().skip(usize::try_from(from - 1).ok()?);
            Datum::Text(letters.take(usize::try_from(*count).ok()?).collect())
        }
        _ => return None,
    })
}

/// Towards one side, as an integer. `up` is added to exact numbers with a fraction.
fn round(value: &Datum, floats: fn(f64) -> f64, up: i128) -> Option<Datum> {
    if let Datum::Float(value) = value {
        // Casting saturates, which engines do not all do.
        let whole = floats(*value);
        return (whole.abs() < 9e15).then_some(Datum::Int(whole as i128));
    }
    let (unscaled, scale) = value.exact()?;
    let unit = 10_i128.checked_pow(scale)?;
    let has_part = unscaled.rem_euclid(unit) != 0;
    Some(Datum::Int(unscaled.div_euclid(unit) + if has_part { up } else { 0 }))
}

fn instant(value: &Datum) -> Result<i128, String> {
    match value {
        Datum::Instant(nanos) => Ok(*nanos),
        Datum::Day(day) => Ok(i128::from(*day) * NANOS_PER_DAY),
        Datum::Text(text) => parse_instant(text).ok_or_else(|| format!("`{text}` is no timestamp")),
        other => Err(format!("{other} is no timestamp")),
    }
}

fn day_of(nanos: i128) -> Result<i64, String> {
    i64::try_from(nanos.div_euclid(NANOS_PER_DAY)).map_err(|_| "a date out of range".to_owned())
}

fn field(name: &str, value: &Datum) -> Result<Datum, String> {
    let [year, month, day, hour, minute, second] =
        time::fields(instant(value)?).ok_or_else(|| format!("{value} is out of range"))?;
    let found = match name {
        "year" => year,
        "month" => month,
        "day" | "dayofmonth" => day,
        "hour" => hour,
        "minute" => minute,
        _ => second,
    };
    Ok(Datum::Int(found.into()))
}

fn truncated(unit: &str, value: &Datum) -> Result<i128, String> {
    let nanos = instant(value)?;
    let [year, month, _, hour, ..] = time::fields(nanos).ok_or_else(|| format!("{value} is out of range"))?;
    let day = |year, month| crate::delta::footer::day_of(year, month, 1).map(|day| i128::from(day) * NANOS_PER_DAY);
    let midnight = nanos.div_euclid(NANOS_PER_DAY) * NANOS_PER_DAY;
    let found = match unit.to_ascii_lowercase().as_str() {
        "year" | "yyyy" | "yy" => day(year, 1),
        "month" | "mon" | "mm" => day(year, month),
        "day" | "dd" => Some(midnight),
        "hour" => Some(midnight + i128::from(hour) * 3_600_000_000_000),
        _ => None,
    };
    found.ok_or_else(|| format!("the unit `{unit}` is not known"))
}

/// What cannot be cast without loss, or not alike everywhere, has no result.
pub fn cast(value: &Datum, kind: &Primitive) -> Result<Datum, String> {
    let found = match kind {
        Primitive::String => text_of(value),
        Primitive::Byte => integer(value, 8),
        Primitive::Short => integer(value, 16),
        Primitive::Integer => integer(value, 32),
        Primitive::Long => integer(value, 64),
        Primitive::Double => number(value).and_then(|value| value.to_f64()).map(Datum::Float),
        Primitive::Float => {
            let single = |value: f64| Datum::Float(f64::from(value as f32));
            number(value).and_then(|value| value.to_f64()).map(single)
        }
        Primitive::Decimal { precision, scale } => decimal(value, *precision, *scale),
        Primitive::Boolean => match value {
            Datum::Flag(_) => Some(value.clone()),
            Datum::Text(text) if text.eq_ignore_ascii_case("true") => Some(Datum::Flag(true)),
            Datum::Text(text) if text.eq_ignore_ascii_case("false") => Some(Datum::Flag(false)),
            _ => None,
        },
        Primitive::Date => match value {
            Datum::Text(text) => {
                parse_day(text).map(Datum::Day).or_else(|| day_of(parse_instant(text)?).ok().map(Datum::Day))
            }
            Datum::Day(_) | Datum::Instant(_) => day_of(instant(value)?).ok().map(Datum::Day),
            _ => None,
        },
        Primitive::Timestamp | Primitive::TimestampNtz => match value {
            Datum::Text(_) | Datum::Day(_) | Datum::Instant(_) => Some(Datum::Instant(instant(value)?)),
            _ => None,
        },
        Primitive::Binary => match value {
            Datum::Bytes(_) => Some(value.clone()),
            Datum::Text(text) => Some(Datum::Bytes(text.as_bytes().to_vec())),
            _ => None,
        },
    };
    found.ok_or_else(|| format!("{value} as {kind} is not computed"))
}

fn text_of(value: &Datum) -> Option<Datum> {
    match value {
        Datum::Text(_) => Some(value.clone()),
        Datum::Flag(_) | Datum::Int(_) | Datum::Decimal { .. } | Datum::Day(_) => Some(Datum::Text(value.to_string())),
        // Zeros at the end of fractions, exponents and encodings differ.
        Datum::Instant(nanos) if nanos % 1_000_000_000 == 0 => Some(Datum::Text(value.to_string())),
        Datum::Instant(_) | Datum::Float(_) | Datum::Bytes(_) => None,
    }
}

fn number(value: &Datum) -> Option<Datum> {
    match value {
        Datum::Text(text) => parse_decimal(text.trim()),
        Datum::Int(_) | Datum::Decimal { .. } | Datum::Float(_) => Some(value.clone()),
        _ => None,
    }
}

/// Fractions are cut; what does not fit has no result.
fn integer(value: &Datum, bits: u32) -> Option<Datum> {
    let whole = match number(value)? {
        Datum::Float(value) if value.abs() < 9e15 => value.trunc() as i128,
        Datum::Float(_) => return None,
        exact => {
            let (unscaled, scale) = exact.exact()?;
            unscaled / 10_i128.checked_pow(scale)?
        }
    };
    let limit = 1_i128.checked_shl(bits - 1)?;
    (-limit..limit).contains(&whole).then_some(Datum::Int(whole))
}

/// Half away from zero.
fn decimal(value: &Datum, precision: u8, scale: u8) -> Option<Datum> {
    let (unscaled, from) = number(value)?.exact()?;
    let scale = u32::from(scale);
    let unscaled = match scale.checked_sub(from) {
        Some(more) => unscaled.checked_mul(10_i128.checked_pow(more)?)?,
        None => {
            let unit = 10_i128.checked_pow(from - scale)?;
            let half = if unscaled < 0 { -(unit / 2) } else { unit / 2 };
            unscaled.checked_add(half)? / unit
        }
    };
    let limit = 10_i128.checked_pow(u32::from(precision))?;
    (unscaled.abs() < limit).then_some(Datum::Decimal { unscaled, scale })
}
