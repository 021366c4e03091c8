//! Predicates over a table's columns, as far as they are understood.

use crate::commit::sql::Comparison;

/// A condition on one row. Evaluation is three-valued; whatever is not understood is [`Predicate::Unknown`], which may
/// have any outcome, so it can stand anywhere (also under NOT) and only ever makes more rows match.
#[derive(Clone, Debug, PartialEq)]
pub enum Predicate {
    /// Holds for every row.
    Always,
    /// Not understood, or no pure function of the row.
    Unknown,
    And(Vec<Predicate>),
    Or(Vec<Predicate>),
    Not(Box<Predicate>),
    Compare(Comparison, Column, Literal),
    In(Column, Vec<Literal>),
    IsNull(Column),
}

/// A column as a predicate names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Names from the outside to the inside.
    pub path: Vec<String>,
    /// The first names may be those of a catalog, a database, a table or an alias.
    pub may_be_qualified: bool,
    /// `CAST(column AS type)`: the name of the type.
    pub cast: Option<String>,
}

impl Column {
    pub fn exactly(path: Vec<String>) -> Column {
        Column { path, may_be_qualified: false, cast: None }
    }

    /// From SQL, where `a.b` may be column `b` of a table `a`.
    pub fn named(path: Vec<String>) -> Column {
        Column { path, may_be_qualified: true, cast: None }
    }
}

/// A constant as a predicate writes it; which value it is depends on the column's type.
#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    Null,
    Flag(bool),
    /// Digits as written.
    Number(String),
    /// Engines disagree on which of the two it is.
    EitherNumber(String, String),
    /// In quotes. Where it is a time without a zone, see [`Zone`].
    Text(String, Zone),
    /// In double quotes: a text, or a column for engines that take it so.
    Quoted(String),
    /// `DATE '…'`
    Date(String),
    /// `TIMESTAMP '…'`
    Timestamp(String, Zone),
    /// Without quotes, so of unknown type: what Spark makes of a literal.
    Raw(String),
    Unusable,
}

/// The zone of times that do not tell one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zone {
    Utc,
    /// That of the writer's session, which the commit does not tell.
    Session,
}

/// Who wrote a predicate, and so how much of its spelling can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// `commitInfo.readSet`: a tree.
    Declared,
    /// SQL text whose odd names are quoted.
    Sql,
    /// SQL text that lost the quotes of names.
    UnquotedSql,
}

/// One alternative of a read set: rows that satisfy it were read.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadPredicate {
    pub predicate: Predicate,
    pub origin: Origin,
}
