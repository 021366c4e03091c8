//! Logs as other writers left them (`tests/fixtures/delta`).

use std::path::{Path, PathBuf};

use super::log::{Version, list_log};
use super::snapshot::load;
use super::testkit::TableKit;
use super::{Snapshot, deletion_vector};

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files_below(&path)) } else { found.push(path) }
    }
    found
}

async fn table(name: &str) -> TableKit {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/delta").join(name);
    let kit = TableKit::new().await;
    for path in files_below(&folder) {
        let relative = path.strip_prefix(&folder).unwrap().to_str().unwrap().to_owned();
        kit.put(&relative, &std::fs::read(&path).unwrap()).await;
    }
    kit
}

/// The state from the checkpoint on, and from the commits alone: they must tell the same of files, table and applications.
async fn both_ways(kit: &TableKit) -> Snapshot {
    let objects = &*kit.world.objects;
    let found = load(objects, &kit.root, None).await.unwrap();
    let checkpoints: Vec<String> =
        kit.world.objects.keys("lake").into_iter().filter(|key| key.contains(".checkpoint.")).collect();
    let plain = TableKit::new().await;
    for key in kit.world.objects.keys("lake").into_iter().filter(|key| !checkpoints.contains(key)) {
        let bytes = kit.get(&crate::store::ObjectKey::new("lake", key.clone())).await.unwrap();
        plain.put(key.strip_prefix("wh/t/").unwrap(), &bytes).await;
    }
    let by_commits = load(&*plain.world.objects, &plain.root, None).await.unwrap();
    // With the checkpoint, the commits before it are not needed.
    let at = checkpoints.iter().filter_map(|key| Version::parse(&key[key.len() - 39..key.len() - 19])).max().unwrap();
    for (version, _) in list_log(objects, &kit.root, None).await.unwrap().commits().filter(|(found, _)| *found < at) {
        kit.delete_log(version.0).await;
    }
    assert_eq!(load(objects, &kit.root, None).await.unwrap(), found);
    assert_eq!(found.metadata, by_commits.metadata);
    assert_eq!((&found.protocol, found.version), (&by_commits.protocol, by_commits.version));
    assert_eq!((&found.app_ids, &found.domains), (&by_commits.app_ids, &by_commits.domains));
    assert_eq!(found.live.keys().collect::<Vec<_>>(), by_commits.live.keys().collect::<Vec<_>>());
    for (one, other) in found.live.values().zip(by_commits.live.values()) {
        assert_eq!((&one.path, &one.partition_values, one.size), (&other.path, &other.partition_values, other.size));
        assert_eq!(one.deletion_vector, other.deletion_vector);
        let stats =
            |text: &Option<String>| serde_json::from_str::<serde_json::Value>(text.as_deref().unwrap()).unwrap();
        assert_eq!(stats(&one.stats)["numRecords"], stats(&other.stats)["numRecords"]);
    }
    assert_eq!(found.tombstones.keys().collect::<Vec<_>>(), by_commits.tombstones.keys().collect::<Vec<_>>());
    found
}

#[tokio::test]
async fn a_log_of_deltalake() {
    let found = both_ways(&table("deltalake").await).await;
    assert_eq!((found.version, found.live.len(), found.tombstones.len()), (Version(5), 4, 1));
    assert_eq!(found.app_ids.get("app"), Some(&7));
    let values: Vec<&str> =
        found.live.values().map(|add| add.partition_values.get("p").unwrap().as_deref().unwrap()).collect();
    assert_eq!(values.len(), 4);
    assert!(values.contains(&"a b") && values.contains(&"ä/ö"), "{values:?}");
}

#[tokio::test]
async fn a_log_of_deltalake_with_the_feature_of_v2_checkpoints() {
    let found = both_ways(&table("deltalake-v2").await).await;
    assert_eq!(found.live.len(), 1);
    assert!(found.protocol.reader_features.unwrap().contains(&"v2Checkpoint".to_owned()));
}

#[tokio::test]
async fn a_log_of_sail_and_its_deletion_vectors() {
    let kit = table("sail").await;
    let found = both_ways(&kit).await;
    let vectors: Vec<_> = found.live.values().filter_map(|add| add.deletion_vector.as_ref()).collect();
    assert_eq!(vectors.len(), 1);
    let objects = &*kit.world.objects;
    let rows =
        deletion_vector::check(objects, &kit.root, vectors[0], Some(10), deletion_vector::Age::New).await.unwrap();
    assert_eq!(rows.iter().collect::<Vec<_>>(), [2, 3, 4, 5, 6]);
    let kept: Vec<_> = found.tombstones.values().filter_map(|remove| remove.deletion_vector.as_ref()).collect();
    assert_eq!(kept.len(), 3);
    for (vector, most) in kept.into_iter().zip([4, 4, 4]) {
        let older = deletion_vector::read(objects, &kit.root, vector).await.unwrap();
        assert!(older.is_subset(&rows) && older.len() <= most);
    }
}
