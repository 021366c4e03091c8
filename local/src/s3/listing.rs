//! Listings are range scans in byte order; below a common prefix the scan seeks past it.

use rusqlite::{Connection, params};
use s3s::dto::*;
use s3s::{S3Error, S3Request, S3Response, s3_error};

use super::headers::{KeyEncoding, owner, wire_etag, wire_size, wire_time};
use super::rows::{need_bucket, read_u64};
use super::{Failure, Store};

const PAGE_MAX: i32 = 1000;
/// No byte of UTF-8 is 0xff.
const BEHIND_EVERY_KEY: &[u8] = b"\xff";

/// Where a listing starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum From {
    /// At this key, or behind it if there is none.
    At(Vec<u8>),
    Behind(Vec<u8>),
}

#[derive(Debug)]
struct Scan {
    prefix: String,
    delimiter: Option<String>,
    from: From,
    max: usize,
}

#[derive(Debug)]
enum Entry {
    Object { key: String, size_bytes: u64, etag: String, modified_ms: i64 },
    Prefix(String),
}

/// A page in the terms of both versions of the operation.
#[derive(Debug)]
struct Page {
    entries: Vec<Entry>,
    truncated: bool,
}

/// The first byte string behind everything that starts with `prefix`; none if there is no such.
fn successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let mut next = prefix.to_vec();
    while let Some(last) = next.pop() {
        if last < u8::MAX {
            next.push(last + 1);
            return Some(next);
        }
    }
    None
}

/// The part of `key` up to and including the first delimiter behind `prefix`.
fn common_prefix(key: &str, prefix: &str, delimiter: Option<&str>) -> Option<String> {
    let (rest, delimiter) = (key.strip_prefix(prefix)?, delimiter?);
    let (head, _) = rest.split_once(delimiter)?;
    Some(format!("{prefix}{head}{delimiter}"))
}

impl Entry {
    fn name(&self) -> &str {
        match self {
            Entry::Object { key, .. } => key,
            Entry::Prefix(prefix) => prefix,
        }
    }

    /// Where the next page starts if this was the last entry.
    fn next(&self) -> From {
        match self {
            Entry::Object { key, .. } => From::Behind(key.as_bytes().to_vec()),
            Entry::Prefix(prefix) => behind_prefix(prefix),
        }
    }
}

fn behind_prefix(prefix: &str) -> From {
    // Text in UTF-8 never ends in 0xff, so there is always a successor; the empty prefix is never passed.
    successor(prefix.as_bytes()).map_or_else(|| From::Behind(prefix.as_bytes().to_vec()), From::At)
}

/// Up to `scan.max` entries.
fn scan(connection: &Connection, bucket: &str, mut scan: Scan) -> Result<Vec<Entry>, Failure> {
    let end = successor(scan.prefix.as_bytes()).unwrap_or_else(|| BEHIND_EVERY_KEY.to_vec());
    let (From::At(start) | From::Behind(start)) = &scan.from;
    if start.as_slice() < scan.prefix.as_bytes() {
        scan.from = From::At(scan.prefix.clone().into_bytes());
    }
    let mut entries = Vec::new();
    while entries.len() < scan.max {
        let room = scan.max - entries.len();
        match scan_run(connection, bucket, &scan, &end, room, &mut entries)? {
            Some(next) => scan.from = next,
            None => break,
        }
    }
    Ok(entries)
}

/// Collects objects up to the first common prefix; says where to go on, if there may be more.
fn scan_run(
    connection: &Connection,
    bucket: &str,
    scan: &Scan,
    end: &[u8],
    room: usize,
    entries: &mut Vec<Entry>,
) -> Result<Option<From>, Failure> {
    let (sql, start) = match &scan.from {
        From::At(start) => (
            "SELECT key, size_bytes, etag, modified_ms FROM object
             WHERE bucket = ?1 AND key >= ?2 AND key < ?3 ORDER BY key LIMIT ?4",
            start,
        ),
        From::Behind(start) => (
            "SELECT key, size_bytes, etag, modified_ms FROM object
             WHERE bucket = ?1 AND key > ?2 AND key < ?3 ORDER BY key LIMIT ?4",
            start,
        ),
    };
    let mut query = connection.prepare_cached(sql)?;
    let mut rows = query.query(params![bucket, start, end, i64::try_from(room).unwrap_or(i64::MAX)])?;
    while let Some(row) = rows.next()? {
        let key = String::from_utf8_lossy(&row.get::<_, Vec<u8>>(0)?).into_owned();
        if let Some(prefix) = common_prefix(&key, &scan.prefix, scan.delimiter.as_deref()) {
            let next = behind_prefix(&prefix);
            entries.push(Entry::Prefix(prefix));
            return Ok(Some(next));
        }
        entries.push(Entry::Object { key, size_bytes: read_u64(row, 1)?, etag: row.get(2)?, modified_ms: row.get(3)? });
    }
    Ok(None)
}

async fn list_page(store: &Store, bucket: String, mut scanned: Scan) -> Result<Page, Failure> {
    let max = scanned.max;
    // One more than asked for tells whether there is more.
    scanned.max = if max == 0 { 0 } else { max.saturating_add(1) };
    let mut entries = store
        .read(move |connection| {
            need_bucket(connection, &bucket)?;
            scan(connection, &bucket, scanned)
        })
        .await?;
    let truncated = entries.len() > max;
    entries.truncate(max);
    Ok(Page { entries, truncated })
}

impl Page {
    fn next(&self) -> Option<&Entry> {
        self.entries.last().filter(|_| self.truncated)
    }

    fn into_wire(self, encoding: KeyEncoding, object_owner: Option<Owner>) -> (Vec<Object>, Vec<CommonPrefix>) {
        let (mut objects, mut prefixes) = (Vec::new(), Vec::new());
        for entry in self.entries {
            match entry {
                Entry::Object { key, size_bytes, etag, modified_ms } => objects.push(Object {
                    key: Some(encoding.encode(key)),
                    size: Some(wire_size(size_bytes)),
                    e_tag: Some(wire_etag(&etag)),
                    last_modified: Some(wire_time(modified_ms)),
                    storage_class: Some(ObjectStorageClass::from_static(ObjectStorageClass::STANDARD)),
                    owner: object_owner.clone(),
                    ..Default::default()
                }),
                Entry::Prefix(prefix) => prefixes.push(CommonPrefix { prefix: Some(encoding.encode(prefix)) }),
            }
        }
        (objects, prefixes)
    }
}

fn page_size(max_keys: Option<i32>) -> Result<i32, S3Error> {
    match max_keys {
        None => Ok(PAGE_MAX),
        Some(given) if given < 0 => Err(s3_error!(InvalidArgument, "max-keys is negative")),
        Some(given) => Ok(given.min(PAGE_MAX)),
    }
}

/// Opaque to clients: whether the start is included, and the key, in hexadecimal.
fn encode_token(from: &From) -> String {
    match from {
        From::At(key) => format!("01{}", hex::encode(key)),
        From::Behind(key) => format!("00{}", hex::encode(key)),
    }
}

fn decode_token(token: &str) -> Result<From, S3Error> {
    let raw = hex::decode(token).ok();
    match raw.as_deref().and_then(<[u8]>::split_first) {
        Some((1, key)) => Ok(From::At(key.to_vec())),
        Some((0, key)) => Ok(From::Behind(key.to_vec())),
        _ => Err(s3_error!(InvalidArgument, "The continuation token provided is incorrect")),
    }
}

pub(super) async fn list_objects_v2(
    store: &Store,
    request: S3Request<ListObjectsV2Input>,
) -> Result<S3Response<ListObjectsV2Output>, Failure> {
    let input = request.input;
    let encoding = KeyEncoding::of(input.encoding_type.as_ref())?;
    let max_keys = page_size(input.max_keys)?;
    let from = match (&input.continuation_token, &input.start_after) {
        (Some(token), _) => decode_token(token)?,
        (None, Some(key)) => From::Behind(key.as_bytes().to_vec()),
        (None, None) => From::At(Vec::new()),
    };
    let page = list_page(
        store,
        input.bucket.clone(),
        Scan {
            prefix: input.prefix.clone().unwrap_or_default(),
            delimiter: input.delimiter.clone().filter(|delimiter| !delimiter.is_empty()),
            from,
            max: usize::try_from(max_keys).unwrap_or(0),
        },
    )
    .await?;
    let next = page.next().map(|entry| encode_token(&entry.next()));
    let truncated = page.truncated;
    let (objects, prefixes) = page.into_wire(encoding, input.fetch_owner.unwrap_or(false).then(owner));
    Ok(S3Response::new(ListObjectsV2Output {
        name: Some(input.bucket),
        key_count: i32::try_from(objects.len() + prefixes.len()).ok(),
        max_keys: Some(max_keys),
        is_truncated: Some(truncated),
        next_continuation_token: next,
        contents: (!objects.is_empty()).then_some(objects),
        common_prefixes: (!prefixes.is_empty()).then_some(prefixes),
        prefix: Some(encoding.encode(input.prefix.unwrap_or_default())),
        delimiter: input.delimiter.map(|text| encoding.encode(text)),
        start_after: input.start_after.map(|text| encoding.encode(text)),
        continuation_token: input.continuation_token,
        encoding_type: input.encoding_type,
        ..Default::default()
    }))
}

/// A marker that is a common prefix (`next_marker` of the page before) skips everything below it.
fn behind_marker(marker: &str, prefix: &str, delimiter: Option<&str>) -> From {
    match common_prefix(marker, prefix, delimiter) {
        Some(common) if common == marker => behind_prefix(marker),
        _ => From::Behind(marker.as_bytes().to_vec()),
    }
}

pub(super) async fn list_objects(
    store: &Store,
    request: S3Request<ListObjectsInput>,
) -> Result<S3Response<ListObjectsOutput>, Failure> {
    let input = request.input;
    let encoding = KeyEncoding::of(input.encoding_type.as_ref())?;
    let max_keys = page_size(input.max_keys)?;
    let prefix = input.prefix.clone().unwrap_or_default();
    let delimiter = input.delimiter.clone().filter(|delimiter| !delimiter.is_empty());
    let from = match &input.marker {
        Some(marker) => behind_marker(marker, &prefix, delimiter.as_deref()),
        None => From::At(Vec::new()),
    };
    let has_delimiter = delimiter.is_some();
    let scanned = Scan { prefix, delimiter, from, max: usize::try_from(max_keys).unwrap_or(0) };
    let page = list_page(store, input.bucket.clone(), scanned).await?;
    // Without a delimiter S3 leaves it out: the last key serves.
    let next_marker = page.next().map(|entry| encoding.encode(entry.name())).filter(|_| has_delimiter);
    let truncated = page.truncated;
    let (objects, prefixes) = page.into_wire(encoding, Some(owner()));
    Ok(S3Response::new(ListObjectsOutput {
        name: Some(input.bucket),
        max_keys: Some(max_keys),
        is_truncated: Some(truncated),
        next_marker,
        contents: (!objects.is_empty()).then_some(objects),
        common_prefixes: (!prefixes.is_empty()).then_some(prefixes),
        prefix: Some(encoding.encode(input.prefix.unwrap_or_default())),
        delimiter: input.delimiter.map(|text| encoding.encode(text)),
        marker: Some(encoding.encode(input.marker.unwrap_or_default())),
        encoding_type: input.encoding_type,
        ..Default::default()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn successors_are_behind_every_key_with_the_prefix() {
        assert_eq!(successor(b"a"), Some(b"b".to_vec()));
        assert_eq!(successor(b"a\xff"), Some(b"b".to_vec()));
        assert_eq!(successor(b""), None);
        assert_eq!(successor(b"\xff\xff"), None);
    }

    #[test]
    fn common_prefixes_end_with_the_first_delimiter() {
        assert_eq!(common_prefix("a/b/c", "a/", Some("/")).as_deref(), Some("a/b/"));
        assert_eq!(common_prefix("a/b", "a/", Some("/")), None);
        assert_eq!(common_prefix("a/b/c", "a/", None), None);
        assert_eq!(common_prefix("x--y--z", "", Some("--")).as_deref(), Some("x--"));
    }

    #[test]
    fn tokens_come_back_as_they_were() {
        for from in [From::At(b"k\xc3\xbc".to_vec()), From::Behind(b"k".to_vec())] {
            assert_eq!(decode_token(&encode_token(&from)).unwrap(), from);
        }
        for wrong in ["", "zz", "02aa", "0"] {
            assert!(decode_token(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_a_marker_that_is_a_group_skips_the_group() {
        assert_eq!(behind_marker("l/z/", "l/", Some("/")), From::At(b"l/z0".to_vec()));
        assert_eq!(behind_marker("l/z/q", "l/", Some("/")), From::Behind(b"l/z/q".to_vec()));
        assert_eq!(behind_marker("l/", "l/", Some("/")), From::Behind(b"l/".to_vec()));
        assert_eq!(behind_marker("l/z/", "l/", None), From::Behind(b"l/z/".to_vec()));
    }
}
