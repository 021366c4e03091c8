//! From the log to the references, by way of what an earlier run knew of it.

use super::gathering::Gathering;
use super::packed::LogPack;
use super::{DeltaSource, State};
use crate::delta::SnapshotError;
use crate::delta::counts::LastCheckpoint;
use crate::delta::log::LogListing;
use crate::delta::outline::read_outline;
use crate::sweep::refs::References;
use crate::sweep::source::Role;
use crate::sweep::{Interruption, Refusal, RefusalReason, SweepError};

impl DeltaSource<'_> {
    /// Adds what the log names, from what an earlier run knew of it where that can be gone on from.
    pub(super) async fn read_log(
        &mut self,
        listing: &LogListing,
        said: Option<&LastCheckpoint>,
        references: &mut References,
    ) -> Result<State, SweepError> {
        if let Some(pack) = self.load_pack(listing).await? {
            match self.read_from(listing, said, Some(pack), references).await {
                // All of it is read then: what was added by now keeps files for the length of this run.
                Ok(None) | Err(SweepError::Refused(_)) => self.facts.clear(),
                Ok(Some(state)) => return Ok(state),
                Err(error) => return Err(error),
            }
        }
        let state = self.read_from(listing, said, None, references).await?;
        // Only what is packed can be of no use.
        state.ok_or_else(|| Interruption::Changed("the table's log").into())
    }

    /// Of the swept table only, and while its log has the version that it tells of.
    async fn load_pack(&self, listing: &LogListing) -> Result<Option<LogPack>, SweepError> {
        if self.role == Role::Other || self.entry.found_as().is_some() {
            return Ok(None);
        }
        let objects = self.ports.objects.as_ref();
        let pack = LogPack::load(objects, &self.reports, &self.entry.id, &self.root).await?;
        Ok(pack.filter(|pack| {
            let (base, etag) = pack.base();
            listing.mark(base.version).is_some_and(|found| found.0 == etag)
        }))
    }

    /// `None`: it takes more than what is packed.
    async fn read_from(
        &mut self,
        listing: &LogListing,
        said: Option<&LastCheckpoint>,
        pack: Option<LogPack>,
        references: &mut References,
    ) -> Result<Option<State>, SweepError> {
        let objects = self.ports.objects.as_ref();
        let base = pack.as_ref().map(|pack| pack.base().0);
        self.facts = pack.as_ref().and_then(LogPack::facts).unwrap_or_default();
        self.facts.retain(|version, facts| listing.commit(*version).is_some_and(|found| found.etag.0 == facts.etag));
        let mut gathering = Gathering::new(&self.root, self.now_ms, self.role, self.keeps, references);
        let mut outline = match read_outline(objects, &self.root, listing, base.as_ref(), &mut gathering).await {
            // A folder of this name, and nothing that anybody takes for a table.
            Err(error @ (SnapshotError::NoTable(_) | SnapshotError::NoMetadata(_)))
                if self.entry.found_as().is_some() =>
            {
                return Err(Refusal::new(RefusalReason::TableUnknown, error.to_string()).into());
            }
            read => gathering.or_refused(read)?,
        };
        let (mut gathered, news) = gathering.finish();
        self.facts.extend(news);
        let is_news = base.is_none_or(|base| base.version != outline.version);
        if let Some(pack) = &pack {
            let since_ms = self.now_ms.saturating_sub(self.retention_of(&outline.metadata)?);
            if !pack.has_tombstones_since(since_ms) || !pack.add(&mut outline, references, &mut gathered) {
                return Ok(None);
            }
        }
        drop(pack);
        if let Some(said) = said {
            let read = outline.checkpoint.as_ref();
            self.check_agrees(said.contradiction(listing.latest(), &outline.protocol, read))?;
        }
        self.check_checksum(&outline).await?;
        let ratifier = self.ratifier(&outline).await?;
        let state = self.check_snapshot(&outline, listing, ratifier)?;
        // Without a date it counts as long expired, as for every reader of the log.
        let cut_off_ms = self.now_ms.saturating_sub(state.retention_ms);
        gathered.removed_since(cut_off_ms, &mut |exact, loose| references.add_hashed(exact, loose));
        references.seal();
        let known = self.facts.len();
        self.add_change_files(listing, &outline, state.retention_ms, references).await?;
        self.measure(listing).await?;
        if self.role == Role::Own && self.keeps && (is_news || self.facts.len() != known) {
            let place = (&self.reports, self.entry.id.as_str(), &self.root);
            let told = (&outline, &state.etag, &*references);
            gathered.store(self.ports.objects.as_ref(), place, told, &self.facts, cut_off_ms).await?;
        }
        Ok(Some(state))
    }
}
