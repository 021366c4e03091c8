//! Commits that are too large for a call: where to upload them, and what to call then.

use lakewarden_core::commit::content::STAGED_MAX_BYTES;
use lakewarden_core::commit::error::CommitError;
use lakewarden_core::commit::keys::ProposalId;
use lakewarden_core::delta::Version;
use lakewarden_core::delta::log::StagedKey;
use lakewarden_core::location::Location;
use lakewarden_core::ports::App;
use serde_json::{Map, Value, json};

use crate::answer::Answer;
use crate::commands::{invalid, parse_id, root_of};
use crate::request::{BODY_MAX_BYTES, Call, UploadRequest};

/// How long an address takes an upload.
const VALID_MS: u64 = 15 * 60 * 1000;
const FORMAT: &str = "one action per line, as they will stand in the log; the read set in commitInfo.readSet";

/// An address for a commit that is not sent with the call.
pub(crate) async fn offer(app: &App, call: &Call, root: Option<Location>) -> Answer {
    let Some(request) = call.upload_request() else {
        return Answer::error(
            400,
            "MalformedBody",
            "the body is no JSON object",
            "send a JSON object with read_version (and location, where the route does not name a table)",
        );
    };
    match address(app, request, root).await {
        Ok(body) => Answer::ok(body),
        Err(answer) => answer,
    }
}

/// The answer to a body above the limit: the same, where the body says enough.
pub(crate) async fn too_large(app: &App, call: &Call, root: Option<Location>) -> Answer {
    let text = format!("the body has {} bytes; at most {BODY_MAX_BYTES} are taken", call.body.len());
    let mut answer = Answer::error(
        413,
        "BodyTooLarge",
        text,
        "PUT the commit's lines to `upload.url` with `upload.headers`, then send `then`",
    );
    let request = call.upload_request().unwrap_or_default();
    let offered = match address(app, request, root).await {
        Ok(Value::Object(offered)) => offered,
        Ok(_) => Map::new(),
        Err(why) => {
            let advice = "ask for an address at POST /v1/commits/uploads with location and read_version, or put the commit \
                          at <table>/_delta_log/_staged_commits/<20 digits of the version>.<uuid>.json and name it as \
                          staged_key";
            let why = why.body.get("message").cloned().unwrap_or_default();
            Map::from_iter([("advice".to_owned(), advice.into()), ("no_upload".to_owned(), why)])
        }
    };
    if let Some(body) = answer.body.as_object_mut() {
        body.extend(offered);
    }
    answer
}

async fn address(app: &App, request: UploadRequest, root: Option<Location>) -> Result<Value, Answer> {
    let is_by_location = root.is_none();
    let root = root_of(root, request.location.as_deref())?;
    let read_version = request.read_version.filter(|version| *version >= Version::NONE.0).ok_or_else(|| {
        invalid(
            "`read_version` is missing, or less than -1",
            "give the version that the commit read; -1 creates a table",
        )
    })?;
    let id = match request.proposal_id.as_deref() {
        Some(text) => parse_id(text)?,
        None => ProposalId(app.ports.ids.uuid()),
    };
    let at = StagedKey { root: root.clone(), version: Version(read_version).next(), id: id.0 }.key();
    let put = app.ports.objects.presign_put(&at, VALID_MS).await;
    let put = put.map_err(|error| Answer::no_verdict(&CommitError::from(error), Some(&id.to_string())))?;
    let headers: Map<String, Value> = put.headers.into_iter().map(|(name, value)| (name, value.into())).collect();
    let mut then = json!({"staged_key": at.to_string()});
    if let Some(then) = then.as_object_mut().filter(|_| is_by_location) {
        then.insert("location".into(), root.to_string().into());
    }
    let valid_ms = i64::try_from(VALID_MS).unwrap_or(i64::MAX);
    Ok(json!({
        "proposal_id": id.to_string(),
        "staged_key": at.to_string(),
        "upload": {
            "method": "PUT",
            "url": put.url,
            "headers": headers,
            "format": FORMAT,
            "max_bytes": STAGED_MAX_BYTES,
            "expires_ms": app.ports.clock.now_ms().saturating_add(valid_ms),
        },
        "then": {"method": "POST", "body": then},
    }))
}
