//! Partition specs, which the service's protocol has shapes for and no operation.

use serde_json::{Value, json};

use super::GlueException;
use super::wire::call;
use crate::partition::{Root, plan_specs};
use crate::ports::App;

/// A page of a table's partitions as specs: `{"PartitionSpecs": [...], "NextToken": ".."}`. The input is that of
/// GetPartitions, and so are filters, segments, tokens and limits; partitions are grouped within a page, so a descriptor
/// comes again on every page that has partitions with it.
///
/// # Errors
/// Those of GetPartitions.
pub async fn partition_specs(app: &App, input: Value) -> Result<Value, GlueException> {
    let member = |name: &str| input.get(name).cloned().unwrap_or(Value::Null);
    let named = json!({ "DatabaseName": member("DatabaseName"), "Name": member("TableName") });
    // First the partitions: what is wrong with the input is told in their words.
    let mut page = call(app, "GetPartitions", input).await?;
    let table = call(app, "GetTable", named).await?;
    let text = |pointer: &str| table.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let root = Root {
        database: text("/Table/DatabaseName").to_owned(),
        table: text("/Table/Name").to_owned(),
        location: table.pointer("/Table/StorageDescriptor/Location").and_then(Value::as_str).map(str::to_owned),
    };
    let partitions = match page.get_mut("Partitions").map(Value::take) {
        Some(Value::Array(partitions)) => partitions,
        _ => Vec::new(),
    };
    let mut answer = json!({ "PartitionSpecs": plan_specs(&root, partitions) });
    if let (Some(token), Some(answer)) = (page.get_mut("NextToken").map(Value::take), answer.as_object_mut()) {
        answer.insert("NextToken".to_owned(), token);
    }
    Ok(answer)
}
