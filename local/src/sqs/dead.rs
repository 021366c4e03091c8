use rusqlite::params;
use serde::Serialize;

use super::QueueFailure;
use super::queues::bury_exhausted;
use super::store::{LocalQueues, need_queue};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct DeadLetterId(pub i64);

/// A message that was received too often.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeadLetter {
    pub id: DeadLetterId,
    pub message_id: String,
    pub body: String,
    pub sent_ms: i64,
    pub first_received_ms: Option<i64>,
    pub last_received_ms: Option<i64>,
    pub dead_ms: i64,
    pub receives: u32,
    /// What the last receiver reported; absent if it only let the time pass.
    pub last_error: Option<String>,
}

/// Which dead letters are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeadLetters {
    One(DeadLetterId),
    All,
}

impl LocalQueues {
    /// Up to `max` dead letters behind `after`, oldest first.
    pub async fn dead_letters(
        &self,
        queue: &str,
        after: Option<DeadLetterId>,
        max: usize,
    ) -> Result<Vec<DeadLetter>, QueueFailure> {
        let queue = queue.to_owned();
        self.transact(move |tx, now_ms| {
            bury_exhausted(tx, &queue, need_queue(tx, &queue)?.settings.max_receives, now_ms)?;
            let after = after.map_or(0, |id| id.0);
            let mut query = tx.prepare_cached(
                "SELECT id, message_id, body, sent_ms, first_received_ms, last_received_ms, dead_ms, receives, last_error
                 FROM message WHERE queue = ? AND dead_ms IS NOT NULL AND id > ? ORDER BY id LIMIT ?",
            )?;
            let letters = query.query_map(params![queue, after, i64::try_from(max).unwrap_or(i64::MAX)], |row| {
                Ok(DeadLetter {
                    id: DeadLetterId(row.get(0)?),
                    message_id: row.get(1)?,
                    body: row.get(2)?,
                    sent_ms: row.get(3)?,
                    first_received_ms: row.get(4)?,
                    last_received_ms: row.get(5)?,
                    dead_ms: row.get(6)?,
                    receives: row.get(7)?,
                    last_error: row.get(8)?,
                })
            })?;
            Ok(letters.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// Sends dead letters again, with a fresh count of receives; says how many. The last error stays with the message
    /// until the next one.
    pub async fn redrive(&self, queue: &str, which: DeadLetters) -> Result<usize, QueueFailure> {
        let queue = queue.to_owned();
        let count = self
            .transact(move |tx, now_ms| {
                need_queue(tx, &queue)?;
                let (first, last) = bounds(which);
                Ok(tx
                    .prepare_cached(
                        "UPDATE message SET dead_ms = NULL, receives = 0, visible_ms = ?, receipt = NULL
                         WHERE queue = ? AND dead_ms IS NOT NULL AND id BETWEEN ? AND ?",
                    )?
                    .execute(params![now_ms, queue, first, last])?)
            })
            .await?;
        self.tell_change();
        Ok(count)
    }

    /// Deletes dead letters for good; says how many.
    pub async fn discard_dead_letters(&self, queue: &str, which: DeadLetters) -> Result<usize, QueueFailure> {
        let queue = queue.to_owned();
        self.transact(move |tx, _| {
            need_queue(tx, &queue)?;
            let (first, last) = bounds(which);
            Ok(tx
                .prepare_cached("DELETE FROM message WHERE queue = ? AND dead_ms IS NOT NULL AND id BETWEEN ? AND ?")?
                .execute(params![queue, first, last])?)
        })
        .await
    }
}

fn bounds(which: DeadLetters) -> (i64, i64) {
    match which {
        DeadLetters::One(DeadLetterId(id)) => (id, id),
        DeadLetters::All => (i64::MIN, i64::MAX),
    }
}
