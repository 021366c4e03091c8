//! `add.path` and its relatives: percent-encoded URIs, relative to the table's root or absolute.

use percent_encoding::percent_decode_str;
use thiserror::Error;

use super::log::LOG_DIR;
use crate::location::{Location, split_uri};
use crate::store::ObjectKey;

/// A path in a log does not name an object that we would touch.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PathError {
    #[error("the path is empty")]
    Empty,
    #[error("`{0}` is not valid UTF-8 after percent-decoding")]
    NotUtf8(String),
    #[error("`{0}` is an absolute path of another scheme than s3, s3a or s3n")]
    OtherScheme(String),
    #[error("`{0}` has an empty, `.` or `..` segment; readers would resolve it differently from S3")]
    Segment(String),
    #[error("`{path}` lies outside the table at {root}")]
    Outside { path: String, root: String },
    #[error("`{0}` lies in the log, where no data file belongs")]
    InLog(String),
    #[error("`{0}` is absolute; name the file relative to the table's root")]
    Absolute(String),
    #[error("`{path}` holds {letter:?}, which readers take differently: percent-encode it")]
    Unencoded { path: String, letter: char },
    #[error("`{0}` names an object with a control character, which not all readers can open")]
    Control(String),
}

/// Whether absolute paths outside the table may appear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Proposals: only below the root, not in the log.
    Inside,
    /// Logs as they are: shallow clones name files of other tables.
    Anywhere,
}

/// The object that a path names: decoded exactly once.
pub fn resolve(root: &Location, path: &str, reach: Reach) -> Result<ObjectKey, PathError> {
    if path.is_empty() {
        return Err(PathError::Empty);
    }
    let at = if has_scheme(path) {
        let (bucket, key) = split_uri(path).map_err(|_| PathError::OtherScheme(path.to_owned()))?;
        ObjectKey::new(bucket, decode(key)?)
    } else {
        let relative = decode(path)?;
        check_segments(&relative, path, reach)?;
        root.object(&relative)
    };
    within(root, at, path, reach)
}

/// The object at a path that is relative and not percent-encoded.
pub fn resolve_plain(root: &Location, path: &str, reach: Reach) -> Result<ObjectKey, PathError> {
    check_segments(path, path, reach)?;
    within(root, root.object(path), path, reach)
}

fn within(root: &Location, at: ObjectKey, path: &str, reach: Reach) -> Result<ObjectKey, PathError> {
    check_segments(&at.key, path, reach)?;
    if reach == Reach::Inside {
        let relative =
            root.relative(&at).ok_or_else(|| PathError::Outside { path: path.into(), root: root.to_string() })?;
        if relative.split('/').next() == Some(LOG_DIR) {
            return Err(PathError::InLog(path.to_owned()));
        }
    }
    Ok(at)
}

/// Whether every reader finds the same object under a new path: relative, and spelled as a URI. What stands raw in it and
/// should not be (`?`, `#`, blanks, a `%` that escapes nothing) is cut off, encoded once more, or refused, by different
/// readers.
pub fn check_spelling(path: &str) -> Result<(), PathError> {
    if has_scheme(path) {
        return Err(PathError::Absolute(path.to_owned()));
    }
    let mut rest = path.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' && !(0..2).all(|_| rest.next().is_some_and(|digit| digit.is_ascii_hexdigit())) {
            return Err(PathError::Unencoded { path: path.to_owned(), letter: '%' });
        }
    }
    let raw = |letter: &char| letter.is_control() || letter.is_whitespace() || "\"<>\\^`{|}[]?#".contains(*letter);
    if let Some(letter) = path.chars().find(raw) {
        return Err(PathError::Unencoded { path: path.to_owned(), letter });
    }
    if decode(path)?.chars().any(char::is_control) {
        return Err(PathError::Control(path.to_owned()));
    }
    Ok(())
}

fn decode(path: &str) -> Result<String, PathError> {
    percent_decode_str(path).decode_utf8().map(String::from).map_err(|_| PathError::NotUtf8(path.to_owned()))
}

/// Two slashes in a row are part of a key for S3, and one slash for Hadoop's clients. New files must not be named so; where
/// a log has such a path, it is the key as it stands, and whoever keeps files by it keeps the other reading as well.
fn check_segments(decoded: &str, path: &str, reach: Reach) -> Result<(), PathError> {
    let odd = |segment: &str| matches!(segment, "." | "..") || segment.contains('\0');
    let is_doubled = match reach {
        Reach::Inside => decoded.split('/').any(str::is_empty),
        Reach::Anywhere => decoded.starts_with('/') || decoded.ends_with('/') || decoded.is_empty(),
    };
    if is_doubled || decoded.split('/').any(odd) { Err(PathError::Segment(path.to_owned())) } else { Ok(()) }
}

/// RFC 3986: a letter, then letters, digits, `+`, `-`, `.`, up to a colon.
fn has_scheme(path: &str) -> bool {
    path.split_once(':').is_some_and(|(scheme, _)| {
        scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme.chars().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '+' | '-' | '.'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_decoded_exactly_once() {
        let root = Location::new("b", "wh/t");
        for (path, key) in [
            ("part-0.parquet", "wh/t/part-0.parquet"),
            ("p=a%20b/x.parquet", "wh/t/p=a b/x.parquet"),
            ("p=a%2520b/x.parquet", "wh/t/p=a%20b/x.parquet"),
            ("p=1+2/x.parquet", "wh/t/p=1+2/x.parquet"),
            ("ts=2020-01-01 00:00/x", "wh/t/ts=2020-01-01 00:00/x"),
            ("s3://b/wh/t/x.parquet", "wh/t/x.parquet"),
            ("s3a://b/wh/t/p=%C3%A4/x.parquet", "wh/t/p=ä/x.parquet"),
        ] {
            assert_eq!(resolve(&root, path, Reach::Inside).unwrap(), ObjectKey::new("b", key), "{path}");
        }
    }

    #[test]
    fn what_leaves_the_table_is_refused() {
        let root = Location::new("b", "wh/t");
        for (path, expected) in [
            ("", "Empty"),
            ("../u/x", "Segment"),
            ("a/%2E%2E/%2e%2e/x", "Segment"),
            ("/wh/t/x", "Segment"),
            ("a//x", "Segment"),
            ("a%00b/\u{0}", "Segment"),
            ("s3://b/wh/t/../u/x", "Segment"),
            ("s3://b/wh/u/x", "Outside"),
            ("s3://b/wh/t2/x", "Outside"),
            ("s3://other/wh/t/x", "Outside"),
            ("file:/tmp/x", "OtherScheme"),
            ("gs://b/x", "OtherScheme"),
            ("_delta_log/00000000000000000001.json", "InLog"),
            ("%5Fdelta_log/x", "InLog"),
            ("%ff", "NotUtf8"),
        ] {
            let error = resolve(&root, path, Reach::Inside).unwrap_err();
            assert!(format!("{error:?}").starts_with(expected), "{path}: {error:?}");
        }
        assert!(resolve(&root, "s3://other/x/y", Reach::Anywhere).is_ok());
        // Logs as they are.
        for path in ["/wh/t/x", "a/", "a/../x", "a/./x", "s3://b//wh/t/x", "a%00b"] {
            assert!(resolve(&root, path, Reach::Anywhere).is_err(), "{path}");
        }
        for (path, key) in [("a//x", "wh/t/a//x"), ("s3://b/wh/t///x", "wh/t///x"), ("a%2F%2Fx", "wh/t/a//x")] {
            assert_eq!(resolve(&root, path, Reach::Anywhere).unwrap(), ObjectKey::new("b", key), "{path}");
        }
    }

    #[test]
    fn new_paths_have_one_meaning() {
        for path in ["a.parquet", "p=a%2520b/ü.parquet", "t=10:00/x", "p=__HIVE_DEFAULT_PARTITION__/a+b=c~1@2!$&'(),;*"]
        {
            assert_eq!(check_spelling(path), Ok(()), "{path}");
        }
        for (path, expected) in [
            ("s3://b/wh/t/x", "Absolute"),
            ("a b", "Unencoded"),
            (" a", "Unencoded"),
            ("a?b", "Unencoded"),
            ("a#b", "Unencoded"),
            ("a\\b", "Unencoded"),
            ("a%zz", "Unencoded"),
            ("a%2", "Unencoded"),
            ("a%", "Unencoded"),
            ("a\tb", "Unencoded"),
            ("a%09b", "Control"),
            ("a%7Fb", "Control"),
            ("a%ff", "NotUtf8"),
        ] {
            let error = check_spelling(path).unwrap_err();
            assert!(format!("{error:?}").starts_with(expected), "{path}: {error:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn whatever_a_path_says_it_stays_inside(path in "([a-z%/.:=+ ]|%2[eEfF]|\\.\\.|_delta_log|s3://b/wh/t/){0,12}") {
            let root = Location::new("b", "wh/t");
            if let Ok(at) = resolve(&root, &path, Reach::Inside) {
                let relative = root.relative(&at).unwrap();
                proptest::prop_assert!(relative.split('/').all(|segment| !matches!(segment, "" | "." | "..")));
                proptest::prop_assert!(!relative.starts_with("_delta_log/"));
            }
        }
    }
}
