//! Partition specs: the partitions of a page, those with one storage descriptor together.

use lakewarden_core::glue;
use lakewarden_core::ports::App;
use serde_json::{Map, Value};

use super::{RestAnswer, RestError, RestRequest};

/// A page of partitions, grouped.
pub async fn list(app: &App, _request: RestRequest, input: Map<String, Value>) -> Result<RestAnswer, RestError> {
    Ok(RestAnswer::ok(glue::partition_specs(app, Value::Object(input)).await?))
}
