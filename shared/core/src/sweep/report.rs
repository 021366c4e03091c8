//! Reports of runs: JSON lines on S3, in parts small enough for one answer each.

use bytes::Bytes;
use serde_json::{Value, json};

use super::guards::Reason;
use super::items::RunRecord;
use crate::location::Location;
use crate::store::{Listed, ObjectError, ObjectKey, Objects, PutCondition, PutOptions};
use crate::sweep::{Interruption, SweepError};

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

/// Where a part lies: `<reports>/<table id>/<run id>/<attempt>-judged-<part>.jsonl`, or `outcomes-<part>.jsonl`: each
/// attempt judges everything anew, while outcomes come together over all attempts.
pub fn part_key(reports: &Location, record: &RunRecord, kind: Kind, part: i64) -> ObjectKey {
    let name = match kind {
        Kind::Judged => format!("{:03}-judged-{part:05}", record.report.attempt),
        Kind::Outcomes => format!("outcomes-{part:05}"),
    };
    reports.object(&format!("{}/{}/{name}.jsonl", record.table_id, record.run_id))
}

/// The line on a listed object.
pub fn judged_line(object: &Listed, reason: Reason) -> Value {
    json!({
        "key": object.key,
        "size_bytes": object.size_bytes,
        "last_modified_ms": object.last_modified_ms,
        "decision": if reason.is_kept() { "keep" } else { "delete" },
        "reason": reason.as_str(),
    })
}

/// The line on an orphan after the attempt to delete it.
pub fn outcome_line(object: &Listed, outcome: &str) -> Value {
    json!({ "key": object.key, "size_bytes": object.size_bytes, "outcome": outcome })
}

/// Collects lines and writes parts; holds one part in memory.
#[derive(Debug)]
pub struct ReportWriter {
    kind: Kind,
    buffer: Vec<u8>,
}

impl ReportWriter {
    pub fn new(kind: Kind) -> Self {
        Self { kind, buffer: Vec::new() }
    }

    pub fn line(&mut self, line: &Value) {
        self.buffer.extend_from_slice(line.to_string().as_bytes());
        self.buffer.push(b'\n');
    }

    /// Writes a part if enough has come together.
    pub async fn flush_if_full(
        &mut self,
        objects: &dyn Objects,
        reports: &Location,
        record: &mut RunRecord,
    ) -> Result<(), SweepError> {
        if self.buffer.len() >= PART_BYTES { self.flush(objects, reports, record).await } else { Ok(()) }
    }

    /// Writes what is there.
    pub async fn flush(
        &mut self,
        objects: &dyn Objects,
        reports: &Location,
        record: &mut RunRecord,
    ) -> Result<(), SweepError> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let bytes = Bytes::from(std::mem::take(&mut self.buffer));
        let options = PutOptions {
            content_type: Some("application/x-ndjson".to_owned()),
            condition: PutCondition::Absent,
            ..PutOptions::default()
        };
        for _ in 0..PARTS_PASSED_MAX {
            let part = match self.kind {
                Kind::Judged => &mut record.report.judged,
                Kind::Outcomes => &mut record.report.outcomes,
            };
            let number = *part;
            *part = number.saturating_add(1);
            match objects.put(&part_key(reports, record, self.kind, number), bytes.clone(), &options).await {
                Ok(_) => return Ok(()),
                // Written by a worker that died, or lost its lease, before it could record it: its lines count as well.
                Err(ObjectError::PreconditionFailed(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Interruption::Contended("the report").into())
    }
}
