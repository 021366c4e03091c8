//! Deletions, one by one and in batches. What would take a published log file away is refused, but for the cleanup of
//! logs after checkpoints.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body_util::{BodyExt, Limited};
use lakewarden_core::delta::log::LogName;
use lakewarden_core::location::Location;
use lakewarden_core::store::ObjectKey;
use s3s::crypto::{Checksum as _, Sha256};
use s3s::dto::{Delete, DeleteObjectsOutput, Error};
use s3s::xml::Serialize;
use s3s::{Body, S3Error, S3ErrorCode, S3Response, S3Result, s3_error};

use crate::cleanup::{self, Doomed};
use crate::names::{Checkpoint, LogFile, Named};
use crate::request::Request;
use crate::told::told;
use crate::{Gateway, digests, lookalike, passed_on, turns, xml};

/// A batch of 1,000 keys of 1,024 bytes, escaped, has less.
const BATCH_MAX_BYTES: usize = 8 * 1024 * 1024;

/// Answers the deletion of one log file.
pub async fn delete(gateway: &Arc<Gateway>, file: LogFile, request: Request) -> S3Result<S3Response<Body>> {
    let is_plain = request.query.iter().all(|(name, _)| name == "x-id");
    if !is_plain {
        let text =
            format!("Lakewarden lets nobody delete a version, or a part, of the published log file {}", file.key());
        return Err(S3Error::with_message(S3ErrorCode::AccessDenied, text));
    }
    let doomed = Doomed { commits: BTreeSet::from([file.version]), ..Doomed::default() };
    if_superfluous(gateway, BTreeMap::from([(file.root, doomed)]), request).await
}

/// Answers the deletion of (a part of) a checkpoint.
pub async fn delete_checkpoint(
    gateway: &Arc<Gateway>,
    checkpoint: Checkpoint,
    request: Request,
) -> S3Result<S3Response<Body>> {
    let doomed = Doomed { checkpoints: BTreeSet::from([checkpoint.name]), ..Doomed::default() };
    if_superfluous(gateway, BTreeMap::from([(checkpoint.root, doomed)]), request).await
}

async fn if_superfluous(
    gateway: &Arc<Gateway>,
    doomed: BTreeMap<Location, Doomed>,
    request: Request,
) -> S3Result<S3Response<Body>> {
    let turn = gateway.turns.alone(doomed.keys().cloned().collect()).await?;
    let own = gateway.clone();
    let work = async move {
        match kept(&own, doomed).await?.pop_first() {
            None => passed_on(&own, request).await,
            Some((_, text)) => Err(S3Error::with_message(S3ErrorCode::AccessDenied, text)),
        }
    };
    turns::carry_out(turn, work).await
}

/// What may not be deleted, and what a person is told of it.
async fn kept(gateway: &Gateway, doomed: BTreeMap<Location, Doomed>) -> S3Result<BTreeMap<ObjectKey, String>> {
    let mut kept = BTreeMap::new();
    for (root, doomed) in doomed {
        let failed = |error: String| {
            let text = format!("Lakewarden could not look at the log of {root}, so nothing is deleted there: {error}");
            S3Error::with_message(S3ErrorCode::ServiceUnavailable, text)
        };
        let checked = gateway.cleanup.keep(&*gateway.objects, &root, &doomed).await;
        let mut checked = checked.map_err(failed)?;
        if !doomed.checkpoints.is_empty()
            && let Some(version) = cleanup::hinted(&*gateway.objects, &root).await.map_err(failed)?
        {
            let names = doomed.checkpoints.iter().filter(|name| LogName::parse(name).checkpoint() == Some(version));
            let why = format!("readers find it by {} and look for no other; delete that one first", cleanup::HINT);
            for name in names {
                checked.checkpoints.entry(name.clone()).or_insert_with(|| why.clone());
            }
        }
        for (version, why) in checked.commits {
            let text = format!(
                "Lakewarden keeps version {version} of {root}: log files go when a checkpoint has made them superfluous, \
                 and {why}"
            );
            kept.insert(LogFile { root: root.clone(), version }.key(), text);
        }
        for (name, why) in checked.checkpoints {
            let text = format!("Lakewarden keeps the checkpoint {name} of {root}: {why}");
            kept.insert(Checkpoint { root: root.clone(), name }.key(), text);
        }
    }
    Ok(kept)
}

/// Answers `POST /bucket?delete`: what is guarded is taken out of the batch, and reported as S3 reports what it did not
/// delete.
pub async fn delete_batch(gateway: &Arc<Gateway>, mut request: Request) -> S3Result<S3Response<Body>> {
    let whole = request.read(BATCH_MAX_BYTES).await?;
    digests::check(&request, &whole)?;
    let batch: Delete = xml::read(&whole.bytes)?;
    check_texts(&batch)?;
    let sorted = sort(gateway, request.bucket(), &batch);
    let turn = gateway.turns.alone(sorted.doomed.keys().cloned().collect()).await?;
    let own = gateway.clone();
    turns::carry_out(turn, async move { delete_rest(&own, request, batch, sorted).await }).await
}

/// What XML cannot say S3 does not take either, and an answer could not name it: nothing is deleted.
fn check_texts(batch: &Delete) -> S3Result<()> {
    let texts = batch.objects.iter().flat_map(|object| [Some(&object.key), object.version_id.as_ref()]);
    match texts.flatten().find(|text| !xml::holds(text)) {
        None => Ok(()),
        Some(text) => {
            let text = format!(
                "A batch of deletions is XML, which cannot hold the key `{text}`: delete this one by itself. Nothing was deleted"
            );
            Err(S3Error::with_message(S3ErrorCode::MalformedXML, text))
        }
    }
}

/// Deletes what may go of a batch.
async fn delete_rest(
    gateway: &Gateway,
    mut request: Request,
    mut batch: Delete,
    sorted: Sorted,
) -> S3Result<S3Response<Body>> {
    let refused = refusals(gateway, sorted).await?;
    batch.objects.retain(|object| !refused.contains_key(&(object.key.clone(), object.version_id.clone())));
    let errors: Vec<Error> = refused
        .into_iter()
        .map(|((key, version_id), text)| Error {
            code: Some("AccessDenied".to_owned()),
            key: Some(key),
            message: Some(told(&text)),
            version_id,
        })
        .collect();
    if batch.objects.is_empty() && !errors.is_empty() {
        let output = DeleteObjectsOutput { errors: Some(errors), ..DeleteObjectsOutput::default() };
        return as_xml(&output);
    }
    // What was understood is what is passed on, not what it was read from.
    let body = xml::write(&batch)?;
    rewrite(&mut request, body)?;
    let mut response = gateway.upstream.forward(request).await.map_err(crate::bad_upstream)?;
    if errors.is_empty() || response.status() != StatusCode::OK {
        return Ok(crate::as_response(response));
    }
    response.headers_mut().remove(CONTENT_LENGTH);
    let headers = response.headers().clone();
    let body = Limited::new(response.into_body(), BATCH_MAX_BYTES).collect().await;
    let body = body.map_err(|error| s3_error!(InternalError, "S3's answer could not be read: {error}"))?.to_bytes();
    let merged = with_errors(&String::from_utf8_lossy(&body), &errors)?;
    Ok(S3Response { status: Some(StatusCode::OK), ..S3Response::with_headers(Body::from(merged), headers) })
}

/// A key, and which version of it.
type Id = (String, Option<String>);

/// A batch by what its keys name.
#[derive(Debug, Default)]
struct Sorted {
    /// Whatever the log says.
    refused: BTreeMap<Id, String>,
    /// To be checked.
    doomed: BTreeMap<Location, Doomed>,
    files: Vec<(ObjectKey, Id)>,
}

fn sort(gateway: &Gateway, bucket: &str, batch: &Delete) -> Sorted {
    let mut sorted = Sorted::default();
    for object in &batch.objects {
        let at = ObjectKey::new(bucket, object.key.as_str());
        let id = (object.key.clone(), object.version_id.clone());
        match gateway.names(&at) {
            Named::Other => {}
            Named::Lookalike => drop(sorted.refused.insert(id, lookalike(&at))),
            Named::LogFile(file) if id.1.is_some() => {
                let text = format!("Lakewarden lets nobody delete a version of the published log file {}", file.key());
                sorted.refused.insert(id, text);
            }
            Named::LogFile(file) => {
                sorted.doomed.entry(file.root).or_default().commits.insert(file.version);
                sorted.files.push((at, id));
            }
            Named::Checkpoint(checkpoint) => {
                sorted.doomed.entry(checkpoint.root).or_default().checkpoints.insert(checkpoint.name);
                sorted.files.push((at, id));
            }
        }
    }
    sorted
}

async fn refusals(gateway: &Gateway, sorted: Sorted) -> S3Result<BTreeMap<Id, String>> {
    let mut refused = sorted.refused;
    let kept = kept(gateway, sorted.doomed).await?;
    for (at, id) in sorted.files {
        if let Some(text) = kept.get(&at) {
            refused.insert(id, text.clone());
        }
    }
    Ok(refused)
}

/// Puts another body in place of the one that was read.
fn rewrite(request: &mut Request, body: Bytes) -> S3Result<()> {
    let stale: Vec<_> = request
        .headers
        .keys()
        .filter(|name| {
            let name = name.as_str();
            let is_digest = name.starts_with("x-amz-checksum-") || name == "content-md5" || name == "content-encoding";
            is_digest || ["x-amz-content-sha256", "x-amz-decoded-content-length", "x-amz-trailer"].contains(&name)
        })
        .cloned()
        .collect();
    for name in stale {
        request.headers.remove(name);
    }
    let sha256 = BASE64.encode(Sha256::checksum(&body));
    let value = |text: String| HeaderValue::from_str(&text).map_err(|error| s3_error!(InternalError, "{error}"));
    request.headers.insert("x-amz-sdk-checksum-algorithm", HeaderValue::from_static("SHA256"));
    request.headers.insert("x-amz-checksum-sha256", value(sha256)?);
    request.headers.insert(CONTENT_LENGTH, value(body.len().to_string())?);
    request.headers.remove(http::header::TRANSFER_ENCODING);
    request.body = Body::from(body);
    Ok(())
}

fn as_xml(value: &impl Serialize) -> S3Result<S3Response<Body>> {
    let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/xml"))]);
    Ok(S3Response::with_headers(Body::from(xml::write(value)?), headers))
}

/// S3's answer with more errors.
fn with_errors(answer: &str, errors: &[Error]) -> S3Result<Bytes> {
    let output = DeleteObjectsOutput { errors: Some(errors.to_vec()), ..DeleteObjectsOutput::default() };
    let ours = xml::write(&output)?;
    let ours = String::from_utf8_lossy(&ours);
    let unreadable = || s3_error!(InternalError, "S3's answer to a batch of deletions was not understood");
    let inner = |text: &str| {
        let start = text.find("<DeleteResult")?;
        let open_end = start + text.get(start..)?.find('>')? + 1;
        if text.get(..open_end)?.ends_with("/>") {
            return Some((open_end - 2, open_end, true));
        }
        Some((open_end, text.rfind("</DeleteResult>")?, false))
    };
    let (from, to, _) = inner(&ours).ok_or_else(unreadable)?;
    let more = ours.get(from..to).ok_or_else(unreadable)?;
    let (from, to, is_empty) = inner(answer).ok_or_else(unreadable)?;
    let text = if is_empty {
        format!("{}>{more}</DeleteResult>", answer.get(..from).ok_or_else(unreadable)?)
    } else {
        let (before, after) = answer.split_at_checked(to).ok_or_else(unreadable)?;
        format!("{before}{more}{after}")
    };
    Ok(Bytes::from(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_an_answer_cannot_name_are_refused() {
        let check = |key: &str, version_id: Option<&str>| {
            let object = s3s::dto::ObjectIdentifier {
                key: key.to_owned(),
                version_id: version_id.map(str::to_owned),
                ..Default::default()
            };
            check_texts(&Delete { objects: vec![object], quiet: None }).map_err(|error| error.code().clone())
        };
        for key in ["a\rb", "a\tb\n", "ü", "\u{7f}\u{85}\u{fffd}\u{10000}"] {
            assert_eq!(check(key, Some("v")), Ok(()), "{key:?}");
        }
        for key in ["a\u{1}b", "\0", "\u{1f}", "\u{fffe}", "\u{ffff}"] {
            assert_eq!(check(key, None), Err(S3ErrorCode::MalformedXML), "{key:?}");
            assert_eq!(check("a", Some(key)), Err(S3ErrorCode::MalformedXML), "{key:?}");
        }
    }

    #[test]
    fn refusals_are_added_to_the_answer() {
        let error = Error { key: Some("k&".into()), code: Some("AccessDenied".into()), ..Error::default() };
        for (answer, before) in [
            (
                "<?xml version=\"1.0\"?><DeleteResult xmlns=\"x\"><Deleted><Key>a</Key></Deleted></DeleteResult>",
                "</Deleted>",
            ),
            ("<DeleteResult/>", "<DeleteResult>"),
            ("<DeleteResult xmlns=\"x\"></DeleteResult>", "<DeleteResult xmlns=\"x\">"),
        ] {
            let merged = with_errors(answer, std::slice::from_ref(&error)).unwrap();
            let merged = std::str::from_utf8(&merged).unwrap();
            assert!(merged.contains(&format!("{before}<Error>")), "{merged}");
            assert!(merged.contains("<Key>k&amp;</Key>") && merged.ends_with("</Error></DeleteResult>"), "{merged}");
        }
        assert!(with_errors("no xml", &[error]).is_err());
    }
}
