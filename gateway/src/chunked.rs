//! `aws-chunked` bodies: taken apart as they stream by, and put together again without signatures.
//!
//! Where the clients' keys are known, the signature of each chunk is checked when its last byte has gone by, so that no
//! chunk has to be held. A wrong one ends the body with an error, and with it the upload that it is passed on to: the last
//! piece of all is passed on when everything is known to be good.

use aws_sigv4::sign::v4::calculate_signature;
use bytes::{Buf, Bytes, BytesMut};
use futures::stream::{BoxStream, Stream, StreamExt, try_unfold};
use http_body::Frame;
use http_body_util::StreamBody;
use s3s::{Body, StdError};
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::sign::sha256_hex;

/// S3's own line of a chunk has about a hundred bytes.
const LINE_MAX_BYTES: usize = 1024;
const TRAILERS_MAX: usize = 32;
const TRAILER_SIGNATURE: &str = "x-amz-trailer-signature";

/// A body is not framed as it says.
#[derive(Debug, Error)]
pub enum FrameError {
    #[error("the body is not aws-chunked: {0}")]
    Malformed(&'static str),
    #[error("the body ends in the middle of a chunk")]
    Incomplete,
    #[error("the signature of a chunk, or of the trailers, does not match")]
    Signature,
    #[error("the body could not be read: {0}")]
    Source(StdError),
}

/// A piece of a body that was taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    Data(Bytes),
    /// The end, with the trailers in the order they came.
    End(Vec<(String, String)>),
}

/// Checks signatures of chunks, each of which goes into the next one.
pub struct ChunkCheck {
    pub key: Vec<u8>,
    /// As `x-amz-date` says it.
    pub date: String,
    /// `20260101/us-east-1/s3/aws4_request`
    pub scope: String,
    /// Of the request's head, at first.
    pub previous: String,
    hasher: Sha256,
}

impl std::fmt::Debug for ChunkCheck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChunkCheck").field("scope", &self.scope).finish_non_exhaustive()
    }
}

impl ChunkCheck {
    pub fn new(key: Vec<u8>, date: String, scope: String, previous: String) -> ChunkCheck {
        ChunkCheck { key, date, scope, previous, hasher: Sha256::new() }
    }

    fn check(&mut self, signature: Option<&str>) -> Result<(), FrameError> {
        let hash = hex::encode(std::mem::replace(&mut self.hasher, Sha256::new()).finalize());
        let (date, scope, previous) = (&self.date, &self.scope, &self.previous);
        let text = format!("AWS4-HMAC-SHA256-PAYLOAD\n{date}\n{scope}\n{previous}\n{}\n{hash}", sha256_hex(b""));
        self.compare(&text, signature)
    }

    fn check_trailers(&mut self, trailers: &[(String, String)], signature: Option<&str>) -> Result<(), FrameError> {
        let mut lines: Vec<String> = trailers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
        lines.sort_unstable();
        let hash = sha256_hex(lines.concat().as_bytes());
        let text = format!("AWS4-HMAC-SHA256-TRAILER\n{}\n{}\n{}\n{hash}", self.date, self.scope, self.previous);
        self.compare(&text, signature)
    }

    fn compare(&mut self, text: &str, signature: Option<&str>) -> Result<(), FrameError> {
        let expected = calculate_signature(&self.key, text.as_bytes());
        if signature != Some(expected.as_str()) {
            return Err(FrameError::Signature);
        }
        self.previous = expected;
        Ok(())
    }
}

#[derive(Debug)]
enum State {
    Head,
    Data { left: u64, signature: Option<String> },
    Trailers,
    Done,
}

/// Takes a body apart.
pub struct Chunks {
    source: Body,
    buffer: BytesMut,
    state: State,
    check: Option<ChunkCheck>,
}

impl std::fmt::Debug for Chunks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Chunks").field("state", &self.state).finish_non_exhaustive()
    }
}

impl Chunks {
    pub fn new(source: Body, check: Option<ChunkCheck>) -> Chunks {
        Chunks { source, buffer: BytesMut::new(), state: State::Head, check }
    }

    /// The next piece; none after the end.
    pub async fn next(&mut self) -> Result<Option<Piece>, FrameError> {
        loop {
            match &mut self.state {
                State::Head => self.head().await?,
                State::Data { left: 0, signature } => {
                    let signature = signature.take();
                    if !self.line().await?.is_empty() {
                        return Err(FrameError::Malformed("a chunk is longer than it says"));
                    }
                    if let Some(check) = &mut self.check {
                        check.check(signature.as_deref())?;
                    }
                    self.state = State::Head;
                }
                State::Data { left, .. } => {
                    let wanted = usize::try_from(*left).unwrap_or(usize::MAX);
                    if self.buffer.is_empty() && !self.fill().await? {
                        return Err(FrameError::Incomplete);
                    }
                    let data = self.buffer.split_to(wanted.min(self.buffer.len())).freeze();
                    if let State::Data { left, .. } = &mut self.state {
                        *left = left.saturating_sub(data.len() as u64);
                    }
                    if let Some(check) = &mut self.check {
                        check.hasher.update(&data);
                    }
                    return Ok(Some(Piece::Data(data)));
                }
                State::Trailers => {
                    let trailers = self.trailers().await?;
                    self.state = State::Done;
                    return Ok(Some(Piece::End(trailers)));
                }
                State::Done => return Ok(None),
            }
        }
    }

    async fn head(&mut self) -> Result<(), FrameError> {
        let line = self.line().await?;
        let mut parts = line.split(';');
        let size = parts.next().unwrap_or_default().trim();
        // No sign, and no more than fits.
        let is_hex = !size.is_empty() && size.bytes().all(|byte| byte.is_ascii_hexdigit());
        let size = u64::from_str_radix(size, 16).ok().filter(|_| is_hex);
        let size = size.ok_or(FrameError::Malformed("a chunk has no size"))?;
        let signature = parts.find_map(|part| part.trim().strip_prefix("chunk-signature=").map(str::to_owned));
        if size > 0 {
            self.state = State::Data { left: size, signature };
            return Ok(());
        }
        if let Some(check) = &mut self.check {
            check.check(signature.as_deref())?;
        }
        self.state = State::Trailers;
        Ok(())
    }

    async fn trailers(&mut self) -> Result<Vec<(String, String)>, FrameError> {
        let mut trailers = Vec::new();
        let mut signature = None;
        loop {
            if self.buffer.is_empty() && !self.fill().await? {
                break;
            }
            let line = self.line().await?;
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').ok_or(FrameError::Malformed("a trailer has no value"))?;
            let (name, value) = (name.trim().to_ascii_lowercase(), value.trim().to_owned());
            match name.as_str() {
                TRAILER_SIGNATURE => signature = Some(value),
                _ if trailers.len() >= TRAILERS_MAX => return Err(FrameError::Malformed("too many trailers")),
                _ => trailers.push((name, value)),
            }
        }
        if let Some(check) = self.check.as_mut().filter(|_| !trailers.is_empty()) {
            check.check_trailers(&trailers, signature.as_deref())?;
        }
        // Nothing but line ends may follow.
        while self.fill().await? {
            if self.buffer.iter().any(|byte| !byte.is_ascii_whitespace()) {
                return Err(FrameError::Malformed("something follows the last chunk"));
            }
            self.buffer.clear();
        }
        Ok(trailers)
    }

    /// A line without its end.
    async fn line(&mut self) -> Result<String, FrameError> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(end);
                self.buffer.advance(1);
                let line = line.strip_suffix(b"\r").unwrap_or(&line);
                return String::from_utf8(line.to_vec()).map_err(|_| FrameError::Malformed("a line is no text"));
            }
            if self.buffer.len() > LINE_MAX_BYTES {
                return Err(FrameError::Malformed("a line is too long"));
            }
            if !self.fill().await? {
                return Err(FrameError::Incomplete);
            }
        }
    }

    async fn fill(&mut self) -> Result<bool, FrameError> {
        match self.source.next().await {
            None => Ok(false),
            Some(Ok(bytes)) if self.buffer.is_empty() => {
                // What is not shared is taken over without a copy.
                self.buffer = bytes.try_into_mut().unwrap_or_else(|bytes| BytesMut::from(&bytes[..]));
                Ok(true)
            }
            Some(Ok(bytes)) => {
                self.buffer.extend_from_slice(&bytes);
                Ok(true)
            }
            Some(Err(error)) => Err(FrameError::Source(error)),
        }
    }
}

fn body_of(stream: impl Stream<Item = Result<Bytes, FrameError>> + Send + 'static) -> Body {
    let stream: BoxStream<'static, Result<Frame<Bytes>, StdError>> =
        stream.map(|piece| piece.map(Frame::data).map_err(|error| Box::new(error) as StdError)).boxed();
    Body::http_body_unsync(StreamBody::new(stream))
}

/// The data alone, of which there must be as much as was said: whoever waits for that much stops reading there, and would
/// not notice that the rest is wrong.
pub fn plain(chunks: Chunks, length: Option<u64>) -> Body {
    let start = (chunks, None::<Bytes>, 0_u64);
    body_of(try_unfold(start, move |(mut chunks, mut held, mut so_far)| async move {
        loop {
            match chunks.next().await? {
                Some(Piece::Data(data)) => {
                    so_far = so_far.saturating_add(data.len() as u64);
                    if length.is_some_and(|length| so_far > length) {
                        return Err(FrameError::Malformed("it has more data than it says"));
                    }
                    if let Some(before) = held.replace(data) {
                        return Ok(Some((before, (chunks, held, so_far))));
                    }
                }
                Some(Piece::End(_)) if length.is_some_and(|length| so_far < length) => {
                    return Err(FrameError::Incomplete);
                }
                Some(Piece::End(_)) | None => return Ok(held.map(|last| (last, (chunks, None, so_far)))),
            }
        }
    }))
}

/// Framed again, without signatures, with the trailers (`STREAMING-UNSIGNED-PAYLOAD-TRAILER`).
pub fn unsigned(chunks: Chunks) -> Body {
    let pieces = try_unfold(chunks, |mut chunks| async move {
        Ok::<_, FrameError>(chunks.next().await?.map(|piece| (framed(piece), chunks)))
    });
    body_of(pieces.map(|framed| futures::stream::iter(flat(framed))).flatten())
}

fn flat(framed: Result<Vec<Bytes>, FrameError>) -> Vec<Result<Bytes, FrameError>> {
    match framed {
        Ok(parts) => parts.into_iter().map(Ok).collect(),
        Err(error) => vec![Err(error)],
    }
}

fn framed(piece: Piece) -> Vec<Bytes> {
    match piece {
        Piece::Data(data) => {
            vec![Bytes::from(format!("{:x}\r\n", data.len())), data, Bytes::from_static(b"\r\n")]
        }
        Piece::End(trailers) => {
            let lines: String = trailers.iter().map(|(name, value)| format!("{name}:{value}\r\n")).collect();
            vec![Bytes::from(format!("0\r\n{lines}\r\n"))]
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    /// A body that arrives in pieces of so many bytes.
    fn in_pieces(text: &[u8], size: usize) -> Body {
        let pieces: Vec<Result<Bytes, FrameError>> =
            text.chunks(size).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
        body_of(futures::stream::iter(pieces))
    }

    async fn read(
        text: &[u8],
        size: usize,
        check: Option<ChunkCheck>,
    ) -> Result<(Vec<u8>, Vec<(String, String)>), FrameError> {
        let mut chunks = Chunks::new(in_pieces(text, size), check);
        let mut data = Vec::new();
        loop {
            match chunks.next().await? {
                Some(Piece::Data(bytes)) => data.extend_from_slice(&bytes),
                Some(Piece::End(trailers)) => return Ok((data, trailers)),
                None => panic!("no end"),
            }
        }
    }

    #[tokio::test]
    async fn bodies_are_taken_apart_wherever_they_are_cut() {
        let text = b"4\r\nabcd\r\nA;chunk-signature=x\r\n0123456789\r\n0\r\nx-amz-checksum-crc32: AAAAAA==\r\n\r\n";
        for size in 1..=text.len() {
            let (data, trailers) = read(text, size, None).await.unwrap();
            assert_eq!(data, b"abcd0123456789");
            assert_eq!(trailers, [("x-amz-checksum-crc32".to_owned(), "AAAAAA==".to_owned())]);
        }
        for text in [&b"0\r\n\r\n"[..], b"0\r\n", b"0\r\n\r\n\r\n"] {
            assert_eq!(read(text, 2, None).await.unwrap(), (vec![], vec![]));
        }
    }

    #[tokio::test]
    async fn bodies_that_are_none_are_refused() {
        for text in [
            &b""[..],
            b"x\r\n",
            b"-1\r\n",
            b"+4\r\nabcd\r\n0\r\n\r\n",
            b"4\r\nabc",
            b"4\r\nabcde\r\n0\r\n\r\n",
            b"4\r\nabcd\r\n",
            b"fffffffffffffffff\r\n",
            b"0\r\nnonsense\r\n\r\n",
            b"0\r\n\r\n4\r\nabcd\r\n0\r\n\r\n",
        ] {
            assert!(read(text, 3, None).await.is_err(), "{}", String::from_utf8_lossy(text));
        }
        assert!(read(&vec![b'1'; 5000], 1000, None).await.is_err(), "a line without an end");
    }

    #[tokio::test]
    async fn what_is_put_together_again_says_the_same() {
        let text = b"4;chunk-signature=a\r\nabcd\r\n0;chunk-signature=b\r\nx-amz-checksum-crc32:AAAAAA==\r\nx-amz-trailer-signature:c\r\n\r\n";
        let again = BodyExt::collect(unsigned(Chunks::new(in_pieces(text, 1000), None))).await.unwrap().to_bytes();
        assert_eq!(again, "4\r\nabcd\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n");
        let data = BodyExt::collect(plain(Chunks::new(in_pieces(text, 7), None), None)).await.unwrap().to_bytes();
        assert_eq!(data, "abcd");
    }

    /// What a reader gets that stops at the length it was told.
    async fn up_to(length: u64, text: &[u8], size: usize) -> Result<Vec<u8>, StdError> {
        let mut body = plain(Chunks::new(in_pieces(text, size), None), Some(length));
        let mut data = Vec::new();
        while (data.len() as u64) < length {
            match body.next().await {
                None => break,
                Some(piece) => data.extend_from_slice(&piece?),
            }
        }
        Ok(data)
    }

    #[tokio::test]
    async fn the_last_piece_is_not_passed_on_before_the_end_is_good() {
        for size in 1..30 {
            let good = b"4\r\nabcd\r\n4\r\nefgh\r\n0\r\n\r\n";
            assert_eq!(up_to(8, good, size).await.unwrap(), b"abcdefgh");
            for (length, text) in [
                (8, &b"4\r\nabcd\r\n4\r\nefgh\r\n0\r\nnonsense\r\n\r\n"[..]),
                (8, b"4\r\nabcd\r\n4\r\nefgh\r\n"),
                (8, b"8\r\nabcdefgh\r\n"),
                (4, good),
                (6, good),
                (7, good),
                (9, good),
            ] {
                assert!(up_to(length, text, size).await.is_err(), "{length} {size}");
            }
            assert_eq!(up_to(0, b"0\r\n\r\n", size).await.unwrap(), b"");
        }
    }

    /// The example that S3's documentation works through: 65 KiB of `a`, the first chunk 64 KiB.
    #[tokio::test]
    async fn signatures_of_chunks_are_checked() {
        let check = || {
            let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_369_353_600);
            let secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
            let key = aws_sigv4::sign::v4::generate_signing_key(secret, time, "us-east-1", "s3");
            ChunkCheck::new(
                key.as_ref().to_vec(),
                "20130524T000000Z".into(),
                "20130524/us-east-1/s3/aws4_request".into(),
                "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9".into(),
            )
        };
        let chunk = |size: usize, signature: &str| {
            let mut text = format!("{size:x};chunk-signature={signature}\r\n").into_bytes();
            text.extend(vec![b'a'; size]);
            text.extend(b"\r\n");
            text
        };
        let text = [
            chunk(65536, "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648"),
            chunk(1024, "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497"),
            chunk(0, "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9"),
        ]
        .concat();
        let (data, _) = read(&text, 1000, Some(check())).await.unwrap();
        assert_eq!(data.len(), 66560);
        let mut forged = text.clone();
        forged[66_000] = b'b';
        assert!(matches!(read(&forged, 1000, Some(check())).await, Err(FrameError::Signature)));
        let unsigned = b"4\r\nabcd\r\n0\r\n\r\n";
        assert!(matches!(read(unsigned, 1000, Some(check())).await, Err(FrameError::Signature)));
    }
}
