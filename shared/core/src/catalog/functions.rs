//! User-defined functions: names that Hive, Spark and Trino keep in the catalog. They belong to a database and go with it.

use std::ops::Bound;

use serde_json::{Map, Value as Json};

use super::body::cut_to_answer;
use super::database_item;
use super::databases::{find_database, heads_from};
use super::function_item::{self, FunctionItem, WHAT};
use super::names::{can_exist, fold};
use super::rounds::{Rounds, lost_to_others};
use super::spill::{Owner, load_body, load_each, store_body};
use super::tables::{NamePattern, put};
use super::writes::transact;
use super::{CatalogError, DatabaseHead, DatabaseId, Revision};
use crate::ports::Ports;
use crate::store::{Condition, Consistency, Item, Key, Query, Sort, SortRange, Table, Write};

/// Queries for one page of an answer: a pattern that matches little gives a short page and a token.
const QUERIES_PER_PAGE: usize = 100;
/// Databases looked at together when functions of all databases are asked for.
const DATABASES_AT_ONCE: usize = 100;

/// A function of a database.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// Folded.
    pub database: String,
    /// Folded.
    pub name: String,
    pub created_ms: i64,
    /// A `UserDefinedFunctionInput` of the service model.
    pub input: Map<String, Json>,
}

fn missing() -> CatalogError {
    CatalogError::NotFound("Cannot find function.".to_owned())
}

/// The folded name that an input gives, or `otherwise`.
fn name_in(input: &Map<String, Json>, otherwise: Option<&str>) -> Result<String, CatalogError> {
    let given = input.get("FunctionName").and_then(Json::as_str).or(otherwise);
    let name = fold(given.ok_or_else(|| CatalogError::Invalid("FunctionInput.FunctionName is required.".to_owned()))?);
    if can_exist(&name) { Ok(name) } else { Err(CatalogError::Invalid("The function's name is too long.".to_owned())) }
}

fn check_database(database: &str, head: &DatabaseHead) -> Write {
    Write::Check {
        key: database_item::head_key(&fold(database)),
        condition: Condition::equals("database_id", head.database_id.as_str()),
    }
}

/// The item of a function, ready to be put at `key`.
async fn stored(
    ports: &Ports,
    database: &DatabaseId,
    key: &Key,
    mut input: Map<String, Json>,
    name: &str,
    created_ms: i64,
) -> Result<Item, CatalogError> {
    input.insert("FunctionName".to_owned(), name.into());
    let revision = Revision::fresh(ports.ids.as_ref());
    let mut item = function_item::encode(&FunctionItem { created_ms, revision, input })?;
    store_body(ports, Owner::Database(database), key, &mut item, WHAT).await?;
    Ok(item)
}

/// Creates a function from a checked `UserDefinedFunctionInput`.
///
/// # Errors
/// [`CatalogError::Exists`] for a name that is taken, in whatever case.
pub async fn create_function(ports: &Ports, database: &str, input: Map<String, Json>) -> Result<(), CatalogError> {
    let mut rounds = Rounds::default();
    loop {
        let head = find_database(ports.items.as_ref(), database).await?;
        let name = name_in(&input, None)?;
        let key = function_item::key(&head.database_id, &name);
        if ports.items.get(&key, Consistency::Strong).await?.is_some() {
            return Err(CatalogError::Exists("Function already exists.".to_owned()));
        }
        let now_ms = ports.clock.now_ms();
        let item = stored(ports, &head.database_id, &key, input.clone(), &name, now_ms).await?;
        let writes = [put(key, item, Condition::Absent), check_database(database, &head)];
        match transact(ports, &writes).await {
            Ok(()) => return Ok(()),
            Err(cancelled) => lost_to_others(cancelled)?,
        }
        if !rounds.again(ports).await {
            return Err(CatalogError::Contended(format!("Function {name}")));
        }
    }
}

async fn read(ports: &Ports, database: &DatabaseId, name: &str) -> Result<Option<FunctionItem>, CatalogError> {
    if !can_exist(name) {
        return Ok(None);
    }
    let item = ports.items.get(&function_item::key(database, name), Consistency::Strong).await?;
    let Some(mut item) = item else { return Ok(None) };
    load_body(ports, Owner::Database(database), &mut item).await?;
    Ok(Some(function_item::decode(&item)?))
}

/// The function of this name, in whatever case.
pub async fn get_function(ports: &Ports, database: &str, name: &str) -> Result<Function, CatalogError> {
    let head = find_database(ports.items.as_ref(), database).await?;
    let name = fold(name);
    let found = read(ports, &head.database_id, &name).await?.ok_or_else(missing)?;
    Ok(Function { database: fold(database), name, created_ms: found.created_ms, input: found.input })
}

/// Replaces a function; its creation time stays. Another name in the input renames it.
///
/// # Errors
/// [`CatalogError::NotFound`]; [`CatalogError::Exists`] when the new name is taken.
pub async fn update_function(
    ports: &Ports,
    database: &str,
    name: &str,
    input: Map<String, Json>,
) -> Result<(), CatalogError> {
    let old_name = fold(name);
    let mut rounds = Rounds::default();
    loop {
        let head = find_database(ports.items.as_ref(), database).await?;
        let old = read(ports, &head.database_id, &old_name).await?.ok_or_else(missing)?;
        let new_name = name_in(&input, Some(&old_name))?;
        let unchanged = Condition::equals("revision", old.revision.as_str());
        let at_old = function_item::key(&head.database_id, &old_name);
        let at_new = function_item::key(&head.database_id, &new_name);
        let item = stored(ports, &head.database_id, &at_new, input.clone(), &new_name, old.created_ms).await?;
        let mut writes = vec![check_database(database, &head)];
        if at_new == at_old {
            writes.push(put(at_new, item, unchanged));
        } else {
            if ports.items.get(&at_new, Consistency::Strong).await?.is_some() {
                return Err(CatalogError::Exists("Function already exists.".to_owned()));
            }
            writes.push(put(at_new, item, Condition::Absent));
            writes.push(Write::Delete { key: at_old, condition: unchanged });
        }
        match transact(ports, &writes).await {
            Ok(()) => return Ok(()),
            Err(cancelled) => lost_to_others(cancelled)?,
        }
        if !rounds.again(ports).await {
            return Err(CatalogError::Contended(format!("Function {name}")));
        }
    }
}

/// Deletes a function.
pub async fn drop_function(ports: &Ports, database: &str, name: &str) -> Result<(), CatalogError> {
    let name = fold(name);
    let mut rounds = Rounds::default();
    loop {
        let head = find_database(ports.items.as_ref(), database).await?;
        let old = read(ports, &head.database_id, &name).await?.ok_or_else(missing)?;
        let key = function_item::key(&head.database_id, &name);
        let condition = Condition::equals("revision", old.revision.as_str());
        match transact(ports, &[Write::Delete { key, condition }]).await {
            Ok(()) => return Ok(()),
            Err(cancelled) => lost_to_others(cancelled)?,
        }
        if !rounds.again(ports).await {
            return Err(CatalogError::Contended(format!("Function {name}")));
        }
    }
}

/// Which functions are wanted.
#[derive(Clone, Debug)]
pub struct FunctionListing<'a> {
    /// Of all databases if absent.
    pub database: Option<&'a str>,
    pub pattern: NamePattern,
    pub function_type: Option<&'a str>,
    /// Continue behind this function of this database (both folded; neither need exist any more).
    pub after: Option<(String, String)>,
    pub limit: usize,
}

/// A page of functions, in order of database and name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FunctionPage {
    pub functions: Vec<Function>,
    /// Where to continue; none at the end.
    pub next: Option<(String, String)>,
}

/// A function before its body is loaded: database, its id, name.
type Row = ((String, DatabaseId, String), Item);

/// Functions whose names match, a page of them.
pub async fn list_functions(ports: &Ports, listing: &FunctionListing<'_>) -> Result<FunctionPage, CatalogError> {
    let mut rows: Vec<Row> = Vec::new();
    let mut next = collect(ports, listing, &mut rows).await?;
    if cut_to_answer(&mut rows) {
        next = rows.last().map(|((database, _, name), _)| (database.clone(), name.clone()));
    }
    let loads = rows.iter_mut().map(|((_, id, _), item)| (Owner::Database(id), item)).collect();
    let loaded = load_each(ports, loads).await;
    let mut functions = Vec::with_capacity(rows.len());
    for (((database, _, name), item), outcome) in rows.into_iter().zip(loaded) {
        match outcome {
            Ok(()) => {
                let FunctionItem { created_ms, input, .. } = function_item::decode(&item)?;
                // Whether the type is wanted shows only now.
                let kind = input.get("FunctionType").and_then(Json::as_str);
                if listing.function_type.is_none_or(|wanted| kind == Some(wanted)) {
                    functions.push(Function { database, name, created_ms, input });
                }
            }
            Err(CatalogError::DroppedMeanwhile) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(FunctionPage { functions, next })
}

/// Fills `rows` and answers where to continue.
async fn collect(
    ports: &Ports,
    listing: &FunctionListing<'_>,
    rows: &mut Vec<Row>,
) -> Result<Option<(String, String)>, CatalogError> {
    let mut queries = 0;
    if let Some(database) = listing.database {
        let head = find_database(ports.items.as_ref(), database).await?;
        return collect_database(ports, listing, &fold(database), &head, &mut queries, rows).await;
    }
    let mut from = match &listing.after {
        None => Bound::Unbounded,
        Some((database, _)) => Bound::Included(database.clone()),
    };
    loop {
        let heads = heads_from(ports.items.as_ref(), &from, DATABASES_AT_ONCE).await?;
        let is_last = heads.len() < DATABASES_AT_ONCE;
        for (name, head) in &heads {
            let next = collect_database(ports, listing, name, head, &mut queries, rows).await?;
            if next.is_some() {
                return Ok(next);
            }
        }
        match heads.last() {
            Some((name, _)) if !is_last => from = Bound::Excluded(name.clone()),
            _ => return Ok(None),
        }
    }
}

async fn collect_database(
    ports: &Ports,
    listing: &FunctionListing<'_>,
    database: &str,
    head: &DatabaseHead,
    queries: &mut usize,
    rows: &mut Vec<Row>,
) -> Result<Option<(String, String)>, CatalogError> {
    let after = listing.after.as_ref().filter(|(at, _)| at == database).map(|(_, name)| name.clone());
    let mut seen = after.clone().unwrap_or_default();
    let mut query = Query::new(Table::Catalog, function_item::functions_of(&head.database_id), SortRange::All);
    // An empty name is no key; it stands for the beginning.
    query.start_after = after.filter(|name| !name.is_empty()).map(Sort::Text);
    loop {
        if *queries >= QUERIES_PER_PAGE {
            return Ok(Some((database.to_owned(), seen)));
        }
        *queries += 1;
        let page = ports.items.query(&query).await?;
        for (key, item) in page.items {
            let Sort::Text(name) = key.sk else { continue };
            if listing.pattern.matches(&name) {
                if rows.len() >= listing.limit {
                    return Ok(rows.last().map(|((database, _, name), _)| (database.clone(), name.clone())));
                }
                rows.push(((database.to_owned(), head.database_id.clone(), name.clone()), item));
            }
            seen = name;
        }
        query.start_after = page.next;
        if query.start_after.is_none() {
            return Ok(None);
        }
    }
}
