//! The operations on the product's own catalog, as its table of operations wants them.

use serde_json::Value;

use crate::glue::GlueException;
use crate::ports::App;
use crate::sweep::CatalogDirectory;

/// CreateTableOptimizer
pub async fn create_table_optimizer(app: &App, input: Value) -> Result<Value, GlueException> {
    super::create(app, &CatalogDirectory::new(app), input).await
}

/// GetTableOptimizer
pub async fn get_table_optimizer(app: &App, input: Value) -> Result<Value, GlueException> {
    super::get(app, &CatalogDirectory::new(app), input).await
}

/// BatchGetTableOptimizer
pub async fn batch_get_table_optimizer(app: &App, input: Value) -> Result<Value, GlueException> {
    super::batch_get(app, &CatalogDirectory::new(app), input).await
}

/// UpdateTableOptimizer
pub async fn update_table_optimizer(app: &App, input: Value) -> Result<Value, GlueException> {
    super::update(app, &CatalogDirectory::new(app), input).await
}

/// DeleteTableOptimizer
pub async fn delete_table_optimizer(app: &App, input: Value) -> Result<Value, GlueException> {
    super::delete(app, &CatalogDirectory::new(app), input).await
}

/// ListTableOptimizerRuns
pub async fn list_table_optimizer_runs(app: &App, input: Value) -> Result<Value, GlueException> {
    super::list_runs(app, &CatalogDirectory::new(app), input).await
}
