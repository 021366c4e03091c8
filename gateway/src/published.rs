//! Overwriting checkpoints. Writers make them, and may make one again; the one that a log begins with, because the log files
//! before it were cleaned up, is all that is left of the table and stays as it is.

use std::collections::BTreeSet;
use std::sync::Arc;

use http::header::{ETAG, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue, Method};
use lakewarden_core::store::{GetOptions, ObjectError};
use s3s::{Body, S3Error, S3ErrorCode, S3Response, S3Result};

use crate::cleanup::Doomed;
use crate::names::Checkpoint;
use crate::request::Request;
use crate::told::clause;
use crate::{Gateway, chain, delete, digests, passed_on, turns};

/// Larger checkpoints are not compared with what is there.
const COMPARED_MAX_BYTES: u64 = 32 * 1024 * 1024;

/// Answers what would change (a part of) a checkpoint.
pub async fn change(gateway: &Arc<Gateway>, checkpoint: Checkpoint, request: Request) -> S3Result<S3Response<Body>> {
    match effect(&request) {
        Effect::None => passed_on(gateway, request).await,
        Effect::Deletes => delete::delete_checkpoint(gateway, checkpoint, request).await,
        Effect::Overwrites => {
            let turn = gateway.turns.together(&checkpoint.root).await?;
            let own = gateway.clone();
            turns::carry_out(turn, async move { overwrite(&own, checkpoint, request).await }).await
        }
        Effect::Unknown => {
            let text = format!(
                "Lakewarden does not know what this {} would do to the checkpoint {} of {}: put, copy or delete it without \
                 other parameters",
                request.method, checkpoint.name, checkpoint.root
            );
            Err(S3Error::with_message(S3ErrorCode::AccessDenied, text))
        }
    }
}

/// What a request does to the bytes of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    None,
    Deletes,
    Overwrites,
    /// Stores differ in what they make of parameters that they do not know.
    Unknown,
}

fn is_part(request: &Request) -> bool {
    let names = ["partNumber", "uploadId"];
    names.iter().all(|name| request.asks(name)) && request.asks_only(&names)
}

fn effect(request: &Request) -> Effect {
    let is_plain = request.query.iter().all(|(name, _)| name == "x-id");
    let describes = ["tagging", "acl", "retention", "legal-hold"]
        .iter()
        .any(|name| request.asks(name) && request.asks_only(&[name, "versionId"]));
    // With this condition S3 itself overwrites nothing; of copies not every store takes it.
    let is_careful = request.header(IF_NONE_MATCH.as_str()) == Some("*") && request.brings_all();
    match request.method {
        Method::DELETE if is_plain || request.asks_only(&["versionId"]) => Effect::Deletes,
        Method::DELETE if describes || request.asks_only(&["uploadId"]) => Effect::None,
        Method::PUT if is_plain && is_careful => Effect::None,
        Method::PUT if is_plain => Effect::Overwrites,
        // Parts do nothing until they are put together.
        Method::PUT if is_part(request) => Effect::None,
        Method::PUT if describes => Effect::None,
        Method::POST if request.asks_only(&["uploads"]) || request.asks_only(&["uploadId"]) => Effect::Overwrites,
        Method::POST if request.asks("restore") && request.asks_only(&["restore", "versionId"]) => Effect::None,
        _ => Effect::Unknown,
    }
}

async fn overwrite(gateway: &Gateway, checkpoint: Checkpoint, mut request: Request) -> S3Result<S3Response<Body>> {
    let at = checkpoint.key();
    let unavailable = |text: &str| {
        let text = format!("Lakewarden could not look at {at}, so it is not overwritten: {}", clause(text));
        S3Error::with_message(S3ErrorCode::ServiceUnavailable, text)
    };
    let there = match gateway.objects.head(&at).await {
        Ok(there) => there,
        Err(ObjectError::NotFound(_)) => return passed_on(gateway, request).await,
        Err(error) => return Err(unavailable(&chain(&error))),
    };
    let doomed = Doomed { checkpoints: BTreeSet::from([checkpoint.name.clone()]), ..Doomed::default() };
    let kept = gateway.cleanup.keep(&*gateway.objects, &checkpoint.root, &doomed).await;
    let Some((_, why)) = kept.map_err(|error| unavailable(&error))?.checkpoints.pop_first() else {
        return passed_on(gateway, request).await;
    };
    let refused = || {
        let text =
            format!("Lakewarden refuses to overwrite the checkpoint {} of {}: {why}", checkpoint.name, checkpoint.root);
        S3Error::with_message(S3ErrorCode::AccessDenied, text)
    };
    let may_be_same = request.length() == Some(there.size_bytes) && there.size_bytes <= COMPARED_MAX_BYTES;
    if !may_be_same || !request.brings_all() {
        return Err(refused());
    }
    let whole = request.read(usize::try_from(there.size_bytes).unwrap_or(usize::MAX)).await?;
    digests::check(&request, &whole)?;
    let found = gateway.objects.get(&at, &GetOptions::default()).await;
    let found = found.map_err(|error| unavailable(&chain(&error)))?;
    if found.bytes != whole.bytes {
        return Err(refused());
    }
    // It is what it would become.
    let etag = HeaderValue::from_str(&format!("\"{}\"", found.meta.etag.0));
    let headers = HeaderMap::from_iter(etag.ok().map(|etag| (ETAG, etag)));
    Ok(S3Response::with_headers(Body::empty(), headers))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patience::Fate;

    #[test]
    fn only_what_is_known_to_change_nothing_passes() {
        for (method, query, header, expected) in [
            ("DELETE", "", "", Effect::Deletes),
            ("DELETE", "versionId=1", "", Effect::Deletes),
            ("DELETE", "x-id=DeleteObject", "", Effect::Deletes),
            ("DELETE", "uploadId=1", "", Effect::None),
            ("DELETE", "tagging=", "", Effect::None),
            ("DELETE", "foo=bar", "", Effect::Unknown),
            ("DELETE", "uploadId=1&foo=bar", "", Effect::Unknown),
            ("PUT", "", "", Effect::Overwrites),
            ("PUT", "x-id=PutObject", "", Effect::Overwrites),
            ("PUT", "x-id=PutObject", "if-none-match", Effect::None),
            ("PUT", "", "if-none-match x-amz-copy-source", Effect::Overwrites),
            ("PUT", "partNumber=1&uploadId=2", "", Effect::None),
            ("PUT", "partNumber=1", "", Effect::Unknown),
            ("PUT", "uploadId=1", "", Effect::Unknown),
            ("PUT", "acl=", "", Effect::None),
            ("PUT", "acl=&foo=bar", "", Effect::Unknown),
            ("PUT", "versionId=1", "", Effect::Unknown),
            ("PUT", "foo=bar", "", Effect::Unknown),
            ("PUT", "foo=bar", "if-none-match", Effect::Unknown),
            ("PUT", "renameObject=", "", Effect::Unknown),
            ("PUT", "response-content-type=a", "", Effect::Unknown),
            ("POST", "uploads=", "", Effect::Overwrites),
            ("POST", "uploadId=1", "", Effect::Overwrites),
            ("POST", "restore=", "", Effect::None),
            ("POST", "", "", Effect::Unknown),
            ("PATCH", "", "", Effect::Unknown),
        ] {
            let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            let headers = header.split(' ').filter(|name| !name.is_empty());
            let request = Request {
                method: method.parse().unwrap(),
                path: "/lake/t/_delta_log/00000000000000000001.checkpoint.parquet".to_owned(),
                query: pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
                headers: headers.map(|name| (name.parse().unwrap(), HeaderValue::from_static("*"))).collect(),
                body: Body::empty(),
                fate: Fate::default(),
                check: None,
            };
            assert_eq!(effect(&request), expected, "{method} {query} {header}");
        }
    }
}
