//! Predicates over partition keys: the `Expression` of GetPartitions, compiled once and evaluated on many rows.
//!
//! ```text
//! expr  := and { OR and }        and := not { AND not }        not := NOT not | '(' expr ')' | pred
//! pred  := id cmp lit | lit cmp id | id [NOT] IN '(' lit {',' lit} ')' | id [NOT] BETWEEN lit AND lit
//!        | id [NOT] LIKE lit [ESCAPE lit] | id IS [NOT] NULL
//! cmp   := = | == | <> | != | < > | < | <= | > | >=
//! id    := bare | "quoted" | `quoted`       lit := number | 'text' | "text" | DATE 'text' | TIMESTAMP 'text' | TRUE | FALSE
//! ```
//!
//! Keywords are no names of their own: wherever a name can stand, any word is one. Identifiers, literals and the words AND
//! and OR may stand in parentheses. `"x"` names a key if there is one of that name, and is a text otherwise.
//!
//! Names, types and literals are checked when compiling ([`compile`]). Comparison is exact: text by code point, integers and
//! decimals of any length as numbers, timestamps to the nanosecond.
//!
//! **NULL.** On a typed key (anything but text) the Hive default marker is NULL: comparisons with it are never true, `IS
//! NULL` is. As a literal it asks for NULL as well: `k = '__HIVE_DEFAULT_PARTITION__'` is `k IS NULL`, `<>` is `IS NOT
//! NULL`, since that is what engines mean that write it. [`Mode::Strict`] knows no NULL: the marker is a value like any
//! other, which a typed key cannot read.
//!
//! **Unreadable values.** A stored value that its key's type cannot read is unknown. A row whose answer hangs on an unknown
//! value is an error ([`StoredValueError`]); one that other keys decide is not. That says nothing of the order of the
//! expression or the keys, so it comes out alike however rows are found: by [`plan`], through an index, in any segment.

mod bind;
mod compiled;
mod domain;
mod error;
mod lexer;
mod like;
mod packed;
mod parser;
mod plan;
mod quick;
mod range;
mod set;
mod syntax;

pub use compiled::{Compiled, Mode, NamedKey};
pub use error::{PredicateError, StoredValueError};
pub use plan::{Completeness, KeyList, Layout, Plan, Probe, plan, plan_within};
pub use range::KeyRange;

pub(crate) use range::last_below;

use crate::catalog::KeyColumn;

/// How large an expression may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Characters.
    pub length: usize,
    /// Changes between AND and OR from the outside to the inside. Parentheses and NOTs alone do not count.
    pub depth: usize,
}

impl Limits {
    /// Of `Expression` in the service's model. No text of that length can be too deep.
    pub const EXPRESSION: Limits = Limits { length: 2048, depth: 300 };
}

/// Whether an expression asks for nothing, which means everything.
pub fn is_blank(expression: &str) -> bool {
    expression.trim().is_empty()
}

/// Compiles the `Expression` of a table with these keys.
///
/// # Errors
/// See [`PredicateError`]; a blank expression ([`is_blank`]) is one as well.
pub fn compile(expression: &str, keys: &[KeyColumn], mode: Mode) -> Result<Compiled, PredicateError> {
    compile_within(expression, keys, mode, Limits::EXPRESSION)
}

/// [`compile`] with limits of its own.
///
/// # Errors
/// See [`PredicateError`].
pub fn compile_within(
    expression: &str,
    keys: &[KeyColumn],
    mode: Mode,
    limits: Limits,
) -> Result<Compiled, PredicateError> {
    let parsed = parser::parse(expression, limits)?;
    bind::bind(expression, &parsed, keys, mode)
}

#[cfg(test)]
pub(crate) mod tests;
