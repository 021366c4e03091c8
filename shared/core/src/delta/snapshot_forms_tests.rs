//! However a log is written (checkpoints of all kinds, compactions, commits that are gone), the state is the same.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::log::{LogName, MainFile, Version, log_key};
use super::snapshot::{FileKey, load, load_listed_wanted, load_wanted};
use super::testkit::{Form, TableKit, action_lines, text};
use super::{Covers, Snapshot, Wanted};
use crate::location::Location;
use crate::store::{
    GetOptions, ListPage, ListRequest, Object, ObjectError, ObjectKey, ObjectMeta, ObjectUsage, Objects, PutOptions,
    ReadObjects,
};

/// One random action; what fits the state becomes a line.
#[derive(Clone, Debug)]
enum Op {
    Add { file: u8, rows: u32 },
    Remove { file: u8 },
    Delete { file: u8, offset: u8 },
    Txn { app: u8, version: i64 },
    Domain { domain: u8, removed: bool },
    Property(u8),
    Features(bool),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0..9_u8, 1..99_u32).prop_map(|(file, rows)| Op::Add { file, rows }),
        2 => (0..9_u8).prop_map(|file| Op::Remove { file }),
        3 => (0..9_u8, 1..200_u8).prop_map(|(file, offset)| Op::Delete { file, offset }),
        1 => (0..3_u8, 0..50_i64).prop_map(|(app, version)| Op::Txn { app, version }),
        1 => (0..3_u8, any::<bool>()).prop_map(|(domain, removed)| Op::Domain { domain, removed }),
        1 => (0..3_u8).prop_map(Op::Property),
        1 => any::<bool>().prop_map(Op::Features),
    ]
}

fn form() -> impl Strategy<Value = Form> {
    let format = || prop_oneof![Just(MainFile::Json), Just(MainFile::Parquet)];
    prop_oneof![
        Just(Form::Classic),
        (1..7_usize, 1..5_usize).prop_map(|(group, page)| Form::Grouped(group, page)),
        (1..4_u32).prop_map(Form::Parts),
        format().prop_map(Form::V2),
        (format(), 1..4_usize).prop_map(|(format, count)| Form::Sidecars(format, count)),
    ]
}

fn path_of(file: u8) -> String {
    // Some need decoding, one lies elsewhere.
    match file {
        0 => "p=a%20b/f0.parquet".to_owned(),
        1 => "s3://other/clone/f1.parquet".to_owned(),
        file => format!("p=x/f{file}.parquet"),
    }
}

fn vector_of(offset: u8) -> Value {
    json!({"storageType": "u", "pathOrInlineDv": "^-aqEH.-t@S}K{vb[*k^", "offset": offset, "sizeInBytes": 44, "cardinality": 6})
}

/// Lines of a commit; `live` holds the vector of each live file.
fn lines_of(ops: &[Op], live: &mut BTreeMap<u8, Option<u8>>) -> Vec<Value> {
    let mut lines = vec![json!({"commitInfo": {"operation": "x"}})];
    let mut touched = std::collections::BTreeSet::new();
    let add = |file: u8, rows: u32, vector: Option<u8>| {
        let stats = (!rows.is_multiple_of(3)).then(|| json!({"numRecords": rows, "tightBounds": false}).to_string());
        let mut add = json!({"path": path_of(file), "partitionValues": {"p": if file == 2 { None } else { Some("x") }},
            "size": rows, "modificationTime": rows, "dataChange": rows.is_multiple_of(2), "baseRowId": rows.is_multiple_of(4).then_some(rows),
            "defaultRowCommitVersion": rows.is_multiple_of(4).then_some(3), "tags": {"t": "1", "none": null},
            "clusteringProvider": rows.is_multiple_of(5).then_some("liquid")});
        if let Some(stats) = stats {
            add["stats"] = stats.into();
        }
        if let Some(offset) = vector {
            add["deletionVector"] = vector_of(offset);
        }
        json!({"add": add})
    };
    let remove = |file: u8, vector: Option<u8>| {
        let mut remove = json!({"path": path_of(file), "deletionTimestamp": 77, "dataChange": true,
            "extendedFileMetadata": true, "partitionValues": {"p": "x"}, "size": 5});
        if let Some(offset) = vector {
            remove["deletionVector"] = vector_of(offset);
        }
        json!({"remove": remove})
    };
    for op in ops {
        match op {
            Op::Add { file, .. } | Op::Remove { file } | Op::Delete { file, .. } if !touched.insert(*file) => {}
            Op::Add { file, rows } if !live.contains_key(file) => {
                lines.push(add(*file, *rows, None));
                live.insert(*file, None);
            }
            Op::Remove { file } => lines.extend(live.remove(file).map(|vector| remove(*file, vector))),
            Op::Delete { file, offset } => {
                if let Some(old) = live.get(file).copied().filter(|old| *old != Some(*offset)) {
                    // The add may stand first.
                    lines.push(add(*file, 9, Some(*offset)));
                    lines.push(remove(*file, old));
                    live.insert(*file, Some(*offset));
                }
            }
            Op::Add { .. } => {}
            Op::Txn { app, version } => lines.push(json!({"txn": {"appId": format!("app{app}"), "version": version}})),
            Op::Domain { domain, removed } => lines.push(json!({"domainMetadata":
                {"domain": format!("d{domain}"), "configuration": "{\"a\":1}", "removed": removed}})),
            Op::Property(value) => lines.push(json!({"metaData": {"id": "i", "name": null,
                "format": {"provider": "parquet", "options": {}}, "schemaString": "{}", "partitionColumns": ["p"],
                "configuration": {"k": value.to_string()}, "createdTime": 5}})),
            Op::Features(is_empty) => {
                let features: &[&str] = if *is_empty { &[] } else { &["deletionVectors", "v2Checkpoint"] };
                lines.push(json!({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7,
                    "readerFeatures": features, "writerFeatures": features}}));
            }
        }
    }
    lines
}

/// What the snapshot says of some files only.
fn restricted(whole: &Snapshot, files: &[ObjectKey]) -> Snapshot {
    let mut some = whole.clone();
    some.live.retain(|key, _| files.contains(&key.at));
    some.tombstones.retain(|key, _| files.contains(&key.at));
    some.covers = Covers::Only(files.iter().cloned().collect());
    some
}

async fn check_forms(commits: Vec<Vec<Op>>, checkpoint: usize, form: Form, compaction: (usize, usize), gone: usize) {
    let kit = TableKit::new().await;
    kit.log(0, &kit.creation()).await;
    let mut live = BTreeMap::new();
    let mut lines_of_all = Vec::new();
    for (index, ops) in commits.iter().enumerate() {
        let lines = lines_of(ops, &mut live);
        kit.log(index as i64 + 1, &lines).await;
        lines_of_all.push(lines);
    }
    let objects = &*kit.world.objects;
    let plain = load(objects, &kit.root, None).await.unwrap();
    let last = commits.len();
    let checkpoint = checkpoint % (last + 1);
    let early = load(objects, &kit.root, Some(Version(checkpoint as i64))).await.unwrap();
    kit.checkpoint_as(&early, form).await;
    for version in 0..=(gone % (checkpoint + 1)) {
        if version <= checkpoint {
            kit.delete_log(version as i64).await;
        }
    }
    compact(&kit, &early, checkpoint, last, compaction, &lines_of_all).await;
    assert!(load(objects, &kit.root, None).await.unwrap() == plain, "{form:?}");
    assert!(load_wanted(objects, &kit.root, None, &Wanted::AtMost(100)).await.unwrap() == plain);
    let some: Vec<ObjectKey> = (0..4).map(|file| key_of(&kit.root, file)).collect();
    let wanted = Wanted::Only(some.iter().cloned().collect());
    let mut seen = std::collections::BTreeSet::new();
    let listing = super::snapshot::list_for(objects, &kit.root, None).await.unwrap();
    let mut observer = |at: &ObjectKey| {
        seen.insert(at.clone());
    };
    let found = load_listed_wanted(objects, &kit.root, &listing, None, &wanted, Some(&mut observer)).await.unwrap();
    assert!(found == restricted(&plain, &some), "{form:?}");
    assert!(plain.live.keys().all(|key| seen.contains(&key.at)), "every live file is told");
    let table = load_wanted(objects, &kit.root, None, &Wanted::Only(Default::default())).await.unwrap();
    assert!(table == restricted(&plain, &[]), "{form:?}");
    let none = load_wanted(objects, &kit.root, None, &Wanted::AtMost(0)).await.unwrap();
    let has_files = !plain.live.is_empty() || !plain.tombstones.is_empty();
    assert!(none.live.is_empty() && none.tombstones.is_empty());
    assert!(!has_files || none.covers == Covers::Only(Default::default()));
}

fn key_of(root: &Location, file: u8) -> ObjectKey {
    super::path::resolve(root, &path_of(file), super::path::Reach::Anywhere).unwrap()
}

/// Writes what commits `from..=to` after the checkpoint do together, and takes some of them away.
async fn compact(
    kit: &TableKit,
    early: &Snapshot,
    checkpoint: usize,
    last: usize,
    (from, length): (usize, usize),
    lines: &[Vec<Value>],
) {
    let from = checkpoint + 1 + from;
    let to = from + length;
    if to > last {
        return;
    }
    let before = load(&*kit.world.objects, &kit.root, Some(Version(from as i64 - 1))).await.unwrap();
    let after = load(&*kit.world.objects, &kit.root, Some(Version(to as i64))).await.unwrap();
    assert!(before.version >= early.version);
    let (_, files) = action_lines(&after);
    let touched: std::collections::BTreeSet<&str> = lines[from - 1..to]
        .iter()
        .flatten()
        .filter_map(|line| line.get("add").or(line.get("remove"))?["path"].as_str())
        .collect();
    let mut compacted: Vec<Value> = files
        .into_iter()
        .filter(|line| {
            let action = line.get("add").or(line.get("remove")).unwrap();
            touched.contains(action["path"].as_str().unwrap())
        })
        .collect();
    for kind in ["txn", "domainMetadata", "protocol", "metaData"] {
        compacted.extend(lines[from - 1..to].iter().flatten().filter(|line| line.get(kind).is_some()).cloned());
    }
    let name = LogName::Compacted { from: Version(from as i64), to: Version(to as i64) }.text().unwrap();
    let at = log_key(&kit.root, &name);
    kit.world.objects.put(&at, text(&compacted).into(), &PutOptions::default()).await.unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_way_of_writing_a_log_tells_the_same(
        commits in proptest::collection::vec(proptest::collection::vec(op(), 0..6), 1..10),
        checkpoint in 0..20_usize,
        form in form(),
        compaction in (0..3_usize, 1..4_usize),
        gone in 0..20_usize,
    ) {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(check_forms(commits, checkpoint, form, compaction, gone));
    }
}

/// A state of many files, as a checkpoint that is not held whole: entries kept and bytes read are counted.
#[tokio::test]
async fn a_large_table_is_read_without_being_kept() {
    const FILES: i64 = 30_000;
    let kit = TableKit::new().await;
    kit.log(0, &kit.creation()).await;
    let mut plain = load(&*kit.world.objects, &kit.root, None).await.unwrap();
    let stats = json!({"numRecords": 1, "minValues": {"id": 1}, "maxValues": {"id": "x".repeat(40)}}).to_string();
    for index in 0..FILES {
        let path = format!("p=x/part-{index:05}-{}.parquet", uuid::Uuid::from_u128(index as u128 * 0x1234_5678_9abc));
        let add: super::AddFile =
            serde_json::from_value(json!({"path": path, "partitionValues": {"p": "x"}, "size": 5,
            "stats": stats}))
            .unwrap();
        plain.live.insert(FileKey { at: kit.root.object(&path), dv_id: None }, add);
    }
    kit.checkpoint_as(&plain, Form::Grouped(10_000, 500)).await;
    let objects = &*kit.world.objects;
    let one = plain.live.keys().nth(12_345).unwrap().at.clone();
    let mut told = 0;
    let mut observer = |_: &ObjectKey| told += 1;
    let listing = super::snapshot::list_for(objects, &kit.root, None).await.unwrap();
    let before = objects.object_usage();
    let wanted = Wanted::Only([one.clone()].into());
    let found = load_listed_wanted(objects, &kit.root, &listing, None, &wanted, Some(&mut observer)).await.unwrap();
    let used = objects.object_usage().since(&before);
    assert_eq!((found.live.len(), found.tombstones.len(), told), (1, 0, FILES));
    assert_eq!(found.live_at(&one).count(), 1);
    // A footer, and for each of three row groups the paths; of one of them everything else.
    assert!(used.gets <= 1 + 3 + 1, "{}", used.gets);
    let size = objects.head(&super::log::checkpoint_key(&kit.root, Version(0))).await.unwrap().size_bytes;
    assert!(used.bytes_read < 2 * size, "{} of {size}", used.bytes_read);
}

/// Remembers the longest answer.
struct Watched<'a> {
    objects: &'a dyn ReadObjects,
    longest_bytes: std::sync::atomic::AtomicUsize,
}

#[async_trait::async_trait]
impl ReadObjects for Watched<'_> {
    async fn get(&self, at: &ObjectKey, options: &GetOptions) -> Result<Object, ObjectError> {
        let object = self.objects.get(at, options).await?;
        self.longest_bytes.fetch_max(object.bytes.len(), std::sync::atomic::Ordering::Relaxed);
        Ok(object)
    }

    async fn head(&self, at: &ObjectKey) -> Result<ObjectMeta, ObjectError> {
        self.objects.head(at).await
    }

    async fn list(&self, request: &ListRequest) -> Result<ListPage, ObjectError> {
        self.objects.list(request).await
    }

    fn object_usage(&self) -> ObjectUsage {
        self.objects.object_usage()
    }
}

/// A million files in one row group. What is kept: one file, and 16 bytes for each path of the filter; what is in memory
/// on the way: a window of 4 MiB and a page for each column that is read.
///
/// `bench/run snapshot`; the same of 30,000 files, with what is read and kept counted, runs with the other tests.
#[tokio::test]
#[ignore = "takes a minute without optimisation"]
async fn a_million_files_are_read_in_windows() {
    const FILES: usize = 1_000_000;
    let kit = TableKit::new().await;
    kit.log(0, &kit.creation()).await;
    let (others, _) = action_lines(&load(&*kit.world.objects, &kit.root, None).await.unwrap());
    let stats = "{\"numRecords\":1000,\"minValues\":{\"id\":1},\"maxValues\":{\"id\":1000},\"nullCount\":{\"id\":0}}";
    let path = |index: usize| format!("p=x/part-{index:07}-{:032x}.parquet", index as u128 * 0x9e37_79b9_7f4a_7c15);
    let message = "message m { optional group add { optional binary path (STRING); optional int64 size; optional binary stats (STRING); }
        optional group protocol { optional int32 minReaderVersion; optional int32 minWriterVersion; }
        optional group metaData { optional binary id (STRING); optional binary schemaString (STRING); } }";
    let rows = others
        .into_iter()
        .chain((0..FILES).map(|index| json!({"add": {"path": path(index), "size": index, "stats": stats}})));
    let bytes = super::testkit::parquet_rows(message, &rows.collect::<Vec<_>>());
    let size = bytes.len();
    let at = super::log::checkpoint_key(&kit.root, Version(0));
    kit.world.objects.put(&at, bytes.into(), &PutOptions::default()).await.unwrap();
    let objects = Watched { objects: &*kit.world.objects, longest_bytes: Default::default() };
    let listing = super::snapshot::list_for(&objects, &kit.root, None).await.unwrap();
    let one = kit.root.object(&path(654_321));
    let mut told = 0;
    let mut observer = |_: &ObjectKey| told += 1;
    let wanted = Wanted::Only([one.clone()].into());
    let found = load_listed_wanted(&objects, &kit.root, &listing, None, &wanted, Some(&mut observer)).await.unwrap();
    let longest = objects.longest_bytes.into_inner();
    println!("checkpoint {size} bytes; longest read {longest} bytes; kept {} of {told} files", found.live.len());
    assert_eq!((told, found.live.len(), found.tombstones.len()), (FILES, 1, 0));
    assert_eq!(found.live_at(&one).next().unwrap().1.size, 654_321);
    assert!(longest <= 4 * 1024 * 1024, "{longest}");
}
