//! Bodies that do not fit into an item lie on S3, below the id of the table or database they belong to, named by the hash
//! of their content: `<bodies>/<id>/<sha256>`. An item names the hash only, so copies of it (history, archived versions)
//! share the object. Never deleted while the owner lives; purged with it.
//!
//! [`store_body`] goes before the put of an item, [`load_body`] after the read, both whatever the size: small bodies cost
//! nothing.

use futures::StreamExt;
use futures::future::BoxFuture;
use sha2::{Digest, Sha256};

use super::body::{self, check_item_size};
use super::{CatalogError, DatabaseId, TableId, database_item, table_definition_item};
use crate::limits;
use crate::ports::{Deadline, Ports};
use crate::store::{
    Consistency, Deleted, Doomed, GetOptions, Item, Key, ListRequest, ObjectError, ObjectKey, PutOptions, StoreError,
    StoreErrorKind, item_size_bytes,
};

/// Bodies that take more than this when compressed go to S3, which leaves an item room for everything else it says.
pub const SPILL_ABOVE_BYTES: usize = 350 * 1024;
/// Objects read at once.
const READS_AT_ONCE: usize = 16;
const ATTEMPTS: u32 = 5;
const FIRST_WAIT_MS: u64 = 25;
/// Time left below which removing stops.
const STOP_BEFORE_END_MS: i64 = 5_000;

/// Whose body it is: it lives and goes with the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner<'a> {
    Table(&'a TableId),
    Database(&'a DatabaseId),
}

impl Owner<'_> {
    fn id(&self) -> &str {
        match self {
            Owner::Table(id) => id.as_str(),
            Owner::Database(id) => id.as_str(),
        }
    }

    /// The item that is there as long as the owner lives.
    fn definition_key(&self) -> Key {
        match self {
            Owner::Table(id) => table_definition_item::key(id),
            Owner::Database(id) => database_item::definition_key(id),
        }
    }
}

fn object_of(ports: &Ports, owner: Owner<'_>, sha256: &[u8]) -> ObjectKey {
    ports.bodies.object(&format!("{}/{}", owner.id(), hex::encode(sha256)))
}

/// Stores the body of `item` beside it if it is too large for it. To be called before the item is put, which the item is
/// then ready for: one put to S3, or nothing.
///
/// # Errors
/// [`CatalogError::TooLarge`], by the name `what`, if the item does not fit even so.
pub async fn store_body(
    ports: &Ports,
    owner: Owner<'_>,
    key: &Key,
    item: &mut Item,
    what: &str,
) -> Result<(), CatalogError> {
    let is_large = item_size_bytes(key, item) > limits::ITEM_MAX_BYTES;
    if let Some(packed) = body::packed_above(item, if is_large { 0 } else { SPILL_ABOVE_BYTES })? {
        let sha256 = Sha256::digest(&packed).to_vec();
        put_object(ports, &object_of(ports, owner, &sha256), packed).await?;
        body::point_to(item, sha256);
    }
    check_item_size(key, item, what)
}

/// Same content, same name: writing it twice changes nothing, so no condition is needed.
async fn put_object(ports: &Ports, at: &ObjectKey, packed: Vec<u8>) -> Result<(), CatalogError> {
    let bytes = bytes::Bytes::from(packed);
    let mut attempt = 0_u32;
    loop {
        match ports.objects.put(at, bytes.clone(), &PutOptions::default()).await {
            Ok(_) => return Ok(()),
            Err(error) => retry(ports, &mut attempt, error).await?,
        }
    }
}

/// Waits before another attempt, or tells why there is none.
async fn retry(ports: &Ports, attempt: &mut u32, error: ObjectError) -> Result<(), CatalogError> {
    let error = match error {
        ObjectError::Store(error) => error,
        other => StoreError::new(StoreErrorKind::Unavailable, "body of an item", other.to_string()),
    };
    *attempt += 1;
    if !error.is_retryable() || *attempt >= ATTEMPTS {
        return Err(error.into());
    }
    ports.clock.sleep_ms(FIRST_WAIT_MS << *attempt).await;
    Ok(())
}

/// Fetches the body of `item` if it lies beside it. To be called after the item is read and before it is decoded: one get
/// from S3, or nothing.
///
/// # Errors
/// [`CatalogError::DroppedMeanwhile`] if the owner was dropped since the item was read.
pub async fn load_body(ports: &Ports, owner: Owner<'_>, item: &mut Item) -> Result<(), CatalogError> {
    let Some(sha256) = body::pointer(item).map(<[u8]>::to_vec) else { return Ok(()) };
    let at = object_of(ports, owner, &sha256);
    let mut attempt = 0_u32;
    let packed = loop {
        match ports.objects.get(&at, &GetOptions::default()).await {
            Ok(object) => break object.bytes,
            Err(ObjectError::NotFound(_)) => return Err(explain_missing(ports, owner, &at).await),
            Err(error) => retry(ports, &mut attempt, error).await?,
        }
    };
    if Sha256::digest(&packed).as_slice() != sha256 {
        return Err(CatalogError::Broken(format!("{at} is not what was written")));
    }
    body::fill_in(item, packed.to_vec());
    Ok(())
}

async fn explain_missing(ports: &Ports, owner: Owner<'_>, at: &ObjectKey) -> CatalogError {
    match ports.items.get(&owner.definition_key(), Consistency::Strong).await {
        Ok(None) => CatalogError::DroppedMeanwhile,
        Ok(Some(_)) => CatalogError::Broken(format!("{at} is gone, though what it belongs to is there")),
        Err(error) => error.into(),
    }
}

/// [`load_body`] for many items at once; the first failure is answered.
///
/// All bodies are in memory together: cut the list to what an answer takes first (`body_size_bytes` knows the
/// sizes of bodies that are not loaded yet).
pub async fn load_bodies(ports: &Ports, mut items: Vec<(Owner<'_>, &mut Item)>) -> Result<(), CatalogError> {
    // Usually all of them.
    items.retain(|(_, item)| body::pointer(item).is_some());
    load_each(ports, items).await.into_iter().collect()
}

/// The same with an answer for every item, in order.
pub(super) async fn load_each(ports: &Ports, items: Vec<(Owner<'_>, &mut Item)>) -> Vec<Result<(), CatalogError>> {
    // A loop over boxed futures: a closure's future is not general enough over the two lifetimes of its argument.
    let mut loads: Vec<BoxFuture<'_, Result<(), CatalogError>>> = Vec::with_capacity(items.len());
    for (owner, item) in items {
        loads.push(Box::pin(load_body(ports, owner, item)));
    }
    futures::stream::iter(loads).buffered(READS_AT_ONCE).collect().await
}

/// Removes the body that was stored for an item which then was not put, of an owner that never came to be.
pub(super) async fn forget_body(ports: &Ports, owner: Owner<'_>, item: &Item) {
    if body::pointer(item).is_none() {
        return;
    }
    let deadline = Deadline::in_ms(ports.clock.as_ref(), 2 * STOP_BEFORE_END_MS);
    if let Err(error) = remove_bodies(ports, owner, deadline).await {
        tracing::warn!(%error, owner = owner.id(), "a body that nothing names could not be removed");
    }
}

/// What [`remove_bodies`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemovedBodies {
    pub removed: usize,
    /// The time was up; there may be more.
    pub stopped_early: bool,
}

/// Removes all bodies of an owner that was dropped.
pub(super) async fn remove_bodies(
    ports: &Ports,
    owner: Owner<'_>,
    deadline: Deadline,
) -> Result<RemovedBodies, CatalogError> {
    let folder = ports.bodies.object(&format!("{}/", owner.id()));
    let mut request = ListRequest {
        bucket: folder.bucket.clone(),
        prefix: folder.key,
        start_after: None,
        max_keys: limits::LIST_PAGE_MAX_KEYS,
    };
    let mut done = RemovedBodies::default();
    loop {
        if deadline.left_ms(ports.clock.as_ref()) < STOP_BEFORE_END_MS {
            return Ok(RemovedBodies { stopped_early: true, ..done });
        }
        let mut attempt = 0_u32;
        let page = loop {
            match ports.objects.list(&request).await {
                Ok(page) => break page,
                // No bucket, no bodies.
                Err(ObjectError::NotFound(_)) => return Ok(done),
                Err(error) => retry(ports, &mut attempt, error).await?,
            }
        };
        let doomed: Vec<Doomed> =
            page.objects.iter().map(|object| Doomed { key: object.key.clone(), if_match: None }).collect();
        if !doomed.is_empty() {
            done.removed += doomed.len();
            delete_all(ports, &folder.bucket, doomed).await?;
        }
        request.start_after = page.objects.last().map(|object| object.key.clone());
        if !page.truncated || request.start_after.is_none() {
            return Ok(done);
        }
    }
}

async fn delete_all(ports: &Ports, bucket: &str, mut doomed: Vec<Doomed>) -> Result<(), CatalogError> {
    let mut attempt = 0_u32;
    while !doomed.is_empty() {
        let answers = match ports.objects.delete_batch(bucket, &doomed).await {
            Ok(answers) => answers,
            Err(error) => {
                retry(ports, &mut attempt, error).await?;
                continue;
            }
        };
        let mut failure = None;
        let mut left = Vec::new();
        for (one, answer) in doomed.into_iter().zip(answers) {
            if let Deleted::Failed(error) = answer {
                failure = Some(error);
                left.push(one);
            }
        }
        doomed = left;
        if let Some(error) = failure {
            retry(ports, &mut attempt, ObjectError::Store(error)).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use serde_json::{Map, Value as Json};

    use super::*;
    use crate::catalog::{decode_body, encode_body};
    use crate::store::memory::{Fault, MemoryWorld};
    use crate::store::{Condition, Table, Value};

    /// Digits of hashes, which compression halves at best.
    fn noise(length: usize) -> &'static str {
        static NOISE: LazyLock<String> =
            LazyLock::new(|| (0_u64..62_500).map(|n| hex::encode(Sha256::digest(n.to_be_bytes()))).collect());
        &NOISE[..length]
    }

    fn body_of(length: usize) -> Map<String, Json> {
        Map::from_iter([("a".to_owned(), noise(length).into())])
    }

    fn spilled(item: &Item) -> bool {
        body::pointer(item).is_some() && !item.contains_key("body_zstd")
    }

    fn key() -> Key {
        Key::new(Table::Catalog, "p", "s")
    }

    fn encoded(length: usize) -> Item {
        let mut item = Item::new();
        encode_body(&mut item, &body_of(length), "x").unwrap();
        item
    }

    fn packed_len(item: &Item) -> usize {
        match item.get("body_zstd") {
            Some(Value::Bytes(bytes)) => bytes.len(),
            _ => 0,
        }
    }

    /// The longest body that stays inside its item.
    fn longest_inside() -> usize {
        let (mut inside, mut outside) = (0_usize, 1_500_000_usize);
        while outside - inside > 1 {
            let middle = inside.midpoint(outside);
            if packed_len(&encoded(middle)) > SPILL_ABOVE_BYTES { outside = middle } else { inside = middle }
        }
        inside
    }

    #[tokio::test]
    async fn bodies_above_the_limit_go_to_s3_and_come_back() {
        let world = MemoryWorld::new(0);
        let id = TableId::from_text("t1");
        let owner = Owner::Table(&id);
        let longest = longest_inside();
        let mut puts = 0;
        for (length, is_spilled) in [(longest - 1, false), (longest, false), (longest + 1, true), (3_900_000, true)] {
            let mut item = encoded(length);
            let size_bytes = body::body_size_bytes(&item);
            store_body(&world.ports, owner, &key(), &mut item, "x").await.unwrap();
            puts += u64::from(is_spilled);
            assert_eq!(spilled(&item), is_spilled, "{length}");
            assert_eq!(world.ports.objects.object_usage().puts, puts);
            assert_eq!(body::body_size_bytes(&item), size_bytes);
            assert!(item_size_bytes(&key(), &item) <= limits::ITEM_MAX_BYTES);
            if is_spilled {
                assert!(decode_body(&item).is_err(), "not loaded yet");
            }
            load_body(&world.ports, owner, &mut item).await.unwrap();
            assert_eq!(decode_body(&item).unwrap(), body_of(length));
        }
    }

    #[tokio::test]
    async fn a_body_makes_room_for_the_rest_of_its_item() {
        let world = MemoryWorld::new(0);
        let id = TableId::from_text("t1");
        let mut item = encoded(60_000);
        item.insert("values".to_owned(), Value::Text("v".repeat(380 * 1024)));
        store_body(&world.ports, Owner::Table(&id), &key(), &mut item, "x").await.unwrap();
        assert!(spilled(&item));
        load_body(&world.ports, Owner::Table(&id), &mut item).await.unwrap();
        assert_eq!(decode_body(&item).unwrap(), body_of(60_000));
        item.insert("values".to_owned(), Value::Text("v".repeat(400 * 1024)));
        let error = store_body(&world.ports, Owner::Table(&id), &key(), &mut item, "This").await.unwrap_err();
        assert!(error.to_string().starts_with("This, compressed, takes "), "{error}");
    }

    #[tokio::test]
    async fn an_item_that_was_loaded_can_be_stored_again() {
        let world = MemoryWorld::new(0);
        let id = TableId::from_text("t1");
        let owner = Owner::Table(&id);
        let mut item = encoded(2_000_000);
        store_body(&world.ports, owner, &key(), &mut item, "x").await.unwrap();
        let stored = item.clone();
        load_body(&world.ports, owner, &mut item).await.unwrap();
        store_body(&world.ports, owner, &key(), &mut item, "x").await.unwrap();
        assert_eq!(item, stored);
    }

    #[tokio::test]
    async fn trouble_with_s3_is_waited_out_or_told() {
        let world = MemoryWorld::new(0);
        let id = TableId::from_text("t1");
        let owner = Owner::Table(&id);
        let mut item = encoded(2_000_000);
        let fault = |name: &str, after: u64, kind| world.faults.inject(name, after, Fault::Before(kind));
        fault("put s3://lakewarden-reports", 0, StoreErrorKind::Throttled);
        store_body(&world.ports, owner, &key(), &mut item, "x").await.unwrap();
        fault("get s3://lakewarden-reports", 0, StoreErrorKind::Unavailable);
        let mut read = item.clone();
        load_body(&world.ports, owner, &mut read).await.unwrap();
        fault("get s3://lakewarden-reports", 0, StoreErrorKind::AccessDenied);
        let error = load_body(&world.ports, owner, &mut item).await.unwrap_err();
        assert!(matches!(error, CatalogError::Store(StoreError { kind: StoreErrorKind::AccessDenied, .. })), "{error}");
    }

    #[tokio::test]
    async fn a_missing_body_is_a_defect_unless_its_owner_is_gone() {
        let world = MemoryWorld::new(0);
        let id = TableId::from_text("t1");
        let owner = Owner::Table(&id);
        let mut item = encoded(2_000_000);
        store_body(&world.ports, owner, &key(), &mut item, "x").await.unwrap();
        let deadline = Deadline::in_ms(world.clock.as_ref(), 60_000);
        let done = remove_bodies(&world.ports, owner, deadline).await.unwrap();
        assert_eq!(done, RemovedBodies { removed: 1, stopped_early: false });
        let mut read = [item.clone(), encoded(10), item];
        let reads = read.iter_mut().map(|item| (owner, item)).collect();
        assert_eq!(load_bodies(&world.ports, reads).await, Err(CatalogError::DroppedMeanwhile));
        world.ports.items.put(&owner.definition_key(), Item::new(), Condition::Always).await.unwrap();
        let error = load_body(&world.ports, owner, &mut read[0]).await.unwrap_err();
        assert!(matches!(error, CatalogError::Broken(_)), "{error}");
    }

    #[tokio::test]
    async fn removing_takes_one_owners_bodies_only() {
        let world = MemoryWorld::new(0);
        let (one, other) = (TableId::from_text("t1"), TableId::from_text("t10"));
        for owner in [Owner::Table(&one), Owner::Table(&other)] {
            let mut item = encoded(2_000_000);
            store_body(&world.ports, owner, &key(), &mut item, "x").await.unwrap();
        }
        let short = Deadline::in_ms(world.clock.as_ref(), 10);
        assert!(remove_bodies(&world.ports, Owner::Table(&one), short).await.unwrap().stopped_early);
        let deadline = Deadline::in_ms(world.clock.as_ref(), 60_000);
        assert_eq!(remove_bodies(&world.ports, Owner::Table(&one), deadline).await.unwrap().removed, 1);
        assert_eq!(remove_bodies(&world.ports, Owner::Table(&one), deadline).await.unwrap().removed, 0);
        assert_eq!(remove_bodies(&world.ports, Owner::Table(&other), deadline).await.unwrap().removed, 1);
    }
}
