//! Expressions on the values of one row. Where engines disagree, or would fail, there is no result but a reason.

use std::cmp::Ordering;

use super::comparison::Comparison;
use super::expr::{Arithmetic, Expr};
use super::functions::{call, cast};
use super::literal::parse_decimal;
use super::time::{parse_day, parse_instant};
use crate::delta::footer::Datum;

/// None: null. The error says why there is no result.
pub type Evaluated = Result<Option<Datum>, String>;

/// Evaluates a bound expression.
pub fn eval(expr: &Expr, row: &[Option<Datum>]) -> Evaluated {
    match expr {
        Expr::Literal(value) => Ok(value.clone()),
        Expr::Slot(slot) => row.get(*slot).cloned().ok_or_else(|| "a column is not bound".to_owned()),
        Expr::Column(path) => Err(format!("`{}` is not bound", path.join("."))),
        Expr::Not(inner) => Ok(truth_of(inner, row)?.map(|flag| Datum::Flag(!flag))),
        Expr::And(a, b) => connect(a, b, row, false),
        Expr::Or(a, b) => connect(a, b, row, true),
        Expr::Compare(how, a, b) => {
            let (a, b) = (eval(a, row)?, eval(b, row)?);
            Ok(compare(*how, a.as_ref(), b.as_ref())?.map(Datum::Flag))
        }
        Expr::IsNull(inner) => Ok(Some(Datum::Flag(eval(inner, row)?.is_none()))),
        Expr::In(inner, list) => is_in(eval(inner, row)?, list, row),
        Expr::Like(inner, pattern) => match eval(inner, row)? {
            None => Ok(None),
            Some(Datum::Text(text)) => Ok(Some(Datum::Flag(like(&text, pattern)))),
            Some(other) => Err(format!("LIKE of {other}, which is no text")),
        },
        Expr::Arithmetic(how, a, b) => match (eval(a, row)?, eval(b, row)?) {
            (Some(a), Some(b)) => arithmetic(*how, &a, &b).map(Some),
            _ => Ok(None),
        },
        Expr::Negative(inner) => match eval(inner, row)? {
            None => Ok(None),
            Some(value) => arithmetic(Arithmetic::Subtract, &Datum::Int(0), &value).map(Some),
        },
        Expr::Call(name, list) => {
            let values = list.iter().map(|one| eval(one, row)).collect::<Result<Vec<_>, _>>()?;
            call(name, &values)
        }
        Expr::Cast(inner, kind) => match eval(inner, row)? {
            None => Ok(None),
            Some(value) => cast(&value, kind).map(Some),
        },
        Expr::Case(branches, other) => {
            for (when, then) in branches {
                if truth_of(when, row)? == Some(true) {
                    return eval(then, row);
                }
            }
            other.as_ref().map_or(Ok(None), |other| eval(other, row))
        }
    }
}

/// The truth of a condition; none: null.
pub fn truth_of(expr: &Expr, row: &[Option<Datum>]) -> Result<Option<bool>, String> {
    match eval(expr, row)? {
        None => Ok(None),
        Some(Datum::Flag(flag)) => Ok(Some(flag)),
        Some(other) => Err(format!("{other} is neither true nor false")),
    }
}

/// AND and OR in three values; one side may decide although the other has no result.
fn connect(a: &Expr, b: &Expr, row: &[Option<Datum>], decisive: bool) -> Evaluated {
    let (a, b) = (truth_of(a, row), truth_of(b, row));
    if a == Ok(Some(decisive)) || b == Ok(Some(decisive)) {
        return Ok(Some(Datum::Flag(decisive)));
    }
    match (a?, b?) {
        (Some(_), Some(_)) => Ok(Some(Datum::Flag(!decisive))),
        _ => Ok(None),
    }
}

fn is_in(value: Option<Datum>, list: &[Expr], row: &[Option<Datum>]) -> Evaluated {
    let mut may_be = false;
    for one in list {
        let one = eval(one, row)?;
        match compare(Comparison::Equal, value.as_ref(), one.as_ref())? {
            Some(true) => return Ok(Some(Datum::Flag(true))),
            Some(false) => {}
            None => may_be = true,
        }
    }
    Ok(if may_be { None } else { Some(Datum::Flag(false)) })
}

/// None: null.
pub fn compare(how: Comparison, a: Option<&Datum>, b: Option<&Datum>) -> Result<Option<bool>, String> {
    if how == Comparison::NullSafeEqual {
        return Ok(Some(match (a, b) {
            (Some(a), Some(b)) => order(a, b)? == Ordering::Equal,
            (a, b) => a.is_none() && b.is_none(),
        }));
    }
    let (Some(a), Some(b)) = (a, b) else { return Ok(None) };
    let found = order(a, b)?;
    Ok(Some(match how {
        Comparison::Equal | Comparison::NullSafeEqual => found == Ordering::Equal,
        Comparison::NotEqual => found != Ordering::Equal,
        Comparison::Less => found == Ordering::Less,
        Comparison::LessOrEqual => found != Ordering::Greater,
        Comparison::Greater => found == Ordering::Greater,
        Comparison::GreaterOrEqual => found != Ordering::Less,
    }))
}

/// Texts beside other values are read as these.
pub fn order(a: &Datum, b: &Datum) -> Result<Ordering, String> {
    let found = match (a, b) {
        (Datum::Text(_), Datum::Text(_)) => a.compare(b),
        (Datum::Text(text), other) => read_as(text, other).and_then(|a| a.compare(other)),
        (other, Datum::Text(text)) => read_as(text, other).and_then(|b| other.compare(&b)),
        _ => a.compare(b),
    };
    found.ok_or_else(|| format!("{a} and {b} cannot be compared"))
}

/// What a text says beside such a value.
pub fn read_as(text: &str, like: &Datum) -> Option<Datum> {
    match like {
        Datum::Day(_) => parse_day(text).map(Datum::Day).or_else(|| parse_instant(text).map(Datum::Instant)),
        Datum::Instant(_) => parse_instant(text).map(Datum::Instant),
        Datum::Int(_) | Datum::Decimal { .. } => parse_decimal(text),
        Datum::Float(_) => text.parse().ok().map(Datum::Float),
        Datum::Flag(_) if text.eq_ignore_ascii_case("true") => Some(Datum::Flag(true)),
        Datum::Flag(_) if text.eq_ignore_ascii_case("false") => Some(Datum::Flag(false)),
        Datum::Flag(_) | Datum::Bytes(_) | Datum::Text(_) => None,
    }
}

/// Exact as long as both are; what engines round, wrap or fail on differently has no result.
pub fn arithmetic(how: Arithmetic, a: &Datum, b: &Datum) -> Result<Datum, String> {
    let no_result = || format!("{how:?} of {a} and {b} is not computed alike everywhere");
    if let (Some(x), Some(y)) = (a.exact(), b.exact()) {
        return exact(how, x, y).ok_or_else(no_result);
    }
    let (Some(x), Some(y)) = (a.to_f64(), b.to_f64()) else { return Err(no_result()) };
    match how {
        Arithmetic::Add => Ok(Datum::Float(x + y)),
        Arithmetic::Subtract => Ok(Datum::Float(x - y)),
        Arithmetic::Multiply => Ok(Datum::Float(x * y)),
        Arithmetic::Divide if y != 0.0 => Ok(Datum::Float(x / y)),
        Arithmetic::Remainder if y != 0.0 => Ok(Datum::Float(x % y)),
        Arithmetic::Divide | Arithmetic::Remainder => Err(no_result()),
    }
}

fn exact(how: Arithmetic, (x, x_scale): (i128, u32), (y, y_scale): (i128, u32)) -> Option<Datum> {
    let number = |unscaled: i128, scale: u32| match scale {
        // Beyond 64 bits integers overflow.
        0 => i64::try_from(unscaled).ok().map(|_| Datum::Int(unscaled)),
        scale => Some(Datum::Decimal { unscaled, scale }),
    };
    if how == Arithmetic::Multiply {
        return number(x.checked_mul(y)?, x_scale.checked_add(y_scale)?);
    }
    let scale = x_scale.max(y_scale);
    let widen = |value: i128, from: u32| value.checked_mul(10_i128.checked_pow(scale - from)?);
    let (x, y) = (widen(x, x_scale)?, widen(y, y_scale)?);
    match how {
        Arithmetic::Add => number(x.checked_add(y)?, scale),
        Arithmetic::Subtract => number(x.checked_sub(y)?, scale),
        Arithmetic::Remainder => number(x.checked_rem(y)?, scale),
        // Some engines divide integers into integers.
        Arithmetic::Divide if x.checked_rem(y)? == 0 => number(x.checked_div(y)?, 0),
        Arithmetic::Divide | Arithmetic::Multiply => None,
    }
}

/// `%` any number of letters, `_` one.
fn like(text: &str, pattern: &str) -> bool {
    let (text, pattern): (Vec<char>, Vec<char>) = (text.chars().collect(), pattern.chars().collect());
    let (mut at, mut in_pattern) = (0, 0);
    let mut back: Option<(usize, usize)> = None;
    while at < text.len() {
        match pattern.get(in_pattern) {
            Some('%') => {
                back = Some((at, in_pattern));
                in_pattern += 1;
            }
            Some(letter) if *letter == '_' || text.get(at) == Some(letter) => {
                at += 1;
                in_pattern += 1;
            }
            _ => match back {
                // The last % takes one letter more.
                Some((from, percent)) => {
                    back = Some((from + 1, percent));
                    (at, in_pattern) = (from + 1, percent + 1);
                }
                None => return false,
            },
        }
    }
    pattern.iter().skip(in_pattern).all(|letter| *letter == '%')
}
