//! Overwriting checkpoints. Writers make them, and may make one again; the one that a log begins with, because the log files
//! before it were cleaned up, is all that is left of the table and stays as it is.

use std::collections::BTreeSet;

use http::header::{ETAG, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue, Method};
use lakewarden_core::store::{GetOptions, ObjectError};
use s3s::{Body, S3Error, S3ErrorCode, S3Response, S3Result};

use crate::cleanup::Doomed;
use crate::names::Checkpoint;
use crate::request::Request;
use crate::told::clause;
use crate::{Gateway, chain, delete, digests, passed_on};

/// Larger checkpoints are not compared with what is there.
const COMPARED_MAX_BYTES: u64 = 32 * 1024 * 1024;

/// Answers what would change (a part of) a checkpoint.
pub async fn change(gateway: &Gateway, checkpoint: Checkpoint, request: Request) -> S3Result<S3Response<Body>> {
    let is_abort = request.asks_only(&["uploadId"]);
    let is_whole = request.query.iter().all(|(name, _)| name == "x-id" || name == "versionId");
    let overwrites = match request.method {
        Method::DELETE if is_abort || !is_whole => false,
        Method::DELETE => return delete::delete_checkpoint(gateway, checkpoint, request).await,
        // Parts do nothing until they are put together.
        Method::PUT => is_whole,
        Method::POST => request.asks("uploads") || request.asks("uploadId"),
        _ => false,
    };
    // With this condition S3 itself overwrites nothing.
    let is_careful = request.method == Method::PUT && request.header(IF_NONE_MATCH.as_str()) == Some("*");
    if overwrites && !is_careful {
        overwrite(gateway, checkpoint, request).await
    } else {
        passed_on(gateway, request).await
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
