//! Predicates as Spark prints its expressions: `((id#12L = 5) AND (name#3 = Retail Trade))`.
//!
//! Columns carry an id, every binary operator has its own parentheses, and constants stand there without quotes. A constant
//! that holds parentheses and operators itself would make one more operand somewhere than parentheses allow; then the
//! whole text is unknown. Constants with parentheses or `#` are not read.

use super::predicate::{Column, Literal, Predicate};
use crate::commit::sql::Comparison;

const MAX_DEPTH: usize = 48;
const COMPARISONS: [(&str, Comparison); 6] = [
    (" <=> ", Comparison::NullSafeEqual),
    (" <= ", Comparison::LessOrEqual),
    (" >= ", Comparison::GreaterOrEqual),
    (" = ", Comparison::Equal),
    (" < ", Comparison::Less),
    (" > ", Comparison::Greater),
];

/// Whether a text has Spark's attribute ids in it.
pub fn has_attribute_ids(text: &str) -> bool {
    text.split('#').skip(1).any(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
}

/// What a text says; [`Predicate::Unknown`] at worst.
pub fn parse(text: &str) -> Predicate {
    match operand(text, 0) {
        Some((found, "")) => found,
        _ => Predicate::Unknown,
    }
}

/// One operand and what follows it; nothing if the text is not built as it should be.
fn operand(text: &str, depth: usize) -> Option<(Predicate, &str)> {
    if depth > MAX_DEPTH {
        return None;
    }
    if let Some(rest) = text.strip_prefix("NOT ") {
        let (found, rest) = operand(rest, depth + 1)?;
        return Some((Predicate::Not(Box::new(found)), rest));
    }
    if text.starts_with('(') {
        let (inner, rest) = group(text)?;
        return Some((in_parentheses(inner, depth + 1)?, rest));
    }
    let (own, rest) = text.split_at_checked(end_of_operand(text)?)?;
    // Where an operand is missing the text is no condition, and nothing of it is used.
    (!own.trim().is_empty()).then(|| (bare(own), rest))
}

fn in_parentheses(inner: &str, depth: usize) -> Option<Predicate> {
    if let Some(found) = column(inner).and_then(|(column, rest)| compared(column, rest)) {
        return Some(found);
    }
    let (left, rest) = operand(inner, depth)?;
    let (is_and, rest) = match (rest.strip_prefix(" AND "), rest.strip_prefix(" OR ")) {
        (Some(rest), _) => (true, rest),
        (_, Some(rest)) => (false, rest),
        // Some other operator.
        _ => return Some(Predicate::Unknown),
    };
    let (right, rest) = operand(rest, depth)?;
    if !rest.is_empty() {
        return None;
    }
    let parts = vec![left, right];
    Some(if is_and { Predicate::And(parts) } else { Predicate::Or(parts) })
}

/// ` = constant` after a column.
fn compared(column: Column, rest: &str) -> Option<Predicate> {
    let (comparison, raw) =
        COMPARISONS.iter().find_map(|(sign, comparison)| Some((*comparison, rest.strip_prefix(sign)?)))?;
    let is_odd = raw.contains(['(', ')', '#']) || raw.eq_ignore_ascii_case("null");
    let literal = if is_odd { Literal::Unusable } else { Literal::Raw(raw.to_owned()) };
    Some(Predicate::Compare(comparison, column, literal))
}

/// An operand without parentheses around it.
fn bare(text: &str) -> Predicate {
    for (prefix, negated) in [("isnull(", false), ("isnotnull(", true)] {
        let inner = text.strip_prefix(prefix).and_then(|rest| rest.strip_suffix(')'));
        if let Some((found, "")) = inner.and_then(column) {
            let found = Predicate::IsNull(found);
            return if negated { Predicate::Not(Box::new(found)) } else { found };
        }
    }
    match column(text) {
        Some((found, "")) => Predicate::Compare(Comparison::Equal, found, Literal::Flag(true)),
        Some((found, rest)) => {
            let list = rest.strip_prefix(" IN (").and_then(|list| list.strip_suffix(')'));
            list.and_then(numbers).map_or(Predicate::Unknown, |list| Predicate::In(found, list))
        }
        None => Predicate::Unknown,
    }
}

/// Texts in a list could hold commas.
fn numbers(list: &str) -> Option<Vec<Literal>> {
    list.split(',')
        .map(|text| {
            let digits = text.strip_prefix('-').unwrap_or(text);
            let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| Literal::Number(text.to_owned()))
        })
        .collect()
}

/// `name#12`, `name#12L`, `name#12.field`, `cast(name#12 as bigint)`, and what follows.
fn column(text: &str) -> Option<(Column, &str)> {
    if let Some(rest) = text.strip_prefix("cast(") {
        let (found, rest) = column(rest)?;
        let (cast, rest) = rest.strip_prefix(" as ")?.split_once(')')?;
        let is_simple = found.cast.is_none() && cast.chars().all(|letter| letter.is_ascii_alphanumeric());
        return is_simple.then(|| (Column { cast: Some(cast.to_owned()), ..found }, rest));
    }
    let (name, rest) = leading(text, is_of_name)?;
    let (_, rest) = leading(rest.strip_prefix('#')?, |letter| letter.is_ascii_digit())?;
    let mut rest = rest.strip_prefix('L').unwrap_or(rest);
    let mut path = vec![name.to_owned()];
    while let Some((step, after)) = rest.strip_prefix('.').and_then(|rest| leading(rest, is_of_name)) {
        path.push(step.to_owned());
        rest = after;
    }
    Some((Column::exactly(path), rest))
}

fn is_of_name(letter: char) -> bool {
    letter.is_alphanumeric() || matches!(letter, '_' | '-' | '$')
}

/// A part that is not empty, and what follows it.
fn leading(text: &str, belongs: impl Fn(char) -> bool) -> Option<(&str, &str)> {
    let end = text.find(|letter| !belongs(letter)).unwrap_or(text.len());
    text.split_at_checked(end).filter(|(head, _)| !head.is_empty())
}

/// What stands in the parentheses that begin the text, and what follows them.
fn group(text: &str) -> Option<(&str, &str)> {
    let mut depth = 0_usize;
    for (at, letter) in text.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.checked_sub(1)?,
            _ => {}
        }
        if depth == 0 {
            return Some((text.get(1..at)?, text.get(at + 1..)?));
        }
    }
    None
}

/// Nothing: parentheses stay open.
fn end_of_operand(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, letter) in text.char_indices() {
        let rest = text.get(at..).unwrap_or_default();
        match letter {
            '(' => depth += 1,
            ')' if depth == 0 => return Some(at),
            ')' => depth -= 1,
            ' ' if depth == 0 && (rest.starts_with(" AND ") || rest.starts_with(" OR ")) => return Some(at),
            _ => {}
        }
    }
    (depth == 0).then_some(text.len())
}
