//! Unity Catalog's calls: the same function, another base.

use lakewarden_core::commit::context::Context;
use lakewarden_core::commit::unity::{self, Request};
use lakewarden_core::commit::wiring;
use lakewarden_core::ports::{App, Deadline};
use serde_json::json;

use crate::answer::Answer;
use crate::request::{BODY_MAX_BYTES, Call};

pub(crate) async fn answer(app: &App, call: &Call, segments: &[&str], deadline: Deadline) -> Answer {
    if call.is_too_large() {
        let text = format!("the body has {} bytes; at most {BODY_MAX_BYTES} are taken", call.body.len());
        return Answer::plain(413, json!({"error_code": "INVALID_ARGUMENT", "message": text, "details": []}));
    }
    let sink = wiring::partition_sink(app);
    let ctx = Context::new(app, deadline, &*sink);
    let request = Request { method: call.method.as_str(), segments, query: &call.query, body: &call.body };
    let unity::Answer { status, body } = unity::handle(ctx, request).await;
    Answer::plain(status, body)
}
