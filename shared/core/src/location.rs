//! Where tables lie: a bucket and a prefix, however the URI was spelled.

use std::fmt;

use percent_encoding::percent_decode;
use thiserror::Error;

use crate::store::ObjectKey;

/// A folder on S3: bucket, and a prefix without leading or trailing slash (empty for the bucket's root).
/// `s3`, `s3a` and `s3n` are one scheme (Hadoop's names for the same store). Nothing is percent-decoded: the catalog
/// and Iceberg write keys literally.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Location {
    pub bucket: String,
    pub prefix: String,
}

/// A text is not the location of a folder on S3.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LocationError {
    #[error("`{0}` is not an S3 location: it should look like s3://bucket/path")]
    NotS3(String),
    #[error("`{0}` names no bucket")]
    NoBucket(String),
    #[error("`{0}` has a `.` or `..` segment, which S3 does not resolve: write the path out")]
    DotSegment(String),
}

impl Location {
    /// Reads `s3://bucket/path/`, `s3a://…`, `s3n://…` (scheme in any case).
    pub fn parse(uri: &str) -> Result<Self, LocationError> {
        let (bucket, path) = split_uri(uri)?;
        if path.split('/').any(|segment| segment == "." || segment == "..") {
            return Err(LocationError::DotSegment(uri.to_owned()));
        }
        Ok(Self { bucket: bucket.to_owned(), prefix: path.trim_matches('/').to_owned() })
    }

    pub fn new(bucket: impl Into<String>, prefix: &str) -> Self {
        Self { bucket: bucket.into(), prefix: prefix.trim_matches('/').to_owned() }
    }

    /// The prefix of every key below this folder: ends in `/`, or is empty at the root, so that `orders` never
    /// matches `orders_v2`.
    pub fn key_prefix(&self) -> String {
        if self.prefix.is_empty() { String::new() } else { format!("{}/", self.prefix) }
    }

    /// The object at a relative path below this folder.
    pub fn object(&self, relative: &str) -> ObjectKey {
        ObjectKey::new(self.bucket.clone(), format!("{}{relative}", self.key_prefix()))
    }

    /// The relative path of an object below this folder.
    pub fn relative<'a>(&self, at: &'a ObjectKey) -> Option<&'a str> {
        if at.bucket != self.bucket { None } else { at.key.strip_prefix(self.key_prefix().as_str()) }
    }

    /// Whether an object lies here, or at a place that some tool takes for this one ([`plain`]): for what only ever keeps.
    pub fn may_hold(&self, at: &ObjectKey) -> bool {
        self.bucket == at.bucket && is_below(&self.prefix, &at.key)
    }

    /// Whether `other` is this folder or lies below it, in any spelling that some tool takes for it.
    pub fn may_contain(&self, other: &Location) -> bool {
        self.bucket == other.bucket && is_below(&self.prefix, &other.prefix)
    }

    /// Whether `other` is this folder or lies below it.
    pub fn contains(&self, other: &Location) -> bool {
        self.bucket == other.bucket
            && (self.prefix == other.prefix || other.key_prefix().starts_with(&self.key_prefix()))
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.prefix.is_empty() {
            write!(f, "s3://{}", self.bucket)
        } else {
            write!(f, "s3://{}/{}", self.bucket, self.prefix)
        }
    }
}

/// Whether a key is a folder's, or the folder itself.
fn is_below(folder: &str, key: &str) -> bool {
    let below = |folder: &[u8], key: &[u8]| {
        folder.is_empty() || key.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
    };
    if below(folder.as_bytes(), key.as_bytes()) {
        return true;
    }
    let is_odd = |text: &str| text.contains(['%', '+']) || text.contains("//") || text.starts_with('/');
    (is_odd(folder) || is_odd(key)) && {
        let folder = plain(folder);
        below(folder.strip_suffix(b"/").unwrap_or(&folder), &plain(key))
    }
}

/// One form for all spellings that some tool takes for the same object: repeated and leading slashes (Hadoop's clients make
/// one of several), percent signs however often encoded, plus signs for blanks.
pub fn plain(key: &str) -> Vec<u8> {
    let mut bytes = key.as_bytes().to_vec();
    for _ in 0..3 {
        let decoded: Vec<u8> = percent_decode(&bytes).collect();
        if decoded == bytes {
            break;
        }
        bytes = decoded;
    }
    let mut plain = Vec::with_capacity(bytes.len());
    for byte in bytes {
        let byte = if byte == b'+' { b' ' } else { byte };
        if byte != b'/' || plain.last().is_some_and(|last| *last != b'/') {
            plain.push(byte);
        }
    }
    plain
}

/// Splits an S3 URI into bucket and key, byte for byte.
pub fn split_uri(uri: &str) -> Result<(&str, &str), LocationError> {
    let (scheme, rest) = uri.split_once("://").ok_or_else(|| LocationError::NotS3(uri.to_owned()))?;
    if !["s3", "s3a", "s3n"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
        return Err(LocationError::NotS3(uri.to_owned()));
    }
    let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
    if bucket.is_empty() {
        return Err(LocationError::NoBucket(uri.to_owned()));
    }
    Ok((bucket, key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_folder_are_equal() {
        let plain = Location::parse("s3://b/wh/orders").unwrap();
        for spelling in ["s3a://b/wh/orders", "S3N://b/wh/orders/", "s3://b//wh/orders//"] {
            assert_eq!(Location::parse(spelling).unwrap(), plain, "{spelling}");
        }
        assert_eq!(plain.to_string(), "s3://b/wh/orders");
        assert_eq!(Location::parse("s3://b").unwrap().key_prefix(), "");
    }

    #[test]
    fn a_sibling_with_the_same_beginning_is_not_inside() {
        let orders = Location::parse("s3://b/wh/orders").unwrap();
        assert!(!orders.contains(&Location::parse("s3://b/wh/orders_v2").unwrap()));
        assert!(orders.contains(&Location::parse("s3://b/wh/orders/a").unwrap()));
        assert_eq!(orders.relative(&ObjectKey::new("b", "wh/orders_v2/x")), None);
        assert_eq!(orders.relative(&ObjectKey::new("b", "wh/orders/x//y")), Some("x//y"));
    }

    #[test]
    fn what_some_tool_takes_for_the_place_may_lie_there() {
        for (folder, key, expected) in [
            ("t//nested", "t/nested/x", true),
            ("t/nested", "t//nested//x", true),
            ("t/my%20dir", "t/my dir/x", true),
            ("t/my dir", "t/my+dir/x", true),
            ("t/a", "t/a", true),
            ("", "any", true),
            ("t/a", "t/ab/x", false),
            ("t//a", "t/ab/x", false),
            ("t/my%20dir", "t/my dirs/x", false),
        ] {
            let folder = Location { bucket: "b".into(), prefix: folder.into() };
            assert_eq!(folder.may_hold(&ObjectKey::new("b", key)), expected, "{folder} {key}");
            assert!(!folder.may_hold(&ObjectKey::new("c", key)));
        }
        let outer = Location::new("b", "wh//t");
        assert!(outer.may_contain(&Location::new("b", "wh/t/x")) && Location::new("b", "wh/t").may_contain(&outer));
        assert!(!outer.may_contain(&Location::new("b", "wh/t2")));
    }

    #[test]
    fn what_is_no_s3_folder_is_refused_by_name() {
        assert!(matches!(Location::parse("/tmp/x"), Err(LocationError::NotS3(_))));
        assert!(matches!(Location::parse("gs://b/x"), Err(LocationError::NotS3(_))));
        assert!(matches!(Location::parse("s3:///x"), Err(LocationError::NoBucket(_))));
        assert!(matches!(Location::parse("s3://b/a/../c"), Err(LocationError::DotSegment(_))));
    }
}
