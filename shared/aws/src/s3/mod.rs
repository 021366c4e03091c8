//! [`S3Objects`]: the object ports on S3.

mod keys;
mod reads;
mod versions;
mod writes;

use std::sync::Arc;

use aws_sdk_s3::Client;
use aws_sdk_s3::config::http::HttpResponse;
use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use lakewarden_core::store::{ETag, ObjectError, ObjectKey, ObjectUsage};

use crate::errors::store_error;
use crate::usage::Meter;

/// [`lakewarden_core::store::Objects`] on S3. Cheap to clone; clones count together.
///
/// - Reads and unconditional writes are repeated by the SDK after throttling, lost answers and server errors, three
///   attempts in all. A put, copy or delete with a condition is repeated after throttling only; see the methods.
/// - Requests are counted once per call, whatever the SDK repeats.
/// - Keys are passed byte for byte; entity tags have no quotes in the product and quotes on the wire.
#[derive(Clone, Debug)]
pub struct S3Objects {
    client: Client,
    usage: Arc<Meter<ObjectUsage>>,
}

impl S3Objects {
    /// On a client that addresses buckets by path wherever its endpoint is not Amazon's own (as
    /// [`crate::Clients`] does).
    pub fn new(client: Client) -> Self {
        Self { client, usage: Arc::default() }
    }
}

/// Turns a failed request on one object into the product's error.
fn object_error<E>(operation: &str, at: &ObjectKey, error: &SdkError<E, HttpResponse>) -> ObjectError
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
{
    if let SdkError::ServiceError(answer) = error {
        // HEAD has no body, so no code: a missing bucket looks like a missing object there.
        match (answer.raw().status().as_u16(), answer.err().code()) {
            (404, None | Some("NoSuchKey" | "NotFound")) => return ObjectError::NotFound(at.clone()),
            (412, _) => return ObjectError::PreconditionFailed(at.clone()),
            (409, Some("ConditionalRequestConflict" | "OperationAborted")) => {
                return ObjectError::ConditionalConflict(at.clone());
            }
            (416, _) => return ObjectError::InvalidRange(at.clone()),
            _ => {}
        }
    }
    store_error(operation, &format!("s3://{}", at.bucket), error).into()
}

/// An entity tag as it is written in headers.
fn quoted(etag: &ETag) -> String {
    format!("\"{}\"", etag.0)
}

fn unquoted(etag: &str) -> ETag {
    ETag(etag.trim_matches('"').to_owned())
}
