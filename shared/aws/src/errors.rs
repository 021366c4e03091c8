//! From the SDK's errors to [`StoreError`]. One table of codes for the three services.

use std::error::Error;

use aws_sdk_dynamodb::config::http::HttpResponse;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use lakewarden_core::store::{StoreError, StoreErrorKind};

/// Codes by which a service says "slower"; the request was not carried out.
const THROTTLED: &[&str] = &[
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "ThrottlingException",
    "Throttling",
    "ThrottledException",
    "RequestThrottled",
    "RequestThrottledException",
    "TooManyRequestsException",
    "LimitExceededException",
    "SlowDown",
    "OverLimit",
    "KmsThrottled",
];

const CONFLICT: &[&str] = &[
    "TransactionConflictException",
    "TransactionInProgressException",
    "ReplicatedWriteConflictException",
    "ConditionalRequestConflict",
    "OperationAborted",
    "ResourceInUseException",
];

const TOO_LARGE: &[&str] =
    &["ItemCollectionSizeLimitExceededException", "EntityTooLarge", "MaxMessageLengthExceeded", "BatchRequestTooLong"];

const ACCESS_DENIED: &[&str] = &[
    "AccessDenied",
    "AccessDeniedException",
    "AllAccessDisabled",
    "UnrecognizedClientException",
    "InvalidClientTokenId",
    "InvalidAccessKeyId",
    "InvalidSignatureException",
    "SignatureDoesNotMatch",
    "IncompleteSignature",
    "MissingAuthenticationToken",
    "MissingAuthenticationTokenException",
    "ExpiredToken",
    "ExpiredTokenException",
    "InvalidToken",
    "RequestTimeTooSkewed",
    "KmsAccessDenied",
];

const MISSING: &[&str] = &[
    "ResourceNotFoundException",
    "TableNotFoundException",
    "NoSuchBucket",
    // A name that no bucket can have.
    "InvalidBucketName",
    "QueueDoesNotExist",
    "AWS.SimpleQueueService.NonExistentQueue",
];

/// Codes that leave open what happened, whatever their status.
const UNAVAILABLE: &[&str] = &["RequestTimeout", "RequestTimeoutException", "InternalError", "InternalServerError"];

/// Whether the service refused the request without looking at it.
pub(crate) fn is_refusal(code: Option<&str>) -> bool {
    code.is_some_and(|code| THROTTLED.contains(&code))
}

/// Kind of an error that a service answered.
pub(crate) fn kind_of(code: Option<&str>, message: &str, status: u16) -> StoreErrorKind {
    let is_one_of = |codes: &[&str]| code.is_some_and(|code| codes.contains(&code));
    if is_one_of(THROTTLED) || status == 429 {
        StoreErrorKind::Throttled
    } else if is_one_of(CONFLICT) {
        StoreErrorKind::Conflict
    } else if is_one_of(UNAVAILABLE) || status >= 500 {
        StoreErrorKind::Unavailable
    } else if is_one_of(TOO_LARGE) || status == 413 || says_too_large(message) {
        StoreErrorKind::TooLarge
    } else if is_one_of(ACCESS_DENIED) || status == 401 || status == 403 {
        StoreErrorKind::AccessDenied
    } else if is_one_of(MISSING) || status == 404 {
        StoreErrorKind::Missing
    } else {
        StoreErrorKind::Invalid
    }
}

/// DynamoDB has no code of its own for items and transactions that are too large.
fn says_too_large(message: &str) -> bool {
    message.contains("Item size has exceeded")
        || message.contains("Item size to update has exceeded")
        || message.contains("aggregate size of the items")
}

/// Turns any failure of a call into a [`StoreError`]. `resource` names what was addressed, in the deployment's terms.
pub(crate) fn store_error<E>(operation: &str, resource: &str, error: &SdkError<E, HttpResponse>) -> StoreError
where
    E: ProvideErrorMetadata + Error + 'static,
{
    let (kind, message) = match error {
        SdkError::ServiceError(answer) => {
            let status = answer.raw().status().as_u16();
            let code = answer.err().code();
            let text = answer.err().message().unwrap_or("no message");
            let message = format!("{}: {text} (status {status})", code.unwrap_or("no code"));
            (kind_of(code, text, status), message)
        }
        SdkError::ConstructionFailure(_) => (StoreErrorKind::Invalid, chain(error)),
        SdkError::DispatchFailure(failure) if failure.is_user() => (StoreErrorKind::Invalid, chain(error)),
        // No answer, one that came too late, or one that could not be read: the call may have had its effect.
        _ => (StoreErrorKind::Unavailable, chain(error)),
    };
    StoreError::new(kind, operation, format!("{message} [{resource}]"))
}

/// An error and its causes in one line.
pub(crate) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let part = inner.to_string();
        if !text.contains(&part) {
            text.push_str(": ");
            text.push_str(&part);
        }
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_kinds() {
        use StoreErrorKind::{AccessDenied, Conflict, Invalid, Missing, Throttled, TooLarge, Unavailable};
        let cases = [
            (Some("ProvisionedThroughputExceededException"), "", 400, Throttled),
            (Some("SlowDown"), "", 503, Throttled),
            (None, "", 429, Throttled),
            (Some("ServiceUnavailable"), "", 503, Unavailable),
            (Some("InternalServerError"), "", 500, Unavailable),
            (Some("RequestTimeout"), "", 400, Unavailable),
            (Some("TransactionConflictException"), "", 400, Conflict),
            (Some("TransactionInProgressException"), "", 400, Conflict),
            (Some("ValidationException"), "Item size has exceeded the maximum allowed size", 400, TooLarge),
            (Some("ValidationException"), "The parameter is empty", 400, Invalid),
            (Some("AccessDeniedException"), "", 400, AccessDenied),
            (None, "", 403, AccessDenied),
            (Some("ResourceNotFoundException"), "", 400, Missing),
            (Some("NoSuchBucket"), "", 404, Missing),
            (Some("InvalidBucketName"), "", 400, Missing),
            (Some("IdempotentParameterMismatchException"), "", 400, Invalid),
        ];
        for (code, message, status, expected) in cases {
            assert_eq!(kind_of(code, message, status), expected, "{code:?} {message} {status}");
        }
    }
}
