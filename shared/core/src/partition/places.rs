//! Partitions that lie outside their table's location, in the index of locations: a sweep of whatever lies there has to
//! know of them.

use serde_json::Value as Json;

use super::attempts::upsert;
use super::descriptor::Descriptor;
use super::read::Partition;
use crate::catalog::locations::{Use, use_bucket_item, use_item};
use crate::catalog::{CatalogError, TableRef, cache_of, fences, lock};
use crate::location::Location;
use crate::ports::Ports;

/// Where a partition says that it lies; what is no S3 location has no files there.
fn places<'a>(location: Option<&'a Json>, more: Option<&'a Json>) -> impl Iterator<Item = Location> + 'a {
    let more = more.and_then(Json::as_array).into_iter().flatten();
    let uris = location.into_iter().chain(more).filter_map(Json::as_str);
    uris.filter_map(|uri| Location::parse(uri).ok())
}

/// Notes places outside the table's location, before the partition is written: whoever looks meanwhile is warned too
/// early rather than too late, and a sweep that looked too early ends its batch first. Nothing for a partition below its
/// table.
///
/// # Errors
/// [`CatalogError::NotReady`] when a sweep's batch around a place took too long.
pub(super) async fn note_places(ports: &Ports, table: &TableRef, descriptor: &Descriptor) -> Result<(), CatalogError> {
    let own = &descriptor.own;
    let noted = note(ports, table, places(own.get("Location"), own.get("AdditionalLocations"))).await?;
    fences::wait_out(ports, &noted).await
}

/// The same for a partition that is there, without waiting: it was there when the sweep began.
pub async fn note_places_of(ports: &Ports, table: &TableRef, partition: Partition) -> Result<(), CatalogError> {
    let members = partition.into_members();
    let Some(descriptor) = members.get("StorageDescriptor") else { return Ok(()) };
    note(ports, table, places(descriptor.get("Location"), descriptor.get("AdditionalLocations"))).await.map(|_| ())
}

/// Answers the places that had to be noted.
async fn note(
    ports: &Ports,
    table: &TableRef,
    places: impl Iterator<Item = Location>,
) -> Result<Vec<Location>, CatalogError> {
    let mut noted = Vec::new();
    for place in places {
        if table.home.as_ref().is_some_and(|home| home.contains(&place)) {
            continue;
        }
        note_bucket(ports, table, &place.bucket).await?;
        let (key, item) = use_item(table, place.clone(), Use::Partition);
        upsert(ports, &key, &item).await?;
        noted.push(place);
    }
    Ok(noted)
}

/// Once for each process: that the table has such places in the bucket, so that they go with the table.
async fn note_bucket(ports: &Ports, table: &TableRef, bucket: &str) -> Result<(), CatalogError> {
    let cache = cache_of(&ports.items);
    let mark = (table.table_id.clone(), bucket.to_owned());
    if lock(&cache.use_buckets).contains(&mark) {
        return Ok(());
    }
    let (key, item) = use_bucket_item(table, bucket);
    upsert(ports, &key, &item).await?;
    lock(&cache.use_buckets).insert(mark);
    Ok(())
}
