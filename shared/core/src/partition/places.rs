//! Partitions that lie outside their table's location, in the index of locations: a sweep of whatever lies there has to
//! know of them.

use serde_json::Value as Json;

use super::attempts::upsert;
use super::descriptor::Descriptor;
use super::read::Partition;
use crate::catalog::locations::{Use, use_item};
use crate::catalog::{CatalogError, TableRef};
use crate::location::Location;
use crate::ports::Ports;

/// Where a partition says that it lies; what is no S3 location has no files there.
fn places<'a>(location: Option<&'a Json>, more: Option<&'a Json>) -> impl Iterator<Item = Location> + 'a {
    let more = more.and_then(Json::as_array).into_iter().flatten();
    let uris = location.into_iter().chain(more).filter_map(Json::as_str);
    uris.filter_map(|uri| Location::parse(uri).ok())
}

/// Notes places outside the table's location, before the partition is written: whoever looks meanwhile is warned too
/// early rather than too late. Nothing for a partition below its table.
pub(super) async fn note_places(ports: &Ports, table: &TableRef, descriptor: &Descriptor) -> Result<(), CatalogError> {
    let own = &descriptor.own;
    note(ports, table, places(own.get("Location"), own.get("AdditionalLocations"))).await
}

/// The same for a partition that is there.
pub async fn note_places_of(ports: &Ports, table: &TableRef, partition: Partition) -> Result<(), CatalogError> {
    let members = partition.into_members();
    let Some(descriptor) = members.get("StorageDescriptor") else { return Ok(()) };
    note(ports, table, places(descriptor.get("Location"), descriptor.get("AdditionalLocations"))).await
}

async fn note(ports: &Ports, table: &TableRef, places: impl Iterator<Item = Location>) -> Result<(), CatalogError> {
    for place in places {
        if !table.home.as_ref().is_some_and(|home| home.contains(&place)) {
            let (key, item) = use_item(table, place, Use::Partition);
            upsert(ports, &key, &item).await?;
        }
    }
    Ok(())
}
