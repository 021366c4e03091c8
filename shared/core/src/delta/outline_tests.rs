use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeSet;

use super::*;
use crate::delta::log::list_log;
use crate::delta::snapshot;
use crate::delta::testkit::{TABLE_ID, TableKit, add_line, creation_of, remove_line};
use crate::store::{Objects, PutOptions};

#[derive(Default)]
struct Told {
    live: BTreeSet<FileId>,
    removed: BTreeSet<(String, Option<i64>)>,
    commits: Vec<i64>,
}

impl Listener for Told {
    fn live(&mut self, id: FileId, _: &AddFile) -> Result<(), String> {
        self.live.insert(id);
        Ok(())
    }

    fn removed(&mut self, _: FileId, remove: &RemoveFile) -> Result<(), String> {
        self.removed.insert((remove.path.clone(), remove.deletion_timestamp));
        Ok(())
    }

    fn commit(&mut self, _: &LogEntry, _: &Actions) -> Result<(), String> {
        Ok(())
    }

    fn committed(&mut self, version: Version) {
        self.commits.push(version.0);
    }
}

/// An action of a made-up commit: which file, with which vector, removed or added.
fn line(number: u8, vector: u8, is_add: bool, at_ms: i64) -> Value {
    let path = format!("f{number}.parquet");
    let mut line = if is_add { add_line(&path, usize::from(number)) } else { remove_line(&path, at_ms) };
    let action = if is_add { &mut line["add"] } else { &mut line["remove"] };
    if vector > 0 {
        action["deletionVector"] = json!({"storageType": "u", "pathOrInlineDv": format!("ab^-aqEH.-t@S}}K{{vb[*k^{vector}"),
            "offset": 4, "sizeInBytes": 40, "cardinality": 6});
    }
    if !is_add {
        action["size"] = json!(number);
    }
    line
}

async fn log_of(commits: &[Vec<(u8, u8, bool)>], checkpoint: usize) -> TableKit {
    let kit = TableKit::new().await;
    kit.log(0, &creation_of(TABLE_ID, &[], json!({}))).await;
    for (index, commit) in commits.iter().enumerate() {
        let version = index as i64 + 1;
        // A logical file is told of once in a commit.
        let mut seen = BTreeSet::new();
        let lines: Vec<Value> = commit
            .iter()
            .filter(|(number, vector, _)| seen.insert((*number, *vector)))
            .map(|(number, vector, is_add)| line(*number, *vector, *is_add, version))
            .collect();
        kit.log(version, &lines).await;
        if index == checkpoint {
            let state = snapshot::load(kit.world.objects.as_ref(), &kit.root, None).await.unwrap();
            kit.checkpoint(&state).await;
        }
    }
    kit
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    /// Oldest first and newest first come to the same, from a checkpoint, from the beginning, or from any state before.
    #[test]
    fn an_outline_tells_what_a_snapshot_holds(
        commits in prop::collection::vec(prop::collection::vec((0_u8..6, 0_u8..3, any::<bool>()), 1..6), 1..8),
        checkpoint in 0_usize..9,
        base in 0_usize..9,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let kit = log_of(&commits, checkpoint).await;
            let objects = kit.world.objects.as_ref();
            let listing = list_log(objects, &kit.root, None).await.unwrap();
            let expected = snapshot::load(objects, &kit.root, None).await.unwrap();
            let live: BTreeSet<FileId> = expected.live.keys().map(FileId::of).collect();
            let bytes = expected.live.values().map(|add| add.size).sum::<i64>();
            let mut told = Told::default();
            let outline = read_outline(objects, &kit.root, &listing, None, &mut told).await.unwrap();
            assert_eq!((&told.live, outline.files, outline.bytes), (&live, live.len() as u64, Some(bytes)));
            for remove in expected.tombstones.values() {
                assert!(told.removed.contains(&(remove.path.clone(), remove.deletion_timestamp)), "{remove:?}");
            }
            assert!(told.commits.is_sorted_by(|one, next| one > next), "{:?}", told.commits);
            assert_eq!(outline.checkpoint.map(|counts| counts.version.0), (checkpoint < commits.len()).then_some(checkpoint as i64 + 1));
            // From what somebody knew.
            let version = Version(base.min(commits.len()) as i64);
            let before = snapshot::load(objects, &kit.root, Some(version)).await.unwrap();
            let known = Base { version, protocol: before.protocol.clone(), metadata: before.metadata.clone() };
            let mut told = Told::default();
            let mut outline = read_outline(objects, &kit.root, &listing, Some(&known), &mut told).await.unwrap();
            outline.bytes = outline.bytes.map(|bytes| bytes + before.live.values().map(|add| add.size).sum::<i64>());
            for key in before.live.keys() {
                if outline.count_of_base(FileId::of(key)) {
                    told.live.insert(FileId::of(key));
                }
            }
            assert_eq!((&told.live, outline.files), (&live, live.len() as u64));
            assert!(outline.bytes.is_none_or(|found| found == bytes), "{:?} {bytes}", outline.bytes);
            assert_eq!(told.commits.len() as i64, commits.len() as i64 - version.0);
        });
    }
}

/// One commit of 40,000 files is never in memory as a whole: it comes in pieces.
#[tokio::test]
async fn a_large_commit_comes_in_pieces() {
    #[derive(Default)]
    struct Pieces(Vec<usize>);
    impl Listener for Pieces {
        fn live(&mut self, _: FileId, _: &AddFile) -> Result<(), String> {
            Ok(())
        }
        fn removed(&mut self, _: FileId, _: &RemoveFile) -> Result<(), String> {
            Ok(())
        }
        fn commit(&mut self, _: &LogEntry, actions: &Actions) -> Result<(), String> {
            self.0.push(actions.adds.len());
            Ok(())
        }
    }
    let kit = TableKit::new().await;
    kit.log(0, &creation_of(TABLE_ID, &[], json!({}))).await;
    let adds: Vec<Value> = (0..10_000).map(|number| add_line(&format!("day=1/{number:08}.parquet"), 1)).collect();
    kit.log(1, &adds).await;
    let objects = kit.world.objects.as_ref();
    let listing = list_log(objects, &kit.root, None).await.unwrap();
    let mut pieces = Pieces::default();
    let outline = read_outline(objects, &kit.root, &listing, None, &mut pieces).await.unwrap();
    assert_eq!((outline.files, outline.bytes), (10_000, Some(10_000)));
    assert_eq!(pieces.0.iter().sum::<usize>(), 10_000);
    assert!(pieces.0.iter().all(|adds| *adds < 3_000), "{:?}", pieces.0);
    // Cut off behind a whole line, it is not the commit that was listed.
    let at = commit_key(&kit.root, Version(1));
    kit.world.objects.put(&at, bytes::Bytes::from_static(b"{\"txn\":{}}\n"), &PutOptions::default()).await.unwrap();
    let error = read_outline(objects, &kit.root, &listing, None, &mut Pieces::default()).await.unwrap_err();
    assert!(error.to_string().contains("changed while it was read"), "{error}");
}
