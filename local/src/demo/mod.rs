//! `lakewarden demo`: four years of Seattle's weather through all three paths, in a system of its own.
//!
//! It uses nothing that a user could not: objects on S3, Glue's calls and REST on the gateway, the local clock.

mod data;

use std::time::Duration;

use aws_sdk_s3::error::ProvideErrorMetadata;
use bytes::Bytes;
use http::Method;
use lakewarden_aws::{Clients, Connection};
use lakewarden_core::delta::Version;
use lakewarden_core::delta::log::commit_key;
use lakewarden_core::location::Location;
use lakewarden_core::store::{Clock, ObjectError, PutOptions};
use serde_json::{Value, json};
use thiserror::Error;

use crate::cli::{Moves, ServeArgs};
use crate::client::{ClientError, GatewayClient};
use crate::system::{ACCESS_KEY, REGION, SECRET_KEY, StartError, System};
use data::{DataError, Day, TempMax};

const DATABASE: &str = "weather";
const TABLE: &str = "daily";
/// How often and how long an answer is waited for.
const POLL: Duration = Duration::from_millis(50);
const POLLS_MOST: usize = 600;

/// The demo did not go as it should.
#[derive(Debug, Error)]
pub enum DemoError {
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Object(#[from] ObjectError),
    #[error(transparent)]
    Data(#[from] DataError),
    #[error("the guarded S3 did not answer: {0}")]
    GuardedS3(String),
    #[error("waited {0} in vain")]
    Waited(String),
    #[error("expected {expected}, got {got}")]
    Unexpected { expected: String, got: String },
}

/// Runs the demo and prints what happened.
pub async fn run() -> Result<(), DemoError> {
    let args = ServeArgs {
        data_dir: None,
        ephemeral: true,
        gateway_port: 0,
        s3_port: 0,
        guarded_s3_port: None,
        dynamodb_port: 0,
        sqs_port: 0,
        account_id: "000000000000".to_owned(),
        history_retention_hours: 168,
        verdict_retention_hours: 720,
        dropped_grace_hours: 168,
        undo_hours: 168,
        partition_moves: Moves::default(),
        strict_default_partition: false,
        max_partitions_per_table: 20_000_000,
        functions_s3_url: None,
        functions_dynamodb_url: None,
        endpoints_file: None,
    };
    let system = System::start(&args).await?;
    let demo = Demo {
        gateway: GatewayClient::new(&system.shared.endpoints.gateway),
        root: Location::new("lake", "weather/daily"),
        system: &system,
    };
    let outcome = demo.tell().await;
    system.stop().await;
    outcome
}

struct Demo<'a> {
    system: &'a System,
    gateway: GatewayClient,
    root: Location,
}

/// A file that was uploaded for a month.
struct Uploaded {
    add: Value,
    size_bytes: usize,
}

impl Demo<'_> {
    async fn tell(&self) -> Result<(), DemoError> {
        println!(
            "Seattle's weather, 2012 to 2015 (NOAA, by way of vega-datasets), as a Delta table at {}.\n",
            self.root
        );
        let mut months = data::months()?;
        let december = months.remove(&(2015, 12)).unwrap_or_default();
        self.catalog().await?;
        self.commits(&months).await?;
        self.refused(months.get(&(2012, 1)).map(Vec::as_slice).unwrap_or_default()).await?;
        println!("4. The partitions of the accepted commits are in the catalog");
        self.partitions(47).await?;
        println!();
        self.sweep(&december).await
    }

    fn now_ms(&self) -> i64 {
        self.system.shared.clock.now_ms()
    }

    async fn advance(&self, by: &str) -> Result<(), DemoError> {
        self.gateway.call(Method::POST, "/local/clock", Some(&json!({ "advance": by }))).await?;
        Ok(())
    }

    fn table_path(&self) -> String {
        format!("/v1/databases/{DATABASE}/tables/{TABLE}")
    }

    async fn catalog(&self) -> Result<(), DemoError> {
        println!("1. The catalog, by Glue's own calls");
        self.gateway.glue("CreateDatabase", &json!({"DatabaseInput": {"Name": DATABASE}})).await?;
        let input = json!({
            "Name": TABLE,
            "TableType": "EXTERNAL_TABLE",
            "Parameters": {"spark.sql.sources.provider": "delta", "table_type": "DELTA"},
            "PartitionKeys": [{"Name": "year", "Type": "int"}, {"Name": "month", "Type": "int"}],
            "StorageDescriptor": {
                "Location": self.root.to_string(),
                "Columns": data::hive_columns(),
                "InputFormat": "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat",
                "OutputFormat": "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat",
                "SerdeInfo": {"SerializationLibrary": "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"},
            },
        });
        self.gateway.glue("CreateTable", &json!({"DatabaseName": DATABASE, "TableInput": input})).await?;
        println!("   CreateDatabase {DATABASE}, CreateTable {TABLE} partitioned by year, month");
        self.optimizer("CreateTableOptimizer", false).await?;
        println!("   CreateTableOptimizer orphan_file_deletion, retention 3 days, switched off for now");
        println!("   (files that are older than the optimizer are never deleted; an hour passes)\n");
        self.advance("1h").await
    }

    async fn optimizer(&self, operation: &str, enabled: bool) -> Result<(), DemoError> {
        let input = json!({
            "CatalogId": self.system.shared.app.settings.account_id,
            "DatabaseName": DATABASE,
            "TableName": TABLE,
            "Type": "orphan_file_deletion",
            "TableOptimizerConfiguration": {
                "roleArn": "arn:aws:iam::000000000000:role/lakewarden-sweeper",
                "enabled": enabled,
                "orphanFileDeletionConfiguration": {"icebergConfiguration": {"orphanFileRetentionPeriodInDays": 3}},
            },
        });
        self.gateway.glue(operation, &input).await?;
        Ok(())
    }

    async fn upload(&self, days: &[Day], temp_max: TempMax) -> Result<Uploaded, DemoError> {
        let month = days.first().map_or((2012, 1), |day| (day.year, day.month));
        let bytes = data::parquet_file(days, temp_max)?;
        let size_bytes = bytes.len();
        let name = self.system.shared.app.ports.ids.uuid();
        let path = format!("year={}/month={}/part-00000-{name}-c000.snappy.parquet", month.0, month.1);
        self.put(&path, bytes).await?;
        let add = data::add_action(&path, size_bytes, month, days.len(), self.now_ms());
        Ok(Uploaded { add, size_bytes })
    }

    async fn put(&self, path: &str, bytes: Bytes) -> Result<(), DemoError> {
        let objects = &self.system.shared.app.ports.objects;
        objects.put(&self.root.object(path), bytes, &PutOptions::default()).await?;
        Ok(())
    }

    /// Stages a commit, as any writer would: one PUT. Its id is the uuid in the name.
    async fn stage(&self, version: u64, actions: &[Value]) -> Result<String, DemoError> {
        let id = self.system.shared.app.ports.ids.uuid().to_string();
        let lines: Vec<String> = actions.iter().map(Value::to_string).collect();
        let path = format!("_delta_log/_staged_commits/{version:020}.{id}.json");
        self.put(&path, format!("{}\n", lines.join("\n")).into()).await?;
        Ok(id)
    }

    /// The final verdict on a staged commit.
    async fn verdict(&self, id: &str) -> Result<Value, DemoError> {
        for _ in 0..POLLS_MOST {
            let answer = self.gateway.send(Method::GET, &format!("/v1/commits/{id}"), &[], None).await?;
            let status = answer.body.get("status").and_then(Value::as_str).unwrap_or_default();
            if ["committed", "rejected", "superseded"].contains(&status) {
                return Ok(answer.body);
            }
            tokio::time::sleep(POLL).await;
        }
        Err(DemoError::Waited(format!("for the verdict on {id}")))
    }

    async fn committed(&self, id: &str, what: &str) -> Result<(), DemoError> {
        let verdict = self.verdict(id).await?;
        match verdict.get("version").and_then(Value::as_u64) {
            Some(version) if verdict.get("status") == Some(&json!("committed")) => {
                println!("   {what}: committed as version {version}");
                Ok(())
            }
            _ => Err(DemoError::Unexpected { expected: "a version".to_owned(), got: verdict.to_string() }),
        }
    }

    fn commit_info(&self, operation: &str, read_version: Option<u64>) -> Value {
        let mut info = json!({
            "timestamp": self.now_ms(),
            "operation": operation,
            "operationParameters": {"mode": "Append"},
            "isBlindAppend": true,
            "engineInfo": "lakewarden-demo",
        });
        if let (Some(version), Some(members)) = (read_version, info.as_object_mut()) {
            members.insert("readVersion".to_owned(), json!(version));
        }
        json!({ "commitInfo": info })
    }

    async fn upload_year(
        &self,
        months: &std::collections::BTreeMap<(i32, u8), Vec<Day>>,
        year: i32,
    ) -> Result<Vec<Value>, DemoError> {
        let mut adds = Vec::new();
        for days in months.iter().filter(|(month, _)| month.0 == year).map(|(_, days)| days) {
            adds.push(self.upload(days, TempMax::Double).await?.add);
        }
        Ok(adds)
    }

    async fn commits(&self, months: &std::collections::BTreeMap<(i32, u8), Vec<Day>>) -> Result<(), DemoError> {
        println!(
            "2. Commits: Parquet files are uploaded, the commit is staged beside the log, an S3 event has it judged"
        );
        let mut first = vec![
            self.commit_info("CREATE TABLE AS SELECT", None),
            json!({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}),
            json!({"metaData": {
                "id": self.system.shared.app.ports.ids.uuid().to_string(),
                "format": {"provider": "parquet", "options": {}},
                "schemaString": data::schema_string(),
                "partitionColumns": ["year", "month"],
                "configuration": {},
                "createdTime": self.now_ms(),
            }}),
        ];
        first.extend(self.upload_year(months, 2012).await?);
        let id = self.stage(0, &first).await?;
        self.committed(&id, "2012, which creates the table").await?;

        let mut second = vec![self.commit_info("WRITE", Some(0))];
        second.extend(self.upload_year(months, 2013).await?);
        let id = self.stage(1, &second).await?;
        self.committed(&id, "2013").await?;

        let (mut left, mut right) =
            (vec![self.commit_info("WRITE", Some(1))], vec![self.commit_info("WRITE", Some(1))]);
        left.extend(self.upload_year(months, 2014).await?);
        right.extend(self.upload_year(months, 2015).await?);
        let left = self.stage(2, &left).await?;
        let right = self.stage(2, &right).await?;
        println!("   two writers read version 1 and both propose version 2:");
        self.committed(&left, "  2014").await?;
        self.committed(&right, "  2015 up to November").await?;
        println!();
        Ok(())
    }

    async fn refused(&self, days: &[Day]) -> Result<(), DemoError> {
        println!("3. A commit that must not become visible: its file has temp_max as text");
        let uploaded = self.upload(days, TempMax::Text).await?;
        let uploaded_add = uploaded.add.clone();
        let id = self.stage(4, &[self.commit_info("WRITE", Some(3)), uploaded.add]).await?;
        let verdict = self.verdict(&id).await?;
        if verdict.get("status") != Some(&json!("rejected")) {
            return Err(DemoError::Unexpected { expected: "a refusal".to_owned(), got: verdict.to_string() });
        }
        for member in ["exception", "message", "advice"] {
            if let Some(text) = verdict.get(member).and_then(Value::as_str) {
                println!("   {member}: {text}");
            }
        }
        println!(
            "   the table is still at version 3; the file that was uploaded for it ({} bytes) is garbage now\n",
            uploaded.size_bytes
        );
        let lines = [self.commit_info("WRITE", Some(3)), uploaded_add];
        self.refused_by_the_guarded_s3(&lines.map(|line| line.to_string()).join("\n")).await
    }

    /// The same by a writer that knows nothing of Lakewarden: its commit is one conditional PUT of the log file.
    async fn refused_by_the_guarded_s3(&self, commit: &str) -> Result<(), DemoError> {
        let endpoint = &self.system.shared.endpoints.guarded_s3;
        println!("   The same commit by a writer that knows nothing of Lakewarden, with {endpoint} as its S3:");
        let clients = Clients::connect(&Connection {
            region: REGION.to_owned(),
            access_key_id: ACCESS_KEY.to_owned(),
            secret_access_key: SECRET_KEY.to_owned(),
            dynamodb_url: None,
            s3_url: Some(endpoint.clone()),
            sqs_url: None,
        });
        let at = commit_key(&self.root, Version(4));
        let put = clients.s3.put_object().bucket(&at.bucket).key(&at.key).if_none_match("*");
        let answer = put.body(commit.as_bytes().to_vec().into()).send().await;
        let Err(error) = answer else {
            return Err(DemoError::Unexpected { expected: "a refusal".to_owned(), got: "a version".to_owned() });
        };
        let status = error.raw_response().map(|response| response.status().as_u16());
        match (status, error.message()) {
            (Some(403), Some(message)) => println!("   PUT {}: 403\n   {message}\n", at.key),
            _ => return Err(DemoError::GuardedS3(crate::signed::chain(&error))),
        }
        Ok(())
    }

    async fn partitions(&self, expected: usize) -> Result<(), DemoError> {
        let mut input = json!({"DatabaseName": DATABASE, "TableName": TABLE, "MaxResults": 20});
        let (mut count, mut pages) = (0, 0);
        loop {
            let page = self.gateway.glue("GetPartitions", &input).await?;
            count += page.get("Partitions").and_then(Value::as_array).map_or(0, Vec::len);
            pages += 1;
            let (Some(token), Some(members)) = (page.get("NextToken").cloned(), input.as_object_mut()) else { break };
            members.insert("NextToken".to_owned(), token);
        }
        if count != expected {
            return Err(DemoError::Unexpected { expected: format!("{expected} partitions"), got: count.to_string() });
        }
        let one = json!({"DatabaseName": DATABASE, "TableName": TABLE, "PartitionValues": ["2014", "7"]});
        let one = self.gateway.glue("GetPartition", &one).await?;
        let location = one.pointer("/Partition/StorageDescriptor/Location").and_then(Value::as_str).unwrap_or_default();
        println!("   GetPartitions: {count} partitions in {pages} pages; [2014, 7] lies at {location}");
        Ok(())
    }

    async fn sweep(&self, december: &[Day]) -> Result<(), DemoError> {
        println!(
            "5. Orphan files: what a crashed job left, what the refused commit left, and one that only looks like it"
        );
        self.gateway.call(Method::POST, "/local/events/pause", None).await?;
        let pending = self.upload(december, TempMax::Double).await?;
        let pending_id = self.stage(4, &[self.commit_info("WRITE", Some(3)), pending.add]).await?;
        println!("   December 2015 is staged, but its event is held back: the commit is pending");
        let job = self.system.shared.app.ports.ids.uuid();
        let crashed = data::parquet_file(december, TempMax::Double)?;
        self.put(&format!("year=2015/month=12/part-00000-{job}-c000.snappy.parquet"), crashed).await?;
        self.advance("8d").await?;
        println!("   eight days pass\n");

        let run = self
            .gateway
            .call(Method::POST, &format!("{}/sweeps", self.table_path()), Some(&json!({"mode": "dry_run"})))
            .await?;
        let run_id = run.get("run_id").and_then(Value::as_str).unwrap_or_default().to_owned();
        self.finished_run(&run_id).await?;
        println!("   dry run:");
        self.print_report(&run_id).await?;

        self.optimizer("UpdateTableOptimizer", true).await?;
        self.gateway.call(Method::POST, "/local/schedule/run", None).await?;
        self.scheduled_run(0).await?;
        println!("   the optimizer is switched on; its first scheduled run has seen the orphans");
        self.advance("25h").await?;
        self.gateway.call(Method::POST, "/local/schedule/run", None).await?;
        let deleted = self.scheduled_run(1).await?;
        println!("   a day later the second one found them again, unchanged, and deleted {deleted} files\n");

        self.gateway.call(Method::POST, "/local/events/resume", None).await?;
        self.committed(&pending_id, "the held-back event arrives, and nothing is missing: December 2015").await?;
        self.partitions(48).await
    }

    async fn finished_run(&self, run_id: &str) -> Result<Value, DemoError> {
        let path = format!("{}/sweeps/{run_id}", self.table_path());
        for _ in 0..POLLS_MOST {
            let run = self.gateway.call(Method::GET, &path, None).await?;
            match run.get("state").and_then(Value::as_str) {
                Some("completed") => return Ok(run),
                Some("failed") => {
                    return Err(DemoError::Unexpected { expected: "a run".to_owned(), got: run.to_string() });
                }
                _ => tokio::time::sleep(POLL).await,
            }
        }
        Err(DemoError::Waited(format!("for the sweep {run_id}")))
    }

    async fn print_report(&self, run_id: &str) -> Result<(), DemoError> {
        let path = format!("{}/sweeps/{run_id}/report", self.table_path());
        let report = self.gateway.call(Method::GET, &path, None).await?;
        let lines = report.get("lines").and_then(Value::as_array).cloned().unwrap_or_default();
        let mut by_reason: std::collections::BTreeMap<String, (usize, u64)> = std::collections::BTreeMap::new();
        for line in &lines {
            let reason = line.get("reason").and_then(Value::as_str).unwrap_or_default();
            let size_bytes = line.get("size_bytes").and_then(Value::as_u64).unwrap_or(0);
            let sum = by_reason.entry(reason.to_owned()).or_default();
            *sum = (sum.0 + 1, sum.1 + size_bytes);
            if ["orphan", "seen_once", "pending_commit"].contains(&reason) {
                let key = line.get("key").and_then(Value::as_str).unwrap_or_default();
                println!("     {reason:<15} {size_bytes:>6} bytes  {key}");
            }
        }
        for (reason, (count, size_bytes)) in by_reason {
            println!("     {count:>3} files, {size_bytes:>7} bytes: {reason}");
        }
        println!();
        Ok(())
    }

    /// Waits for a scheduled run that deleted so many files or more, and answers how many.
    async fn scheduled_run(&self, least: u64) -> Result<u64, DemoError> {
        let input = json!({
            "CatalogId": self.system.shared.app.settings.account_id,
            "DatabaseName": DATABASE,
            "TableName": TABLE,
            "Type": "orphan_file_deletion",
        });
        for _ in 0..POLLS_MOST {
            let runs = self.gateway.glue("ListTableOptimizerRuns", &input).await?;
            let deleted =
                runs.get("TableOptimizerRuns").and_then(Value::as_array).into_iter().flatten().find_map(|run| {
                    let completed = run.get("eventType") == Some(&json!("completed"));
                    let metrics = run.pointer("/orphanFileDeletionMetrics/IcebergMetrics/NumberOfOrphanFilesDeleted");
                    metrics.and_then(Value::as_u64).filter(|deleted| completed && *deleted >= least)
                });
            if let Some(deleted) = deleted {
                return Ok(deleted);
            }
            tokio::time::sleep(POLL).await;
        }
        Err(DemoError::Waited("for the scheduled sweep".to_owned()))
    }
}
