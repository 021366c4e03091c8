//! The reader against files that another implementation wrote.

use std::collections::BTreeSet;
use std::path::Path;

use bytes::Bytes;
use serde_json::Value;

use super::*;
use crate::location::split_uri;
use crate::store::memory::MemoryWorld;
use crate::store::{ObjectKey, Objects, PutOptions, ReadObjects};

struct Fixture {
    world: MemoryWorld,
    index: Value,
    pointer: ObjectKey,
}

fn key(uri: &str) -> ObjectKey {
    let (bucket, key) = split_uri(uri).unwrap();
    ObjectKey::new(bucket, key)
}

impl Fixture {
    async fn load() -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/iceberg/fixtures/pyiceberg-0.12.0");
        let index: Value = serde_json::from_slice(&std::fs::read(folder.join("index.json")).unwrap()).unwrap();
        let world = MemoryWorld::new(1_790_000_000_000);
        for object in index["objects"].as_array().unwrap() {
            let at = ObjectKey::new("lake", object["key"].as_str().unwrap());
            let bytes = if at.key.contains("/metadata/") {
                std::fs::read(folder.join(at.key.rsplit('/').next().unwrap())).unwrap()
            } else {
                vec![0; usize::try_from(object["size_bytes"].as_u64().unwrap()).unwrap()]
            };
            world.objects.put(&at, Bytes::from(bytes), &PutOptions::default()).await.unwrap();
        }
        let pointer = key(index["pointer"].as_str().unwrap());
        Self { world, index, pointer }
    }

    fn uris(&self, name: &str) -> impl Iterator<Item = ObjectKey> {
        self.index[name].as_array().unwrap().iter().map(|uri| key(uri.as_str().unwrap()))
    }

    async fn walk(&self) -> Result<BTreeSet<ObjectKey>, IcebergError> {
        let objects = self.world.objects.as_ref();
        let metadata = load_metadata(objects, &self.pointer).await?;
        let mut found = BTreeSet::new();
        let mut sink = |named: Named<'_>| {
            found.insert(named.at().clone());
        };
        Reachable::default().walk(objects, &self.pointer, &metadata, &mut sink).await?;
        Ok(found)
    }
}

#[tokio::test]
async fn a_table_of_pyiceberg_is_read_whole() {
    let fixture = Fixture::load().await;
    let found = fixture.walk().await.unwrap();
    // Every object of this table is referenced: files, manifests, lists, and each metadata file by the log.
    let stored: BTreeSet<ObjectKey> =
        fixture.world.objects.keys("lake").into_iter().map(|key| ObjectKey::new("lake", key)).collect();
    assert_eq!(found, stored);
    for at in fixture.uris("all_files").chain(fixture.uris("all_manifests")).chain(fixture.uris("live")) {
        assert!(found.contains(&at), "{at}");
    }
    // 1 metadata file, 4 lists, 6 manifests.
    assert_eq!(fixture.world.objects.object_usage().gets, 11);
}

#[tokio::test]
async fn a_missing_or_shortened_file_is_an_error() {
    let names: Vec<String> = Fixture::load().await.world.objects.keys("lake");
    for name in names.iter().filter(|name| name.ends_with(".avro")) {
        let fixture = Fixture::load().await;
        let at = ObjectKey::new("lake", name.as_str());
        fixture.world.objects.delete(&at, None).await.unwrap();
        assert!(matches!(fixture.walk().await, Err(IcebergError::Missing { .. })), "{name}");
        let whole = Fixture::load().await.world.objects.get(&at, &Default::default()).await.unwrap().bytes;
        let short = whole.slice(..whole.len() - 1);
        fixture.world.objects.put(&at, short, &PutOptions::default()).await.unwrap();
        assert!(matches!(fixture.walk().await, Err(IcebergError::Unreadable { .. })), "{name}");
    }
}
