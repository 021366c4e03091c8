//! Which types a column may be widened to, and the history that must be kept of it.

use super::refuse;
use crate::commit::verdict::Refusal;
use crate::delta::schema::{DataType, Field, Primitive, Schema, TypeChange, join, type_changes};

/// How wide a change of type is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Widening {
    /// Files store both alike: byte, short and integer. Needs no table feature.
    SameStorage,
    /// Within a family of types. Needs type widening.
    SameFamily,
    /// To another family, only where somebody asked for it. Needs type widening.
    Explicit,
}

/// Nothing where the change loses values.
pub fn widening(from: &Primitive, to: &Primitive) -> Option<Widening> {
    use Primitive::{Byte, Date, Decimal, Double, Float, Integer, Long, Short, TimestampNtz};
    let digits = match from {
        Byte | Short | Integer => Some(10_u8),
        Long => Some(20),
        _ => None,
    };
    match (from, to) {
        (Byte, Short | Integer) | (Short, Integer) => Some(Widening::SameStorage),
        (Byte | Short | Integer, Long) | (Float, Double) | (Date, TimestampNtz) => Some(Widening::SameFamily),
        (Decimal { precision, scale }, Decimal { precision: p, scale: s }) => {
            let (more_digits, more_scale) = (p.checked_sub(*precision)?, s.checked_sub(*scale)?);
            (more_digits >= more_scale).then_some(Widening::SameFamily)
        }
        (Byte | Short | Integer, Double) => Some(Widening::Explicit),
        (_, Decimal { precision, scale }) => {
            let whole = precision.checked_sub(*scale)?;
            (whole >= digits?).then_some(Widening::Explicit)
        }
        _ => None,
    }
}

/// Checks `delta.typeChanges` of a schema by itself: entries can be read, follow each other and end with the type that
/// the column has.
pub fn check_histories(schema: &Schema) -> Result<(), Refusal> {
    for (path, field) in schema.walk() {
        let Some(changes) = type_changes(field) else {
            return Err(history(&path, "its delta.typeChanges is not a list of changes".to_owned()));
        };
        for (index, change) in changes.iter().enumerate() {
            let next = changes.iter().skip(index + 1).find(|next| next.path == change.path);
            let now = part(&field.data_type, &change.path);
            let follows = match (next, now) {
                (Some(next), Some(_)) => next.from == change.to,
                (None, Some(DataType::Primitive(now))) => *now == change.to,
                _ => false,
            };
            if !follows {
                let text = format!("its history goes from {} to {}, and not on from there", change.from, change.to);
                return Err(history(&part_of(&path, &change.path), text));
            }
        }
    }
    Ok(())
}

/// No change in the histories of a schema loses values. Told after what a commit changes, which is the better answer.
pub fn check_lossless(schema: &Schema) -> Result<(), Refusal> {
    for (path, field) in schema.walk() {
        for change in type_changes(field).unwrap_or_default() {
            if widening(&change.from, &change.to).is_none() {
                let text = format!("its history goes from {} to {}, which loses values", change.from, change.to);
                let mut refusal = history(&part_of(&path, &change.path), text);
                let (from, to) = (change.from.to_string(), change.to.to_string());
                (refusal.place.expected, refusal.place.found) = (Some(from), Some(to));
                return Err(refusal);
            }
        }
    }
    Ok(())
}

/// The path of a field's part; an empty part is the field itself.
fn part_of(path: &str, part: &str) -> String {
    if part.is_empty() { path.to_owned() } else { join(path, part) }
}

/// Checks that the history of a field that stays says what was said before, and each change of its type.
pub fn check_history(path: &str, old: &Field, new: &Field, is_logged: bool) -> Result<(), Refusal> {
    let (before, after) = (type_changes(old).unwrap_or_default(), type_changes(new).unwrap_or_default());
    if after.get(..before.len()) != Some(before.as_slice()) {
        return Err(history(path, "earlier entries of its delta.typeChanges are lost or changed".to_owned()));
    }
    let mut due = Vec::new();
    changes_of("", &old.data_type, &new.data_type, &mut due);
    let added = after.get(before.len()..).unwrap_or_default();
    if !is_logged && added.is_empty() {
        return Ok(());
    }
    let is_said = |change: &TypeChange| spans(added, change);
    if let Some(missing) = due.iter().find(|change| !is_said(change)) {
        let text = format!("its change from {} to {} is not in delta.typeChanges", missing.from, missing.to);
        return Err(history(&part_of(path, &missing.path), text));
    }
    match added.iter().find(|entry| !due.iter().any(|change| change.path == entry.path)) {
        Some(entry) => {
            let text = format!("delta.typeChanges says a change from {} to {} that is none", entry.from, entry.to);
            Err(history(&part_of(path, &entry.path), text))
        }
        None => Ok(()),
    }
}

/// Whether entries of one part lead from one type to the other.
fn spans(entries: &[TypeChange], change: &TypeChange) -> bool {
    let mut steps = entries.iter().filter(|entry| entry.path == change.path);
    let (Some(first), last) = (steps.next(), steps.next_back()) else { return false };
    first.from == change.from && last.unwrap_or(first).to == change.to
}

/// Changes of types between primitives that belong to this field: those below fields of structs are theirs.
fn changes_of(path: &str, old: &DataType, new: &DataType, out: &mut Vec<TypeChange>) {
    match (old, new) {
        (DataType::Primitive(from), DataType::Primitive(to)) if from != to => {
            out.push(TypeChange { from: from.clone(), to: to.clone(), path: path.to_owned() });
        }
        (DataType::Array { element: old, .. }, DataType::Array { element: new, .. }) => {
            changes_of(&join(path, "element"), old, new, out);
        }
        (DataType::Map { key: old_key, value: old_value, .. }, DataType::Map { key, value, .. }) => {
            changes_of(&join(path, "key"), old_key, key, out);
            changes_of(&join(path, "value"), old_value, value, out);
        }
        _ => {}
    }
}

fn part<'t>(data_type: &'t DataType, path: &str) -> Option<&'t DataType> {
    let steps = path.split('.').filter(|step| !step.is_empty());
    steps.into_iter().try_fold(data_type, |found, step| match (found, step) {
        (DataType::Array { element, .. }, "element") => Some(&**element),
        (DataType::Map { key, .. }, "key") => Some(&**key),
        (DataType::Map { value, .. }, "value") => Some(&**value),
        _ => None,
    })
}

fn history(path: &str, text: String) -> Refusal {
    refuse(
        "TYPE_CHANGE_HISTORY",
        format!("column `{path}`: {text}"),
        "log every change of a type in the field's delta.typeChanges, and keep what is there",
    )
    .class("DELTA_METADATA_MISMATCH.SCHEMA_MISMATCH")
    .column(path)
}
