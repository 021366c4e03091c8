//! Ports: small traits shaped like the services they stand for, and their in-memory implementations.
//!
//! Rules live in core and are tested once against the in-memory ports; one contract suite (`tests/it/contract`) runs
//! against these and against the AWS adapters.

mod clock;
mod error;
mod ids;
mod items;
mod late;
pub mod memory;
mod objects;
mod queue;
pub mod rules;
mod value;

pub use clock::{Clock, SystemClock};
pub use error::{StoreError, StoreErrorKind};
pub use ids::{Ids, RandomIds, SequentialIds};
pub use items::{
    BatchGet, CancelReason, Condition, Consistency, Direction, ItemUsage, Items, Key, Page, Query, ReadItems, Sort,
    SortRange, Table, TransactError, Write, WriteError, check_item_size, get_every, item_size_bytes,
};
pub use late::{LateItem, LatePage, StoredItems, texts_of};
pub use objects::{
    ByteRange, Deleted, Doomed, ETag, GetOptions, ListPage, ListRequest, Listed, ListedVersion, Object, ObjectError,
    ObjectKey, ObjectMeta, ObjectUsage, Objects, PresignedPut, PutCondition, PutOptions, ReadObjects, VersionId,
    VersionMark, VersionPage, VersionRequest, VersionState, Versioning, check_delete_batch, check_object_key,
    list_every,
};
pub use queue::{Queue, QueueName, check_message};
pub use value::{DecodeError, Fields, Item, Value};
