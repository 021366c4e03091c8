//! Expressions on what statistics say of many rows: proved, refuted by some row, or left open.

use std::cmp::Ordering;

use crate::commit::sql::{Arithmetic, Comparison, Expr, NANOS_PER_DAY, arithmetic, eval, order, read_as, time};
use crate::delta::footer::{Bound, Datum, LeafFacts};
use crate::delta::schema::Primitive;

/// How many of the rows are null.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NullRows {
    None,
    Some,
    All,
    Unknown,
}

/// The values of an expression in a set of rows, which is not empty.
#[derive(Clone, Debug, PartialEq)]
pub struct Range {
    pub low: Option<Bound>,
    pub high: Option<Bound>,
    pub nulls: NullRows,
    pub may_be_nan: bool,
}

impl Range {
    /// Nothing is known.
    pub fn any() -> Range {
        Range { low: None, high: None, nulls: NullRows::Unknown, may_be_nan: true }
    }

    pub fn null() -> Range {
        Range { low: None, high: None, nulls: NullRows::All, may_be_nan: false }
    }

    pub fn point(value: Datum) -> Range {
        if value.is_nan() {
            return Range { nulls: NullRows::None, ..Range::any() };
        }
        let bound = Some(Bound { value, is_exact: true });
        Range { low: bound.clone(), high: bound, nulls: NullRows::None, may_be_nan: false }
    }

    pub fn of_facts(facts: &LeafFacts) -> Range {
        let nulls = match facts.nulls {
            Some(0) => NullRows::None,
            Some(nulls) if nulls >= facts.rows => return Range::null(),
            Some(_) => NullRows::Some,
            None => NullRows::Unknown,
        };
        Range { low: facts.low.clone(), high: facts.high.clone(), nulls, may_be_nan: facts.may_be_nan }
    }

    /// The one value of all rows that are not null.
    fn single(&self) -> Option<&Datum> {
        let (low, high) = (self.low.as_ref()?, self.high.as_ref()?);
        let is_one = !self.may_be_nan && low.value.compare(&high.value) == Some(Ordering::Equal);
        is_one.then_some(&low.value)
    }

    /// The value of every row; outer none: rows differ, or may.
    fn constant(&self) -> Option<Option<&Datum>> {
        match self.nulls {
            NullRows::All => Some(None),
            NullRows::None => self.single().map(Some),
            NullRows::Some | NullRows::Unknown => None,
        }
    }
}

/// What is known of a condition in the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Truth {
    /// It is true in every row.
    pub always: bool,
    /// It is true in no row.
    pub never: bool,
    /// There is a row in which it is not true.
    pub has_witness: bool,
}

impl Truth {
    fn of(value: Option<bool>) -> Truth {
        match value {
            Some(true) => Truth { always: true, ..Truth::default() },
            _ => Truth { never: true, has_witness: true, ..Truth::default() },
        }
    }
}

/// What is known of a bound condition.
pub fn truth(expr: &Expr, slots: &[Range]) -> Truth {
    condition(expr, false, slots)
}

/// Of the condition, or of its negation: NOT is carried down to where it is known.
fn condition(expr: &Expr, negates: bool, slots: &[Range]) -> Truth {
    if let Some(value) = constant(expr, slots) {
        return match value {
            Some(Datum::Flag(flag)) => Truth::of(Some(flag != negates)),
            None => Truth::of(None),
            Some(_) => Truth::default(),
        };
    }
    match expr {
        Expr::Not(inner) => condition(inner, !negates, slots),
        Expr::And(a, b) | Expr::Or(a, b) => {
            let (a, b) = (condition(a, negates, slots), condition(b, negates, slots));
            if matches!(expr, Expr::And(..)) != negates { both(a, b) } else { either(a, b) }
        }
        Expr::Compare(Comparison::NullSafeEqual, a, b) => null_safe(&range(a, slots), &range(b, slots), negates),
        Expr::Compare(how, a, b) => {
            let how = if negates { how.opposite() } else { *how };
            compared(how, &range(a, slots), &range(b, slots))
        }
        Expr::IsNull(inner) => is_null(&range(inner, slots), negates),
        Expr::In(inner, list) => {
            let inner = range(inner, slots);
            let how = if negates { Comparison::NotEqual } else { Comparison::Equal };
            let each = list.iter().map(|one| compared(how, &inner, &range(one, slots)));
            let empty = Truth::of(Some(negates));
            each.reduce(|a, b| if negates { both(a, b) } else { either(a, b) }).unwrap_or(empty)
        }
        Expr::Slot(_) => {
            let flag = Range::point(Datum::Flag(!negates));
            compared(Comparison::Equal, &range(expr, slots), &flag)
        }
        _ => Truth::default(),
    }
}

fn both(a: Truth, b: Truth) -> Truth {
    Truth { always: a.always && b.always, never: a.never || b.never, has_witness: a.has_witness || b.has_witness }
}

fn either(a: Truth, b: Truth) -> Truth {
    Truth {
        always: a.always || b.always,
        never: a.never && b.never,
        has_witness: (a.has_witness && b.never) || (a.never && b.has_witness),
    }
}

fn is_null(range: &Range, negates: bool) -> Truth {
    let (all, none) = if negates { (NullRows::None, NullRows::All) } else { (NullRows::All, NullRows::None) };
    Truth {
        always: range.nulls == all,
        never: range.nulls == none,
        // Where some are null, others are not: facts with nothing but nulls say so.
        has_witness: range.nulls == none || range.nulls == NullRows::Some,
    }
}

/// Whether every value of one range is so to every value of the other; none: not known.
fn always_so(a: Option<&Bound>, b: Option<&Bound>, wanted: &[Ordering]) -> bool {
    let (Some(a), Some(b)) = (a, b) else { return false };
    order(&a.value, &b.value).is_ok_and(|found| wanted.contains(&found))
}

fn compared(how: Comparison, a: &Range, b: &Range) -> Truth {
    if a.nulls == NullRows::All || b.nulls == NullRows::All {
        return Truth::of(None);
    }
    use Ordering::{Equal, Greater, Less};
    let (a, b) = (&read_alike(a, b), &read_alike(b, a));
    let (holds, fails) = match how {
        // NaN is above all others: as the smaller one it may spoil what bounds say, as the larger one it does not.
        Comparison::Less => (below(a, b, &[Less]), below(b, a, &[Less, Equal])),
        Comparison::LessOrEqual => (below(a, b, &[Less, Equal]), below(b, a, &[Less])),
        Comparison::Greater => (below(b, a, &[Less]), below(a, b, &[Less, Equal])),
        Comparison::GreaterOrEqual => (below(b, a, &[Less, Equal]), below(a, b, &[Less])),
        Comparison::Equal | Comparison::NullSafeEqual => (same(a, b), apart(a, b)),
        Comparison::NotEqual => (apart(a, b), same(a, b)),
    };
    let no_nulls = a.nulls == NullRows::None && b.nulls == NullRows::None;
    let has_null = a.nulls == NullRows::Some || b.nulls == NullRows::Some;
    let wrong: &[Ordering] = match how {
        Comparison::Less => &[Equal, Greater],
        Comparison::LessOrEqual => &[Greater],
        Comparison::Greater => &[Less, Equal],
        Comparison::GreaterOrEqual => &[Less],
        Comparison::Equal | Comparison::NullSafeEqual => &[Less, Greater],
        Comparison::NotEqual => &[Equal],
    };
    let turned: Vec<Ordering> = wrong.iter().map(|found| found.reverse()).collect();
    let has_witness = fails || has_null || ends_witness(a, b, wrong) || ends_witness(b, a, &turned);
    Truth { always: holds && no_nulls, never: fails, has_witness }
}

/// A range of texts beside one of other values: a single text is read as one of these; the order of several says nothing.
fn read_alike(texts: &Range, other: &Range) -> Range {
    let is_text = |end: &Bound| matches!(end.value, Datum::Text(_));
    let Some(like) = other.low.as_ref().or(other.high.as_ref()).filter(|end| !is_text(end)) else {
        return texts.clone();
    };
    if !texts.low.as_ref().or(texts.high.as_ref()).is_some_and(is_text) {
        return texts.clone();
    }
    match texts.constant() {
        Some(Some(Datum::Text(text))) => match read_as(text, &like.value) {
            Some(value) => Range::point(value),
            None => Range { nulls: texts.nulls, ..Range::any() },
        },
        _ => Range { nulls: texts.nulls, ..Range::any() },
    }
}

/// Every value of `a` is so to every value of `b`, `a` being the lower one.
fn below(a: &Range, b: &Range, wanted: &[Ordering]) -> bool {
    !a.may_be_nan && always_so(a.high.as_ref(), b.low.as_ref(), wanted)
}

fn same(a: &Range, b: &Range) -> bool {
    match (a.single(), b.single()) {
        (Some(a), Some(b)) => order(a, b) == Ok(Ordering::Equal),
        _ => false,
    }
}

fn apart(a: &Range, b: &Range) -> bool {
    let both_nan = a.may_be_nan && b.may_be_nan;
    let is_below = |a: &Range, b: &Range| always_so(a.high.as_ref(), b.low.as_ref(), &[Ordering::Less]);
    !both_nan && (is_below(a, b) || is_below(b, a))
}

/// An end of `a` that is a value of some row, and wrong beside the one value that `b` has in every row.
fn ends_witness(a: &Range, b: &Range, wrong: &[Ordering]) -> bool {
    let Some(Some(other)) = b.constant() else { return false };
    [&a.low, &a.high]
        .into_iter()
        .flatten()
        .any(|end| end.is_exact && order(&end.value, other).is_ok_and(|found| wrong.contains(&found)))
}

fn null_safe(a: &Range, b: &Range, negates: bool) -> Truth {
    let is_sure = |range: &Range| range.nulls == NullRows::None;
    let is_all = |range: &Range| range.nulls == NullRows::All;
    if is_sure(a) && is_sure(b) {
        return compared(if negates { Comparison::NotEqual } else { Comparison::Equal }, a, b);
    }
    // One side null in every row.
    for (null, other) in [(a, b), (b, a)] {
        if is_all(null) {
            return is_null(other, negates);
        }
    }
    let values = compared(Comparison::Equal, a, b);
    // A row that is null on one side only.
    let one_sided = (a.nulls == NullRows::Some && is_sure(b)) || (is_sure(a) && b.nulls == NullRows::Some);
    // An end that is a row's value, with a constant other side, is a witness whatever the nulls are.
    let has_witness = one_sided
        || ends_witness(a, b, &[Ordering::Less, Ordering::Greater])
        || ends_witness(b, a, &[Ordering::Less, Ordering::Greater]);
    if negates {
        // Different values and not null on both sides: null on one side only is different, too.
        let never_both_null = is_sure(a) || is_sure(b);
        return Truth { always: values.never && never_both_null, ..Truth::default() };
    }
    Truth { always: false, never: values.never && (is_sure(a) || is_sure(b)), has_witness }
}

/// The value of an expression that is the same in all rows; outer none: not known to be.
fn constant(expr: &Expr, slots: &[Range]) -> Option<Option<Datum>> {
    let mut row: Vec<Option<Datum>> = vec![None; slots.len()];
    for slot in expr.slots() {
        let value = slots.get(slot)?.constant()?;
        *row.get_mut(slot)? = value.cloned();
    }
    eval(expr, &row).ok()
}

/// The values of an expression.
fn range(expr: &Expr, slots: &[Range]) -> Range {
    if let Some(value) = constant(expr, slots) {
        return value.map_or_else(Range::null, Range::point);
    }
    match expr {
        Expr::Slot(slot) => slots.get(*slot).cloned().unwrap_or_else(Range::any),
        Expr::Negative(inner) => {
            let inner = range(inner, slots);
            let flip = |end: Option<Bound>| {
                end.and_then(|end| mapped(&end, &|value| Expr::Negative(Box::new(Expr::Literal(Some(value))))))
            };
            Range { low: flip(inner.high), high: flip(inner.low), nulls: inner.nulls, may_be_nan: inner.may_be_nan }
        }
        Expr::Arithmetic(how @ (Arithmetic::Add | Arithmetic::Subtract), a, b) => {
            sum(*how, &range(a, slots), &range(b, slots))
        }
        Expr::Cast(inner, kind) => {
            let inner = range(inner, slots);
            monotone(&inner, &|low, high| is_monotone_cast(low, high, kind), &|value| {
                Expr::Cast(Box::new(Expr::Literal(Some(value))), kind.clone())
            })
        }
        Expr::Call(name, list) => match list.as_slice() {
            [inner] => monotone(&range(inner, slots), &|low, high| is_monotone_call(name, "", low, high), &|value| {
                Expr::Call(name.clone(), vec![Expr::Literal(Some(value))])
            }),
            [inner, unit @ Expr::Literal(Some(Datum::Text(pattern)))] => {
                let is_monotone = |low: &Datum, high: &Datum| is_monotone_call(name, pattern, low, high);
                monotone(&range(inner, slots), &is_monotone, &|value| {
                    Expr::Call(name.clone(), vec![Expr::Literal(Some(value)), unit.clone()])
                })
            }
            [unit @ Expr::Literal(Some(Datum::Text(_))), inner] if name == "date_trunc" => {
                monotone(&range(inner, slots), &|_, _| true, &|value| {
                    Expr::Call(name.clone(), vec![unit.clone(), Expr::Literal(Some(value))])
                })
            }
            _ => Range::any(),
        },
        _ => Range::any(),
    }
}

fn mapped(end: &Bound, with: &dyn Fn(Datum) -> Expr) -> Option<Bound> {
    let value = eval(&with(end.value.clone()), &[]).ok()??;
    (!value.is_nan()).then_some(Bound { value, is_exact: end.is_exact })
}

/// A function that keeps the order of values between the two ends, and null of null.
fn monotone(inner: &Range, keeps_order: &dyn Fn(&Datum, &Datum) -> bool, with: &dyn Fn(Datum) -> Expr) -> Range {
    let (Some(low), Some(high)) = (&inner.low, &inner.high) else { return Range::any() };
    if inner.may_be_nan || !keeps_order(&low.value, &high.value) {
        return Range::any();
    }
    match (mapped(low, with), mapped(high, with)) {
        (Some(low), Some(high)) => Range { low: Some(low), high: Some(high), nulls: inner.nulls, may_be_nan: false },
        _ => Range::any(),
    }
}

fn is_monotone_cast(low: &Datum, high: &Datum, kind: &Primitive) -> bool {
    let is_number = |value: &Datum| value.to_f64().is_some();
    let is_time = |value: &Datum| matches!(value, Datum::Day(_) | Datum::Instant(_));
    match kind {
        Primitive::String => matches!((low, high), (Datum::Text(_), Datum::Text(_)) | (Datum::Day(_), Datum::Day(_))),
        Primitive::Date | Primitive::Timestamp | Primitive::TimestampNtz => is_time(low) && is_time(high),
        Primitive::Boolean | Primitive::Binary => false,
        _ => is_number(low) && is_number(high),
    }
}

/// Parts of dates grow with them as long as the larger parts stay the same.
fn is_monotone_call(name: &str, pattern: &str, low: &Datum, high: &Datum) -> bool {
    let parts = |value: &Datum| match value {
        Datum::Day(day) => time::fields(i128::from(*day) * NANOS_PER_DAY),
        Datum::Instant(nanos) => time::fields(*nanos),
        _ => None,
    };
    let (Some(from), Some(to)) = (parts(low), parts(high)) else {
        return matches!(name, "floor" | "ceil" | "ceiling") && low.to_f64().is_some() && high.to_f64().is_some();
    };
    let same = |count: usize| from.get(..count) == to.get(..count);
    match name {
        "date" | "to_date" | "year" | "trunc" => true,
        "month" => same(1),
        "day" | "dayofmonth" => same(2),
        "hour" => same(3),
        "minute" => same(4),
        "second" => same(5),
        // From the year down, in this order.
        "date_format" => {
            let whole = ["yyyy", "MM", "dd", "HH", "mm", "ss"];
            let mut rest = pattern;
            for part in whole {
                let Some(tail) = rest.strip_prefix(part) else { break };
                rest = tail.strip_prefix(['-', '/', ' ', ':', '.', '_']).unwrap_or(tail);
            }
            rest.is_empty() && pattern.starts_with("yyyy")
        }
        _ => false,
    }
}

/// Exact ends stay so only beside one value.
fn sum(how: Arithmetic, a: &Range, b: &Range) -> Range {
    let nulls = match (a.nulls, b.nulls) {
        (NullRows::None, other) | (other, NullRows::None) => other,
        _ => NullRows::Unknown,
    };
    let is_one_sided = a.constant().is_some() || b.constant().is_some();
    let end = |a: &Option<Bound>, b: &Option<Bound>| {
        let (a, b) = (a.as_ref()?, b.as_ref()?);
        let value = arithmetic(how, &a.value, &b.value).ok().filter(|value| !value.is_nan())?;
        Some(Bound { value, is_exact: is_one_sided && a.is_exact && b.is_exact })
    };
    let (low, high) = match how {
        Arithmetic::Subtract => (end(&a.low, &b.high), end(&a.high, &b.low)),
        _ => (end(&a.low, &b.low), end(&a.high, &b.high)),
    };
    // Sums of infinities may be NaN.
    let is_finite = |end: &Option<Bound>| end.as_ref().and_then(|end| end.value.to_f64()).is_some_and(f64::is_finite);
    let are_finite = [&a.low, &a.high, &b.low, &b.high].into_iter().all(is_finite);
    let may_be_nan = a.may_be_nan || b.may_be_nan || !are_finite;
    Range { low, high, nulls, may_be_nan }
}
