//! Signatures (AWS, version 4) on requests whose bodies are not looked at.
//!
//! Written out here rather than taken from `aws_sigv4::http_request`, since that takes header values as text only and
//! decides itself about the spelling of the path; the keys and the signature itself are that crate's.

use std::time::{Duration, UNIX_EPOCH};

use aws_credential_types::Credentials;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider};
use aws_sigv4::sign::v4::{calculate_signature, generate_signing_key};
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sha2::{Digest, Sha256};
use thiserror::Error;
use time::OffsetDateTime;

/// What a path may hold as it is; everything else is percent-encoded.
const PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

const DATE: HeaderName = HeaderName::from_static("x-amz-date");
const TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");
pub const PAYLOAD: HeaderName = HeaderName::from_static("x-amz-content-sha256");
pub const UNSIGNED: &str = "UNSIGNED-PAYLOAD";

#[derive(Debug, Error)]
pub enum SignError {
    #[error("there are no credentials: {0}")]
    Credentials(String),
    #[error("a header cannot be written: {0}")]
    Header(#[from] http::header::InvalidHeaderValue),
}

/// Who signs, and for where.
#[derive(Clone, Debug)]
pub struct Signer {
    pub credentials: SharedCredentialsProvider,
    pub region: String,
    /// `s3`, `execute-api`
    pub service: &'static str,
}

/// What is signed besides the headers.
#[derive(Clone, Copy, Debug)]
pub struct Signed<'a> {
    pub method: &'a Method,
    /// Encoded by [`encode_path`].
    pub path: &'a str,
    /// Decoded names and values.
    pub query: &'a [(String, String)],
    /// The host and its port, as the header says it.
    pub host: &'a HeaderValue,
    /// What `x-amz-content-sha256` says.
    pub payload: &'a str,
}

pub fn encode_path(decoded: &str) -> String {
    utf8_percent_encode(decoded, PATH).to_string()
}

/// `name=value&…`, everything but letters, digits and `-_.~` encoded.
pub fn encode_query(query: &[(String, String)]) -> String {
    let encode = |text: &String| utf8_percent_encode(text, QUERY).to_string();
    let pairs: Vec<String> = query.iter().map(|(name, value)| format!("{}={}", encode(name), encode(value))).collect();
    pairs.join("&")
}

pub fn sha256_hex(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

impl Signer {
    /// Adds the headers that make the request a signed one: `host`, date, payload, token, `authorization`.
    pub async fn sign(&self, headers: &mut HeaderMap, signed: Signed<'_>, now_ms: i64) -> Result<(), SignError> {
        let credentials = self.credentials.provide_credentials().await;
        let credentials = credentials.map_err(|error| SignError::Credentials(crate::chain(&error)))?;
        self.sign_with(headers, signed, now_ms, &credentials)
    }

    fn sign_with(
        &self,
        headers: &mut HeaderMap,
        signed: Signed<'_>,
        now_ms: i64,
        credentials: &Credentials,
    ) -> Result<(), SignError> {
        let since_epoch = Duration::from_millis(u64::try_from(now_ms).unwrap_or(0));
        let moment = OffsetDateTime::UNIX_EPOCH + since_epoch;
        let day = format!("{:04}{:02}{:02}", moment.year(), u8::from(moment.month()), moment.day());
        let date = format!("{day}T{:02}{:02}{:02}Z", moment.hour(), moment.minute(), moment.second());
        headers.insert(HOST, signed.host.clone());
        headers.insert(DATE, HeaderValue::from_str(&date)?);
        headers.insert(PAYLOAD, HeaderValue::from_str(signed.payload)?);
        if let Some(token) = credentials.session_token() {
            headers.insert(TOKEN, HeaderValue::from_str(token)?);
        }
        let (canonical, names) = canonical_request(headers, signed);
        let scope = format!("{day}/{}/{}/aws4_request", self.region, self.service);
        let text = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{}", sha256_hex(&canonical));
        let time = UNIX_EPOCH + since_epoch;
        let key = generate_signing_key(credentials.secret_access_key(), time, &self.region, self.service);
        let signature = calculate_signature(key, text.as_bytes());
        let id = credentials.access_key_id();
        let value = format!("AWS4-HMAC-SHA256 Credential={id}/{scope}, SignedHeaders={names}, Signature={signature}");
        headers.insert(AUTHORIZATION, HeaderValue::from_str(&value)?);
        Ok(())
    }
}

/// What the signature covers, and the names of the headers in it: the host, the type, and all that S3 acts upon.
fn canonical_request(headers: &HeaderMap, signed: Signed<'_>) -> (Vec<u8>, String) {
    let mut names: Vec<&HeaderName> = headers
        .keys()
        .filter(|name| *name == HOST || *name == CONTENT_TYPE || name.as_str().starts_with("x-amz-"))
        .collect();
    names.sort_unstable_by_key(|name| name.as_str());
    let joined = names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(";");
    let mut query = signed.query.to_vec();
    query.sort_by_cached_key(|pair| encode_query(std::slice::from_ref(pair)).replacen('=', "\0", 1));
    let mut text = format!("{}\n{}\n{}\n", signed.method, signed.path, encode_query(&query)).into_bytes();
    for name in names {
        text.extend_from_slice(name.as_str().as_bytes());
        text.push(b':');
        for (place, value) in headers.get_all(name).iter().enumerate() {
            if place > 0 {
                text.push(b',');
            }
            push_collapsed(&mut text, value.as_bytes());
        }
        text.push(b'\n');
    }
    text.extend_from_slice(format!("\n{joined}\n{}", signed.payload).as_bytes());
    (text, joined)
}

/// A value without blanks at its ends and with single ones inside.
fn push_collapsed(text: &mut Vec<u8>, value: &[u8]) {
    let mut was_blank = false;
    for byte in value.trim_ascii() {
        let is_blank = *byte == b' ';
        if !(is_blank && was_blank) {
            text.push(*byte);
        }
        was_blank = is_blank;
    }
}

#[cfg(test)]
mod tests {
    use aws_sigv4::http_request::{
        PercentEncodingMode, SignableBody, SignableRequest, SigningSettings, UriPathNormalizationMode, sign,
    };
    use aws_sigv4::sign::v4;

    use super::*;

    const NOW_MS: i64 = 1_767_225_600_000;

    fn credentials(token: Option<&str>) -> Credentials {
        Credentials::new("KEY", "secret", token.map(str::to_owned), None, "test")
    }

    /// The same request signed by the SDK's own code.
    fn by_the_sdk(uri: &str, headers: &[(&str, &str)], payload: &str, token: Option<&str>) -> String {
        let mut settings = SigningSettings::default();
        settings.percent_encoding_mode = PercentEncodingMode::Single;
        settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
        let identity = credentials(token).into();
        let parameters = v4::SigningParams::builder()
            .identity(&identity)
            .region("eu-west-1")
            .name("s3")
            .time(UNIX_EPOCH + Duration::from_millis(NOW_MS as u64))
            .settings(settings)
            .build()
            .unwrap()
            .into();
        let mut headers = headers.to_vec();
        headers.push(("x-amz-content-sha256", payload));
        let body = SignableBody::Precomputed(payload.to_owned());
        let request = SignableRequest::new("PUT", uri.to_owned(), headers.into_iter(), body).unwrap();
        let (instructions, _) = sign(request, &parameters).unwrap().into_parts();
        let (headers, _) = instructions.into_parts();
        headers.into_iter().find(|header| header.name() == "authorization").unwrap().value().to_owned()
    }

    #[test]
    fn signatures_are_those_of_the_sdk() {
        for (path, query, given, token) in [
            ("/lake/a", vec![], vec![], None),
            ("/lake/ü b+c=d~e//f/../g", vec![("prefix", "a/b c+ü"), ("list-type", "2"), ("delete", "")], vec![], None),
            (
                "/lake/x",
                vec![("partNumber", "10"), ("partNumber2", "1"), ("uploadId", "a~b")],
                vec![("content-type", "text/plain"), ("x-amz-meta-a", "  two   words "), ("if-none-match", "*")],
                Some("a token"),
            ),
        ] {
            let query: Vec<(String, String)> =
                query.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
            let mut headers = HeaderMap::new();
            for (name, value) in &given {
                headers.insert(*name, HeaderValue::from_static(value));
            }
            let signer = Signer {
                credentials: SharedCredentialsProvider::new(credentials(token)),
                region: "eu-west-1".into(),
                service: "s3",
            };
            let encoded = encode_path(path);
            let host = HeaderValue::from_static("127.0.0.1:8701");
            let signed = Signed { method: &Method::PUT, path: &encoded, query: &query, host: &host, payload: UNSIGNED };
            signer.sign_with(&mut headers, signed, NOW_MS, &credentials(token)).unwrap();
            let uri = format!("http://127.0.0.1:8701{encoded}?{}", encode_query(&query));
            // What the SDK would sign besides is not signed here: S3 does not act upon it.
            let theirs: Vec<(&str, &str)> =
                given.iter().filter(|(name, _)| *name != "if-none-match").copied().collect();
            let expected = by_the_sdk(uri.trim_end_matches('?'), &theirs, UNSIGNED, token);
            assert_eq!(headers[AUTHORIZATION].to_str().unwrap(), expected, "{path}");
        }
    }

    #[test]
    fn values_that_are_no_text_are_signed_byte_for_byte() {
        let mut text = Vec::new();
        push_collapsed(&mut text, b" \xc3\xbc  \xff ");
        assert_eq!(text, b"\xc3\xbc \xff");
    }
}
