//! Names of databases, tables and columns are folded to lower case when stored and when looked up.

use crate::limits::SORT_KEY_MAX_BYTES;

/// The stored form of a name.
pub fn fold(name: &str) -> String {
    name.to_lowercase()
}

/// Whether something of this name can be stored at all. The model limits names on one way in; on the others a name that
/// no key can hold is simply not there.
pub(super) fn can_exist(folded_name: &str) -> bool {
    (1..=SORT_KEY_MAX_BYTES).contains(&folded_name.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::CatalogError;
    use crate::catalog::tables::find_table;
    use crate::catalog::{find_database, get_database};
    use crate::store::memory::MemoryWorld;

    #[tokio::test]
    async fn a_name_that_no_key_can_hold_is_not_there() {
        let world = MemoryWorld::new(0);
        let (items, clock) = (world.items.as_ref(), world.ports.clock.as_ref());
        crate::catalog::create_database(&world.ports, serde_json::Map::from_iter([("Name".to_owned(), "d".into())]))
            .await
            .unwrap();
        for name in [String::new(), "x".repeat(1025), "\u{1F600}".repeat(257), "x".repeat(5000)] {
            let missing = Err(CatalogError::DatabaseNotFound(name.clone()));
            assert_eq!(find_database(items, &name).await, missing);
            assert_eq!(get_database(&world.ports, &name).await.map(|found| found.head), missing);
            let missing = Err(CatalogError::DatabaseNotFound(name.clone()));
            assert_eq!(find_table(items, clock, &name, "t").await, missing);
            assert_eq!(find_table(items, clock, "d", &name).await, Err(CatalogError::TableNotFound(name)));
        }
        let longest = "x".repeat(1024);
        assert_eq!(find_database(items, &longest).await, Err(CatalogError::DatabaseNotFound(longest)));
    }

    #[test]
    fn folding_twice_changes_nothing() {
        for name in ["MixedCase", "ÄÖÜ", "İstanbul", "already lower", "ΣΑΣ"] {
            assert_eq!(fold(&fold(name)), fold(name), "{name}");
        }
    }
}
