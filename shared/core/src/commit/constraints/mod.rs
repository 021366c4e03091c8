//! What must hold of every row: CHECK constraints, invariants and generated columns.
//!
//! [`super::sql`] parses the SQL and computes it on a row, `bounds` on what statistics say of many rows. What is not
//! understood, or not computed alike by all engines, is not proved; the table's policy decides then.

mod bounds;
mod rules;

#[cfg(test)]
mod tests;

pub use bounds::{NullRows, Range, Truth, truth};
pub use rules::{Rule, RuleKind, guarded_columns, rules_of};

use super::sql::cast;
use super::verdict::Refusal;
use crate::delta::Metadata;
use crate::delta::footer::Datum;
use crate::delta::schema::Primitive;

/// Table property: what becomes of rows about which statistics do not tell.
pub const POLICY: &str = "lakewarden.unprovenConstraints";

/// What becomes of a commit whose files may break a constraint, as far as their footers tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// The columns in question are read and looked at; what still cannot be decided is refused.
    #[default]
    Evaluate,
    /// Admitted, with a warning in the verdict.
    Accept,
    /// Refused.
    Refuse,
}

/// The policy of a table; a value that is none counts as the default.
pub fn policy_of(metadata: &Metadata) -> Policy {
    metadata.property(POLICY).and_then(read_policy).unwrap_or_default()
}

fn read_policy(text: &str) -> Option<Policy> {
    match text.to_ascii_lowercase().as_str() {
        "evaluate" => Some(Policy::Evaluate),
        "accept" => Some(Policy::Accept),
        "refuse" => Some(Policy::Refuse),
        _ => None,
    }
}

/// Refuses a value of [`POLICY`] that is none.
pub fn check_policy(metadata: &Metadata) -> Result<(), Refusal> {
    match metadata.property(POLICY).filter(|text| read_policy(text).is_none()) {
        Some(text) => {
            let text = format!("the table property {POLICY} is `{text}`; it must be evaluate, accept or refuse");
            Err(Refusal::invalid("PROPERTY_VALUE", text))
        }
        None => Ok(()),
    }
}

/// A partition value as the protocol writes it; null for an empty text. The outer none: it does not read as its type.
pub fn partition_datum(text: Option<&str>, kind: &Primitive) -> Option<Option<Datum>> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Some(None) };
    let datum = match kind {
        Primitive::String => Some(Datum::Text(text.to_owned())),
        // Writers do not agree on which bytes a text stands for.
        Primitive::Binary => None,
        Primitive::Float => text.parse::<f32>().ok().map(|value| Datum::Float(value.into())),
        Primitive::Double => text.parse().ok().map(Datum::Float),
        kind => cast(&Datum::Text(text.to_owned()), kind).ok(),
    };
    datum.map(Some)
}
