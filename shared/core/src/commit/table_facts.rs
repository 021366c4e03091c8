//! The table as the checks of a judgement need it.

use crate::delta::schema::Schema;
use crate::delta::{Metadata, PartitionValues};
use crate::location::Location;

/// The table at the version that the candidate is checked against.
#[derive(Clone, Copy, Debug)]
pub struct TableFacts<'a> {
    pub root: &'a Location,
    pub metadata: &'a Metadata,
    pub schema: &'a Schema,
    pub has_deletion_vectors: bool,
}

/// What an action says of the rows of its file.
#[derive(Clone, Copy, Debug, Default)]
pub struct FileValues<'a> {
    /// None: not told, so any.
    pub partition_values: Option<&'a PartitionValues>,
    /// The action's `stats`, as written.
    pub stats: Option<&'a str>,
}
