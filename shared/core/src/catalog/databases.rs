//! Create, read, list and drop databases.

use std::collections::BTreeMap;
use std::ops::Bound;

use serde_json::{Map, Value as Json};

use super::body::cut_to_answer;
use super::database_item::{
    DATABASES, DEFINITION, DatabaseHead, decode_definition, decode_head, definition_key, encode_definition,
    encode_head, head_key,
};
use super::names::{can_exist, fold};
use super::rounds::{Rounds, lost_to_others};
use super::spill::{Owner, forget_body, load_body, load_each, store_body};
use super::tables::put;
use super::tags::{check_tags, write_first};
use super::tombstone_item::{self, Dropped, Tombstone};
use super::work::{self, CatalogWork};
use super::writes::{Cancelled, transact};
use super::{CatalogError, DatabaseId, Revision};
use crate::ports::Ports;
use crate::store::{Condition, Consistency, Item, Query, ReadItems, Sort, SortRange, Table, Write, get_every};

/// A database with its definition.
#[derive(Clone, Debug, PartialEq)]
pub struct Database {
    /// Folded.
    pub name: String,
    pub head: DatabaseHead,
    /// A `DatabaseInput` of the service model.
    pub input: Map<String, Json>,
}

/// Creates a database from a checked `DatabaseInput`.
///
/// # Errors
/// [`CatalogError::DatabaseExists`] for a name that is taken, in whatever case.
pub async fn create_database(ports: &Ports, input: Map<String, Json>) -> Result<DatabaseId, CatalogError> {
    create_tagged_database(ports, input, BTreeMap::new()).await
}

/// The same with its first tags.
pub async fn create_tagged_database(
    ports: &Ports,
    mut input: Map<String, Json>,
    tags: BTreeMap<String, String>,
) -> Result<DatabaseId, CatalogError> {
    check_tags(&tags)?;
    let name = fold(input.get("Name").and_then(Json::as_str).unwrap_or_default());
    input.insert("Name".to_owned(), Json::String(name.clone()));
    let head = DatabaseHead {
        database_id: DatabaseId::fresh(ports.ids.as_ref()),
        revision: Revision::fresh(ports.ids.as_ref()),
        created_ms: ports.clock.now_ms(),
    };
    let at_definition = definition_key(&head.database_id);
    let mut definition = encode_definition(&input)?;
    store_body(ports, Owner::Database(&head.database_id), &at_definition, &mut definition, DEFINITION).await?;
    let mut writes = vec![
        put(head_key(&name), encode_head(&head), Condition::Absent),
        put(at_definition, definition.clone(), Condition::Absent),
    ];
    writes.extend(write_first(ports, &head.database_id, tags));
    match transact(ports, &writes).await {
        Ok(()) => Ok(head.database_id),
        Err(Cancelled::Conditions) => {
            forget_body(ports, Owner::Database(&head.database_id), &definition).await;
            Err(CatalogError::DatabaseExists)
        }
        Err(Cancelled::Store(error)) => Err(error.into()),
    }
}

/// Replaces the definition of a database. Its name and creation time stay, and so does everything in it.
///
/// # Errors
/// [`CatalogError::Invalid`] when the input gives another name: databases are not renamed.
pub async fn update_database(ports: &Ports, name: &str, mut input: Map<String, Json>) -> Result<(), CatalogError> {
    let folded = fold(name);
    let mut rounds = Rounds::default();
    loop {
        let old = find_database(ports.items.as_ref(), name).await?;
        if input.get("Name").and_then(Json::as_str).map(fold) != Some(folded.clone()) {
            return Err(CatalogError::Invalid("Database cannot be renamed".to_owned()));
        }
        input.insert("Name".to_owned(), Json::String(folded.clone()));
        let head = DatabaseHead { revision: Revision::fresh(ports.ids.as_ref()), ..old.clone() };
        let at_definition = definition_key(&head.database_id);
        let mut definition = encode_definition(&input)?;
        store_body(ports, Owner::Database(&head.database_id), &at_definition, &mut definition, DEFINITION).await?;
        let unchanged = Condition::equals("revision", old.revision.as_str());
        let writes =
            [put(head_key(&folded), encode_head(&head), unchanged), put(at_definition, definition, Condition::Present)];
        match transact(ports, &writes).await {
            Ok(()) => return Ok(()),
            Err(cancelled) => lost_to_others(cancelled)?,
        }
        if !rounds.again(ports).await {
            return Err(CatalogError::Contended(format!("Database {name}")));
        }
    }
}

/// Up to `limit` heads of databases from this (folded) name on, in order of name.
pub(super) async fn heads_from(
    items: &dyn ReadItems,
    from: &Bound<String>,
    limit: usize,
) -> Result<Vec<(String, DatabaseHead)>, CatalogError> {
    let mut query = Query::new(Table::Catalog, DATABASES, SortRange::All);
    match from {
        Bound::Unbounded => {}
        Bound::Included(name) => query.range = SortRange::AtLeast(name.as_str().into()),
        Bound::Excluded(name) => query.start_after = Some(name.as_str().into()),
    }
    let mut heads = Vec::new();
    loop {
        query.limit = Some(limit.saturating_sub(heads.len()).max(1));
        let page = items.query(&query).await?;
        for (key, item) in page.items {
            if let Sort::Text(name) = key.sk {
                heads.push((name, decode_head(&item)?));
            }
        }
        query.start_after = page.next;
        if query.start_after.is_none() || heads.len() >= limit {
            return Ok(heads);
        }
    }
}

/// The head of a database; one strong get.
pub async fn find_database(items: &dyn ReadItems, name: &str) -> Result<DatabaseHead, CatalogError> {
    let not_found = || CatalogError::DatabaseNotFound(name.to_owned());
    let folded = fold(name);
    if !can_exist(&folded) {
        return Err(not_found());
    }
    let item = items.get(&head_key(&folded), Consistency::Strong).await?;
    Ok(decode_head(&item.ok_or_else(not_found)?)?)
}

/// A database with its definition; two strong gets.
pub async fn get_database(ports: &Ports, name: &str) -> Result<Database, CatalogError> {
    let head = find_database(ports.items.as_ref(), name).await?;
    let item = ports.items.get(&definition_key(&head.database_id), Consistency::Strong).await?;
    // Dropped between the two reads.
    let mut item = item.ok_or_else(|| CatalogError::DatabaseNotFound(name.to_owned()))?;
    load_body(ports, Owner::Database(&head.database_id), &mut item).await?;
    Ok(Database { name: fold(name), head, input: decode_definition(&item)? })
}

/// Up to `limit` databases behind `after`, in order of name, and where to continue if there are more.
pub async fn list_databases(
    ports: &Ports,
    after: Option<String>,
    limit: usize,
) -> Result<(Vec<Database>, Option<String>), CatalogError> {
    let mut heads = Vec::new();
    let mut query = Query::new(Table::Catalog, DATABASES, SortRange::All);
    query.start_after = after.map(Sort::Text);
    loop {
        // One more than asked for tells whether this page is the last.
        query.limit = Some(limit.saturating_sub(heads.len()).saturating_add(1));
        let page = ports.items.query(&query).await?;
        for (key, item) in page.items {
            if let Sort::Text(name) = key.sk {
                heads.push((name, decode_head(&item)?));
            }
        }
        query.start_after = page.next;
        if query.start_after.is_none() || heads.len() > limit {
            break;
        }
    }
    let more = heads.len() > limit;
    heads.truncate(limit);
    let mut next = if more { heads.last().map(|(name, _)| name.clone()) } else { None };
    let keys: Vec<_> = heads.iter().map(|(_, head)| definition_key(&head.database_id)).collect();
    let mut found = get_every(ports.items.as_ref(), ports.clock.as_ref(), &keys, Consistency::Strong).await?;
    // One without a definition was dropped a moment ago.
    let mut rows: Vec<((String, DatabaseHead), Item)> = heads
        .into_iter()
        .filter_map(|head| found.remove(&definition_key(&head.1.database_id)).map(|item| (head, item)))
        .collect();
    if cut_to_answer(&mut rows) {
        next = rows.last().map(|((name, _), _)| name.clone());
    }
    let loads = rows.iter_mut().map(|((_, head), item)| (Owner::Database(&head.database_id), item)).collect();
    let loaded = load_each(ports, loads).await;
    let mut databases = Vec::with_capacity(rows.len());
    for (((name, head), item), outcome) in rows.into_iter().zip(loaded) {
        match outcome {
            Ok(()) => databases.push(Database { name, input: decode_definition(&item)?, head }),
            Err(CatalogError::DroppedMeanwhile) => {}
            Err(error) => return Err(error),
        }
    }
    Ok((databases, next))
}

/// Drops a database. It goes first, which makes its tables unreachable at once; the worker removes them afterwards.
pub async fn drop_database(ports: &Ports, name: &str) -> Result<(), CatalogError> {
    let mut rounds = Rounds::default();
    loop {
        let head = find_database(ports.items.as_ref(), name).await?;
        let tombstone = Tombstone {
            dropped: Dropped::Database { database_id: head.database_id.clone(), name: fold(name) },
            dropped_ms: ports.clock.now_ms(),
        };
        let writes = [
            Write::Delete {
                key: head_key(&fold(name)),
                condition: Condition::equals("revision", head.revision.as_str()),
            },
            Write::Delete { key: definition_key(&head.database_id), condition: Condition::Always },
            Write::Put { key: tombstone.key(), item: tombstone_item::encode(&tombstone), condition: Condition::Absent },
        ];
        match transact(ports, &writes).await {
            Ok(()) => {
                work::request(ports, &CatalogWork::PurgeDatabase(head.database_id)).await;
                return Ok(());
            }
            Err(cancelled) => lost_to_others(cancelled)?,
        }
        if !rounds.again(ports).await {
            return Err(CatalogError::Contended(format!("Database {name}")));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::store::memory::{Fault, MemoryWorld};
    use crate::store::{QueueName, StoreErrorKind};

    fn input(name: &str) -> Map<String, Json> {
        json!({ "Name": name }).as_object().unwrap().clone()
    }

    #[tokio::test]
    async fn names_are_folded_and_unique() {
        let world = MemoryWorld::new(5);
        create_database(&world.ports, input("Sales")).await.unwrap();
        assert_eq!(create_database(&world.ports, input("SALES")).await, Err(CatalogError::DatabaseExists));
        let database = get_database(&world.ports, "sAles").await.unwrap();
        assert_eq!((database.name.as_str(), database.head.created_ms), ("sales", 5));
        assert_eq!(database.input["Name"], "sales");
    }

    #[tokio::test]
    async fn a_lost_answer_is_no_failure() {
        let world = MemoryWorld::new(0);
        world.faults.inject("transact catalog", 0, Fault::After(StoreErrorKind::Unavailable));
        create_database(&world.ports, input("a")).await.unwrap();
        world.faults.inject("transact catalog", 0, Fault::After(StoreErrorKind::Unavailable));
        drop_database(&world.ports, "a").await.unwrap();
        assert_eq!(drop_database(&world.ports, "a").await, Err(CatalogError::DatabaseNotFound("a".to_owned())));
    }

    #[tokio::test]
    async fn a_message_that_cannot_be_sent_does_not_fail_the_drop() {
        let world = MemoryWorld::new(0);
        create_database(&world.ports, input("a")).await.unwrap();
        world.faults.inject("send catalog-work", 0, Fault::Before(StoreErrorKind::Unavailable));
        drop_database(&world.ports, "a").await.unwrap();
        assert_eq!(world.queue.len(QueueName::CatalogWork), 0);
        assert!(world.items.dump().keys().any(|key| key.pk == tombstone_item::DROPPED));
    }

    #[tokio::test]
    async fn pages_hold_every_database_once() {
        let world = MemoryWorld::new(0);
        for n in 0..7 {
            create_database(&world.ports, input(&format!("d{n}"))).await.unwrap();
        }
        let mut seen = Vec::new();
        let mut after = None;
        loop {
            let (page, next) = list_databases(&world.ports, after, 3).await.unwrap();
            seen.extend(page.into_iter().map(|database| database.name));
            after = next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(seen, ["d0", "d1", "d2", "d3", "d4", "d5", "d6"]);
        let (page, next) = list_databases(&world.ports, None, 7).await.unwrap();
        assert_eq!((page.len(), next), (7, None), "no token on the last page");
    }
}
