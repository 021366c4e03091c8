//! Item: that a table is known, for work that goes over all tables.

use super::head::decode_root;
use super::keys;
use crate::location::Location;
use crate::store::{
    Condition, DecodeError, Fields, Item, Query, ReadItems, SortRange, StoreError, StoreErrorKind, Table, Value, Write,
};

pub const SCHEMA_VERSION: i64 = 1;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedTable {
    pub root: Location,
}

impl ListedTable {
    pub fn encode(&self) -> Item {
        Item::from([
            ("schema_version".into(), Value::Int(SCHEMA_VERSION)),
            ("root".into(), self.root.to_string().into()),
        ])
    }

    pub fn decode(item: &Item) -> Result<ListedTable, DecodeError> {
        item.check_layout(SCHEMA_VERSION)?;
        Ok(ListedTable { root: decode_root(item)? })
    }

    /// Always the same content for one table.
    pub fn write(root: &Location) -> Write {
        let item = ListedTable { root: root.clone() }.encode();
        Write::Put { key: keys::listed_table(root), item, condition: Condition::Always }
    }
}

/// Every table that ever had a proposal.
pub async fn every(items: &dyn ReadItems) -> Result<Vec<Location>, StoreError> {
    let mut query = Query::new(Table::Commits, keys::TABLES_PK, SortRange::All);
    let mut roots = Vec::new();
    loop {
        let page = items.query(&query).await?;
        for (_, item) in &page.items {
            let table = ListedTable::decode(item).map_err(|error| {
                StoreError::new(StoreErrorKind::Invalid, "query commits", format!("the list of tables: {error}"))
            })?;
            roots.push(table.root);
        }
        match page.next {
            Some(next) => query.start_after = Some(next),
            None => return Ok(roots),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_comes_back_as_it_was() {
        let table = ListedTable { root: Location::new("b", "a#b") };
        assert_eq!(ListedTable::decode(&table.encode()).unwrap(), table);
    }
}
