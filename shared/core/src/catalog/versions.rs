//! Versions of a table: the current one and those that updates kept.

use std::collections::BTreeSet;

use super::body::cut_to_answer;
use super::rounds::{Rounds, lost_to_others};
use super::spill::{Owner, load_bodies, load_body};
use super::table_definition_item::{self, TableDefinition};
use super::table_head_item::TableRef;
use super::tables::{find_table, get_table, put};
use super::version_item::{self, DeletedVersions};
use super::writes::transact;
use super::{CatalogError, Revision};
use crate::ports::Ports;
use crate::store::{Condition, Consistency, Direction, Fields, Item, Query, SortRange, Table, Write, get_every};

/// Deletes of one transaction: with the counter and the check that the table lives, well below what one may have.
const DELETES_AT_ONCE: usize = 90;

/// Reads a `VersionId`.
///
/// # Errors
/// [`CatalogError::Invalid`] for something that is no number.
fn parse_version(text: &str) -> Result<i64, CatalogError> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(CatalogError::Invalid(format!("`{text}` is not a version: versions are numbers from 0.")));
    }
    // One that is too large for a number was never given out.
    Ok(text.parse().unwrap_or(-1))
}

fn no_version() -> CatalogError {
    CatalogError::NotFound("Version not found.".to_owned())
}

/// One version of a table, the current one if none is named.
pub async fn get_version(
    ports: &Ports,
    database: &str,
    table: &str,
    version: Option<&str>,
) -> Result<(TableRef, TableDefinition), CatalogError> {
    // The table comes first: a version of one that is not there is no matter of numbers.
    let (found, current) = get_table(ports, database, table).await?;
    let version = version.map_or(Ok(current.version), parse_version)?;
    if version == current.version {
        return Ok((found, current));
    }
    if version < 0 {
        return Err(no_version());
    }
    let item = ports.items.get(&version_item::key(&found.table_id, version), Consistency::Strong).await?;
    let Some(mut item) = item else { return Err(no_version()) };
    load_body(ports, Owner::Table(&found.table_id), &mut item).await?;
    Ok((found, table_definition_item::decode(&item)?))
}

/// Versions that are looked through for a moment, and how many at once.
const PAST_VERSIONS_MAX: i64 = 1_000;
const PAST_VERSIONS_AT_ONCE: usize = 20;

/// The version that a table (as it is now) had at this moment, which is after its creation.
///
/// # Errors
/// [`CatalogError::Invalid`] if that cannot be told, since versions of that time were not kept, or if the table has had
/// more than 1,000 versions since.
pub async fn get_version_at(
    ports: &Ports,
    (table, current): (TableRef, TableDefinition),
    at_ms: i64,
) -> Result<(TableRef, TableDefinition), CatalogError> {
    if current.updated_ms <= at_ms {
        return Ok((table, current));
    }
    let mut newer = current.version;
    loop {
        let (rows, has_more) = archived_before(ports, &table, newer, PAST_VERSIONS_AT_ONCE).await?;
        for (_, mut item) in rows {
            let version = item.int("version")?;
            if version != newer.saturating_sub(1) {
                return Err(not_kept(newer));
            }
            // The first one was there since the table was.
            if version == 0 || item.int("updated_ms")? <= at_ms {
                load_body(ports, Owner::Table(&table.table_id), &mut item).await?;
                return Ok((table, table_definition_item::decode(&item)?));
            }
            newer = version;
        }
        if !has_more {
            return if newer == 0 { Ok((table, current)) } else { Err(not_kept(newer)) };
        }
        if current.version.saturating_sub(newer) >= PAST_VERSIONS_MAX {
            let text =
                format!("The table has had more than {PAST_VERSIONS_MAX} versions since: find it by GetTableVersions.");
            return Err(CatalogError::Invalid(text));
        }
    }
}

fn not_kept(newer: i64) -> CatalogError {
    CatalogError::Invalid(format!(
        "The table cannot be read as of this moment: what version {newer} replaced was not kept. See GetTableVersions."
    ))
}

/// A page of versions, newest first.
#[derive(Clone, Debug, PartialEq)]
pub struct VersionPage {
    pub table: TableRef,
    pub versions: Vec<TableDefinition>,
    /// Continue with versions before this one; none at the end.
    pub next: Option<i64>,
}

/// Up to `limit` versions before `before`, newest first; from the beginning the current one is the first.
pub async fn list_versions(
    ports: &Ports,
    database: &str,
    table: &str,
    before: Option<i64>,
    limit: usize,
) -> Result<VersionPage, CatalogError> {
    let (found, current) = get_table(ports, database, table).await?;
    let mut versions = Vec::new();
    let before = match before {
        Some(before) => before,
        None => {
            let version = current.version;
            versions.push(current);
            version
        }
    };
    let wanted = limit.saturating_sub(versions.len());
    let (mut rows, has_more) = archived_before(ports, &found, before, wanted).await?;
    let is_cut = cut_to_answer(&mut rows);
    let owner = Owner::Table(&found.table_id);
    load_bodies(ports, rows.iter_mut().map(|((), item)| (owner, item)).collect()).await?;
    for (_, item) in &rows {
        versions.push(table_definition_item::decode(item)?);
    }
    let last = versions.last().map(|definition| definition.version);
    Ok(VersionPage { table: found, versions, next: last.filter(|_| has_more || is_cut) })
}

/// What kept versions of a table said before the current one, newest first; up to 1,000 of them.
pub async fn past_definitions(ports: &Ports, table: &TableRef) -> Result<Vec<TableDefinition>, CatalogError> {
    let (mut found, mut before) = (Vec::new(), table.version);
    loop {
        let (mut rows, has_more) = archived_before(ports, table, before, PAST_VERSIONS_AT_ONCE).await?;
        let owner = Owner::Table(&table.table_id);
        load_bodies(ports, rows.iter_mut().map(|((), item)| (owner, item)).collect()).await?;
        for (_, item) in &rows {
            let definition = table_definition_item::decode(item)?;
            before = definition.version;
            found.push(definition);
        }
        if !has_more || rows.is_empty() || table.version.saturating_sub(before) >= PAST_VERSIONS_MAX {
            return Ok(found);
        }
    }
}

/// Archived versions before `before`, newest first, and whether more follow.
async fn archived_before(
    ports: &Ports,
    table: &TableRef,
    before: i64,
    limit: usize,
) -> Result<(Vec<((), Item)>, bool), CatalogError> {
    if before <= 0 {
        return Ok((Vec::new(), false));
    }
    let (low, high) = version_item::before(before);
    let range = SortRange::Between(low, high);
    let mut query = Query {
        direction: Direction::Descending,
        ..Query::new(Table::Catalog, table_definition_item::items_of(&table.table_id), range)
    };
    let mut rows = Vec::new();
    loop {
        // One more than asked for tells whether this page is the last.
        query.limit = Some(limit.saturating_sub(rows.len()).saturating_add(1));
        let page = ports.items.query(&query).await?;
        rows.extend(page.items.into_iter().map(|(_, item)| ((), item)));
        query.start_after = page.next;
        if query.start_after.is_none() || rows.len() > limit {
            break;
        }
    }
    let has_more = rows.len() > limit;
    rows.truncate(limit);
    Ok((rows, has_more))
}

/// Deletes earlier versions of a table, each for itself; one answer per entry, in order.
///
/// # Errors
/// For all of them: the table is not there. For one: [`CatalogError::NotFound`]; [`CatalogError::Invalid`] for the current
/// version and for what is no number.
pub async fn delete_versions(
    ports: &Ports,
    database: &str,
    table: &str,
    entries: &[String],
) -> Result<Vec<Result<(), CatalogError>>, CatalogError> {
    let found = find_table(ports.items.as_ref(), ports.clock.as_ref(), database, table).await?;
    let mut seen = BTreeSet::new();
    let mut answers = Vec::with_capacity(entries.len());
    let mut doomed = Vec::new();
    for entry in entries {
        answers.push(match parse_version(entry) {
            Err(error) => Err(error),
            Ok(version) if version == found.version => {
                Err(CatalogError::Invalid("The current version of a table cannot be deleted.".to_owned()))
            }
            Ok(version) if version < 0 || !seen.insert(version) => Err(no_version()),
            Ok(version) => {
                doomed.push((answers.len(), version));
                Ok(())
            }
        });
    }
    for batch in doomed.chunks(DELETES_AT_ONCE) {
        let versions: Vec<i64> = batch.iter().map(|(_, version)| *version).collect();
        let deleted = delete_some(ports, &found, &versions).await?;
        for (at, version) in batch {
            if let Some(answer) = answers.get_mut(*at).filter(|_| !deleted.contains(version)) {
                *answer = Err(no_version());
            }
        }
    }
    Ok(answers)
}

/// Deletes those of the versions that are there, in one transaction, and answers which those were.
async fn delete_some(ports: &Ports, table: &TableRef, versions: &[i64]) -> Result<BTreeSet<i64>, CatalogError> {
    let at_count = version_item::deleted_key(&table.table_id);
    let mut rounds = Rounds::default();
    loop {
        let mut keys: Vec<_> = versions.iter().map(|version| version_item::key(&table.table_id, *version)).collect();
        keys.push(at_count.clone());
        let found = get_every(ports.items.as_ref(), ports.clock.as_ref(), &keys, Consistency::Strong).await?;
        let is_there = |version: &&i64| found.contains_key(&version_item::key(&table.table_id, **version));
        let present: BTreeSet<i64> = versions.iter().filter(is_there).copied().collect();
        if present.is_empty() {
            return Ok(present);
        }
        let old = found.get(&at_count).map(version_item::decode_deleted).transpose()?;
        let free = match &old {
            Some(old) => Condition::equals("revision", old.revision.as_str()),
            None => Condition::Absent,
        };
        let more = i64::try_from(present.len()).unwrap_or(0);
        let count = DeletedVersions {
            count: old.map_or(0, |old| old.count).saturating_add(more),
            revision: Revision::fresh(ports.ids.as_ref()),
        };
        let alive = table_definition_item::key(&table.table_id);
        let mut writes = vec![
            put(at_count.clone(), version_item::encode_deleted(&count), free),
            Write::Check { key: alive, condition: Condition::Present },
        ];
        writes.extend(present.iter().map(|version| Write::Delete {
            key: version_item::key(&table.table_id, *version),
            condition: Condition::Present,
        }));
        match transact(ports, &writes).await {
            Ok(()) => return Ok(present),
            Err(cancelled) => lost_to_others(cancelled)?,
        }
        if !rounds.again(ports).await {
            return Err(CatalogError::Contended(format!("Table {}", table.name)));
        }
    }
}
