use std::panic::AssertUnwindSafe;

use futures::FutureExt;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::delta::footer::Datum;
use crate::delta::log::{LogName, MainFile, Version};
use crate::delta::snapshot::{FileKey, load};
use crate::delta::testkit::{Form, TableKit};
use crate::store::{Objects, PutOptions};

/// Keeps everything, in order.
#[derive(Debug, Default)]
struct Everything(Vec<Action>);

impl Target for Everything {
    fn interest(&self) -> Interest {
        Interest::All
    }

    fn live_path(&mut self, _: &str) -> Result<bool, CheckpointError> {
        Ok(true)
    }

    fn removed_path(&mut self, _: &str) -> Result<bool, CheckpointError> {
        Ok(true)
    }

    fn take(&mut self, action: Action) -> Result<(), CheckpointError> {
        self.0.push(action);
        Ok(())
    }
}

async fn table(files: i64, form: Form) -> (TableKit, CheckpointFile) {
    let kit = TableKit::new().await;
    kit.log(0, &kit.creation()).await;
    let mut plain = load(&*kit.world.objects, &kit.root, None).await.unwrap();
    for index in 0..files {
        let path = format!("p=x/{index:05}-{}.parquet", "y".repeat((index % 90) as usize));
        let values = if index % 5 == 0 { json!({}) } else { json!({"p": "x", "q": null, "r": index.to_string()}) };
        let vector = json!({"storageType": "u", "pathOrInlineDv": "v", "sizeInBytes": index, "cardinality": 2});
        let add = json!({"path": path, "partitionValues": values, "size": index, "dataChange": index % 2 == 0,
            "stats": (index % 3 == 0).then_some("{\"numRecords\":7}"),
            "deletionVector": (index % 7 == 0).then_some(vector)});
        let key = FileKey { at: kit.root.object(&path), dv_id: None };
        plain.live.insert(key, serde_json::from_value(add).unwrap());
    }
    kit.checkpoint_as(&plain, form).await;
    let (name, is_json) = match form {
        Form::V2(format) | Form::Sidecars(format, _) => {
            let id = uuid::Uuid::from_u128(77);
            (LogName::V2Checkpoint { version: Version(0), id, format }, format == MainFile::Json)
        }
        _ => (LogName::ClassicCheckpoint(Version(0)), false),
    };
    let at = log_key(&kit.root, &name.text().unwrap());
    let meta = kit.world.objects.head(&at).await.unwrap();
    (kit, CheckpointFile { at, etag: meta.etag, size_bytes: meta.size_bytes, is_json })
}

#[tokio::test]
async fn small_portions_tell_the_same() {
    for form in
        [Form::Grouped(400, 37), Form::Grouped(2_000, 64), Form::V2(MainFile::Json), Form::V2(MainFile::Parquet)]
    {
        let (kit, file) = table(1_500, form).await;
        let objects = &*kit.world.objects;
        let mut whole = Everything::default();
        read_file(objects, &kit.root, &file, &mut whole).await.unwrap();
        assert_eq!(whole.0.len(), 1_502);
        for window_bytes in [16, 300, 5_000, 50_000] {
            let portions = Portions { first_bytes: 8, together_bytes: 0, window_bytes };
            let mut found = Everything::default();
            read_in_portions(objects, &kit.root, &file, portions, &mut found).await.unwrap();
            assert!(found.0 == whole.0, "{form:?} {window_bytes}");
        }
    }
}

#[tokio::test]
async fn rows_can_be_known_from_parsed_statistics_alone() {
    let message = "message m { optional group add { optional binary path (STRING); optional int64 size;
        optional group stats_parsed { optional int64 numRecords; optional group minValues { optional int64 a; } } } }";
    let rows = [
        json!({"add": {"path": "a", "size": 1, "stats_parsed": {"numRecords": 5, "minValues": {"a": 1}}}}),
        json!({"add": {"path": "b", "size": 1}}),
    ];
    let (kit, file) = table(0, Form::Classic).await;
    let bytes = crate::delta::testkit::parquet_rows(message, &rows);
    let size_bytes = bytes.len() as u64;
    let etag = kit.world.objects.put(&file.at, bytes.into(), &PutOptions::default()).await.unwrap();
    let mut found = Everything::default();
    read_file(&*kit.world.objects, &kit.root, &CheckpointFile { etag, size_bytes, ..file }, &mut found).await.unwrap();
    let stats: Vec<_> = found
        .0
        .iter()
        .map(|action| match action {
            Action::Add(add) => (add.path.as_str(), add.stats.as_deref()),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(stats, [("a", Some("{\"numRecords\":5}")), ("b", None)]);
}

const OF_ALL_TYPES: &str = "message m {
    optional group sidecar { optional binary path (STRING); optional int64 sizeInBytes; }
    optional group add { optional binary path (STRING); optional int64 size;
        optional group deletionVector { optional binary storageType (STRING); optional binary pathOrInlineDv (STRING);
            optional int32 offset; optional int32 sizeInBytes; optional int64 cardinality; }
        optional group partitionValues_parsed { optional int32 p; }
        optional group stats_parsed { optional int64 numRecords; optional boolean tightBounds;
            optional group minValues { optional int32 i (INTEGER(32,true)); optional int32 day (DATE); optional float f;
                optional double d; optional int64 at (TIMESTAMP(MICROS,true)); optional int32 dec (DECIMAL(9,2));
                optional fixed_len_byte_array(9) big (DECIMAL(20,2)); optional int96 old; optional binary t (STRING);
                optional binary raw; optional int64 odd (TIME(MICROS,true));
                optional group s { optional int64 n; }
                optional group list (LIST) { repeated group list { optional int64 element; } } } } } }";

async fn parsed_of(
    bytes: Vec<u8>,
    is_json: bool,
) -> Result<Vec<(FileKey, Vec<(String, ParsedValue)>)>, CheckpointError> {
    let (kit, file) = table(0, Form::Classic).await;
    let size_bytes = bytes.len() as u64;
    let etag = kit.world.objects.put(&file.at, bytes.into(), &PutOptions::default()).await.unwrap();
    let file = CheckpointFile { etag, size_bytes, is_json, ..file };
    let mut found = Vec::new();
    let mut each = |key: FileKey, said: Parsed<'_>| {
        let said = said.into_iter().filter(|(_, value)| *value != ParsedValue::Null);
        found.push((key, said.map(|(path, value)| (path.join("/"), value)).collect()));
    };
    read_parsed(&*kit.world.objects, &kit.root, &file, &mut each).await?;
    Ok(found)
}

fn of_all_types() -> Vec<u8> {
    let min = json!({"i": -7, "day": 1, "f": 1.1, "d": 1.1, "at": 5, "dec": 150, "big": 0, "old": 0, "t": "x", "raw": "y",
        "odd": 1, "s": {"n": 9}, "list": [1]});
    let vector = json!({"storageType": "u", "pathOrInlineDv": "v", "sizeInBytes": 1, "cardinality": 2});
    let rows = [
        json!({"sidecar": null}),
        json!({"add": {"path": "a", "size": 1, "deletionVector": vector, "partitionValues_parsed": {"p": 3},
            "stats_parsed": {"numRecords": 5, "tightBounds": false, "minValues": min}}}),
        json!({"add": {"path": "b", "size": 1}}),
    ];
    crate::delta::testkit::parquet_rows(OF_ALL_TYPES, &rows)
}

#[tokio::test]
async fn parsed_statistics_are_read_in_their_types() {
    let found = parsed_of(of_all_types(), false).await.unwrap();
    let value = ParsedValue::Value;
    let names: Vec<(&str, Option<&str>)> =
        found.iter().map(|(key, _)| (key.at.key.rsplit('/').next().unwrap(), key.dv_id.as_deref())).collect();
    assert_eq!(names, [("a", Some("uv")), ("b", None)]);
    let expected = [
        ("partitionValues_parsed/p", value(Datum::Int(3))),
        ("stats_parsed/numRecords", value(Datum::Int(5))),
        ("stats_parsed/tightBounds", value(Datum::Flag(false))),
        ("stats_parsed/minValues/i", value(Datum::Int(-7))),
        ("stats_parsed/minValues/day", value(Datum::Day(1))),
        ("stats_parsed/minValues/f", ParsedValue::Single(1.1)),
        ("stats_parsed/minValues/d", value(Datum::Float(1.1))),
        ("stats_parsed/minValues/at", value(Datum::Instant(5_000))),
        ("stats_parsed/minValues/dec", value(Datum::Decimal { unscaled: 150, scale: 2 })),
        ("stats_parsed/minValues/big", value(Datum::Decimal { unscaled: 0, scale: 2 })),
        ("stats_parsed/minValues/old", value(Datum::Instant(-2_440_588 * 86_400_000_000_000))),
        ("stats_parsed/minValues/t", value(Datum::Text("x".into()))),
        ("stats_parsed/minValues/raw", value(Datum::Bytes(b"y".to_vec()))),
        ("stats_parsed/minValues/odd", ParsedValue::Unreadable),
        ("stats_parsed/minValues/s/n", value(Datum::Int(9))),
        ("stats_parsed/minValues/list/list/element", ParsedValue::Unreadable),
    ];
    let told: Vec<(&str, ParsedValue)> =
        found[0].1.iter().map(|(path, value)| (path.as_str(), value.clone())).collect();
    assert_eq!(told, expected);
    // What is not read could be anything.
    assert_eq!(found[1].1, [("stats_parsed/minValues/list/list/element".to_owned(), ParsedValue::Unreadable)]);
}

#[tokio::test]
async fn lines_of_json_must_not_have_parsed_statistics() {
    let plain =
        json!({"add": {"path": "a", "partitionValues": {}, "size": 1, "modificationTime": 1, "stats_parsed": null}});
    assert_eq!(parsed_of(plain.to_string().into_bytes(), true).await, Ok(Vec::new()));
    for name in ["stats_parsed", "partitionValues_parsed"] {
        let mut parsed = plain.clone();
        parsed["add"][name] = json!({});
        let error = parsed_of(parsed.to_string().into_bytes(), true).await.unwrap_err();
        assert!(error.to_string().contains("in JSON"), "{error}");
    }
}

#[tokio::test]
async fn a_file_that_changes_while_it_is_read_is_noticed() {
    let (kit, file) = table(10, Form::V2(MainFile::Json)).await;
    let other = CheckpointFile { etag: crate::store::ETag("other".into()), ..file.clone() };
    let error = read_file(&*kit.world.objects, &kit.root, &other, &mut Everything::default()).await.unwrap_err();
    assert!(error.to_string().contains("changed while it was read"), "{error}");
    let longer = CheckpointFile { size_bytes: file.size_bytes + 10, ..file };
    let read = read_file(&*kit.world.objects, &kit.root, &longer, &mut Everything::default()).await;
    assert!(matches!(read, Err(CheckpointError::Damaged(_))), "{read:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Whatever the bytes: an answer or an error.
    #[test]
    fn damaged_bytes_never_panic(
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        is_json in any::<bool>(),
        small in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let form = if is_json { Form::V2(MainFile::Json) } else { Form::Grouped(20, 7) };
            let (kit, file) = table(30, form).await;
            let mut bytes = kit.get(&file.at).await.unwrap().to_vec();
            for (at, value) in flips {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
            let etag = kit.world.objects.put(&file.at, bytes.into(), &PutOptions::default()).await.unwrap();
            let file = CheckpointFile { etag, ..file };
            let portions =
                if small { Portions { first_bytes: 8, together_bytes: 0, window_bytes: 100 } } else { Portions::default() };
            let mut target = Everything::default();
            let read = read_in_portions(&*kit.world.objects, &kit.root, &file, portions, &mut target);
            let outcome = AssertUnwindSafe(read).catch_unwind().await;
            assert!(outcome.is_ok());
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Also of the types that only parsed statistics have.
    #[test]
    fn damaged_statistics_never_panic(
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut bytes = of_all_types();
            for (at, value) in flips {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
            let outcome = AssertUnwindSafe(parsed_of(bytes, false)).catch_unwind().await;
            assert!(outcome.is_ok());
        });
    }
}
