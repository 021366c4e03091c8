//! What commits under way name, by what they have left beside the table's own metadata.

use super::{ATTEMPTS_MAX, FLINK_PATH, IcebergSource};
use crate::iceberg::{FlinkCommit, IcebergError, ManifestRef, load_attempt, load_manifest};
use crate::location::Location;
use crate::store::ObjectKey;
use crate::sweep::flink::TempManifest;
use crate::sweep::refs::{Held, References};
use crate::sweep::source::Role;
use crate::sweep::survey::{MetadataFile, Survey, list_below};
use crate::sweep::{Refusal, RefusalReason, SweepError};

impl IcebergSource<'_> {
    /// Manifests of Flink's checkpoints that are not committed, and every file they name.
    pub(super) async fn examine_flink(
        &self,
        survey: &Survey,
        beside: &[MetadataFile],
        references: &mut References,
    ) -> Result<(), SweepError> {
        let Some(metadata) = &self.metadata else { return Ok(()) };
        let mut found: Vec<MetadataFile> = beside.to_vec();
        // Where two tables share a place, those of an unknown job may be of either.
        found.extend(
            survey.temp_manifests.iter().filter(|file| self.role == Role::Own || self.in_ours(&file.at)).cloned(),
        );
        let elsewhere = metadata.properties.get(FLINK_PATH).and_then(|uri| Location::parse(uri).ok());
        let is_elsewhere = |folder: &Location| !self.entry.location.as_ref().is_some_and(|home| home.contains(folder));
        if let Some(folder) = elsewhere.filter(is_elsewhere) {
            for object in list_below(self.ports.objects.as_ref(), &folder).await? {
                found.push(MetadataFile::of(&folder.bucket, &object));
            }
        }
        let commits: Vec<FlinkCommit> =
            metadata.snapshots.iter().filter_map(|snapshot| snapshot.flink.clone()).collect();
        for file in found {
            let name = file.at.key.rsplit('/').next().unwrap_or_default();
            let age_ms = self.now_ms.saturating_sub(file.last_modified_ms);
            let is_pending = TempManifest::parse(name).is_some_and(|manifest| manifest.is_pending(&commits, age_ms));
            if is_pending && references.held(&file.at) != Held::Referenced {
                self.add_temp_manifest(&file.at, references).await?;
            }
        }
        references.seal();
        Ok(())
    }

    /// What young manifests and lists name that no snapshot has: a commit that is being made, or that lost and is tried
    /// again, is one family with files that it wrote long before.
    pub(super) async fn examine_attempts(
        &self,
        survey: &Survey,
        beside: &[MetadataFile],
        references: &mut References,
    ) -> Result<(), SweepError> {
        let surveyed = survey.attempts.iter().filter(|file| self.in_ours(&file.at));
        let beside = beside.iter().filter(|file| file.at.key.ends_with(".avro"));
        let mut found: Vec<MetadataFile> = surveyed.chain(beside).cloned().collect();
        found.sort_by(|one, other| one.at.cmp(&other.at));
        found.dedup_by(|one, other| one.at == other.at);
        found.retain(|file| {
            file.last_modified_ms >= survey.young_since_ms
                && references.held(&file.at) == Held::No
                && !self.reachable.has_walked(&file.at)
        });
        if found.len() > ATTEMPTS_MAX {
            let detail =
                format!("{} young manifests belong to no snapshot: too many to see what they name", found.len());
            return Err(Refusal::new(RefusalReason::PendingUnreadable, detail).into());
        }
        for file in found {
            match load_attempt(self.ports.objects.as_ref(), &file.at).await {
                Ok(named) => named.iter().for_each(|at| references.add_pending(at)),
                Err(error @ IcebergError::Store(_)) => return Err(error.into()),
                Err(error) => {
                    let detail = format!("a manifest that may still be committed cannot be read: {error}");
                    return Err(Refusal::new(RefusalReason::PendingUnreadable, detail).into());
                }
            }
        }
        references.seal();
        Ok(())
    }

    async fn add_temp_manifest(&self, at: &ObjectKey, references: &mut References) -> Result<(), SweepError> {
        references.add_pending(at);
        match load_manifest(self.ports.objects.as_ref(), ManifestRef::bare(at.clone())).await {
            Ok(entries) => entries.iter().for_each(|entry| references.add_pending(&entry.at)),
            // Committed or given up since the listing.
            Err(IcebergError::Missing { .. }) => {}
            Err(error @ IcebergError::Store(_)) => return Err(error.into()),
            Err(error) => {
                let detail = format!("a checkpoint that Flink may still commit cannot be read: {error}");
                return Err(Refusal::new(RefusalReason::PendingUnreadable, detail).into());
            }
        }
        Ok(())
    }
}
