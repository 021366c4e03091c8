//! Partition operations.

use serde_json::{Value, json};

use super::super::GlueException;
use super::super::input::{Members, Read};
use super::super::render::{self, Sized};
use super::super::wire::{EXPECTED_REVISION, EXPLAIN};
use super::moment::{Asked, check_kept};
use super::{add_token, members, page_size, position};
use crate::catalog::tables::find_table;
use crate::catalog::{CatalogError, Revision, Scope, TableRef, escaped_json_len};
use crate::partition::{
    self, ColumnSchema, Continuation, Indexes, Listing, PartitionInput, PartitionUpdate, Position, ScanBudget, Segment,
};
use crate::ports::App;
use crate::predicate::{self, Compiled};

const PAGE_MAX: usize = 1000;

pub(super) async fn table_of(app: &App, input: &Members) -> Result<TableRef, GlueException> {
    let (items, clock) = (app.ports.items.as_ref(), app.ports.clock.as_ref());
    Ok(find_table(items, clock, input.required("DatabaseName")?, input.required("TableName")?).await?)
}

fn inputs(entries: Option<Value>) -> Vec<PartitionInput> {
    match entries {
        Some(Value::Array(entries)) => entries.into_iter().map(members).map(PartitionInput::from_json).collect(),
        _ => Vec::new(),
    }
}

fn value_lists(input: &Members, name: &str) -> Vec<Vec<String>> {
    input.list(name).iter().filter_map(Value::as_object).map(|entry| entry.texts("Values")).collect()
}

pub(in crate::glue) async fn create_partition(app: &App, input: Value) -> Result<Value, GlueException> {
    let mut input = members(input);
    let table = table_of(app, &input).await?;
    let given = input.remove("PartitionInput").map(members).unwrap_or_default();
    partition::create(&app.ports, &app.settings, &table, PartitionInput::from_json(given)).await?;
    Ok(json!({}))
}

pub(in crate::glue) async fn batch_create_partition(app: &App, input: Value) -> Result<Value, GlueException> {
    let mut input = members(input);
    let table = table_of(app, &input).await?;
    let entries = inputs(input.remove("PartitionInputList"));
    let values: Vec<Vec<String>> = entries.iter().map(|entry| entry.values.clone()).collect();
    let answers = partition::create_many(&app.ports, &app.settings, &table, entries).await;
    Ok(json!({ "Errors": errors("PartitionValues", &values, answers) }))
}

fn errors(member: &str, values: &[Vec<String>], answers: Vec<Result<(), CatalogError>>) -> Vec<Value> {
    let failed = values.iter().zip(answers).filter_map(|(values, answer)| Some((values, answer.err()?)));
    failed.map(|(values, error)| render::partition_error(member, values, error)).collect()
}

/// The revision that the caller says it read.
fn expected_revision(input: &Members) -> Option<Revision> {
    input.text(EXPECTED_REVISION).map(Revision::from_text)
}

fn update_of(mut entry: Members) -> PartitionUpdate {
    let values = entry.texts("PartitionValueList");
    let input = entry.remove("PartitionInput").map(members).unwrap_or_default();
    PartitionUpdate { values, input: PartitionInput::from_json(input) }
}

pub(in crate::glue) async fn update_partition(app: &App, input: Value) -> Result<Value, GlueException> {
    let input = members(input);
    let table = table_of(app, &input).await?;
    let expected = expected_revision(&input);
    partition::update(&app.ports, &app.settings, &table, update_of(input), expected.as_ref()).await?;
    Ok(json!({}))
}

pub(in crate::glue) async fn batch_update_partition(app: &App, input: Value) -> Result<Value, GlueException> {
    let mut input = members(input);
    let table = table_of(app, &input).await?;
    let entries = match input.remove("Entries") {
        Some(Value::Array(entries)) => entries,
        _ => Vec::new(),
    };
    let entries = entries.into_iter().map(members);
    let updates: Vec<(PartitionUpdate, Option<Revision>)> = entries
        .map(|entry| (expected_revision(&entry), entry))
        .map(|(expected, entry)| (update_of(entry), expected))
        .collect();
    let values: Vec<Vec<String>> = updates.iter().map(|(update, _)| update.values.clone()).collect();
    let answers = partition::update_many(&app.ports, &app.settings, &table, updates).await;
    Ok(json!({ "Errors": errors("PartitionValueList", &values, answers) }))
}

pub(in crate::glue) async fn get_partition(app: &App, input: Value) -> Result<Value, GlueException> {
    let input = members(input);
    let table = table_of(app, &input).await?;
    let found = partition::get(&app.ports, &table, &input.texts("PartitionValues")).await?;
    Ok(json!({ "Partition": render::partition(&table, found, &app.settings.account_id) }))
}

/// What the keys of a batch get may take in an answer that has nothing but keys to ask again and one partition.
const KEYS_MAX_BYTES: usize = 1_500_000;

/// Values as an entry of a list, with the size of it in an answer.
fn value_list(values: &[String]) -> (Value, usize) {
    let entry = json!({ "Values": values });
    let size_bytes = escaped_json_len(&entry) + 1;
    (entry, size_bytes)
}

pub(in crate::glue) async fn batch_get_partition(app: &App, input: Value) -> Result<Value, GlueException> {
    let input = members(input);
    let table = table_of(app, &input).await?;
    let wanted = value_lists(&input, "PartitionsToGet");
    let keys_bytes: usize = wanted.iter().map(|values| value_list(values).1).sum();
    if keys_bytes > KEYS_MAX_BYTES {
        let text = format!(
            "PartitionsToGet takes {keys_bytes} bytes; more than {KEYS_MAX_BYTES} cannot be answered at once: ask for fewer partitions."
        );
        return Err(GlueException::invalid_input(text));
    }
    let found = partition::get_many(&app.ports, &table, &wanted).await?;
    let mut shown = Sized::beside(keys_bytes);
    let mut unread: Vec<Value> = Vec::new();
    for partition in found.partitions {
        let values = partition.values().to_vec();
        // Once one did not fit, none of the rest is shown, so that the order of the request holds over all rounds.
        if !unread.is_empty() || !shown.push(render::partition(&table, partition, &app.settings.account_id)) {
            unread.push(value_list(&values).0);
        }
    }
    unread.extend(found.unread.iter().map(|values| value_list(values).0));
    Ok(json!({ "Partitions": shown.into_entries(), "UnprocessedKeys": unread }))
}

fn segment_of(input: &Members) -> Result<Segment, GlueException> {
    let Some(segment) = input.object("Segment") else { return Ok(Segment::WHOLE) };
    let part = |name| segment.number(name).and_then(|number| u16::try_from(number).ok());
    match (part("SegmentNumber"), part("TotalSegments")) {
        (Some(number), Some(total)) if number < total => Ok(Segment { number, total }),
        _ => Err(GlueException::invalid_input("SegmentNumber must be less than TotalSegments.")),
    }
}

/// The filter that a request asks for; blank means none.
fn filter_of(app: &App, table: &TableRef, expression: &str) -> Result<Option<Compiled>, GlueException> {
    if predicate::is_blank(expression) {
        return Ok(None);
    }
    Ok(Some(predicate::compile(expression, &table.keys, app.settings.default_partition)?))
}

/// Where a page begins, and what the first one has decided.
async fn continuation(
    app: &App,
    table: &TableRef,
    (input, asked): (&Members, &Asked),
    scope: &Scope<'_>,
) -> Result<Continuation, GlueException> {
    let continuation = match position(app, input, scope).await? {
        None => {
            let view = asked.view(app, table).await?;
            Continuation { position: Position::BEGINNING, view, indexes: Indexes::Try }
        }
        Some(bytes) => Continuation::decode(&bytes).ok_or(CatalogError::ForeignToken)?,
    };
    check_kept(app, table, continuation.view)?;
    Ok(continuation)
}

pub(in crate::glue) async fn get_partitions(app: &App, input: Value) -> Result<Value, GlueException> {
    let input = members(input);
    let table = table_of(app, &input).await?;
    let asked = Asked::of(&input)?;
    let expression = input.text("Expression").unwrap_or_default();
    let filter = filter_of(app, &table, expression)?;
    let segment = segment_of(&input)?;
    let (epoch, part) = (table.epoch.to_string(), format!("{}/{}", segment.number, segment.total));
    let moment = asked.scope();
    let scope = Scope(&["GetPartitions", table.table_id.as_str(), &epoch, &part, expression.trim(), &moment]);
    let Continuation { position, view, indexes } = continuation(app, &table, (&input, &asked), &scope).await?;
    let exclude = input.flag("ExcludeColumnSchema");
    let listing = Listing {
        segment,
        filter,
        view,
        start: position,
        indexes,
        limit: page_size(&input, PAGE_MAX),
        columns: if exclude { ColumnSchema::Exclude } else { ColumnSchema::Include },
        budget: ScanBudget::default(),
    };
    let page = partition::list(&app.ports, &table, &listing).await?;
    check_kept(app, &table, view)?;
    let mut shown = Sized::default();
    let mut last = None;
    let mut next = page.next;
    for (key, partition) in page.partitions {
        if !shown.push(render::partition(&table, partition, &app.settings.account_id)) {
            next = last.map(Position::After);
            break;
        }
        last = Some(key);
    }
    let mut output = Members::new();
    output.insert("Partitions".to_owned(), Value::Array(shown.into_entries()));
    let next = next.map(|position| Continuation { position, view, indexes: page.indexes }.encode());
    add_token(app, &mut output, &scope, next.as_deref()).await?;
    if input.flag(EXPLAIN) {
        output.insert("Explain".to_owned(), page.explained.to_json(expression.trim()));
    }
    Ok(Value::Object(output))
}

pub(in crate::glue) async fn delete_partition(app: &App, input: Value) -> Result<Value, GlueException> {
    let input = members(input);
    let table = table_of(app, &input).await?;
    let expected = expected_revision(&input);
    let values = input.texts("PartitionValues");
    partition::delete(&app.ports, &app.settings, &table, &values, expected.as_ref()).await?;
    Ok(json!({}))
}

/// No `Errors` when there are none: clients look for the member.
pub(in crate::glue) async fn batch_delete_partition(app: &App, input: Value) -> Result<Value, GlueException> {
    let input = members(input);
    let table = table_of(app, &input).await?;
    let entries = value_lists(&input, "PartitionsToDelete");
    let expected = input.list("PartitionsToDelete").iter().filter_map(Value::as_object).map(expected_revision);
    let expecting = entries.iter().cloned().zip(expected).collect();
    let answers = partition::delete_many(&app.ports, &app.settings, &table, expecting).await;
    let errors = errors("PartitionValues", &entries, answers);
    Ok(if errors.is_empty() { json!({}) } else { json!({ "Errors": errors }) })
}
