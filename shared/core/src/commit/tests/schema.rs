//! Rules of schemas as a table, against the whole path of a commit; and what judging files costs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use serde_json::{Value, json};

use super::kit::Kit;
use crate::commit::files::CONCURRENT_FILES;
use crate::commit::verdict::Verdict;
use crate::delta::testkit::{TABLE_ID, append_info, creation_of, parquet_pages, parquet_rows};
use crate::store::memory::MemoryObjects;
use crate::store::{
    Deleted, Doomed, ETag, GetOptions, ListPage, ListRequest, Object, ObjectError, ObjectKey, ObjectMeta, ObjectUsage,
    Objects, PutCondition, PutOptions, ReadItems, ReadObjects,
};

/// Protocol and metaData actions of a table as the data file has them.
fn actions_of(table: &Value) -> (Value, Value) {
    let fields: Vec<Value> = table["columns"]
        .as_array()
        .unwrap()
        .iter()
        .map(|column| {
            let metadata = column.get(3).cloned().unwrap_or(json!({}));
            json!({"name": column[0], "type": column[1], "nullable": column[2], "metadata": metadata})
        })
        .collect();
    let schema = json!({"type": "struct", "fields": fields}).to_string();
    let versions = table.get("protocol").cloned().unwrap_or(json!([1, 2]));
    let protocol = json!({"protocol": {"minReaderVersion": versions[0], "minWriterVersion": versions[1]}});
    let metadata = json!({"metaData": {"id": TABLE_ID, "format": {"provider": "parquet", "options": {}},
        "schemaString": schema, "partitionColumns": table.get("partitions").cloned().unwrap_or(json!([])),
        "configuration": table.get("properties").cloned().unwrap_or(json!({})), "createdTime": 1}});
    (protocol, metadata)
}

async fn add_of(kit: &Kit, path: &str, file: &Value) -> Value {
    let message = format!("message m {{ {} }}", file["message"].as_str().unwrap());
    let has_statistics = file.get("statistics") != Some(&json!(false));
    let statistics = if has_statistics { EnabledStatistics::Chunk } else { EnabledStatistics::None };
    let properties = WriterProperties::builder().set_statistics_enabled(statistics).build();
    let bytes = parquet_pages(&message, file["rows"].as_array().unwrap(), usize::MAX, properties);
    kit.table.put(path, &bytes).await;
    let partition = file.get("partition").cloned().unwrap_or(json!({}));
    let mut add = json!({"add": {"path": path, "partitionValues": partition, "size": bytes.len(),
        "modificationTime": 1, "dataChange": true}});
    if let Some(stats) = file.get("stats") {
        add["add"]["stats"] = json!(stats.to_string());
    }
    add
}

async fn run(case: &Value) -> Verdict {
    let kit = Kit::empty().await;
    let creates = case.get("creates") == Some(&json!(true));
    let mut lines = Vec::new();
    if let Some(table) = case.get("table") {
        let (protocol, metadata) = actions_of(table);
        let mut log = vec![protocol, metadata];
        if case.get("live").is_some() {
            let partitions = table.get("partitions").and_then(Value::as_array).cloned().unwrap_or_default();
            let values: serde_json::Map<String, Value> =
                partitions.iter().map(|name| (name.as_str().unwrap().to_owned(), json!("x"))).collect();
            log.push(
                add_of(
                    &kit,
                    "old.parquet",
                    &json!({"message": "required int64 id;", "rows": [{"id": 1}], "partition": values}),
                )
                .await,
            );
        }
        kit.table.log(0, &log).await;
    }
    if let Some(table) = case.get("metadata") {
        let (protocol, metadata) = actions_of(table);
        if creates {
            lines.push(protocol);
        }
        lines.push(metadata);
    }
    if case.get("remove_all").is_some() {
        lines.push(json!({"remove": {"path": "old.parquet", "deletionTimestamp": 1, "dataChange": true}}));
    }
    if let Some(file) = case.get("file") {
        lines.push(add_of(&kit, "new.parquet", file).await);
    }
    lines.push(case.get("info").map_or_else(append_info, |info| json!({"commitInfo": info})));
    kit.propose(if creates { 0 } else { 1 }, 1, &lines).await
}

#[tokio::test]
async fn every_rule_holds_in_both_directions() {
    let table: Value = serde_json::from_str(include_str!("schema_rules.json")).unwrap();
    let cases = table["cases"].as_array().unwrap();
    let mut wrong = Vec::new();
    for case in cases {
        let verdict = run(case).await;
        let text = |name: &str| case.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let said = match verdict.refusal() {
            None => verdict.status().name().to_owned(),
            Some(refusal) => refusal.error_class.clone(),
        };
        let mut problems = Vec::new();
        if said != text("expect") {
            problems.push(format!("{said} instead of {}", text("expect")));
        }
        if let Some(refusal) = verdict.refusal() {
            let place = &refusal.place;
            for (name, found) in [("column", &place.column), ("wanted", &place.expected)] {
                if !text(name).is_empty() && found.as_deref() != Some(&text(name)) {
                    problems.push(format!("{name} is {found:?}"));
                }
            }
            if !place.found.as_deref().unwrap_or_default().contains(&text("found")) {
                problems.push(format!("found is {:?}", place.found));
            }
            let is_named = refusal.reason.contains(&text("reason")) && refusal.advice.contains(&text("advice"));
            if !is_named || refusal.advice.is_empty() {
                problems.push(format!("{} - {}", refusal.reason, refusal.advice));
            }
            if case.get("file").is_some() && case.get("metadata").is_none() && place.file.is_none() {
                let is_of_the_commit = matches!(refusal.reason.as_str(), "PARTITIONING" | "APPEND_ONLY");
                if !is_of_the_commit {
                    problems.push("no file is named".to_owned());
                }
            }
        }
        let warnings = verdict.proposal.warnings.join("\n");
        if !warnings.contains(&text("warning")) {
            problems.push(format!("warnings are {warnings}"));
        }
        if !problems.is_empty() {
            wrong.push(format!(
                "{}: {}\n    {:?}",
                text("name"),
                problems.join(", "),
                verdict.refusal().map(|r| &r.message)
            ));
        }
    }
    assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
    assert!(cases.len() >= 120, "{}", cases.len());
}

#[tokio::test]
async fn files_of_other_writers_are_what_they_are() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/commit/tests/writers");
    let table: Value = serde_json::from_str(include_str!("writers/writers.json")).unwrap();
    for (name, expected) in table["files"].as_object().unwrap() {
        let bytes = std::fs::read(folder.join(name)).unwrap();
        let text = |member: &str| expected.get(member).and_then(Value::as_str).map(str::to_owned);
        for is_constrained in [false, true] {
            let mut columns = table["table"].clone();
            if is_constrained {
                columns["protocol"] = json!([1, 4]);
                columns["properties"] = json!({"delta.constraints.c": table["constraint"]});
            }
            let kit = Kit::empty().await;
            let (protocol, metadata) = actions_of(&columns);
            kit.table.log(0, &[protocol, metadata]).await;
            kit.table.put(name, &bytes).await;
            let add = json!({"add": {"path": name, "partitionValues": {}, "size": bytes.len(), "modificationTime": 1,
                "dataChange": true, "stats": "{\"numRecords\":3}"}});
            let verdict = kit.propose(1, 1, &[add, append_info()]).await;
            let said = match verdict.refusal() {
                None => verdict.status().name().to_owned(),
                Some(refusal) => refusal.error_class.clone(),
            };
            let whole = text("expect").unwrap_or_else(|| "committed".to_owned());
            let wanted = if is_constrained { text("constrained").unwrap_or(whole) } else { whole };
            assert_eq!(said, wanted, "{name} {is_constrained}: {:?}", verdict.refusal());
            if let (Some(column), Some(refusal)) = (text("column"), verdict.refusal()) {
                assert_eq!(refusal.place.column, Some(column), "{name}");
            }
            if let Some(warning) = text("warning") {
                assert!(verdict.proposal.warnings.join(" ").contains(&warning), "{name}");
            }
        }
    }
}

#[tokio::test]
async fn files_of_an_iceberg_writer_fit_a_table_that_is_mapped_by_their_ids() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/commit/tests/writers");
    let table: Value = serde_json::from_str(include_str!("writers/writers.json")).unwrap();
    // Ids as the writer gave them, and names that are found nowhere in the file.
    let mapped = |first_id: usize| {
        let mut columns = table["table"].clone();
        for (index, column) in columns["columns"].as_array_mut().unwrap().iter_mut().enumerate() {
            let id = first_id + index;
            let metadata =
                json!({"delta.columnMapping.id": id, "delta.columnMapping.physicalName": format!("col-{id}")});
            column.as_array_mut().unwrap().push(metadata);
        }
        columns["protocol"] = json!([2, 5]);
        columns["properties"] = json!({"delta.columnMapping.mode": "id", "delta.columnMapping.maxColumnId": "20", "delta.constraints.c": table["constraint"]});
        columns
    };
    for (name, first_id, expected) in [
        ("pyiceberg.parquet", 1, "committed"),
        ("pyiceberg.parquet", 2, "DELTA_METADATA_MISMATCH.SCHEMA_MISMATCH"),
        ("pyarrow.parquet", 1, "DELTA_METADATA_MISMATCH.SCHEMA_MISMATCH"),
    ] {
        let kit = Kit::empty().await;
        let (protocol, metadata) = actions_of(&mapped(first_id));
        kit.table.log(0, &[protocol, metadata]).await;
        let bytes = std::fs::read(folder.join(name)).unwrap();
        kit.table.put(name, &bytes).await;
        let add = json!({"add": {"path": name, "partitionValues": {}, "size": bytes.len(), "modificationTime": 1,
            "dataChange": true, "stats": "{\"numRecords\":3}"}});
        let verdict = kit.propose(1, 1, &[add, append_info()]).await;
        let said =
            verdict.refusal().map_or_else(|| verdict.status().name().to_owned(), |refusal| refusal.error_class.clone());
        assert_eq!(said, expected, "{name} {first_id}: {:?}", verdict.refusal());
    }
}

#[tokio::test]
async fn what_was_accepted_unverified_is_recorded_however_much_it_is() {
    let kit =
        Kit::unpartitioned(json!({"delta.constraints.c": "id % 2 = 1", "lakewarden.unprovenConstraints": "accept"}))
            .await;
    let verdict = kit.propose(1, 1, &files(&kit, 30).await).await;
    assert_eq!(verdict.committed_version().map(|version| version.0), Some(1), "{:?}", verdict.refusal());
    let warnings = &verdict.proposal.warnings;
    assert_eq!(warnings.iter().filter(|warning| warning.contains("accepted unverified")).count(), 20);
    assert_eq!(warnings.last().map(String::as_str), Some("and 10 more like these, of other files"));
    // Evaluated, the rows are looked at.
    let kit = Kit::unpartitioned(json!({"delta.constraints.c": "id % 2 = 1"})).await;
    let verdict = kit.propose(1, 1, &files(&kit, 30).await).await;
    assert_eq!(verdict.refusal().unwrap().error_class, "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES");
}

async fn files(kit: &Kit, count: usize) -> Vec<Value> {
    let mut lines = vec![append_info()];
    for index in 0..count {
        lines.push(kit.file(&format!("f{index}.parquet")).await);
    }
    lines
}

/// A table whose commits may have change-feed files.
async fn with_change_feed() -> Kit {
    let kit = Kit::empty().await;
    let mut creation = creation_of(TABLE_ID, &[], json!({}));
    creation[0] = json!({"protocol": {"minReaderVersion": 1, "minWriterVersion": 4}});
    kit.table.log(0, &creation).await;
    kit
}

#[tokio::test]
async fn k_files_are_k_range_reads_and_known_footers_one_head_each() {
    let cost = async |count: usize, again: bool| {
        let kit = with_change_feed().await;
        let lines = files(&kit, count).await;
        let odd = json!({"txn": {"appId": "a", "version": 1}});
        if again {
            // Refused for something else, after its files were judged.
            let mut refused = lines.clone();
            refused.push(
                json!({"cdc": {"path": "_change_data/missing", "partitionValues": {}, "size": 1, "dataChange": false}}),
            );
            kit.propose(1, 9, &refused).await;
        }
        let staged = kit.stage(1, 1, &[lines, vec![odd]].concat()).await;
        let before = kit.table.world.ports.objects.object_usage();
        let verdict = kit.judge(&staged).await;
        assert_eq!(verdict.committed_version().map(|version| version.0), Some(1), "{:?}", verdict.refusal());
        kit.table.world.ports.objects.object_usage().since(&before)
    };
    let (one, many) = (cost(1, false).await, cost(11, false).await);
    assert_eq!((many.gets - one.gets, many.heads - one.heads), (10, 0));
    let (one, many) = (cost(1, true).await, cost(11, true).await);
    assert_eq!((many.gets - one.gets, many.heads - one.heads), (0, 10), "known footers");
}

#[tokio::test]
async fn a_footer_that_was_read_before_its_turn_costs_one_look_at_its_turn() {
    let kit = Kit::unpartitioned(json!({})).await;
    kit.propose(1, 1, &[kit.file("first.parquet").await, append_info()]).await;
    let cost = async |kit: &Kit, ids: std::ops::Range<u128>| {
        let mut staged = Vec::new();
        for id in ids {
            staged.push(kit.stage(2, id, &[kit.file(&format!("{id}.parquet")).await, append_info()]).await);
        }
        let before = kit.table.world.ports.objects.object_usage();
        for (_, outcome) in kit.judge_all(staged).await {
            assert!(super::kit::verdict(outcome).committed_version().is_some());
        }
        let used = kit.table.world.ports.objects.object_usage().since(&before);
        (used.gets, used.heads)
    };
    // The staged commit and the footer.
    let (gets, heads) = cost(&kit, 10..11).await;
    assert_eq!((gets, heads), (2, 0), "fresh");
    let (more_gets, more_heads) = cost(&kit, 20..25).await;
    assert_eq!((more_gets, more_heads), (10, 4), "the first one is fresh, the others were read ahead");
}

#[tokio::test]
async fn a_known_footer_of_an_object_that_changed_is_read_anew() {
    let kit = with_change_feed().await;
    let add = kit.file("a.parquet").await;
    let refused = [
        add.clone(),
        append_info(),
        json!({"cdc": {"path": "_change_data/x", "partitionValues": {}, "size": 1, "dataChange": false}}),
    ];
    kit.propose(1, 1, &refused).await;
    let bytes = parquet_rows("message m { required binary id (STRING); }", &[json!({"id": "x"})]);
    kit.table.put("a.parquet", &bytes).await;
    let mut add = add;
    add["add"]["size"] = json!(bytes.len());
    add["add"]["stats"] = Value::Null;
    let verdict = kit.propose(1, 2, &[add, append_info()]).await;
    assert_eq!(verdict.refusal().unwrap().error_class, "DELTA_MERGE_INCOMPATIBLE_DATATYPE");
}

/// Counts how many reads are under way at the same time, and what o'clock it would be if each request took
/// [`REQUEST_MS`]; loses an object when another one is written.
struct Crowd {
    inner: Arc<MemoryObjects>,
    now: AtomicUsize,
    most: AtomicUsize,
    clock_ms: AtomicU64,
    /// End of the key that is written, and the key that is lost then.
    loses: Option<(&'static str, ObjectKey)>,
}

impl Crowd {
    fn of(kit: &Kit) -> Crowd {
        let inner = kit.table.world.objects.clone();
        let clock_ms = AtomicU64::new(0);
        Crowd { inner, now: AtomicUsize::new(0), most: AtomicUsize::new(0), clock_ms, loses: None }
    }

    /// A request: it ends so long after it began, and whatever can begin meanwhile does. What begins afterwards begins
    /// at the end of what it waited for, so that the clock tells how long the requests would take as they really follow
    /// and overlap each other.
    async fn request(&self) {
        let began_ms = self.clock_ms.load(Ordering::SeqCst);
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        for _ in 0..4 {
            tokio::task::yield_now().await;
        }
        self.now.fetch_sub(1, Ordering::SeqCst);
        self.clock_ms.fetch_max(began_ms + REQUEST_MS, Ordering::SeqCst);
    }
}

#[async_trait]
impl ReadObjects for Crowd {
    async fn get(&self, at: &ObjectKey, options: &GetOptions) -> Result<Object, ObjectError> {
        self.request().await;
        self.inner.get(at, options).await
    }

    async fn head(&self, at: &ObjectKey) -> Result<ObjectMeta, ObjectError> {
        self.request().await;
        self.inner.head(at).await
    }

    async fn list(&self, request: &ListRequest) -> Result<ListPage, ObjectError> {
        self.request().await;
        self.inner.list(request).await
    }

    fn object_usage(&self) -> ObjectUsage {
        self.inner.object_usage()
    }
}

#[async_trait]
impl Objects for Crowd {
    async fn put(&self, at: &ObjectKey, bytes: Bytes, options: &PutOptions) -> Result<ETag, ObjectError> {
        if let Some((_, lost)) = self.loses.as_ref().filter(|(end, _)| at.key.ends_with(end)) {
            self.inner.delete(lost, None).await?;
        }
        // Publishing is given a time, and a clock that stands still until somebody waits would take a pause for its end.
        self.clock_ms.fetch_add(REQUEST_MS, Ordering::SeqCst);
        self.inner.put(at, bytes, options).await
    }

    async fn copy(&self, from: &ObjectKey, to: &ObjectKey, condition: &PutCondition) -> Result<ETag, ObjectError> {
        self.inner.copy(from, to, condition).await
    }

    async fn delete(&self, at: &ObjectKey, if_match: Option<&ETag>) -> Result<(), ObjectError> {
        self.inner.delete(at, if_match).await
    }

    async fn delete_batch(&self, bucket: &str, doomed: &[Doomed]) -> Result<Vec<Deleted>, ObjectError> {
        self.inner.delete_batch(bucket, doomed).await
    }
}

#[tokio::test]
async fn a_file_that_goes_after_its_footer_was_read_ahead_is_missed() {
    let mut kit = Kit::unpartitioned(json!({})).await;
    kit.propose(1, 1, &[kit.file("first.parquet").await, append_info()]).await;
    let mut staged = Vec::new();
    for id in 2..5 {
        staged.push(kit.stage(2, id, &[kit.file(&format!("{id}.parquet")).await, append_info()]).await);
    }
    // When version 2 is published, footers of all three were read.
    let loses = Some(("00000000000000000002.json", kit.table.root.object("4.parquet")));
    kit.app.ports.objects = Arc::new(Crowd { loses, ..Crowd::of(&kit) });
    let said: Vec<_> = kit
        .judge_all(staged)
        .await
        .into_iter()
        .map(|(_, outcome)| {
            let verdict = super::kit::verdict(outcome);
            verdict.refusal().map(|refusal| refusal.reason.clone())
        })
        .collect();
    assert_eq!(said, [None, None, Some("FILE_MISSING".to_owned())]);
}

/// What one request to S3 takes in the model.
const REQUEST_MS: u64 = 60;
/// Timeout of the function that judges staged commits, in `template.yaml`.
const LAMBDA_MS: u64 = 60_000;

/// A commit of so many files, judged: requests, the most at the same time, and the time that they would take.
async fn modelled(count: usize, configuration: Value) -> (u64, usize, u64) {
    let mut kit = Kit::unpartitioned(configuration).await;
    let lines = files(&kit, count).await;
    let staged = kit.stage(1, 1, &lines).await;
    drop(lines);
    let crowd = Arc::new(Crowd::of(&kit));
    kit.app.ports.objects = crowd.clone();
    let before = crowd.object_usage();
    let verdict = kit.judge(&staged).await;
    assert_eq!(verdict.committed_version().map(|version| version.0), Some(1), "{:?}", verdict.refusal());
    let used = crowd.object_usage().since(&before);
    let requests = used.gets + used.heads + used.lists + used.puts;
    (requests, crowd.most.load(Ordering::SeqCst), crowd.clock_ms.load(Ordering::SeqCst))
}

#[tokio::test]
async fn files_are_read_as_many_at_a_time_as_the_cap_allows() {
    let (one, _, alone_ms) = modelled(1, json!({})).await;
    let (requests, most, took_ms) = modelled(100, json!({})).await;
    assert_eq!((requests - one, most), (99, CONCURRENT_FILES));
    // Four rounds of footers instead of one.
    assert_eq!(took_ms - alone_ms, 3 * REQUEST_MS);
}

/// What `count` appends of one batch to a known table wait for, one after the other: requests to S3; and what they ask of
/// the item store.
async fn rounds(count: u128) -> (u64, [u64; 4]) {
    let mut kit = Kit::unpartitioned(json!({})).await;
    kit.propose(1, 1, &[kit.file("first.parquet").await, append_info()]).await;
    let mut staged = Vec::new();
    for id in 2..2 + count {
        staged.push(kit.stage(2, id, &[kit.file(&format!("{id}.parquet")).await, append_info()]).await);
    }
    let crowd = Arc::new(Crowd::of(&kit));
    kit.app.ports.objects = crowd.clone();
    let before = kit.table.world.items.item_usage();
    for (_, outcome) in kit.judge_all(staged).await {
        assert!(super::kit::verdict(outcome).committed_version().is_some());
    }
    let used = kit.table.world.items.item_usage().since(&before);
    let waited_ms = crowd.clock_ms.load(Ordering::SeqCst);
    (waited_ms / REQUEST_MS, [used.gets, used.batch_gets, used.queries, used.transactions])
}

#[tokio::test]
async fn each_further_commit_of_a_batch_waits_for_its_publication_and_nothing_else_of_s3() {
    // The listing beside what was staged, the footers, and the publication.
    assert_eq!(rounds(1).await, (3, [0, 0, 0, 2]));
    // Whether they were proposed before is one request, however many they are.
    assert_eq!(rounds(2).await, (4, [0, 1, 0, 4]));
    assert_eq!(rounds(9).await, (11, [0, 1, 0, 18]));
}

fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap_or_default().to_owned();
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[tokio::test]
#[ignore = "a measurement: bench/run schema"]
#[allow(clippy::disallowed_methods, reason = "it measures time")]
async fn figures() {
    const FILES: usize = 10_000;
    let kit = Kit::unpartitioned(json!({"delta.constraints.c": "id >= 0"})).await;
    let lines = files(&kit, FILES).await;
    let staged = kit.stage(1, 1, &lines).await;
    drop(lines);
    let (before_kib, start) = (peak_kib(), std::time::Instant::now());
    let verdict = kit.judge(&staged).await;
    let took = start.elapsed();
    assert_eq!(verdict.committed_version().map(|version| version.0), Some(1), "{:?}", verdict.refusal());
    let peak_kib = peak_kib();
    drop(kit);
    println!("footers judged per second          {:>8.0}", FILES as f64 / took.as_secs_f64());
    println!(
        "peak memory                        {:>8} MiB (before: {} MiB, the files themselves among it)",
        peak_kib / 1024,
        before_kib / 1024
    );
    let (requests, most, waited_ms) = modelled(FILES, json!({"delta.constraints.c": "id >= 0"})).await;
    let whole_ms = waited_ms + u64::try_from(took.as_millis()).unwrap();
    println!("requests to S3                     {requests:>8} for {FILES} files, {most} at the same time");
    println!(
        "waiting for them, {REQUEST_MS} ms each       {waited_ms:>8} ms; with the work {whole_ms} ms of {LAMBDA_MS}"
    );
    assert!(peak_kib < 512 * 1024, "{peak_kib} KiB");
    assert!(whole_ms < LAMBDA_MS, "{whole_ms} ms");
}
