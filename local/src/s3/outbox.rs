//! Events, written in the transaction of the change they tell of.
//!
//! Delivery is at least once: an event stays in the outbox until it is acknowledged, across restarts, so a dispatcher
//! acknowledges *after* it has handed an event on. Ids ascend in the order in which the changes were committed, over all
//! keys, and are never used twice; a dispatcher that follows several events at once polls behind the last id it has seen
//! and acknowledges single ids as they are done. S3 itself promises less (no order, duplicates), so nothing downstream
//! may rely on more than that. There is one event per change: an overwritten object has two `ObjectCreated` events, and
//! deleting what is not there has none. Creating and deleting buckets and changing tags have no events.

use rusqlite::{Connection, params};
use serde::Serialize;

use super::rows::{read_u64, stored_size};
use super::store::Change;
use super::{Failure, Store};

/// Place of an event in the order of changes. `EventId(0)` is before the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct EventId(pub i64);

/// A change of an object that nobody has acknowledged yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Event {
    pub id: EventId,
    /// As S3 names it in notifications, without the `s3:` of filters: `ObjectCreated:Put`.
    pub name: String,
    pub bucket: String,
    /// Decoded.
    pub key: String,
    /// Absent for deletions.
    pub size_bytes: Option<u64>,
    /// Without quotes; absent for deletions.
    pub etag: Option<String>,
    pub time_ms: i64,
    /// Ascends with the changes of a key; compare as text.
    pub sequencer: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventName {
    CreatedPut,
    CreatedCopy,
    CreatedCompleteMultipartUpload,
    RemovedDelete,
    RemovedDeleteMarkerCreated,
}

impl EventName {
    fn as_str(self) -> &'static str {
        match self {
            EventName::CreatedPut => "ObjectCreated:Put",
            EventName::CreatedCopy => "ObjectCreated:Copy",
            EventName::CreatedCompleteMultipartUpload => "ObjectCreated:CompleteMultipartUpload",
            EventName::RemovedDelete => "ObjectRemoved:Delete",
            EventName::RemovedDeleteMarkerCreated => "ObjectRemoved:DeleteMarkerCreated",
        }
    }
}

impl Change<'_> {
    pub fn append_event(
        &mut self,
        name: EventName,
        bucket: &str,
        key: &str,
        written: Option<(u64, &str)>,
    ) -> Result<(), Failure> {
        let (size, etag) = written.map_or((None, None), |(size, etag)| (Some(stored_size(size)), Some(etag)));
        let id = self
            .tx
            .prepare_cached("INSERT INTO event(name, bucket, key, size_bytes, etag, time_ms) VALUES(?, ?, ?, ?, ?, ?)")?
            .insert(params![name.as_str(), bucket, key.as_bytes(), size, etag, self.now_ms])?;
        self.note_event(id);
        Ok(())
    }
}

/// Id of the newest event ever written; ids of acknowledged events count.
pub(super) fn newest_id(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'event'", [], |row| row.get(0))
}

impl Store {
    /// Up to `max` events behind `after` that are not acknowledged, in order.
    pub async fn poll_events(&self, after: EventId, max: usize) -> Result<Vec<Event>, Failure> {
        let max = i64::try_from(max).unwrap_or(i64::MAX);
        self.read(move |connection| {
            let mut query = connection.prepare_cached(
                "SELECT id, name, bucket, key, size_bytes, etag, time_ms FROM event WHERE id > ? ORDER BY id LIMIT ?",
            )?;
            let events = query.query_map([after.0, max], |row| {
                let id = row.get(0)?;
                Ok(Event {
                    id: EventId(id),
                    name: row.get(1)?,
                    bucket: row.get(2)?,
                    key: String::from_utf8_lossy(&row.get::<_, Vec<u8>>(3)?).into_owned(),
                    size_bytes: row.get::<_, Option<i64>>(4)?.map(|_| read_u64(row, 4)).transpose()?,
                    etag: row.get(5)?,
                    time_ms: row.get(6)?,
                    sequencer: format!("{id:016X}"),
                })
            })?;
            Ok(events.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// The newest event there has been, acknowledged or not.
    pub fn newest_event_id(&self) -> EventId {
        EventId(*self.newest_event().borrow())
    }

    /// How many events are not acknowledged.
    pub async fn count_events(&self) -> Result<u64, Failure> {
        self.read(|connection| Ok(connection.query_row("SELECT count(*) FROM event", [], |row| read_u64(row, 0))?))
            .await
    }

    /// Acknowledges every event up to and including `last`. They are not polled again, unless the machine ends before this
    /// reaches the disk, which it does with the next change of an object.
    pub async fn acknowledge_events_through(&self, last: EventId) -> Result<(), Failure> {
        self.write_lazily(move |change| {
            change.tx.prepare_cached("DELETE FROM event WHERE id <= ?")?.execute([last.0])?;
            Ok(())
        })
        .await
    }

    /// Acknowledges single events; ids that are gone already are fine.
    pub async fn acknowledge_events(&self, ids: Vec<EventId>) -> Result<(), Failure> {
        self.write(move |change| {
            let mut delete = change.tx.prepare_cached("DELETE FROM event WHERE id = ?")?;
            for id in ids {
                delete.execute([id.0])?;
            }
            Ok(())
        })
        .await
    }

    /// Waits until there has been an event behind `after`. Returns at once if there already was, so no event can slip
    /// between polling and waiting.
    pub async fn wait_for_event(&self, after: EventId) {
        // The sender lives as long as this store; there is no other way for the wait to end.
        let _ = self.newest_event().wait_for(|newest| *newest > after.0).await;
    }
}
