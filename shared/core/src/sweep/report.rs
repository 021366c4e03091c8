//! Reports of runs: JSON lines on S3, in parts small enough for one answer each.

use bytes::Bytes;
use serde::Serialize;
use serde_json::{Value, json};

use super::guards::Reason;
use super::items::{ReportParts, RunRecord};
use crate::location::Location;
use crate::store::{ETag, Listed, ObjectError, ObjectKey, Objects, PutCondition, PutOptions, VersionId};
use crate::sweep::undo::{QUARANTINED, Undone};
use crate::sweep::{Interruption, Refusal, RefusalReason, SweepError};

/// A part is written when it has at least this many bytes.
const PART_BYTES: usize = 512 * 1024;
/// Parts of other workers that are passed over until a free number is found.
const PARTS_PASSED_MAX: usize = 100;

/// The two kinds of parts: what was decided on each object, and what became of the orphans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Judged,
    Outcomes,
}

/// The folder of a run's objects: `<reports>/<table id>/<run id>`.
pub fn run_folder(reports: &Location, record: &RunRecord) -> Location {
    Location {
        bucket: reports.bucket.clone(),
        prefix: format!("{}{}/{}", reports.key_prefix(), record.table_id, record.run_id),
    }
}

/// Where a part lies in the run's folder: `<attempt>-judged-<part>.jsonl`, or `outcomes-<part>.jsonl`.
pub fn part_key(reports: &Location, record: &RunRecord, part: Part) -> ObjectKey {
    run_folder(reports, record).object(&part.name())
}

/// How the names of all parts begin that say what became of orphans.
pub const OUTCOMES: &str = "outcomes-";

/// One part of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Judged { attempt: i64, number: i64 },
    Outcomes { number: i64 },
}

impl Part {
    fn name(self) -> String {
        match self {
            Part::Judged { attempt, number } => format!("{attempt:03}-judged-{number:05}.jsonl"),
            Part::Outcomes { number } => format!("{OUTCOMES}{number:05}.jsonl"),
        }
    }
}

/// The line on a listed object.
#[derive(Serialize)]
struct JudgedLine<'l> {
    decision: &'static str,
    key: &'l str,
    last_modified_ms: i64,
    reason: &'static str,
    size_bytes: u64,
}

/// The line on an orphan after the attempt to delete it.
pub fn outcome_line(object: &Listed, outcome: &str) -> Value {
    json!({ "key": object.key, "size_bytes": object.size_bytes, "outcome": outcome })
}

/// The line on an orphan that hides behind a delete marker now: with the marker's id and what it hides, by which it can
/// be restored.
pub fn marked_line(object: &Listed, outcome: &str, marker: &VersionId) -> Value {
    let (key, size_bytes, etag) = (&object.key, object.size_bytes, &object.etag.0);
    json!({ "key": key, "size_bytes": size_bytes, "outcome": outcome, "etag": etag, "marker": marker.0 })
}

/// The line on an orphan that lies in quarantine now.
pub fn quarantined_line(object: &Listed, place: &ObjectKey, copy: Option<&ETag>) -> Value {
    let (key, size_bytes, etag) = (&object.key, object.size_bytes, &object.etag.0);
    let (place, copy_etag) = (&place.key, copy.map(|etag| &etag.0));
    json!({ "key": key, "size_bytes": size_bytes, "outcome": QUARANTINED, "etag": etag, "quarantine": place,
        "copy_etag": copy_etag })
}

/// The line on what lies in quarantine: the key that it has there, and the one that it came from.
pub fn quarantine_line(copy: &Listed, origin: &str, is_over: bool, reason: &str) -> Value {
    json!({
        "key": copy.key,
        "origin": origin,
        "size_bytes": copy.size_bytes,
        "last_modified_ms": copy.last_modified_ms,
        "decision": if is_over { "delete" } else { "keep" },
        "reason": reason,
    })
}

/// The line on a file that was to come back: from which run, and what became of it.
pub fn restored_line(key: &str, size_bytes: u64, run_id: &str, undone: &Undone) -> Value {
    let mut line = json!({ "key": key, "size_bytes": size_bytes, "outcome": undone.as_str(), "run_id": run_id });
    if let (Undone::Failed(error), Some(line)) = (undone, line.as_object_mut()) {
        line.insert("error".to_owned(), error.as_str().into());
    }
    line
}

/// The line on an orphan that the store would not delete, in the store's words.
pub fn failed_line(object: &Listed, outcome: &str, error: &str) -> Value {
    json!({ "key": object.key, "size_bytes": object.size_bytes, "outcome": outcome, "error": error })
}

/// Collects lines and writes parts; holds one part in memory.
#[derive(Debug)]
pub struct ReportWriter {
    kind: Kind,
    folder: Location,
    attempt: i64,
    buffer: Vec<u8>,
}

impl ReportWriter {
    pub fn new(kind: Kind, reports: &Location, record: &RunRecord) -> Self {
        Self { kind, folder: run_folder(reports, record), attempt: record.attempts, buffer: Vec::new() }
    }

    pub fn line(&mut self, line: &Value) {
        self.buffer.extend_from_slice(line.to_string().as_bytes());
        self.buffer.push(b'\n');
    }

    /// The line on a listed object, of which there are the most by far.
    pub fn judged(&mut self, object: &Listed, reason: Reason) -> Result<(), SweepError> {
        let decision = if reason.is_kept() { "keep" } else { "delete" };
        let Listed { key, size_bytes, last_modified_ms, .. } = object;
        let (last_modified_ms, size_bytes) = (*last_modified_ms, *size_bytes);
        let line = JudgedLine { decision, key, last_modified_ms, reason: reason.as_str(), size_bytes };
        serde_json::to_writer(&mut self.buffer, &line)
            .map_err(|error| Refusal::new(RefusalReason::MetadataUnreadable, error.to_string()))?;
        self.buffer.push(b'\n');
        Ok(())
    }

    /// Writes a part if enough has come together.
    pub async fn flush_if_full(&mut self, objects: &dyn Objects, parts: &mut ReportParts) -> Result<(), SweepError> {
        if self.buffer.len() >= PART_BYTES { self.flush(objects, parts).await } else { Ok(()) }
    }

    /// Writes what is there, and counts it in `parts`.
    pub async fn flush(&mut self, objects: &dyn Objects, parts: &mut ReportParts) -> Result<(), SweepError> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        // Room that was made for more would be held until the part is written, or as long as a store in memory has it.
        buffer.shrink_to_fit();
        let bytes = Bytes::from(buffer);
        let mut options = PutOptions { content_type: Some("application/x-ndjson".to_owned()), ..PutOptions::default() };
        if self.kind == Kind::Judged {
            // Nobody else has this attempt's number.
            let number = parts.judged.add(self.attempt);
            let at = self.folder.object(&Part::Judged { attempt: self.attempt, number }.name());
            objects.put(&at, bytes, &options).await?;
            return Ok(());
        }
        options.condition = PutCondition::Absent;
        for _ in 0..PARTS_PASSED_MAX {
            let number = parts.outcomes;
            parts.outcomes = number.saturating_add(1);
            match objects.put(&self.folder.object(&Part::Outcomes { number }.name()), bytes.clone(), &options).await {
                Ok(_) => return Ok(()),
                // Written by a worker that died, or lost its lease, before it could record it: its lines count as well.
                Err(ObjectError::PreconditionFailed(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Interruption::Contended("the report").into())
    }
}
