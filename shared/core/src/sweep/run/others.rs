//! Tables elsewhere that may need files here: shallow clones, imported files, a data path inside our location. What each
//! table reaches is remembered, so that only those are read that may have changed since, or that do reach here.

use std::collections::{BTreeSet, HashSet};

use super::attempt::Attempt;
use super::knowledge::{Knowledge, Sourced, Standing};
use crate::location::Location;
use crate::sweep::items::{PLACES_MAX, TablePlaces};
use crate::sweep::refs::Lens;
use crate::sweep::source::{ReferenceSource, Role, source_for};
use crate::sweep::{Refusal, RefusalReason, SweepError, TableEntry, TableFormat};

/// What a table reaches now, given what was known before: places that it once declared stay.
fn places_of(
    entry: &TableEntry,
    source: &dyn ReferenceSource,
    lens: Option<&Lens>,
    before: Option<&TablePlaces>,
) -> TablePlaces {
    let is_elsewhere = |folder: &&Location| entry.location.as_ref().is_none_or(|home| !home.contains(folder));
    let mut declared: BTreeSet<Location> = source.declared().iter().filter(is_elsewhere).cloned().collect();
    declared.extend(before.into_iter().flat_map(|before| before.declared.iter().cloned()));
    let has_room = declared.len() <= PLACES_MAX;
    TablePlaces {
        table_id: entry.id.clone(),
        pointer: source.mark(),
        declared: declared.into_iter().take(PLACES_MAX).collect(),
        elsewhere: lens.and_then(Lens::elsewhere).filter(|_| has_room).cloned(),
    }
}

impl<'a> Attempt<'a> {
    /// Reads the table's own references first.
    pub(super) async fn load_own(&mut self, known: &mut Knowledge<'a>, entry: &TableEntry) -> Result<(), SweepError> {
        let Some(own) = known.sources.first_mut() else { return Ok(()) };
        known.references.raise(Lens::recording(entry.location.iter().cloned().collect()));
        let loaded = own.source.load(&mut known.references).await;
        let lens = known.references.lower();
        loaded?;
        let before = known.places.get(&entry.id);
        let places = places_of(entry, own.source.as_ref(), lens.as_ref(), before);
        if before != Some(&places) {
            places.save(self.app.ports.items.as_ref()).await?;
            known.places.insert(entry.id.clone(), places);
        }
        Ok(())
    }

    /// Adds what tables elsewhere need here. Called again, it looks only at those that changed.
    pub(super) async fn load_others(&mut self, known: &mut Knowledge<'a>) -> Result<(), SweepError> {
        let tables = self.directory.tables().await?;
        let there: HashSet<&str> = tables.iter().map(|table| table.id.as_str()).collect();
        for gone in known.places.values().filter(|places| !there.contains(places.table_id.as_str())) {
            gone.forget(self.app.ports.items.as_ref()).await?;
        }
        known.places.retain(|table_id, _| there.contains(table_id.as_str()));
        for other in tables {
            if known.sources.iter().any(|sourced| sourced.table_id == other.id) {
                continue;
            }
            self.check_time()?;
            self.keep_lease().await?;
            match self.look_at(&other, known).await {
                Ok(()) => {}
                Err(SweepError::Refused(why)) if why.reason == RefusalReason::SharedLocation => return Err(why.into()),
                Err(SweepError::Refused(why)) => self.doubt(&other, &why, known)?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn look_at(&mut self, other: &TableEntry, known: &mut Knowledge<'a>) -> Result<(), SweepError> {
        if other.format()? == TableFormat::Other {
            return self.protect_partitions(other, known).await;
        }
        let context = self.source_context(Role::Other, &known.policy);
        let mut source = source_for(&self.app.ports, self.directory, other, context)?;
        if let Some(places) = known.places.get(&other.id)
            && !places.reaches(&known.table)
            && source.is_still(&places.pointer).await?
        {
            return Ok(());
        }
        known.references.raise(Lens::new(&known.table, other.location.iter().cloned().collect()));
        let loaded = source.load(&mut known.references).await;
        let lens = known.references.lower();
        known.references.seal();
        loaded?;
        let places = places_of(other, source.as_ref(), lens.as_ref(), known.places.get(&other.id));
        if known.places.get(&other.id) != Some(&places) {
            places.save(self.app.ports.items.as_ref()).await?;
        }
        if places.reaches(&known.table) {
            known.protect(&places.declared);
            known.sources.push(Sourced { table_id: other.id.clone(), source, standing: Standing::Reaching });
        }
        known.places.insert(other.id.clone(), places);
        Ok(())
    }

    /// Partitions of a table without metadata of its own may lie anywhere; whatever is there belongs to them.
    async fn protect_partitions(&mut self, other: &TableEntry, known: &mut Knowledge<'a>) -> Result<(), SweepError> {
        let places = self.directory.partitions_elsewhere(other, &known.table).await?;
        if let Some(place) = places.iter().find(|place| place.contains(&known.table)) {
            let detail = format!(
                "a partition of {other} lies at {place}, around {}: which files it needs is not recorded anywhere",
                known.table
            );
            return Err(Refusal::new(RefusalReason::SharedLocation, detail).into());
        }
        known.protect(&places.into_iter().collect());
        Ok(())
    }

    /// A table that cannot be read: one that had files here stops the run, others are named in its record.
    fn doubt(&mut self, other: &TableEntry, why: &Refusal, known: &Knowledge<'a>) -> Result<(), Refusal> {
        let reached = known.places.get(&other.id).is_some_and(|places| places.reaches(&known.table));
        if reached {
            let detail = format!("{other} has had files in {} and cannot be read: {why}", known.table);
            return Err(Refusal::new(RefusalReason::OtherTableUnreadable, detail));
        }
        self.record.facts.find(format!("{other} cannot be read, so whether it needs files here is not known: {why}"));
        Ok(())
    }
}
