//! Tables of a database, in order of name.

use regex_lite::{Regex, RegexBuilder};

use super::body::cut_to_answer;
use super::databases::find_database;
use super::spill::{Owner, load_each};
use super::table_definition_item::{self, TableDefinition};
use super::table_head_item::{self, TableRef};
use super::{CatalogError, fold};
use crate::ports::Ports;
use crate::store::{Consistency, Item, Query, Sort, SortRange, Table, get_every};

/// Pages of heads read for one page of an answer, about 20 MB: a pattern that matches little gives a short page and a
/// token rather than a long wait.
const QUERIES_PER_PAGE: usize = 20;
/// Memory that one compiled pattern may take.
const PATTERN_MAX_BYTES: usize = 1 << 20;

/// Which names are wanted.
#[derive(Clone, Debug)]
pub struct NamePattern(Regex);

impl NamePattern {
    /// A regular expression in which a `*` that follows no `.` stands for anything, so that both `t*` and `t.*` work. It
    /// must match the whole name; case does not matter.
    ///
    /// # Errors
    /// [`CatalogError::Invalid`] for something that is no regular expression.
    pub fn parse(expression: &str) -> Result<Self, CatalogError> {
        let mut pattern = String::with_capacity(expression.len() + 8);
        for c in expression.chars() {
            if c == '*' && !pattern.ends_with('.') {
                pattern.push('.');
            }
            pattern.push(c);
        }
        RegexBuilder::new(&format!("^(?:{pattern})$"))
            .case_insensitive(true)
            .size_limit(PATTERN_MAX_BYTES)
            .build()
            .map(Self)
            .map_err(|error| CatalogError::Invalid(format!("The expression is not a regular expression: {error}")))
    }

    pub fn matches(&self, folded_name: &str) -> bool {
        self.0.is_match(folded_name)
    }
}

/// A page of tables.
#[derive(Clone, Debug, PartialEq)]
pub struct TablePage {
    pub tables: Vec<(TableRef, TableDefinition)>,
    /// Name behind which to continue; none at the end.
    pub next: Option<String>,
}

/// Up to `limit` tables whose names match, behind `after`.
pub async fn list_tables(
    ports: &Ports,
    database: &str,
    pattern: Option<&NamePattern>,
    after: Option<String>,
    limit: usize,
) -> Result<TablePage, CatalogError> {
    let items = ports.items.as_ref();
    let head = find_database(items, database).await?;
    let folded = fold(database);
    let mut query = Query::new(Table::Catalog, table_head_item::heads_of(&folded), SortRange::All);
    query.start_after = after.map(Sort::Text);
    let mut heads: Vec<TableRef> = Vec::new();
    let mut next = None;
    for round in 0.. {
        if pattern.is_none() {
            query.limit = Some(limit.saturating_sub(heads.len()).saturating_add(1));
        }
        let page = items.query(&query).await?;
        for (key, item) in page.items {
            let Sort::Text(name) = key.sk else { continue };
            let table = table_head_item::decode(&folded, &name, &item)?;
            let wanted = table.database_id == head.database_id && pattern.is_none_or(|pattern| pattern.matches(&name));
            if wanted && heads.len() == limit {
                // One more than asked for: this page is not the last.
                next = heads.last().map(|last| last.name.clone());
                return with_definitions(ports, heads, next).await;
            }
            if wanted {
                heads.push(table);
            }
        }
        query.start_after = page.next;
        match &query.start_after {
            None => break,
            Some(Sort::Text(name)) if round + 1 >= QUERIES_PER_PAGE => {
                next = Some(name.clone());
                break;
            }
            Some(_) => {}
        }
    }
    with_definitions(ports, heads, next).await
}

async fn with_definitions(
    ports: &Ports,
    heads: Vec<TableRef>,
    mut next: Option<String>,
) -> Result<TablePage, CatalogError> {
    let keys: Vec<_> = heads.iter().map(|table| table_definition_item::key(&table.table_id)).collect();
    let mut found = get_every(ports.items.as_ref(), ports.clock.as_ref(), &keys, Consistency::Strong).await?;
    // One without a definition was dropped a moment ago.
    let mut rows: Vec<(TableRef, Item)> = heads
        .into_iter()
        .filter_map(|table| found.remove(&table_definition_item::key(&table.table_id)).map(|item| (table, item)))
        .collect();
    if cut_to_answer(&mut rows) {
        next = rows.last().map(|(table, _)| table.name.clone());
    }
    let loads = rows.iter_mut().map(|(table, item)| (Owner::Table(&table.table_id), item)).collect();
    let loaded = load_each(ports, loads).await;
    let mut tables = Vec::with_capacity(rows.len());
    for ((table, item), outcome) in rows.into_iter().zip(loaded) {
        match outcome {
            Ok(()) => tables.push((table, table_definition_item::decode(&item)?)),
            Err(CatalogError::DroppedMeanwhile) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(TablePage { tables, next })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_and_regular_expressions_both_work() {
        let names = ["test", "tables", "my_table", "t", "other", "a.b"];
        for (pattern, expected) in [
            ("t*", &["test", "tables", "t"][..]),
            ("t.*", &["test", "tables", "t"]),
            ("*table*", &["tables", "my_table"]),
            ("*", &names),
            (".*", &names),
            ("*st", &["test"]),
            ("test|other", &["test", "other"]),
            ("T[ae].*", &["test", "tables"]),
            ("a\\.b", &["a.b"]),
            ("tab", &[]),
        ] {
            let pattern = NamePattern::parse(pattern).unwrap();
            let matched: Vec<&str> = names.iter().copied().filter(|name| pattern.matches(name)).collect();
            assert_eq!(matched, expected, "{pattern:?}");
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for pattern in ["(", "[", "a{1000000000}", "(((a{100}){100}){100})"] {
            assert!(matches!(NamePattern::parse(pattern), Err(CatalogError::Invalid(_))), "{pattern}");
        }
    }
}
