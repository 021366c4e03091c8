//! What people are told: S3's error documents, which must be XML whatever a key or a reason holds, and short.

use http::StatusCode;
use http::header::CONTENT_TYPE;
use http_body_util::{BodyExt, Limited};
use s3s::{Body, HttpError, HttpResponse, S3Error, S3ErrorCode};

/// Longest message.
pub const MESSAGE_MAX_BYTES: usize = 2 * 1024;
/// Longest piece of one, so that what comes after it is told as well.
const PIECE_MAX_BYTES: usize = 1_200;
/// Answers of the wire layer are a few hundred bytes.
const DOCUMENT_MAX_BYTES: usize = 64 * 1024;
const MORE: &str = "…";

/// A message as it goes out: what XML cannot hold is spelled out (`\u{1}`), and what is too long is cut.
pub fn told(text: &str) -> String {
    clipped(text, MESSAGE_MAX_BYTES)
}

/// A piece of a message, likewise.
pub fn piece(text: &str) -> String {
    clipped(text, PIECE_MAX_BYTES)
}

/// Without the full stop at its end, for texts that go on.
pub fn clause(text: &str) -> &str {
    text.trim_end_matches(['.', ' ', '\n'])
}

fn clipped(text: &str, most_bytes: usize) -> String {
    let spelled = spelled(text);
    if spelled.len() <= most_bytes {
        return spelled;
    }
    let mut end = most_bytes.saturating_sub(MORE.len());
    while !spelled.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{MORE}", spelled.get(..end).unwrap_or_default())
}

fn spelled(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_plain(c) {
            out.push(c);
        } else {
            out.extend(c.escape_unicode());
        }
    }
    out
}

/// Whether XML 1.0 can hold a character, and its reader gets it as it is.
fn is_plain(c: char) -> bool {
    matches!(c, '\t' | '\n' | ' '..='\u{7e}' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
}

/// The answer that says an error.
pub fn answer(mut error: S3Error) -> Result<HttpResponse, S3Error> {
    let text = error.message().map(told);
    if let Some(text) = text {
        error.set_message(text);
    }
    error.to_http_response()
}

/// An error that the wire layer found before the gateway saw the request. It may have no message, and repeat what it was
/// sent.
pub async fn complete(response: HttpResponse) -> Result<HttpResponse, HttpError> {
    let (parts, body) = response.into_parts();
    let failed = |error: S3Error| HttpError::new(Box::new(error));
    let body = Limited::new(body, DOCUMENT_MAX_BYTES).collect().await;
    let Ok(body) = body.map(http_body_util::Collected::to_bytes) else {
        return answer(S3Error::new(S3ErrorCode::InternalError)).map_err(failed);
    };
    let text = String::from_utf8_lossy(&body);
    let member = |name: &str| {
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        rest.split_once(&format!("</{name}>")).map(|(value, _)| value)
    };
    let is_error = parts.status.is_client_error() || parts.status.is_server_error();
    let Some(code) = member("Code").filter(|_| is_error) else {
        return Ok(HttpResponse::from_parts(parts, Body::from(body)));
    };
    let said = member("Message").filter(|text| !text.is_empty()).map(|text| {
        [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&amp;", "&")]
            .iter()
            .fold(text.to_owned(), |text, (escaped, plain)| text.replace(escaped, plain))
    });
    let message = said.unwrap_or_else(|| default_message(code, parts.status));
    let code = S3ErrorCode::from_bytes(code.as_bytes()).unwrap_or(S3ErrorCode::InvalidRequest);
    let mut error = S3Error::with_message(code, message);
    error.set_status_code(parts.status);
    let mut response = answer(error).map_err(failed)?;
    for (name, value) in &parts.headers {
        if name != CONTENT_TYPE && name != http::header::CONTENT_LENGTH {
            response.headers_mut().insert(name.clone(), value.clone());
        }
    }
    Ok(response)
}

fn default_message(code: &str, status: StatusCode) -> String {
    match code {
        "SignatureDoesNotMatch" => {
            "The signature does not match the gateway's key pair: sign with the secret key that the gateway \
                                    printed, or was given, and do not change the request after signing it"
                .to_owned()
        }
        _ => format!("The gateway does not take this request as it is ({code}, {status})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_xml_and_short() {
        for (text, expected) in [
            ("plain <&> \"ü\" 😀\n\ttext", "plain <&> \"ü\" 😀\n\ttext"),
            ("a\u{1}b\u{0}c\u{1b}d", "a\\u{1}b\\u{0}c\\u{1b}d"),
            ("cr\r nel\u{85} del\u{7f}", "cr\\u{d} nel\\u{85} del\\u{7f}"),
            ("\u{fffe}\u{ffff}\u{fffd}", "\\u{fffe}\\u{ffff}\u{fffd}"),
        ] {
            assert_eq!(told(text), expected);
        }
        for text in ["ü".repeat(5000), "\u{1}".repeat(5000), "x".repeat(2049), "😀".repeat(2000)] {
            let told = told(&text);
            assert!(told.len() <= MESSAGE_MAX_BYTES && told.len() > MESSAGE_MAX_BYTES - 8 && told.ends_with('…'));
        }
        assert_eq!(told(&"x".repeat(2048)).len(), 2048);
        assert_eq!((clause("a.. "), clause("a"), clause("")), ("a", "a", ""));
    }

    async fn document(response: HttpResponse) -> String {
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    #[tokio::test]
    async fn answers_hold_no_character_that_xml_does_not() {
        let error = S3Error::with_message(S3ErrorCode::AccessDenied, "a\u{1}<b>\r");
        let text = document(answer(error).unwrap()).await;
        assert!(text.contains("<Message>a\\u{1}&lt;b&gt;\\u{d}</Message>"), "{text}");
    }

    #[tokio::test]
    async fn errors_without_a_message_get_one() {
        let bare = S3Error::new(S3ErrorCode::SignatureDoesNotMatch).to_http_response().unwrap();
        let told = complete(bare).await.unwrap();
        assert_eq!(told.status(), 403);
        let text = document(told).await;
        assert!(text.contains("<Code>SignatureDoesNotMatch</Code>") && text.contains("secret key"), "{text}");
        let odd = S3Error::with_message(S3ErrorCode::InvalidRequest, "x & \u{1} <y>").to_http_response().unwrap();
        let text = document(complete(odd).await.unwrap()).await;
        assert!(text.contains("<Message>x &amp; \\u{1} &lt;y&gt;</Message>"), "{text}");
        let plain = HttpResponse::new(Body::from("anything".to_owned()));
        assert_eq!(document(complete(plain).await.unwrap()).await, "anything");
    }
}
