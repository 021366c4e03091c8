//! What a dry run holds in memory, in bytes that were asked of the allocator: a fixed part, and so much per file.
//!
//! Counts, not times: the store is in memory as well, so what it holds before is not counted, nor what the run wrote there by its
//! end. That hides a peak from before the report was written which is smaller than the report: the end of a run is what is counted.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "this is all test code")]

use std::sync::Arc;

use apache_avro::types::Value as Avro;
use apache_avro::{Schema, Writer};
use lakewarden_core::location::Location;
use lakewarden_core::ports::{App, Deadline, Settings};
use lakewarden_core::store::memory::MemoryWorld;
use lakewarden_core::store::{ObjectKey, Objects, PutOptions, QueueName, list_every};
use lakewarden_core::sweep::items::RunState;
use lakewarden_core::sweep::{MemoryDirectory, RunOutcome, SweepRequest, TableEntry, optimizer, rest, sweep};
use peak_alloc::PeakAlloc;
use serde_json::{Value, json};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

const NOW_MS: i64 = 1_790_000_000_000;
const DAY_MS: i64 = 86_400_000;
/// Files of one commit.
const FILES: usize = 2_500;
/// From here on as many pages are listed at once as ever are.
const FEW: usize = 40_000;
const MANY: usize = 80_000;
/// Eight bytes are those of the reference filter, sixteen those of what is kept for the next run; vectors grow by doubling,
/// and what is written is held beside what it was written from.
const BYTES_PER_FILE: usize = 80;
/// Pages and manifests that are in memory at the same time, a part of the report, what a run knows in any case. (The store
/// in memory answers a page from a copy of its own.)
const FIXED_BYTES: usize = 24 * 1024 * 1024;

struct Lake {
    world: MemoryWorld,
    app: App,
    directory: Arc<MemoryDirectory>,
}

impl Lake {
    async fn new(parameters: &[(&str, &str)]) -> Self {
        let world = MemoryWorld::new(NOW_MS);
        let app = App::new(world.ports.clone(), Settings::default());
        let lake = Self { world, app, directory: Arc::default() };
        lake.directory.put(TableEntry {
            id: "id-t".into(),
            database: "db".into(),
            name: "t".into(),
            location: Some(Location::new("lake", "wh/t")),
            parameters: parameters.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
        });
        let input = json!({
            "CatalogId": "000000000000", "DatabaseName": "db", "TableName": "t", "Type": "orphan_file_deletion",
            "TableOptimizerConfiguration": {"enabled": true, "orphanFileDeletionConfiguration": {"icebergConfiguration": {}}}
        });
        optimizer::create(&lake.app, lake.directory.as_ref(), input).await.unwrap();
        lake.world.clock.advance_ms(1000);
        lake
    }

    async fn put(&self, key: &str, bytes: impl Into<bytes::Bytes>) {
        self.world.objects.put(&ObjectKey::new("lake", key), bytes.into(), &PutOptions::default()).await.unwrap();
    }

    /// Half of the files are named, the others are not.
    async fn fill(&self, count: usize) {
        for number in 0..count {
            self.put(&key(number), "x").await;
            self.put(&format!("wh/t/data/day={}/orphan-{}", number % 100, name(number)), "x").await;
        }
        self.world.clock.advance_ms(40 * DAY_MS);
    }

    /// Bytes that a dry run took at most, and how many files it found.
    async fn grown_by(&self) -> (usize, i64) {
        rest::start_in(&self.app, self.directory.as_ref(), "db", "t", &json!({"mode": "dry_run"})).await.unwrap();
        let request = SweepRequest::decode(&self.world.queue.take(QueueName::Sweeps).unwrap()).unwrap();
        let bucket = self.app.settings.reports.bucket.clone();
        let reports = list_every(self.world.objects.as_ref(), &bucket, "").await.unwrap();
        let before: u64 = reports.iter().map(|object| object.size_bytes).sum();
        drop(reports);
        MEMORY.reset_peak_usage();
        let held = MEMORY.current_usage();
        let deadline = Deadline::in_ms(self.world.clock.as_ref(), 900_000);
        let outcome = sweep(&self.app, self.directory.as_ref(), &request, deadline).await.unwrap();
        let grown = MEMORY.peak_usage().saturating_sub(held);
        let RunOutcome::Finished(record) = outcome else { panic!("{outcome:?}") };
        assert_eq!(record.state, RunState::Completed, "{:?}", record.error);
        let reports = list_every(self.world.objects.as_ref(), &bucket, "").await.unwrap();
        let after: u64 = reports.iter().map(|object| object.size_bytes).sum();
        let written = usize::try_from(after.saturating_sub(before)).unwrap();
        (grown.saturating_sub(written), record.totals.by_reason["seen_once"].count)
    }
}

/// As writers name files.
fn name(number: usize) -> String {
    format!("{number:05}-{number}-80a083e8-7026-4e79-81be-{number:012x}-00001.parquet")
}

fn key(number: usize) -> String {
    format!("wh/t/data/day={}/{}", number % 100, name(number))
}

fn lines(lines: &[Value]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

async fn delta(count: usize) -> Lake {
    let lake = Lake::new(&[("spark.sql.sources.provider", "delta")]).await;
    let creation = [
        json!({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}),
        json!({"metaData": {"id": "u", "format": {"provider": "parquet", "options": {}}, "partitionColumns": [],
            "schemaString": "{\"type\":\"struct\",\"fields\":[]}", "configuration": {}}}),
    ];
    lake.put("wh/t/_delta_log/00000000000000000000.json", lines(&creation)).await;
    for commit in 0..count / FILES {
        let stats = json!({"numRecords": 1000, "minValues": {"id": 1, "name": "some text"}, "maxValues": {"id": 2, "name": "other"}});
        let add = |number: usize| {
            let path = key(number).trim_start_matches("wh/t/").to_owned();
            json!({"add": {"path": path, "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": true,
                "stats": stats.to_string()}})
        };
        let adds: Vec<Value> = (commit * FILES..(commit + 1) * FILES).map(add).collect();
        lake.put(&format!("wh/t/_delta_log/{:020}.json", commit + 1), lines(&adds)).await;
    }
    lake.fill(count).await;
    lake
}

const ENTRY: &str = r#"{"type":"record","name":"manifest_entry","fields":[
  {"name":"status","type":"int","field-id":0},
  {"name":"snapshot_id","type":["null","long"],"default":null,"field-id":1},
  {"name":"data_file","field-id":2,"type":{"type":"record","name":"r2","fields":[
    {"name":"content","type":"int","field-id":134},
    {"name":"file_path","type":"string","field-id":100},
    {"name":"stats","type":"bytes","field-id":999}
  ]}}]}"#;

const LIST: &str = r#"{"type":"record","name":"manifest_file","fields":[
  {"name":"manifest_path","type":"string","field-id":500},
  {"name":"manifest_length","type":"long","field-id":501},
  {"name":"content","type":"int","field-id":517},
  {"name":"added_files_count","type":"int","field-id":504},
  {"name":"existing_files_count","type":"int","field-id":505},
  {"name":"deleted_files_count","type":"int","field-id":506}]}"#;

fn avro(schema: &str, records: impl Iterator<Item = Avro>) -> Vec<u8> {
    let schema = Schema::parse_str(schema).unwrap();
    let codec = apache_avro::Codec::Deflate(Default::default());
    let mut writer = Writer::builder().schema(&schema).writer(Vec::new()).codec(codec).build();
    for record in records {
        writer.append(record).unwrap();
    }
    writer.into_inner().unwrap()
}

fn record<const N: usize>(fields: [(&str, Avro); N]) -> Avro {
    Avro::Record(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

async fn iceberg(count: usize) -> Lake {
    let pointer = "wh/t/metadata/00001-u.metadata.json";
    let uri = format!("s3://lake/{pointer}");
    let lake = Lake::new(&[("table_type", "ICEBERG"), ("metadata_location", &uri)]).await;
    let mut manifests = Vec::new();
    for commit in 0..count / FILES {
        let entry = |number: usize| {
            let file = [
                ("content", Avro::Int(0)),
                ("file_path", Avro::String(format!("s3://lake/{}", key(number)))),
                ("stats", Avro::Bytes(vec![7; 300])),
            ];
            let snapshot = Avro::Union(1, Box::new(Avro::Long(7)));
            record([("status", Avro::Int(1)), ("snapshot_id", snapshot), ("data_file", record(file))])
        };
        let bytes = avro(ENTRY, (commit * FILES..(commit + 1) * FILES).map(entry));
        let at = format!("wh/t/metadata/m{commit}.avro");
        manifests.push(record([
            ("manifest_path", Avro::String(format!("s3://lake/{at}"))),
            ("manifest_length", Avro::Long(i64::try_from(bytes.len()).unwrap())),
            ("content", Avro::Int(0)),
            ("added_files_count", Avro::Int(i32::try_from(FILES).unwrap())),
            ("existing_files_count", Avro::Int(0)),
            ("deleted_files_count", Avro::Int(0)),
        ]));
        lake.put(&at, bytes).await;
    }
    lake.put("wh/t/metadata/snap-7.avro", avro(LIST, manifests.into_iter())).await;
    let metadata = json!({
        "format-version": 2, "table-uuid": "u", "location": "s3://lake/wh/t", "last-updated-ms": NOW_MS,
        "last-sequence-number": 1, "current-snapshot-id": 7, "properties": {},
        "snapshots": [{"snapshot-id": 7, "sequence-number": 1, "timestamp-ms": NOW_MS,
            "manifest-list": "s3://lake/wh/t/metadata/snap-7.avro", "summary": {"operation": "append"}}]
    });
    lake.put(pointer, metadata.to_string()).await;
    lake.fill(count).await;
    lake
}

#[tokio::test]
#[ignore = "takes minutes without optimisation"]
async fn memory_grows_by_some_numbers_per_file() {
    for format in ["iceberg", "delta"] {
        let (mut first, mut second) = (Vec::new(), Vec::new());
        for count in [FEW, MANY] {
            let lake = if format == "delta" { delta(count).await } else { iceberg(count).await };
            for grown in [&mut first, &mut second] {
                let (bytes, found) = lake.grown_by().await;
                assert_eq!(found, i64::try_from(count).unwrap());
                grown.push(bytes);
            }
        }
        for (run, grown) in [("first", first), ("next", second)] {
            let per_file = grown[1].saturating_sub(grown[0]) / (MANY - FEW);
            println!("{format}, {run} run: {grown:?} bytes, {per_file} per file");
            assert!(per_file <= BYTES_PER_FILE, "{format}, {run} run: {grown:?}");
            assert!(grown[0] <= FIXED_BYTES, "{format}, {run} run: {grown:?}");
        }
    }
}
