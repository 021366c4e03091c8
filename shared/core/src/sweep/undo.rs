//! What a sweep took away, and how it comes back.
//!
//! In a bucket that keeps versions a deleted file hides behind a delete marker; the run's report names it, and the file is
//! back when that marker is gone. Elsewhere files are copied into the bucket's quarantine before they are deleted:
//! `<quarantine>/<key>/<table id>/<run id>`. Nothing here ever replaces an object that is there.

use serde_json::Value;

use crate::location::Location;
use crate::ports::{App, Settings};
use crate::store::{
    ETag, GetOptions, ListRequest, ObjectError, ObjectKey, Objects, StoreError, StoreErrorKind, VersionId,
    VersionRequest, VersionState, Versioning,
};
use crate::sweep::SweepError;
use crate::sweep::items::RunRecord;
use crate::sweep::report::{Part, part_key};

/// Name of what became of an orphan that lies in quarantine now.
pub const QUARANTINED: &str = "quarantined";
/// Name of what became of an orphan that was deleted, with a marker or for good.
pub const DELETED: &str = "deleted";

/// How what a run deletes can come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The bucket keeps it behind delete markers.
    Markers,
    /// It is moved aside for as long.
    Quarantine { keep_ms: i64 },
    /// It does not.
    Never,
}

impl Way {
    pub fn as_str(self) -> &'static str {
        match self {
            Way::Markers => "delete_markers",
            Way::Quarantine { .. } => "quarantine",
            Way::Never => "none",
        }
    }
}

/// The quarantine of a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quarantine {
    pub root: Location,
}

/// Where a file in quarantine came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    pub at: ObjectKey,
    pub table_id: String,
    pub run_id: String,
}

impl Quarantine {
    pub fn of(settings: &Settings, bucket: &str) -> Self {
        Self { root: Location::new(bucket, &settings.undo.folder) }
    }

    /// Where copies of files lie whose keys begin so.
    pub fn prefix(&self, of_keys: &str) -> String {
        format!("{}{of_keys}", self.root.key_prefix())
    }

    pub fn place(&self, key: &str, table_id: &str, run_id: &str) -> ObjectKey {
        ObjectKey::new(self.root.bucket.clone(), format!("{}/{table_id}/{run_id}", self.prefix(key)))
    }

    /// `None`: no run put it there.
    pub fn origin(&self, place: &str) -> Option<Origin> {
        let inside = place.strip_prefix(&self.root.key_prefix())?;
        let mut parts = inside.rsplitn(3, '/');
        let (run_id, table_id, key) = (parts.next()?, parts.next()?, parts.next()?);
        let is_whole = !run_id.is_empty() && !table_id.is_empty() && !key.is_empty();
        is_whole.then(|| Origin {
            at: ObjectKey::new(self.root.bucket.clone(), key),
            table_id: table_id.to_owned(),
            run_id: run_id.to_owned(),
        })
    }
}

/// Where a file is that a run took away, by the run's report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    Quarantine { place: String, etag: ETag },
    Marker { id: VersionId, etag: ETag },
    Nowhere,
}

/// A line of a report on a file that was taken away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removal {
    pub key: String,
    pub size_bytes: u64,
    pub kept: Kept,
}

impl Removal {
    /// `None`: the line is on something else.
    pub fn parse(line: &Value) -> Option<Self> {
        let text = |member: &str| line.get(member).and_then(Value::as_str).map(str::to_owned);
        let outcome = text("outcome").filter(|outcome| [DELETED, QUARANTINED].contains(&outcome.as_str()))?;
        let kept = match (text("quarantine"), text("copy_etag"), text("marker"), text("etag")) {
            (Some(place), Some(etag), _, _) if outcome == QUARANTINED => Kept::Quarantine { place, etag: ETag(etag) },
            (_, _, Some(id), Some(etag)) => Kept::Marker { id: VersionId(id), etag: ETag(etag) },
            _ => Kept::Nowhere,
        };
        let size_bytes = line.get("size_bytes").and_then(Value::as_u64).unwrap_or_default();
        Some(Self { key: text("key")?, size_bytes, kept })
    }
}

/// What became of the wish to have a file back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Undone {
    Restored,
    /// An object has the key; it was left alone.
    Exists,
    /// It was kept, and is not any more: it expired, somebody removed it, or deleted the file again.
    Gone,
    /// It was deleted where nothing is kept.
    NotRecoverable,
    /// The store does not do it, in its words.
    Failed(String),
}

impl Undone {
    pub fn as_str(&self) -> &'static str {
        match self {
            Undone::Restored => "restored",
            Undone::Exists => "exists",
            Undone::Gone => "gone",
            Undone::NotRecoverable => "not_recoverable",
            Undone::Failed(_) => "failed",
        }
    }
}

/// Errors that may pass are the caller's; the others are this file's.
fn failed(error: ObjectError) -> Result<Undone, StoreError> {
    match error {
        ObjectError::Store(error) if error.is_retryable() => Err(error),
        ObjectError::ConditionalConflict(at) => {
            let message = "another conditional request was under way";
            Err(StoreError::new(StoreErrorKind::Unavailable, format!("restore {at}"), message))
        }
        other => Ok(Undone::Failed(other.to_string())),
    }
}

async fn exists(objects: &dyn Objects, at: &ObjectKey) -> Result<bool, ObjectError> {
    match objects.head(at).await {
        Ok(_) => Ok(true),
        Err(ObjectError::NotFound(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Brings a file back from quarantine: one COPY and one DELETE, or one COPY and one HEAD where it cannot be.
///
/// # Errors
/// A store that does not answer: what is done so far does no harm when it is done again.
pub async fn restore_copy(
    objects: &dyn Objects,
    place: &ObjectKey,
    etag: &ETag,
    to: &ObjectKey,
) -> Result<Undone, StoreError> {
    let (is_copy_there, refused) = match objects.create_copy(place, etag, to).await {
        Ok(_) => {
            // A copy that stays behind does no harm: it is found to be superfluous when it expires.
            return match objects.delete(place, Some(etag)).await {
                Err(ObjectError::Store(error)) => {
                    tracing::info!(%place, %error, "a restored file's copy stays in quarantine until it expires");
                    Ok(Undone::Restored)
                }
                _ => Ok(Undone::Restored),
            };
        }
        Err(ObjectError::NotFound(_)) => (false, String::new()),
        Err(ObjectError::PreconditionFailed(_)) => (true, format!("{place} is not what was put there")),
        Err(error) => return failed(error),
    };
    match exists(objects, to).await {
        Ok(true) => Ok(Undone::Exists),
        Ok(false) if is_copy_there => Ok(Undone::Failed(refused)),
        Ok(false) => Ok(Undone::Gone),
        Err(error) => failed(error),
    }
}

/// Removes the delete marker that hides exactly this object, if nothing came since: one LIST of versions and one DELETE.
///
/// # Errors
/// A store that does not answer.
pub async fn restore_marker(
    objects: &dyn Objects,
    at: &ObjectKey,
    marker: &VersionId,
    etag: &ETag,
) -> Result<Undone, StoreError> {
    let request = VersionRequest { bucket: at.bucket.clone(), prefix: at.key.clone(), after: None, max_keys: 2 };
    let page = match objects.list_versions(&request).await {
        Ok(page) => page,
        Err(error) => return failed(error),
    };
    let mut versions = page.versions.iter().filter(|version| version.key == at.key);
    let (newest, hidden) = (versions.next(), versions.next());
    let is_ours = newest.is_some_and(|one| one.id == *marker && one.state == VersionState::DeleteMarker);
    let is_same =
        hidden.is_some_and(|one| matches!(&one.state, VersionState::Object { etag: found, .. } if found == etag));
    match newest.map(|one| &one.state) {
        Some(VersionState::Object { .. }) => Ok(Undone::Exists),
        // Whoever puts an object here now puts it above the marker: removing that changes nothing for it.
        Some(VersionState::DeleteMarker) if is_ours && is_same => match objects.delete_version(at, marker).await {
            Ok(()) => Ok(Undone::Restored),
            Err(error) => failed(error),
        },
        _ => Ok(Undone::Gone),
    }
}

/// Brings one file back, from wherever it is kept.
///
/// # Errors
/// A store that does not answer.
pub async fn restore(objects: &dyn Objects, bucket: &str, removal: &Removal) -> Result<Undone, StoreError> {
    let at = ObjectKey::new(bucket, removal.key.clone());
    match &removal.kept {
        Kept::Quarantine { place, etag } => {
            restore_copy(objects, &ObjectKey::new(bucket, place.clone()), etag, &at).await
        }
        Kept::Marker { id, etag } => restore_marker(objects, &at, id, etag).await,
        Kept::Nowhere => match exists(objects, &at).await {
            Ok(true) => Ok(Undone::Exists),
            Ok(false) => Ok(Undone::NotRecoverable),
            Err(error) => failed(error),
        },
    }
}

/// The files that a part of a run's report says were taken away.
pub async fn removals(app: &App, run: &RunRecord, number: i64) -> Result<Vec<Removal>, SweepError> {
    let at = part_key(&app.settings.reports, run, Part::Outcomes { number });
    let part = match app.ports.objects.get(&at, &GetOptions::default()).await {
        Ok(part) => part,
        // Counted, and never written: its number was passed over.
        Err(ObjectError::NotFound(_)) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let lines = part.bytes.split(|byte| *byte == b'\n').map(<[u8]>::to_vec);
    let values = lines.filter_map(|line| serde_json::from_slice::<Value>(&line).ok());
    Ok(values.filter_map(|line| Removal::parse(&line)).collect())
}

/// Whether a run may have taken files away.
pub fn has_removed(run: &RunRecord) -> bool {
    run.report.outcomes > 0 && run.mode.deletes()
}

/// Files that are wanted again: each that is missing is brought back from the quarantine of its bucket, or from behind
/// the delete marker of a run on one of these tables. Answers those that were, and what stood in the way of others.
///
/// Costs one LIST for each missing file that is in no quarantine, and, in a bucket with versions, one GET for each part of
/// the reports of the tables' runs.
///
/// # Errors
/// A store that does not answer.
pub async fn recover(
    app: &App,
    tables: &[String],
    missing: &[ObjectKey],
) -> Result<Vec<(ObjectKey, Undone)>, SweepError> {
    let objects = app.ports.objects.as_ref();
    let (mut found, mut left) = (Vec::new(), Vec::new());
    for at in missing {
        match newest_copy(app, at).await? {
            Some((place, etag)) => found.push((at.clone(), restore_copy(objects, &place, &etag, at).await?)),
            None => left.push(at.clone()),
        }
    }
    let Some(bucket) = left.first().map(|at| at.bucket.clone()) else { return Ok(found) };
    if objects.versioning(&bucket).await? != Versioning::Enabled {
        return Ok(found);
    }
    for table_id in tables {
        for run in RunRecord::load_all(app.ports.items.as_ref(), table_id).await?.iter().filter(|run| has_removed(run))
        {
            for number in (0..run.report.outcomes).rev() {
                if left.is_empty() {
                    return Ok(found);
                }
                for removal in removals(app, run, number).await? {
                    let place = left.iter().position(|at| at.key == removal.key && at.bucket == bucket);
                    let Some(place) = place.filter(|_| removal.kept != Kept::Nowhere) else { continue };
                    let undone = restore(objects, &bucket, &removal).await?;
                    // An older run's marker may lie below that of a newer one: only the newest counts.
                    if undone != Undone::Gone {
                        found.push((left.swap_remove(place), undone));
                    }
                }
            }
        }
    }
    Ok(found)
}

/// The copy of a file that was put into quarantine last.
async fn newest_copy(app: &App, at: &ObjectKey) -> Result<Option<(ObjectKey, ETag)>, SweepError> {
    let quarantine = Quarantine::of(&app.settings, &at.bucket);
    let request = ListRequest {
        bucket: at.bucket.clone(),
        prefix: quarantine.prefix(&format!("{}/", at.key)),
        start_after: None,
        max_keys: crate::limits::LIST_PAGE_MAX_KEYS,
    };
    let page = app.ports.objects.list(&request).await?;
    let copies =
        page.objects.into_iter().filter(|copy| quarantine.origin(&copy.key).is_some_and(|from| from.at == *at));
    let newest = copies.max_by_key(|copy| copy.last_modified_ms);
    Ok(newest.map(|copy| (ObjectKey::new(at.bucket.clone(), copy.key), copy.etag)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_place_says_where_its_file_came_from() {
        let quarantine = Quarantine::of(&Settings::default(), "b");
        for key in ["t/data/a.parquet", "a", "t/folder/", "t//x", "t/k=a b/ü", "r/s/t"] {
            let place = quarantine.place(key, "table", "00-run");
            assert!(place.key.starts_with(&quarantine.prefix(key)), "{place}");
            let origin = quarantine.origin(&place.key).unwrap();
            assert_eq!(
                (origin.at, origin.table_id, origin.run_id),
                (ObjectKey::new("b", key), "table".into(), "00-run".into())
            );
        }
        for other in
            ["t/data/a.parquet", "lakewarden-quarantine/a", "lakewarden-quarantine/a/b", "lakewarden-quarantine/a/b/"]
        {
            assert_eq!(quarantine.origin(other), None, "{other}");
        }
    }

    #[test]
    fn a_line_says_where_its_file_is() {
        let kept = |line: Value| Removal::parse(&line).map(|removal| removal.kept);
        let (etag, copy) = (ETag("e".into()), ETag("c".into()));
        let moved = json!({"key": "k", "outcome": "quarantined", "etag": "e", "quarantine": "q/k", "copy_etag": "c"});
        assert_eq!(kept(moved), Some(Kept::Quarantine { place: "q/k".into(), etag: copy }));
        let marked = json!({"key": "k", "outcome": "deleted", "etag": "e", "marker": "m"});
        assert_eq!(kept(marked), Some(Kept::Marker { id: VersionId("m".into()), etag }));
        assert_eq!(kept(json!({"key": "k", "outcome": "deleted"})), Some(Kept::Nowhere));
        assert_eq!(kept(json!({"key": "k", "outcome": "changed", "marker": "m", "etag": "e"})), None);
        assert_eq!(kept(json!({"key": "k", "decision": "delete"})), None);
    }
}
