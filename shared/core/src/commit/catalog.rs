//! What the commit path asks of the product's own catalog: where a table lies, and which of its tables follow a log.

use async_trait::async_trait;

use super::context::Context;
use super::error::CommitError;
use super::follow::{Target, follow};
use super::sync::{PartitionSink, SyncError, SyncReport};
use super::wiring::TableDirectory;
use crate::catalog::CatalogError;
use crate::catalog::tables::get_table;
use crate::location::Location;
use crate::ports::{App, Ports};

/// The catalog in the same deployment.
#[derive(Clone, Debug)]
pub struct OwnCatalog {
    ports: Ports,
}

impl OwnCatalog {
    pub fn new(app: &App) -> Self {
        Self { ports: app.ports.clone() }
    }
}

#[async_trait]
impl TableDirectory for OwnCatalog {
    async fn location(&self, database: &str, table: &str) -> Result<Option<Location>, CommitError> {
        let found = get_table(&self.ports, database, table).await;
        match found {
            Ok((_, definition)) => definition
                .location()
                .map_err(|error| CommitError::Catalog(format!("table {database}.{table}: {error}"))),
            Err(CatalogError::DatabaseNotFound(_) | CatalogError::TableNotFound(_)) => Ok(None),
            Err(CatalogError::Store(error)) => Err(error.into()),
            Err(error) => Err(CommitError::Catalog(error.to_string())),
        }
    }
}

#[async_trait]
impl PartitionSink for OwnCatalog {
    async fn follow(&self, ctx: Context<'_>, root: &Location, target: Target) -> Result<SyncReport, SyncError> {
        follow(ctx, root, target).await
    }
}
