//! The catalog through its wire: request JSON in, response JSON out.

mod as_of;
mod concurrency;
mod constraints;
mod counts;
mod drops;
mod epoch_model;
mod epochs;
mod errors;
mod faults;
mod filters;
mod indexes;
mod irregular;
mod malformed;
mod neighbours;
mod paging;
mod partitions;
mod search;
mod sizes;
mod statistics;
mod tables;
mod throttling;
mod tokens;
mod updates;
mod versions;

use serde_json::{Value, json};

use crate::glue::answer;
use crate::ports::{App, Settings};
use crate::store::memory::MemoryWorld;

pub(super) const NOW_MS: i64 = 1_700_000_000_123;

/// A world with an app on it.
#[derive(Clone)]
pub(super) struct Wire {
    pub(super) world: MemoryWorld,
    pub(super) app: App,
}

impl Wire {
    pub(super) fn new() -> Self {
        let world = MemoryWorld::new(NOW_MS);
        let app = App::new(world.ports.clone(), Settings::default());
        Self { world, app }
    }

    /// A world with database `d` and table `t` with these partition keys.
    pub(super) async fn with_table(keys: &[(&str, &str)]) -> Self {
        let wire = Self::new();
        wire.ok("CreateDatabase", json!({ "DatabaseInput": { "Name": "d" } })).await;
        wire.ok("CreateTable", json!({ "DatabaseName": "d", "TableInput": table_input("t", keys) })).await;
        wire
    }

    pub(super) async fn send(&self, operation: &str, input: Value) -> (u16, Value) {
        let target = format!("AWSGlue.{operation}");
        let answer = answer(&self.app, Some(&target), input.to_string().as_bytes(), None, "r-1").await;
        let type_header = answer.headers.iter().find(|(name, _)| *name == "x-amzn-errortype");
        let body: Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(type_header.map(|(_, name)| name.as_str()), body.get("__type").and_then(Value::as_str));
        assert!(answer.headers.contains(&("x-amzn-requestid", "r-1".to_owned())));
        assert!(answer.headers.contains(&("content-type", "application/x-amz-json-1.1".to_owned())));
        (answer.status, body)
    }

    pub(super) async fn ok(&self, operation: &str, input: Value) -> Value {
        let (status, body) = self.send(operation, input).await;
        assert_eq!(status, 200, "{operation}: {body}");
        body
    }

    /// Name and text of the exception.
    pub(super) async fn fails(&self, operation: &str, input: Value) -> (String, String) {
        let (status, body) = self.send(operation, input).await;
        assert_eq!(status, 400, "{operation}: {body}");
        (body["__type"].as_str().unwrap().to_owned(), body["Message"].as_str().unwrap().to_owned())
    }

    pub(super) async fn create(&self, values: &[&str]) {
        self.ok("CreatePartition", in_table(json!({ "PartitionInput": partition_input(values) }))).await;
    }

    /// Everything that GetPartitions lists, page by page of `page` partitions.
    pub(super) async fn list(&self, page: usize) -> Vec<Vec<String>> {
        let mut all = Vec::new();
        let mut token = Value::Null;
        loop {
            let input = in_table(json!({ "MaxResults": page, "NextToken": token }));
            let answer = self.ok("GetPartitions", input).await;
            all.extend(values_of(&answer["Partitions"]));
            token = answer["NextToken"].clone();
            if token.is_null() {
                return all;
            }
        }
    }
}

/// `input` for table `d.t`.
pub(super) fn in_table(mut input: Value) -> Value {
    input["DatabaseName"] = json!("d");
    input["TableName"] = json!("t");
    input
}

pub(super) fn table_input(name: &str, keys: &[(&str, &str)]) -> Value {
    let keys: Vec<Value> = keys.iter().map(|(name, kind)| json!({ "Name": name, "Type": kind })).collect();
    json!({ "Name": name, "PartitionKeys": keys, "TableType": "EXTERNAL_TABLE", "StorageDescriptor": descriptor("") })
}

pub(super) fn descriptor(below: &str) -> Value {
    json!({
        "Columns": [{ "Name": "id", "Type": "bigint" }, { "Name": "note", "Type": "string", "Comment": "free" }],
        "Location": format!("s3://lake/d/t/{below}"),
        "InputFormat": "in", "OutputFormat": "out",
        "SerdeInfo": { "SerializationLibrary": "lib", "Parameters": { "serialization.format": "1" } },
    })
}

pub(super) fn partition_input(values: &[&str]) -> Value {
    json!({ "Values": values, "StorageDescriptor": descriptor(&values.join("/")), "Parameters": { "rows": "1" } })
}

pub(super) fn values_of(partitions: &Value) -> Vec<Vec<String>> {
    let texts = |values: &Value| {
        values.as_array().unwrap().iter().map(|value| value.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    partitions.as_array().unwrap().iter().map(|partition| texts(&partition["Values"])).collect()
}

/// Text that does not compress well, another one for each seed.
pub(super) fn noise(length: usize, seed: usize) -> String {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(u64::try_from(seed).unwrap() + 1) | 1;
    let alphabet = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-";
    let mut text = String::with_capacity(length);
    for n in 0..length {
        if n % 8 == 0 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
        }
        text.push(char::from(alphabet[usize::try_from((state >> (n % 8 * 8)) & 63).unwrap()]));
    }
    text
}
