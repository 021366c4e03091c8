//! What a change of a partition writes. One planner for all of them, so that what belongs together (the partition, its
//! history, its index entries, the one place it may be in) is written together.

use super::history_item::{self, Retention};
use super::index_item;
use super::item::{Current, current_epoch, key_in, older_epochs};
use crate::catalog::TableRef;
use crate::store::{Condition, Item, Key, Write};

/// A partition as it should be.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Next<'a> {
    /// The key of the old image if the values stay; else that of the current epoch.
    pub(super) key: Key,
    pub(super) item: Item,
    pub(super) values: &'a [String],
}

/// Writes that turn `old` into `next`: a create without `old`, a delete without `next`, a move if their keys differ. All
/// of them in one transaction, or, if it is only one, alone.
///
/// - A partition that appears must not be anywhere yet, older epochs included.
/// - One that changes or goes must still have the revision of `old`; its image goes into the history of the current
///   epoch.
/// - Index entries change with the values and only then.
pub(super) fn plan_change(
    table: &TableRef,
    old: Option<&Current>,
    next: Option<&Next<'_>>,
    changed_ms: i64,
    retention: Retention,
) -> Vec<Write> {
    let mut writes = Vec::new();
    let stays = old.zip(next).is_some_and(|(old, next)| old.key == next.key);
    if let Some(next) = next {
        let condition = match old {
            Some(old) if stays => Condition::equals("revision", old.revision.as_str()),
            _ => Condition::Absent,
        };
        writes.push(Write::Put { key: next.key.clone(), item: next.item.clone(), condition });
    }
    if let Some(old) = old {
        if !stays {
            let condition = Condition::equals("revision", old.revision.as_str());
            writes.push(Write::Delete { key: old.key.clone(), condition });
        }
        if let Retention::ForMs(kept_for_ms) = retention {
            let item = history_item::encode(old, changed_ms, kept_for_ms);
            let revision = old.revision.as_str();
            let key = history_item::key(table, current_epoch(table), &old.values, old.valid_from_ms, revision);
            writes.push(Write::Put { key, item, condition: Condition::Always });
        }
    }
    if !stays {
        let before = old.map(|old| index_item::keys(table, &old.values)).unwrap_or_default();
        writes.extend(before.into_iter().map(|key| Write::Delete { key, condition: Condition::Always }));
        if let Some(next) = next {
            let entry = index_item::encode(next.values);
            let entries = index_item::keys(table, next.values).into_iter();
            writes.extend(entries.map(|key| Write::Put { key, item: entry.clone(), condition: Condition::Always }));
        }
        let taken = next.map(|next| places_elsewhere(table, next)).unwrap_or_default();
        writes.extend(taken.into_iter().map(|key| Write::Check { key, condition: Condition::Absent }));
    }
    writes
}

/// Where else a partition with these values could be.
fn places_elsewhere(table: &TableRef, next: &Next<'_>) -> Vec<Key> {
    older_epochs(table).map(|epoch| key_in(table, epoch, next.values)).collect()
}
