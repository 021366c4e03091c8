//! What the footer of a data file says about it, compared with the table's schema.

mod cache;
mod compare;
mod facts;
mod guard;
mod kind;
mod nulls;
mod pages;
pub(super) mod read;
mod tree;
mod value;

pub use cache::{FooterCache, cache_of};
pub use compare::{FileIndex, FooterCheck, SchemaProblem, TableColumns, UnprovedNotNull, check_footer, find, read_as};
pub use facts::{Bound, LeafFacts, facts_of_file, facts_of_group, nulls_of_file};
pub(super) use kind::kind_of;
pub use kind::{Kind, Unit};
pub use nulls::{Nulls, count_nulls};
pub(super) use pages::bits;
pub use pages::{LeafPages, PagesError, chunk_range, misplaced_chunk, read_leaf};
pub use read::{FOOTER_MAX_BYTES, Footer, FooterError, read_footer, read_footer_and_tail, read_footer_of_many};
pub use tree::{FileField, Node, PARQUET_FIELD_ID, Presence, file_fields, table_schema};
pub(super) use value::Raw;
pub use value::{Datum, civil, day_of, text_of_day};

#[cfg(test)]
mod tests;
