use async_trait::async_trait;
use lakewarden_core::store::{Queue, QueueName, StoreError};
use rusqlite::{Connection, OptionalExtension, Transaction, params};

use super::message_attributes::MessageAttributes;
use super::store::{LocalQueues, need_queue, new_id, stored_ms};
use super::{BATCH_MAX, DELAY_MAX_MS, MESSAGE_MAX_BYTES, QueueFailure, VISIBILITY_MAX_MS};

/// Names one delivery of one message; void once the message is delivered again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Receipt(pub String);

/// A message to send.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outgoing {
    pub body: String,
    pub attributes: MessageAttributes,
    /// The queue's own delay if absent.
    pub delay_ms: Option<u64>,
}

/// A message that was sent; it is on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    pub message_id: String,
}

/// A delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    pub message_id: String,
    pub receipt: Receipt,
    pub body: String,
    pub attributes: MessageAttributes,
    /// This delivery counts.
    pub receives: u32,
    pub sent_ms: i64,
    pub first_received_ms: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiveOptions {
    /// 1 to 10.
    pub max: usize,
    /// The queue's own if absent.
    pub visibility_timeout_ms: Option<u64>,
    /// How long to wait for a first message.
    pub wait_ms: u64,
}

impl Default for ReceiveOptions {
    fn default() -> Self {
        Self { max: 1, visibility_timeout_ms: None, wait_ms: 0 }
    }
}

fn check_outgoing(message: &Outgoing) -> Result<(), QueueFailure> {
    let size_bytes = message.body.len().saturating_add(message.attributes.size_bytes());
    if size_bytes > MESSAGE_MAX_BYTES {
        return Err(QueueFailure::TooLarge { size_bytes, max_bytes: MESSAGE_MAX_BYTES });
    }
    let is_allowed = |c: char| matches!(c, '\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'..);
    if message.body.is_empty() || !message.body.chars().all(is_allowed) {
        return Err(QueueFailure::InvalidContents);
    }
    check_ms("the delay", message.delay_ms, DELAY_MAX_MS)
}

fn check_ms(what: &'static str, given_ms: Option<u64>, max_ms: u64) -> Result<(), QueueFailure> {
    match given_ms {
        Some(given_ms) if given_ms > max_ms => Err(QueueFailure::TooLong { what, given_ms, max_ms }),
        _ => Ok(()),
    }
}

impl LocalQueues {
    /// Sends one message. It is on disk when this returns.
    pub async fn send(&self, queue: &str, message: Outgoing) -> Result<Sent, QueueFailure> {
        check_outgoing(&message)?;
        let queue = queue.to_owned();
        let sent = self.transact(move |tx, now_ms| insert(tx, &queue, &message, now_ms)).await?;
        self.tell_change();
        Ok(sent)
    }

    /// Sends messages to several queues, all or none of them. They are visible at once, and on disk after
    /// [`LocalQueues::flush`].
    pub async fn send_all(&self, messages: Vec<(QueueName, Outgoing)>) -> Result<(), QueueFailure> {
        messages.iter().try_for_each(|(_, message)| check_outgoing(message))?;
        if messages.is_empty() {
            return Ok(());
        }
        self.transact_lazily(move |tx, now_ms| {
            messages.iter().try_for_each(|(queue, message)| insert(tx, queue.as_str(), message, now_ms).map(|_| ()))
        })
        .await?;
        self.tell_change();
        Ok(())
    }

    /// Everything that was done before is on disk when this returns.
    pub async fn flush(&self) -> Result<(), QueueFailure> {
        // A transaction that writes nothing would not reach the disk.
        self.transact(|tx, now_ms| {
            tx.prepare_cached("INSERT OR REPLACE INTO meta VALUES('flushed_ms', ?)")?.execute([now_ms.to_string()])?;
            Ok(())
        })
        .await
    }

    /// Up to `options.max` messages, oldest first; waits up to `options.wait_ms` if there is none.
    pub async fn receive(&self, queue: &str, options: &ReceiveOptions) -> Result<Vec<Received>, QueueFailure> {
        check_ms("the visibility timeout", options.visibility_timeout_ms, VISIBILITY_MAX_MS)?;
        let waited = tokio::time::sleep(std::time::Duration::from_millis(options.wait_ms));
        tokio::pin!(waited);
        let mut changes = self.changes();
        loop {
            changes.mark_unchanged();
            let found = self.receive_now(queue, options).await?;
            if !found.is_empty() || options.wait_ms == 0 {
                return Ok(found);
            }
            let next = self.next_visible_in(queue).await?;
            tokio::select! {
                () = &mut waited => return Ok(found),
                _ = changes.changed() => {}
                () = tokio::time::sleep(next) => {}
            }
        }
    }

    async fn receive_now(&self, queue: &str, options: &ReceiveOptions) -> Result<Vec<Received>, QueueFailure> {
        let queue = queue.to_owned();
        let max = options.max.clamp(1, BATCH_MAX);
        let timeout_ms = options.visibility_timeout_ms;
        // Forgotten, it is received once more.
        self.transact_lazily(move |tx, now_ms| {
            let settings = need_queue(tx, &queue)?.settings;
            bury_exhausted(tx, &queue, settings.max_receives, now_ms)?;
            let ids = tx
                .prepare_cached(
                    "SELECT id FROM message WHERE queue = ?1 AND dead_ms IS NULL AND visible_ms <= ?2
                     ORDER BY id LIMIT ?3",
                )?
                .query_map(params![queue, now_ms, i64::try_from(max).unwrap_or(1)], |row| row.get::<_, i64>(0))?
                .collect::<Result<Vec<_>, _>>()?;
            let hidden_ms = stored_ms(timeout_ms.unwrap_or(settings.visibility_timeout_ms));
            ids.into_iter().map(|id| deliver(tx, id, now_ms, now_ms.saturating_add(hidden_ms))).collect()
        })
        .await
    }

    /// How long until a message that is hidden now may appear.
    async fn next_visible_in(&self, queue: &str) -> Result<std::time::Duration, QueueFailure> {
        /// Far enough; every change wakes the waiter anyway.
        const NOTHING_MS: i64 = 60_000;
        let queue = queue.to_owned();
        self.transact(move |tx, now_ms| {
            let next: Option<i64> = tx
                .prepare_cached("SELECT min(visible_ms) FROM message WHERE queue = ? AND dead_ms IS NULL")?
                .query_row([queue], |row| row.get(0))?;
            let left_ms = next.map_or(NOTHING_MS, |at| at.saturating_sub(now_ms)).clamp(1, NOTHING_MS);
            Ok(std::time::Duration::from_millis(u64::try_from(left_ms).unwrap_or(1)))
        })
        .await
    }

    /// Deletes a message that was received. `false`: it was not there under this receipt any more (deleted before, or
    /// delivered again meanwhile), which is no error in SQS either.
    pub async fn delete(&self, queue: &str, receipt: &Receipt) -> Result<bool, QueueFailure> {
        self.delete_all(queue, vec![receipt.clone()]).await.map(|deleted| deleted > 0)
    }

    /// Deletes messages that were received; how many of them were still there. (Forgotten with the machine, they come again.)
    pub async fn delete_all(&self, queue: &str, receipts: Vec<Receipt>) -> Result<usize, QueueFailure> {
        let queue = queue.to_owned();
        self.transact_lazily(move |tx, _| {
            need_queue(tx, &queue)?;
            let mut delete =
                tx.prepare_cached("DELETE FROM message WHERE queue = ? AND receipt = ? AND dead_ms IS NULL")?;
            let mut deleted = 0;
            for receipt in &receipts {
                deleted += delete.execute([&queue, &receipt.0])?;
            }
            Ok(deleted)
        })
        .await
    }

    /// Hides a received message for `timeout_ms` from now; 0 makes it visible at once.
    pub async fn change_visibility(&self, queue: &str, receipt: &Receipt, timeout_ms: u64) -> Result<(), QueueFailure> {
        check_ms("the visibility timeout", Some(timeout_ms), VISIBILITY_MAX_MS)?;
        let (queue, receipt) = (queue.to_owned(), receipt.clone());
        self.transact(move |tx, now_ms| {
            need_queue(tx, &queue)?;
            let id = need_in_flight(tx, &queue, &receipt, now_ms)?;
            let visible_ms = now_ms.saturating_add(stored_ms(timeout_ms));
            tx.prepare_cached("UPDATE message SET visible_ms = ? WHERE id = ?")?.execute([visible_ms, id])?;
            Ok(())
        })
        .await?;
        self.tell_change();
        Ok(())
    }

    /// Makes every received, undeleted message visible again; for a start at which no receiver can be at work. Says how
    /// many. The deliveries count.
    pub async fn release_in_flight(&self) -> Result<usize, QueueFailure> {
        let count = self
            .transact(|tx, now_ms| {
                Ok(tx.execute(
                    "UPDATE message SET visible_ms = ?1, receipt = NULL
                     WHERE dead_ms IS NULL AND receipt IS NOT NULL AND visible_ms > ?1",
                    params![now_ms],
                )?)
            })
            .await?;
        self.tell_change();
        Ok(count)
    }

    /// Reports that handling a message failed: keeps the reason, and lets it appear again after `retry_ms`, or makes it
    /// a dead letter if this was the last delivery.
    pub async fn fail(&self, queue: &str, receipt: &Receipt, reason: &str, retry_ms: u64) -> Result<(), QueueFailure> {
        check_ms("the visibility timeout", Some(retry_ms), VISIBILITY_MAX_MS)?;
        let (queue, receipt, reason) = (queue.to_owned(), receipt.clone(), reason.to_owned());
        self.transact(move |tx, now_ms| {
            let settings = need_queue(tx, &queue)?.settings;
            let id = need_delivery(tx, &queue, &receipt)?;
            tx.prepare_cached("UPDATE message SET last_error = ?, visible_ms = ? WHERE id = ?")?.execute(params![
                reason,
                now_ms.saturating_add(stored_ms(retry_ms)),
                id
            ])?;
            let Some(max_receives) = settings.max_receives else { return Ok(()) };
            tx.prepare_cached(
                "UPDATE message SET dead_ms = ?, receipt = NULL WHERE id = ? AND receives >= ? AND dead_ms IS NULL",
            )?
            .execute(params![now_ms, id, max_receives])?;
            Ok(())
        })
        .await?;
        self.tell_change();
        Ok(())
    }
}

fn insert(tx: &Transaction<'_>, queue: &str, message: &Outgoing, now_ms: i64) -> Result<Sent, QueueFailure> {
    let settings = need_queue(tx, queue)?.settings;
    let message_id = new_id();
    let delay_ms = message.delay_ms.unwrap_or(settings.delay_ms);
    tx.prepare_cached(
        "INSERT INTO message(queue, message_id, body, attributes, sent_ms, visible_ms, receives)
         VALUES(?, ?, ?, ?, ?, ?, 0)",
    )?
    .execute(params![
        queue,
        message_id,
        message.body,
        serde_json::to_string(&message.attributes)?,
        now_ms,
        now_ms.saturating_add(stored_ms(delay_ms))
    ])?;
    Ok(Sent { message_id })
}

fn deliver(tx: &Transaction<'_>, id: i64, now_ms: i64, visible_ms: i64) -> Result<Received, QueueFailure> {
    let receipt = Receipt(new_id());
    let (received, attributes) = tx
        .prepare_cached(
            "UPDATE message SET receives = receives + 1, visible_ms = ?1, receipt = ?2, last_received_ms = ?3,
               first_received_ms = coalesce(first_received_ms, ?3)
             WHERE id = ?4 RETURNING message_id, body, attributes, receives, sent_ms, first_received_ms",
        )?
        .query_row(params![visible_ms, receipt.0, now_ms, id], |row| {
            let received = Received {
                message_id: row.get(0)?,
                receipt: receipt.clone(),
                body: row.get(1)?,
                attributes: MessageAttributes::default(),
                receives: row.get(3)?,
                sent_ms: row.get(4)?,
                first_received_ms: row.get(5)?,
            };
            Ok((received, row.get::<_, String>(2)?))
        })?;
    Ok(Received { attributes: serde_json::from_str(&attributes)?, ..received })
}

/// Messages that came back after their last delivery become dead letters.
pub(super) fn bury_exhausted(
    tx: &Transaction<'_>,
    queue: &str,
    max_receives: Option<u32>,
    now_ms: i64,
) -> Result<(), QueueFailure> {
    let Some(max_receives) = max_receives else { return Ok(()) };
    tx.prepare_cached(
        "UPDATE message SET dead_ms = ?1, receipt = NULL
         WHERE queue = ?2 AND dead_ms IS NULL AND visible_ms <= ?1 AND receives >= ?3",
    )?
    .execute(params![now_ms, queue, max_receives])?;
    Ok(())
}

/// A delivered message, hidden or not.
fn need_delivery(connection: &Connection, queue: &str, receipt: &Receipt) -> Result<i64, QueueFailure> {
    let found = connection
        .prepare_cached("SELECT id FROM message WHERE queue = ? AND receipt = ? AND dead_ms IS NULL")?
        .query_row([queue, receipt.0.as_str()], |row| row.get(0))
        .optional()?;
    found.ok_or(QueueFailure::NotInFlight)
}

fn need_in_flight(connection: &Connection, queue: &str, receipt: &Receipt, now_ms: i64) -> Result<i64, QueueFailure> {
    let id = need_delivery(connection, queue, receipt)?;
    let is_hidden =
        connection.prepare_cached("SELECT 1 FROM message WHERE id = ? AND visible_ms > ?")?.exists([id, now_ms])?;
    if is_hidden { Ok(id) } else { Err(QueueFailure::NotInFlight) }
}

#[async_trait]
impl Queue for LocalQueues {
    /// As SQS takes it: the delay is rounded up to whole seconds.
    async fn send(&self, queue: QueueName, body: String, delay_ms: u64) -> Result<(), StoreError> {
        let delay_ms = (delay_ms > 0).then(|| delay_ms.div_ceil(1000).saturating_mul(1000));
        let message = Outgoing { body, delay_ms, ..Default::default() };
        LocalQueues::send(self, queue.as_str(), message)
            .await
            .map(|_| ())
            .map_err(|failure| failure.into_store_error(format!("send {}", queue.as_str())))
    }
}
