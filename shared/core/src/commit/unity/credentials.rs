//! Calls for temporary credentials. None are given out: clients read and write S3 with their own. They are told so by an answer
//! without any, since with an error some stop before they look for theirs (DuckDB), and others try again (deltalake).

use serde::Deserialize;
use serde_json::{Value, json};

use super::{UnityError, tables};
use crate::commit::context::Context;

/// After this time a client asks again, to no other end.
const ASK_AGAIN_MS: i64 = 60 * 60 * 1000;

#[derive(Debug, Deserialize)]
pub(super) struct TableCall {
    table_id: String,
    operation: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct PathCall {
    url: String,
    operation: String,
}

/// The place is told where a Unity Catalog client chose it; of other tables their ids tell nothing here.
pub(super) async fn of_table(ctx: Context<'_>, call: TableCall) -> Result<Value, UnityError> {
    check_operation(&call.operation, &["READ", "READ_WRITE"])?;
    let place = match tables::place_of(ctx, &call.table_id).await {
        Ok(location) => location.to_string(),
        Err(error) if error.status == 404 => String::new(),
        Err(error) => return Err(error),
    };
    Ok(none(ctx, &place))
}

pub(super) fn of_path(ctx: Context<'_>, call: PathCall) -> Result<Value, UnityError> {
    check_operation(&call.operation, &["PATH_READ", "PATH_READ_WRITE", "PATH_CREATE_TABLE"])?;
    Ok(none(ctx, &call.url))
}

fn none(ctx: Context<'_>, url: &str) -> Value {
    json!({"expiration_time": ctx.now_ms().saturating_add(ASK_AGAIN_MS), "url": url})
}

fn check_operation(operation: &str, known: &[&str]) -> Result<(), UnityError> {
    if known.contains(&operation) {
        return Ok(());
    }
    Err(UnityError::invalid(format!("`operation` is one of {}", known.join(", "))))
}
