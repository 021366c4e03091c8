//! Searching tables over all databases: by properties, by text, sorted if asked for.
//!
//! What the service does in full is not written down; ours: a property matches when the wanted value is all of it or one
//! of its words (parts between punctuation, the underscore aside); a text matches when each of its words occurs somewhere
//! in what the table says, or, in quotes, when something the table says is exactly that. Case does not matter.

use std::collections::BTreeSet;
use std::ops::Bound;

use futures::StreamExt;
use serde_json::Value as Json;

use super::databases::heads_from;
use super::search_terms::{Filter, Property, SortBy, SortValue, TextQuery, parse_sort};
use super::table_definition_item::TableDefinition;
use super::table_head_item::TableRef;
use super::tables::{find_table, list_tables, read_definition};
use super::{CatalogError, DatabaseHead};
use crate::ports::Ports;

/// Tables read together.
const TABLES_AT_ONCE: usize = 100;
const DATABASES_AT_ONCE: usize = 100;
/// Tables of a sorted answer that are read at once.
const READS_AT_ONCE: usize = 16;
/// Reads of tables for one answer: a search that matches little gives a short page and a token.
const READS_PER_PAGE: usize = 50;
/// Tables that a sorted search looks at: each of its pages has to see all of them.
pub const SORTED_TABLES_MAX: usize = 20_000;

/// What is looked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Search {
    filters: Vec<Filter>,
    text: Option<TextQuery>,
    sort: Option<SortBy>,
}

/// A table that was found, and where to continue behind it.
#[derive(Clone, Debug, PartialEq)]
pub struct Match {
    pub table: TableRef,
    pub definition: TableDefinition,
    pub position: Position,
}

/// Behind which table a search continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// What a sorted search sorts by.
    value: Option<SortValue>,
    database: String,
    /// Empty: before the first table of the database.
    table: String,
}

impl Position {
    /// As bytes, for a token.
    pub fn encode(&self) -> Vec<u8> {
        Json::from(vec![
            self.value.as_ref().map_or(Json::Null, SortValue::to_json),
            self.database.as_str().into(),
            self.table.as_str().into(),
        ])
        .to_string()
        .into_bytes()
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, CatalogError> {
        let parts: (Json, String, String) = serde_json::from_slice(bytes).map_err(|_| CatalogError::ForeignToken)?;
        Ok(Self { value: SortValue::from_json(&parts.0), database: parts.1, table: parts.2 })
    }
}

impl Search {
    /// Reads the members of a request, which the model has checked: `Filters`, `SearchText`, `SortCriteria`.
    ///
    /// # Errors
    /// [`CatalogError::Invalid`] for a filter or an order that has no meaning.
    pub fn parse(filters: &[Json], text: Option<&str>, sort: &[Json]) -> Result<Self, CatalogError> {
        Ok(Self {
            filters: filters.iter().map(Filter::parse).collect::<Result<_, _>>()?,
            text: text.and_then(TextQuery::parse),
            sort: sort.first().map(parse_sort).transpose()?,
        })
    }

    pub fn is_sorted(&self) -> bool {
        self.sort.is_some()
    }

    fn wants_database(&self, name: &str) -> bool {
        self.filters.iter().all(|filter| filter.property != Property::Database || filter.matches_text(name))
    }

    fn wants(&self, table: &TableRef, definition: &TableDefinition) -> bool {
        self.filters.iter().all(|filter| filter.matches(table, definition))
            && self.text.as_ref().is_none_or(|text| text.matches(table, definition))
    }

    fn position(&self, table: &TableRef, definition: &TableDefinition) -> Position {
        Position {
            value: self.sort.as_ref().map(|sort| sort.value(table, definition)),
            database: table.database.clone(),
            table: table.name.clone(),
        }
    }
}

/// Up to `limit` tables that match, behind `after`: in order of database and name, or as the search says.
///
/// `take` is shown each of them and says whether there was room for it: nothing is kept that an answer cannot hold. The
/// answer is where to continue, none at the end.
pub async fn search_tables(
    ports: &Ports,
    search: &Search,
    after: Option<Position>,
    limit: usize,
    take: &mut (dyn FnMut(&Match) -> bool + Send),
) -> Result<Option<Position>, CatalogError> {
    if search.is_sorted() {
        return search_sorted(ports, search, after, limit, take).await;
    }
    let mut walk = Walk::new(after);
    let mut taken = 0_usize;
    let mut last = None;
    for reads in 0_usize.. {
        if reads >= READS_PER_PAGE && walk.can_stop() {
            break;
        }
        let Some(tables) = walk.next(ports, search).await? else { return Ok(None) };
        for (table, definition) in tables {
            if !search.wants(&table, &definition) {
                continue;
            }
            let position = search.position(&table, &definition);
            let found = Match { table, definition, position };
            if taken >= limit || !take(&found) {
                return Ok(last);
            }
            taken += 1;
            last = Some(found.position);
        }
    }
    Ok(walk.position())
}

/// Sees all tables and keeps the order's first ones behind `after`.
async fn search_sorted(
    ports: &Ports,
    search: &Search,
    after: Option<Position>,
    limit: usize,
    take: &mut (dyn FnMut(&Match) -> bool + Send),
) -> Result<Option<Position>, CatalogError> {
    let Some(sort) = &search.sort else { return Ok(None) };
    let after = after.map(|position| sort.rank(position.value, position.database, position.table));
    let mut first = BTreeSet::new();
    let mut walk = Walk::new(None);
    let mut seen = 0_usize;
    while let Some(tables) = walk.next(ports, search).await? {
        seen += tables.len();
        if seen > SORTED_TABLES_MAX {
            return Err(CatalogError::Invalid(format!(
                "More than {SORTED_TABLES_MAX} tables would have to be sorted: filter by DatabaseName, or leave out \
                 SortCriteria."
            )));
        }
        for (table, definition) in tables.iter().filter(|(table, definition)| search.wants(table, definition)) {
            let value = Some(sort.value(table, definition));
            let rank = sort.rank(value, table.database.clone(), table.name.clone());
            if after.as_ref().is_none_or(|after| rank > *after) {
                first.insert(rank);
                // One more than asked for tells whether this page is the last.
                if first.len() > limit.saturating_add(1) {
                    first.pop_last();
                }
            }
        }
    }
    let has_more = first.len() > limit;
    let reads = first.into_iter().take(limit).map(|rank| {
        let (value, database, table) = sort.unrank(rank);
        read_again(ports, Position { value, database, table })
    });
    let mut reads = futures::stream::iter(reads).buffered(READS_AT_ONCE);
    let mut last = None;
    while let Some(read) = reads.next().await {
        let (position, found) = read?;
        if let Some((table, definition)) = found
            && !take(&Match { table, definition, position: position.clone() })
        {
            return Ok(last);
        }
        last = Some(position);
    }
    Ok(last.filter(|_| has_more))
}

/// A table that was there a moment ago.
async fn read_again(
    ports: &Ports,
    position: Position,
) -> Result<(Position, Option<(TableRef, TableDefinition)>), CatalogError> {
    let found = find_table(ports.items.as_ref(), ports.clock.as_ref(), &position.database, &position.table).await;
    let found = match found {
        Ok(table) => read_definition(ports, &table.table_id).await?.map(|definition| (table, definition)),
        Err(CatalogError::DatabaseNotFound(_) | CatalogError::TableNotFound(_)) => None,
        Err(error) => return Err(error),
    };
    Ok((position, found))
}

/// A walk over all tables of the databases that are wanted.
struct Walk {
    /// Databases to come, the first one being walked.
    databases: Vec<(String, DatabaseHead)>,
    from: Bound<String>,
    is_last: bool,
    /// Behind which table of the first database; empty for its beginning.
    after: String,
}

impl Walk {
    fn new(after: Option<Position>) -> Self {
        let (from, after) = match after {
            None => (Bound::Unbounded, String::new()),
            Some(position) => (Bound::Included(position.database), position.table),
        };
        Self { databases: Vec::new(), from, is_last: false, after }
    }

    /// The next tables; none at the end. Perhaps an empty list.
    async fn next(
        &mut self,
        ports: &Ports,
        search: &Search,
    ) -> Result<Option<Vec<(TableRef, TableDefinition)>>, CatalogError> {
        if self.databases.is_empty() {
            if self.is_last {
                return Ok(None);
            }
            let first = if let Bound::Included(name) = &self.from { Some(name.clone()) } else { None };
            self.databases = heads_from(ports.items.as_ref(), &self.from, DATABASES_AT_ONCE).await?;
            self.is_last = self.databases.len() < DATABASES_AT_ONCE;
            if let Some((name, _)) = self.databases.last() {
                self.from = Bound::Excluded(name.clone());
            }
            if self.databases.first().map(|(name, _)| name) != first.as_ref() {
                // The database in which to continue is gone.
                self.after.clear();
            }
            self.databases.retain(|(name, _)| search.wants_database(name));
            self.databases.reverse();
            return Ok(Some(Vec::new()));
        }
        let Some((database, _)) = self.databases.last() else { return Ok(Some(Vec::new())) };
        let after = Some(std::mem::take(&mut self.after)).filter(|name| !name.is_empty());
        let page = match list_tables(ports, database, None, after, TABLES_AT_ONCE).await {
            Ok(page) => page,
            Err(CatalogError::DatabaseNotFound(_)) => {
                self.databases.pop();
                return Ok(Some(Vec::new()));
            }
            Err(error) => return Err(error),
        };
        match page.next {
            Some(name) => self.after = name,
            None => _ = self.databases.pop(),
        }
        Ok(Some(page.tables))
    }

    /// Whether [`Walk::position`] says where to go on.
    fn can_stop(&self) -> bool {
        self.is_last || !self.databases.is_empty()
    }

    /// Where to go on later; none at the end.
    fn position(&self) -> Option<Position> {
        let (database, _) = self.databases.last()?;
        Some(Position { value: None, database: database.clone(), table: self.after.clone() })
    }
}
