//! Row-level concurrency: two statements that changed different rows of one file are both committed.
//!
//! A file's deleted rows are a set (its deletion vector). What a commit deleted is the difference of the vector that it
//! writes and the one that it read; where that has no row in common with what a winner deleted, the union is both. The
//! rules are pure: the judge says which vectors and which files' rows it needs ([`RowNeeds`]), they are read ([`load`]),
//! and it decides again ([`RowFacts`]).
//!
//! | part | what |
//! |---|---|
//! | [`mod@eligible`] | which statements the rules hold for |
//! | [`merge`] | the sets |
//! | [`bins`] | which files of a rearrangement belong together |
//! | [`facts`] | what is read for the judge |
//! | [`edits`] | what changes in the commit, and the file of vectors that is written for it |
//!
//! See `docs/row-level.md`.

pub mod bins;
pub mod edits;
pub mod eligible;
pub mod facts;
pub mod merge;
mod scan;
#[cfg(test)]
mod tests;

pub use edits::{Publication, RowFold};
pub use eligible::{ROW_LEVEL_PROPERTY, Statement, eligible};
pub use facts::{Loss, Lost, Match, RowFacts, RowNeeds, load, vector_key};
