//! Partitions: key codec, items, operations, paging.
//!
//! A partition's identity is its table and the ordered list of its values, which are never folded or trimmed. Items are
//! spread over the table's shards by a hash of the values, and in each shard are in key order.

mod as_of;
mod attempts;
mod backfill;
mod batch;
mod change;
mod create;
mod delete;
mod descriptor;
mod descriptor_item;
mod estimate;
mod follow;
mod history_item;
mod index_item;
mod instant;
mod irregular;
mod item;
mod key;
mod key_type;
mod listing;
mod number;
mod places;
mod read;
mod rekey;
mod specs;
mod statistics;
mod statistics_item;
mod update;

pub use create::{PartitionInput, create, create_many};
pub use delete::{delete, delete_many};
pub use descriptor::ColumnSchema;
pub use follow::{Effect, FollowPlan, FollowedLocation, FollowedPartition, Target, after_follow, plan_follow};
pub use instant::{Date, Timestamp};
pub use irregular::{Irregular, IrregularKind};
pub use item::PartitionItem;
pub use key::{HIVE_DEFAULT_PARTITION, encode_key, hash_of_values, shard_of};
pub use key_type::KeyType;
pub use listing::{
    Continuation, Explained, Indexes, Listing, PartitionPage, Position, ScanBudget, Segment, View, list,
};
pub use number::{Number, NumberText};
pub use places::note_places_of;
pub use read::{Partition, get, get_many};
pub use specs::{Root, plan_specs};
pub use statistics::{delete_statistics, get_statistics, owner_of, put_statistics};
pub use statistics_item::StatisticsOwner;
pub use update::{PartitionUpdate, update, update_many};

pub(crate) use backfill::backfill_page;
pub(crate) use descriptor::{DescriptorCache, fill_defaults};
pub(crate) use descriptor_item::descriptors_of;
pub(crate) use history_item::places_of as history_places_of;
pub(crate) use index_item::places_of as index_places_of;
pub(crate) use item::places_of;
pub(crate) use key::{ARITY_OPEN_END, CUT_TAIL_BYTES, encode_position, encode_text, region};
pub(crate) use rekey::{Rows, rekey_page};
pub(crate) use statistics_item::places_of as statistics_places_of;

#[cfg(test)]
pub(crate) mod tests;
