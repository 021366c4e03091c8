//! Item: a table's items are not yet as its head says. `catalog`, pk `work`, sk `table#<table id>`. Written in the
//! transaction that causes the work, removed when nothing is left to do, so that a message lost on the way loses no work.
//! Holds how far the worker is.

use super::{Revision, TableId, TableRef};
use crate::ports::Ports;
use crate::store::{Condition, DecodeError, Fields, Item, Key, Table, Value, Write};

const SCHEMA_VERSION: i64 = 1;

/// Partition key of all of them.
pub(super) const OPEN_WORK: &str = "work";
/// After a message should have arrived, so long nobody else takes the work up.
pub(super) const GRACE_MS: i64 = 10 * 60 * 1000;

/// One pass over some places of a table's items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pass {
    /// What it is for. A pass for something else is not continued.
    pub(super) step: String,
    /// When it was first planned; it may begin later. The attribute says `started`.
    pub(super) planned_ms: i64,
    /// Items that it has moved, added or removed so far.
    pub(super) changed: i64,
    /// Continues at this partition key, behind this range key.
    pub(super) at: Option<(String, Option<Vec<u8>>)>,
}

/// Work on a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OpenWork {
    pub(super) table_id: TableId,
    /// Names of the database and the table, folded: where the head is.
    pub(super) database: String,
    pub(super) table: String,
    /// Changes with every write; whoever wrote last goes on, all others stop.
    pub(super) revision: Revision,
    /// Until then a message is on its way or a worker is at it.
    pub(super) expected_ms: i64,
    pub(super) pass: Option<Pass>,
}

pub(super) fn key(table: &TableId) -> Key {
    Key::new(Table::Catalog, OPEN_WORK, format!("table#{table}"))
}

/// The write that records work on `table`. Work that is recorded already begins anew.
pub(super) fn open(ports: &Ports, table: &TableRef) -> Write {
    let work = OpenWork {
        table_id: table.table_id.clone(),
        database: table.database.clone(),
        table: table.name.clone(),
        revision: Revision::fresh(ports.ids.as_ref()),
        expected_ms: ports.clock.now_ms().saturating_add(GRACE_MS),
        pass: None,
    };
    Write::Put { key: key(&table.table_id), item: encode(&work), condition: Condition::Always }
}

pub(super) fn encode(work: &OpenWork) -> Item {
    let mut item = Item::from([
        ("schema_version".to_owned(), Value::Int(SCHEMA_VERSION)),
        ("table_id".to_owned(), (&work.table_id).into()),
        ("database".to_owned(), work.database.as_str().into()),
        ("table".to_owned(), work.table.as_str().into()),
        ("revision".to_owned(), (&work.revision).into()),
        ("expected_ms".to_owned(), Value::Int(work.expected_ms)),
    ]);
    if let Some(pass) = &work.pass {
        item.insert("pass_step".to_owned(), pass.step.as_str().into());
        item.insert("pass_started_ms".to_owned(), Value::Int(pass.planned_ms));
        item.insert("pass_changed".to_owned(), Value::Int(pass.changed));
        if let Some((pk, after)) = &pass.at {
            item.insert("pass_pk".to_owned(), pk.as_str().into());
            if let Some(after) = after {
                item.insert("pass_after".to_owned(), Value::Bytes(after.clone()));
            }
        }
    }
    item
}

pub(super) fn decode(item: &Item) -> Result<OpenWork, DecodeError> {
    item.check_layout(SCHEMA_VERSION)?;
    let after = if item.contains_key("pass_after") { Some(item.bytes("pass_after")?.to_vec()) } else { None };
    let pass = match item.opt_text("pass_step")? {
        None => None,
        Some(step) => Some(Pass {
            step: step.to_owned(),
            planned_ms: item.int("pass_started_ms")?,
            changed: item.int("pass_changed")?,
            at: item.opt_text("pass_pk")?.map(|pk| (pk.to_owned(), after)),
        }),
    };
    Ok(OpenWork {
        table_id: TableId::from_text(item.text("table_id")?),
        database: item.text("database")?.to_owned(),
        table: item.text("table")?.to_owned(),
        revision: Revision::from_text(item.text("revision")?),
        expected_ms: item.int("expected_ms")?,
        pass,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_comes_back_and_damaged_items_are_errors() {
        let bare = OpenWork {
            table_id: TableId::from_text("t1"),
            database: "d".to_owned(),
            table: "t".to_owned(),
            revision: Revision::from_text("r"),
            expected_ms: 5,
            pass: None,
        };
        assert_eq!(decode(&encode(&bare)).unwrap(), bare);
        for at in [None, Some(("pk".to_owned(), None)), Some(("pk".to_owned(), Some(vec![1, 0])))] {
            let pass = Pass { step: "rekey#2".to_owned(), planned_ms: 7, changed: 3, at };
            let work = OpenWork { pass: Some(pass), ..bare.clone() };
            let item = encode(&work);
            assert_eq!(decode(&item).unwrap(), work);
            let mut damaged = item;
            damaged.insert("pass_after".to_owned(), Value::Int(1));
            assert!(decode(&damaged).is_err());
        }
    }
}
