//! The one table of operations. To serve another: write its handler, add a line.

use futures::future::BoxFuture;
use serde_json::Value;

use super::GlueException;
use super::handlers::{
    catalogs, databases, functions, indexes, partitions, search, statistics, tables, tags, versions,
};
use crate::ports::App;
use crate::sweep::optimizer as optimizers;

/// Carries out an operation: checked input in, output out.
pub type Handler = for<'a> fn(&'a App, Value) -> BoxFuture<'a, Result<Value, GlueException>>;

/// An operation of the service.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// As in `X-Amz-Target`, without `AWSGlue.`.
    pub name: &'static str,
    pub handler: Handler,
}

/// `operation!("Name", handler)` with `async fn handler(&App, Value) -> Result<Value, GlueException>`.
macro_rules! operation {
    ($name:literal, $handler:path) => {{
        fn boxed(app: &App, input: Value) -> BoxFuture<'_, Result<Value, GlueException>> {
            Box::pin($handler(app, input))
        }
        Operation { name: $name, handler: boxed }
    }};
}

/// Everything that is served.
pub static OPERATIONS: &[Operation] = &[
    // Databases
    operation!("CreateDatabase", databases::create_database),
    operation!("GetDatabase", databases::get_database),
    operation!("GetDatabases", databases::get_databases),
    operation!("UpdateDatabase", databases::update_database),
    operation!("DeleteDatabase", databases::delete_database),
    // Tables
    operation!("CreateTable", tables::create_table),
    operation!("GetTable", tables::get_table),
    operation!("GetTables", tables::get_tables),
    operation!("UpdateTable", tables::update_table),
    operation!("DeleteTable", tables::delete_table),
    operation!("BatchDeleteTable", tables::batch_delete_table),
    operation!("SearchTables", search::search),
    // Versions of tables
    operation!("GetTableVersion", versions::get_table_version),
    operation!("GetTableVersions", versions::get_table_versions),
    operation!("DeleteTableVersion", versions::delete_table_version),
    operation!("BatchDeleteTableVersion", versions::batch_delete_table_version),
    // Partition indexes
    operation!("CreatePartitionIndex", indexes::create_partition_index),
    operation!("GetPartitionIndexes", indexes::get_partition_indexes),
    operation!("DeletePartitionIndex", indexes::delete_partition_index),
    // Partitions
    operation!("CreatePartition", partitions::create_partition),
    operation!("BatchCreatePartition", partitions::batch_create_partition),
    operation!("GetPartition", partitions::get_partition),
    operation!("GetPartitions", partitions::get_partitions),
    operation!("BatchGetPartition", partitions::batch_get_partition),
    operation!("UpdatePartition", partitions::update_partition),
    operation!("BatchUpdatePartition", partitions::batch_update_partition),
    operation!("DeletePartition", partitions::delete_partition),
    operation!("BatchDeletePartition", partitions::batch_delete_partition),
    // Column statistics
    operation!("GetColumnStatisticsForPartition", statistics::get_for_partition),
    operation!("UpdateColumnStatisticsForPartition", statistics::update_for_partition),
    operation!("DeleteColumnStatisticsForPartition", statistics::delete_for_partition),
    operation!("GetColumnStatisticsForTable", statistics::get_for_table),
    operation!("UpdateColumnStatisticsForTable", statistics::update_for_table),
    operation!("DeleteColumnStatisticsForTable", statistics::delete_for_table),
    // User-defined functions
    operation!("CreateUserDefinedFunction", functions::create_function),
    operation!("GetUserDefinedFunction", functions::get_function),
    operation!("GetUserDefinedFunctions", functions::get_functions),
    operation!("UpdateUserDefinedFunction", functions::update_function),
    operation!("DeleteUserDefinedFunction", functions::delete_function),
    // Tags
    operation!("GetTags", tags::get_tags),
    operation!("TagResource", tags::tag_resource),
    operation!("UntagResource", tags::untag_resource),
    // The catalog itself
    operation!("GetCatalog", catalogs::get_catalog),
    operation!("GetCatalogs", catalogs::get_catalogs),
    operation!("GetCatalogImportStatus", catalogs::get_catalog_import_status),
    // Table optimizers
    operation!("CreateTableOptimizer", optimizers::create_table_optimizer),
    operation!("GetTableOptimizer", optimizers::get_table_optimizer),
    operation!("BatchGetTableOptimizer", optimizers::batch_get_table_optimizer),
    operation!("UpdateTableOptimizer", optimizers::update_table_optimizer),
    operation!("DeleteTableOptimizer", optimizers::delete_table_optimizer),
    operation!("ListTableOptimizerRuns", optimizers::list_table_optimizer_runs),
];

/// The operation of this name.
pub fn find(name: &str) -> Option<&'static Operation> {
    OPERATIONS.iter().find(|operation| operation.name == name)
}

/// Names of everything that is served, for messages.
pub fn served() -> String {
    OPERATIONS.iter().map(|operation| operation.name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_is_there_once_and_in_the_model() {
        for (at, operation) in OPERATIONS.iter().enumerate() {
            let first = OPERATIONS.iter().position(|other| other.name == operation.name);
            assert_eq!(first, Some(at), "{}", operation.name);
            assert!(crate::glue::model::model().unwrap().input(operation.name).is_some(), "{}", operation.name);
        }
    }
}
