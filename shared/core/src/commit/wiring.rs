//! The seams to the catalog: the one place where its implementations are chosen.

use std::sync::Arc;

use async_trait::async_trait;

use super::error::CommitError;
use super::sync::{NoCatalog, PartitionSink};
use crate::location::Location;
use crate::ports::App;

/// Where a table of the catalog lies.
#[async_trait]
pub trait TableDirectory: Send + Sync {
    /// The location of a table; `None` where there is no such table.
    async fn location(&self, database: &str, table: &str) -> Result<Option<Location>, CommitError>;
}

/// A directory where no catalog is connected: it knows no table.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTables;

#[async_trait]
impl TableDirectory for NoTables {
    async fn location(&self, _: &str, _: &str) -> Result<Option<Location>, CommitError> {
        Ok(None)
    }
}

/// The sink that partitions of committed proposals go to.
pub fn partition_sink(_app: &App) -> Arc<dyn PartitionSink> {
    Arc::new(NoCatalog)
}

/// The directory that names of tables are looked up in.
pub fn table_directory(_app: &App) -> Arc<dyn TableDirectory> {
    Arc::new(NoTables)
}
