//! The commit path: a proposal is judged against what won since it was read, its version is claimed by one
//! transaction, its bytes are published with If-None-Match, and its verdict is kept.
//!
//! ```text
//! received -> judged -> rejected | superseded | claimed(v, n) -> published(v) -> committed(v)
//!               ^                                  claimed(v, n) -> lost(v, n) -> judged again
//! ```
//!
//! Where things are: [`door`] takes proposals in and orders them, [`judge`] and its parts decide (pure), [`claim`] and
//! [`recover`] write, one file per item type holds the layout ([`head`], [`proposal`], [`lookup`], [`time_list`],
//! [`version_record`]), [`proposals`] reads verdicts, [`sync`] tells the catalog about new partitions.

pub mod candidate;
pub mod catalog;
pub mod claim;
pub mod conflict;
pub mod context;
pub mod door;
pub mod error;
pub mod evolution;
pub mod facts;
pub mod files;
pub mod head;
pub mod inline;
pub mod judge;
pub mod keys;
pub mod lookup;
pub mod partition_values;
pub mod path_filter;
pub mod proposal;
pub mod proposals;
pub mod read_set;
pub mod rebase;
pub mod recover;
pub mod run;
pub mod sanity;
pub mod spill;
pub mod sync;
pub mod table_facts;
pub mod table_state;
pub mod time_list;
pub mod verdict;
pub mod version_record;
pub mod view;
mod view_files;
pub mod warm;
pub mod wiring;

#[cfg(test)]
mod tests;
