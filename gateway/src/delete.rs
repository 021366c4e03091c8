//! Deletions, one by one and in batches. What would take a published log file away is refused, but for the cleanup of
//! logs after checkpoints.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body_util::{BodyExt, Limited};
use lakewarden_core::delta::Version;
use lakewarden_core::location::Location;
use lakewarden_core::store::ObjectKey;
use s3s::crypto::{Checksum as _, Sha256};
use s3s::dto::{Delete, DeleteObjectsOutput, Error};
use s3s::xml::{Deserialize, Deserializer, Serialize, Serializer};
use s3s::{Body, S3Error, S3ErrorCode, S3Response, S3Result, s3_error};

use crate::names::{LogFile, Named};
use crate::request::Request;
use crate::{Gateway, digests, lookalike, passed_on};

/// A batch of 1,000 keys of 1,024 bytes, escaped, has less.
const BATCH_MAX_BYTES: usize = 8 * 1024 * 1024;

/// Answers the deletion of one log file.
pub async fn delete(gateway: &Gateway, file: LogFile, request: Request) -> S3Result<S3Response<Body>> {
    let is_plain = request.query.iter().all(|(name, _)| name == "x-id");
    if !is_plain {
        let text =
            format!("Lakewarden lets nobody delete a version, or a part, of the published log file {}", file.key());
        return Err(S3Error::with_message(S3ErrorCode::AccessDenied, text));
    }
    let doomed = BTreeMap::from([(file.root.clone(), BTreeSet::from([file.version]))]);
    match kept(gateway, doomed).await?.pop_first() {
        None => passed_on(gateway, request).await,
        Some((_, text)) => Err(S3Error::with_message(S3ErrorCode::AccessDenied, text)),
    }
}

/// What may not be deleted, and what a person is told of it.
async fn kept(
    gateway: &Gateway,
    doomed: BTreeMap<Location, BTreeSet<Version>>,
) -> S3Result<BTreeMap<ObjectKey, String>> {
    let mut kept = BTreeMap::new();
    for (root, versions) in doomed {
        let checked = gateway.cleanup.keep(&*gateway.objects, &root, &versions).await;
        let checked = checked.map_err(|error| {
            let text = format!("Lakewarden could not look at the log of {root}, so nothing is deleted there: {error}");
            S3Error::with_message(S3ErrorCode::ServiceUnavailable, text)
        })?;
        for (version, why) in checked {
            let text = format!(
                "Lakewarden keeps version {version} of {root}: log files go when a checkpoint has made them superfluous, \
                 and {why}"
            );
            kept.insert(LogFile { root: root.clone(), version }.key(), text);
        }
    }
    Ok(kept)
}

/// Answers `POST /bucket?delete`: what is guarded is taken out of the batch, and reported as S3 reports what it did not
/// delete.
pub async fn delete_batch(gateway: &Gateway, mut request: Request) -> S3Result<S3Response<Body>> {
    let whole = request.read(BATCH_MAX_BYTES).await?;
    digests::check(&request, &whole)?;
    let malformed = || s3_error!(MalformedXML, "The XML you provided was not well-formed");
    let mut xml = Deserializer::new(&whole.bytes);
    let mut batch = Delete::deserialize(&mut xml).map_err(|_| malformed())?;
    xml.expect_eof().map_err(|_| malformed())?;

    let refused = refusals(gateway, request.bucket(), &batch).await?;
    batch.objects.retain(|object| !refused.contains_key(&(object.key.clone(), object.version_id.clone())));
    let errors: Vec<Error> = refused
        .into_iter()
        .map(|((key, version_id), text)| Error {
            code: Some("AccessDenied".to_owned()),
            key: Some(key),
            message: Some(text),
            version_id,
        })
        .collect();
    if batch.objects.is_empty() {
        let output = DeleteObjectsOutput { errors: Some(errors), ..DeleteObjectsOutput::default() };
        return as_xml(&output);
    }
    // What was understood is what is passed on, not what it was read from.
    let body = to_xml(&batch)?;
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

type Doomed = (String, Option<String>);

async fn refusals(gateway: &Gateway, bucket: &str, batch: &Delete) -> S3Result<BTreeMap<Doomed, String>> {
    let mut refused = BTreeMap::new();
    let mut doomed: BTreeMap<Location, BTreeSet<Version>> = BTreeMap::new();
    let mut files = Vec::new();
    for object in &batch.objects {
        let at = ObjectKey::new(bucket, object.key.as_str());
        let id = (object.key.clone(), object.version_id.clone());
        match gateway.names(&at) {
            Named::Other => {}
            Named::Lookalike => drop(refused.insert(id, lookalike(&at))),
            Named::LogFile(file) if id.1.is_some() => {
                let text = format!("Lakewarden lets nobody delete a version of the published log file {}", file.key());
                refused.insert(id, text);
            }
            Named::LogFile(file) => {
                doomed.entry(file.root.clone()).or_default().insert(file.version);
                files.push((at, id));
            }
        }
    }
    let kept = kept(gateway, doomed).await?;
    for (at, id) in files {
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

fn to_xml(value: &impl Serialize) -> S3Result<Bytes> {
    let mut xml = Vec::new();
    let mut serializer = Serializer::new(&mut xml);
    let written = serializer.decl().and_then(|()| value.serialize(&mut serializer));
    written.map_err(|error| s3_error!(InternalError, "XML could not be written: {error}"))?;
    Ok(xml.into())
}

fn as_xml(value: &impl Serialize) -> S3Result<S3Response<Body>> {
    let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/xml"))]);
    Ok(S3Response::with_headers(Body::from(to_xml(value)?), headers))
}

/// S3's answer with more errors.
fn with_errors(answer: &str, errors: &[Error]) -> S3Result<Bytes> {
    let output = DeleteObjectsOutput { errors: Some(errors.to_vec()), ..DeleteObjectsOutput::default() };
    let ours = to_xml(&output)?;
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
    fn batches_say_again_what_was_read() {
        for key in ["a", " a", "a ", "a&b<c>\"d'", "ü/%2F", "a\tb", "]]>"] {
            let escaped = key.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
            let xml = format!("<Delete><Object><Key>{escaped}</Key></Object><Quiet>true</Quiet></Delete>");
            let read = |xml: &[u8]| Delete::deserialize(&mut Deserializer::new(xml)).unwrap();
            let batch = read(xml.as_bytes());
            assert_eq!(batch.objects[0].key, key);
            let again = read(&to_xml(&batch).unwrap());
            assert_eq!((again.objects[0].key.as_str(), again.quiet), (key, Some(true)), "{key:?}");
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
