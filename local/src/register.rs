//! A Lakewarden's catalog for the tools that fill it, by its REST interface.

use futures::{StreamExt, TryStreamExt};
use http::Method;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use crate::signed::{AwsAccess, CallError, JsonEndpoint};

/// Partitions of one batch.
const BATCH_MAX_PARTITIONS: usize = 100;
/// Bytes of one batch, well below what a request may have.
const BATCH_MAX_BYTES: usize = 1024 * 1024;
/// Partitions asked for in one batch.
const GET_MAX_PARTITIONS: usize = 1000;
const BATCHES_AT_ONCE: usize = 8;

/// What is no separator in a path.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// What creating partitions came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchOutcome {
    pub created: u64,
    pub there: u64,
    /// Each with its values and the reason.
    pub failed: Vec<String>,
}

/// One Lakewarden.
#[derive(Clone, Debug)]
pub struct Catalog {
    endpoint: JsonEndpoint,
}

fn segment(name: &str) -> String {
    utf8_percent_encode(name, SEGMENT).to_string()
}

/// The values of a partition or of an input for one.
pub fn values_of(partition: &Value) -> Vec<String> {
    let values = partition.get("Values").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    values.iter().filter_map(|value| value.as_str().map(str::to_owned)).collect()
}

fn database_path(database: &str) -> String {
    format!("/v1/databases/{}", segment(database))
}

fn table_path(database: &str, table: &str) -> String {
    format!("{}/tables/{}", database_path(database), segment(table))
}

impl Catalog {
    /// On loopback nothing is signed; elsewhere requests are signed for API Gateway.
    pub fn open(gateway: &str, access: &AwsAccess) -> Result<Self, CallError> {
        let signing = access.signing_unless_loopback(gateway, "execute-api")?;
        Ok(Self { endpoint: JsonEndpoint::new(gateway, signing)? })
    }

    pub fn base(&self) -> &str {
        self.endpoint.base()
    }

    /// What only the laptop has, or None elsewhere.
    pub async fn laptop_endpoints(&self) -> Result<Option<Value>, CallError> {
        match self.endpoint.rest(Method::GET, "/local/endpoints", None).await {
            Ok(endpoints) => Ok(Some(endpoints)),
            Err(CallError::Refused { .. } | CallError::NotJson { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn find(&self, path: &str, member: &str) -> Result<Option<Value>, CallError> {
        match self.endpoint.rest(Method::GET, path, None).await {
            Ok(mut found) => Ok(found.get_mut(member).map(Value::take)),
            Err(error) if error.is("EntityNotFoundException") => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub async fn database(&self, database: &str) -> Result<Option<Value>, CallError> {
        self.find(&database_path(database), "Database").await
    }

    pub async fn table(&self, database: &str, table: &str) -> Result<Option<Value>, CallError> {
        self.find(&table_path(database, table), "Table").await
    }

    /// How far a table follows its Delta log; with `exact` its partitions are made from the log by a worker first.
    pub async fn rebuild(&self, database: &str, table: &str, exact: Option<bool>) -> Result<Value, CallError> {
        let path = format!("{}/commits/rebuild", table_path(database, table));
        match exact {
            Some(exact) => self.endpoint.rest(Method::POST, &path, Some(&json!({ "exact": exact }))).await,
            None => self.endpoint.rest(Method::GET, &path, None).await,
        }
    }

    /// A request on a table's sweeps: `sweeps`, `sweeps/<run>` or `explain-sweep`.
    pub async fn sweeps(
        &self,
        method: Method,
        (database, table): (&str, &str),
        rest: &[&str],
        body: Option<&Value>,
    ) -> Result<Value, CallError> {
        let rest: Vec<String> = rest.iter().map(|part| segment(part)).collect();
        let path = format!("{}/{}", table_path(database, table), rest.join("/"));
        self.endpoint.rest(method, &path, body).await
    }

    /// A request on dropped tables: none of `rest` lists them.
    pub async fn dropped(&self, method: Method, rest: &[&str], body: Option<&Value>) -> Result<Value, CallError> {
        let rest: String = rest.iter().map(|part| format!("/{}", segment(part))).collect();
        self.endpoint.rest(method, &format!("/v1/dropped-tables{rest}"), body).await
    }

    /// The next page of them.
    pub async fn dropped_page(&self, token: Option<&str>) -> Result<Value, CallError> {
        let query = token.map(|token| format!("?next_token={}", segment(token))).unwrap_or_default();
        self.endpoint.rest(Method::GET, &format!("/v1/dropped-tables{query}"), None).await
    }

    pub async fn create_database(&self, input: &Value) -> Result<(), CallError> {
        let body = json!({ "DatabaseInput": input });
        self.endpoint.rest(Method::POST, "/v1/databases", Some(&body)).await.map(drop)
    }

    pub async fn create_table(&self, database: &str, input: &Value) -> Result<(), CallError> {
        let (path, body) = (format!("{}/tables", database_path(database)), json!({ "TableInput": input }));
        self.endpoint.rest(Method::POST, &path, Some(&body)).await.map(drop)
    }

    /// One page of partitions without their columns, and the token of the next.
    pub async fn partitions(
        &self,
        database: &str,
        table: &str,
        token: Option<&str>,
    ) -> Result<(Vec<Value>, Option<String>), CallError> {
        let mut path = format!("{}/partitions?exclude_column_schema=true", table_path(database, table));
        if let Some(token) = token {
            path = format!("{path}&next_token={}", segment(token));
        }
        let mut page = self.endpoint.rest(Method::GET, &path, None).await?;
        let next = page.get("NextToken").and_then(Value::as_str).map(str::to_owned);
        match page.get_mut("Partitions").map(Value::take) {
            Some(Value::Array(partitions)) => Ok((partitions, next)),
            _ => Ok((Vec::new(), next)),
        }
    }

    /// Creates partitions in batches. One that is there already stays as it is.
    pub async fn create_partitions(
        &self,
        database: &str,
        table: &str,
        inputs: Vec<Value>,
    ) -> Result<BatchOutcome, CallError> {
        let path = format!("{}/batch-create-partitions", table_path(database, table));
        let batches = plan_batches(inputs).into_iter().map(|batch| self.create_batch(&path, batch));
        let outcomes: Vec<BatchOutcome> =
            futures::stream::iter(batches).buffered(BATCHES_AT_ONCE).try_collect().await?;
        Ok(outcomes.into_iter().fold(BatchOutcome::default(), |mut sum, outcome| {
            sum.created += outcome.created;
            sum.there += outcome.there;
            sum.failed.extend(outcome.failed);
            sum
        }))
    }

    async fn create_batch(&self, path: &str, batch: Vec<Value>) -> Result<BatchOutcome, CallError> {
        let size = batch.len() as u64;
        let answer = self.endpoint.rest(Method::POST, path, Some(&json!({ "PartitionInputList": batch }))).await?;
        let mut outcome = BatchOutcome::default();
        for error in answer.get("Errors").and_then(Value::as_array).into_iter().flatten() {
            let text = |pointer: &str| error.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            if text("/ErrorDetail/ErrorCode") == "AlreadyExistsException" {
                outcome.there += 1;
            } else {
                let values = error.get("PartitionValues").unwrap_or(&Value::Null);
                let (code, message) = (text("/ErrorDetail/ErrorCode"), text("/ErrorDetail/ErrorMessage"));
                outcome.failed.push(format!("{values}: {code}: {message}"));
            }
        }
        outcome.created = size.saturating_sub(outcome.there + outcome.failed.len() as u64);
        Ok(outcome)
    }

    /// How many of these partitions there are.
    pub async fn count_existing(&self, database: &str, table: &str, values: &[Vec<String>]) -> Result<u64, CallError> {
        let path = format!("{}/batch-get-partitions", table_path(database, table));
        let mut count = 0;
        for wanted in values.chunks(GET_MAX_PARTITIONS) {
            let mut wanted: Vec<Value> = wanted.iter().map(|values| json!({ "Values": values })).collect();
            while !wanted.is_empty() {
                let body = json!({ "PartitionsToGet": wanted });
                let mut answer = self.endpoint.rest(Method::POST, &path, Some(&body)).await?;
                count += answer.get("Partitions").and_then(Value::as_array).map_or(0, |found| found.len() as u64);
                wanted = match answer.get_mut("UnprocessedKeys").map(Value::take) {
                    Some(Value::Array(unread)) => unread,
                    _ => Vec::new(),
                };
            }
        }
        Ok(count)
    }
}

/// Cuts by number and by size.
fn plan_batches(inputs: Vec<Value>) -> Vec<Vec<Value>> {
    let mut batches = Vec::new();
    let (mut batch, mut size_bytes) = (Vec::new(), 0);
    for input in inputs {
        let input_bytes = input.to_string().len();
        if !batch.is_empty() && (batch.len() >= BATCH_MAX_PARTITIONS || size_bytes + input_bytes > BATCH_MAX_BYTES) {
            batches.push(std::mem::take(&mut batch));
            size_bytes = 0;
        }
        size_bytes += input_bytes;
        batch.push(input);
    }
    if !batch.is_empty() {
        batches.push(batch);
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_end_at_a_hundred_and_at_a_megabyte() {
        let sizes = |inputs: Vec<Value>| plan_batches(inputs).iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(sizes(vec![json!({}); 250]), [100, 100, 50]);
        assert_eq!(sizes(Vec::new()), [0_usize; 0]);
        let large = json!("x".repeat(600 * 1024));
        assert_eq!(sizes(vec![large.clone(), large, json!(1)]), [1, 2]);
    }

    #[test]
    fn names_are_one_segment() {
        assert_eq!(table_path("a/b", "ü %"), "/v1/databases/a%2Fb/tables/%C3%BC%20%25");
    }
}
