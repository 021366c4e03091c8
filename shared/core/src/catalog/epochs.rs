//! What a change of partition keys does to a table.
//!
//! Partitions are encoded by the key types of an epoch. Other types, another number of keys, or the same names in another
//! order open a new one; partitions of the earlier ones stay where they are, reachable, until the worker has re-keyed
//! them. Other names alone change nothing: values go by position.

use super::{CatalogError, IndexRef, IndexState, KeyColumn, OlderEpoch, TableRef};
use crate::partition::{Irregular, KeyType};

/// Epochs that partitions may lie in beside the current one. Every read of a table visits all of them.
pub(super) const OLDER_EPOCHS_MAX: usize = 8;

/// The table with these partition keys. Its epoch differs from `current` if there is work for the worker.
///
/// # Errors
/// [`CatalogError::NotReady`] when the keys changed [`OLDER_EPOCHS_MAX`] times and the worker has not caught up.
pub(super) fn plan_keys(current: &TableRef, keys: Vec<KeyColumn>, now_ms: i64) -> Result<TableRef, CatalogError> {
    let types: Vec<KeyType> = keys.iter().map(|key| KeyType::of(&key.type_name)).collect();
    let old_position = |name: &str| current.keys.iter().position(|key| key.name == name);
    let position = |name: &str| keys.iter().position(|key| key.name == name);
    let is_reordered = current.keys.iter().any(|old| {
        let new = position(&old.name);
        new.is_some() && new != old_position(&old.name)
    });
    let is_new_epoch = types != current.epoch_types || is_reordered;
    // A key keeps its name or, if neither the old name nor the new one is anywhere else, was renamed in its place.
    let renamed = |name: &String| -> Option<String> {
        if position(name).is_some() {
            return Some(name.clone());
        }
        let new = keys.get(old_position(name)?).filter(|_| keys.len() == current.keys.len())?;
        old_position(&new.name).is_none().then(|| new.name.clone())
    };
    let indexes = current.indexes.iter().map(|index| {
        let followed: Option<Vec<String>> = index.keys.iter().map(renamed).collect();
        plan_index(index, followed, is_new_epoch, now_ms)
    });
    let mut next = TableRef { indexes: indexes.collect(), ..current.clone() };
    if is_new_epoch {
        if current.older_epochs.len() >= OLDER_EPOCHS_MAX {
            return Err(CatalogError::NotReady(format!(
                "The partition keys of table {} changed {OLDER_EPOCHS_MAX} times and its partitions are still being \
                 re-keyed, which begins 15 minutes after the latest change. Try again later.",
                current.name
            )));
        }
        let types = std::mem::replace(&mut next.epoch_types, types);
        next.older_epochs.insert(0, OlderEpoch { epoch: current.epoch, types, replaced_ms: now_ms });
        next.epoch = current.epoch.saturating_add(1);
        // Nothing was written under it yet.
        next.irregular = Irregular::NONE;
    }
    next.keys = keys;
    Ok(next)
}

/// An index after a change of keys. In a new epoch its entries are written anew; it stays what it was for callers, unless
/// one of its keys is gone.
fn plan_index(index: &IndexRef, keys: Option<Vec<String>>, is_new_epoch: bool, now_ms: i64) -> IndexRef {
    let is_live = matches!(index.state, IndexState::Creating | IndexState::Active);
    match keys {
        _ if !is_live => index.clone(),
        Some(keys) if is_new_epoch => IndexRef { keys, is_complete: false, since_ms: now_ms, ..index.clone() },
        Some(keys) => IndexRef { keys, ..index.clone() },
        None => IndexRef { state: IndexState::Deleting, is_complete: false, since_ms: now_ms, ..index.clone() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{DatabaseId, Revision, TableId};

    fn columns(keys: &[(&str, &str)]) -> Vec<KeyColumn> {
        let column = |(name, kind): &(&str, &str)| KeyColumn { name: (*name).into(), type_name: (*kind).into() };
        keys.iter().map(column).collect()
    }

    fn table(keys: &[(&str, &str)], indexes: &[&[&str]]) -> TableRef {
        let index = |(at, keys): (usize, &&[&str])| IndexRef {
            number: u32::try_from(at).unwrap() + 1,
            name: format!("i{at}"),
            keys: keys.iter().map(|key| (*key).to_owned()).collect(),
            state: IndexState::Active,
            is_complete: true,
            since_ms: 1,
        };
        let keys = columns(keys);
        TableRef {
            database: "d".to_owned(),
            database_id: DatabaseId::from_text("d"),
            name: "t".to_owned(),
            table_id: TableId::from_text("t1"),
            epoch: 4,
            epoch_types: keys.iter().map(|key| KeyType::of(&key.type_name)).collect(),
            keys,
            shards: 16,
            irregular: Irregular::ANY,
            older_epochs: Vec::new(),
            indexes: indexes.iter().enumerate().map(index).collect(),
            next_index: 3,
            has_statistics: false,
            home: None,
            approximate_partitions: 0,
            history: None,
            version: 0,
            revision: Revision::from_text("r"),
            created_ms: 0,
        }
    }

    #[test]
    fn number_order_and_types_open_an_epoch_and_names_do_not() {
        let old = [("y", "int"), ("r", "string")];
        for (keys, opens) in [
            (&[("y", "int"), ("r", "string")][..], false),
            (&[("y", "bigint"), ("r", "varchar(9)")], false),
            (&[("year", "int"), ("region", "string")], false),
            (&[("y", "string"), ("r", "string")], true),
            (&[("y", "int")], true),
            (&[], true),
            (&[("y", "int"), ("r", "string"), ("d", "date")], true),
            (&[("r", "string"), ("y", "int")], true),
        ] {
            let next = plan_keys(&table(&old, &[]), columns(keys), 70).unwrap();
            assert_eq!(next.keys, columns(keys));
            assert_eq!(next.epoch, if opens { 5 } else { 4 }, "{keys:?}");
            let older = OlderEpoch { epoch: 4, types: vec![KeyType::Integer, KeyType::Text], replaced_ms: 70 };
            assert_eq!(next.older_epochs, if opens { vec![older] } else { vec![] });
            assert_eq!(next.irregular, if opens { Irregular::NONE } else { Irregular::ANY });
            assert_eq!(next.epoch_types.len(), keys.len());
        }
        // Of one type, and yet another order.
        let next = plan_keys(
            &table(&[("a", "string"), ("b", "string")], &[]),
            columns(&[("b", "string"), ("a", "string")]),
            7,
        );
        assert_eq!(next.unwrap().epoch, 5);
    }

    #[test]
    fn several_changes_in_a_row_are_kept_newest_first_and_bounded() {
        let mut current = table(&[("k", "int")], &[]);
        for n in 0..OLDER_EPOCHS_MAX {
            let kind = if n % 2 == 0 { "string" } else { "int" };
            current = plan_keys(&current, columns(&[("k", kind)]), 100 + i64::try_from(n).unwrap()).unwrap();
        }
        assert!(current.older_epochs.windows(2).all(|pair| pair[0].epoch == pair[1].epoch + 1));
        let refused = plan_keys(&current, columns(&[("k", "string")]), 200).unwrap_err();
        assert!(matches!(refused, CatalogError::NotReady(_)), "{refused}");
        assert!(plan_keys(&current, columns(&[("other", "int")]), 200).is_ok(), "a new name is no new epoch");
    }

    #[test]
    fn indexes_follow_their_keys() {
        let old = [("y", "int"), ("r", "string"), ("d", "date")];
        let states = |keys: &[(&str, &str)]| -> Vec<(IndexState, bool, Vec<String>)> {
            let next = plan_keys(&table(&old, &[&["d"], &["r", "y"]]), columns(keys), 9).unwrap();
            next.indexes.into_iter().map(|index| (index.state, index.is_complete, index.keys)).collect()
        };
        let of = |state, is_complete, keys: &[&str]| {
            (state, is_complete, keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>())
        };
        use IndexState::{Active, Deleting};
        assert_eq!(states(&old), [of(Active, true, &["d"]), of(Active, true, &["r", "y"])]);
        let renamed = states(&[("year", "int"), ("r", "string"), ("day", "date")]);
        assert_eq!(renamed, [of(Active, true, &["day"]), of(Active, true, &["r", "year"])]);
        let reordered = states(&[("d", "date"), ("r", "string"), ("y", "int")]);
        assert_eq!(reordered, [of(Active, false, &["d"]), of(Active, false, &["r", "y"])]);
        let dropped = states(&[("y", "int"), ("r", "string")]);
        assert_eq!(dropped, [of(Deleting, false, &["d"]), of(Active, false, &["r", "y"])]);
        let retyped = states(&[("y", "int"), ("r", "string"), ("day", "string")]);
        assert_eq!(retyped, [of(Active, false, &["day"]), of(Active, false, &["r", "y"])]);
    }
}
