//! The catalog that is copied: anything that speaks Glue's JSON protocol.

use serde_json::{Map, Value, json};

use super::ImportError;
use crate::cli::ImportArgs;
use crate::signed::{AwsAccess, CallError, JsonEndpoint};

const PARTITIONS_PAGE: u64 = 1000;

/// One page of partitions.
pub(super) struct Page {
    pub(super) partitions: Vec<Value>,
    pub(super) next_token: Option<String>,
}

pub(super) struct Source {
    endpoint: JsonEndpoint,
    catalog_id: Option<String>,
}

impl Source {
    pub(super) async fn open(args: &ImportArgs, access: &AwsAccess) -> Result<Self, ImportError> {
        let base = match (&args.from, access.region()) {
            (Some(url), _) => url.clone(),
            (None, Some(region)) => {
                let suffix = if region.starts_with("cn-") { ".cn" } else { "" };
                format!("https://glue.{region}.amazonaws.com{suffix}")
            }
            (None, None) => {
                let text = "Say where to copy from: --from URL, or a region (--region, AWS_REGION, or the profile's) for AWS Glue.";
                return Err(ImportError::Usage(text.to_owned()));
            }
        };
        let endpoint = JsonEndpoint::new(&base, access.signing_for(&base, "glue").await?)?;
        Ok(Self { endpoint, catalog_id: args.catalog_id.clone() })
    }

    pub(super) fn base(&self) -> &str {
        self.endpoint.base()
    }

    async fn call(&self, operation: &str, mut input: Value) -> Result<Value, CallError> {
        if let (Some(id), Some(input)) = (&self.catalog_id, input.as_object_mut()) {
            input.insert("CatalogId".to_owned(), id.as_str().into());
        }
        self.endpoint.glue(operation, &input).await
    }

    /// All pages of a listing.
    async fn list(&self, operation: &str, input: Value, member: &str) -> Result<Vec<Value>, CallError> {
        let mut found = Vec::new();
        let mut input: Map<String, Value> = input.as_object().cloned().unwrap_or_default();
        loop {
            let mut page = self.call(operation, Value::Object(input.clone())).await?;
            if let Some(Value::Array(entries)) = page.get_mut(member).map(Value::take) {
                found.extend(entries);
            }
            match page.get("NextToken").and_then(Value::as_str).filter(|token| !token.is_empty()) {
                Some(token) => _ = input.insert("NextToken".to_owned(), token.into()),
                None => return Ok(found),
            }
        }
    }

    pub(super) async fn databases(&self) -> Result<Vec<Value>, CallError> {
        self.list("GetDatabases", json!({}), "DatabaseList").await
    }

    pub(super) async fn table_names(&self, database: &str) -> Result<Vec<String>, CallError> {
        // A catalog that does not know AttributesToGet answers whole tables.
        let input = json!({ "DatabaseName": database, "AttributesToGet": ["NAME"] });
        let tables = self.list("GetTables", input, "TableList").await?;
        Ok(tables.iter().map(super::name_of).collect())
    }

    /// None if it has gone since it was listed.
    pub(super) async fn table(&self, database: &str, table: &str) -> Result<Option<Value>, CallError> {
        match self.call("GetTable", json!({ "DatabaseName": database, "Name": table })).await {
            Ok(mut found) => Ok(found.get_mut("Table").map(Value::take)),
            Err(error) if error.is("EntityNotFoundException") => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn partitions(&self, database: &str, table: &str, token: Option<&str>) -> Result<Page, CallError> {
        let mut input = json!({ "DatabaseName": database, "TableName": table, "MaxResults": PARTITIONS_PAGE });
        if let (Some(token), Some(input)) = (token, input.as_object_mut()) {
            input.insert("NextToken".to_owned(), token.into());
        }
        let mut page = self.call("GetPartitions", input).await?;
        let partitions = match page.get_mut("Partitions").map(Value::take) {
            Some(Value::Array(partitions)) => partitions,
            _ => Vec::new(),
        };
        let next_token = page.get("NextToken").and_then(Value::as_str).filter(|token| !token.is_empty());
        Ok(Page { partitions, next_token: next_token.map(str::to_owned) })
    }
}
