//! Tables elsewhere that may need files here: shallow clones, imported files, a data path inside our location. What each
//! table reaches is remembered, so that only those are read that may have changed since, or that do reach here.

use std::collections::{BTreeSet, HashSet};

use super::attempt::Attempt;
use super::knowledge::{Knowledge, Sourced, Standing};
use crate::catalog::locations::Use;
use crate::delta::log::LOG_DIR;
use crate::iceberg::head_named;
use crate::location::Location;
use crate::store::{ObjectError, StoreErrorKind};
use crate::sweep::directory::STAYS_AT_HOME;
use crate::sweep::items::{PLACES_MAX, PartitionsNoted, TablePlaces};
use crate::sweep::refs::Lens;
use crate::sweep::source::{Loaded, ReferenceSource, UntoldPlace};
use crate::sweep::survey::first_page;
use crate::sweep::{Interruption, Past, Refusal, RefusalReason, SweepError, TableEntry, TableFormat, TableUse};

/// Requests act on what they have read for so long: a writer of an earlier version may still not note where a partition
/// lies.
const WRITERS_MS: i64 = 15 * 60_000;

/// A table that could not be read.
struct Unread {
    why: Refusal,
    /// Whether there is metadata that somebody may be able to read.
    is_there: bool,
}

/// What a table reaches now, given what was known before: places that it once declared stay.
fn places_of(
    entry: &TableEntry,
    source: Option<&dyn ReferenceSource>,
    elsewhere: Option<BTreeSet<Location>>,
    past: BTreeSet<Location>,
    before: Option<&TablePlaces>,
) -> TablePlaces {
    let is_elsewhere = |folder: &Location| entry.location.as_ref().is_none_or(|home| !home.contains(folder));
    let mut declared = source.map(|source| source.declared()).unwrap_or_default();
    declared.extend(past);
    declared.retain(is_elsewhere);
    declared.extend(before.into_iter().flat_map(|before| before.declared.iter().cloned()));
    let has_room = declared.len() <= PLACES_MAX;
    TablePlaces {
        table_id: entry.id.clone(),
        pointer: source.map(|source| source.mark()).unwrap_or_default(),
        declared: declared.into_iter().take(PLACES_MAX).collect(),
        elsewhere: elsewhere.filter(|_| has_room),
        has_past: true,
        partitions: before.map(|before| before.partitions).unwrap_or_default(),
    }
}

impl<'a> Attempt<'a> {
    /// Reads the table's own references first, or goes on with them.
    pub(super) async fn load_own(&mut self, known: &mut Knowledge<'a>) -> Result<(), SweepError> {
        let entry = known.entry.clone();
        let lens = loop {
            self.check_time()?;
            self.keep_lease().await?;
            let until_ms = self.load_until_ms();
            let Some(own) = known.sources.first_mut() else { return Ok(()) };
            let home = || Lens::recording(entry.location.iter().cloned().collect());
            known.references.raise(known.partial.take().unwrap_or_else(home));
            let loaded = own.source.load(&mut known.references, until_ms).await;
            let lens = known.references.lower();
            known.delays.absorb(own.source.take_delays());
            known.survey.unconfirmed.extend(own.source.take_believed());
            known.has_news = true;
            if let Err(error) = &loaded
                && self.bring_back_metadata(error).await?
            {
                (known.partial, self.is_filter_stored, self.has_advanced) = (lens, false, true);
                continue;
            }
            if loaded? == Loaded::Whole {
                // Found again as it was stored is no step forward.
                self.has_advanced |= !self.is_filter_stored;
                break lens;
            }
            (known.partial, self.is_filter_stored, self.has_advanced) = (lens, false, true);
            if self.is_checkpoint_due() {
                self.checkpoint(known).await?;
            }
        };
        let Some(own) = known.sources.first() else { return Ok(()) };
        let before = known.places.get(&entry.id);
        let past = self.past_of(&entry, own.source.as_ref(), before).await?;
        let elsewhere = lens.as_ref().and_then(Lens::elsewhere).cloned();
        let places = places_of(&entry, Some(own.source.as_ref()), elsewhere, past, before);
        if before != Some(&places) {
            places.save(self.app.ports.items.as_ref()).await?;
            known.places.insert(entry.id.clone(), places);
        }
        // A later attempt that finds no more than this reads the state again, and where its files lie with it.
        known.partial = lens;
        Ok(())
    }

    /// Where a table wrote, or lay, before the state that was read now and after the one that an earlier sweep has seen:
    /// by kept versions of its entry in the catalog, and by older metadata files.
    async fn past_of(
        &self,
        entry: &TableEntry,
        source: &dyn ReferenceSource,
        before: Option<&TablePlaces>,
    ) -> Result<BTreeSet<Location>, SweepError> {
        let seen = before.filter(|before| before.has_past);
        let told = if seen.is_some() { Past::default() } else { self.directory.past(entry).await? };
        let since = seen.map(|seen| seen.pointer.as_str());
        let mut past = source.declared_before(since, &told.pointers).await?;
        past.extend(told.locations);
        past.extend(told.data_paths);
        Ok(past)
    }

    /// Adds what tables elsewhere need here. Called again, it looks only at those that changed.
    pub(super) async fn load_others(&mut self, known: &mut Knowledge<'a>) -> Result<(), SweepError> {
        let tables = self.directory.tables().await?;
        let there: HashSet<&str> = tables.iter().map(|table| table.id.as_str()).collect();
        for gone in known.places.values().filter(|places| !there.contains(places.table_id.as_str())) {
            gone.forget(self.app.ports.items.as_ref()).await?;
        }
        known.places.retain(|table_id, _| there.contains(table_id.as_str()));
        known.catalog.clone_from(&tables);
        for other in &tables {
            match self.add_more_places(other, known).await {
                Err(SweepError::Refused(why)) if why.reason != RefusalReason::OtherTableUnreadable => {
                    self.doubt(other, Unread { why, is_there: true }, known)?;
                }
                added => added?,
            }
            if other.id == self.record.table_id {
                continue;
            }
            self.check_time()?;
            self.keep_lease().await?;
            let is_read = known.sources.iter().any(|sourced| sourced.table_id == other.id);
            let looked = if is_read { Ok(()) } else { self.look_at(other, known).await };
            self.note_partitions(other, known).await?;
            match looked {
                Ok(()) => {}
                // Dropped, or something else by now: judged by the catalog as it is.
                Err(SweepError::Refused(why)) if why.reason == RefusalReason::TableUnknown => {
                    return Err(Interruption::Changed("the catalog's tables").into());
                }
                Err(SweepError::Refused(why)) => {
                    let unread = self.unread(other, why).await?;
                    self.doubt(other, unread, known)?;
                }
                Err(error) => return Err(error),
            }
        }
        self.protect_uses(&tables, known).await
    }

    /// Sees to it that partitions which lie outside their table are found by place.
    async fn note_partitions(&self, other: &TableEntry, known: &mut Knowledge<'a>) -> Result<(), SweepError> {
        let places = known.places.entry(other.id.clone()).or_insert_with(|| TablePlaces::unread(&other.id));
        if places.partitions == PartitionsNoted::Yes {
            return Ok(());
        }
        let now_ms = self.app.ports.clock.now_ms();
        let has_keys = self.directory.index_partitions(other).await?;
        let next = match places.partitions {
            PartitionsNoted::No if has_keys => PartitionsNoted::Once { first_ms: now_ms },
            PartitionsNoted::Once { first_ms } if now_ms < first_ms.saturating_add(WRITERS_MS) => return Ok(()),
            _ => PartitionsNoted::Yes,
        };
        places.partitions = next;
        Ok(places.save(self.app.ports.items.as_ref()).await?)
    }

    async fn look_at(&mut self, other: &TableEntry, known: &mut Knowledge<'a>) -> Result<(), SweepError> {
        if other.format()? == TableFormat::Other {
            return self.look_at_plain(other, known).await;
        }
        let mut source = self.source_of_other(other, &known.policy)?;
        if let Some(places) = known.places.get(&other.id)
            && places.has_past
            && !places.reaches(&known.table)
            && source.is_still(&places.pointer).await?
        {
            return Ok(());
        }
        let lens = Lens::new(&known.table, other.location.iter().cloned().collect());
        let lens = self.load_whole(source.as_mut(), known, lens).await?;
        let past = self.past_of(other, source.as_ref(), known.places.get(&other.id)).await?;
        let elsewhere = lens.as_ref().and_then(Lens::elsewhere).cloned();
        let places = places_of(other, Some(source.as_ref()), elsewhere, past, known.places.get(&other.id));
        let reaches = places.reaches(&known.table);
        let untold = source.untold().filter(|untold| reaches || untold.place == UntoldPlace::Anywhere);
        // One that was not read completely is read again by the next run, unless it is known to reach here anyway.
        if reaches || untold.is_none() {
            self.keep_places(places.clone(), known).await?;
        }
        if let Some(untold) = untold {
            return Err(untold.why.clone().into());
        }
        if reaches {
            known.protect(&places.declared);
            known.sources.push(Sourced { table_id: other.id.clone(), source, standing: Standing::Reaching });
        }
        Ok(())
    }

    /// Reads what another table needs, as far as the lens shows it.
    pub(super) async fn load_whole(
        &mut self,
        source: &mut dyn ReferenceSource,
        known: &mut Knowledge<'a>,
        lens: Lens,
    ) -> Result<Option<Lens>, SweepError> {
        let mut lens = lens;
        loop {
            known.references.raise(lens);
            let loaded = source.load(&mut known.references, self.load_until_ms()).await;
            let seen = known.references.lower();
            known.references.seal();
            match (loaded?, seen) {
                (Loaded::Part, Some(seen)) => lens = seen,
                (_, seen) => return Ok(seen),
            }
            self.check_time()?;
            self.keep_lease().await?;
        }
    }

    /// A table without metadata of its own: what is known of it is where it lies, and where it once lay.
    async fn look_at_plain(&mut self, other: &TableEntry, known: &mut Knowledge<'a>) -> Result<(), SweepError> {
        if other.lists_files() {
            self.add_listed(other, known).await?;
        }
        if !other.stays_at_home() {
            self.check_unmarked(other).await?;
        }
        if !known.places.get(&other.id).is_some_and(|places| places.has_past) {
            let past = self.directory.past(other).await?;
            let past = past.locations.into_iter().chain(past.data_paths).collect();
            let places = places_of(other, None, Some(BTreeSet::new()), past, known.places.get(&other.id));
            self.keep_places(places, known).await?;
        }
        let declared = known.places.get(&other.id).map(|places| places.declared.clone()).unwrap_or_default();
        known.protect(&declared);
        Ok(())
    }

    async fn keep_places(&self, places: TablePlaces, known: &mut Knowledge<'a>) -> Result<(), SweepError> {
        if known.places.get(&places.table_id) != Some(&places) {
            places.save(self.app.ports.items.as_ref()).await?;
            known.places.insert(places.table_id.clone(), places);
        }
        Ok(())
    }

    /// Partitions, and tables of the past, may lie anywhere; whatever is there belongs to them.
    async fn protect_uses(&self, tables: &[TableEntry], known: &mut Knowledge<'a>) -> Result<(), SweepError> {
        let uses = self.directory.uses_around(&known.table).await?;
        for used in &uses {
            let Some(other) = tables.iter().find(|table| table.id == used.table_id) else { continue };
            let is_at_home = other.location.as_ref().is_some_and(|home| home.contains(&used.location));
            if other.id == self.record.table_id || is_at_home {
                continue;
            }
            let is_recorded = !matches!(other.format(), Ok(TableFormat::Other));
            // Where a table lay before and what it needs of that is said by its metadata, or by its partitions.
            if used.what != Use::Past && !is_recorded && used.location.may_contain(&known.table) {
                let detail = format!(
                    "a part of {other} lies at {}, around {}: which files it needs is not recorded anywhere",
                    used.location, known.table
                );
                return Err(Refusal::new(RefusalReason::SharedLocation, detail).into());
            }
            known.protect(&BTreeSet::from([used.location.clone()]));
        }
        known.neighbours.uses = sorted(uses);
        Ok(())
    }

    /// A table that cannot be read may need any file. It stops the run, unless there is nothing that anybody could read
    /// (then nobody misses what it names), or its owner has said that all its files lie at its own place; and unless the
    /// sweep has seen files of it here, whatever else is said.
    fn doubt(&mut self, other: &TableEntry, unread: Unread, known: &Knowledge<'a>) -> Result<(), Refusal> {
        let Unread { why, is_there } = unread;
        let reached = known.places.get(&other.id).is_some_and(|places| places.reaches(&known.table));
        if reached {
            let detail = format!("{other} has had files in {} and cannot be read: {why}", known.table);
            return Err(Refusal::new(RefusalReason::OtherTableUnreadable, detail));
        }
        if !is_there {
            self.record.facts.find(format!("{other} has no metadata that could name files here: {why}"));
            return Ok(());
        }
        if other.stays_at_home() {
            let finding =
                format!("{other} cannot be read; its parameter {STAYS_AT_HOME} says that it has no files here: {why}");
            self.record.facts.find(finding);
            return Ok(());
        }
        let detail = format!(
            "{other} cannot be read, so whether it needs files in {} is not known: {why}. Mend it, drop it from the catalog, or \
             set its parameter {STAYS_AT_HOME} to true if all its files lie at its own location",
            known.table
        );
        Err(Refusal::new(RefusalReason::OtherTableUnreadable, detail))
    }

    /// Whether a table that could not be read has metadata at all. Where that cannot be looked at, it may.
    async fn unread(&mut self, other: &TableEntry, why: Refusal) -> Result<Unread, SweepError> {
        let is_there = match self.has_metadata(other).await {
            Err(SweepError::Refused(_)) => true,
            found => found?,
        };
        Ok(Unread { why, is_there })
    }

    async fn has_metadata(&mut self, other: &TableEntry) -> Result<bool, SweepError> {
        let app = self.app;
        let objects = app.ports.objects.as_ref();
        let is_there = match other.format() {
            Ok(TableFormat::Iceberg { pointer }) => match head_named(objects, &pointer).await {
                Ok(_) => true,
                Err(ObjectError::NotFound(_)) => false,
                Err(ObjectError::Store(error)) if error.kind == StoreErrorKind::Missing => false,
                Err(error) => return Err(error.into()),
            },
            Ok(TableFormat::Delta) => match &other.location {
                Some(root) => !first_page(objects, root, LOG_DIR, 1).await?.is_empty(),
                None => false,
            },
            // No pointer at all is none that could be followed; one into another store is.
            _ => other.has_pointer(),
        };
        // A pointer may lead nowhere, or be missing, and the table be read by what lies at its place.
        Ok(is_there || other.lists_files() || self.metadata_at(other).await?.is_some())
    }
}

/// In an order of their own, to be compared.
pub(super) fn sorted(mut uses: Vec<TableUse>) -> Vec<TableUse> {
    uses.sort();
    uses
}
