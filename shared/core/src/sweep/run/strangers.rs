//! Tables that no catalog has told of: found in the listing, or at a place that an entry names beside its location. What
//! lies at their place is kept; what they name elsewhere, as shallow clones and imported files do, is kept as well.

use super::attempt::Attempt;
use super::knowledge::{Knowledge, Sourced, Standing};
use super::signs::{METADATA_DIR, spellings};
use crate::delta::log::LOG_DIR;
use crate::iceberg::is_metadata_name;
use crate::location::Location;
use crate::sweep::directory::Unregistered;
use crate::sweep::refs::Lens;
use crate::sweep::survey::{ForeignSign, Sign, first_page, list_if_there, list_request};
use crate::sweep::{Refusal, RefusalReason, SweepError, TableEntry, TableFormat};

impl Knowledge<'_> {
    /// Whether what was found at a place is of a table of the catalog, which is read, or has stopped the run.
    fn is_registered(&self, what: Unregistered, place: &Location) -> bool {
        let is_at = |one: &Location, other: &Location| one.may_contain(other) && other.may_contain(one);
        self.catalog.iter().any(|entry| {
            let lies_at = |place: &Location| entry.location.as_ref().is_some_and(|home| is_at(home, place));
            let root = place.prefix.strip_suffix(METADATA_DIR).map(|root| root.trim_end_matches('/'));
            let is_root = || {
                let root = root.map(|root| Location { bucket: place.bucket.clone(), prefix: root.to_owned() });
                root.is_some_and(|root| lies_at(&root))
            };
            match (what, entry.format()) {
                (Unregistered::Delta, format) => lies_at(place) && format == Ok(TableFormat::Delta),
                (Unregistered::IcebergMetadata, Ok(TableFormat::Iceberg { .. })) => {
                    is_root() || lies_at(place) || entry.pointer_folder().is_some_and(|folder| is_at(&folder, place))
                }
                // Written in both formats.
                (Unregistered::IcebergMetadata, Ok(TableFormat::Delta)) => is_root(),
                (Unregistered::IcebergMetadata, _) => false,
            }
        })
    }
}

fn stands_for(found: &ForeignSign) -> Option<Unregistered> {
    match found.sign {
        Sign::DeltaLog => Some(Unregistered::Delta),
        Sign::IcebergMetadata => Some(Unregistered::IcebergMetadata),
        // Such tables name their files by their places.
        Sign::Hoodie => None,
    }
}

impl<'a> Attempt<'a> {
    /// Reads the tables whose signs the listing has shown, as far as they were not read yet.
    pub(super) async fn add_strangers(&mut self, known: &mut Knowledge<'a>) -> Result<(), SweepError> {
        for found in known.foreign_signs.clone() {
            let place = |prefix: &str| Location { bucket: known.table.bucket.clone(), prefix: prefix.to_owned() };
            let Some(what) = stands_for(&found) else { continue };
            // Around the table: all of it is kept.
            if place(&found.root).contains(&known.table) || known.is_registered(what, &place(&found.folder)) {
                continue;
            }
            let folder = place(&found.folder);
            self.add_stranger(what, &folder, known).await?;
        }
        Ok(())
    }

    /// Reads the tables that lie at places which an entry names beside its location.
    pub(super) async fn add_more_places(
        &mut self,
        other: &TableEntry,
        known: &mut Knowledge<'a>,
    ) -> Result<(), SweepError> {
        for place in other.more_places().iter().flat_map(spellings) {
            let objects = self.app.ports.objects.as_ref();
            let metadata =
                Location { bucket: place.bucket.clone(), prefix: format!("{}{METADATA_DIR}", place.key_prefix()) };
            let mut found = Vec::new();
            if !first_page(objects, &place, LOG_DIR, 1).await?.is_empty() {
                found.push((Unregistered::Delta, place));
            }
            let prefix = metadata.key_prefix();
            // Where there is no such bucket, nothing is named.
            let page = list_if_there(objects, &list_request(&metadata)).await?;
            let listed = page.map(|page| page.objects).unwrap_or_default();
            let mut names = listed.iter().filter_map(|object| object.key.strip_prefix(&prefix));
            if names.any(|name| !name.contains('/') && is_metadata_name(name)) {
                found.push((Unregistered::IcebergMetadata, metadata));
            }
            for (what, place) in found {
                if !known.is_registered(what, &place) && self.add_stranger(what, &place, known).await? {
                    let finding = format!(
                        "{other} names a place at which a table lies that the catalog does not know: what {place} names \
                         is kept"
                    );
                    self.record.facts.find(finding);
                }
            }
        }
        Ok(())
    }

    /// Adds what a table names that no catalog has told of; whether there is one. One that somebody may be able to read,
    /// though not we, stops the run.
    async fn add_stranger(
        &mut self,
        what: Unregistered,
        place: &Location,
        known: &mut Knowledge<'a>,
    ) -> Result<bool, SweepError> {
        let entry = TableEntry::unregistered(what, place);
        if known.sources.iter().any(|sourced| sourced.table_id == entry.id) {
            return Ok(true);
        }
        self.check_time()?;
        self.keep_lease().await?;
        let mut source = self.source_of_other(&entry, &known.policy)?;
        let loaded = self.load_whole(source.as_mut(), known, Lens::new(&known.table, vec![place.clone()])).await;
        let untold = source.untold().map(|untold| SweepError::from(untold.why.clone()));
        match loaded.and_then(|_| untold.map_or(Ok(()), Err)) {
            Ok(()) => {}
            // Nothing that makes a table.
            Err(SweepError::Refused(why)) if why.reason == RefusalReason::TableUnknown => return Ok(false),
            Err(SweepError::Refused(why)) => {
                let detail = format!(
                    "{entry} cannot be read, so whether it needs files in {} is not known: {}. Register it in the catalog, \
                     mend it, or remove it",
                    known.table, why.detail
                );
                return Err(Refusal::new(RefusalReason::OtherTableUnreadable, detail).into());
            }
            Err(error) => return Err(error),
        }
        known.protect(&source.declared());
        known.sources.push(Sourced { table_id: entry.id, source, standing: Standing::Reaching });
        (known.has_news, self.is_filter_stored) = (true, false);
        Ok(true)
    }

    /// Names the tables around and inside that the catalog does not know.
    pub(super) fn report_roots(&mut self, known: &Knowledge<'a>) {
        for found in &known.foreign_signs {
            let place = |prefix: &str| Location { bucket: known.table.bucket.clone(), prefix: prefix.to_owned() };
            if stands_for(found).is_some_and(|what| known.is_registered(what, &place(&found.folder))) {
                continue;
            }
            let root = place(&found.root);
            let finding = format!("a table that the catalog does not know lies at {root}: everything below it is kept");
            self.record.facts.find(finding);
        }
    }
}
