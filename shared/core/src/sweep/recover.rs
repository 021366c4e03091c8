//! Files that somebody needs and that are not there: whether a sweep took them away, and their way back.

use std::collections::BTreeMap;

use crate::limits::LIST_PAGE_MAX_KEYS;
use crate::ports::{App, Deadline};
use crate::store::{ListRequest, Listed, ListedVersion, ObjectError, ObjectKey, VersionState, Versioning};
use crate::sweep::items::RunRecord;
use crate::sweep::report::{OUTCOMES, run_folder};
use crate::sweep::undo::{
    CutShort, Kept, Origin, Quarantine, Removal, Undone, cut_short, exists, newest_versions, removals_in, restore,
    restore_copy,
};
use crate::sweep::{Interruption, SweepError};

/// Nothing new is asked of the store when less time than this is left.
const MARGIN_MS: i64 = 2_000;
/// Requests for reports that one call makes, however many files are missing: the line on a marker is in a part that was
/// written right after it, so a handful is enough.
const REPORT_REQUESTS_MAX: usize = 64;
/// How far a run's times, by our clock, may be from those of the markers that it made.
const CLOCKS_APART_MS: i64 = 900_000;
/// Dates of objects are whole seconds.
const SECOND_MS: i64 = 1_000;

/// What became of a file that is wanted again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    pub at: ObjectKey,
    pub undone: Undone,
    /// Which run had taken it, where that is known.
    pub run_id: Option<String>,
}

/// Brings back each of these files that a run took away: from the quarantine of its bucket, or from behind the delete
/// marker of a run on one of these tables. Answers those that are back, by whomever, and what stood in the way of others;
/// the rest no run took, or its time is over.
///
/// Costs for each file one LIST of the quarantine and, in a bucket that has or had versions, one LIST of its versions; one
/// HEAD where neither shows anything. Only for files that hide behind a delete marker the reports of runs are searched:
/// those of the marker's time, `REPORT_REQUESTS_MAX` requests at most. A marker that no report names counts where a run of
/// its time lost a worker.
///
/// # Errors
/// A store that does not answer; too little time.
pub async fn recover(
    app: &App,
    tables: &[String],
    missing: &[ObjectKey],
    deadline: Deadline,
) -> Result<Vec<Recovered>, SweepError> {
    let mut markers = Markers::new(app, tables, deadline);
    let mut found = Vec::new();
    for at in missing {
        markers.check_time()?;
        let one = recover_one(app, &mut markers, at).await?;
        if one.undone != Undone::Gone {
            found.push(one);
        }
    }
    Ok(found)
}

async fn recover_one(app: &App, markers: &mut Markers<'_>, at: &ObjectKey) -> Result<Recovered, SweepError> {
    let objects = app.ports.objects.as_ref();
    let mut run_id = None;
    let mut undone = match newest_copy(app, at).await? {
        Some((origin, copy)) => {
            run_id = Some(origin.run_id);
            let place = ObjectKey::new(at.bucket.clone(), copy.key);
            restore_copy(objects, &place, &copy.etag, at).await?
        }
        None => Undone::Gone,
    };
    if undone == Undone::Gone {
        undone = match markers.find(at).await? {
            Hidden::By { run_id: by, removal, .. } => {
                run_id = Some(by);
                restore(objects, &at.bucket, &removal).await?
            }
            Hidden::Not => Undone::Gone,
            Hidden::Unsaid(why) => Undone::Failed(why),
        };
    }
    // Whoever else looks for it at this moment may have been faster, and leaves neither copy nor marker.
    if undone == Undone::Gone && exists(objects, at).await? {
        undone = Undone::Exists;
    }
    Ok(Recovered { at: at.clone(), undone, run_id })
}

/// The copy of a file that was put into quarantine last, and the run that did it.
pub(super) async fn newest_copy(app: &App, at: &ObjectKey) -> Result<Option<(Origin, Listed)>, SweepError> {
    let quarantine = Quarantine::of(&app.settings, &at.bucket);
    let request = ListRequest {
        bucket: at.bucket.clone(),
        prefix: quarantine.prefix(&format!("{}/", at.key)),
        start_after: None,
        max_keys: LIST_PAGE_MAX_KEYS,
    };
    let page = app.ports.objects.list(&request).await?;
    let own = |copy: Listed| {
        let origin = quarantine.origin(&copy.key).filter(|from| from.at == *at)?;
        Some((origin, copy))
    };
    Ok(page.objects.into_iter().filter_map(own).max_by_key(|(_, copy)| copy.last_modified_ms))
}

/// Whether a file hides behind the delete marker of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Hidden {
    By {
        run_id: String,
        /// When the marker was made.
        since_ms: i64,
        removal: Removal,
    },
    /// It is there, or never was, or somebody else deleted it.
    Not,
    /// It hides behind a marker, and whose that is cannot be told.
    Unsaid(String),
}

/// A part of a run's report, and when it was written.
#[derive(Clone, Debug)]
struct Written {
    at: ObjectKey,
    at_ms: i64,
}

/// Finds the runs that made delete markers.
pub(super) struct Markers<'a> {
    app: &'a App,
    tables: &'a [String],
    deadline: Deadline,
    versioning: BTreeMap<String, Versioning>,
    /// Those of the tables, when they were needed first.
    runs: Option<Vec<RunRecord>>,
    /// Parts of the report by run, and what is in those that were read.
    parts: BTreeMap<String, Vec<Written>>,
    read: BTreeMap<ObjectKey, Vec<Removal>>,
    requests_left: usize,
}

impl<'a> Markers<'a> {
    pub(super) fn new(app: &'a App, tables: &'a [String], deadline: Deadline) -> Self {
        Self {
            app,
            tables,
            deadline,
            versioning: BTreeMap::new(),
            runs: None,
            parts: BTreeMap::new(),
            read: BTreeMap::new(),
            requests_left: REPORT_REQUESTS_MAX,
        }
    }

    fn check_time(&self) -> Result<(), SweepError> {
        match self.deadline.left_ms(self.app.ports.clock.as_ref()) < MARGIN_MS {
            true => Err(Interruption::TimeLimit.into()),
            false => Ok(()),
        }
    }

    /// Buckets whose versioning is suspended have markers from before.
    async fn has_versions(&mut self, bucket: &str) -> Result<bool, SweepError> {
        if let Some(known) = self.versioning.get(bucket) {
            return Ok(*known != Versioning::Off);
        }
        let versioning = match self.app.ports.objects.versioning(bucket).await {
            Ok(versioning) => versioning,
            Err(ObjectError::Store(error)) if error.is_retryable() => return Err(error.into()),
            // Who may not ask looks.
            Err(_) => Versioning::Suspended,
        };
        self.versioning.insert(bucket.to_owned(), versioning);
        Ok(versioning != Versioning::Off)
    }

    pub(super) async fn find(&mut self, at: &ObjectKey) -> Result<Hidden, SweepError> {
        if !self.has_versions(&at.bucket).await? {
            return Ok(Hidden::Not);
        }
        let (newest, hidden) = newest_versions(self.app.ports.objects.as_ref(), at).await?;
        let is_hidden = hidden.is_some_and(|one| matches!(one.state, VersionState::Object { .. }));
        match newest.filter(|one| one.state == VersionState::DeleteMarker && is_hidden) {
            Some(marker) => match self.search(at, &marker).await? {
                found @ Hidden::By { .. } => Ok(found),
                other => Ok(self.unreported(at, &marker).unwrap_or(other)),
            },
            None => Ok(Hidden::Not),
        }
    }

    /// By the time of a run that lost a worker: that one could not say what it had deleted last.
    fn unreported(&self, at: &ObjectKey, marker: &ListedVersion) -> Option<Hidden> {
        let runs = self.runs.as_deref().unwrap_or_default();
        let cut: Vec<CutShort> = cut_short(runs, self.app.ports.clock.now_ms());
        let run = cut.into_iter().find(|run| run.covers(marker.last_modified_ms))?;
        let kept = Kept::Unreported { id: marker.id.clone() };
        let removal = Removal { key: at.key.clone(), size_bytes: 0, kept };
        Some(Hidden::By { run_id: run.run_id, since_ms: marker.last_modified_ms, removal })
    }

    async fn search(&mut self, at: &ObjectKey, marker: &ListedVersion) -> Result<Hidden, SweepError> {
        if self.runs.is_none() {
            let mut runs = Vec::new();
            for table_id in self.tables {
                runs.extend(RunRecord::load_all(self.app.ports.items.as_ref(), table_id).await?);
            }
            self.runs = Some(runs);
        }
        let marked_ms = marker.last_modified_ms;
        let was_at_work = |run: &&RunRecord| {
            run.mode.deletes()
                && run.created_ms <= marked_ms.saturating_add(CLOCKS_APART_MS)
                && run.ended_ms.is_none_or(|ended_ms| ended_ms >= marked_ms.saturating_sub(CLOCKS_APART_MS))
        };
        let runs: Vec<RunRecord> = self.runs.iter().flatten().filter(was_at_work).cloned().collect();
        for run in runs {
            if !self.parts.contains_key(&run.run_id) && !self.list_parts(&run).await? {
                return Ok(unsaid(at));
            }
            // Its line was written after it.
            let all = self.parts.get(&run.run_id).cloned().unwrap_or_default();
            let (after, before): (Vec<Written>, Vec<Written>) =
                all.into_iter().partition(|part| part.at_ms >= marked_ms.saturating_sub(SECOND_MS));
            for part in after.into_iter().chain(before.into_iter().rev()) {
                let Some(removals) = self.removals(&part.at).await? else { return Ok(unsaid(at)) };
                let is_meant = |removal: &&Removal| {
                    removal.key == at.key && matches!(&removal.kept, Kept::Marker { id, .. } if *id == marker.id)
                };
                if let Some(removal) = removals.iter().find(is_meant).cloned() {
                    return Ok(Hidden::By { run_id: run.run_id.clone(), since_ms: marked_ms, removal });
                }
            }
        }
        Ok(Hidden::Not)
    }

    /// Lists the parts of a run's report, also those that a worker wrote and could not record; false: too many requests.
    async fn list_parts(&mut self, run: &RunRecord) -> Result<bool, SweepError> {
        let folder = run_folder(&self.app.settings.reports, run);
        let (mut parts, mut start_after) = (Vec::new(), None);
        loop {
            if !self.may_ask()? {
                return Ok(false);
            }
            let request = ListRequest {
                bucket: folder.bucket.clone(),
                prefix: folder.object(OUTCOMES).key,
                start_after,
                max_keys: LIST_PAGE_MAX_KEYS,
            };
            let page = self.app.ports.objects.list(&request).await?;
            start_after = page.objects.last().map(|object| object.key.clone());
            parts.extend(page.objects.into_iter().map(|object| Written {
                at: ObjectKey::new(folder.bucket.clone(), object.key),
                at_ms: object.last_modified_ms,
            }));
            if !page.truncated {
                self.parts.insert(run.run_id.clone(), parts);
                return Ok(true);
            }
        }
    }

    /// What a part says; `None`: too many requests.
    async fn removals(&mut self, part: &ObjectKey) -> Result<Option<&[Removal]>, SweepError> {
        if !self.read.contains_key(part) {
            if !self.may_ask()? {
                return Ok(None);
            }
            let removals = removals_in(self.app, part).await?;
            self.read.insert(part.clone(), removals);
        }
        Ok(self.read.get(part).map(Vec::as_slice))
    }

    fn may_ask(&mut self) -> Result<bool, SweepError> {
        self.check_time()?;
        let may_ask = self.requests_left > 0;
        self.requests_left = self.requests_left.saturating_sub(1);
        Ok(may_ask)
    }
}

fn unsaid(at: &ObjectKey) -> Hidden {
    Hidden::Unsaid(format!(
        "{at} hides behind a delete marker, and the reports of the runs of that time are too long to find it in: if a sweep \
         made it, `lakewarden sweep restore --key` brings it back"
    ))
}
