//! Tables, and places for tables that are about to be created.

use serde::Deserialize;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::table_item::{self, TableEntry};
use super::{Request, UnityError, columns, names, schemas};
use crate::catalog::tables::{create_table, drop_table, find_table, get_table, list_tables};
use crate::catalog::{CatalogError, TableDefinition, TableRef, fold, get_database};
use crate::commit::context::Context;
use crate::commit::head;
use crate::location::Location;
use crate::store::{Condition, Consistency, WriteError};

/// Parameters of ours; a client does not see them among its properties.
const TABLE_ID: &str = "unity.table_id";
const TABLE_TYPE: &str = "unity.table_type";
const COLUMNS: &str = "unity.columns";
/// How the catalog's other clients know a Delta table.
const PROVIDER: (&str, &str) = ("spark.sql.sources.provider", "delta");

#[derive(Debug, Deserialize)]
pub(super) struct NewStaging {
    catalog_name: String,
    schema_name: String,
    name: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct NewTable {
    pub(super) catalog_name: String,
    pub(super) schema_name: String,
    pub(super) name: String,
    pub(super) table_type: String,
    pub(super) data_source_format: String,
    #[serde(default)]
    pub(super) columns: Vec<Value>,
    pub(super) storage_location: Option<String>,
    pub(super) comment: Option<String>,
    pub(super) properties: Option<Map<String, Value>>,
}

/// A table that a commit call is about.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) id: Uuid,
    pub(super) root: Location,
}

/// A table that was created by these calls, as its commit calls need it.
pub(super) fn created_here(definition: &TableDefinition, root: &Location) -> Option<Found> {
    let id = definition.parameter(TABLE_ID).and_then(|id| Uuid::try_parse(id).ok())?;
    Some(Found { id, root: root.clone() })
}

/// The id that clients know a table by.
pub(super) fn uuid_of(table: &TableRef, definition: &TableDefinition) -> String {
    definition.parameter(TABLE_ID).map_or_else(|| table_item::as_uuid(table.table_id.as_str()), str::to_owned)
}

pub(super) fn table_type(definition: &TableDefinition) -> &str {
    definition.parameter(TABLE_TYPE).unwrap_or("EXTERNAL")
}

/// The table with this id, if it is one.
pub(super) async fn by_id(ctx: Context<'_>, table_id: &str) -> Result<Found, UnityError> {
    let missing = || UnityError::not_found(format!("there is no table with the id {table_id}"));
    let id = Uuid::try_parse(table_id).map_err(|_| missing())?;
    let entry = entry(ctx, id).await?.ok_or_else(missing)?;
    let (_, definition) = match get_table(ctx.ports(), &entry.database, &entry.table).await {
        Err(CatalogError::TableNotFound(_) | CatalogError::DatabaseNotFound(_)) => return Err(missing()),
        other => other?,
    };
    if definition.parameter(TABLE_ID) != Some(id.to_string().as_str()) {
        return Err(missing());
    }
    let root = definition.location()?.ok_or_else(missing)?;
    Ok(Found { id, root })
}

/// The place of a table that was created or staged by these calls.
pub(super) async fn place_of(ctx: Context<'_>, table_id: &str) -> Result<Location, UnityError> {
    let missing = || UnityError::not_found(format!("there is no table with the id {table_id}"));
    let id = Uuid::try_parse(table_id).map_err(|_| missing())?;
    Ok(entry(ctx, id).await?.ok_or_else(missing)?.location)
}

async fn entry(ctx: Context<'_>, id: Uuid) -> Result<Option<TableEntry>, UnityError> {
    let item = ctx.ports().items.get(&table_item::key(id), Consistency::Strong).await.map_err(CatalogError::from)?;
    item.map(|item| table_item::decode(&item).map_err(|error| CatalogError::from(error).into())).transpose()
}

async fn put_entry(ctx: Context<'_>, entry: &TableEntry) -> Result<(), UnityError> {
    match ctx.ports().items.put(&table_item::key(entry.id), table_item::encode(entry), Condition::Absent).await {
        Ok(()) => Ok(()),
        Err(WriteError::ConditionFailed { .. }) => Err(UnityError::exists("the id is taken: try again")),
        Err(WriteError::Store(error)) => Err(CatalogError::from(error).into()),
    }
}

/// A place for a table whose client writes its first version before the table is created.
pub(super) async fn stage(ctx: Context<'_>, new: NewStaging) -> Result<Value, UnityError> {
    names::check_catalog(ctx, &new.catalog_name)?;
    let (id, location) = give_place(ctx, &new.schema_name, &new.name).await?;
    Ok(json!({
        "id": id.to_string(),
        "catalog_name": new.catalog_name,
        "schema_name": new.schema_name,
        "name": new.name,
        "staging_location": location.to_string(),
    }))
}

pub(super) async fn give_place(ctx: Context<'_>, schema: &str, name: &str) -> Result<(Uuid, Location), UnityError> {
    names::check_new("table", name)?;
    let database = get_database(ctx.ports(), schema).await?;
    let ports = ctx.ports();
    match find_table(ports.items.as_ref(), ports.clock.as_ref(), schema, name).await {
        Ok(_) => return Err(UnityError::exists(format!("the table {schema}.{name} exists"))),
        Err(CatalogError::TableNotFound(_)) => {}
        Err(error) => return Err(error.into()),
    }
    let id = ports.ids.uuid();
    let base = storage(ctx, &database.name, database.input.get("LocationUri").and_then(Value::as_str))?;
    let location = Location::new(base.bucket.clone(), &base.object(&id.to_string()).key);
    let entry = TableEntry {
        id,
        database: database.name,
        table: fold(name),
        location: location.clone(),
        created_ms: ctx.now_ms(),
    };
    put_entry(ctx, &entry).await?;
    Ok((id, location))
}

/// The folder in which managed tables of a schema lie.
fn storage(ctx: Context<'_>, database: &str, location_uri: Option<&str>) -> Result<Location, UnityError> {
    if let Some(own) = location_uri.and_then(|uri| Location::parse(uri).ok()) {
        return Ok(own);
    }
    match &ctx.app.settings.unity.storage {
        Some(base) => Ok(Location::new(base.bucket.clone(), &base.object(database).key)),
        None => Err(UnityError::precondition(format!(
            "the schema {database} has no location on S3, and the deployment no folder for managed tables: \
             give the schema a storage_root, or set LAKEWARDEN_UNITY_STORAGE"
        ))),
    }
}

pub(super) async fn create(ctx: Context<'_>, new: NewTable) -> Result<Value, UnityError> {
    names::check_catalog(ctx, &new.catalog_name)?;
    names::check_new("table", &new.name)?;
    if !new.data_source_format.eq_ignore_ascii_case("DELTA") {
        return Err(UnityError::unimplemented(format!(
            "tables of the format {} cannot be created here, only DELTA; use the catalog's own API",
            new.data_source_format
        )));
    }
    let Some(given) = new.storage_location.as_deref() else {
        return Err(UnityError::invalid("storage_location is missing"));
    };
    let location = Location::parse(given).map_err(|error| UnityError::invalid(error.to_string()))?;
    let id = match new.table_type.as_str() {
        "MANAGED" => staged_id(ctx, &new, &location).await?,
        "EXTERNAL" => {
            let (id, created_ms) = (ctx.ports().ids.uuid(), ctx.now_ms());
            let (database, table) = (fold(&new.schema_name), fold(&new.name));
            put_entry(ctx, &TableEntry { id, database, table, location: location.clone(), created_ms }).await?;
            id
        }
        other => return Err(UnityError::invalid(format!("table_type is MANAGED or EXTERNAL, not {other}"))),
    };
    create_table(ctx.ports(), &new.schema_name, table_input(&new, id, &location)).await?;
    let (table, definition) = get_table(ctx.ports(), &new.schema_name, &new.name).await?;
    info(ctx, &table, &definition).await
}

/// The id under which the place of a managed table was given out.
async fn staged_id(ctx: Context<'_>, new: &NewTable, location: &Location) -> Result<Uuid, UnityError> {
    let refused =
        || UnityError::invalid("a managed table needs the staging_location that POST staging-tables gave for its name");
    let id = location.prefix.rsplit('/').next().and_then(|name| Uuid::try_parse(name).ok()).ok_or_else(refused)?;
    let entry = entry(ctx, id).await?.ok_or_else(refused)?;
    let is_its =
        entry.location == *location && entry.database == fold(&new.schema_name) && entry.table == fold(&new.name);
    if is_its { Ok(id) } else { Err(refused()) }
}

fn table_input(new: &NewTable, id: Uuid, location: &Location) -> Map<String, Value> {
    let (columns, keys) = columns::to_catalog(&new.columns);
    let mut parameters: Map<String, Value> = new.properties.clone().unwrap_or_default();
    parameters.retain(|_, value| value.is_string());
    let own = [
        (PROVIDER.0, PROVIDER.1.to_owned()),
        ("EXTERNAL", "TRUE".to_owned()),
        (TABLE_ID, id.to_string()),
        (TABLE_TYPE, new.table_type.clone()),
        (COLUMNS, Value::Array(new.columns.clone()).to_string()),
    ];
    parameters.extend(own.into_iter().map(|(name, value)| (name.to_owned(), value.into())));
    let mut input = Map::from_iter([
        ("Name".to_owned(), Value::from(new.name.as_str())),
        ("TableType".to_owned(), "EXTERNAL_TABLE".into()),
        ("Parameters".to_owned(), Value::Object(parameters)),
        ("PartitionKeys".to_owned(), Value::Array(keys)),
        ("StorageDescriptor".to_owned(), json!({"Location": location.to_string(), "Columns": columns})),
    ]);
    if let Some(comment) = &new.comment {
        input.insert("Description".to_owned(), comment.as_str().into());
    }
    input
}

pub(super) async fn get(ctx: Context<'_>, full_name: &str) -> Result<Value, UnityError> {
    let (schema, name) = names::table(ctx, full_name)?;
    let (table, definition) = get_table(ctx.ports(), schema, name).await?;
    info(ctx, &table, &definition).await
}

/// Takes a table out of the catalog. Its files stay where they are.
pub(super) async fn delete(ctx: Context<'_>, full_name: &str) -> Result<Value, UnityError> {
    let (schema, name) = names::table(ctx, full_name)?;
    drop_table(ctx.ports(), schema, name).await?;
    Ok(json!({}))
}

pub(super) async fn list(ctx: Context<'_>, request: Request<'_>) -> Result<Value, UnityError> {
    names::check_catalog(ctx, request.query("catalog_name").unwrap_or_default())?;
    let Some(schema) = request.query("schema_name") else {
        return Err(UnityError::invalid("schema_name is missing"));
    };
    let (limit, after) = schemas::page(request)?;
    let page = list_tables(ctx.ports(), schema, None, after, limit).await?;
    let infos = page.tables.iter().map(|(table, definition)| info(ctx, table, definition));
    let tables = futures::future::try_join_all(infos).await?;
    Ok(json!({"tables": tables, "next_page_token": page.next}))
}

/// TableInfo. The columns are those of the log, as far as we know it.
async fn info(ctx: Context<'_>, table: &TableRef, definition: &TableDefinition) -> Result<Value, UnityError> {
    let mut info = json!({
        "name": table.name,
        "catalog_name": ctx.app.settings.unity.catalog,
        "schema_name": table.database,
        "full_name": format!("{}.{}.{}", ctx.app.settings.unity.catalog, table.database, table.name),
        "table_type": table_type(definition),
        "data_source_format": format(definition),
        "columns": known_columns(ctx, definition).await?,
        "table_id": uuid_of(table, definition),
        "created_at": table.created_ms,
        "updated_at": definition.updated_ms,
        "properties": properties(definition),
    });
    if let Some(info) = info.as_object_mut() {
        if let Some(location) = definition.location_uri() {
            info.insert("storage_location".into(), location.into());
        }
        if let Some(comment) = definition.input.get("Description") {
            info.insert("comment".into(), comment.clone());
        }
    }
    Ok(info)
}

pub(super) fn format(definition: &TableDefinition) -> String {
    let of = |name: &str| definition.parameter(name).map(str::to_uppercase);
    let known = ["DELTA", "CSV", "JSON", "AVRO", "PARQUET", "ORC", "TEXT"];
    let named = [of(PROVIDER.0), of("table_type"), of("classification")].into_iter().flatten();
    named.into_iter().find(|format| known.contains(&format.as_str())).unwrap_or_else(|| "PARQUET".to_owned())
}

pub(super) fn properties(definition: &TableDefinition) -> Map<String, Value> {
    let parameters = definition.parameters().into_iter();
    let is_theirs = |name: &str| !name.starts_with("unity.") && name != PROVIDER.0 && name != "EXTERNAL";
    parameters.filter(|(name, _)| is_theirs(name)).map(|(name, value)| (name.to_owned(), value.into())).collect()
}

async fn known_columns(ctx: Context<'_>, definition: &TableDefinition) -> Result<Vec<Value>, UnityError> {
    if let Some(root) = definition.location()? {
        let head = head::load(&*ctx.ports().items, &root).await.map_err(crate::commit::error::CommitError::from)?;
        let metadata = head.and_then(|head| head.state).map(|state| state.metadata);
        let of_log = metadata.and_then(|found| columns::of_schema(&found.schema_string, &found.partition_columns));
        if let Some(columns) = of_log {
            return Ok(columns);
        }
    }
    Ok(given_columns(definition))
}

/// The columns as the catalog has them, whatever the log says.
pub(super) fn given_columns(definition: &TableDefinition) -> Vec<Value> {
    let given = definition.parameter(COLUMNS).and_then(|text| serde_json::from_str::<Vec<Value>>(text).ok());
    if let Some(columns) = given.filter(|columns| !columns.is_empty()) {
        return columns;
    }
    let list = |value: Option<&Value>| value.and_then(Value::as_array).cloned().unwrap_or_default();
    let columns = list(definition.storage_descriptor().and_then(|descriptor| descriptor.get("Columns")));
    let keys = list(definition.input.get("PartitionKeys"));
    columns::of_catalog(&columns.iter().collect::<Vec<_>>(), &keys.iter().collect::<Vec<_>>())
}
