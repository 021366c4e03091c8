//! The way to the catalog: the one place where its implementations are chosen.

use std::sync::Arc;

use async_trait::async_trait;

use super::catalog::OwnCatalog;
use super::error::CommitError;
use super::sync::PartitionSink;
use crate::location::Location;
use crate::ports::App;

/// Where a table of the catalog lies.
#[async_trait]
pub trait TableDirectory: Send + Sync {
    /// The location of a table; `None` where there is no such table.
    async fn location(&self, database: &str, table: &str) -> Result<Option<Location>, CommitError>;
}

/// The sink that partitions of committed proposals go to.
pub fn partition_sink(app: &App) -> Arc<dyn PartitionSink> {
    Arc::new(OwnCatalog::new(app))
}

/// The directory that names of tables are looked up in.
pub fn table_directory(app: &App) -> Arc<dyn TableDirectory> {
    Arc::new(OwnCatalog::new(app))
}
