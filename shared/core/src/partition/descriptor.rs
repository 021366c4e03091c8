//! Storage descriptors repeat from partition to partition. What differs (location, parameters) stays with the partition;
//! the rest is kept once per table under the hash of its content, in two parts: `columns`, which listings often leave
//! out, and `format`. Never deleted while the table lives, so a process may remember what it saw.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use serde_json::{Map, Value as Json, json};
use sha2::{Digest, Sha256};

use super::descriptor_item;
use crate::catalog::{CatalogError, Owner, Refused, TableId, cache_of, escaped_len, load_bodies, lock, store_body};
use crate::ports::Ports;
use crate::store::{Condition, Consistency, Key, get_every};

/// What a process remembers at most; above it forgets everything and begins anew.
const CACHE_MAX_BYTES: usize = 32 * 1024 * 1024;

/// Members of a StorageDescriptor that stay with the partition.
const OWN_MEMBERS: [&str; 3] = ["Location", "AdditionalLocations", "Parameters"];

/// Whether answers carry `StorageDescriptor.Columns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnSchema {
    Include,
    Exclude,
}

/// Hash of a part's canonical text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Hash(pub(super) [u8; 32]);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Part {
    Columns,
    Format,
}

/// A shared part by table and hash.
pub(super) type PartId = (TableId, Part, Hash);

/// Shared parts that are known to be stored. Contents are `{"Columns": [...]}` or the members of the format.
#[derive(Debug, Default)]
pub(crate) struct DescriptorCache {
    parts: HashMap<PartId, (Arc<Map<String, Json>>, usize)>,
    size_bytes: usize,
}

impl DescriptorCache {
    fn insert(&mut self, id: PartId, content: Arc<Map<String, Json>>, size_bytes: usize) {
        if self.size_bytes + size_bytes > CACHE_MAX_BYTES {
            self.parts.clear();
            self.size_bytes = 0;
        }
        if self.parts.insert(id, (content, size_bytes)).is_none() {
            self.size_bytes += size_bytes;
        }
    }
}

/// A StorageDescriptor taken apart.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Descriptor {
    /// What stays with the partition; the serde's parameters under `SerdeParameters`.
    pub(super) own: Map<String, Json>,
    /// Absent when empty.
    pub(super) columns: Option<Shared>,
    /// Absent when everything has its default.
    pub(super) format: Option<Shared>,
}

/// A shared part with its hash.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Shared {
    pub(super) hash: Hash,
    pub(super) content: Map<String, Json>,
    /// As an answer spells it.
    pub(super) size_bytes: usize,
}

impl Shared {
    fn of(content: Map<String, Json>) -> Option<Self> {
        if content.is_empty() {
            return None;
        }
        let text = canonical(&content);
        Some(Self { hash: Hash(Sha256::digest(text.as_bytes()).into()), content, size_bytes: escaped_len(&text) })
    }
}

/// One text for all spellings of the same content.
pub(super) fn canonical(content: &Map<String, Json>) -> String {
    sorted(&Json::Object(content.clone())).to_string()
}

/// The same with the members of all objects in order of name.
fn sorted(value: &Json) -> Json {
    match value {
        Json::Object(members) => {
            let mut members: Vec<(&String, &Json)> = members.iter().collect();
            members.sort_by_key(|(name, _)| *name);
            Json::Object(members.into_iter().map(|(name, value)| (name.clone(), sorted(value))).collect())
        }
        Json::Array(values) => Json::Array(values.iter().map(sorted).collect()),
        other => other.clone(),
    }
}

/// Members that the service fills in, with what it fills in.
fn defaults() -> [(&'static str, Json); 5] {
    [
        ("Compressed", Json::Bool(false)),
        ("NumberOfBuckets", json!(0)),
        ("BucketColumns", json!([])),
        ("SortColumns", json!([])),
        ("StoredAsSubDirectories", Json::Bool(false)),
    ]
}

/// Fills the old scalar and list members, as the service does: clients read them without looking.
pub(crate) fn fill_defaults(descriptor: &mut Map<String, Json>, columns: ColumnSchema) {
    for (name, value) in defaults() {
        descriptor.entry(name).or_insert(value);
    }
    descriptor.entry("Parameters").or_insert_with(|| json!({}));
    match columns {
        ColumnSchema::Include => _ = descriptor.entry("Columns").or_insert_with(|| json!([])),
        ColumnSchema::Exclude => _ = descriptor.remove("Columns"),
    }
}

impl Descriptor {
    /// Takes a checked StorageDescriptor apart, with defaults made canonical.
    pub(super) fn split(mut descriptor: Map<String, Json>) -> Self {
        let mut own = Map::new();
        for member in OWN_MEMBERS {
            if let Some(value) = descriptor.remove(member) {
                own.insert(member.to_owned(), value);
            }
        }
        if let Some(Json::Object(serde)) = descriptor.get_mut("SerdeInfo")
            && let Some(parameters) = serde.remove("Parameters")
        {
            own.insert("SerdeParameters".to_owned(), parameters);
        }
        for (name, value) in defaults() {
            if descriptor.get(name) == Some(&value) {
                descriptor.remove(name);
            }
        }
        let columns = descriptor.remove("Columns").filter(|columns| *columns != json!([]));
        let columns = columns.map(|columns| Map::from_iter([("Columns".to_owned(), columns)]));
        Self { own, columns: columns.and_then(Shared::of), format: Shared::of(descriptor) }
    }

    pub(super) fn parts(&self, table: &TableId) -> Vec<(PartId, &Map<String, Json>)> {
        let columns = self.columns.iter().map(|shared| (Part::Columns, shared));
        let format = self.format.iter().map(|shared| (Part::Format, shared));
        columns.chain(format).map(|(part, shared)| ((table.clone(), part, shared.hash), &shared.content)).collect()
    }
}

/// Puts a StorageDescriptor together again; `own` is taken out of the partition's body.
pub(super) fn assemble(
    own: &mut Map<String, Json>,
    columns: Option<&Map<String, Json>>,
    format: Option<&Map<String, Json>>,
    schema: ColumnSchema,
) -> Map<String, Json> {
    let mut descriptor = Map::new();
    for shared in [columns, format].into_iter().flatten() {
        descriptor.extend(shared.iter().map(|(name, value)| (name.clone(), value.clone())));
    }
    for member in OWN_MEMBERS {
        if let Some(value) = own.remove(member) {
            descriptor.insert(member.to_owned(), value);
        }
    }
    if let Some(parameters) = own.remove("SerdeParameters") {
        let serde = descriptor.entry("SerdeInfo").or_insert_with(|| json!({}));
        if let Json::Object(serde) = serde {
            serde.insert("Parameters".to_owned(), parameters);
        }
    }
    fill_defaults(&mut descriptor, schema);
    descriptor
}

/// Makes sure that these shared parts are stored: one conditional put for each that this process does not know.
pub(super) async fn store_parts<'a>(
    ports: &Ports,
    parts: impl IntoIterator<Item = (PartId, &'a Map<String, Json>)>,
) -> Result<(), CatalogError> {
    let cache = cache_of(&ports.items);
    let mut seen = BTreeSet::new();
    for (id, content) in parts {
        let known = lock(&cache.descriptors).parts.contains_key(&id);
        if known || !seen.insert(id.clone()) {
            continue;
        }
        let key = descriptor_item::key(&id);
        let mut item = descriptor_item::encode(content)?;
        store_body(ports, Owner::Table(&id.0), &key, &mut item, descriptor_item::WHAT).await?;
        match crate::catalog::put(ports, &key, &item, &Condition::Absent).await {
            // The same content is there already: its name is its hash.
            Ok(()) | Err(Refused::Condition(_)) => remember(ports, id, Arc::new(content.clone())),
            Err(Refused::Store(error)) => return Err(error.into()),
        }
    }
    Ok(())
}

fn remember(ports: &Ports, id: PartId, content: Arc<Map<String, Json>>) {
    let size_bytes = serde_json::to_string(content.as_ref()).map_or(0, |text| escaped_len(&text));
    lock(&cache_of(&ports.items).descriptors).insert(id, content, size_bytes);
}

/// Shared parts by id.
pub(super) type Loaded = HashMap<PartId, Arc<Map<String, Json>>>;

/// Reads these shared parts, those that this process does not know by batch get.
pub(super) async fn load_parts(ports: &Ports, wanted: BTreeSet<PartId>) -> Result<Loaded, CatalogError> {
    let mut loaded = Loaded::new();
    {
        let cache = cache_of(&ports.items);
        let cache = lock(&cache.descriptors);
        for id in &wanted {
            if let Some((content, _)) = cache.parts.get(id) {
                loaded.insert(id.clone(), content.clone());
            }
        }
    }
    let missing: HashMap<Key, PartId> =
        wanted.into_iter().filter(|id| !loaded.contains_key(id)).map(|id| (descriptor_item::key(&id), id)).collect();
    let keys: Vec<Key> = missing.keys().cloned().collect();
    // Content under its hash never changes, but it may have been written a moment ago.
    let mut found = get_every(ports.items.as_ref(), ports.clock.as_ref(), &keys, Consistency::Strong).await?;
    let mut bodies = Vec::with_capacity(found.len());
    for (key, item) in &mut found {
        bodies.extend(missing.get(key).map(|id| (Owner::Table(&id.0), item)));
    }
    load_bodies(ports, bodies).await?;
    for (key, item) in found {
        let content = Arc::new(descriptor_item::decode(&item)?);
        if let Some(id) = missing.get(&key) {
            remember(ports, id.clone(), content.clone());
            loaded.insert(id.clone(), content);
        }
    }
    Ok(loaded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: Json) -> Map<String, Json> {
        value.as_object().unwrap().clone()
    }

    fn round_trip(descriptor: Json, schema: ColumnSchema) -> Json {
        let split = Descriptor::split(object(descriptor));
        let content = |shared: &Option<Shared>| shared.as_ref().map(|shared| shared.content.clone());
        let (columns, format) = (content(&split.columns), content(&split.format));
        let mut own = split.own;
        let descriptor = assemble(&mut own, columns.as_ref(), format.as_ref(), schema);
        assert!(own.is_empty());
        Json::Object(descriptor)
    }

    fn full() -> Json {
        json!({
            "Columns": [{ "Name": "a", "Type": "int", "Parameters": { "x": "1" } }], "Location": "s3://b/t/d=1",
            "AdditionalLocations": ["s3://b/u"], "InputFormat": "in", "OutputFormat": "out", "Compressed": true,
            "NumberOfBuckets": -1, "SerdeInfo": { "SerializationLibrary": "lib", "Parameters": { "f": "," } },
            "BucketColumns": ["a"], "SortColumns": [{ "Column": "a", "SortOrder": 1 }], "Parameters": { "p": "q" },
            "SkewedInfo": { "SkewedColumnNames": ["a"] }, "StoredAsSubDirectories": true,
        })
    }

    #[test]
    fn a_descriptor_comes_back_whole() {
        assert_eq!(round_trip(full(), ColumnSchema::Include), full());
        let mut without = full();
        without.as_object_mut().unwrap().remove("Columns");
        assert_eq!(round_trip(full(), ColumnSchema::Exclude), without);
    }

    #[test]
    fn defaults_are_filled_in() {
        let filled = json!({ "Columns": [], "Compressed": false, "NumberOfBuckets": 0, "BucketColumns": [],
            "SortColumns": [], "StoredAsSubDirectories": false, "Parameters": {} });
        assert_eq!(round_trip(json!({}), ColumnSchema::Include), filled);
        assert_eq!(round_trip(filled.clone(), ColumnSchema::Include), filled);
        let serde = round_trip(json!({ "SerdeInfo": { "Parameters": {} } }), ColumnSchema::Include);
        assert_eq!(serde["SerdeInfo"], json!({ "Parameters": {} }));
    }

    #[test]
    fn content_decides_the_hash_and_nothing_else() {
        let hashes = |descriptor: Json| {
            let split = Descriptor::split(object(descriptor));
            (split.columns.map(|shared| shared.hash), split.format.map(|shared| shared.hash))
        };
        assert_eq!(hashes(json!({})), (None, None));
        assert_eq!(hashes(json!({ "Columns": [], "Compressed": false, "Location": "s3://b/x" })), (None, None));
        let mut elsewhere = full();
        elsewhere["Location"] = json!("s3://b/t/d=2");
        elsewhere["Parameters"] = json!({ "rows": "9" });
        elsewhere["SerdeInfo"]["Parameters"] = json!({});
        assert_eq!(hashes(full()), hashes(elsewhere));
        let order = hashes(json!({ "Columns": [{ "Type": "int", "Name": "a" }] }));
        assert_eq!(order, hashes(json!({ "Columns": [{ "Name": "a", "Type": "int" }] })));
        assert_ne!(order, hashes(json!({ "Columns": [{ "Name": "b", "Type": "int" }] })));
    }

    #[test]
    fn the_cache_forgets_rather_than_grows() {
        let mut cache = DescriptorCache::default();
        for n in 0..10 {
            let id = (TableId::from_text(n.to_string()), Part::Columns, Hash([0; 32]));
            cache.insert(id, Arc::default(), CACHE_MAX_BYTES / 4);
        }
        assert!(cache.size_bytes <= CACHE_MAX_BYTES && !cache.parts.is_empty());
    }
}
