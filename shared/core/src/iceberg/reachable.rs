use std::collections::HashSet;

use futures::{StreamExt, TryStreamExt, stream};

use super::{IcebergError, ManifestRef, Manifests, TableMetadata, read_manifest, read_manifest_list};
use crate::store::{ByteRange, GetOptions, ObjectError, ObjectKey, ReadObjects};

/// Manifests and lists read at the same time. A manifest has about 8 MB, so this bounds memory as well.
pub const MANIFEST_CONCURRENCY: usize = 8;
/// Largest metadata file, list or manifest that is read into memory.
pub const FILE_MAX_BYTES: u64 = 128 * 1024 * 1024;

/// Walks metadata to every file it names. What was walked is remembered: manifests never change, and snapshots share
/// most of them.
#[derive(Debug, Default)]
pub struct Reachable {
    walked: HashSet<ObjectKey>,
}

async fn fetch(objects: &dyn ReadObjects, what: &'static str, at: &ObjectKey) -> Result<bytes::Bytes, IcebergError> {
    // The range keeps a giant out of memory.
    let range = Some(ByteRange::From { start: 0, length: FILE_MAX_BYTES });
    match objects.get(at, &GetOptions { range, if_match: None }).await {
        Ok(object) if object.meta.size_bytes > FILE_MAX_BYTES => {
            let message = format!("it has {} bytes; at most {FILE_MAX_BYTES} are read", object.meta.size_bytes);
            Err(IcebergError::unreadable(what, at, message))
        }
        Ok(object) => Ok(object.bytes),
        Err(ObjectError::NotFound(_)) => Err(IcebergError::Missing { what, at: at.clone() }),
        // An empty object has no first byte.
        Err(ObjectError::InvalidRange(_)) => Err(IcebergError::unreadable(what, at, "it is empty")),
        Err(ObjectError::Store(error)) => Err(error.into()),
        Err(other) => Err(IcebergError::unreadable(what, at, other)),
    }
}

/// Reads a metadata file.
pub async fn load_metadata(objects: &dyn ReadObjects, at: &ObjectKey) -> Result<TableMetadata, IcebergError> {
    TableMetadata::parse(&fetch(objects, "table metadata", at).await?, at)
}

impl Reachable {
    /// Hands every file that `metadata` (read at `at`) names, and `at` itself, to `sink`; files may come more than once.
    /// What an earlier call walked completely is not read again.
    pub async fn walk(
        &mut self,
        objects: &dyn ReadObjects,
        at: &ObjectKey,
        metadata: &TableMetadata,
        sink: &mut (dyn FnMut(&ObjectKey) + Send),
    ) -> Result<(), IcebergError> {
        sink(at);
        metadata.files.iter().for_each(&mut *sink);
        let (lists, manifests) = self.manifests(objects, metadata, sink).await?;
        let mut reads = stream::iter(manifests.into_iter().map(|manifest| async move {
            let bytes = fetch(objects, "a manifest", &manifest.at).await?;
            let files = read_manifest(&bytes, &manifest)?;
            Ok::<_, IcebergError>((manifest.at, files))
        }))
        .buffer_unordered(MANIFEST_CONCURRENCY);
        while let Some((at, files)) = reads.try_next().await? {
            files.iter().for_each(&mut *sink);
            self.walked.insert(at);
        }
        drop(reads);
        self.walked.extend(lists);
        Ok(())
    }

    /// Lists and manifests that were not walked yet, each once. A list counts as walked when its manifests are.
    async fn manifests(
        &mut self,
        objects: &dyn ReadObjects,
        metadata: &TableMetadata,
        sink: &mut (dyn FnMut(&ObjectKey) + Send),
    ) -> Result<(Vec<ObjectKey>, Vec<ManifestRef>), IcebergError> {
        let mut lists = Vec::new();
        let mut found = Vec::new();
        for snapshot in &metadata.snapshots {
            match &snapshot.manifests {
                Manifests::List(at) => {
                    sink(at);
                    lists.push(at.clone());
                }
                Manifests::Inline(paths) => found.extend(paths.iter().map(|at| ManifestRef {
                    at: at.clone(),
                    length_bytes: None,
                    entries: None,
                })),
            }
        }
        lists.sort();
        lists.dedup();
        lists.retain(|at| !self.walked.contains(at));
        let mut reads = stream::iter(lists.clone().into_iter().map(|at| async move {
            let bytes = fetch(objects, "a manifest list", &at).await?;
            read_manifest_list(&bytes, &at)
        }))
        .buffer_unordered(MANIFEST_CONCURRENCY);
        while let Some(manifests) = reads.try_next().await? {
            found.extend(manifests);
        }
        drop(reads);
        found.iter().for_each(|manifest| sink(&manifest.at));
        found.sort_by(|one, other| one.at.cmp(&other.at));
        found.dedup_by(|one, other| one.at == other.at);
        found.retain(|manifest| !self.walked.contains(&manifest.at));
        Ok((lists, found))
    }
}
