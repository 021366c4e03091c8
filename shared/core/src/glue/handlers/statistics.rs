//! Column statistics of partitions and tables.

use serde_json::{Map, Value, json};

use super::super::GlueException;
use super::super::input::{Members, Read};
use super::super::render::{Sized, error_detail};
use super::members;
use super::partitions::table_of;
use crate::catalog::TableRef;
use crate::partition::{self, StatisticsOwner};
use crate::ports::App;

async fn partition_of(app: &App, input: &Members) -> Result<(TableRef, StatisticsOwner), GlueException> {
    let table = table_of(app, input).await?;
    let owner = partition::owner_of(&app.ports, &table, &input.texts("PartitionValues")).await?;
    Ok((table, owner))
}

async fn own_table(app: &App, input: &Members) -> Result<(TableRef, StatisticsOwner), GlueException> {
    let table = table_of(app, input).await?;
    let owner = StatisticsOwner::Table(table.table_id.clone());
    Ok((table, owner))
}

async fn get(app: &App, input: &Members, of: (TableRef, StatisticsOwner)) -> Result<Value, GlueException> {
    let (table, owner) = of;
    let found = partition::get_statistics(&app.ports, &table, &owner, &input.texts("ColumnNames")).await?;
    let mut shown = Sized::default();
    let mut errors = Vec::new();
    for (column, statistics) in found {
        let problem = match statistics {
            None => GlueException::not_found("Statistics do not exist for this column"),
            Some(statistics) => {
                if shown.push(Value::Object(statistics)) {
                    continue;
                }
                GlueException::invalid_input(
                    "One answer cannot hold all of these statistics: ask for this column again.",
                )
            }
        };
        errors.push(json!({ "ColumnName": column, "Error": error_detail(problem.clone(), None) }));
    }
    Ok(json!({ "ColumnStatisticsList": shown.into_entries(), "Errors": errors }))
}

async fn update(app: &App, mut input: Members, of: (TableRef, StatisticsOwner)) -> Result<Value, GlueException> {
    let (table, owner) = of;
    let entries: Vec<Map<String, Value>> = match input.remove("ColumnStatisticsList") {
        Some(Value::Array(entries)) => entries.into_iter().map(members).collect(),
        _ => Vec::new(),
    };
    let answers = partition::put_statistics(&app.ports, &table, &owner, entries.clone()).await?;
    let failed = entries.into_iter().zip(answers).filter_map(|(entry, answer)| Some((entry, answer.err()?)));
    let errors: Vec<Value> =
        failed.map(|(entry, error)| json!({ "ColumnStatistics": entry, "Error": error_detail(error, None) })).collect();
    Ok(json!({ "Errors": errors }))
}

async fn delete(app: &App, input: &Members, of: (TableRef, StatisticsOwner)) -> Result<Value, GlueException> {
    let (table, owner) = of;
    partition::delete_statistics(&app.ports, &table, &owner, input.required("ColumnName")?).await?;
    Ok(json!({}))
}

pub(in crate::glue) async fn get_for_partition(app: &App, input: Value) -> Result<Value, GlueException> {
    let input = members(input);
    get(app, &input, partition_of(app, &input).await?).await
}

pub(in crate::glue) async fn update_for_partition(app: &App, input: Value) -> Result<Value, GlueException> {
    let input = members(input);
    let of = partition_of(app, &input).await?;
    update(app, input, of).await
}

pub(in crate::glue) async fn delete_for_partition(app: &App, input: Value) -> Result<Value, GlueException> {
    let input = members(input);
    delete(app, &input, partition_of(app, &input).await?).await
}

pub(in crate::glue) async fn get_for_table(app: &App, input: Value) -> Result<Value, GlueException> {
    let input = members(input);
    get(app, &input, own_table(app, &input).await?).await
}

pub(in crate::glue) async fn update_for_table(app: &App, input: Value) -> Result<Value, GlueException> {
    let input = members(input);
    let of = own_table(app, &input).await?;
    update(app, input, of).await
}

pub(in crate::glue) async fn delete_for_table(app: &App, input: Value) -> Result<Value, GlueException> {
    let input = members(input);
    delete(app, &input, own_table(app, &input).await?).await
}
