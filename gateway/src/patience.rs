//! How long clients are waited for, and what became of a body that did not come to its end.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use s3s::{Body, S3Error, S3ErrorCode, StdError};
use thiserror::Error;
use tokio::time::Sleep;

use crate::chunked::FrameError;

/// How long the next piece of a body may be in coming. S3's own patience is shorter.
pub const BODY_PATIENCE: Duration = Duration::from_secs(60);

/// Why a body has no end.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Broken {
    #[error("the client sent nothing of the body for {0:?}")]
    Slow(Duration),
    #[error("the client broke off in the middle of the body: {0}")]
    Gone(String),
    #[error("{0}")]
    Malformed(String),
    #[error("the signature of a chunk of the body, or of its trailers, does not match")]
    Signature,
}

impl From<Broken> for S3Error {
    fn from(broken: Broken) -> S3Error {
        let code = match &broken {
            Broken::Slow(_) => S3ErrorCode::RequestTimeout,
            Broken::Gone(_) | Broken::Malformed(_) => S3ErrorCode::IncompleteBody,
            Broken::Signature => S3ErrorCode::SignatureDoesNotMatch,
        };
        S3Error::with_message(code, broken.to_string())
    }
}

/// What became of a request's body: written where it is read, and asked where the reading failed for somebody else.
#[derive(Clone, Debug, Default)]
pub struct Fate(Arc<Known>);

#[derive(Debug, Default)]
struct Known {
    broken: OnceLock<Broken>,
    has_ended: AtomicBool,
}

impl Fate {
    pub fn broken(&self) -> Option<&Broken> {
        self.0.broken.get()
    }

    /// Whether it was read to its end.
    pub fn has_ended(&self) -> bool {
        self.0.has_ended.load(Ordering::Acquire)
    }

    fn note_end(&self) {
        self.0.has_ended.store(true, Ordering::Release);
    }

    fn note(&self, broken: Broken) {
        // The first one is the reason of the others.
        drop(self.0.broken.set(broken));
    }

    /// Notes what is wrong with the frames of a body.
    pub fn note_frames(&self, error: &StdError) {
        self.note(match error.downcast_ref::<FrameError>() {
            Some(FrameError::Signature) => Broken::Signature,
            Some(error) => Broken::Malformed(error.to_string()),
            None => Broken::Gone(error.to_string()),
        });
    }
}

/// A body that must go on.
struct Patient<B> {
    inner: B,
    patience: Duration,
    waiting: Option<Pin<Box<Sleep>>>,
    fate: Fate,
}

impl<B> fmt::Debug for Patient<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Patient").field("patience", &self.patience).finish_non_exhaustive()
    }
}

impl<B> http_body::Body for Patient<B>
where
    B: http_body::Body<Data = Bytes> + Unpin,
    B::Error: Into<StdError>,
{
    type Data = Bytes;
    type Error = StdError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut this.inner).poll_frame(cx) {
            this.waiting = None;
            // Who knows the length does not ask again after the last piece.
            if frame.is_none() || this.inner.is_end_stream() {
                this.fate.note_end();
            }
            return Poll::Ready(frame.map(|frame| {
                frame.map_err(|error| {
                    let error = error.into();
                    this.fate.note(Broken::Gone(error.to_string()));
                    error
                })
            }));
        }
        let waiting = this.waiting.get_or_insert_with(|| Box::pin(tokio::time::sleep(this.patience)));
        match waiting.as_mut().poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) => {
                this.waiting = None;
                let broken = Broken::Slow(this.patience);
                this.fate.note(broken.clone());
                Poll::Ready(Some(Err(Box::new(broken))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// A body that ends with an error if it does not go on for `patience`, and what becomes of it.
pub fn patient<B>(body: B, patience: Duration) -> (Body, Fate)
where
    B: http_body::Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<StdError>,
{
    let fate = Fate::default();
    if body.is_end_stream() {
        fate.note_end();
    }
    let body = Patient { inner: body, patience, waiting: None, fate: fate.clone() };
    (Body::http_body_unsync(body), fate)
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use http_body_util::{BodyExt, Full, StreamBody};

    use super::*;

    #[tokio::test]
    async fn a_body_that_does_not_go_on_is_given_up() {
        let frames = stream::iter([Ok::<_, StdError>(Frame::data(Bytes::from_static(b"abc")))]);
        let endless = StreamBody::new(futures::StreamExt::chain(frames, stream::pending()));
        let (mut body, fate) = patient(endless, Duration::from_millis(20));
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "abc");
        assert!(fate.broken().is_none());
        assert!(body.frame().await.unwrap().is_err());
        let error = S3Error::from(fate.broken().cloned().unwrap());
        assert_eq!((error.code(), error.status_code().unwrap().as_u16()), (&S3ErrorCode::RequestTimeout, 400));
    }

    #[tokio::test]
    async fn a_body_that_is_broken_off_says_so() {
        let frames = stream::iter([Err::<Frame<Bytes>, StdError>("reset".into())]);
        let (body, fate) = patient(StreamBody::new(frames), BODY_PATIENCE);
        assert!(body.collect().await.is_err());
        assert_eq!(fate.broken(), Some(&Broken::Gone("reset".to_owned())));
    }

    #[tokio::test]
    async fn a_body_that_comes_is_as_it_was() {
        let (body, fate) = patient(Full::new(Bytes::from_static(b"abc")), BODY_PATIENCE);
        assert_eq!(http_body::Body::size_hint(&body).exact(), Some(3));
        assert!(!fate.has_ended());
        assert_eq!(body.collect().await.unwrap().to_bytes(), "abc");
        assert!(fate.broken().is_none() && fate.has_ended());
    }

    #[tokio::test]
    async fn a_body_has_ended_with_its_last_piece() {
        let (mut body, fate) = patient(Full::new(Bytes::from_static(b"abc")), BODY_PATIENCE);
        body.frame().await.unwrap().unwrap();
        assert!(fate.has_ended(), "nobody has to ask for more");
        assert!(patient(Full::new(Bytes::new()), BODY_PATIENCE).1.has_ended(), "there is none");
        let (body, fate) = patient(Full::new(Bytes::from_static(b"abc")), BODY_PATIENCE);
        drop(body);
        assert!(!fate.has_ended());
        let frames = stream::iter([Err::<Frame<Bytes>, StdError>("reset".into())]);
        let (mut body, fate) = patient(StreamBody::new(frames), BODY_PATIENCE);
        assert!(body.frame().await.unwrap().is_err() && !fate.has_ended());
    }

    #[test]
    fn frames_are_told_apart() {
        for (error, code) in [
            (Box::new(FrameError::Signature) as StdError, S3ErrorCode::SignatureDoesNotMatch),
            (Box::new(FrameError::Incomplete), S3ErrorCode::IncompleteBody),
            ("x".into(), S3ErrorCode::IncompleteBody),
        ] {
            let fate = Fate::default();
            fate.note_frames(&error);
            fate.note_frames(&"later".into());
            assert_eq!(S3Error::from(fate.broken().cloned().unwrap()).code(), &code);
        }
    }
}
