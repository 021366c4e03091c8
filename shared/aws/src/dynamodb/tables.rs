use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::create_table::CreateTableError;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType, TableDescription, TableStatus,
    TimeToLiveSpecification, TimeToLiveStatus,
};
use lakewarden_core::store::{Clock, StoreError, StoreErrorKind, Table};

use super::reads::unbuilt;
use crate::errors::store_error;
use crate::settings::TableNames;

/// How long a new table may take to become active.
const CREATION_TIMEOUT_MS: u64 = 60_000;
const POLL_MS: u64 = 50;

/// Creates the four tables where they are absent, waits until all are active, and switches their time to live on
/// (attribute `ttl`, in `delta_log` `expireTime`). Answers the names of the tables that were created.
///
/// For the laptop and tests: in AWS the template owns the tables. A table that is there already is left as it is, and
/// refused with `Invalid` if its keys are not the product's.
pub async fn create_tables(client: &Client, names: &TableNames, clock: &dyn Clock) -> Result<Vec<String>, StoreError> {
    let mut created = Vec::new();
    for table in Table::ALL {
        let name = names.name(table);
        if create_table(client, table, &name).await? {
            created.push(name);
        }
    }
    for table in Table::ALL {
        let name = names.name(table);
        await_active(client, table, &name, clock).await?;
        enable_expiry(client, table, &name).await?;
    }
    Ok(created)
}

fn range_type(table: Table) -> ScalarAttributeType {
    if table.has_binary_range() { ScalarAttributeType::B } else { ScalarAttributeType::S }
}

/// Whether the table was created; it may be there already.
async fn create_table(client: &Client, table: Table, name: &str) -> Result<bool, StoreError> {
    let operation = format!("create {}", table.as_str());
    let refused = |error| unbuilt(&operation, &error);
    let mut request = client.create_table().table_name(name).billing_mode(BillingMode::PayPerRequest);
    let keys = [
        (table.hash_attribute(), KeyType::Hash, ScalarAttributeType::S),
        (table.range_attribute(), KeyType::Range, range_type(table)),
    ];
    for (attribute, role, kind) in keys {
        let key = KeySchemaElement::builder().attribute_name(attribute).key_type(role).build().map_err(refused)?;
        let definition = AttributeDefinition::builder().attribute_name(attribute).attribute_type(kind);
        request = request.key_schema(key).attribute_definitions(definition.build().map_err(refused)?);
    }
    match request.send().await {
        Ok(_) => Ok(true),
        Err(SdkError::ServiceError(failure)) if is_there(failure.err()) => Ok(false),
        Err(error) => Err(store_error(&operation, name, &error)),
    }
}

fn is_there(error: &CreateTableError) -> bool {
    error.is_resource_in_use_exception() || error.code() == Some("TableAlreadyExistsException")
}

async fn await_active(client: &Client, table: Table, name: &str, clock: &dyn Clock) -> Result<(), StoreError> {
    let operation = format!("describe {}", table.as_str());
    let mut waited_ms = 0;
    loop {
        let answer = client.describe_table().table_name(name).send().await;
        let answer = answer.map_err(|error| store_error(&operation, name, &error))?;
        let found = answer.table.unwrap_or_else(|| TableDescription::builder().build());
        if matches!(found.table_status(), Some(TableStatus::Active | TableStatus::Updating)) {
            return check_keys(table, name, &found, &operation);
        }
        if waited_ms >= CREATION_TIMEOUT_MS {
            let message = format!("the table `{name}` is still not active after {waited_ms} ms");
            return Err(StoreError::new(StoreErrorKind::Unavailable, operation, message));
        }
        clock.sleep_ms(POLL_MS).await;
        waited_ms += POLL_MS;
    }
}

fn check_keys(table: Table, name: &str, found: &TableDescription, operation: &str) -> Result<(), StoreError> {
    let has = |attribute: &str, role: &KeyType, kind: &ScalarAttributeType| {
        found.key_schema().iter().any(|key| key.attribute_name() == attribute && key.key_type() == role)
            && found
                .attribute_definitions()
                .iter()
                .any(|known| known.attribute_name() == attribute && known.attribute_type() == kind)
    };
    let range_type = range_type(table);
    if has(table.hash_attribute(), &KeyType::Hash, &ScalarAttributeType::S)
        && has(table.range_attribute(), &KeyType::Range, &range_type)
    {
        return Ok(());
    }
    let (hash, range) = (table.hash_attribute(), table.range_attribute());
    let message = format!(
        "the table `{name}` is another one: its keys should be `{hash}` (S) and `{range}` ({})",
        range_type.as_str()
    );
    Err(StoreError::new(StoreErrorKind::Invalid, operation, message))
}

async fn enable_expiry(client: &Client, table: Table, name: &str) -> Result<(), StoreError> {
    let operation = format!("enable expiry {}", table.as_str());
    let answer = client.describe_time_to_live().table_name(name).send().await;
    let answer = answer.map_err(|error| store_error(&operation, name, &error))?;
    let status = answer.time_to_live_description.and_then(|found| found.time_to_live_status);
    if matches!(status, Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling)) {
        return Ok(());
    }
    let attribute = if table == Table::DeltaLog { "expireTime" } else { "ttl" };
    let expiry = TimeToLiveSpecification::builder().enabled(true).attribute_name(attribute).build();
    let expiry = expiry.map_err(|error| unbuilt(&operation, &error))?;
    let answer = client.update_time_to_live().table_name(name).time_to_live_specification(expiry).send().await;
    answer.map_err(|error| store_error(&operation, name, &error))?;
    Ok(())
}
