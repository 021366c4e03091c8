//! Item: a version's entry in `delta_log`, in the layout of Delta's S3DynamoDBLogStore. Not ours to change: `complete`
//! is a text, `tempPath` is relative to `_delta_log`, `expireTime` (seconds) stands on complete entries only.

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use uuid::Uuid;

use crate::delta::Version;
use crate::delta::log::{LOG_DIR, TEMP_DIR};
use crate::location::Location;
use crate::store::{Condition, DecodeError, Fields, Item, Key, ObjectKey, Table, Value, Write};

/// How long a complete entry stays: as the other writers do it.
const EXPIRES_AFTER_S: i64 = 24 * 60 * 60;

/// Whether the version of an entry is known to be in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    Incomplete,
    Complete,
}

/// An entry as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub key: Key,
    pub version: Version,
    pub temp_path: String,
    pub completion: Completion,
    /// Every attribute, whoever wrote it.
    item: Item,
}

/// What delta-rs encodes in the path of a table: what its URLs cannot hold. (Probed on 1.6.0, which does not take `^`,
/// `|`, `[`, `]` and `\` as they are: who has them in a path encodes them himself.)
const ENCODED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// Every way in which other writers spell the table's path; a claim takes all of them. Two, where the path needs no
/// percent-encoding: delta-rs says `s3://`, Hadoop's writers say `s3a://`. Hadoop's write the path as it is, delta-rs writes
/// the URL that it was given, encoded where it has to be: both are there under both schemes, where they differ.
pub fn spellings(root: &Location) -> Vec<String> {
    let mut paths = vec![root.prefix.clone()];
    for percent in [Percent::WhereAmbiguous, Percent::Always] {
        let path = encoded(&root.prefix, percent);
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    let both = |path: &String| ["s3", "s3a"].map(|scheme| spelled(scheme, &root.bucket, path));
    paths.iter().flat_map(both).collect()
}

fn spelled(scheme: &str, bucket: &str, path: &str) -> String {
    let slash = if path.is_empty() { "" } else { "/" };
    format!("{scheme}://{bucket}{slash}{path}")
}

/// Which `%` of a path are encoded. URLs may hold one that nobody can take for the beginning of an encoded byte.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Percent {
    WhereAmbiguous,
    Always,
}

fn encoded(path: &str, percent: Percent) -> String {
    let mut text = String::new();
    for (index, part) in path.split('%').enumerate() {
        if index > 0 {
            let is_ambiguous = part.len() >= 2 && part.bytes().take(2).all(|byte| byte.is_ascii_hexdigit());
            text.push_str(if is_ambiguous || percent == Percent::Always { "%25" } else { "%" });
        }
        text.extend(utf8_percent_encode(part, ENCODED));
    }
    text
}

pub fn file_name(version: Version) -> String {
    format!("{:020}.json", version.0)
}

pub fn key(table_path: &str, version: Version) -> Key {
    Key::new(Table::DeltaLog, table_path, file_name(version))
}

/// The `tempPath` of an object in the log.
pub fn temp_path(root: &Location, key: &str) -> String {
    let folder = root.object(&format!("{LOG_DIR}/")).key;
    key.strip_prefix(folder.as_str()).unwrap_or(key).to_owned()
}

/// An item under the name of a version that is no entry as the log store writes them: nobody can tell whether the version
/// is held, and by which bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OddItem {
    pub key: Key,
    pub version: Version,
    pub trouble: DecodeError,
}

impl Entry {
    /// Reads an entry; none for names that are no version (other tools may keep their own).
    pub fn decode(key: Key, item: Item) -> Option<Result<Entry, OddItem>> {
        let name = std::str::from_utf8(key.sk.as_bytes()).unwrap_or_default();
        let version = name.strip_suffix(".json").and_then(Version::parse)?;
        Some(match parts(&item) {
            Ok((completion, temp_path)) => Ok(Entry { version, temp_path, completion, key, item }),
            Err(trouble) => Err(OddItem { key, version, trouble }),
        })
    }

    /// Where the entry's bytes are. None: the path leads out of the log, and is never read.
    pub fn temp_key(&self, root: &Location) -> Option<ObjectKey> {
        let is_inside = !self.temp_path.split('/').any(|segment| segment == ".." || segment == ".");
        let path = self.temp_path.trim_start_matches('/');
        (is_inside && !path.is_empty()).then(|| root.object(&format!("{LOG_DIR}/{path}")))
    }

    /// Whether one of our claims made it: only ours have the form `.tmp/<version>.<proposal>.<nonce>.json`.
    pub fn is_ours(&self) -> bool {
        let name = self.temp_path.strip_prefix(TEMP_DIR).and_then(|name| name.strip_prefix('/'));
        let parts: Vec<&str> = name.unwrap_or_default().split('.').collect();
        matches!(parts.as_slice(), [version, proposal, nonce, "json"]
            if Version::parse(version).is_some() && Uuid::try_parse(proposal).is_ok() && Uuid::try_parse(nonce).is_ok())
    }

    /// The entry, complete.
    pub fn completed(&self, now_ms: i64) -> Item {
        let mut item = self.item.clone();
        item.insert("complete".into(), "true".into());
        item.insert("expireTime".into(), Value::Int(expire_time_s(now_ms)));
        item
    }

    /// That nobody changed the entry since it was read.
    pub fn unchanged(&self) -> Condition {
        let complete = if self.completion == Completion::Complete { "true" } else { "false" };
        Condition::All(vec![
            Condition::equals("tempPath", self.temp_path.as_str()),
            Condition::equals("complete", complete),
        ])
    }
}

fn parts(item: &Item) -> Result<(Completion, String), DecodeError> {
    let completion = match item.text("complete")? {
        "true" => Completion::Complete,
        "false" => Completion::Incomplete,
        other => return Err(DecodeError::Invalid { field: "complete".into(), message: format!("`{other}`") }),
    };
    Ok((completion, item.text("tempPath")?.to_owned()))
}

fn expire_time_s(now_ms: i64) -> i64 {
    now_ms.div_euclid(1_000).saturating_add(EXPIRES_AFTER_S)
}

/// The entries of a claim, which are there only if nobody else has the version.
pub fn claim_writes(root: &Location, version: Version, bytes_key: &str) -> Vec<Write> {
    let item = Item::from([
        ("tempPath".to_owned(), temp_path(root, bytes_key).into()),
        ("complete".to_owned(), "false".into()),
    ]);
    let put = |path: String| Write::Put { key: key(&path, version), item: item.clone(), condition: Condition::Absent };
    spellings(root).into_iter().map(put).collect()
}

/// What a claim on a table without a log store demands: that no writer of one has the version.
pub fn absence_checks(root: &Location, version: Version) -> Vec<Write> {
    let check = |path: String| Write::Check { key: key(&path, version), condition: Condition::Absent };
    spellings(root).into_iter().map(check).collect()
}

/// The entries of a claim once its version is in the log, whoever put it there. Another writer may have completed them
/// before.
pub fn complete_writes(root: &Location, version: Version, bytes_key: &str, now_ms: i64) -> Vec<Write> {
    let item = Item::from([
        ("tempPath".to_owned(), temp_path(root, bytes_key).into()),
        ("complete".to_owned(), "true".into()),
        ("expireTime".to_owned(), Value::Int(expire_time_s(now_ms))),
    ]);
    let put = |path: String| Write::Put { key: key(&path, version), item: item.clone(), condition: Condition::Always };
    spellings(root).into_iter().map(put).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delta::log::temp_key;

    fn root() -> Location {
        Location::new("b", "wh/t")
    }

    fn entry(temp: &str, complete: &str) -> Entry {
        let item = Item::from([
            ("tempPath".to_owned(), temp.into()),
            ("complete".to_owned(), complete.into()),
            ("other".to_owned(), 5.into()),
        ]);
        Entry::decode(key("s3://b/wh/t", Version(7)), item).unwrap().unwrap()
    }

    #[test]
    fn the_layout_is_the_log_stores() {
        let bytes_key = temp_key(&root(), Version(7), Uuid::from_u128(1), &Uuid::from_u128(2).to_string());
        let writes = claim_writes(&root(), Version(7), &bytes_key.key);
        let places: Vec<(String, String)> = writes
            .iter()
            .map(|write| (write.key().pk.clone(), String::from_utf8(write.key().sk.as_bytes().to_vec()).unwrap()))
            .collect();
        let name = "00000000000000000007.json".to_owned();
        assert_eq!(places, [("s3://b/wh/t".to_owned(), name.clone()), ("s3a://b/wh/t".to_owned(), name)]);
        let item = writes[0].new_item().unwrap();
        let temp =
            ".tmp/00000000000000000007.00000000-0000-0000-0000-000000000001.00000000-0000-0000-0000-000000000002.json";
        assert_eq!((item.text("tempPath").unwrap(), item.text("complete").unwrap()), (temp, "false"));
        assert!(!item.contains_key("expireTime"), "what is not complete never expires");
        let done = complete_writes(&root(), Version(7), &bytes_key.key, 1_000_999);
        let item = done[1].new_item().unwrap();
        assert_eq!((item.text("complete").unwrap(), item.int("expireTime").unwrap()), ("true", 1_000 + 86_400));
        let ours = Entry::decode(key("s3a://b/wh/t", Version(7)), item.clone()).unwrap().unwrap();
        assert!(ours.is_ours());
        assert_eq!(ours.temp_key(&root()), Some(bytes_key));
    }

    #[test]
    fn foreign_entries_are_told_apart_and_keep_what_they_hold() {
        for temp in [
            ".tmp/00000000000000000007.json.0e5e9a5e-9f0b-4a52-9d4d-9ec3e2d3a001",
            "_commit_0e5e9a5e-9f0b-4a52-9d4d-9ec3e2d3a001.json.tmp",
            ".tmp/7.0e5e9a5e-9f0b-4a52-9d4d-9ec3e2d3a001.0e5e9a5e-9f0b-4a52-9d4d-9ec3e2d3a001.json",
        ] {
            let entry = entry(temp, "false");
            assert!(!entry.is_ours(), "{temp}");
            assert_eq!(entry.temp_key(&root()).unwrap().key, format!("wh/t/_delta_log/{temp}"));
            let completed = entry.completed(0);
            assert_eq!((completed.int("other").unwrap(), completed.text("tempPath").unwrap()), (5, temp));
        }
        assert_eq!(entry("../../x", "true").temp_key(&root()), None);
        assert_eq!(entry("", "true").temp_key(&root()), None);
        let odd = Item::from([("tempPath".to_owned(), "x".into()), ("complete".to_owned(), "yes".into())]);
        let read = Entry::decode(key("s3://b/wh/t", Version(7)), odd.clone()).unwrap();
        assert_eq!(read.unwrap_err().version, Version(7));
        let other = Key::new(Table::DeltaLog, "s3://b/wh/t", "settings");
        assert_eq!(Entry::decode(other, odd), None);
    }

    #[test]
    fn every_writers_spelling_of_the_path_is_known() {
        for (prefix, paths) in [
            ("", vec![""]),
            ("wh/t", vec!["/wh/t"]),
            // What delta-rs leaves as it is.
            ("a~!$&'()*+,;=:@-_.b", vec!["/a~!$&'()*+,;=:@-_.b"]),
            ("sp ace/ä", vec!["/sp ace/ä", "/sp%20ace/%C3%A4"]),
            ("日\u{7f}", vec!["/日\u{7f}", "/%E6%97%A5%7F"]),
            (r#"a"<>`{}#?^|[]\b"#, vec![r#"/a"<>`{}#?^|[]\b"#, "/a%22%3C%3E%60%7B%7D%23%3F%5E%7C%5B%5D%5Cb"]),
            ("100% x", vec!["/100% x", "/100%%20x", "/100%25%20x"]),
            ("a%b", vec!["/a%b", "/a%25b"]),
            ("a%20b%", vec!["/a%20b%", "/a%2520b%", "/a%2520b%25"]),
        ] {
            let expected: Vec<String> =
                paths.iter().flat_map(|path| [format!("s3://b{path}"), format!("s3a://b{path}")]).collect();
            assert_eq!(spellings(&Location::new("b", prefix)), expected, "{prefix}");
        }
    }
}
