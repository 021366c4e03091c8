//! API Gateway's envelope: HTTP request -> event of payload format 2.0, and the function's answer -> HTTP response.
//!
//! What matters is reproduced exactly: bodies whose content type is not text are base64-encoded (so every Glue call,
//! `application/x-amz-json-1.1`, is), header names are lower case with repeated values joined by a comma, query
//! parameters likewise, and the path arrives as it was sent.

use std::collections::BTreeMap;
use std::net::IpAddr;

use aws_lambda_events::apigw::{ApiGatewayV2httpRequest, ApiGatewayV2httpResponse};
use aws_lambda_events::encodings::Body;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, request::Parts};
use serde_json::{Map, Value, json};
use thiserror::Error;

/// An answer of a function that API Gateway could not pass on either.
#[derive(Debug, Error)]
pub enum EnvelopeError {
    #[error("the event could not be built: {0}")]
    Event(#[from] serde_json::Error),
    #[error("the function answered with status {0}, which is no HTTP status")]
    Status(i64),
    #[error("the function marked its body as base64 and it is not: {0}")]
    Base64(#[from] base64::DecodeError),
}

/// Identity of the deployment that the envelope names.
#[derive(Clone, Debug)]
pub struct EnvelopeContext {
    pub account_id: String,
    pub domain_name: String,
    pub request_id: String,
    pub now_ms: i64,
    pub source_ip: IpAddr,
}

/// API Gateway passes these content types on as text; everything else is base64.
fn is_text(content_type: Option<&HeaderValue>) -> bool {
    let Some(content_type) = content_type.and_then(|value| value.to_str().ok()) else { return false };
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence.starts_with("text/")
        || ["application/json", "application/javascript", "application/xml"].contains(&essence.as_str())
}

/// Builds the event JSON of payload format 2.0.
pub fn event(parts: &Parts, body: &Bytes, context: &EnvelopeContext) -> Value {
    let mut headers: BTreeMap<String, String> = BTreeMap::new();
    for (name, value) in &parts.headers {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        headers
            .entry(name.as_str().to_owned())
            .and_modify(|joined| {
                joined.push(',');
                joined.push_str(&value);
            })
            .or_insert(value);
    }
    let cookies: Vec<String> = headers
        .remove("cookie")
        .map(|cookie| cookie.split(';').map(|part| part.trim().to_owned()).collect())
        .unwrap_or_default();
    let query = parts.uri.query().unwrap_or_default();
    let mut event = json!({
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": parts.uri.path(),
        "rawQueryString": query,
        "headers": headers,
        "requestContext": {
            "accountId": context.account_id,
            "apiId": "local",
            "domainName": context.domain_name,
            "domainPrefix": "local",
            "http": {
                "method": parts.method.as_str(),
                "path": parts.uri.path(),
                "protocol": "HTTP/1.1",
                "sourceIp": context.source_ip.to_string(),
                "userAgent": headers.get("user-agent").cloned().unwrap_or_default(),
            },
            "requestId": context.request_id,
            "routeKey": "$default",
            "stage": "$default",
            "timeEpoch": context.now_ms,
        },
        "isBase64Encoded": false,
    });
    let members = event.as_object_mut();
    if let Some(members) = members {
        if !cookies.is_empty() {
            members.insert("cookies".to_owned(), json!(cookies));
        }
        if !query.is_empty() {
            members.insert("queryStringParameters".to_owned(), Value::Object(query_parameters(query)));
        }
        if !body.is_empty() {
            let text = std::str::from_utf8(body).ok().filter(|_| is_text(parts.headers.get("content-type")));
            let encoded = text.map_or_else(|| STANDARD.encode(body), str::to_owned);
            members.insert("isBase64Encoded".to_owned(), Value::Bool(text.is_none()));
            members.insert("body".to_owned(), Value::String(encoded));
        }
    }
    event
}

fn query_parameters(query: &str) -> Map<String, Value> {
    let mut parameters = Map::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let decode = |text: &str| {
            let blanks = text.replace('+', " ");
            percent_encoding::percent_decode_str(&blanks).decode_utf8_lossy().into_owned()
        };
        let value = decode(value);
        match parameters.get_mut(&decode(name)) {
            Some(Value::String(joined)) => {
                joined.push(',');
                joined.push_str(&value);
            }
            _ => {
                parameters.insert(decode(name), Value::String(value));
            }
        }
    }
    parameters
}

/// The typed event that the handlers take.
pub fn typed(event: Value) -> Result<ApiGatewayV2httpRequest, EnvelopeError> {
    Ok(serde_json::from_value(event)?)
}

/// Turns the function's answer into an HTTP response.
pub fn response(answer: ApiGatewayV2httpResponse) -> Result<Response<Bytes>, EnvelopeError> {
    let status = u16::try_from(answer.status_code)
        .ok()
        .and_then(|status| StatusCode::from_u16(status).ok())
        .ok_or(EnvelopeError::Status(answer.status_code))?;
    let body = match answer.body {
        None | Some(Body::Empty) => Bytes::new(),
        Some(Body::Text(text)) if answer.is_base64_encoded => STANDARD.decode(text)?.into(),
        Some(Body::Text(text)) => text.into(),
        Some(Body::Binary(bytes)) => bytes.into(),
        // `Body` may gain forms; none of the handlers uses others.
        Some(_) => Bytes::new(),
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    copy_headers(response.headers_mut(), &answer.headers);
    copy_headers(response.headers_mut(), &answer.multi_value_headers);
    Ok(response)
}

fn copy_headers(to: &mut HeaderMap, from: &HeaderMap) {
    for (name, value) in from {
        to.append(name.clone(), value.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(method: &str, uri: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = http::Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn context() -> EnvelopeContext {
        EnvelopeContext {
            account_id: "000000000000".into(),
            domain_name: "127.0.0.1:8700".into(),
            request_id: "r-1".into(),
            now_ms: 1_700_000_000_000,
            source_ip: IpAddr::from([127, 0, 0, 1]),
        }
    }

    #[test]
    fn a_glue_call_arrives_in_base64() {
        let parts =
            parts("POST", "/", &[("Content-Type", "application/x-amz-json-1.1"), ("X-Amz-Target", "AWSGlue.X")]);
        let event = event(&parts, &Bytes::from_static(b"{}"), &context());
        assert_eq!(event["isBase64Encoded"], true);
        assert_eq!(event["body"], "e30=");
        assert_eq!(event["headers"]["x-amz-target"], "AWSGlue.X");
        let typed = typed(event).unwrap();
        assert_eq!(typed.request_context.http.method, http::Method::POST);
        assert!(typed.is_base64_encoded);
    }

    #[test]
    fn json_and_text_arrive_as_text_and_an_empty_body_not_at_all() {
        let json_parts = parts("POST", "/v1/commits", &[("content-type", "application/json; charset=utf-8")]);
        let event_ = event(&json_parts, &Bytes::from_static(b"{\"a\":1}"), &context());
        assert_eq!(event_["isBase64Encoded"], false);
        assert_eq!(event_["body"], "{\"a\":1}");
        let get = event(&parts("GET", "/v1/commits?a=1&a=2&b=x+y%3D", &[]), &Bytes::new(), &context());
        assert!(get.get("body").is_none());
        assert_eq!(get["queryStringParameters"], serde_json::json!({"a": "1,2", "b": "x y="}));
        assert_eq!(get["rawQueryString"], "a=1&a=2&b=x+y%3D");
    }

    #[test]
    fn text_that_is_not_utf8_is_base64_too() {
        let parts = parts("POST", "/v1/x", &[("content-type", "application/json")]);
        let event = event(&parts, &Bytes::from_static(&[0xff, 0xfe]), &context());
        assert_eq!(event["isBase64Encoded"], true);
    }

    #[test]
    fn answers_become_responses() {
        let mut answer = ApiGatewayV2httpResponse::default();
        answer.status_code = 404;
        answer.headers.insert("x-amzn-errortype", HeaderValue::from_static("EntityNotFoundException"));
        answer.body = Some(Body::Text("bm8=".into()));
        answer.is_base64_encoded = true;
        let response_ = response(answer).unwrap();
        assert_eq!(response_.status(), 404);
        assert_eq!(response_.body(), &Bytes::from_static(b"no"));
        let mut bad = ApiGatewayV2httpResponse::default();
        bad.status_code = 7;
        assert!(matches!(response(bad), Err(EnvelopeError::Status(7))));
    }
}
