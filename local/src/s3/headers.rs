//! What an object carries besides its bytes, and small conversions of the wire.

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use s3s::dto::{ETag, EncodingType, Metadata, Owner, Timestamp, TimestampFormat};
use s3s::{S3Error, s3_error};
use serde::{Deserialize, Serialize};

use super::checksums::{ChecksumScope, Checksums};

/// S3: names and values of user metadata together.
const METADATA_MAX_BYTES: usize = 2048;
const TAGS_MAX: usize = 10;
/// 9999-12-31T23:59:59Z, the last moment the wire can say.
const LAST_SECOND: u64 = 253_402_300_799;
/// What S3 leaves alone with `encoding-type=url`; a blank becomes `+`.
const LIST_ENCODED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/').remove(b'*');

/// System and user metadata of an object, as stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Attributes {
    pub metadata: BTreeMap<String, String>,
    pub content_type: Option<String>,
    pub content_encoding: Option<String>,
    pub content_disposition: Option<String>,
    pub content_language: Option<String>,
    pub cache_control: Option<String>,
    /// An HTTP date.
    pub expires: Option<String>,
    pub checksums: Checksums,
    pub checksum_scope: ChecksumScope,
    /// Of the parts it was uploaded in; empty if it was not.
    pub part_sizes: Vec<u64>,
}

/// Names and values, in the order given.
pub(super) type Tags = Vec<(String, String)>;

/// Takes system and user metadata out of an input (the members have the same names everywhere).
macro_rules! given_attributes {
    ($input:expr) => {
        $crate::s3::headers::Attributes {
            metadata: $crate::s3::headers::user_metadata($input.metadata.take())?,
            content_type: $input.content_type.take(),
            content_encoding: $crate::s3::headers::stored_encoding($input.content_encoding.take()),
            content_disposition: $input.content_disposition.take(),
            content_language: $input.content_language.take(),
            cache_control: $input.cache_control.take(),
            expires: $input.expires.take().map(|date| $crate::s3::headers::http_date(&date)).transpose()?,
            ..Default::default()
        }
    };
}
/// Puts system and user metadata into an output.
macro_rules! set_attributes {
    ($output:expr, $attributes:expr) => {{
        let attributes = $attributes;
        $output.expires = attributes.expires_at();
        $output.metadata = Some(attributes.metadata.into_iter().collect());
        $output.content_type = Some(attributes.content_type.unwrap_or_else(|| "binary/octet-stream".to_owned()));
        $output.content_encoding = attributes.content_encoding;
        $output.content_disposition = attributes.content_disposition;
        $output.content_language = attributes.content_language;
        $output.cache_control = attributes.cache_control;
    }};
}
/// Refuses by name what a write asks for and we do not have (the members have the same names everywhere).
macro_rules! refuse_unsupported_write {
    ($operation:literal, $input:expr) => {
        $crate::s3::headers::refuse(
            $operation,
            &[
                ("encryption with a customer key", $input.sse_customer_algorithm.is_some()),
                ("encryption with a KMS key", $input.ssekms_key_id.is_some()),
                (
                    "server-side encryption other than AES256",
                    $input.server_side_encryption.as_ref().is_some_and(|given| given.as_str() != "AES256"),
                ),
                (
                    "a storage class other than STANDARD",
                    $input.storage_class.as_ref().is_some_and(|given| given.as_str() != "STANDARD"),
                ),
                (
                    "an ACL other than private and bucket-owner-full-control",
                    $input
                        .acl
                        .as_ref()
                        .is_some_and(|given| !matches!(given.as_str(), "private" | "bucket-owner-full-control")),
                ),
                (
                    "a grant",
                    $input.grant_full_control.is_some()
                        || $input.grant_read.is_some()
                        || $input.grant_read_acp.is_some()
                        || $input.grant_write_acp.is_some(),
                ),
                (
                    "object lock",
                    $input.object_lock_mode.is_some()
                        || $input.object_lock_legal_hold_status.is_some()
                        || $input.object_lock_retain_until_date.is_some(),
                ),
                ("a website redirect", $input.website_redirect_location.is_some()),
            ],
        )?
    };
}
pub(super) use {given_attributes, refuse_unsupported_write, set_attributes};

/// `NotImplemented`, naming the first thing that is asked for.
pub(super) fn refuse(operation: &str, asked: &[(&str, bool)]) -> Result<(), S3Error> {
    match asked.iter().find(|(_, is_asked)| *is_asked) {
        None => Ok(()),
        Some((what, _)) => Err(s3_error!(NotImplemented, "{operation} with {what} is not supported by the local S3")),
    }
}

/// There are no versions, so the only version id is `null`.
pub(super) fn refuse_version(version_id: Option<&str>) -> Result<(), S3Error> {
    match version_id {
        None | Some("null") => Ok(()),
        Some(_) => Err(s3_error!(NotImplemented, "Versions are not supported by the local S3: leave out versionId")),
    }
}

impl Attributes {
    pub fn expires_at(&self) -> Option<Timestamp> {
        // Only dates that were formatted by us are stored.
        Timestamp::parse(TimestampFormat::HttpDate, self.expires.as_deref()?).ok()
    }
}

pub(super) fn user_metadata(given: Option<Metadata>) -> Result<BTreeMap<String, String>, S3Error> {
    let metadata: BTreeMap<String, String> = given.unwrap_or_default().into_iter().collect();
    let size: usize = metadata.iter().map(|(name, value)| name.len() + value.len()).sum();
    if size > METADATA_MAX_BYTES {
        return Err(s3_error!(MetadataTooLarge));
    }
    Ok(metadata)
}

/// `aws-chunked` describes the transfer, not the object.
pub(super) fn stored_encoding(given: Option<String>) -> Option<String> {
    let kept: Vec<&str> = given
        .as_deref()?
        .split(',')
        .map(str::trim)
        .filter(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case("aws-chunked"))
        .collect();
    if kept.is_empty() { None } else { Some(kept.join(",")) }
}

pub(super) fn http_date(date: &Timestamp) -> Result<String, S3Error> {
    let mut text = Vec::new();
    date.format(TimestampFormat::HttpDate, &mut text)
        .map_err(|error| s3_error!(InvalidArgument, "Expires is not a date: {error}"))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// `x-amz-tagging`: a query string.
pub(super) fn parse_tagging(header: Option<&str>) -> Result<Tags, S3Error> {
    let decode = |text: &str| {
        percent_decode_str(&text.replace('+', " "))
            .decode_utf8()
            .map(|text| text.into_owned())
            .map_err(|_| s3_error!(InvalidArgument, "The tagging header is not UTF-8"))
    };
    let tags = header
        .unwrap_or_default()
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((decode(name)?, decode(value)?))
        })
        .collect::<Result<Tags, S3Error>>()?;
    check_tags(&tags)?;
    Ok(tags)
}

pub(super) fn check_tags(tags: &Tags) -> Result<(), S3Error> {
    if tags.len() > TAGS_MAX {
        return Err(s3_error!(InvalidTag, "Object tags cannot be greater than {TAGS_MAX}"));
    }
    let mut names: Vec<&str> = tags.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    if names.len() != tags.len() {
        return Err(s3_error!(InvalidTag, "Cannot provide multiple Tags with the same key"));
    }
    let too_long =
        |(name, value): &(String, String)| name.is_empty() || name.chars().count() > 128 || value.chars().count() > 256;
    if tags.iter().any(too_long) {
        return Err(s3_error!(InvalidTag, "A tag's key takes 1 to 128 characters, its value up to 256"));
    }
    Ok(())
}

/// S3 tells whole seconds.
pub(super) fn wire_time(ms: i64) -> Timestamp {
    let seconds = u64::try_from(ms.div_euclid(1000)).unwrap_or(0).min(LAST_SECOND);
    Timestamp::from(UNIX_EPOCH + Duration::from_secs(seconds))
}

pub(super) fn wire_etag(etag: &str) -> ETag {
    ETag::Strong(etag.to_owned())
}

pub(super) fn wire_size(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

pub(super) fn owner() -> Owner {
    Owner { display_name: Some("lakewarden".to_owned()), id: Some("lakewarden".to_owned()) }
}

/// How keys are written in a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyEncoding {
    Plain,
    Url,
}

impl KeyEncoding {
    pub fn of(asked: Option<&EncodingType>) -> Result<Self, S3Error> {
        match asked.map(EncodingType::as_str) {
            None => Ok(KeyEncoding::Plain),
            Some("url") => Ok(KeyEncoding::Url),
            Some(_) => Err(s3_error!(InvalidArgument, "Invalid Encoding Method specified in Request")),
        }
    }

    pub fn encode(self, key: impl Into<String>) -> String {
        let key = key.into();
        match self {
            KeyEncoding::Plain => key,
            KeyEncoding::Url => utf8_percent_encode(&key, LIST_ENCODED).to_string().replace("%20", "+"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfer_codings_are_not_stored() {
        for (given, stored) in [
            ("aws-chunked", None),
            ("aws-chunked,gzip", Some("gzip")),
            ("gzip, aws-chunked", Some("gzip")),
            ("zstd", Some("zstd")),
        ] {
            assert_eq!(stored_encoding(Some(given.to_owned())).as_deref(), stored, "{given}");
        }
    }

    #[test]
    fn tagging_headers_are_query_strings() {
        assert_eq!(
            parse_tagging(Some("a=1&b+c=%C3%BC&d")).unwrap(),
            vec![("a".into(), "1".into()), ("b c".into(), "ü".into()), ("d".into(), String::new())]
        );
        assert!(parse_tagging(Some("a=1&a=2")).is_err());
        assert!(parse_tagging(Some(&(0..11).map(|n| format!("k{n}=v&")).collect::<String>())).is_err());
    }

    #[test]
    fn the_wire_tells_whole_seconds() {
        assert_eq!(wire_time(1_999), wire_time(1_000));
        assert_eq!(wire_time(-1), wire_time(0));
        assert_eq!(wire_time(i64::MAX), wire_time(i64::MAX - 5_000));
    }

    #[test]
    fn keys_are_encoded_as_s3_does() {
        assert_eq!(KeyEncoding::Url.encode("l/c d+ü*~"), "l/c+d%2B%C3%BC*~");
        assert_eq!(KeyEncoding::Plain.encode("l/c d"), "l/c d");
    }
}
