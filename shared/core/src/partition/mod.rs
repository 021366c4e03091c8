//! Partitions: key codec, items, operations, paging.
