//! What a sweep took away, and how it comes back.
//!
//! In a bucket that keeps versions a deleted file hides behind a delete marker; the run's report names it, and the file is
//! back when that marker is gone. Elsewhere files are copied into the bucket's quarantine before they are deleted:
//! `<quarantine>/<key>/<table id>/<run id>`. Nothing here ever replaces an object that is there.

use serde_json::Value;

use crate::delta::log::{LOG_DIR, STAGED_DIR};
use crate::limits::LIST_PAGE_MAX_KEYS;
use crate::location::Location;
use crate::ports::{App, Settings};
use crate::store::{
    ETag, GetOptions, ListedVersion, ObjectError, ObjectKey, Objects, StoreError, StoreErrorKind, VersionId,
    VersionMark, VersionRequest, VersionState,
};
use crate::sweep::items::RunRecord;
use crate::sweep::report::{Part, part_key};
use crate::sweep::{RefusalReason, SweepError};

/// How far the clocks of the store and of runs may be apart.
const CLOCKS_APART_MS: i64 = 300_000;

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

/// Whether this is the key of a staged commit: an object there raises an event, and is judged.
pub fn is_staged(key: &str) -> bool {
    let folder = format!("{LOG_DIR}/{STAGED_DIR}/");
    key.starts_with(&folder) || key.contains(&format!("/{folder}"))
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
    Quarantine {
        place: String,
        etag: ETag,
    },
    Marker {
        id: VersionId,
        etag: ETag,
    },
    /// Behind a marker that no report names; whatever the newest object below it is.
    Unreported {
        id: VersionId,
    },
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
    /// No run took it, and it is not there.
    NotFound,
    /// A staged commit, which is left where it lies: back at its place it would be judged anew, whatever became of it.
    Staged,
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
            Undone::NotFound => "not_found",
            Undone::Staged => "staged_commit_not_restored",
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

pub(super) async fn exists(objects: &dyn Objects, at: &ObjectKey) -> Result<bool, ObjectError> {
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
        // Somebody is bringing it back at this moment, and may be done.
        Err(error @ ObjectError::ConditionalConflict(_)) => {
            return match exists(objects, to).await {
                Ok(true) => Ok(Undone::Exists),
                _ => failed(error),
            };
        }
        Err(error) => return failed(error),
    };
    match exists(objects, to).await {
        Ok(true) => Ok(Undone::Exists),
        Ok(false) if is_copy_there => Ok(Undone::Failed(refused)),
        Ok(false) => Ok(Undone::Gone),
        Err(error) => failed(error),
    }
}

/// The newest version of a key and the one before it: one LIST of versions.
pub(super) async fn newest_versions(
    objects: &dyn Objects,
    at: &ObjectKey,
) -> Result<(Option<ListedVersion>, Option<ListedVersion>), ObjectError> {
    let request = VersionRequest { bucket: at.bucket.clone(), prefix: at.key.clone(), after: None, max_keys: 2 };
    let page = objects.list_versions(&request).await?;
    let mut versions = page.versions.into_iter().filter(|version| version.key == at.key);
    Ok((versions.next(), versions.next()))
}

/// Removes the delete marker that hides exactly this object (or, without a tag, whatever object), if nothing came since:
/// one LIST of versions and one DELETE.
///
/// # Errors
/// A store that does not answer.
pub async fn restore_marker(
    objects: &dyn Objects,
    at: &ObjectKey,
    marker: &VersionId,
    etag: Option<&ETag>,
) -> Result<Undone, StoreError> {
    let (newest, hidden) = match newest_versions(objects, at).await {
        Ok(versions) => versions,
        Err(error) => return failed(error),
    };
    let (newest, hidden) = (newest.as_ref(), hidden.as_ref());
    let is_ours = newest.is_some_and(|one| one.id == *marker && one.state == VersionState::DeleteMarker);
    let is_same = hidden.is_some_and(
        |one| matches!(&one.state, VersionState::Object { etag: found, .. } if etag.is_none_or(|etag| found == etag)),
    );
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
        Kept::Marker { id, etag } => restore_marker(objects, &at, id, Some(etag)).await,
        Kept::Unreported { id } => restore_marker(objects, &at, id, None).await,
        Kept::Nowhere => match exists(objects, &at).await {
            Ok(true) => Ok(Undone::Exists),
            Ok(false) => Ok(Undone::NotRecoverable),
            Err(error) => failed(error),
        },
    }
}

/// The files that a part of a run's report says were taken away.
pub async fn removals(app: &App, run: &RunRecord, number: i64) -> Result<Vec<Removal>, SweepError> {
    removals_in(app, &part_key(&app.settings.reports, run, Part::Outcomes { number })).await
}

/// The same, of a part by its place.
pub(super) async fn removals_in(app: &App, part: &ObjectKey) -> Result<Vec<Removal>, SweepError> {
    let part = match app.ports.objects.get(part, &GetOptions::default()).await {
        Ok(part) => part,
        // Counted, and never written: its number was passed over.
        Err(ObjectError::NotFound(_)) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let lines = part.bytes.split(|byte| *byte == b'\n').map(<[u8]>::to_vec);
    let values = lines.filter_map(|line| serde_json::from_slice::<Value>(&line).ok());
    Ok(values.filter_map(|line| Removal::parse(&line)).collect())
}

/// A run of which a worker died, so that its report may lack what that worker deleted last; and when it was at work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CutShort {
    pub run_id: String,
    from_ms: i64,
    to_ms: i64,
}

impl CutShort {
    /// Whether a marker of that time may be this run's.
    pub fn covers(&self, at_ms: i64) -> bool {
        (self.from_ms..=self.to_ms).contains(&at_ms)
    }
}

/// Runs among these that deleted and lost a worker, or of which nobody knows how they ended.
pub fn cut_short(runs: &[RunRecord], now_ms: i64) -> Vec<CutShort> {
    let lost = [RefusalReason::GaveUp, RefusalReason::StoreUnavailable].map(RefusalReason::as_str);
    let is_cut = |run: &&RunRecord| {
        let is_lost = run.reason.as_deref().is_some_and(|reason| lost.contains(&reason));
        run.mode.deletes() && (run.lost_attempts > 0 || !run.state.is_final() || is_lost)
    };
    let time = |run: &RunRecord| {
        Some(CutShort {
            run_id: run.run_id.clone(),
            from_ms: run.started_ms?.saturating_sub(CLOCKS_APART_MS),
            to_ms: run.ended_ms.unwrap_or(now_ms).saturating_add(CLOCKS_APART_MS),
        })
    };
    runs.iter().filter(is_cut).filter_map(time).collect()
}

/// Files behind delete markers that came while one of these runs was at work; one page, and where the next one begins. No
/// report need name them, since the worker that deleted them ended before it could say so. Who else deletes at that very
/// time cannot be told apart; nobody loses anything by getting a file back that is asked for.
///
/// # Errors
/// A store that does not answer.
pub async fn unreported(
    objects: &dyn Objects,
    bucket: &str,
    prefix: &str,
    after: Option<VersionMark>,
    cut: &[CutShort],
) -> Result<(Vec<(String, Removal)>, Option<VersionMark>), SweepError> {
    let (bucket, prefix) = (bucket.to_owned(), prefix.to_owned());
    let request = VersionRequest { bucket, prefix, after, max_keys: LIST_PAGE_MAX_KEYS };
    let page = objects.list_versions(&request).await?;
    let markers = page.versions.into_iter().filter(|one| one.is_latest && one.state == VersionState::DeleteMarker);
    let found = markers.filter_map(|one| {
        let run = cut.iter().find(|run| run.covers(one.last_modified_ms))?;
        // What the file's size was is seen when it is back.
        let removal = Removal { key: one.key, size_bytes: 0, kept: Kept::Unreported { id: one.id } };
        Some((run.run_id.clone(), removal))
    });
    Ok((found.collect(), page.next))
}

/// Whether a run may have taken files away.
pub fn has_removed(run: &RunRecord) -> bool {
    run.report.outcomes > 0 && run.mode.deletes()
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
