//! If-Match and its relatives.

use http::HeaderMap;
use s3s::dto::{ETagCondition, Timestamp};
use s3s::{S3Error, S3ErrorCode, s3_error};

use super::headers::wire_time;
use super::rows::ObjectRow;

const NOT_HELD: &str = "At least one of the pre-conditions you specified did not hold";

/// What must hold for an object to be written.
#[derive(Clone, Debug, Default)]
pub(super) struct WriteCondition {
    pub if_match: Option<ETagCondition>,
    pub if_none_match: Option<ETagCondition>,
}

/// What must hold for an object to be read.
#[derive(Clone, Debug, Default)]
pub(super) struct ReadCondition {
    pub if_match: Option<ETagCondition>,
    pub if_none_match: Option<ETagCondition>,
    pub if_modified_since: Option<Timestamp>,
    pub if_unmodified_since: Option<Timestamp>,
}

pub(super) fn not_held() -> S3Error {
    S3Error::with_message(S3ErrorCode::PreconditionFailed, NOT_HELD)
}

impl WriteCondition {
    /// CopyObject takes conditions on its destination that the wire layer does not know.
    pub fn of_headers(headers: &HeaderMap) -> Result<Self, S3Error> {
        let parse = |name: &str| {
            headers
                .get(name)
                .map(|value| ETagCondition::parse_http_header(value.as_bytes()))
                .transpose()
                .map_err(|_| s3_error!(InvalidArgument, "{name} is neither an ETag nor *"))
        };
        Ok(Self { if_match: parse("if-match")?, if_none_match: parse("if-none-match")? })
    }

    pub fn is_given(&self) -> bool {
        self.if_match.is_some() || self.if_none_match.is_some()
    }

    pub fn check(&self, current: Option<&ObjectRow>) -> Result<(), S3Error> {
        match &self.if_none_match {
            None => {}
            Some(ETagCondition::Any) if current.is_none() => {}
            Some(ETagCondition::Any) => return Err(not_held()),
            Some(ETagCondition::ETag(_)) => {
                return Err(s3_error!(NotImplemented, "If-None-Match on a write takes * only"));
            }
        }
        check_match(self.if_match.as_ref(), current)
    }
}

/// If-Match on a write or delete: 404 if there is nothing, 412 if there is something else.
pub(super) fn check_match(if_match: Option<&ETagCondition>, current: Option<&ObjectRow>) -> Result<(), S3Error> {
    match (if_match, current) {
        (None, _) | (Some(ETagCondition::Any), Some(_)) => Ok(()),
        (Some(_), None) => Err(s3_error!(NoSuchKey, "The specified key does not exist.")),
        (Some(ETagCondition::ETag(tag)), Some(row)) if tag.value() == row.etag => Ok(()),
        (Some(ETagCondition::ETag(_)), Some(_)) => Err(not_held()),
    }
}

impl ReadCondition {
    /// ETags win over dates (RFC 9110, 13.2.2).
    pub fn check(&self, row: &ObjectRow) -> Result<(), S3Error> {
        let modified = wire_time(row.modified_ms);
        let matches = match (&self.if_match, &self.if_unmodified_since) {
            (Some(ETagCondition::ETag(tag)), _) => tag.value() == row.etag,
            (Some(ETagCondition::Any), _) | (None, None) => true,
            (None, Some(since)) => modified <= *since,
        };
        if !matches {
            return Err(not_held());
        }
        let unchanged = match (&self.if_none_match, &self.if_modified_since) {
            (Some(ETagCondition::ETag(tag)), _) => tag.value() == row.etag,
            (Some(ETagCondition::Any), _) => true,
            (None, Some(since)) => modified <= *since,
            (None, None) => false,
        };
        if unchanged { Err(s3_error!(NotModified)) } else { Ok(()) }
    }

    /// The source of a copy: there is no 304, everything that does not hold is 412.
    pub fn check_source(&self, row: &ObjectRow) -> Result<(), S3Error> {
        self.check(row).map_err(|refused| match refused.code() {
            S3ErrorCode::NotModified => not_held(),
            _ => refused,
        })
    }
}
