use aws_lambda_events::apigw::ApiGatewayV2httpRequest;
use aws_lambda_events::http::Method;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lakewarden_core::limits::ANSWER_MAX_BYTES;
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::answer::Answer;

/// Largest body, decoded.
pub(crate) const BODY_MAX_BYTES: usize = ANSWER_MAX_BYTES;

/// A request, as the commands need it.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) method: Method,
    /// As it came, without the stage.
    pub(crate) path: String,
    /// Decoded segments of the path.
    pub(crate) segments: Vec<String>,
    pub(crate) query: Vec<(String, String)>,
    /// May be longer than is taken: see [`Call::check_size`].
    pub(crate) body: Vec<u8>,
    /// The caller asks to be answered before there is a verdict (`Prefer: respond-async`).
    pub(crate) is_async: bool,
}

/// Body of a proposal.
#[derive(Debug, Deserialize)]
pub(crate) struct CommitRequest {
    pub(crate) location: Option<String>,
    pub(crate) proposal_id: Option<String>,
    pub(crate) read_version: Option<i64>,
    pub(crate) actions: Option<Vec<Box<RawValue>>>,
    /// The commit file as it is to be published, byte for byte; with `at_version`.
    pub(crate) content: Option<String>,
    /// Becomes exactly this version, unchanged, or is refused.
    pub(crate) at_version: Option<i64>,
    pub(crate) staged_key: Option<String>,
    pub(crate) read_set: Option<Value>,
}

/// What an address to upload a commit to depends on.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct UploadRequest {
    pub(crate) location: Option<String>,
    pub(crate) proposal_id: Option<String>,
    pub(crate) read_version: Option<i64>,
}

impl Call {
    pub(crate) fn read(request: &ApiGatewayV2httpRequest) -> Result<Call, Answer> {
        let path = request.raw_path.clone().unwrap_or_else(|| "/".to_owned());
        // API Gateway puts a named stage in front of the path.
        let stage = request.request_context.stage.as_deref().filter(|stage| !matches!(*stage, "" | "$default"));
        let inner = stage.and_then(|stage| path.strip_prefix('/')?.strip_prefix(stage));
        let path = inner.filter(|rest| rest.starts_with('/')).map_or(path.clone(), str::to_owned);
        let mut segments = Vec::new();
        for segment in path.split('/').filter(|segment| !segment.is_empty()) {
            segments.push(decode(segment)?);
        }
        let mut query = Vec::new();
        for pair in request.raw_query_string.as_deref().unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            query.push((decode(&name.replace('+', " "))?, decode(&value.replace('+', " "))?));
        }
        let method = request.request_context.http.method.clone();
        let header = |name: &str| request.headers.get(name).and_then(|value| value.to_str().ok());
        let is_async = header("prefer")
            .is_some_and(|prefer| prefer.split([',', ';']).any(|one| one.trim().eq_ignore_ascii_case("respond-async")));
        Ok(Call { method, path, segments, query, body: body(request)?, is_async })
    }

    pub(crate) fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn is_too_large(&self) -> bool {
        self.body.len() > BODY_MAX_BYTES
    }

    /// What a body says that is too large to be taken, but for its actions.
    pub(crate) fn upload_request(&self) -> Option<UploadRequest> {
        serde_json::from_slice(&self.body).ok()
    }

    pub(crate) fn commit_request(&self) -> Result<CommitRequest, Answer> {
        let malformed = |error: String| {
            Answer::error(
                400,
                "MalformedBody",
                format!("the body is not a commit request: {error}"),
                "send a JSON object with location, read_version and actions (or staged_key)",
            )
        };
        // A list of the members' values would pass as well.
        match self.body.iter().find(|byte| !byte.is_ascii_whitespace()) {
            Some(b'{') => serde_json::from_slice(&self.body).map_err(|error| malformed(error.to_string())),
            _ => Err(malformed("it is no JSON object".to_owned())),
        }
    }
}

fn decode(text: &str) -> Result<String, Answer> {
    percent_decode_str(text).decode_utf8().map(String::from).map_err(|_| {
        Answer::error(
            400,
            "MalformedUrl",
            format!("`{text}` does not decode to UTF-8"),
            "percent-encode the URL as UTF-8",
        )
    })
}

fn body(request: &ApiGatewayV2httpRequest) -> Result<Vec<u8>, Answer> {
    let text = request.body.as_deref().unwrap_or_default();
    let bytes = if request.is_base64_encoded {
        STANDARD.decode(text).map_err(|error| {
            Answer::error(400, "MalformedBody", format!("the body is not base64: {error}"), "send it as plain text")
        })?
    } else {
        text.as_bytes().to_vec()
    };
    Ok(bytes)
}
