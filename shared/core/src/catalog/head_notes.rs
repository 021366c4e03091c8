//! Small notes on the head of a table: things that every operation should know without another read.

use super::table_head_item::{self, TableRef};
use super::writes::{Refused, put};
use super::{CatalogError, Revision};
use crate::partition::Irregular;
use crate::ports::Ports;
use crate::store::Condition;

const ROUNDS: u32 = 8;
/// An estimate is worth less patience than a fact.
const ROUNDS_FOR_ESTIMATES: u32 = 2;

/// Notes that statistics of a table or its partitions are kept, unless it is noted already. One put, which leaves the
/// table's version alone.
///
/// # Errors
/// [`CatalogError::TableNotFound`] if the table is gone; [`CatalogError::Contended`].
pub(crate) async fn note_statistics(ports: &Ports, table: &TableRef) -> Result<(), CatalogError> {
    let mut current = table.clone();
    for _ in 0..ROUNDS {
        if current.has_statistics {
            return Ok(());
        }
        // A new revision: whoever read the head before must not write it back without the note.
        let next = TableRef { has_statistics: true, revision: Revision::fresh(ports.ids.as_ref()), ..current.clone() };
        match replace(ports, &current, &next).await? {
            None => return Ok(()),
            Some(other) => current = other,
        }
    }
    Err(CatalogError::Contended(format!("Table {}", table.name)))
}

/// Notes that values of these kinds are about to be written under the current epoch of a table's keys, unless the head that
/// was read says so. One put, which leaves the table's version alone; regular values need none.
///
/// Listings look for the noted kinds only, so the order of things matters:
///
/// - The note is durable before the row is written, and the row before its writer is told so. A listing begins with a strong
///   read of the head. One that begins after a writer was told reads the note; one that does not read it began before,
///   and may or may not see the row, as with any write at the same time.
/// - A note is never lost: every other write of the head is conditional on the revision that it read, and a note changes
///   that. It is valid for one epoch, and what is written under an epoch is noted there: a new partition, one that moves to
///   other values, an image in the history, whatever the worker brings from an earlier epoch.
/// - Keys that changed since the head was read have a new epoch: then the row goes to an earlier one, as its writer knows
///   no better. Listings read those as a whole, and the worker notes what it moves from there.
///
/// # Errors
/// [`CatalogError::TableNotFound`] if the table is gone; [`CatalogError::Contended`].
pub(crate) async fn note_irregular(ports: &Ports, table: &TableRef, kinds: Irregular) -> Result<(), CatalogError> {
    if table.irregular.has_all(kinds) {
        return Ok(());
    }
    let mut current = table.clone();
    for _ in 0..ROUNDS {
        if current.irregular.has_all(kinds) || current.epoch != table.epoch {
            return Ok(());
        }
        let irregular = current.irregular.union(kinds);
        let next = TableRef { irregular, revision: Revision::fresh(ports.ids.as_ref()), ..current.clone() };
        match replace(ports, &current, &next).await? {
            None => return Ok(()),
            Some(other) => current = other,
        }
    }
    Err(CatalogError::Contended(format!("Table {}", table.name)))
}

/// Notes for how long changes of a table's partitions are kept from now on, unless the head says so: to be done before the
/// first of them is written, so that nobody takes a moment for kept of which something was thrown away sooner. One put.
///
/// # Errors
/// [`CatalogError::TableNotFound`] if the table is gone; [`CatalogError::Contended`].
pub(crate) async fn note_retention(ports: &Ports, table: &TableRef, kept_ms: i64) -> Result<(), CatalogError> {
    let kept_ms = kept_ms.max(0);
    let mut current = std::borrow::Cow::Borrowed(table);
    for _ in 0..ROUNDS {
        let Some(history) = current.history.filter(|history| history.kept_ms != kept_ms) else { return Ok(()) };
        let history = Some(history.changed_to(kept_ms, ports.clock.now_ms()));
        let revision = Revision::fresh(ports.ids.as_ref());
        let next = TableRef { history, revision, ..current.clone().into_owned() };
        match replace(ports, &current, &next).await? {
            None => return Ok(()),
            Some(other) => current = std::borrow::Cow::Owned(other),
        }
    }
    Err(CatalogError::Contended(format!("Table {}", table.name)))
}

/// Adds to the estimate of a table's partitions; one put. `false` if others change the table right now: nothing is
/// added.
///
/// # Errors
/// [`CatalogError::TableNotFound`] if the table is gone.
pub(crate) async fn add_to_estimate(ports: &Ports, table: &TableRef, change: i64) -> Result<bool, CatalogError> {
    let mut current = table.clone();
    for _ in 0..ROUNDS_FOR_ESTIMATES {
        let estimate = current.approximate_partitions.saturating_add(change).max(0);
        // The revision stays, since an estimate should stand in nobody's way. Two that are written at once count as one.
        let next = TableRef { approximate_partitions: estimate, ..current.clone() };
        match replace(ports, &current, &next).await? {
            None => return Ok(true),
            Some(other) => current = other,
        }
    }
    Ok(false)
}

/// Replaces the head if it is still the one that was read; else answers the one that is there.
async fn replace(ports: &Ports, read: &TableRef, next: &TableRef) -> Result<Option<TableRef>, CatalogError> {
    let key = table_head_item::key(&read.database, &read.name);
    let condition = Condition::equals("revision", read.revision.as_str());
    let gone = || CatalogError::TableNotFound(read.name.clone());
    match put(ports, &key, &table_head_item::encode(next), &condition).await {
        Ok(()) => Ok(None),
        Err(Refused::Condition(Some(item))) => {
            let found = table_head_item::decode(&read.database, &read.name, &item)?;
            if found.table_id == read.table_id { Ok(Some(found)) } else { Err(gone()) }
        }
        Err(Refused::Condition(None)) => Err(gone()),
        Err(Refused::Store(error)) => Err(error.into()),
    }
}
