use std::collections::{BTreeMap, HashMap, HashSet};

use futures::{StreamExt, TryStreamExt, stream};

use super::manifest::{AvroKind, is_avro, kind_of};
use super::tally::{Counted, Demand, Tally};
use super::{IcebergError, ManifestEntry, ManifestRef, TableMetadata, read_manifest, read_manifest_list};
use crate::store::{ByteRange, GetOptions, Object, ObjectError, ObjectKey, ObjectMeta, ReadObjects, StoreErrorKind};

/// Manifests and lists read at the same time.
pub const MANIFEST_CONCURRENCY: usize = 8;
/// What manifests that are read at the same time may have together, by what their lists say; a larger one is alone.
const IN_FLIGHT_BYTES: u64 = 16 * 1024 * 1024;
/// Of a manifest of which no list says how long it is: writers aim at this.
const USUAL_BYTES: u64 = 8 * 1024 * 1024;
/// Manifests that are read before the walker asks whether it may go on.
const MANIFESTS_AT_ONCE: usize = 64;
/// Largest metadata file, list or manifest that is read into memory.
pub const FILE_MAX_BYTES: u64 = 128 * 1024 * 1024;

/// Walks metadata to every file it names. What was walked is remembered: manifests never change, and snapshots share
/// most of them.
#[derive(Debug, Default)]
pub struct Reachable {
    walked: HashSet<ObjectKey>,
    /// What walked manifests name, where no list says how much that is.
    counted: HashMap<ObjectKey, Counted>,
}

async fn fetch(objects: &dyn ReadObjects, what: &'static str, at: &ObjectKey) -> Result<Object, IcebergError> {
    // The range keeps a giant out of memory.
    let range = Some(ByteRange::From { start: 0, length: FILE_MAX_BYTES });
    let options = GetOptions { range, if_match: None };
    let mut found = objects.get(at, &options).await;
    // Hadoop's client writes `a//b` as `a/b`, and names it as it was told.
    if let (Err(ObjectError::NotFound(_)), Some(single)) = (&found, at.collapsed()) {
        found = objects.get(&single, &options).await;
    }
    match found {
        Ok(object) if object.meta.size_bytes > FILE_MAX_BYTES => {
            let message = format!("it has {} bytes; at most {FILE_MAX_BYTES} are read", object.meta.size_bytes);
            Err(IcebergError::unreadable(what, at, message))
        }
        Ok(object) => Ok(object),
        Err(ObjectError::NotFound(_)) => Err(IcebergError::Missing { what, at: at.clone() }),
        // Without its bucket nothing of it is there.
        Err(ObjectError::Store(error)) if error.kind == StoreErrorKind::Missing => {
            Err(IcebergError::Missing { what, at: at.clone() })
        }
        // An empty object has no first byte.
        Err(ObjectError::InvalidRange(_)) => Err(IcebergError::unreadable(what, at, "it is empty")),
        Err(ObjectError::Store(error)) => Err(error.into()),
        Err(other) => Err(IcebergError::unreadable(what, at, other)),
    }
}

/// Looks at a file that metadata names, also where Hadoop's client has written it.
pub async fn head_named(objects: &dyn ReadObjects, at: &ObjectKey) -> Result<ObjectMeta, ObjectError> {
    match (objects.head(at).await, at.collapsed()) {
        (Err(ObjectError::NotFound(_)), Some(single)) => objects.head(&single).await,
        (found, _) => found,
    }
}

/// Reads a metadata file.
pub async fn load_metadata(objects: &dyn ReadObjects, at: &ObjectKey) -> Result<TableMetadata, IcebergError> {
    load_metadata_object(objects, at).await.map(|(metadata, _)| metadata)
}

/// Reads a metadata file, and says which object it was.
pub async fn load_metadata_object(
    objects: &dyn ReadObjects,
    at: &ObjectKey,
) -> Result<(TableMetadata, ObjectMeta), IcebergError> {
    let object = fetch(objects, "table metadata", at).await?;
    Ok((TableMetadata::parse(&object.bytes, at)?, object.meta))
}

/// Reads one manifest, for files that no metadata names.
pub async fn load_manifest(
    objects: &dyn ReadObjects,
    manifest: ManifestRef,
) -> Result<Vec<ManifestEntry>, IcebergError> {
    read_manifest(&fetch(objects, "a manifest", &manifest.at).await?.bytes, &manifest)
}

/// Every file that an Avro file names which no metadata names: a manifest or a manifest list, with the manifests of the
/// list that are there still. None for what is neither: nobody can commit it.
pub async fn load_attempt(objects: &dyn ReadObjects, at: &ObjectKey) -> Result<Vec<ObjectKey>, IcebergError> {
    let bytes = match fetch(objects, "a manifest of no snapshot", at).await {
        // Given up since the listing.
        Err(IcebergError::Missing { .. }) => return Ok(Vec::new()),
        other => other?.bytes,
    };
    if !is_avro(&bytes) {
        return Ok(Vec::new());
    }
    let keys = |entries: Vec<ManifestEntry>| entries.into_iter().map(|entry| entry.at);
    match kind_of(&bytes, at)? {
        AvroKind::Other => Ok(Vec::new()),
        AvroKind::Manifest => Ok(keys(read_manifest(&bytes, &ManifestRef::bare(at.clone()))?).collect()),
        AvroKind::List => {
            let mut named = Vec::new();
            for manifest in read_manifest_list(&bytes, at)? {
                named.push(manifest.at.clone());
                match load_manifest(objects, manifest).await {
                    Ok(entries) => named.extend(keys(entries)),
                    Err(IcebergError::Missing { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(named)
        }
    }
}

/// A file that a table's metadata names, as [`Reachable::walk`] hands it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named<'a> {
    /// Metadata, lists, manifests, statistics.
    Metadata(&'a ObjectKey),
    /// Data, deletes and vectors; `added_by` is the snapshot that added the file, where an entry says so.
    Content { at: &'a ObjectKey, added_by: Option<i64> },
}

impl<'a> Named<'a> {
    pub fn at(self) -> &'a ObjectKey {
        match self {
            Named::Metadata(at) | Named::Content { at, .. } => at,
        }
    }
}

type Sink<'s> = dyn FnMut(Named<'_>) + Send + 's;

/// Who is told what a walk finds, and may know some of it already.
pub trait Visit: Send {
    /// Metadata, lists, manifests, statistics.
    fn metadata(&mut self, at: &ObjectKey);

    /// A manifest that was read, and the object that it was. Nobody else is told what it names.
    fn manifest(&mut self, manifest: &ManifestRef, named: &[ManifestEntry], read: &ObjectMeta);

    /// A list that was read, and the object that it was.
    fn list(&mut self, _at: &ObjectKey, _manifests: &[ManifestRef], _read: &ObjectMeta) {}

    /// What a list names, if that is known: it is not read then.
    fn known_list(&mut self, _at: &ObjectKey) -> Option<Vec<ManifestRef>> {
        None
    }

    /// Whether it is known what a manifest names: it counts as read then.
    fn is_known(&mut self, _manifest: &ManifestRef) -> bool {
        false
    }
}

/// Cuts manifests into groups that are small enough to be in memory together.
fn in_flight(group: Vec<ManifestRef>) -> Vec<Vec<ManifestRef>> {
    let (mut cut, mut held_bytes) = (Vec::<Vec<ManifestRef>>::new(), u64::MAX);
    for manifest in group {
        let length_bytes = manifest.length_bytes.unwrap_or(USUAL_BYTES);
        held_bytes = held_bytes.saturating_add(length_bytes);
        match cut.last_mut().filter(|_| held_bytes <= IN_FLIGHT_BYTES) {
            Some(last) => last.push(manifest),
            None => {
                held_bytes = length_bytes;
                cut.push(vec![manifest]);
            }
        }
    }
    cut
}

struct SinkVisit<'v, 's>(&'v mut Sink<'s>);

impl Visit for SinkVisit<'_, '_> {
    fn metadata(&mut self, at: &ObjectKey) {
        (self.0)(Named::Metadata(at));
    }

    fn manifest(&mut self, _: &ManifestRef, named: &[ManifestEntry], _: &ObjectMeta) {
        named.iter().for_each(|entry| (self.0)(Named::Content { at: &entry.at, added_by: entry.added_by }));
    }
}

/// What a walk has before it.
struct Found {
    lists: Vec<ObjectKey>,
    manifests: Vec<ManifestRef>,
    /// Snapshots whose manifests have to be read before it is known whether they are all there.
    tallies: Vec<Tally>,
}

impl Reachable {
    /// Whether a list or manifest was walked.
    pub fn has_walked(&self, at: &ObjectKey) -> bool {
        self.walked.contains(at)
    }

    /// Lets the next walk read some lists and manifests again. One that is named by a list is found through it alone.
    pub fn forget(&mut self, is_doubted: impl Fn(&ObjectKey) -> bool) {
        self.walked.retain(|at| !is_doubted(at));
        self.counted.retain(|at, _| !is_doubted(at));
    }

    /// Hands every file that `metadata` (read at `at`) names, and `at` itself, to `sink`; files may come more than once.
    /// What an earlier call walked completely is not read again.
    pub async fn walk(
        &mut self,
        objects: &dyn ReadObjects,
        at: &ObjectKey,
        metadata: &TableMetadata,
        sink: &mut Sink<'_>,
    ) -> Result<(), IcebergError> {
        self.walk_while(objects, at, metadata, &mut SinkVisit(sink), &|| true).await.map(|_| ())
    }

    /// Lists and manifests that were walked completely, in order.
    pub fn walked(&self) -> Vec<ObjectKey> {
        let mut walked: Vec<ObjectKey> = self.walked.iter().cloned().collect();
        walked.sort();
        walked
    }

    /// What was counted in walked manifests that nobody else counts, in order.
    pub fn counted(&self) -> Vec<(ObjectKey, Counted)> {
        let mut counted: Vec<_> = self.counted.iter().map(|(at, count)| (at.clone(), count.clone())).collect();
        counted.sort();
        counted
    }

    /// Goes on from what another one has walked, and counted in doing so.
    pub fn having_walked(
        walked: impl IntoIterator<Item = ObjectKey>,
        counted: impl IntoIterator<Item = (ObjectKey, Counted)>,
    ) -> Self {
        Self { walked: walked.into_iter().collect(), counted: counted.into_iter().collect() }
    }

    /// [`Reachable::walk`] that stops when `may_go_on` says so, which it is asked before each few manifests but the
    /// first; answers whether everything was walked. The next call goes on.
    pub async fn walk_while(
        &mut self,
        objects: &dyn ReadObjects,
        at: &ObjectKey,
        metadata: &TableMetadata,
        visit: &mut dyn Visit,
        may_go_on: &(dyn Fn() -> bool + Send + Sync),
    ) -> Result<bool, IcebergError> {
        visit.metadata(at);
        metadata.files.iter().for_each(|at| visit.metadata(at));
        let Found { lists, manifests, tallies } = self.manifests(objects, at, metadata, visit).await?;
        let uncounted: HashSet<ObjectKey> =
            tallies.iter().flat_map(|tally| tally.uncounted.iter().map(|(at, _)| at.clone())).collect();
        for (index, group) in manifests.chunks(MANIFESTS_AT_ONCE).enumerate() {
            if index > 0 && !may_go_on() {
                return Ok(false);
            }
            self.walk_group(objects, group.to_vec(), &uncounted, visit).await?;
        }
        for tally in tallies {
            tally.check(&self.counted)?;
            if let Some((at, manifests, read)) = &tally.list {
                visit.list(at, manifests, read);
            }
        }
        self.walked.extend(lists);
        Ok(true)
    }

    async fn walk_group(
        &mut self,
        objects: &dyn ReadObjects,
        group: Vec<ManifestRef>,
        uncounted: &HashSet<ObjectKey>,
        visit: &mut dyn Visit,
    ) -> Result<(), IcebergError> {
        for some in in_flight(group) {
            self.walk_some(objects, some, uncounted, visit).await?;
        }
        Ok(())
    }

    async fn walk_some(
        &mut self,
        objects: &dyn ReadObjects,
        some: Vec<ManifestRef>,
        uncounted: &HashSet<ObjectKey>,
        visit: &mut dyn Visit,
    ) -> Result<(), IcebergError> {
        let mut reads = stream::iter(some.into_iter().map(|manifest| async move {
            let read = fetch(objects, "a manifest", &manifest.at).await?;
            Ok::<_, IcebergError>((manifest, read))
        }))
        .buffer_unordered(MANIFEST_CONCURRENCY);
        while let Some((manifest, Object { bytes, meta: read })) = reads.try_next().await? {
            // One after the other: what a manifest names takes several times its room.
            let named = read_manifest(&bytes, &manifest)?;
            drop(bytes);
            visit.manifest(&manifest, &named, &read);
            if uncounted.contains(&manifest.at) {
                self.counted.insert(manifest.at.clone(), Counted::of(&named));
            }
            self.walked.insert(manifest.at);
        }
        Ok(())
    }

    /// Lists and manifests that were not walked yet, each once. A list counts as walked when its manifests are.
    async fn manifests(
        &mut self,
        objects: &dyn ReadObjects,
        at: &ObjectKey,
        metadata: &TableMetadata,
        visit: &mut dyn Visit,
    ) -> Result<Found, IcebergError> {
        let mut wanted: BTreeMap<ObjectKey, (Demand, Vec<ManifestRef>)> = BTreeMap::new();
        let (mut manifests, mut tallies) = (Vec::new(), Vec::new());
        for snapshot in &metadata.snapshots {
            let inline: Vec<ManifestRef> = snapshot.inline_manifests().collect();
            manifests.extend(inline.iter().cloned());
            match &snapshot.list {
                Some(list) => {
                    visit.metadata(list);
                    let (demand, beside) = wanted.entry(list.clone()).or_default();
                    demand.add(snapshot);
                    *beside = inline;
                }
                None => tallies.push(Tally::of("table metadata", at, Demand::of(snapshot), &inline)),
            }
        }
        wanted.retain(|list, _| !self.walked.contains(list));
        let lists: Vec<ObjectKey> = wanted.keys().cloned().collect();
        // What is known was whole when it was read.
        wanted.retain(|list, _| visit.known_list(list).map(|known| manifests.extend(known)).is_none());
        let mut reads = stream::iter(wanted.into_iter().map(|(list, (demand, beside))| async move {
            let read = fetch(objects, "a manifest list", &list).await?;
            let named = read_manifest_list(&read.bytes, &list)?;
            let all: Vec<ManifestRef> = named.iter().cloned().chain(beside).collect();
            let mut tally = Tally::of("a manifest list", &list, demand, &all);
            if tally.uncounted.is_empty() {
                tally.check(&HashMap::new())?;
            }
            tally.list = Some((list, named, read.meta));
            Ok::<_, IcebergError>(tally)
        }))
        .buffer_unordered(MANIFEST_CONCURRENCY);
        while let Some(tally) = reads.try_next().await? {
            if let Some((list, named, read)) = &tally.list {
                manifests.extend(named.iter().cloned());
                if tally.uncounted.is_empty() {
                    visit.list(list, named, read);
                    continue;
                }
            }
            tallies.push(tally);
        }
        drop(reads);
        manifests.iter().for_each(|manifest| visit.metadata(&manifest.at));
        // Of one manifest named twice, the description that says more comes first.
        let said = |one: &ManifestRef| (one.length_bytes, one.entries);
        manifests.sort_by(|one, other| one.at.cmp(&other.at).then_with(|| said(other).cmp(&said(one))));
        manifests.dedup_by(|one, other| one.at == other.at);
        let uncounted: HashSet<&ObjectKey> =
            tallies.iter().flat_map(|tally| tally.uncounted.iter().map(|(at, _)| at)).collect();
        manifests.retain(|manifest| {
            if uncounted.contains(&manifest.at) && !self.counted.contains_key(&manifest.at) {
                return true;
            }
            let is_known = self.walked.contains(&manifest.at) || visit.is_known(manifest);
            if is_known {
                self.walked.insert(manifest.at.clone());
            }
            !is_known
        });
        drop(uncounted);
        Ok(Found { lists, manifests, tallies })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_that_are_in_memory_together_are_few_or_small() {
        let megabytes = |sizes: &[u64]| -> Vec<Vec<u64>> {
            let one = |size: &u64| ManifestRef {
                length_bytes: (*size > 0).then_some(size * 1024 * 1024),
                ..ManifestRef::bare(ObjectKey::new("b", "m"))
            };
            let length = |manifest: &ManifestRef| manifest.length_bytes.unwrap_or_default() / 1024 / 1024;
            in_flight(sizes.iter().map(one).collect()).iter().map(|some| some.iter().map(length).collect()).collect()
        };
        assert_eq!(megabytes(&[]), Vec::<Vec<u64>>::new());
        assert_eq!(megabytes(&[1, 2, 3, 4, 5, 6, 7]), [vec![1, 2, 3, 4, 5], vec![6, 7]]);
        assert_eq!(
            megabytes(&[100, 1, 0, 0, 8, 8, 40, 17]),
            [vec![100], vec![1, 0], vec![0, 8], vec![8], vec![40], vec![17]]
        );
    }
}
