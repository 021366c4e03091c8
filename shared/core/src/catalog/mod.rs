//! Databases, tables and where tables lie.
//!
//! A database or table is a small head, which every operation reads (both in one strong batch get), and a definition,
//! read only when asked for. Both have opaque ids; what hangs below hangs on the id. Dropping one removes the head, so
//! that everything below is unreachable at once, and leaves a tombstone, from which the worker ([`purge`]) removes it.

mod body;
mod database_item;
mod databases;
pub mod dropped;
mod dropped_table_item;
mod epochs;
mod error;
pub mod fences;
mod function_item;
pub mod functions;
mod head_notes;
mod ids;
pub mod indexes;
mod location_item;
pub mod locations;
mod names;
mod page_token;
mod process_cache;
pub mod purge;
mod rounds;
mod scope_fence_item;
pub mod search;
mod search_terms;
mod settle;
mod spill;
mod table_definition_item;
mod table_head_item;
mod table_listing;
pub mod table_update;
pub mod tables;
pub mod tags;
mod tags_item;
mod token_key_item;
mod tombstone_item;
mod version_item;
pub mod versions;
mod work;
mod work_item;
mod writes;

pub use body::{BODY_MAX_BYTES, escaped_json_len, escaped_len};
pub use database_item::DatabaseHead;
pub use databases::{
    Database, create_database, create_tagged_database, drop_database, find_database, get_database, list_databases,
    update_database,
};
pub use error::CatalogError;
pub use ids::{DatabaseId, PartitionId, Revision, TableId};
pub use names::fold;
pub use page_token::{Scope, issue, redeem};
pub use spill::{Owner, load_bodies, load_body, store_body};
pub use table_definition_item::TableDefinition;
pub use table_head_item::{HistoryKept, IndexRef, IndexState, KeyColumn, OlderEpoch, TableRef};
pub use work::CatalogWork;

pub(crate) use body::{body_size_bytes, decode_body, encode_body};
pub(crate) use head_notes::{add_to_estimate, note_irregular, note_retention, note_statistics};
pub(crate) use process_cache::{cache_of, lock};
pub(crate) use writes::{Cancelled, Refused, put, transact};
