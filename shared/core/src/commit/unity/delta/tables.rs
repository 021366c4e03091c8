//! Tables by name: found, created, loaded, taken out.

use serde_json::{Map, Value, json};

use super::error::DeltaError;
use super::wire::{Metrics, NewStaging, NewTable, to_delta, to_wire};
use crate::catalog::tables::{drop_table, get_table};
use crate::catalog::{TableDefinition, TableRef, get_database};
use crate::commit::context::Context;
use crate::commit::keys::ProposalId;
use crate::commit::managed::Ratified;
use crate::commit::table_state::TableState;
use crate::commit::unity::tables::{self, Found, NewTable as Created};
use crate::commit::unity::{columns, names};
use crate::commit::view::{self, ViewError};
use crate::delta::{Protocol, Version, features};
use crate::location::Location;

/// Features that a catalog-managed table needs here.
const READER_FEATURES: [&str; 1] = ["catalogManaged"];
const WRITER_FEATURES: [&str; 2] = ["catalogManaged", "inCommitTimestamp"];
const IN_COMMIT_TIMESTAMPS: &str = "delta.enableInCommitTimestamps";

/// A table that a call names.
#[derive(Clone, Debug)]
pub(super) struct Named {
    pub(super) table: TableRef,
    pub(super) definition: TableDefinition,
    pub(super) uuid: String,
    pub(super) root: Location,
}

impl Named {
    pub(super) fn is_managed(&self) -> bool {
        tables::table_type(&self.definition) == "MANAGED"
    }

    /// As the commit call needs it.
    pub(super) fn found(&self) -> Result<Found, DeltaError> {
        tables::created_here(&self.definition, &self.root).ok_or_else(|| {
            let text = "the table was not created by a Unity Catalog client: its commits are not ratified here";
            DeltaError::invalid(text)
        })
    }
}

/// The Delta table with a name.
pub(super) async fn find(ctx: Context<'_>, [catalog, schema, table]: [&str; 3]) -> Result<Named, DeltaError> {
    names::check_catalog(ctx, catalog).map_err(|error| DeltaError::no_catalog(error.message))?;
    get_database(ctx.ports(), schema).await?;
    let (table, definition) = get_table(ctx.ports(), schema, table).await?;
    let format = tables::format(&definition);
    if format != "DELTA" {
        let text = format!("{}.{} is a table of the format {format}", table.database, table.name);
        return Err(DeltaError::other_format(text));
    }
    let root = definition
        .location()?
        .ok_or_else(|| DeltaError::other_format(format!("{}.{} has no location on S3", table.database, table.name)))?;
    let uuid = tables::uuid_of(&table, &definition);
    Ok(Named { table, definition, uuid, root })
}

/// A place for a table that is about to be created.
pub(super) async fn stage(
    ctx: Context<'_>,
    (catalog, schema): (&str, &str),
    new: NewStaging,
) -> Result<Value, DeltaError> {
    names::check_catalog(ctx, catalog).map_err(|error| DeltaError::no_catalog(error.message))?;
    get_database(ctx.ports(), schema).await?;
    let (id, location) = tables::give_place(ctx, schema, &new.name).await?;
    Ok(json!({
        "table-id": id.to_string(),
        "table-type": "MANAGED",
        "location": location.to_string(),
        "storage-credentials": [],
        "required-protocol": {
            "min-reader-version": 3,
            "min-writer-version": 7,
            "reader-features": READER_FEATURES,
            "writer-features": WRITER_FEATURES,
        },
        "suggested-protocol": {"reader-features": ["vacuumProtocolCheck"], "writer-features": ["vacuumProtocolCheck"]},
        "required-properties": {IN_COMMIT_TIMESTAMPS: "true", "io.unitycatalog.tableId": id.to_string()},
        "suggested-properties": {},
    }))
}

pub(super) async fn create(
    ctx: Context<'_>,
    (catalog, schema): (&str, &str),
    new: NewTable,
) -> Result<Value, DeltaError> {
    names::check_catalog(ctx, catalog).map_err(|error| DeltaError::no_catalog(error.message))?;
    get_database(ctx.ports(), schema).await?;
    if new.uniform.as_ref().is_some_and(|uniform| !uniform.is_null()) {
        return Err(DeltaError::not_implemented(
            "`uniform` is not served: Iceberg metadata of Delta tables is not kept",
        ));
    }
    let protocol = Protocol::from(new.protocol.clone());
    if new.table_type == "MANAGED" {
        check_managed(&protocol, &new.properties)?;
    }
    let schema_string = to_delta(&new.columns).to_string();
    let columns = columns::of_schema(&schema_string, &new.partition_columns)
        .ok_or_else(|| DeltaError::invalid("`columns` is no struct of Delta's types"))?;
    let mut properties = new.properties;
    properties.extend(derived(&protocol).map(|(name, value)| (name, value.into())));
    let created = Created {
        catalog_name: catalog.to_owned(),
        schema_name: schema.to_owned(),
        name: new.name.clone(),
        table_type: new.table_type,
        data_source_format: "DELTA".to_owned(),
        columns,
        storage_location: Some(new.location),
        comment: new.comment,
        properties: Some(properties),
    };
    tables::create(ctx, created).await?;
    let named = find(ctx, [catalog, schema, &new.name]).await?;
    load(ctx, &named).await
}

fn check_managed(protocol: &Protocol, properties: &Map<String, Value>) -> Result<(), DeltaError> {
    let has = |wanted: &str| protocol.writer_features.iter().flatten().any(|feature| feature == wanted);
    if !features::is_catalog_managed(protocol) || !has("inCommitTimestamp") {
        let text = format!("a managed table needs the writer features {}", WRITER_FEATURES.join(", "));
        return Err(DeltaError::invalid(text));
    }
    if properties.get(IN_COMMIT_TIMESTAMPS).and_then(Value::as_str) != Some("true") {
        return Err(DeltaError::invalid(format!("a managed table needs the property {IN_COMMIT_TIMESTAMPS} = true")));
    }
    Ok(())
}

/// The table, and what is ratified and not in its log yet: one look at both.
pub(super) async fn load(ctx: Context<'_>, named: &Named) -> Result<Value, DeltaError> {
    let seen = look(ctx, named).await?;
    let newest_first = seen.unpublished.iter().rev().map(|one| {
        json!({
            "version": one.version.0,
            "timestamp": one.timestamp_ms,
            "file-name": one.file_name(),
            "file-size": one.size_bytes,
            "file-modification-timestamp": one.modified_ms,
        })
    });
    let mut loaded = json!({"metadata": metadata(named, &seen)?, "commits": newest_first.collect::<Vec<_>>()});
    if let Some(loaded) = loaded.as_object_mut().filter(|_| seen.latest > Version::NONE) {
        loaded.insert("latest-table-version".to_owned(), seen.latest.0.into());
    }
    Ok(loaded)
}

/// A table as it is now.
pub(super) struct Seen {
    pub(super) latest: Version,
    unpublished: Vec<Ratified>,
    /// `None` where there is no log yet.
    state: Option<TableState>,
}

pub(super) async fn look(ctx: Context<'_>, named: &Named) -> Result<Seen, DeltaError> {
    let nobodys = ProposalId(uuid::Uuid::nil());
    match view::load(ctx, &named.root, nobodys).await {
        Ok((view, _)) => {
            let unpublished = view.head.managed.map(|managed| managed.ratified).unwrap_or_default();
            Ok(Seen { latest: view.latest, unpublished, state: view.state })
        }
        Err(ViewError::Failed(error)) => Err(error.into()),
        Err(ViewError::Refused(refusal)) => Err(DeltaError::invalid(format!(
            "the table's log cannot be read: {:?} [{}]: {}; {}",
            refusal.exception, refusal.reason, refusal.message, refusal.advice
        ))),
    }
}

/// Changes with every version, and with the table: what a client saw under it is what there is.
pub(super) fn etag(named: &Named, latest: Version) -> String {
    format!("{}:{}", named.uuid, latest.0)
}

/// What a table has, by its log or by the catalog.
struct Described {
    columns: Value,
    partition_columns: Vec<String>,
    properties: Map<String, Value>,
}

fn metadata(named: &Named, seen: &Seen) -> Result<Value, DeltaError> {
    let definition = &named.definition;
    let described = match &seen.state {
        Some(state) => of_log(state)?,
        None => of_catalog(definition),
    };
    Ok(json!({
        "etag": etag(named, seen.latest),
        "table-type": tables::table_type(definition),
        "table-uuid": named.uuid,
        "location": named.root.to_string(),
        "created-time": named.table.created_ms,
        "updated-time": definition.updated_ms,
        "columns": described.columns,
        "partition-columns": described.partition_columns,
        "properties": described.properties,
    }))
}

fn of_log(state: &TableState) -> Result<Described, DeltaError> {
    let metadata = &state.metadata;
    let schema: Value = serde_json::from_str(&metadata.schema_string)
        .map_err(|error| DeltaError::invalid(format!("the schema in the table's log: {error}")))?;
    let set = metadata.configuration.iter().filter_map(|(name, value)| Some((name.clone(), value.clone()?.into())));
    let mut properties: Map<String, Value> = set.collect();
    properties.extend(derived(&state.protocol).map(|(name, value)| (name, value.into())));
    Ok(Described { columns: to_wire(&schema), partition_columns: metadata.partition_columns.clone(), properties })
}

/// Before the first version is in the log.
fn of_catalog(definition: &TableDefinition) -> Described {
    let (fields, partition_columns) = columns::to_schema(&tables::given_columns(definition));
    let columns = to_wire(&json!({"type": "struct", "fields": fields}));
    Described { columns, partition_columns, properties: tables::properties(definition) }
}

/// What a protocol adds to a table's properties.
fn derived(protocol: &Protocol) -> impl Iterator<Item = (String, String)> + use<'_> {
    let lists = [&protocol.reader_features, &protocol.writer_features];
    let features = lists.into_iter().flatten().flatten();
    [
        ("delta.minReaderVersion".to_owned(), protocol.min_reader_version.to_string()),
        ("delta.minWriterVersion".to_owned(), protocol.min_writer_version.to_string()),
    ]
    .into_iter()
    .chain(features.map(|feature| (format!("delta.feature.{feature}"), "supported".to_owned())))
}

/// Takes a table out of the catalog. Its files stay where they are.
pub(super) async fn delete(ctx: Context<'_>, named: &Named) -> Result<(), DeltaError> {
    drop_table(ctx.ports(), &named.table.database, &named.table.name).await?;
    Ok(())
}

/// Metrics are checked and not kept.
pub(super) fn take_metrics(named: &Named, metrics: &Metrics) -> Result<(), DeltaError> {
    if metrics.table_id == named.uuid {
        return Ok(());
    }
    Err(DeltaError::invalid(format!("the table has the id {}, not {}", named.uuid, metrics.table_id)))
}
