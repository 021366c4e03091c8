//! Partition index operations.

use serde_json::{Value, json};

use super::super::GlueException;
use super::super::input::{Members, Read};
use super::{members, position};
use crate::catalog::indexes::{self, NewIndex};
use crate::catalog::tables::find_table;
use crate::catalog::{IndexRef, Scope, TableRef};
use crate::ports::App;

fn new_index(index: &Members) -> Result<NewIndex, GlueException> {
    Ok(NewIndex { name: index.required("IndexName")?.to_owned(), keys: index.texts("Keys") })
}

/// Indexes that a request to create a table asks for.
pub(super) fn new_indexes(input: &Members) -> Result<Vec<NewIndex>, GlueException> {
    input.list("PartitionIndexes").iter().filter_map(Value::as_object).map(new_index).collect()
}

pub(in crate::glue) async fn create_partition_index(app: &App, input: Value) -> Result<Value, GlueException> {
    let input = members(input);
    let Some(index) = input.object("PartitionIndex") else {
        return Err(GlueException::invalid_input("PartitionIndex is required."));
    };
    let (database, table) = (input.required("DatabaseName")?, input.required("TableName")?);
    indexes::create_index(&app.ports, database, table, &new_index(index)?).await?;
    Ok(json!({}))
}

pub(in crate::glue) async fn delete_partition_index(app: &App, input: Value) -> Result<Value, GlueException> {
    let input = members(input);
    let (database, table) = (input.required("DatabaseName")?, input.required("TableName")?);
    indexes::delete_index(&app.ports, database, table, input.required("IndexName")?).await?;
    Ok(json!({}))
}

/// All at once: a table has three at most. A token is one that somebody made up.
pub(in crate::glue) async fn get_partition_indexes(app: &App, input: Value) -> Result<Value, GlueException> {
    let input = members(input);
    let (items, clock) = (app.ports.items.as_ref(), app.ports.clock.as_ref());
    let table = find_table(items, clock, input.required("DatabaseName")?, input.required("TableName")?).await?;
    position(app, &input, &Scope(&["GetPartitionIndexes", table.table_id.as_str()])).await?;
    let shown: Vec<Value> = indexes::shown(&table).into_iter().map(|index| render(&table, index)).collect();
    Ok(json!({ "PartitionIndexDescriptorList": shown }))
}

fn render(table: &TableRef, index: &IndexRef) -> Value {
    let type_of = |name: &String| table.keys.iter().find(|key| key.name == *name).map(|key| key.type_name.as_str());
    let keys: Vec<Value> =
        index.keys.iter().map(|name| json!({ "Name": name, "Type": type_of(name).unwrap_or_default() })).collect();
    json!({ "IndexName": index.name, "Keys": keys, "IndexStatus": index.status() })
}
