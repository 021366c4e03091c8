//! Hand-made Iceberg tables in a world in memory, and hooks that change things between two calls.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use apache_avro::types::Value as Avro;
use apache_avro::{Schema, Writer};
use async_trait::async_trait;
use bytes::Bytes;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::*;
use crate::delta::testkit::TableKit;
use crate::location::Location;
use crate::ports::{App, Deadline, Settings};
use crate::store::memory::{ManualClock, MemoryObjects, MemoryWorld};
use crate::store::*;

pub const DAY_MS: i64 = 86_400_000;
pub const START_MS: i64 = 1_790_000_000_000;
pub const BUCKET: &str = "lake";

/// Parameters of a Delta table.
pub const DELTA: [(&str, &str); 1] = [("spark.sql.sources.provider", "delta")];

/// The Iceberg table `db.t` with its optimizer, one live file, and one that nothing needs.
pub async fn with_orphan(lake: &Lake) -> (Iceberg, String) {
    let mut table = Iceberg::create(lake, "t", 2).await;
    lake.optimize("t", json!({})).await;
    advance(&lake.world.clock, 1);
    table.append(&["live.parquet"]).await;
    let orphan = table.data("orphan.parquet").await;
    (table, orphan)
}

/// The same after the retention.
pub async fn with_old_orphan(lake: &Lake) -> (Iceberg, String) {
    let found = with_orphan(lake).await;
    lake.days(4);
    found
}

/// A world with a catalog.
#[derive(Clone)]
pub struct Lake {
    pub world: MemoryWorld,
    pub app: App,
    pub directory: Arc<MemoryDirectory>,
}

pub fn at(key: &str) -> ObjectKey {
    ObjectKey::new(BUCKET, key)
}

impl Lake {
    pub fn new() -> Self {
        let world = MemoryWorld::new(START_MS);
        // Deletes are for good here, except where a test is about undoing them.
        let mut settings = Settings::default();
        settings.undo.hours = 0;
        let app = App::new(world.ports.clone(), settings);
        Self { world, app, directory: Arc::default() }
    }

    pub async fn put(&self, key: &str, bytes: impl Into<Bytes>) {
        self.world.objects.put(&at(key), bytes.into(), &PutOptions::default()).await.unwrap();
    }

    pub fn days(&self, days: i64) {
        self.world.clock.advance_ms(days * DAY_MS);
    }

    pub fn keys(&self) -> BTreeSet<String> {
        self.world.objects.keys(BUCKET).into_iter().collect()
    }

    pub fn register(&self, name: &str, prefix: &str, parameters: &[(&str, &str)]) {
        self.directory.put(TableEntry {
            id: format!("id-{name}"),
            database: "db".into(),
            name: name.into(),
            location: Some(Location::new(BUCKET, prefix)),
            parameters: parameters.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
        });
    }

    /// An optimizer for `db.<table>`, created now.
    pub async fn optimize(&self, table: &str, config: Value) {
        let input = json!({
            "CatalogId": "000000000000", "DatabaseName": "db", "TableName": table, "Type": "orphan_file_deletion",
            "TableOptimizerConfiguration": {"enabled": true,
                "orphanFileDeletionConfiguration": {"icebergConfiguration": config}}
        });
        optimizer::create(&self.app, self.directory.as_ref(), input).await.unwrap();
    }

    /// Changes what the optimizer of `db.t` sweeps, and when.
    pub async fn configure(&self, config: Value) -> Result<Value, crate::glue::GlueException> {
        let input = json!({
            "CatalogId": "000000000000", "DatabaseName": "db", "TableName": "t", "Type": "orphan_file_deletion",
            "TableOptimizerConfiguration": {"orphanFileDeletionConfiguration": {"icebergConfiguration": config}}
        });
        optimizer::update(&self.app, self.directory.as_ref(), input).await
    }

    /// Starts a run that one sighting is enough for, and answers its message.
    pub async fn start(&self, table: &str, mode: Mode) -> SweepRequest {
        let body = json!({ "mode": mode.as_str(), "sightings": 1 });
        rest::start_in(&self.app, self.directory.as_ref(), "db", table, &body).await.unwrap();
        SweepRequest::decode(&self.world.queue.take(QueueName::Sweeps).unwrap()).unwrap()
    }

    /// A sweep with an action right before its n-th look at the catalog or the store.
    pub async fn run_hooked(&self, request: &SweepRequest, hook: &Arc<Hook>) -> RunOutcome {
        let (directory, objects) = (self.directory.clone(), self.world.objects.clone());
        let hooked = Arc::new(Hooked { hook: hook.clone(), directory, objects });
        let mut app = self.app.clone();
        app.ports.objects = hooked.clone();
        sweep(&app, hooked.as_ref(), request, self.deadline()).await.unwrap()
    }

    /// A Delta table `db.<name>`, its log begun with these lines.
    pub async fn delta(&self, name: &str, prefix: &str, lines: &[Value]) -> TableKit {
        let kit = TableKit { world: self.world.clone(), root: Location::new(BUCKET, prefix) };
        kit.log(0, lines).await;
        self.register(name, prefix, &DELTA);
        kit
    }

    /// Decisions of a run: key, what becomes of it, and why.
    pub async fn decisions(&self, run: &items::RunRecord) -> BTreeMap<String, (String, String)> {
        let text = |line: &Value, member: &str| line[member].as_str().unwrap_or_default().to_owned();
        let lines = self.report(&run.table, &run.run_id).await;
        let judged = lines.iter().filter(|line| line.get("decision").is_some());
        judged.map(|line| (text(line, "key"), (text(line, "decision"), text(line, "reason")))).collect()
    }

    pub fn deadline(&self) -> Deadline {
        Deadline::in_ms(self.world.clock.as_ref(), 900_000)
    }

    pub async fn run(&self, request: &SweepRequest) -> Result<RunOutcome, SweepError> {
        sweep(&self.app, self.directory.as_ref(), request, self.deadline()).await
    }

    /// Starts a run and works on it to its end.
    pub async fn sweep(&self, table: &str, mode: Mode) -> items::RunRecord {
        let request = self.start(table, mode).await;
        match self.run(&request).await.unwrap() {
            RunOutcome::Finished(record) => *record,
            other => panic!("{other:?}"),
        }
    }

    /// What the schedule does: plans, and works on the run that is due.
    pub async fn scheduled(&self) -> items::RunRecord {
        plan_due(&self.app, self.deadline()).await.unwrap();
        let request = SweepRequest::decode(&self.world.queue.take(QueueName::Sweeps).unwrap()).unwrap();
        match self.run(&request).await.unwrap() {
            RunOutcome::Finished(record) => *record,
            other => panic!("{other:?}"),
        }
    }

    /// Starts a run with options and works on it to its end.
    pub async fn sweep_with(&self, table: &str, body: Value) -> items::RunRecord {
        rest::start_in(&self.app, self.directory.as_ref(), "db", table, &body).await.unwrap();
        let request = SweepRequest::decode(&self.world.queue.take(QueueName::Sweeps).unwrap()).unwrap();
        match self.run(&request).await.unwrap() {
            RunOutcome::Finished(record) => *record,
            other => panic!("{other:?}"),
        }
    }

    /// Keys that an ordinary run of `t` removes.
    pub async fn gone(&self) -> (items::RunRecord, BTreeSet<String>) {
        let before = self.keys();
        let record = self.sweep("t", Mode::Ordinary).await;
        let after = self.keys();
        (record, before.difference(&after).cloned().collect())
    }

    /// Every line of a run's report.
    pub async fn report(&self, table: &str, run_id: &str) -> Vec<Value> {
        let (mut lines, mut token) = (Vec::new(), None::<String>);
        loop {
            let directory = self.directory.as_ref();
            let page = rest::report_in(&self.app, directory, "db", table, run_id, token.as_deref()).await.unwrap();
            lines.extend(page["lines"].as_array().unwrap().clone());
            token = page["next_token"].as_str().map(str::to_owned);
            if token.is_none() {
                return lines;
            }
        }
    }
}

const ENTRY: &str = r#"{"type":"record","name":"manifest_entry","fields":[
  {"name":"status","type":"int","field-id":0},
  {"name":"snapshot_id","type":["null","long"],"default":null,"field-id":1},
  {"name":"data_file","field-id":2,"type":{"type":"record","name":"r2","fields":[
    {"name":"content","type":"int","field-id":134},
    {"name":"file_path","type":"string","field-id":100},
    {"name":"file_format","type":"string","field-id":101},
    {"name":"record_count","type":"long","field-id":103},
    {"name":"lower_bounds","field-id":125,"type":["null",{"type":"array","logicalType":"map","items":
      {"type":"record","name":"k126_v127","fields":[
        {"name":"key","type":"int","field-id":126},{"name":"value","type":"bytes","field-id":127}]}}]}
  ]}}]}"#;

const LIST: &str = r#"{"type":"record","name":"manifest_file","fields":[
  {"name":"manifest_path","type":"string","field-id":500},
  {"name":"manifest_length","type":"long","field-id":501},
  {"name":"content","type":"int","field-id":517},
  {"name":"added_files_count","type":"int","field-id":504},
  {"name":"existing_files_count","type":"int","field-id":505},
  {"name":"deleted_files_count","type":"int","field-id":506},
  {"name":"key_metadata","type":["null","bytes"],"default":null,"field-id":519}]}"#;

fn avro(schema: &str, records: Vec<Avro>) -> Vec<u8> {
    let schema = Schema::parse_str(schema).unwrap();
    let codec = apache_avro::Codec::Deflate(Default::default());
    let mut writer = Writer::builder().schema(&schema).writer(Vec::new()).codec(codec).build();
    for record in records {
        writer.append(record).unwrap();
    }
    writer.into_inner().unwrap()
}

fn record(fields: Vec<(&str, Avro)>) -> Avro {
    Avro::Record(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

fn null() -> Avro {
    Avro::Union(0, Box::new(Avro::Null))
}

/// Manifest of entries (status, content, key).
pub fn manifest(entries: &[(i32, i32, String)]) -> Vec<u8> {
    manifest_by(Some(7), entries)
}

/// Manifest whose entries say that this snapshot is theirs.
pub fn manifest_by(snapshot: Option<i64>, entries: &[(i32, i32, String)]) -> Vec<u8> {
    let snapshot = snapshot.map_or_else(null, |id| Avro::Union(1, Box::new(Avro::Long(id))));
    let entry = |(status, content, key): &(i32, i32, String)| {
        let bounds = record(vec![("key", Avro::Int(1)), ("value", Avro::Bytes(vec![1, 2, 3]))]);
        record(vec![
            ("status", Avro::Int(*status)),
            ("snapshot_id", snapshot.clone()),
            (
                "data_file",
                record(vec![
                    ("content", Avro::Int(*content)),
                    ("file_path", Avro::String(format!("s3://{BUCKET}/{key}"))),
                    ("file_format", Avro::String("PARQUET".into())),
                    ("record_count", Avro::Long(3)),
                    ("lower_bounds", Avro::Union(1, Box::new(Avro::Array(vec![bounds])))),
                ]),
            ),
        ])
    };
    avro(ENTRY, entries.iter().map(entry).collect())
}

/// Manifest list of (key, length, files that were added).
pub fn manifest_list(manifests: &[(String, usize, usize)]) -> Vec<u8> {
    let one = |(key, length, entries): &(String, usize, usize)| listed(key, *length, [*entries, 0, 0]);
    avro(LIST, manifests.iter().map(one).collect())
}

/// Manifest list of one manifest and its counts of files: added, existing, removed.
pub fn removing_list(key: &str, length: usize, counts: [usize; 3]) -> Vec<u8> {
    avro(LIST, vec![listed(key, length, counts)])
}

fn listed(key: &str, length: usize, counts: [usize; 3]) -> Avro {
    let [added, existing, removed] = counts.map(|count| Avro::Int(count as i32));
    record(vec![
        ("manifest_path", Avro::String(format!("s3a://{BUCKET}/{key}"))),
        ("manifest_length", Avro::Long(length as i64)),
        ("content", Avro::Int(0)),
        ("added_files_count", added),
        ("existing_files_count", existing),
        ("deleted_files_count", removed),
        ("key_metadata", null()),
    ])
}

/// Manifest list of (key, content), as format 1 allows it: without a count.
pub fn uncounted_list(manifests: &[(&str, i32)]) -> Vec<u8> {
    let schema = r#"{"type":"record","name":"manifest_file","fields":[
      {"name":"manifest_path","type":"string","field-id":500},{"name":"content","type":"int","field-id":517}]}"#;
    let one = |(key, content): &(&str, i32)| {
        let path = Avro::String(format!("s3://{BUCKET}/{key}"));
        record(vec![("manifest_path", path), ("content", Avro::Int(*content))])
    };
    avro(schema, manifests.iter().map(one).collect())
}

/// An Iceberg table that grows by commits.
#[derive(Clone)]
pub struct Iceberg {
    pub lake: Lake,
    pub name: String,
    pub prefix: String,
    pub version: i64,
    pub format: i64,
    pub metadata: Value,
    manifests: Vec<(String, usize, usize)>,
}

impl Iceberg {
    pub async fn create(lake: &Lake, name: &str, format: i64) -> Self {
        Self::create_at(lake, name, &format!("wh/{name}"), format).await
    }

    pub async fn create_at(lake: &Lake, name: &str, prefix: &str, format: i64) -> Self {
        let metadata = json!({
            "format-version": format, "table-uuid": format!("uuid-{name}"), "location": format!("s3://{BUCKET}/{prefix}"),
            "last-updated-ms": START_MS, "last-sequence-number": 0, "current-snapshot-id": -1,
            "snapshots": [], "metadata-log": [], "statistics": [], "partition-statistics": [], "refs": {},
            "partition-specs": [{"spec-id": 0, "fields": [{"name": "_day"}]}], "properties": {},
        });
        let mut table = Self {
            lake: lake.clone(),
            name: name.into(),
            prefix: prefix.into(),
            version: 0,
            format,
            metadata,
            manifests: Vec::new(),
        };
        table.write_metadata().await;
        table.point();
        table
    }

    pub fn metadata_key(&self) -> String {
        format!("{}/metadata/{:05}-u.metadata.json", self.prefix, self.version)
    }

    pub fn uri(key: &str) -> String {
        format!("s3://{BUCKET}/{key}")
    }

    /// Writes the metadata file of the current version without telling the catalog.
    pub async fn write_metadata(&mut self) {
        self.lake.put(&self.metadata_key(), self.metadata.to_string()).await;
    }

    /// Lets the catalog point at the current version.
    pub fn point(&self) {
        let pointer = Self::uri(&self.metadata_key());
        self.lake.register(&self.name, &self.prefix, &[("table_type", "ICEBERG"), ("metadata_location", &pointer)]);
    }

    pub async fn data(&self, name: &str) -> String {
        let key = format!("{}/data/{name}", self.prefix);
        self.lake.put(&key, name.to_owned()).await;
        key
    }

    /// Everything of a commit but the catalog's pointer: manifest, list, metadata.
    pub async fn prepare(&mut self, entries: &[(i32, i32, String)]) {
        let before = self.metadata_key();
        self.version += 1;
        let snapshot = self.version * 10;
        let key = format!("{}/metadata/c{}-m0.avro", self.prefix, self.version);
        let bytes = manifest(entries);
        self.manifests.push((key.clone(), bytes.len(), entries.len()));
        self.lake.put(&key, bytes).await;
        let named = if self.format == 1 && self.version % 2 == 1 {
            let paths: Vec<String> = self.manifests.iter().map(|(key, ..)| Self::uri(key)).collect();
            json!({"snapshot-id": snapshot, "manifests": paths})
        } else {
            let list = format!("{}/metadata/snap-{snapshot}.avro", self.prefix);
            self.lake.put(&list, manifest_list(&self.manifests)).await;
            json!({"snapshot-id": snapshot, "manifest-list": Self::uri(&list)})
        };
        let metadata = &mut self.metadata;
        metadata["snapshots"].as_array_mut().unwrap().push(named);
        metadata["metadata-log"].as_array_mut().unwrap().push(json!({"metadata-file": Self::uri(&before)}));
        metadata["current-snapshot-id"] = snapshot.into();
        metadata["last-sequence-number"] = self.version.into();
        metadata["last-updated-ms"] = self.lake.world.ports.clock.now_ms().into();
        metadata["refs"]["main"] = json!({"snapshot-id": snapshot});
        self.write_metadata().await;
    }

    /// Puts another manifest in the place of the first, and a list that describes it so.
    pub async fn rewrite_first_manifest(&mut self, entries: &[(i32, i32, String)]) {
        let bytes = manifest(entries);
        let (key, length, count) = &mut self.manifests[0];
        (*length, *count) = (bytes.len(), entries.len());
        let key = key.clone();
        self.lake.put(&key, bytes).await;
        self.metadata["snapshots"] = json!([]);
        self.prepare(&[]).await;
        self.point();
    }

    /// A commit that keeps one snapshot, without the oldest manifests.
    pub async fn expire(&mut self, manifests: usize) {
        self.manifests.drain(..manifests);
        self.metadata["snapshots"] = json!([]);
        self.prepare(&[]).await;
        self.point();
    }

    pub async fn commit(&mut self, entries: &[(i32, i32, String)]) {
        self.prepare(entries).await;
        self.point();
    }

    /// A commit whose snapshot says when it was made, and that its entries are its own.
    pub async fn commit_dated(&mut self, entries: &[(i32, i32, String)]) {
        self.prepare(entries).await;
        let now_ms = self.lake.world.ports.clock.now_ms();
        let snapshots = self.metadata["snapshots"].as_array_mut().unwrap();
        // The manifests made here say that snapshot 7 added everything.
        for snapshot in snapshots.iter_mut() {
            snapshot["timestamp-ms"] = 1.into();
        }
        let list = snapshots.last().unwrap()["manifest-list"].clone();
        snapshots.push(json!({"snapshot-id": 7, "timestamp-ms": now_ms, "manifest-list": list}));
        self.write_metadata().await;
        self.point();
    }

    /// A commit that adds files by name.
    pub async fn append(&mut self, names: &[&str]) -> Vec<String> {
        let mut entries = Vec::new();
        for name in names {
            entries.push((1, 0, self.data(name).await));
        }
        self.commit(&entries).await;
        entries.into_iter().map(|(_, _, key)| key).collect()
    }
}

type Action = Box<dyn FnOnce() -> BoxFuture<'static, ()> + Send>;

/// Carries out an action right before the n-th call that it is asked about.
pub struct Hook {
    left: AtomicI64,
    action: Mutex<Option<Action>>,
    /// Names of the calls from the action on.
    since: Mutex<Vec<&'static str>>,
}

impl Hook {
    pub fn new(calls: i64, action: Action) -> Arc<Self> {
        Arc::new(Self { left: AtomicI64::new(calls), action: Mutex::new(Some(action)), since: Mutex::default() })
    }

    pub fn has_fired(&self) -> bool {
        self.action.lock().unwrap().is_none()
    }

    /// Whether a call of that name came after the action.
    pub fn was_called_since(&self, name: &str) -> bool {
        self.since.lock().unwrap().contains(&name)
    }

    pub async fn tick(&self, name: &'static str) {
        if self.left.fetch_sub(1, Ordering::SeqCst) == 0 {
            let action = self.action.lock().unwrap().take();
            if let Some(action) = action {
                action().await;
            }
        }
        if self.has_fired() {
            self.since.lock().unwrap().push(name);
        }
    }
}

/// The lake's directory and objects with a hook before every read.
pub struct Hooked {
    pub hook: Arc<Hook>,
    pub directory: Arc<MemoryDirectory>,
    pub objects: Arc<MemoryObjects>,
}

#[async_trait]
impl TableDirectory for Hooked {
    async fn table(&self, database: &str, table: &str) -> Result<Option<TableEntry>, DirectoryError> {
        self.hook.tick("table").await;
        self.directory.table(database, table).await
    }

    async fn tables_around(&self, scope: &Location) -> Result<Vec<TableEntry>, DirectoryError> {
        self.hook.tick("tables_around").await;
        self.directory.tables_around(scope).await
    }

    async fn tables(&self) -> Result<Vec<TableEntry>, DirectoryError> {
        self.hook.tick("tables").await;
        self.directory.tables().await
    }

    async fn uses_around(&self, scope: &Location) -> Result<Vec<TableUse>, DirectoryError> {
        self.hook.tick("uses_around").await;
        self.directory.uses_around(scope).await
    }

    async fn index_partitions(&self, entry: &TableEntry) -> Result<bool, DirectoryError> {
        self.hook.tick("index_partitions").await;
        self.directory.index_partitions(entry).await
    }

    async fn past(&self, entry: &TableEntry) -> Result<Past, DirectoryError> {
        self.hook.tick("past").await;
        self.directory.past(entry).await
    }
}

#[async_trait]
impl Watch for Hooked {
    fn objects(&self) -> &MemoryObjects {
        &self.objects
    }

    async fn before(&self, request: &'static str) {
        if matches!(request, "get" | "head" | "list") {
            self.hook.tick(request).await;
        }
    }
}

/// The lake's objects with something before each request: by name, `get`, `head`, `list`, `put`, `copy`, `delete`,
/// `delete_batch`.
#[async_trait]
pub trait Watch: Send + Sync {
    fn objects(&self) -> &MemoryObjects;

    async fn before(&self, _request: &'static str) {}

    /// What becomes of a batch.
    async fn batch(&self, bucket: &str, doomed: &[Doomed]) -> Result<Vec<Deleted>, ObjectError> {
        self.objects().delete_batch(bucket, doomed).await
    }
}

#[async_trait]
impl<W: Watch> ReadObjects for W {
    async fn get(&self, at: &ObjectKey, options: &GetOptions) -> Result<Object, ObjectError> {
        self.before("get").await;
        self.objects().get(at, options).await
    }

    async fn head(&self, at: &ObjectKey) -> Result<ObjectMeta, ObjectError> {
        self.before("head").await;
        self.objects().head(at).await
    }

    async fn list(&self, request: &ListRequest) -> Result<ListPage, ObjectError> {
        self.before("list").await;
        self.objects().list(request).await
    }

    fn object_usage(&self) -> ObjectUsage {
        self.objects().object_usage()
    }
}

#[async_trait]
impl<W: Watch> Objects for W {
    async fn create_copy(&self, from: &ObjectKey, etag: &ETag, to: &ObjectKey) -> Result<ETag, ObjectError> {
        self.before("create_copy").await;
        self.objects().create_copy(from, etag, to).await
    }

    async fn versioning(&self, bucket: &str) -> Result<Versioning, ObjectError> {
        self.before("versioning").await;
        self.objects().versioning(bucket).await
    }

    async fn list_versions(&self, request: &VersionRequest) -> Result<VersionPage, ObjectError> {
        self.before("list_versions").await;
        self.objects().list_versions(request).await
    }

    async fn delete_version(&self, at: &ObjectKey, id: &VersionId) -> Result<(), ObjectError> {
        self.before("delete_version").await;
        self.objects().delete_version(at, id).await
    }

    async fn put(&self, at: &ObjectKey, bytes: Bytes, options: &PutOptions) -> Result<ETag, ObjectError> {
        self.before("put").await;
        self.objects().put(at, bytes, options).await
    }

    async fn copy(&self, from: &ObjectKey, to: &ObjectKey, condition: &PutCondition) -> Result<ETag, ObjectError> {
        self.before("copy").await;
        self.objects().copy(from, to, condition).await
    }

    async fn delete(&self, at: &ObjectKey, if_match: Option<&ETag>) -> Result<(), ObjectError> {
        self.before("delete").await;
        self.objects().delete(at, if_match).await
    }

    async fn delete_batch(&self, bucket: &str, doomed: &[Doomed]) -> Result<Vec<Deleted>, ObjectError> {
        self.before("delete_batch").await;
        self.batch(bucket, doomed).await
    }
}

/// The lake's objects with a clock that goes on with every request.
pub struct Slow {
    pub objects: Arc<MemoryObjects>,
    pub clock: Arc<ManualClock>,
    pub step_ms: i64,
    /// Of a HEAD: many are asked at once.
    pub head_ms: i64,
}

#[async_trait]
impl Watch for Slow {
    fn objects(&self) -> &MemoryObjects {
        &self.objects
    }

    async fn before(&self, request: &'static str) {
        match request {
            "head" => self.clock.advance_ms(self.head_ms),
            "copy" | "create_copy" | "delete" => {}
            _ => self.clock.advance_ms(self.step_ms),
        }
    }
}

/// Counts by reason, without bytes.
pub fn counts(record: &items::RunRecord) -> BTreeMap<&str, i64> {
    record.totals.by_reason.iter().map(|(reason, tally)| (reason.as_str(), tally.count)).collect()
}

/// Seconds on the clock of a lake.
pub fn advance(clock: &ManualClock, seconds: i64) {
    clock.advance_ms(seconds * 1000);
}

/// The objects of the test kit, with a look at the hook right before a batch goes as well.
pub struct UpToTheLast(pub Arc<Hooked>);

#[async_trait]
impl Watch for UpToTheLast {
    fn objects(&self) -> &MemoryObjects {
        &self.0.objects
    }

    async fn before(&self, request: &'static str) {
        if matches!(request, "get" | "head" | "list" | "delete_batch") {
            self.0.hook.tick(request).await;
        }
    }
}
