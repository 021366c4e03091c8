//! What an attempt knows, stored for the next one: the reference filter with what every table said that it was built from,
//! and what the first listing showed. Whoever goes on from it asks every table again and adds what the filter lacks.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::attempt::Attempt;
use super::knowledge::{Knowledge, Sourced, Standing};
use crate::limits::DELETE_BATCH_MAX_KEYS;
use crate::location::Location;
use crate::ports::App;
use crate::store::{Doomed, ETag, GetOptions, Listed, ObjectError, ObjectKey, PutOptions, list_every};
use crate::sweep::blob::{decode_blob, encode_blob, hash64};
use crate::sweep::delays::Delays;
use crate::sweep::families::Families;
use crate::sweep::items::{RunRecord, Stage};
use crate::sweep::page::{PAGE_NAME, render};
use crate::sweep::ranges::KeySample;
use crate::sweep::refs::{Lens, References};
use crate::sweep::report::run_folder;
use crate::sweep::sightings::Sightings;
use crate::sweep::survey::{MetadataFile, Sign, Survey};
use crate::sweep::{Refusal, RefusalReason, SweepError, TableEntry};

/// What is known of a table is as old as its first listing. Older than this it is gathered anew.
pub(super) const KNOWLEDGE_MAX_AGE_MS: i64 = 24 * 3_600_000;
/// Folder below the run's for what only the run itself reads.
const WORK: &str = "work/";

type Place = (String, String);

#[derive(Serialize, Deserialize)]
struct FilterHead {
    mark: String,
    retention_ms: i64,
    protected: Vec<Place>,
    sources: Vec<SavedSource>,
    sample: KeySample,
    /// Where the table has files outside its place, while its own references are being read.
    elsewhere: Option<(Vec<Place>, bool)>,
}

#[derive(Serialize, Deserialize)]
struct SavedSource {
    table_id: String,
    standing: Standing,
    state: Value,
}

#[derive(Serialize, Deserialize)]
struct NotesHead {
    retention_ms: i64,
    young_since_ms: i64,
    pages: Vec<String>,
    signs: Vec<(Sign, String)>,
    metadata_files: Vec<File>,
    temp_manifests: Vec<File>,
    attempts: Vec<File>,
    proved_stale: Vec<Place>,
    has_all_families: bool,
}

/// An orphan that waits for its deletion.
#[derive(Serialize, Deserialize)]
struct OrphanLine {
    key: String,
    etag: String,
    size_bytes: u64,
    last_modified_ms: i64,
}

fn places<'l>(locations: impl IntoIterator<Item = &'l Location>) -> Vec<Place> {
    locations.into_iter().map(|one| (one.bucket.clone(), one.prefix.clone())).collect()
}

fn locations(places: Vec<Place>) -> Vec<Location> {
    places.into_iter().map(|(bucket, prefix)| Location { bucket, prefix }).collect()
}

/// Bucket, key, date and state of a metadata file.
type File = (String, String, i64, u64);

fn files(files: &[MetadataFile]) -> Vec<File> {
    files.iter().map(|file| (file.at.bucket.clone(), file.at.key.clone(), file.last_modified_ms, file.state)).collect()
}

fn metadata_files(files: Vec<File>) -> Vec<MetadataFile> {
    let file = |(bucket, key, last_modified_ms, state)| MetadataFile {
        at: ObjectKey { bucket, key },
        last_modified_ms,
        state,
    };
    files.into_iter().map(file).collect()
}

fn unwritable(error: serde_json::Error) -> SweepError {
    Refusal::new(RefusalReason::MetadataUnreadable, format!("what is known cannot be stored: {error}")).into()
}

impl<'a> Attempt<'a> {
    /// Everything that an earlier slice's knowledge rests on beside the tables' own states. Something else by now: all of
    /// it is gathered anew.
    fn mark(&self, known: &Knowledge<'a>) -> String {
        let gate_ms = known.optimizer.created_at_ms;
        let (policy, around) = (&known.policy, &known.neighbours.fingerprint);
        let text = format!("{gate_ms} {policy:?} {:?} {:?} {around:?}", known.scope, known.table);
        format!("{:016x}", hash64(&[text.as_bytes(), self.record.run_id.as_bytes()]))
    }

    fn work_key(&self, name: &str) -> ObjectKey {
        run_folder(&self.app.settings.reports, &self.record).object(&format!("{WORK}{name}"))
    }

    /// A name that no other worker, and no earlier step of this one, has used.
    fn work_name(&mut self, what: &str) -> String {
        self.blobs = self.blobs.saturating_add(1);
        format!("{:03}-{what}-{:05}", self.record.attempts, self.blobs)
    }

    pub(super) async fn put_work(&mut self, what: &str, bytes: Bytes) -> Result<String, SweepError> {
        let name = self.work_name(what);
        self.app.ports.objects.put(&self.work_key(&name), bytes, &PutOptions::default()).await?;
        Ok(name)
    }

    /// `None`: it is not there.
    async fn get_work(&self, name: &str) -> Result<Option<Bytes>, SweepError> {
        match self.app.ports.objects.get(&self.work_key(name), &GetOptions::default()).await {
            Ok(object) => Ok(Some(object.bytes)),
            Err(ObjectError::NotFound(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Stores the reference filter. Slices read it and ask the tables what is new since.
    pub(super) async fn store_filter(&mut self, known: &mut Knowledge<'a>) -> Result<String, SweepError> {
        known.references.seal();
        let saved = |one: &Sourced<'_>| SavedSource {
            table_id: one.table_id.clone(),
            standing: one.standing,
            state: one.source.save(),
        };
        // While the table's own references are read, nothing else is known yet.
        let count = if self.stage == Stage::Loading { 1 } else { known.sources.len() };
        let head = FilterHead {
            mark: self.mark(known),
            retention_ms: known.retention_ms,
            protected: places(&known.protected),
            sources: known.sources.iter().take(count).map(saved).collect(),
            sample: known.references.sample().clone(),
            elsewhere: known.partial.as_ref().map(Lens::seen).map(|(seen, anywhere)| (places(&seen), anywhere)),
        };
        let ([exact, pending, loose], folders) = known.references.columns();
        let bytes = encode_blob(&head, &[exact, pending, loose, &folders]).map_err(unwritable)?;
        self.put_work("filter", bytes).await
    }

    /// Stores what the first listing showed.
    pub(super) async fn store_notes(&mut self, known: &Knowledge<'a>) -> Result<String, SweepError> {
        let (ids, dates, is_full) = known.families.columns();
        let survey = &known.survey;
        let head = NotesHead {
            retention_ms: known.retention_ms,
            young_since_ms: survey.young_since_ms,
            pages: survey.pages.clone(),
            signs: survey.signs.iter().cloned().collect(),
            metadata_files: files(&survey.metadata_files),
            temp_manifests: files(&survey.temp_manifests),
            attempts: files(&survey.attempts),
            proved_stale: known.proved_stale.iter().map(|at| (at.bucket.clone(), at.key.clone())).collect(),
            has_all_families: !is_full,
        };
        let [expected, committed, observed] = known.delays.columns();
        let (believed, states): (Vec<u64>, Vec<u64>) = survey.unconfirmed.iter().unzip();
        let columns: [&[u64]; 7] = [&ids, &dates, &expected, &committed, &observed, &believed, &states];
        let bytes = encode_blob(&head, &columns).map_err(unwritable)?;
        self.put_work("notes", bytes).await
    }

    pub(super) async fn store_seen(&mut self, seen: &Sightings) -> Result<String, SweepError> {
        self.put_work("seen", seen.encode()).await
    }

    /// Takes over what an earlier attempt has stored. `false`: it is gone, damaged, or rests on what is not so any more.
    pub(super) async fn restore(&mut self, known: &mut Knowledge<'a>) -> Result<bool, SweepError> {
        let progress = self.record.progress.clone();
        let Some(filter) = &progress.filter else { return Ok(false) };
        let Some(bytes) = self.get_work(filter).await? else { return Ok(false) };
        let Some((head, columns)) = decode_blob::<FilterHead, 4>(&bytes) else { return Ok(false) };
        drop(bytes);
        if head.mark != self.mark(known) || !self.restore_sources(known, &head.sources).await? {
            return Ok(false);
        }
        known.references = References::from_columns(&known.table.bucket, columns, head.sample);
        known.retention_ms = known.retention_ms.max(head.retention_ms);
        for location in locations(head.protected) {
            if !known.protected.contains(&location) {
                known.protected.push(location);
            }
        }
        if progress.stage == Stage::Loading {
            let home = vec![known.table.clone()];
            let Some((elsewhere, is_anywhere)) = head.elsewhere else { return Ok(false) };
            known.partial = Some(Lens::having_seen(home, locations(elsewhere), is_anywhere));
        }
        if !self.restore_notes(known, progress.notes.as_deref()).await? {
            return Ok(false);
        }
        let Some(seen) = self.restore_seen(progress.seen.as_deref()).await? else { return Ok(false) };
        self.judging.seen = seen;
        self.judging.by_reason = self.record.totals.by_reason.clone();
        self.judging.report = self.record.report.clone();
        (self.judging.listed, self.judging.found) = (progress.listed, progress.found);
        (self.judging.found_bytes, self.surveyed) = (progress.found_bytes, progress.surveyed);
        // They are to be looked at, and nothing depends on them.
        let folders = match &progress.folders {
            Some(name) => self.get_work(name).await?,
            None => None,
        };
        self.judging.by_folder = folders.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
        self.judging.orphan_parts = progress.orphans;
        (self.parts_done, self.lines_done) = (progress.parts_done, progress.lines_done);
        self.tended = progress.tended;
        (self.stage, self.ranges, self.surveyed_ms) = (progress.stage, progress.ranges, progress.surveyed_ms);
        (self.is_filter_stored, known.has_news) = (true, false);
        Ok(true)
    }

    /// The table's own source and those of tables that share its place are there already; those of tables elsewhere that
    /// have files here come back as well.
    async fn restore_sources(&self, known: &mut Knowledge<'a>, saved: &[SavedSource]) -> Result<bool, SweepError> {
        let is_whole = self.record.progress.stage > Stage::Loading;
        let tables = if is_whole { self.directory.tables().await? } else { Vec::new() };
        for (index, one) in saved.iter().enumerate() {
            let is_there = known
                .sources
                .get(index)
                .is_some_and(|known| known.table_id == one.table_id && known.standing == one.standing);
            if !is_there {
                let entry = tables.iter().find(|table| table.id == one.table_id).cloned();
                let entry = entry.or_else(|| TableEntry::of_unregistered_id(&one.table_id));
                let Some(entry) = entry.filter(|_| one.standing == Standing::Reaching) else { return Ok(false) };
                let Ok(source) = self.source_of_other(&entry, &known.policy) else { return Ok(false) };
                known.sources.push(Sourced { table_id: one.table_id.clone(), source, standing: one.standing });
            }
            let restored = known.sources.get_mut(index).is_some_and(|known| known.source.restore(&one.state));
            if !restored {
                return Ok(false);
            }
        }
        Ok(!is_whole || saved.len() == known.sources.len())
    }

    async fn restore_notes(&self, known: &mut Knowledge<'a>, name: Option<&str>) -> Result<bool, SweepError> {
        let Some(name) = name else { return Ok(false) };
        let Some(bytes) = self.get_work(name).await? else { return Ok(false) };
        let Some((head, columns)) = decode_blob::<NotesHead, 7>(&bytes) else { return Ok(false) };
        let [ids, dates, expected, committed, observed, believed, states] = &columns;
        known.families = Families::from_columns(ids, dates, !head.has_all_families);
        known.delays = Delays::from_columns(expected, committed, observed);
        known.retention_ms = known.retention_ms.max(head.retention_ms);
        known.survey = Survey {
            signs: head.signs.into_iter().collect(),
            metadata_files: metadata_files(head.metadata_files),
            temp_manifests: metadata_files(head.temp_manifests),
            attempts: metadata_files(head.attempts),
            young_since_ms: head.young_since_ms,
            pages: head.pages,
            unconfirmed: believed.iter().copied().zip(states.iter().copied()).collect(),
        };
        known.proved_stale = head.proved_stale.into_iter().map(|(bucket, key)| ObjectKey { bucket, key }).collect();
        Ok(true)
    }

    async fn restore_seen(&self, name: Option<&str>) -> Result<Option<Sightings>, SweepError> {
        let Some(name) = name else { return Ok(Some(Sightings::default())) };
        Ok(self.get_work(name).await?.and_then(|bytes| Sightings::decode(&bytes)))
    }

    /// Writes the orphans in memory as one more part.
    pub(super) async fn spill_orphans(&mut self) -> Result<(), SweepError> {
        if self.judging.orphans.is_empty() {
            return Ok(());
        }
        let bytes = encode_orphans(&std::mem::take(&mut self.judging.orphans))?;
        let attempt = self.record.attempts;
        let number = self.judging.orphan_parts.add(attempt);
        let at = self.work_key(&orphans_name(attempt, number));
        self.app.ports.objects.put(&at, bytes.into(), &PutOptions::default()).await?;
        Ok(())
    }

    /// Writes down which orphans are to go before the first of them goes, for a run that is too small to be stored whole:
    /// whoever takes over from a worker that died between a deletion and its record looks at them.
    pub(super) async fn store_intended(&mut self) -> Result<(), SweepError> {
        let attempt = self.record.attempts;
        let bytes = encode_orphans(&self.judging.orphans)?;
        self.app.ports.objects.put(&self.intended_key(attempt), bytes.into(), &PutOptions::default()).await?;
        (self.record.progress.intended, self.record.progress.lines_done) = (Some(attempt), 0);
        self.save_record().await
    }

    /// Beside the report, since it is a part of what the run says that it did.
    fn intended_key(&self, attempt: i64) -> ObjectKey {
        run_folder(&self.app.settings.reports, &self.record).object(&format!("{attempt:03}-intended.jsonl"))
    }

    /// Orphans of which the record does not say what became of them, the next ones first.
    pub(super) async fn load_unrecorded(&self) -> Result<Vec<Listed>, SweepError> {
        let progress = &self.record.progress;
        let done = usize::try_from(progress.lines_done).unwrap_or(usize::MAX);
        let mut found = match (progress.intended, progress.orphans.find(progress.parts_done)) {
            (Some(attempt), _) => {
                let at = self.intended_key(attempt);
                let bytes = self.app.ports.objects.get(&at, &GetOptions::default()).await?.bytes;
                decode_orphans(&bytes, &at.key)?
            }
            (None, Some((attempt, number))) if progress.is_stored() && progress.stage == Stage::Deleting => {
                self.load_orphans(attempt, number).await?
            }
            _ => Vec::new(),
        };
        found.drain(..done.min(found.len()));
        Ok(found)
    }

    /// A part that [`Attempt::spill_orphans`] wrote.
    pub(super) async fn load_orphans(&self, attempt: i64, number: i64) -> Result<Vec<Listed>, SweepError> {
        let name = orphans_name(attempt, number);
        let gone = || {
            Refusal::new(RefusalReason::ProgressLost, format!("the list {name} of orphans is gone: start another run"))
        };
        let bytes = self.get_work(&name).await?.ok_or_else(gone)?;
        decode_orphans(&bytes, &name)
    }

    /// Writes the page of a run that has ended.
    pub(super) async fn put_page(&self) -> Result<(), SweepError> {
        let at = run_folder(&self.app.settings.reports, &self.record).object(PAGE_NAME);
        let page = render(&self.record, &self.judging.by_folder);
        let options = PutOptions { content_type: Some("text/html; charset=utf-8".to_owned()), ..PutOptions::default() };
        self.app.ports.objects.put(&at, page.into(), &options).await?;
        Ok(())
    }

    /// Removes what only the run itself needed, once it has ended.
    pub(super) async fn forget_work(&self) -> Result<(), SweepError> {
        forget_work_of(self.app, &self.record).await
    }
}

/// Removes what slices of a run that has ended left for the next one: one LIST if there is nothing.
pub(super) async fn forget_work_of(app: &App, run: &RunRecord) -> Result<(), SweepError> {
    let objects = app.ports.objects.as_ref();
    let folder = run_folder(&app.settings.reports, run).object(WORK);
    let found = list_every(objects, &folder.bucket, &folder.key).await?;
    for some in found.chunks(DELETE_BATCH_MAX_KEYS) {
        let doomed: Vec<Doomed> = some.iter().map(|one| Doomed { key: one.key.clone(), if_match: None }).collect();
        objects.delete_batch(&folder.bucket, &doomed).await?;
    }
    Ok(())
}

fn encode_orphans(orphans: &[Listed]) -> Result<Vec<u8>, SweepError> {
    let mut bytes = Vec::new();
    for object in orphans {
        let line = OrphanLine {
            key: object.key.clone(),
            etag: object.etag.0.clone(),
            size_bytes: object.size_bytes,
            last_modified_ms: object.last_modified_ms,
        };
        serde_json::to_writer(&mut bytes, &line).map_err(unwritable)?;
        bytes.push(b'\n');
    }
    Ok(bytes)
}

fn decode_orphans(bytes: &[u8], name: &str) -> Result<Vec<Listed>, SweepError> {
    let mut found = Vec::new();
    for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let line: OrphanLine = serde_json::from_slice(line).map_err(|error| {
            let detail = format!("the list {name} of orphans cannot be read: {error}");
            Refusal::new(RefusalReason::ProgressLost, detail)
        })?;
        found.push(Listed {
            key: line.key,
            etag: ETag(line.etag),
            size_bytes: line.size_bytes,
            last_modified_ms: line.last_modified_ms,
        });
    }
    Ok(found)
}

fn orphans_name(attempt: i64, number: i64) -> String {
    format!("{attempt:03}-orphans-{number:05}.jsonl")
}
