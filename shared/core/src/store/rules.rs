//! What DynamoDB refuses and what it charges. The in-memory port and the adapter share these rules, so that both refuse
//! the same requests before they are made and count the same units.

use super::items::{
    CancelReason, Condition, Consistency, Direction, Key, Query, Sort, SortRange, Table, Write, check_item_size,
    item_size_bytes,
};
use super::{Item, StoreError, StoreErrorKind};
use crate::limits;

/// Units of a read: 4 KB a unit, an eventually consistent one half. What is not there costs as much as 4 KB.
pub fn read_half_units(size_bytes: usize, consistency: Consistency) -> u64 {
    let blocks = to_u64(size_bytes.max(1).div_ceil(4096));
    if consistency == Consistency::Strong { blocks * 2 } else { blocks }
}

/// Units of a write that finds `old` and leaves `new`: 1 KB a unit, of the larger of the two. A write whose condition
/// does not hold costs the same.
pub fn write_units(key: &Key, old: Option<&Item>, new: Option<&Item>) -> u64 {
    to_u64(image_size_bytes(key, old, new).max(1).div_ceil(1024))
}

/// Units of a transaction that was cancelled. DynamoDB charges it but does not say what: this counts the items that
/// are known, those to be put and those that came along with a failed condition.
pub fn cancelled_write_units(writes: &[Write], reasons: &[CancelReason]) -> u64 {
    let units = writes.iter().zip(reasons).map(|(write, reason)| {
        let old = if let CancelReason::ConditionFailed { old } = reason { old.as_ref() } else { None };
        2 * write_units(write.key(), old, write.new_item())
    });
    units.sum()
}

/// Size of the larger of what a write finds and what it leaves.
pub(crate) fn image_size_bytes(key: &Key, old: Option<&Item>, new: Option<&Item>) -> usize {
    let size = |item: Option<&Item>| item.map_or(0, |item| item_size_bytes(key, item));
    size(old).max(size(new))
}

fn to_u64(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

fn invalid(operation: &str, message: impl Into<String>) -> StoreError {
    StoreError::new(StoreErrorKind::Invalid, operation, message)
}

fn too_large(operation: &str, message: impl Into<String>) -> StoreError {
    StoreError::new(StoreErrorKind::TooLarge, operation, message)
}

/// Refuses a key that DynamoDB refuses: empty, too long, or of the wrong type for its table.
pub fn check_key(key: &Key, operation: &str) -> Result<(), StoreError> {
    check_pk(&key.pk, operation)?;
    check_sort(key.table, &key.sk, operation)?;
    if key.sk.as_bytes().is_empty() {
        return Err(invalid(operation, format!("the range key of `{}` is empty", key.pk)));
    }
    Ok(())
}

fn check_pk(pk: &str, operation: &str) -> Result<(), StoreError> {
    if pk.is_empty() {
        return Err(invalid(operation, "the hash key is empty"));
    }
    if pk.len() > limits::HASH_KEY_MAX_BYTES {
        let most = limits::HASH_KEY_MAX_BYTES;
        return Err(too_large(operation, format!("hash key of {} bytes; at most {most} are allowed", pk.len())));
    }
    Ok(())
}

/// A bound may be empty, a key may not.
fn check_sort(table: Table, sort: &Sort, operation: &str) -> Result<(), StoreError> {
    if matches!(sort, Sort::Bytes(_)) != table.has_binary_range() {
        let expected = if table.has_binary_range() { "binary" } else { "text" };
        return Err(invalid(operation, format!("range keys of `{}` are {expected}", table.as_str())));
    }
    let (size_bytes, most) = (sort.as_bytes().len(), limits::SORT_KEY_MAX_BYTES);
    if size_bytes > most {
        return Err(too_large(operation, format!("range key of {size_bytes} bytes; at most {most} are allowed")));
    }
    Ok(())
}

/// Refuses a batch that is empty, too large, or names a key twice.
pub fn check_keys(keys: &[&Key], most: usize, operation: &str) -> Result<(), StoreError> {
    if keys.len() > most {
        return Err(too_large(operation, format!("at most {most} keys are allowed, {} given", keys.len())));
    }
    let mut sorted = keys.to_vec();
    sorted.sort();
    sorted.dedup();
    if keys.is_empty() || sorted.len() != keys.len() {
        return Err(invalid(operation, "at least one key is needed, and none of them twice"));
    }
    keys.iter().try_for_each(|key| check_key(key, operation))
}

/// Refuses an item that cannot be put; answers its size in bytes.
pub fn check_put(key: &Key, item: &Item, condition: &Condition, operation: &str) -> Result<usize, StoreError> {
    check_key(key, operation)?;
    check_condition(key.table, condition, operation)?;
    for attribute in [key.table.hash_attribute(), key.table.range_attribute()] {
        if item.contains_key(attribute) {
            return Err(invalid(operation, format!("`{attribute}` is the key and cannot be an attribute as well")));
        }
    }
    check_item_size(key, item)
}

/// Refuses a condition that names a key attribute: conditions are about what an item holds.
pub fn check_condition(table: Table, condition: &Condition, operation: &str) -> Result<(), StoreError> {
    match condition {
        Condition::Always | Condition::Absent | Condition::Present => Ok(()),
        Condition::Equals { field, .. } | Condition::AbsentOrAtMost { field, .. } => {
            if [table.hash_attribute(), table.range_attribute()].contains(field) {
                return Err(invalid(operation, format!("`{field}` is the key and cannot be compared in a condition")));
            }
            Ok(())
        }
        Condition::All(conditions) => conditions.iter().try_for_each(|one| check_condition(table, one, operation)),
    }
}

/// Refuses a transaction that DynamoDB would not look at.
pub fn check_transaction(writes: &[Write], token: &str, operation: &str) -> Result<(), StoreError> {
    let keys: Vec<&Key> = writes.iter().map(Write::key).collect();
    check_keys(&keys, limits::TRANSACTION_MAX_ACTIONS, operation)?;
    if token.is_empty() {
        return Err(invalid(operation, "the token is empty"));
    }
    let mut total_bytes = 0;
    for write in writes {
        total_bytes += match write {
            Write::Put { key, item, condition } => check_put(key, item, condition, operation)?,
            Write::Delete { key, condition } | Write::Check { key, condition } => {
                check_condition(key.table, condition, operation)?;
                item_size_bytes(key, &Item::new())
            }
        };
    }
    let most = limits::TRANSACTION_MAX_BYTES;
    if total_bytes > most {
        return Err(too_large(operation, format!("transaction of {total_bytes} bytes; at most {most} are allowed")));
    }
    Ok(())
}

/// Where a query starts to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryStart<'a> {
    /// At the first item of the range.
    Beginning,
    /// Behind this range key, which lies in the range.
    After(&'a Sort),
    /// Behind the whole range: nothing is left to read.
    End,
}

impl Query {
    /// Refuses a query that DynamoDB refuses.
    pub fn check(&self, operation: &str) -> Result<(), StoreError> {
        check_pk(&self.pk, operation)?;
        if self.limit == Some(0) {
            return Err(invalid(operation, "a limit is at least 1"));
        }
        let bounds: [Option<&Sort>; 2] = match &self.range {
            SortRange::All => [None, None],
            SortRange::Prefix(sort) | SortRange::AtLeast(sort) | SortRange::AtMost(sort) => [Some(sort), None],
            SortRange::Between(low, high) => [Some(low), Some(high)],
        };
        for sort in bounds.into_iter().flatten().chain(&self.start_after) {
            check_sort(self.table, sort, operation)?;
        }
        match &self.range {
            SortRange::Between(low, high) if low > high => {
                Err(invalid(operation, "the lower bound of the range lies above the upper one"))
            }
            SortRange::Between(_, high) | SortRange::AtMost(high) if high.as_bytes().is_empty() => {
                Err(invalid(operation, "the upper bound of the range is empty"))
            }
            _ => Ok(()),
        }
    }

    /// Where to start. DynamoDB refuses a starting key outside the range, so one before it is dropped here and one
    /// behind it means that nothing is left.
    pub fn start(&self) -> QueryStart<'_> {
        let Some(after) = self.start_after.as_ref().filter(|after| !after.as_bytes().is_empty()) else {
            return QueryStart::Beginning;
        };
        if self.range.contains(after) {
            return QueryStart::After(after);
        }
        let below = match &self.range {
            SortRange::All => true,
            SortRange::Prefix(low) | SortRange::Between(low, _) | SortRange::AtLeast(low) => after < low,
            SortRange::AtMost(_) => false,
        };
        if below == (self.direction == Direction::Ascending) { QueryStart::Beginning } else { QueryStart::End }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Value;

    fn key(pk: &str, sk: &str) -> Key {
        Key::new(Table::Catalog, pk, sk)
    }

    #[test]
    fn keys_are_refused_as_dynamodb_refuses_them() {
        let kind = |key: &Key| check_key(key, "get").err().map(|error| error.kind);
        assert_eq!(kind(&key("p", "s")), None);
        assert_eq!(kind(&key("", "s")), Some(StoreErrorKind::Invalid));
        assert_eq!(kind(&key("p", "")), Some(StoreErrorKind::Invalid));
        assert_eq!(kind(&key("p", &"s".repeat(1024))), None);
        assert_eq!(kind(&key("p", &"s".repeat(1025))), Some(StoreErrorKind::TooLarge));
        assert_eq!(kind(&key(&"p".repeat(2048), "s")), None);
        assert_eq!(kind(&key(&"p".repeat(2049), "s")), Some(StoreErrorKind::TooLarge));
        assert_eq!(kind(&Key::new(Table::Partitions, "p", "text")), Some(StoreErrorKind::Invalid));
        assert_eq!(kind(&Key::new(Table::Partitions, "p", vec![0u8])), None);
    }

    #[test]
    fn key_attributes_are_no_attributes() {
        let item = Item::from([("pk".to_owned(), Value::from("x"))]);
        let refused = check_put(&key("p", "s"), &item, &Condition::Always, "put").unwrap_err();
        assert_eq!(refused.kind, StoreErrorKind::Invalid);
        let condition = Condition::All(vec![Condition::equals("sk", "x")]);
        assert!(check_put(&key("p", "s"), &Item::new(), &condition, "put").is_err());
        let elsewhere = Key::new(Table::DeltaLog, "p", "s");
        assert!(check_put(&elsewhere, &item, &Condition::Always, "put").is_ok());
    }

    #[test]
    fn a_starting_key_outside_the_range_is_before_or_behind_it() {
        use Direction::{Ascending, Descending};
        let between = SortRange::Between("d".into(), "m".into());
        let prefix = SortRange::Prefix("dt=".into());
        let cases = [
            (between.clone(), Ascending, "a", QueryStart::Beginning),
            (between.clone(), Ascending, "d", QueryStart::After(&"d".into())),
            (between.clone(), Ascending, "z", QueryStart::End),
            (between.clone(), Descending, "z", QueryStart::Beginning),
            (between, Descending, "a", QueryStart::End),
            (prefix.clone(), Ascending, "dt", QueryStart::Beginning),
            (prefix.clone(), Ascending, "dt=1", QueryStart::After(&"dt=1".into())),
            (prefix.clone(), Ascending, "du", QueryStart::End),
            (prefix, Descending, "du", QueryStart::Beginning),
            (SortRange::AtMost("m".into()), Ascending, "n", QueryStart::End),
            (SortRange::AtLeast("m".into()), Ascending, "a", QueryStart::Beginning),
            (SortRange::AtLeast("m".into()), Descending, "a", QueryStart::End),
            (SortRange::All, Descending, "", QueryStart::Beginning),
        ];
        for (range, direction, after, expected) in cases {
            let mut query = Query::new(Table::Catalog, "p", range);
            query.direction = direction;
            query.start_after = Some(after.into());
            assert_eq!(query.start(), expected, "{query:?}");
        }
    }

    #[test]
    fn units_follow_the_size() {
        let of_size = |bytes: usize| {
            let empty = item_size_bytes(&key("p", "s"), &Item::from([("a".to_owned(), Value::from(""))]));
            Item::from([("a".to_owned(), Value::from("x".repeat(bytes - empty)))])
        };
        let units = |old: Option<usize>, new: Option<usize>| {
            write_units(&key("p", "s"), old.map(of_size).as_ref(), new.map(of_size).as_ref())
        };
        assert_eq!(units(None, None), 1);
        assert_eq!(units(None, Some(1024)), 1);
        assert_eq!(units(None, Some(1025)), 2);
        assert_eq!(units(Some(5000), Some(1025)), 5);
        assert_eq!(read_half_units(0, Consistency::Eventual), 1);
        assert_eq!(read_half_units(4096, Consistency::Strong), 2);
        assert_eq!(read_half_units(4097, Consistency::Eventual), 2);
    }
}
