use std::error::Error;
use std::fmt;
use std::marker::PhantomData;

use aws_sdk_dynamodb::config::interceptors::InterceptorContext;
use aws_sdk_dynamodb::config::retry::{ClassifyRetry, RetryAction};
use aws_sdk_dynamodb::error::ProvideErrorMetadata;

use crate::errors::is_refusal;

/// Lets the SDK repeat a request only where the service refused it without looking at it (throttling).
///
/// For writes that carry a condition: were one repeated after its answer was lost, the second attempt could fail on
/// what the first one wrote, and the caller would take its own write for somebody else's. So a lost answer is reported
/// as `Unavailable`, and a failed condition is always about another write.
pub(crate) struct RefusedOnly<E>(PhantomData<fn() -> E>);

impl<E> RefusedOnly<E> {
    pub(crate) fn new() -> Self {
        Self(PhantomData)
    }
}

impl<E> fmt::Debug for RefusedOnly<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RefusedOnly")
    }
}

impl<E: ProvideErrorMetadata + Error + Send + Sync + 'static> ClassifyRetry for RefusedOnly<E> {
    fn classify_retry(&self, context: &InterceptorContext) -> RetryAction {
        let Some(Err(error)) = context.output_or_error() else { return RetryAction::NoActionIndicated };
        let answered = error.as_operation_error().and_then(|error| error.downcast_ref::<E>());
        if answered.is_some_and(|error| is_refusal(error.code())) {
            RetryAction::throttling_error()
        } else {
            RetryAction::RetryForbidden
        }
    }

    fn name(&self) -> &'static str {
        "refused requests only"
    }
}
