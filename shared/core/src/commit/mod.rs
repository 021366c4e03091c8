//! The commit path: a proposal is judged against what won since it was read, its version is claimed by one
//! transaction, its bytes are published with If-None-Match, and its verdict is kept.
//!
//! ```text
//! received -> judged -> rejected | superseded | claimed(v, n) -> published(v) -> committed(v)
//!               ^                                  claimed(v, n) -> lost(v, n) -> judged again
//! ```
//!
//! Where things are: [`door`] takes proposals in and orders them ([`exact`]: at one version or not at all), [`run`] carries one through, [`fold`] loads what won for
//! the judge, [`judge`] and its parts decide (pure; [`row_level`] by rows), [`claim`], [`publish`] and [`recover`] write, [`log_store`] keeps peace
//! with writers of Delta's DynamoDB log store, [`audit`] and [`alarm`] notice what others do to the log, [`housekeeping`]
//! does what is due. One file per item type holds the layout ([`head`], [`proposal`], [`lookup`], [`time_list`],
//! [`version_record`], [`alarm`], [`table_list`]), [`proposals`] reads verdicts, [`sync`] tells the catalog about new
//! partitions.

pub mod aftermath;
mod ahead;
pub mod alarm;
pub mod audit;
pub mod candidate;
pub mod catalog;
pub mod claim;
pub mod conflict;
pub mod constraints;
pub mod content;
pub mod context;
pub mod door;
pub mod error;
pub mod evolution;
pub mod exact;
pub mod facts;
pub mod files;
pub mod fold;
pub mod follow;
pub mod head;
pub mod housekeeping;
pub mod identity;
pub mod inline;
pub mod isolation;
pub mod judge;
pub mod keys;
mod log_state;
pub mod log_store;
pub mod lookup;
pub mod managed;
pub mod partition_values;
pub mod path_filter;
pub mod proposal;
pub mod proposals;
pub mod publish;
pub mod read_set;
pub mod rebase;
pub mod recover;
mod restored;
pub mod row_level;
pub mod run;
pub mod sanity;
pub mod spill;
pub mod sql;
pub mod statistics_honesty;
pub mod sync;
pub mod table_facts;
pub mod table_list;
pub mod table_state;
pub mod time_list;
pub mod unity;
pub mod vectors;
pub mod verdict;
pub mod version_record;
pub mod view;
mod view_files;
pub mod warm;
pub mod wiring;

#[cfg(test)]
mod tests;
