//! SQL as the log has it: in constraints, generated columns and the predicates of operations.
//!
//! One lexer (`tokens`), one way to read literals (`literal`, `time`, `value`), one set of comparisons. On top of these are
//! two grammars, since a text that is not understood means opposite things: here (`expr`) nothing is computed from it, in
//! [`super::read_set`] it may be true of any row. `eval` and `functions` compute an expression on one row in three values,
//! and refuse to where engines disagree.

mod comparison;
mod eval;
mod expr;
mod functions;
mod literal;
pub mod time;
pub mod tokens;
pub mod value;

pub use comparison::Comparison;
pub use eval::{Evaluated, arithmetic, compare, eval, order, read_as, truth_of};
pub use expr::{Arithmetic, Expr};
pub use functions::cast;
pub use literal::parse_decimal;
pub use time::{Instant, NANOS_PER_DAY, parse_day, parse_instant};
