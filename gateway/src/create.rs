//! Creating a log file: the one thing that is not passed on.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::header::{ETAG, IF_MATCH, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue};
use lakewarden_core::commit::exact;
use lakewarden_core::store::{GetOptions, ObjectError};
use s3s::{Body, S3Error, S3ErrorCode, S3Response, S3Result, s3_error};

use crate::Gateway;
use crate::commits::Answer;
use crate::digests;
use crate::names::LogFile;
use crate::request::Request;
use crate::sign::sha256_hex;
use crate::told::clause;

/// Largest commit that is judged; the service's own limit.
const CONTENT_MAX_BYTES: usize = 32 * 1024 * 1024;
/// Earlier verdicts on the same content that are passed over.
const SAME_CONTENT_MOST: u32 = 8;
/// Acknowledged files that are remembered.
const ACKNOWLEDGED_MOST: usize = 4096;
/// What would have to hold of the object, and is the service's to decide: it writes the object.
const NOT_CARRIED: [&str; 6] = [
    "x-amz-server-side-encryption",
    "x-amz-object-lock",
    "x-amz-storage-class",
    "x-amz-grant-",
    "x-amz-website-redirect-location",
    "x-amz-meta-",
];

/// Files whose writers were told that they are in the log. A writer that puts one again is answered as S3 would answer
/// (412); one that was never told is told now.
#[derive(Debug, Default)]
pub struct Acknowledged(Mutex<(HashSet<String>, VecDeque<String>)>);

impl Acknowledged {
    fn knows(&self, mark: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0.contains(mark)
    }

    fn remember(&self, mark: String) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.0.insert(mark.clone()) {
            known.1.push_back(mark);
        }
        if known.1.len() > ACKNOWLEDGED_MOST
            && let Some(oldest) = known.1.pop_front()
        {
            known.0.remove(&oldest);
        }
    }
}

/// What lies at the name.
enum There {
    Nothing,
    /// The very bytes that are put.
    Same(String),
    Other,
}

/// Whether the writer asked that nothing be overwritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Condition {
    Absent,
    None,
}

/// Which object the writer wants to replace.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Replaces {
    Any,
    ETag(String),
}

/// Answers a PUT of a log file.
pub async fn create(gateway: &Arc<Gateway>, file: LogFile, mut request: Request) -> S3Result<S3Response<Body>> {
    let condition = check_head(&request)?;
    if let Some(replaces) = replaces(&request) {
        return Err(cannot_replace(gateway, &file, condition, &replaces).await);
    }
    let whole = request.read(CONTENT_MAX_BYTES).await.map_err(|error| if_too_large(error, &file))?;
    digests::check(&request, &whole)?;
    let mark = format!("{} {}", file.key(), sha256_hex(&whole.bytes));
    let was_told = gateway.acknowledged.knows(&mark);
    // The proposal goes on if the writer goes away: half-way there is nothing to stop at.
    let (own, content) = (gateway.clone(), whole.bytes);
    let decided = tokio::spawn(async move { decide(&own, &file, &content, condition, was_told).await }).await;
    let etag = decided.map_err(|error| s3_error!(InternalError, "the proposal was broken off: {error}"))??;
    // Reached only while the writer is still there.
    gateway.acknowledged.remember(mark);
    let mut headers = HeaderMap::new();
    if let Ok(etag) = HeaderValue::from_str(&format!("\"{etag}\"")) {
        headers.insert(ETAG, etag);
    }
    Ok(S3Response::with_headers(Body::empty(), headers))
}

fn check_head(request: &Request) -> S3Result<Condition> {
    let unsupported =
        request.headers.keys().find(|name| NOT_CARRIED.iter().any(|known| name.as_str().starts_with(known)));
    let is_default = |name: &str, values: &[&str]| request.header(name).is_none_or(|value| values.contains(&value));
    let is_plain =
        is_default("x-amz-server-side-encryption", &["AES256"]) && is_default("x-amz-storage-class", &["STANDARD"]);
    let unsupported = unsupported.filter(|name| {
        let may_be_plain = ["x-amz-server-side-encryption", "x-amz-storage-class"].contains(&name.as_str());
        !(may_be_plain && is_plain)
    });
    if let Some(name) = unsupported {
        let text = format!(
            "Lakewarden's gateway takes no {name} on a log file: the commit service writes it. Leave the header out (the \
             bucket's default encryption applies)"
        );
        return Err(S3Error::with_message(S3ErrorCode::NotImplemented, text));
    }
    if !is_default("x-amz-acl", &["private", "bucket-owner-full-control"])
        || request.headers.contains_key("x-amz-tagging")
    {
        let text = "Lakewarden's gateway takes no ACL and no tags on a log file: the commit service writes it";
        return Err(S3Error::with_message(S3ErrorCode::NotImplemented, text));
    }
    match request.headers.get(IF_NONE_MATCH).map(HeaderValue::as_bytes) {
        None => Ok(Condition::None),
        Some(b"*") => Ok(Condition::Absent),
        Some(_) => Err(s3_error!(NotImplemented, "If-None-Match takes nothing but * here")),
    }
}

fn replaces(request: &Request) -> Option<Replaces> {
    let given = String::from_utf8_lossy(request.headers.get(IF_MATCH)?.as_bytes()).trim().to_owned();
    Some(if given == "*" { Replaces::Any } else { Replaces::ETag(given.trim_matches('"').to_owned()) })
}

/// What a PUT is told that may only replace something: as by S3, that there is nothing, or something else; and of what could
/// be replaced, that it is published.
async fn cannot_replace(gateway: &Gateway, file: &LogFile, condition: Condition, replaces: &Replaces) -> S3Error {
    let there = match gateway.objects.head(&file.key()).await {
        Ok(meta) => Some(meta.etag.0),
        Err(ObjectError::NotFound(_)) => None,
        Err(error) => return unavailable(file, &crate::chain(&error)),
    };
    not_replaced(there.as_deref(), file, condition, replaces)
}

fn not_replaced(there: Option<&str>, file: &LogFile, condition: Condition, replaces: &Replaces) -> S3Error {
    match (there, replaces) {
        (None, _) => {
            let text = format!(
                "Version {} of {} is not there, so that If-Match cannot hold: leave it out to commit it",
                file.version, file.root
            );
            S3Error::with_message(S3ErrorCode::NoSuchKey, text)
        }
        (Some(_), _) if condition == Condition::Absent => taken(file),
        (Some(etag), Replaces::ETag(given)) if etag != given => {
            let text = format!("Version {} of {} has another ETag than If-Match says", file.version, file.root);
            S3Error::with_message(S3ErrorCode::PreconditionFailed, text)
        }
        (Some(_), _) => published(file),
    }
}

async fn decide(
    gateway: &Gateway,
    file: &LogFile,
    content: &Bytes,
    condition: Condition,
    was_told: bool,
) -> S3Result<String> {
    if let Some(answer) = met(look(gateway, file, content).await?, file, condition, was_told) {
        return answer;
    }
    for nth in 0..SAME_CONTENT_MOST {
        let id = exact::proposal_id(&file.root, file.version, content, nth);
        match gateway.commits.propose(file, id, content).await {
            Answer::Committed { is_earlier } => match look(gateway, file, content).await {
                Ok(There::Same(etag)) => return Ok(etag),
                // It was in a log that stood here before.
                Ok(_) if is_earlier => {}
                Ok(There::Nothing) => return Err(contradicted(gateway, file, "has nothing there")),
                Ok(There::Other) => return Err(contradicted(gateway, file, "has another commit there")),
                // The same again is told what was decided.
                Err(error) => return Err(error),
            },
            Answer::Taken { is_earlier } => {
                match met(look(gateway, file, content).await?, file, condition, was_told) {
                    Some(answer) => return answer,
                    None if is_earlier => {}
                    // Claimed, and not published yet.
                    None => return Err(claimed(gateway, file)),
                }
            }
            // Of an earlier put of the same content: what it missed may be there by now.
            Answer::Refused { is_earlier: true, .. } if nth + 1 < SAME_CONTENT_MOST => {}
            Answer::Refused { text, .. } => return Err(refused(file, &text)),
            Answer::Denied(text) => return Err(refused(file, &text)),
            Answer::Undecided(text) | Answer::Unavailable(text) => return Err(unavailable(file, &text)),
        }
    }
    Err(unavailable(file, "the same content was proposed and given up too often"))
}

/// The answer that follows from what lies at the name; none where there is nothing.
fn met(there: There, file: &LogFile, condition: Condition, was_told: bool) -> Option<S3Result<String>> {
    match (there, condition) {
        (There::Nothing, _) => None,
        (There::Same(etag), Condition::None) => Some(Ok(etag)),
        (There::Same(etag), Condition::Absent) if !was_told => Some(Ok(etag)),
        (There::Same(_) | There::Other, Condition::Absent) => Some(Err(taken(file))),
        (There::Other, Condition::None) => Some(Err(published(file))),
    }
}

async fn look(gateway: &Gateway, file: &LogFile, content: &Bytes) -> S3Result<There> {
    let at = file.key();
    let failed = |error: ObjectError| match error {
        ObjectError::NotFound(_) => None,
        error => Some(unavailable(file, &crate::chain(&error))),
    };
    let meta = match gateway.objects.head(&at).await {
        Ok(meta) => meta,
        Err(error) => return failed(error).map_or(Ok(There::Nothing), Err),
    };
    if meta.size_bytes != content.len() as u64 {
        return Ok(There::Other);
    }
    match gateway.objects.get(&at, &GetOptions::default()).await {
        Ok(object) if object.bytes == *content => Ok(There::Same(object.meta.etag.0)),
        Ok(_) => Ok(There::Other),
        Err(error) => failed(error).map_or(Ok(There::Nothing), Err),
    }
}

fn taken(file: &LogFile) -> S3Error {
    let text = format!("Version {} of {} is taken by another commit", file.version, file.root);
    S3Error::with_message(S3ErrorCode::PreconditionFailed, text)
}

fn published(file: &LogFile) -> S3Error {
    let text = format!(
        "Lakewarden refuses to overwrite version {} of {}: it is published. Commit a new version instead",
        file.version, file.root
    );
    S3Error::with_message(S3ErrorCode::AccessDenied, text)
}

fn refused(file: &LogFile, text: &str) -> S3Error {
    let text = format!(
        "Lakewarden refused this commit as version {} of {}. {text} The log was not changed",
        file.version, file.root
    );
    S3Error::with_message(S3ErrorCode::AccessDenied, text)
}

fn unavailable(file: &LogFile, text: &str) -> S3Error {
    let text = format!(
        "Lakewarden could not get a verdict on this commit as version {} of {}: {}. Put it again, unchanged",
        file.version,
        file.root,
        clause(text)
    );
    S3Error::with_message(S3ErrorCode::ServiceUnavailable, text)
}

/// Nobody is told that a commit is in the log where it is not.
fn contradicted(gateway: &Gateway, file: &LogFile, found: &str) -> S3Error {
    let text = format!(
        "the commit service at {} says that it is in the log, and the S3 at {} that this gateway passes on to {found}: either the \
         service writes to another S3 than this one (compare --s3-endpoint and --service), or somebody changed the log since",
        gateway.commits.address, gateway.upstream.address
    );
    unavailable(file, &text)
}

/// Neither can be told of it that it is taken: nobody could read by what.
fn claimed(gateway: &Gateway, file: &LogFile) -> S3Error {
    let text = format!(
        "the commit service at {} says that another commit has the version, which the S3 at {} that this gateway passes on to \
         does not have yet (if it never will, the service writes to another S3: compare --s3-endpoint and --service)",
        gateway.commits.address, gateway.upstream.address
    );
    unavailable(file, &text)
}

fn if_too_large(error: S3Error, file: &LogFile) -> S3Error {
    if *error.code() != S3ErrorCode::EntityTooLarge {
        return error;
    }
    let text = format!(
        "Lakewarden judges commits of up to {} MiB, and this one as version {} of {} has more. The log was not changed. What to \
         do: write it in several commits, or with statistics of fewer columns (delta.dataSkippingNumIndexedCols)",
        CONTENT_MAX_BYTES / 1024 / 1024,
        file.version,
        file.root
    );
    S3Error::with_message(S3ErrorCode::EntityTooLarge, text)
}

#[cfg(test)]
mod tests {
    use lakewarden_core::delta::Version;
    use lakewarden_core::location::Location;

    use super::*;

    fn file() -> LogFile {
        LogFile { root: Location::new("lake", "t"), version: Version(7) }
    }

    fn request() -> Request {
        Request {
            method: http::Method::PUT,
            path: String::new(),
            query: Vec::new(),
            headers: HeaderMap::new(),
            body: Body::empty(),
            fate: crate::patience::Fate::default(),
            check: None,
        }
    }

    fn head(headers: &[(&'static str, &'static str)]) -> Result<Condition, S3ErrorCode> {
        let headers = headers
            .iter()
            .map(|(name, value)| (name.parse::<http::HeaderName>().unwrap(), HeaderValue::from_static(value)));
        let request = Request { headers: headers.collect(), ..request() };
        check_head(&request).map_err(|error| error.code().clone())
    }

    #[test]
    fn what_the_service_cannot_do_is_refused() {
        for (name, value) in [
            ("x-amz-server-side-encryption", "AES256"),
            ("x-amz-storage-class", "STANDARD"),
            ("x-amz-acl", "private"),
            ("content-type", "application/json"),
            ("x-amz-checksum-crc32", "AAAAAA=="),
        ] {
            assert_eq!(head(&[(name, value)]), Ok(Condition::None), "{name}");
        }
        for (name, value) in [
            ("x-amz-server-side-encryption", "aws:kms"),
            ("x-amz-server-side-encryption-customer-algorithm", "AES256"),
            ("x-amz-storage-class", "GLACIER"),
            ("x-amz-object-lock-mode", "GOVERNANCE"),
            ("x-amz-acl", "public-read"),
            ("x-amz-grant-read", "x"),
            ("x-amz-tagging", "a=b"),
            ("x-amz-meta-a", "b"),
            ("if-none-match", "\"x\""),
        ] {
            assert_eq!(head(&[(name, value)]), Err(S3ErrorCode::NotImplemented), "{name}");
        }
        assert_eq!(head(&[("if-none-match", "*")]), Ok(Condition::Absent));
    }

    #[test]
    fn a_version_that_is_not_there_cannot_be_replaced_and_one_that_is_must_not() {
        use Condition::{Absent, None as Always};
        let etag = |text: &str| Replaces::ETag(text.to_owned());
        for (there, condition, replaces, code) in [
            (None, Always, etag("e"), S3ErrorCode::NoSuchKey),
            (None, Always, Replaces::Any, S3ErrorCode::NoSuchKey),
            (None, Absent, etag("e"), S3ErrorCode::NoSuchKey),
            (Some("e"), Always, etag("e"), S3ErrorCode::AccessDenied),
            (Some("e"), Always, Replaces::Any, S3ErrorCode::AccessDenied),
            (Some("e"), Always, etag("f"), S3ErrorCode::PreconditionFailed),
            (Some("e"), Absent, etag("e"), S3ErrorCode::PreconditionFailed),
        ] {
            let error = not_replaced(there, &file(), condition, &replaces);
            assert_eq!(error.code(), &code, "{there:?} {condition:?} {replaces:?}");
        }
        let given = |text: &'static str| {
            let headers = HeaderMap::from_iter([(IF_MATCH, HeaderValue::from_static(text))]);
            replaces(&Request { headers, ..request() })
        };
        assert_eq!(given(" \"e\" "), Some(etag("e")));
        assert_eq!(given("e"), Some(etag("e")));
        assert_eq!(given("*"), Some(Replaces::Any));
    }

    #[test]
    fn what_lies_there_decides() {
        let code = |there, condition, was_told| {
            met(there, &file(), condition, was_told).map(|answer| answer.map_err(|error| error.code().clone()))
        };
        let same = || There::Same("e".into());
        assert_eq!(code(There::Nothing, Condition::Absent, false), None);
        assert_eq!(code(There::Other, Condition::Absent, false), Some(Err(S3ErrorCode::PreconditionFailed)));
        assert_eq!(code(There::Other, Condition::None, false), Some(Err(S3ErrorCode::AccessDenied)));
        assert_eq!(code(same(), Condition::Absent, false), Some(Ok("e".into())), "its answer was lost");
        assert_eq!(code(same(), Condition::Absent, true), Some(Err(S3ErrorCode::PreconditionFailed)));
        assert_eq!(code(same(), Condition::None, true), Some(Ok("e".into())), "nothing changes");
    }

    #[test]
    fn what_was_acknowledged_is_remembered_for_a_while() {
        let known = Acknowledged::default();
        for n in 0..=ACKNOWLEDGED_MOST {
            known.remember(n.to_string());
        }
        assert!(!known.knows("0") && known.knows("1") && known.knows(&ACKNOWLEDGED_MOST.to_string()));
    }
}
