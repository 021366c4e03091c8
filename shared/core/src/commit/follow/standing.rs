//! What became of partitions that a verdict left to somebody else. A proposal says `queued` when it is decided before the
//! catalog has followed, and nobody writes to it again: whoever shows it looks how far the catalog is by now.

use super::{SETTING, is_on, load, synced_key};
use crate::catalog::TableId;
use crate::catalog::locations::tables_at;
use crate::catalog::tables::read_definition;
use crate::commit::error::CommitError;
use crate::commit::follow::cursor::decode_synced;
use crate::commit::keys::Generation;
use crate::commit::proposal::{Proposal, Status, SyncState};
use crate::delta::Version;
use crate::location::Location;
use crate::ports::Ports;
use crate::store::{Consistency, Key, get_every};

/// How far one of the catalog's tables is.
struct Standing {
    table: TableId,
    is_on: bool,
    /// Generation and version that it has followed; `None`: none yet.
    at: Option<(Generation, Version)>,
}

/// Brings the partition states of a table's committed proposals up to date that were left to a worker, or failed. Nothing is
/// asked where there is none of these; otherwise one look at the tables of the place, however many proposals there are,
/// and one batch get for the moments.
///
/// # Errors
/// The store's, and the catalog's.
pub async fn look_up(ports: &Ports, root: &Location, proposals: &mut [Proposal]) -> Result<(), CommitError> {
    let mut open: Vec<(&mut Proposal, Version)> = Vec::new();
    for proposal in proposals.iter_mut().filter(|proposal| proposal.root == *root) {
        let is_open = matches!(proposal.sync, SyncState::Queued(_) | SyncState::Failed(_));
        if let (true, Status::Committed { version }) = (is_open, proposal.status) {
            open.push((proposal, version));
        }
    }
    if open.is_empty() {
        return Ok(());
    }
    let standings = standings(ports, root).await?;
    let keys_of = |proposal: &Proposal, version| -> Vec<Key> {
        standings.iter().map(|one| synced_key(&one.table, proposal.generation, version)).collect()
    };
    let wanted: Vec<Key> = open.iter().flat_map(|(proposal, version)| keys_of(proposal, *version)).collect();
    let moments = get_every(&*ports.items, &*ports.clock, &wanted, Consistency::Strong).await?;
    for (proposal, version) in open {
        let Some(text) = followed(&standings, proposal.generation, version) else { continue };
        for key in keys_of(proposal, version) {
            if let Some(item) = moments.get(&key) {
                proposal.synced_ms = proposal.synced_ms.max(Some(decode_synced(item)?));
            }
        }
        proposal.sync = SyncState::Done(text);
    }
    Ok(())
}

async fn standings(ports: &Ports, root: &Location) -> Result<Vec<Standing>, CommitError> {
    let told = |error: crate::catalog::CatalogError| CommitError::Catalog(error.to_string());
    let mut found = Vec::new();
    for located in tables_at(&*ports.items, &*ports.clock, root).await.map_err(told)? {
        let table = located.table.table_id;
        let Some(definition) = read_definition(ports, &table).await.map_err(told)? else { continue };
        let at = load(ports, &table).await?.map(|cursor| (cursor.generation, cursor.version));
        found.push(Standing { table, is_on: is_on(&definition), at });
    }
    Ok(found)
}

/// What to say of a version, if no table has it before itself any more.
fn followed(standings: &[Standing], generation: Generation, version: Version) -> Option<String> {
    if standings.is_empty() {
        return Some("no table of the catalog lies here".into());
    }
    let on: Vec<&Standing> = standings.iter().filter(|one| one.is_on).collect();
    let last = on.iter().map(|one| one.at).min().flatten();
    match last {
        None if on.is_empty() => Some(format!("the catalog's table is not to follow ({SETTING})")),
        Some(at) if at >= (generation, version) => Some(format!("the catalog has followed up to version {}", at.1)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(is_on: bool, at: Option<(i64, i64)>) -> Standing {
        let at = at.map(|(generation, version)| (Generation(generation), Version(version)));
        Standing { table: TableId::from_text("t"), is_on, at }
    }

    #[test]
    fn every_table_that_follows_must_have_followed() {
        let said = |standings: &[Standing]| followed(standings, Generation(1), Version(5));
        assert_eq!(said(&[]).unwrap(), "no table of the catalog lies here");
        assert!(said(&[standing(false, None)]).unwrap().starts_with("the catalog's table is not to follow"));
        for (standings, is_done) in [
            (vec![standing(true, Some((1, 5)))], true),
            (vec![standing(true, Some((1, 9))), standing(true, Some((1, 5)))], true),
            (vec![standing(true, Some((2, 0)))], true),
            (vec![standing(true, Some((1, 5))), standing(false, None)], true),
            (vec![standing(true, Some((1, 4)))], false),
            (vec![standing(true, Some((0, 9)))], false),
            (vec![standing(true, None)], false),
            (vec![standing(true, Some((1, 9))), standing(true, None)], false),
            (vec![standing(true, Some((1, 9))), standing(true, Some((1, 4)))], false),
        ] {
            assert_eq!(said(&standings).is_some(), is_done);
        }
    }
}
