//! Writers' leases: what a writer announces before it writes stays, however long its commit takes.
//!
//! A lease protects while it lasts and, since a job that stopped to renew may still commit, one retention longer. Grants
//! wait while a batch is being deleted; a writer that asks for keys which exist already is told which of them do.

use std::collections::HashSet;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use serde_json::{Map, Value, json};

use super::items::{LeaseFence, WriterLease};
use super::optimizer::load_by_name;
use super::{CatalogDirectory, SweepError, TableDirectory, TableEntry};
use crate::glue::{GlueException, GlueExceptionName};
use crate::limits::OBJECT_KEY_MAX_BYTES;
use crate::location::{Location, LocationError, plain, split_uri};
use crate::ports::App;
use crate::store::{
    CancelReason, Condition, ObjectError, ObjectKey, ReadItems, ReadObjects, TransactError, Write, WriteError,
};

/// Keys and prefixes of one lease: an item holds so many of the longest.
const KEYS_MAX: usize = 200;
const PREFIXES_MAX: usize = 50;
const LIFETIME_DEFAULT_MS: i64 = 15 * 60_000;
const LIFETIME_MIN_MS: i64 = 60_000;
const LIFETIME_MAX_MS: i64 = 7 * 86_400_000;
const HOLDER_MAX_LETTERS: usize = 255;
/// HEAD requests at the same time.
const HEAD_CONCURRENCY: usize = 16;
/// A page of leases ends behind the one that makes it as large as this.
const PAGE_BYTES: usize = 1024 * 1024;

/// What leases cover.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leased {
    prefixes: Vec<ObjectKey>,
    keys: HashSet<ObjectKey>,
    /// Both in the form that all spellings have in common.
    plain_prefixes: Vec<Vec<u8>>,
    plain_keys: HashSet<Vec<u8>>,
}

impl Leased {
    pub fn new(prefixes: Vec<ObjectKey>, keys: HashSet<ObjectKey>) -> Self {
        let mut leased = Self::default();
        leased.add(prefixes, keys);
        leased
    }

    fn add(&mut self, prefixes: impl IntoIterator<Item = ObjectKey>, keys: impl IntoIterator<Item = ObjectKey>) {
        for at in prefixes {
            self.plain_prefixes.push(plain(&at.key));
            self.prefixes.push(at);
        }
        for at in keys {
            self.plain_keys.insert(plain(&at.key));
            self.keys.insert(at);
        }
    }

    /// In any spelling: a lease only ever keeps.
    pub fn covers(&self, at: &ObjectKey) -> bool {
        let begins = |prefix: &ObjectKey| prefix.bucket == at.bucket && at.key.starts_with(&prefix.key);
        if self.keys.contains(at) || self.prefixes.iter().any(begins) {
            return true;
        }
        if self.prefixes.is_empty() && self.keys.is_empty() {
            return false;
        }
        let plain = plain(&at.key);
        self.plain_keys.contains(&plain) || self.plain_prefixes.iter().any(|prefix| plain.starts_with(prefix))
    }

    /// The leases of some tables that count at a moment; those that do not any more are answered beside them.
    pub async fn load(
        items: &dyn ReadItems,
        table_ids: &[String],
        retention_ms: i64,
        now_ms: i64,
    ) -> Result<(Self, Vec<WriterLease>), SweepError> {
        let (mut leased, mut over) = (Self::default(), Vec::new());
        for table_id in table_ids {
            for lease in WriterLease::load_all(items, table_id).await? {
                if lease.expires_at_ms.saturating_add(retention_ms) < now_ms {
                    over.push(lease);
                } else {
                    leased.add(lease.prefixes, lease.keys);
                }
            }
        }
        Ok((leased, over))
    }
}

/// [`grant_in`] on the product's own catalog.
pub async fn grant(app: &App, database: &str, table: &str, body: &Value) -> Result<Value, GlueException> {
    grant_in(app, &CatalogDirectory::new(app), database, table, body).await
}

/// [`renew_in`] on the product's own catalog.
pub async fn renew(
    app: &App,
    database: &str,
    table: &str,
    lease_id: &str,
    body: &Value,
) -> Result<Value, GlueException> {
    renew_in(app, &CatalogDirectory::new(app), database, table, lease_id, body).await
}

/// [`release_in`] on the product's own catalog.
pub async fn release(app: &App, database: &str, table: &str, lease_id: &str) -> Result<Value, GlueException> {
    release_in(app, &CatalogDirectory::new(app), database, table, lease_id).await
}

/// [`list_in`] on the product's own catalog.
pub async fn list(app: &App, database: &str, table: &str, token: Option<&str>) -> Result<Value, GlueException> {
    list_in(app, &CatalogDirectory::new(app), database, table, token).await
}

/// Announces what a writer is about to write: `{"prefixes": [uri], "keys": [uri], "ttl_seconds": n, "holder": text}`, at
/// least one prefix or key, all inside the table's location. Answers the lease, and with `keys` which of them exist
/// (`missing`: to be written, or written again).
///
/// # Errors
/// `ResourceNotReadyException` while a sweep deletes a batch: try again in a few seconds.
pub async fn grant_in(
    app: &App,
    directory: &dyn TableDirectory,
    database: &str,
    table: &str,
    body: &Value,
) -> Result<Value, GlueException> {
    let bad = |message: String| GlueException::invalid_input(message);
    let entry = load_by_name(directory, database, table).await?;
    let home = entry.location.clone().ok_or_else(|| bad(format!("{entry} has no location on S3.")))?;
    let now_ms = app.ports.clock.now_ms();
    let lease = WriterLease {
        table_id: entry.id.clone(),
        lease_id: app.ports.ids.uuid().simple().to_string(),
        holder: holder(body)?,
        prefixes: prefixes(body, &home)?,
        keys: keys(body, &home)?,
        granted_ms: now_ms,
        expires_at_ms: now_ms.saturating_add(lifetime_ms(body)?),
        revision: app.ports.ids.uuid().simple().to_string(),
    };
    if lease.prefixes.is_empty() && lease.keys.is_empty() {
        return Err(bad("A lease names prefixes or keys: what is about to be written.".to_owned()));
    }
    put(app, &lease, Condition::Absent).await?;
    let missing = missing(app.ports.objects.as_ref(), &lease.keys).await?;
    let mut answer = describe(&lease);
    answer.insert("missing".to_owned(), missing.iter().map(ToString::to_string).collect());
    Ok(Value::Object(answer))
}

/// Heartbeat: extends a lease by `{"ttl_seconds": n}` from now on. One that has run out can be renewed as long as no
/// sweep has forgotten it.
pub async fn renew_in(
    app: &App,
    directory: &dyn TableDirectory,
    database: &str,
    table: &str,
    lease_id: &str,
    body: &Value,
) -> Result<Value, GlueException> {
    let (_, old) = load(app, directory, database, table, lease_id).await?;
    let renewed = WriterLease {
        expires_at_ms: app.ports.clock.now_ms().saturating_add(lifetime_ms(body)?).max(old.expires_at_ms),
        revision: app.ports.ids.uuid().simple().to_string(),
        ..old.clone()
    };
    put(app, &renewed, old.unchanged()).await?;
    Ok(Value::Object(describe(&renewed)))
}

/// Gives a lease back: its files are committed, or not wanted.
pub async fn release_in(
    app: &App,
    directory: &dyn TableDirectory,
    database: &str,
    table: &str,
    lease_id: &str,
) -> Result<Value, GlueException> {
    let (entry, _) = load(app, directory, database, table, lease_id).await?;
    match app.ports.items.delete(&WriterLease::key(&entry.id, lease_id), Condition::Always).await {
        Ok(()) | Err(WriteError::ConditionFailed { .. }) => Ok(json!({})),
        Err(WriteError::Store(error)) => Err(error.into()),
    }
}

/// Leases of a table by their ids: `{"leases": [...], "next_token": ...}`, also those that have run out and still protect.
pub async fn list_in(
    app: &App,
    directory: &dyn TableDirectory,
    database: &str,
    table: &str,
    token: Option<&str>,
) -> Result<Value, GlueException> {
    let entry = load_by_name(directory, database, table).await?;
    if token.is_some_and(|token| !is_lease_id(token)) {
        return Err(GlueException::invalid_input("next_token is not one that an earlier answer gave."));
    }
    let (mut leases, mut next, mut size_bytes) = (Vec::new(), None, 0_usize);
    let all = WriterLease::load_all(app.ports.items.as_ref(), &entry.id).await?;
    for lease in all.iter().filter(|lease| token.is_none_or(|token| lease.lease_id.as_str() > token)) {
        if size_bytes >= PAGE_BYTES {
            break;
        }
        let described = Value::Object(describe(lease));
        size_bytes = size_bytes.saturating_add(described.to_string().len());
        leases.push(described);
        next = Some(lease.lease_id.clone());
    }
    let mut answer = Map::from_iter([("leases".to_owned(), Value::Array(leases))]);
    if let Some(next) = next.filter(|next| all.last().is_some_and(|last| last.lease_id != *next)) {
        answer.insert("next_token".to_owned(), next.into());
    }
    Ok(Value::Object(answer))
}

fn is_lease_id(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

async fn load(
    app: &App,
    directory: &dyn TableDirectory,
    database: &str,
    table: &str,
    lease_id: &str,
) -> Result<(TableEntry, WriterLease), GlueException> {
    let entry = load_by_name(directory, database, table).await?;
    let found = match is_lease_id(lease_id) {
        true => WriterLease::load(app.ports.items.as_ref(), &entry.id, lease_id).await?,
        false => None,
    };
    let lease = found.ok_or_else(|| {
        let message = "It was released, or ran out so long ago that a sweep forgot it: ask for a new one, and look \
                       whether the files are still there.";
        GlueException::not_found(format!("Table {table} has no lease {lease_id}. {message}"))
    })?;
    Ok((entry, lease))
}

/// Writes a lease unless a batch is being deleted right now.
async fn put(app: &App, lease: &WriterLease, condition: Condition) -> Result<(), GlueException> {
    let key = WriterLease::key(&lease.table_id, &lease.lease_id);
    let writes = [
        Write::Put { key, item: lease.encode(), condition },
        LeaseFence::none(&lease.table_id, app.ports.clock.now_ms()),
    ];
    let cancelled = match app.ports.items.transact(&writes, &lease.revision).await {
        Ok(()) => return Ok(()),
        Err(TransactError::Store(error)) => return Err(error.into()),
        Err(TransactError::Cancelled { reasons }) => reasons,
    };
    if matches!(cancelled.first(), Some(CancelReason::ConditionFailed { .. })) {
        let message = "The lease is being changed by others: try again.";
        return Err(GlueException::new(GlueExceptionName::ConcurrentModification, message));
    }
    let message = "A sweep is deleting a batch of files right now: try again in a few seconds.";
    Err(GlueException::new(GlueExceptionName::ResourceNotReady, message))
}

async fn missing(objects: &dyn ReadObjects, keys: &[ObjectKey]) -> Result<Vec<ObjectKey>, GlueException> {
    // Boxed, since the compiler cannot see through closures that the whole is `Send`.
    let mut asked: Vec<BoxFuture<'_, (ObjectKey, bool, Option<ObjectError>)>> = Vec::new();
    for at in keys {
        let ask = async move {
            match objects.head(at).await {
                Ok(_) => (at.clone(), false, None),
                Err(ObjectError::NotFound(_)) => (at.clone(), true, None),
                Err(error) => (at.clone(), true, Some(error)),
            }
        };
        asked.push(ask.boxed());
    }
    let mut missing = Vec::new();
    for (at, is_missing, error) in stream::iter(asked).buffered(HEAD_CONCURRENCY).collect::<Vec<_>>().await {
        if let Some(error) = error {
            return Err(SweepError::from(error).into());
        }
        missing.extend(is_missing.then_some(at));
    }
    Ok(missing)
}

fn texts<'b>(body: &'b Value, member: &str, most: usize) -> Result<Vec<&'b str>, GlueException> {
    let bad = || GlueException::invalid_input(format!("{member} is a list of up to {most} S3 URIs."));
    let list = match body.get(member) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(list) => list.as_array().filter(|list| list.len() <= most).ok_or_else(bad)?,
    };
    list.iter().map(|text| text.as_str().ok_or_else(bad)).collect()
}

/// Beginnings of keys, byte for byte: `…/job17-` is the beginning of `…/job17-1.parquet`. The table's location is a folder,
/// however it is spelled.
fn prefixes(body: &Value, home: &Location) -> Result<Vec<ObjectKey>, GlueException> {
    let mut prefixes = Vec::new();
    for uri in texts(body, "prefixes", PREFIXES_MAX)? {
        let bad = |error: LocationError| GlueException::invalid_input(error.to_string());
        let whole = Location::parse(uri).map_err(bad)?;
        let (bucket, begin) = split_uri(uri).map_err(bad)?;
        let begin = if whole == *home { home.key_prefix() } else { begin.trim_start_matches('/').to_owned() };
        if bucket != home.bucket || !begin.starts_with(&home.key_prefix()) || begin.len() > OBJECT_KEY_MAX_BYTES {
            return Err(GlueException::invalid_input(format!("{uri} is not inside the table's {home}.")));
        }
        prefixes.push(ObjectKey::new(bucket, begin));
    }
    Ok(prefixes)
}

fn keys(body: &Value, home: &Location) -> Result<Vec<ObjectKey>, GlueException> {
    let mut keys = Vec::new();
    for uri in texts(body, "keys", KEYS_MAX)? {
        let (bucket, key) = split_uri(uri).map_err(|error| GlueException::invalid_input(error.to_string()))?;
        let at = ObjectKey::new(bucket, key);
        if home.relative(&at).is_none() || at.key.len() > OBJECT_KEY_MAX_BYTES {
            return Err(GlueException::invalid_input(format!("{at} is not inside the table's {home}.")));
        }
        keys.push(at);
    }
    Ok(keys)
}

fn holder(body: &Value) -> Result<Option<String>, GlueException> {
    match body.get("holder") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(holder)) if holder.chars().count() <= HOLDER_MAX_LETTERS => Ok(Some(holder.clone())),
        Some(_) => {
            Err(GlueException::invalid_input(format!("holder is a text of up to {HOLDER_MAX_LETTERS} letters.")))
        }
    }
}

fn lifetime_ms(body: &Value) -> Result<i64, GlueException> {
    let lifetime_ms = match body.get("ttl_seconds") {
        None | Some(Value::Null) => Some(LIFETIME_DEFAULT_MS),
        Some(seconds) => seconds.as_i64().and_then(|seconds| seconds.checked_mul(1000)),
    };
    lifetime_ms.filter(|lifetime_ms| (LIFETIME_MIN_MS..=LIFETIME_MAX_MS).contains(lifetime_ms)).ok_or_else(|| {
        let (least, most) = (LIFETIME_MIN_MS / 1000, LIFETIME_MAX_MS / 1000);
        GlueException::invalid_input(format!("ttl_seconds is a whole number from {least} to {most}."))
    })
}

fn describe(lease: &WriterLease) -> Map<String, Value> {
    let answer = json!({
        "lease_id": lease.lease_id,
        "holder": lease.holder,
        "prefixes": lease.prefixes.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "keys": lease.keys.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "granted_ms": lease.granted_ms,
        "expires_at_ms": lease.expires_at_ms,
    });
    match answer {
        Value::Object(answer) => answer,
        _ => Map::new(),
    }
}
