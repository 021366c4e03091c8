//! What a run would decide on one object.

use serde_json::{Value, json};

use super::attempt::Attempt;
use crate::location::split_uri;
use crate::ports::{App, Deadline};
use crate::store::{Listed, ObjectError, ObjectKey};
use crate::sweep::items::{Lease, RunOptions, RunRecord};
use crate::sweep::recover::{Hidden, Markers, newest_copy};
use crate::sweep::refs::Held;
use crate::sweep::source::Moment;
use crate::sweep::{Mode, Refusal, RefusalReason, SweepError, SweepRequest, TableDirectory, TableEntry};

/// Time that is kept for the last look and the answer.
const STOP_MARGIN_MS: i64 = 1_500;

/// Where a file is that a run took away, and which run that was; null where none did, or where nothing is left of it.
async fn where_it_is(app: &App, table_id: &str, at: &ObjectKey, deadline: Deadline) -> Result<Value, SweepError> {
    if let Some((origin, copy)) = newest_copy(app, at).await? {
        return Ok(json!({ "in": "quarantine", "place": copy.key, "run_id": origin.run_id,
            "since_ms": copy.last_modified_ms }));
    }
    let tables = [table_id.to_owned()];
    match Markers::new(app, &tables, deadline).find(at).await {
        Ok(Hidden::By { run_id, since_ms, .. }) => {
            Ok(json!({ "in": "delete_marker", "run_id": run_id, "since_ms": since_ms }))
        }
        Ok(Hidden::Unsaid(why)) => Ok(json!({ "in": "delete_marker", "note": why })),
        Ok(Hidden::Not) => Ok(Value::Null),
        // The answer on the rest stands.
        Err(error) if error.refusal().is_some() => Ok(json!({ "in": "unknown", "note": error.to_string() })),
        Err(error) => Err(error),
    }
}

/// Learns everything that a dry run would, and judges one object by it: its key, or its S3 URI. Leaves no record.
///
/// # Errors
/// Those of a run: what would refuse it refuses this.
pub async fn explain_key(
    app: &App,
    directory: &dyn TableDirectory,
    entry: TableEntry,
    key: &str,
    options: &RunOptions,
    deadline: Deadline,
) -> Result<Value, SweepError> {
    let request = SweepRequest {
        run_id: "explain".to_owned(),
        table_id: Some(entry.id.clone()),
        database: entry.database.clone(),
        table: entry.name.clone(),
        mode: Mode::DryRun,
    };
    let now_ms = app.ports.clock.now_ms();
    let mut record = RunRecord::queued(&request, &entry.id, now_ms, String::new());
    record.options = options.clone();
    // Nothing is written that a lock would have to keep apart.
    let lease = Lease { table_id: entry.id.clone(), epoch: 0, expires_at_ms: i64::MAX, run_id: request.run_id };
    let mut attempt = Attempt::new(app, directory, deadline, record, lease, now_ms).looking(STOP_MARGIN_MS);
    let mut known = attempt.learn(Some(entry)).await?;
    let at = match split_uri(key) {
        Ok((bucket, key)) => ObjectKey::new(bucket, key),
        Err(_) => ObjectKey::new(known.table.bucket.clone(), key),
    };
    if at.bucket != known.table.bucket {
        let detail = format!("{at} lies in another bucket than the table at {}", known.table);
        return Err(Refusal::new(RefusalReason::LocationOutsideTable, detail).into());
    }
    let found = app.ports.objects.head(&at).await;
    // As a run does: what was seen first is judged by what the pointers say after that.
    known.refresh(Moment::Judging).await?;
    let held = match known.references.held(&at) {
        Held::No => "no",
        Held::Referenced => "referenced",
        Held::Pending => "pending",
        Held::SpelledDifferently => "spelled_differently",
    };
    let meta = match found {
        Ok(meta) => meta,
        Err(ObjectError::NotFound(_)) => {
            let pointer = known.own()?.pointer();
            let kept = where_it_is(app, &attempt.record.table_id, &at, deadline).await?;
            return Ok(json!({ "key": at.key, "exists": false, "held": held, "pointer": pointer, "kept": kept }));
        }
        Err(error) => return Err(error.into()),
    };
    let object = Listed {
        key: at.key.clone(),
        etag: meta.etag,
        size_bytes: meta.size_bytes,
        last_modified_ms: meta.last_modified_ms,
    };
    known.note_signs(std::slice::from_ref(&object))?;
    let reason = known.judge(&object);
    Ok(json!({
        "key": at.key,
        "exists": true,
        "decision": if reason.is_kept() { "keep" } else { "delete" },
        "reason": reason.as_str(),
        "because": reason.explain(),
        "held": held,
        "size_bytes": object.size_bytes,
        "last_modified_ms": object.last_modified_ms,
        "age_ms": now_ms.saturating_sub(object.last_modified_ms),
        "gate_ms": known.policy.gate_ms,
        "retention_ms": known.retention_ms,
        "first_seen_ms": known.sightings.first_seen_ms(&at, &object),
        "candidate_since_ms": known.sightings.candidate_since_ms(&at, &object),
        "pointer": known.own()?.pointer(),
        "findings": attempt.record.facts.findings,
    }))
}
