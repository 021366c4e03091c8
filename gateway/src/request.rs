//! A client's request, taken apart: which object, which operation, and a body that has not been read.

use bytes::{Bytes, BytesMut};
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, Method, Uri};
use lakewarden_core::store::ObjectKey;
use percent_encoding::percent_decode_str;
use s3s::{Body, S3Error, s3_error};

use crate::chunked::{ChunkCheck, Chunks, FrameError, Piece};
use crate::patience::Fate;
use crate::sign::{PAYLOAD, UNSIGNED};

const DECODED_LENGTH: &str = "x-amz-decoded-content-length";

/// How a body is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// As it is; the hash in the header, if any, is of all of it.
    Plain,
    /// In chunks without signatures, and trailers.
    Unsigned,
    /// In chunks with signatures.
    Signed { has_trailers: bool },
}

/// One request. Not read yet: the body.
#[derive(Debug)]
pub struct Request {
    pub method: Method,
    /// Decoded, from the first `/` on.
    pub path: String,
    /// Decoded, without what signs a presigned request.
    pub query: Vec<(String, String)>,
    pub headers: HeaderMap,
    pub body: Body,
    /// What becomes of the body.
    pub fate: Fate,
    /// For chunks that are signed, where the key is known.
    pub check: Option<ChunkCheck>,
}

/// A body that was read to its end.
#[derive(Debug)]
pub struct Whole {
    pub bytes: Bytes,
    pub trailers: Vec<(String, String)>,
}

/// The path as the key it names. Decoded once; what is no text is no key.
pub fn decode_path(uri: &Uri) -> Result<String, S3Error> {
    let decoded = percent_decode_str(uri.path()).decode_utf8();
    decoded.map(String::from).map_err(|_| s3_error!(InvalidURI, "The path is not UTF-8 when decoded"))
}

/// Names and values, decoded, in their order.
pub fn decode_query(uri: &Uri) -> Result<Vec<(String, String)>, S3Error> {
    let decode = |text: &str| {
        let text = text.replace('+', " ");
        let decoded = percent_decode_str(&text).decode_utf8();
        decoded.map(String::from).map_err(|_| s3_error!(InvalidURI, "The query is not UTF-8 when decoded"))
    };
    let pairs = uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((decode(name)?, decode(value)?))
        })
        .collect()
}

/// Whether a member of the query signs the request (versions 4 and 2 of presigned addresses).
pub fn is_signature(name: &str) -> bool {
    let names = ["algorithm", "credential", "date", "expires", "signedheaders", "signature", "security-token"];
    let name = name.to_ascii_lowercase();
    name.strip_prefix("x-amz-").is_some_and(|rest| names.contains(&rest))
        || ["awsaccesskeyid", "signature", "expires"].contains(&name.as_str())
}

impl Request {
    pub fn bucket(&self) -> &str {
        let path = self.path.strip_prefix('/').unwrap_or(&self.path);
        path.split('/').next().unwrap_or_default()
    }

    /// The object; none for a bucket (`/bucket`, `/bucket/`) and for the whole.
    pub fn object(&self) -> Option<ObjectKey> {
        let path = self.path.strip_prefix('/').unwrap_or(&self.path);
        let (bucket, key) = path.split_once('/')?;
        (!key.is_empty()).then(|| ObjectKey::new(bucket, key))
    }

    pub fn asks(&self, name: &str) -> bool {
        self.query.iter().any(|(found, _)| found == name)
    }

    /// Whether a PUT brings the whole object, and nothing but that.
    pub fn brings_all(&self) -> bool {
        let others = ["x-amz-copy-source", "x-amz-rename-source", "x-amz-write-offset-bytes"];
        self.method == Method::PUT
            && self.query.iter().all(|(name, value)| name == "x-id" && value == "PutObject")
            && !self.headers.keys().any(|name| others.iter().any(|other| name.as_str().starts_with(other)))
    }

    /// Whether the query has some of these names, and no other one that means something.
    pub fn asks_only(&self, names: &[&str]) -> bool {
        let mut asked = self.query.iter().map(|(name, _)| name.as_str()).filter(|name| *name != "x-id").peekable();
        asked.peek().is_some() && asked.all(|name| names.contains(&name))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    pub fn framing(&self) -> Framing {
        match self.header(PAYLOAD.as_str()) {
            Some("STREAMING-UNSIGNED-PAYLOAD-TRAILER") => Framing::Unsigned,
            Some(payload) if payload.starts_with("STREAMING-") => {
                Framing::Signed { has_trailers: payload.ends_with("-TRAILER") }
            }
            _ => Framing::Plain,
        }
    }

    /// What the request says of its body's hash, as far as it can be said again.
    pub fn payload(&self) -> String {
        let given = self.header(PAYLOAD.as_str()).unwrap_or(UNSIGNED);
        let is_hash = given.len() == 64 && given.bytes().all(|byte| byte.is_ascii_hexdigit());
        if is_hash { given.to_owned() } else { UNSIGNED.to_owned() }
    }

    /// Length of the data, as the request says it.
    pub fn length(&self) -> Option<u64> {
        let name = if self.framing() == Framing::Plain { CONTENT_LENGTH.as_str() } else { DECODED_LENGTH };
        self.header(name)?.trim().parse().ok()
    }

    /// Reads the body, up to `max_bytes`.
    pub async fn read(&mut self, max_bytes: usize) -> Result<Whole, S3Error> {
        let too_large = || {
            let text = format!("The body has more than {max_bytes} bytes, which is the most that is taken here");
            S3Error::with_message(s3s::S3ErrorCode::EntityTooLarge, text)
        };
        let said = self.length();
        if said.is_some_and(|said| said > max_bytes as u64) {
            return Err(too_large());
        }
        let source = std::mem::take(&mut self.body);
        let read = if self.framing() == Framing::Plain {
            read_plain(source, max_bytes).await
        } else {
            let chunks = Chunks::new(source, self.check.take());
            read_chunks(chunks, max_bytes).await.map_err(|error| Box::new(error) as s3s::StdError)
        };
        let whole = read.map_err(|error| {
            self.fate.note_frames(&error);
            let broken = self.fate.broken().cloned();
            broken.map_or_else(|| s3_error!(IncompleteBody, "{error}"), S3Error::from)
        })?;
        let whole = whole.ok_or_else(too_large)?;
        if said.is_some_and(|said| said != whole.bytes.len() as u64) {
            return Err(s3_error!(IncompleteBody, "The body is not as long as the request says"));
        }
        Ok(whole)
    }
}

async fn read_plain(mut source: Body, max_bytes: usize) -> Result<Option<Whole>, s3s::StdError> {
    use futures::StreamExt;
    let mut bytes = BytesMut::new();
    while let Some(piece) = source.next().await {
        let piece = piece?;
        if bytes.len() + piece.len() > max_bytes {
            return Ok(None);
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(Some(Whole { bytes: bytes.freeze(), trailers: Vec::new() }))
}

async fn read_chunks(mut chunks: Chunks, max_bytes: usize) -> Result<Option<Whole>, FrameError> {
    let mut bytes = BytesMut::new();
    loop {
        match chunks.next().await? {
            Some(Piece::Data(data)) if bytes.len() + data.len() > max_bytes => return Ok(None),
            Some(Piece::Data(data)) => bytes.extend_from_slice(&data),
            Some(Piece::End(trailers)) => return Ok(Some(Whole { bytes: bytes.freeze(), trailers })),
            None => return Ok(Some(Whole { bytes: bytes.freeze(), trailers: Vec::new() })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(uri: &str) -> Request {
        let uri: Uri = uri.parse().unwrap();
        Request {
            method: Method::PUT,
            path: decode_path(&uri).unwrap(),
            query: decode_query(&uri).unwrap(),
            headers: HeaderMap::new(),
            body: Body::empty(),
            fate: Fate::default(),
            check: None,
        }
    }

    #[test]
    fn objects_are_what_the_decoded_path_says() {
        for (uri, bucket, key) in [
            ("/", "", None),
            ("/lake", "lake", None),
            ("/lake/", "lake", None),
            ("/lake/a%2Fb//c/../d", "lake", Some("a/b//c/../d")),
            ("/lake//a", "lake", Some("/a")),
            ("/lake%2Fa/b", "lake", Some("a/b")),
            ("/lake/%255Fx%20y", "lake", Some("%5Fx y")),
            ("http://else.where/lake/a", "lake", Some("a")),
        ] {
            let request = request(uri);
            assert_eq!(request.bucket(), bucket, "{uri}");
            assert_eq!(request.object().map(|at| at.key).as_deref(), key, "{uri}");
        }
        assert!(decode_path(&"/lake/%ff".parse().unwrap()).is_err());
    }

    #[test]
    fn queries_are_decoded_once() {
        let request = request("/lake?delete&%64elete=&prefix=a+b%2Bc%25&x=1=2");
        let pairs: Vec<(&str, &str)> =
            request.query.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(pairs, [("delete", ""), ("delete", ""), ("prefix", "a b+c%"), ("x", "1=2")]);
    }

    #[tokio::test]
    async fn bodies_are_read_up_to_a_limit() {
        let with = |body: &str, length: Option<&str>| {
            let mut request = request("/lake/a");
            request.body = Body::from(body.to_owned());
            if let Some(length) = length {
                request.headers.insert(CONTENT_LENGTH, length.parse().unwrap());
            }
            request
        };
        assert_eq!(with("abc", Some("3")).read(3).await.unwrap().bytes, "abc");
        assert_eq!(with("abc", None).read(3).await.unwrap().bytes, "abc");
        for (body, length) in [("abcd", None), ("abc", Some("4")), ("abc", Some("2"))] {
            assert!(with(body, length).read(3).await.is_err(), "{body} {length:?}");
        }
        let mut chunked = with("3\r\nabc\r\n0\r\nx-amz-checksum-crc32:x\r\n\r\n", None);
        chunked.headers.insert(PAYLOAD, "STREAMING-UNSIGNED-PAYLOAD-TRAILER".parse().unwrap());
        chunked.headers.insert(DECODED_LENGTH, "3".parse().unwrap());
        let whole = chunked.read(3).await.unwrap();
        assert_eq!((whole.bytes.as_ref(), whole.trailers.len()), (&b"abc"[..], 1));
    }
}
