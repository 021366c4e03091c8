use std::panic::AssertUnwindSafe;

use futures::FutureExt;
use proptest::prelude::*;
use serde_json::json;

use super::*;
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
