//! Item: head of a table. `catalog`, pk `tables#<database name>`, sk `<table name>`; small, since every operation reads
//! it. It belongs to the database whose id it names: under another database of the same name it is not there.

use super::purge::LONGEST_FUNCTION_MS;
use super::{DatabaseId, Revision, TableId};
use crate::location::Location;
use crate::partition::{Irregular, IrregularKind, KeyType};
use crate::store::{DecodeError, Fields, Item, Key, Table, Value};

const SCHEMA_VERSION: i64 = 1;
/// Heads are read with every request; where a longer prefix would have to be kept, partitions get an entry more.
const HOME_MAX_BYTES: usize = 400;

/// A partition key: name in lower case and type as the table says them now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyColumn {
    pub name: String,
    pub type_name: String,
}

/// An earlier encoding of the table's keys, under which partitions still lie until the worker has re-keyed them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OlderEpoch {
    pub epoch: u32,
    pub types: Vec<KeyType>,
    /// When the current keys replaced it.
    pub replaced_ms: i64,
}

/// How far a partition index is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexState {
    /// Every write keeps entries already; those of older partitions are being written.
    Creating,
    /// It was complete. After a change of keys it is not for a while: see [`IndexRef::is_complete`].
    Active,
    /// No write keeps entries any more; what is there is being removed.
    Deleting,
    /// Gone for callers. Requests that began before its deletion may still add entries, so it is looked after once more.
    Removed,
}

impl IndexState {
    /// The status in items, and on the wire (where one that is removed is not shown).
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Creating => "CREATING",
            Self::Active => "ACTIVE",
            Self::Deleting => "DELETING",
            Self::Removed => "REMOVED",
        }
    }

    fn from_stored(text: &str) -> Option<Self> {
        [Self::Creating, Self::Active, Self::Deleting, Self::Removed].into_iter().find(|state| state.as_str() == text)
    }
}

/// A partition index: another order of the table's partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexRef {
    /// Never used again in this table.
    pub number: u32,
    /// Folded.
    pub name: String,
    /// Names of its keys, folded, in order.
    pub keys: Vec<String>,
    pub state: IndexState,
    /// Whether every partition has an entry, also those of writers that began before the index did; only then may
    /// reads rely on it.
    pub is_complete: bool,
    /// Since when requests see it as it is now: its creation, a change of keys that made it begin anew, or its deletion.
    pub since_ms: i64,
}

impl IndexRef {
    /// Whether the worker is to write entries that are missing.
    pub(crate) fn is_being_filled(&self) -> bool {
        !self.is_complete && matches!(self.state, IndexState::Creating | IndexState::Active)
    }

    /// The status for callers: an index that no read can rely on is not ACTIVE.
    pub fn status(&self) -> &'static str {
        if self.is_being_filled() { IndexState::Creating.as_str() } else { self.state.as_str() }
    }
}

/// For how long changes of a table's partitions are kept, and were kept before. Every change is kept for as long as the setting
/// says when it is made, so after the setting was raised there are moments that it covers and the history does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryKept {
    pub kept_ms: i64,
    /// From when on every change was kept for `kept_ms`.
    pub since_ms: i64,
    /// For how long changes before that were kept at least.
    pub before_ms: i64,
}

impl HistoryKept {
    /// Of a new table.
    pub fn since_creation(kept_ms: i64, created_ms: i64) -> Self {
        Self { kept_ms, since_ms: created_ms, before_ms: kept_ms }
    }

    /// The first moment whose state can still be told.
    pub fn from_ms(self, now_ms: i64) -> i64 {
        let by_earlier = self.since_ms.min(now_ms.saturating_sub(self.before_ms));
        by_earlier.max(now_ms.saturating_sub(self.kept_ms))
    }

    /// Keeps changes for another time from now on. Requests that read the head before this are still at work for a while and
    /// keep what they change for the time that it said then.
    #[must_use]
    pub fn changed_to(self, kept_ms: i64, now_ms: i64) -> Self {
        let is_grown = self.from_ms(now_ms) == now_ms.saturating_sub(self.kept_ms);
        let before_ms = if is_grown { self.kept_ms } else { self.kept_ms.min(self.before_ms) };
        Self { kept_ms, since_ms: now_ms.saturating_add(LONGEST_FUNCTION_MS), before_ms }
    }
}

/// A live table: identity, and what its partitions' items depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableRef {
    /// Name of its database, folded.
    pub database: String,
    pub database_id: DatabaseId,
    /// Its own name, folded.
    pub name: String,
    pub table_id: TableId,
    /// Partition keys as they are now, in order.
    pub keys: Vec<KeyColumn>,
    /// Generation of key encoding.
    pub epoch: u32,
    /// How values are encoded, by position; fixed for the epoch.
    pub epoch_types: Vec<KeyType>,
    /// Over how many partition keys of the item store the table's partitions are spread; fixed for the epoch.
    pub shards: u16,
    /// Kinds of irregular values that were ever written under the current epoch, partitions and their history alike;
    /// see `head_notes`. Heads that do not say it were written before it was kept: anything is possible.
    pub irregular: Irregular,
    /// Epochs that may still hold partitions, newest first.
    pub older_epochs: Vec<OlderEpoch>,
    pub indexes: Vec<IndexRef>,
    /// Number of the next index; 0 as long as there never was one.
    pub next_index: u32,
    /// Whether statistics of partitions were ever kept; if not, deleting a partition need not look for them.
    pub has_statistics: bool,
    /// Where the table lies on S3. Unknown for one that lies elsewhere, or at a long name, and of heads that were written
    /// before it was kept: then partitions count as lying outside.
    pub home: Option<Location>,
    /// About how many partitions there are: batches count, most of the time without writing it down, and single
    /// requests leave their share to the next batch of their process. An estimate, for a limit.
    pub approximate_partitions: i64,
    /// Heads that do not say it were written before it was kept: as if the setting had never been another.
    pub history: Option<HistoryKept>,
    /// `VersionId` of the service: 0, and one more with every update.
    pub version: i64,
    pub revision: Revision,
    pub created_ms: i64,
}

pub(super) fn heads_of(folded_database: &str) -> String {
    format!("tables#{folded_database}")
}

pub(super) fn key(folded_database: &str, folded_name: &str) -> Key {
    Key::new(Table::Catalog, heads_of(folded_database), folded_name)
}

pub(super) fn encode(table: &TableRef) -> Item {
    let column = |key: &KeyColumn| Value::List(vec![key.name.as_str().into(), key.type_name.as_str().into()]);
    let mut item = Item::from([
        ("schema_version".to_owned(), Value::Int(SCHEMA_VERSION)),
        ("database_id".to_owned(), (&table.database_id).into()),
        ("table_id".to_owned(), (&table.table_id).into()),
        ("keys".to_owned(), Value::List(table.keys.iter().map(column).collect())),
        ("epoch".to_owned(), Value::Int(i64::from(table.epoch))),
        ("epoch_types".to_owned(), encode_types(&table.epoch_types)),
        ("shards".to_owned(), Value::Int(i64::from(table.shards))),
        ("irregular".to_owned(), Value::List(table.irregular.kinds().map(|kind| kind.as_str().into()).collect())),
        ("version".to_owned(), Value::Int(table.version)),
        ("revision".to_owned(), (&table.revision).into()),
        ("created_ms".to_owned(), Value::Int(table.created_ms)),
    ]);
    // Most tables have none of these: their heads stay small.
    if !table.older_epochs.is_empty() {
        item.insert("older_epochs".to_owned(), Value::List(table.older_epochs.iter().map(encode_older).collect()));
    }
    if !table.indexes.is_empty() {
        item.insert("indexes".to_owned(), Value::List(table.indexes.iter().map(encode_index).collect()));
    }
    if table.next_index > 0 {
        item.insert("next_index".to_owned(), Value::Int(i64::from(table.next_index)));
    }
    if table.has_statistics {
        item.insert("has_statistics".to_owned(), Value::Bool(true));
    }
    if let Some(home) = table.home.as_ref().filter(|home| home.prefix.len() <= HOME_MAX_BYTES) {
        let pair = vec![home.bucket.as_str().into(), home.prefix.as_str().into()];
        item.insert("home".to_owned(), Value::List(pair));
    }
    if table.approximate_partitions > 0 {
        item.insert("approximate_partitions".to_owned(), Value::Int(table.approximate_partitions));
    }
    if let Some(HistoryKept { kept_ms, since_ms, before_ms }) = table.history {
        let parts = [kept_ms, since_ms, before_ms].map(Value::Int).to_vec();
        item.insert("history".to_owned(), Value::List(parts));
    }
    item
}

fn encode_types(types: &[KeyType]) -> Value {
    Value::List(types.iter().map(|key_type| Value::from(key_type.as_str())).collect())
}

fn decode_irregular(item: &Item) -> Result<Irregular, DecodeError> {
    if !item.contains_key("irregular") {
        return Ok(Irregular::ANY);
    }
    let kinds =
        texts(list(item, "irregular")?).and_then(|kinds| kinds.into_iter().map(IrregularKind::from_stored).collect());
    kinds.ok_or_else(|| DecodeError::Invalid { field: "irregular".to_owned(), message: "not as written".to_owned() })
}

fn encode_older(older: &OlderEpoch) -> Value {
    Value::List(vec![Value::Int(i64::from(older.epoch)), encode_types(&older.types), Value::Int(older.replaced_ms)])
}

fn decode_history(item: &Item) -> Result<Option<HistoryKept>, DecodeError> {
    if !item.contains_key("history") {
        return Ok(None);
    }
    match list(item, "history")? {
        [Value::Int(kept_ms), Value::Int(since_ms), Value::Int(before_ms)] => {
            Ok(Some(HistoryKept { kept_ms: *kept_ms, since_ms: *since_ms, before_ms: *before_ms }))
        }
        _ => Err(DecodeError::Invalid { field: "history".to_owned(), message: "not as written".to_owned() }),
    }
}

fn encode_index(index: &IndexRef) -> Value {
    Value::List(vec![
        Value::Int(i64::from(index.number)),
        index.name.as_str().into(),
        Value::List(index.keys.iter().map(|key| key.as_str().into()).collect()),
        index.state.as_str().into(),
        Value::Bool(index.is_complete),
        Value::Int(index.since_ms),
    ])
}

/// The inner `None`: it does not say.
fn decode_home(item: &Item) -> Option<Option<Location>> {
    let Some(pair) = item.get("home") else { return Some(None) };
    let Value::List(pair) = pair else { return None };
    let [Value::Text(bucket), Value::Text(prefix)] = pair.as_slice() else { return None };
    Some(Some(Location { bucket: bucket.clone(), prefix: prefix.clone() }))
}

fn texts(values: &[Value]) -> Option<Vec<&str>> {
    values.iter().map(|value| if let Value::Text(text) = value { Some(text.as_str()) } else { None }).collect()
}

fn decode_types(values: &[Value]) -> Option<Vec<KeyType>> {
    texts(values)?.into_iter().map(KeyType::from_stored).collect()
}

fn decode_older(value: &Value) -> Option<OlderEpoch> {
    let Value::List(parts) = value else { return None };
    let [Value::Int(epoch), Value::List(types), Value::Int(replaced_ms)] = parts.as_slice() else { return None };
    let epoch = u32::try_from(*epoch).ok()?;
    Some(OlderEpoch { epoch, types: decode_types(types)?, replaced_ms: *replaced_ms })
}

fn decode_index(value: &Value) -> Option<IndexRef> {
    let Value::List(parts) = value else { return None };
    match parts.as_slice() {
        [
            Value::Int(number),
            Value::Text(name),
            Value::List(keys),
            Value::Text(state),
            Value::Bool(is_complete),
            Value::Int(since_ms),
        ] => Some(IndexRef {
            number: u32::try_from(*number).ok()?,
            name: name.clone(),
            keys: texts(keys)?.into_iter().map(str::to_owned).collect(),
            state: IndexState::from_stored(state)?,
            is_complete: *is_complete,
            since_ms: *since_ms,
        }),
        _ => None,
    }
}

/// A list that need not be there.
fn opt_list<T>(item: &Item, field: &str, decode: fn(&Value) -> Option<T>) -> Result<Vec<T>, DecodeError> {
    if !item.contains_key(field) {
        return Ok(Vec::new());
    }
    let decoded: Option<Vec<T>> = list(item, field)?.iter().map(decode).collect();
    decoded.ok_or_else(|| DecodeError::Invalid { field: field.to_owned(), message: "not as written".to_owned() })
}

fn list<'a>(item: &'a Item, field: &str) -> Result<&'a [Value], DecodeError> {
    match item.get(field) {
        Some(Value::List(values)) => Ok(values),
        _ => Err(DecodeError::WrongType { field: field.to_owned(), expected: "a list" }),
    }
}

fn number<T: TryFrom<i64>>(item: &Item, field: &str) -> Result<T, DecodeError> {
    let found = item.int(field)?;
    let message = || format!("{found} is out of range");
    T::try_from(found).map_err(|_| DecodeError::Invalid { field: field.to_owned(), message: message() })
}

pub(super) fn decode(folded_database: &str, folded_name: &str, item: &Item) -> Result<TableRef, DecodeError> {
    item.check_layout(SCHEMA_VERSION)?;
    let invalid = |field: &str| DecodeError::Invalid { field: field.to_owned(), message: "not as written".to_owned() };
    let column = |value: &Value| match value {
        Value::List(parts) => match parts.as_slice() {
            [Value::Text(name), Value::Text(type_name)] => {
                Some(KeyColumn { name: name.clone(), type_name: type_name.clone() })
            }
            _ => None,
        },
        _ => None,
    };
    let keys: Option<Vec<KeyColumn>> = list(item, "keys")?.iter().map(column).collect();
    let epoch_types = decode_types(list(item, "epoch_types")?);
    Ok(TableRef {
        database: folded_database.to_owned(),
        database_id: DatabaseId::from_text(item.text("database_id")?),
        name: folded_name.to_owned(),
        table_id: TableId::from_text(item.text("table_id")?),
        keys: keys.ok_or_else(|| invalid("keys"))?,
        epoch: number(item, "epoch")?,
        epoch_types: epoch_types.ok_or_else(|| invalid("epoch_types"))?,
        shards: number::<u16>(item, "shards")?.max(1),
        irregular: decode_irregular(item)?,
        older_epochs: opt_list(item, "older_epochs", decode_older)?,
        indexes: opt_list(item, "indexes", decode_index)?,
        next_index: if item.contains_key("next_index") { number(item, "next_index")? } else { 0 },
        has_statistics: matches!(item.get("has_statistics"), Some(Value::Bool(true))),
        home: decode_home(item).ok_or_else(|| invalid("home"))?,
        approximate_partitions: item.opt_int("approximate_partitions")?.unwrap_or(0),
        history: decode_history(item)?,
        version: item.int("version")?,
        revision: Revision::from_text(item.text("revision")?),
        created_ms: item.int("created_ms")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::item_size_bytes;

    fn table() -> TableRef {
        let key = |name: &str, type_name: &str| KeyColumn { name: name.to_owned(), type_name: type_name.to_owned() };
        TableRef {
            database: "sales".to_owned(),
            database_id: DatabaseId::from_text("d".repeat(32)),
            name: "orders".to_owned(),
            table_id: TableId::from_text("t".repeat(32)),
            keys: vec![key("year", "int"), key("region", "string"), key("day", "date"), key("price", "decimal(10,2)")],
            epoch: 1,
            epoch_types: vec![KeyType::Integer, KeyType::Text, KeyType::Date, KeyType::Decimal],
            shards: 16,
            irregular: Irregular::NONE,
            older_epochs: Vec::new(),
            indexes: Vec::new(),
            next_index: 0,
            has_statistics: false,
            home: None,
            approximate_partitions: 0,
            history: Some(HistoryKept::since_creation(604_800_000, 1_700_000_000_000)),
            version: 41,
            revision: Revision::from_text("r".repeat(32)),
            created_ms: 1_700_000_000_000,
        }
    }

    #[test]
    fn a_head_comes_back() {
        let item = encode(&table());
        assert_eq!(decode("sales", "orders", &item).unwrap(), table());
        let full = TableRef {
            irregular: Irregular::NONE.with(IrregularKind::Unreadable).with(IrregularKind::NullMarker),
            older_epochs: vec![OlderEpoch { epoch: 0, types: vec![KeyType::Date], replaced_ms: 5 }],
            indexes: vec![IndexRef {
                number: 3,
                name: "by_region".to_owned(),
                keys: vec!["region".to_owned(), "day".to_owned()],
                state: IndexState::Active,
                is_complete: true,
                since_ms: 9,
            }],
            next_index: 4,
            has_statistics: true,
            approximate_partitions: 30_000,
            history: None,
            ..table()
        };
        assert_eq!(decode("sales", "orders", &encode(&full)).unwrap(), full);
    }

    /// Against a record of changes and for how long each is kept.
    #[test]
    fn moments_that_can_be_told_are_those_of_which_no_later_change_is_gone() {
        const HOUR: i64 = 60 * 60 * 1000;
        // When the setting became what, in hours.
        for settings in [
            &[(0, 100)][..],
            &[(0, 24), (50, 100)],
            &[(0, 100), (50, 24)],
            &[(0, 100), (50, 24), (60, 100)],
            &[(0, 24), (10, 100), (20, 24), (30, 100), (40, 200)],
            &[(0, 0), (30, 50), (90, 10), (91, 60)],
        ] {
            let mut kept = HistoryKept::since_creation(settings[0].1 * HOUR, 0);
            let mut expires: Vec<(i64, i64)> = Vec::new();
            let mut last = 0;
            for hour in 0..300 {
                let now = hour * HOUR;
                let setting = settings.iter().rev().find(|(from, _)| *from <= hour).unwrap().1 * HOUR;
                if setting != kept.kept_ms {
                    // One that read the head before.
                    expires.push((now + HOUR / 5, now + HOUR / 5 + kept.kept_ms));
                    kept = kept.changed_to(setting, now);
                }
                expires.push((now, now + setting));
                let from = kept.from_ms(now);
                let gone = expires.iter().filter(|(_, until)| *until < now).map(|(at, _)| *at).max();
                assert!(gone.is_none_or(|gone| gone <= from), "{settings:?} {hour}: {from} {gone:?}");
                assert!(from <= now + HOUR / 4 && from >= last.min(now - setting), "{settings:?} {hour}");
                last = from;
            }
            let end = 299 * HOUR;
            assert_eq!(kept.from_ms(end), end - kept.kept_ms, "in the end what the setting says: {settings:?}");
        }
    }

    #[test]
    fn of_a_head_that_does_not_say_which_values_there_are_anything_is_possible() {
        let mut item = encode(&table());
        assert_eq!(item.remove("irregular"), Some(Value::List(Vec::new())));
        let read = decode("sales", "orders", &item).unwrap();
        assert_eq!(read.irregular, Irregular::ANY);
        assert_eq!(decode("sales", "orders", &encode(&read)).unwrap().irregular, Irregular::ANY);
    }

    #[test]
    fn a_usual_head_is_small() {
        assert!(item_size_bytes(&key("sales", "orders"), &encode(&table())) < 512);
    }

    #[test]
    fn a_damaged_head_is_an_error() {
        for (field, value) in [
            ("shards", Value::Int(70_000)),
            ("epoch_types", Value::List(vec!["quaternion".into()])),
            ("keys", Value::List(vec!["x".into()])),
            ("table_id", Value::Int(1)),
            ("older_epochs", Value::List(vec![Value::Int(1)])),
            ("history", Value::List(vec![Value::Int(1)])),
            ("indexes", Value::Int(1)),
            ("irregular", Value::Int(1)),
            ("irregular", Value::List(vec!["odd".into()])),
        ] {
            let mut item = encode(&table());
            item.insert(field.to_owned(), value);
            assert!(decode("sales", "orders", &item).is_err(), "{field}");
        }
    }
}
