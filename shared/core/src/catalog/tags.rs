//! Tags of databases and tables, by the ARN that clients make of their names.

use std::collections::BTreeMap;

use super::databases::find_database;
use super::rounds::{Rounds, lost_to_others};
use super::tables::{find_table, put};
use super::tags_item::{self, Tags};
use super::writes::transact;
use super::{CatalogError, DatabaseId, Revision, TableId, database_item, table_definition_item};
use crate::ports::Ports;
use crate::store::{Condition, Consistency, Key, Write};

/// Tags of one resource (a limit of the service).
pub const TAGS_MAX: usize = 50;
/// Names that begin so belong to the service.
const RESERVED_PREFIX: &str = "aws:";

/// What has tags.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Tagged {
    Database(DatabaseId),
    Table(TableId),
}

impl Tagged {
    fn key(&self) -> Key {
        match self {
            Tagged::Database(id) => tags_item::database_key(id),
            Tagged::Table(id) => tags_item::table_key(id),
        }
    }

    /// There as long as the database or table is.
    fn definition_key(&self) -> Key {
        match self {
            Tagged::Database(id) => database_item::definition_key(id),
            Tagged::Table(id) => table_definition_item::key(id),
        }
    }
}

/// The database or table that an ARN means. Partition and region do not matter: a deployment is in one region, and
/// clients of a laptop say any.
async fn resolve(ports: &Ports, account_id: &str, arn: &str) -> Result<Tagged, CatalogError> {
    let mut parts = arn.splitn(6, ':').skip(4);
    let (Some(account), Some(resource)) = (parts.next(), parts.next()) else {
        return Err(CatalogError::Invalid(format!("`{arn}` is not the ARN of a resource.")));
    };
    if account != account_id {
        return Err(CatalogError::NotFound(format!("{arn} not found: this is the catalog of account {account_id}.")));
    }
    let kind_and_name = resource.split_once('/');
    match kind_and_name {
        Some(("database", name)) => Ok(Tagged::Database(find_database(ports.items.as_ref(), name).await?.database_id)),
        Some(("table", names)) if names.contains('/') => {
            let (database, table) = names.split_once('/').unwrap_or_default();
            let found = find_table(ports.items.as_ref(), ports.clock.as_ref(), database, table).await?;
            Ok(Tagged::Table(found.table_id))
        }
        _ => Err(CatalogError::NotFound(format!(
            "{arn} not found: databases (database/<name>) and tables (table/<database>/<name>) have tags here."
        ))),
    }
}

async fn read(ports: &Ports, tagged: &Tagged) -> Result<Option<Tags>, CatalogError> {
    let item = ports.items.get(&tagged.key(), Consistency::Strong).await?;
    Ok(item.map(|item| tags_item::decode(&item)).transpose()?)
}

/// Tags of the database or table with this ARN.
pub async fn get_tags(ports: &Ports, account_id: &str, arn: &str) -> Result<BTreeMap<String, String>, CatalogError> {
    let tagged = resolve(ports, account_id, arn).await?;
    Ok(read(ports, &tagged).await?.map(|tags| tags.tags).unwrap_or_default())
}

/// Adds tags, replacing values of those that are there.
///
/// # Errors
/// [`CatalogError::Invalid`] when there would be more than [`TAGS_MAX`], or for a reserved name.
pub async fn add_tags(
    ports: &Ports,
    account_id: &str,
    arn: &str,
    add: &BTreeMap<String, String>,
) -> Result<(), CatalogError> {
    check_tags(add)?;
    change(ports, account_id, arn, |tags| {
        tags.extend(add.clone());
        check_tags(tags)
    })
    .await
}

/// Removes tags; names that are not there are fine.
pub async fn remove_tags(ports: &Ports, account_id: &str, arn: &str, names: &[String]) -> Result<(), CatalogError> {
    change(ports, account_id, arn, |tags| {
        names.iter().for_each(|name| {
            tags.remove(name);
        });
        Ok(())
    })
    .await
}

/// Refuses tags that the service would not take.
pub(super) fn check_tags(tags: &BTreeMap<String, String>) -> Result<(), CatalogError> {
    if let Some(name) = tags.keys().find(|name| name.to_lowercase().starts_with(RESERVED_PREFIX)) {
        return Err(CatalogError::Invalid(format!(
            "Tag {name}: names that begin with {RESERVED_PREFIX} are reserved."
        )));
    }
    if tags.len() > TAGS_MAX {
        let count = tags.len();
        return Err(CatalogError::Invalid(format!("A resource has at most {TAGS_MAX} tags; this would make {count}.")));
    }
    Ok(())
}

/// The first tags of a new database.
pub(super) fn write_first(ports: &Ports, database: &DatabaseId, tags: BTreeMap<String, String>) -> Option<Write> {
    let tags = Tags { tags, revision: Revision::fresh(ports.ids.as_ref()) };
    let key = tags_item::database_key(database);
    (!tags.tags.is_empty()).then(|| put(key, tags_item::encode(&tags), Condition::Absent))
}

async fn change(
    ports: &Ports,
    account_id: &str,
    arn: &str,
    change: impl Fn(&mut BTreeMap<String, String>) -> Result<(), CatalogError>,
) -> Result<(), CatalogError> {
    let mut rounds = Rounds::default();
    loop {
        let tagged = resolve(ports, account_id, arn).await?;
        let old = read(ports, &tagged).await?;
        let free = match &old {
            None => Condition::Absent,
            Some(old) => Condition::equals("revision", old.revision.as_str()),
        };
        let mut tags = old.map(|old| old.tags).unwrap_or_default();
        change(&mut tags)?;
        let new = Tags { tags, revision: Revision::fresh(ports.ids.as_ref()) };
        let writes = [
            put(tagged.key(), tags_item::encode(&new), free),
            Write::Check { key: tagged.definition_key(), condition: Condition::Present },
        ];
        match transact(ports, &writes).await {
            Ok(()) => return Ok(()),
            Err(cancelled) => lost_to_others(cancelled)?,
        }
        if !rounds.again(ports).await {
            return Err(CatalogError::Contended(format!("The tags of {arn}")));
        }
    }
}
