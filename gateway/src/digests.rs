//! What a request says about the content of its body, held against what came. Only for bodies that end here: those that
//! are passed on are checked by S3.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use s3s::checksum::ChecksumHasher;
use s3s::crypto::{Checksum as _, Md5};
use s3s::{S3Error, s3_error};

use crate::request::{Framing, Request, Whole};
use crate::sign::{PAYLOAD, sha256_hex};

const PREFIX: &str = "x-amz-checksum-";
/// Say something about checksums, and are none.
const ABOUT: [&str; 3] = ["algorithm", "mode", "type"];

/// Refuses a body that is not what its headers and trailers say.
pub fn check(request: &Request, whole: &Whole) -> Result<(), S3Error> {
    if request.framing() == Framing::Plain
        && let Some(given) = request.header(PAYLOAD.as_str()).filter(|given| given.len() == 64)
        && !given.eq_ignore_ascii_case(&sha256_hex(&whole.bytes))
    {
        return Err(s3_error!(
            BadDigest,
            "The provided 'x-amz-content-sha256' header does not match what was computed."
        ));
    }
    check_md5(request, &whole.bytes)?;
    if let Some(announced) = request.header("x-amz-trailer") {
        for name in announced.split(',').map(|name| name.trim().to_ascii_lowercase()).filter(|name| !name.is_empty()) {
            if !whole.trailers.iter().any(|(found, _)| *found == name) {
                return Err(s3_error!(InvalidRequest, "The announced trailer {name} is missing"));
            }
        }
    }
    let in_headers = request.headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap_or_default()));
    let in_trailers = whole.trailers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    for (name, value) in in_headers.chain(in_trailers) {
        let Some(algorithm) = name.strip_prefix(PREFIX).filter(|algorithm| !ABOUT.contains(algorithm)) else {
            continue;
        };
        if computed(algorithm, &whole.bytes)? != value {
            let name = algorithm.to_ascii_uppercase();
            return Err(s3_error!(BadDigest, "The {name} you specified did not match the calculated checksum."));
        }
    }
    Ok(())
}

fn check_md5(request: &Request, bytes: &[u8]) -> Result<(), S3Error> {
    let Some(given) = request.headers.get("content-md5") else { return Ok(()) };
    let given = BASE64.decode(given.as_bytes()).map_err(|_| s3_error!(InvalidDigest))?;
    let md5 = Md5::checksum(bytes);
    if given.len() != md5.len() {
        return Err(s3_error!(InvalidDigest));
    }
    if given != md5 {
        return Err(s3_error!(BadDigest, "The Content-MD5 you specified did not match what we received."));
    }
    Ok(())
}

fn computed(algorithm: &str, bytes: &[u8]) -> Result<String, S3Error> {
    let mut hasher = ChecksumHasher::default();
    match algorithm {
        "crc32" => hasher.crc32 = Some(Default::default()),
        "crc32c" => hasher.crc32c = Some(Default::default()),
        "crc64nvme" => hasher.crc64nvme = Some(Default::default()),
        "sha1" => hasher.sha1 = Some(Default::default()),
        "sha256" => hasher.sha256 = Some(Default::default()),
        // What is not checked must not look checked.
        other => return Err(s3_error!(InvalidRequest, "The checksum algorithm {other} is not supported here")),
    }
    hasher.update(bytes);
    let sums = hasher.finalize();
    let found =
        [sums.checksum_crc32, sums.checksum_crc32c, sums.checksum_crc64nvme, sums.checksum_sha1, sums.checksum_sha256];
    Ok(found.into_iter().flatten().next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::{HeaderMap, HeaderName, HeaderValue, Method};
    use s3s::{Body, S3ErrorCode};

    use super::*;

    fn checked(headers: &[(&str, &str)], trailers: &[(&str, &str)]) -> Result<(), S3ErrorCode> {
        let mut request = Request {
            method: Method::PUT,
            path: "/b/k".into(),
            query: Vec::new(),
            headers: HeaderMap::new(),
            body: Body::empty(),
            fate: crate::patience::Fate::default(),
            check: None,
        };
        for (name, value) in headers {
            request.headers.insert(name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap());
        }
        let trailers = trailers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let whole = Whole { bytes: Bytes::from_static(b"123456789"), trailers };
        check(&request, &whole).map_err(|error| error.code().clone())
    }

    #[test]
    fn every_digest_is_compared() {
        let sha256 = sha256_hex(b"123456789");
        for (name, value) in [
            ("x-amz-content-sha256", sha256.as_str()),
            ("x-amz-content-sha256", "UNSIGNED-PAYLOAD"),
            ("content-md5", "JfnnlDI7RTiF9RgfG2JNCw=="),
            ("x-amz-checksum-crc32", "y/Q5Jg=="),
            ("x-amz-checksum-crc32c", "4waSgw=="),
            ("x-amz-checksum-crc64nvme", "rosUhgp5mIg="),
            ("x-amz-checksum-algorithm", "CRC32"),
        ] {
            assert_eq!(checked(&[(name, value)], &[]), Ok(()), "{name}");
        }
        let wrong = "0".repeat(64);
        for (name, value, code) in [
            ("x-amz-content-sha256", wrong.as_str(), S3ErrorCode::BadDigest),
            ("content-md5", "AAAAAAAAAAAAAAAAAAAAAA==", S3ErrorCode::BadDigest),
            ("content-md5", "AAAA", S3ErrorCode::InvalidDigest),
            ("x-amz-checksum-crc32", "AAAAAA==", S3ErrorCode::BadDigest),
            ("x-amz-checksum-sha1", "AAAAAA==", S3ErrorCode::BadDigest),
            ("x-amz-checksum-md99", "AAAAAA==", S3ErrorCode::InvalidRequest),
            ("x-amz-trailer", "x-amz-checksum-crc32", S3ErrorCode::InvalidRequest),
        ] {
            assert_eq!(checked(&[(name, value)], &[]), Err(code), "{name}");
        }
        let trailer = [("x-amz-trailer", "x-amz-checksum-crc32")];
        assert_eq!(checked(&trailer, &[("x-amz-checksum-crc32", "y/Q5Jg==")]), Ok(()));
        assert_eq!(checked(&trailer, &[("x-amz-checksum-crc32", "AAAAAA==")]), Err(S3ErrorCode::BadDigest));
    }
}
