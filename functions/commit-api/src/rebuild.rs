use aws_lambda_events::http::Method;
use lakewarden_core::commit::error::CommitError;
use lakewarden_core::commit::follow::{self, Others, Progress, RequestError};
use lakewarden_core::ports::{App, Deadline};
use serde_json::Value;

use crate::answer::Answer;
use crate::request::Call;

/// How far a table of the catalog follows its log; with POST, has its partitions made from the whole log by a worker.
pub(crate) async fn answer(app: &App, call: &Call, (database, table): (&str, &str), deadline: Deadline) -> Answer {
    let asked = match call.method {
        Method::GET => follow::progress_of(app, database, table).await,
        Method::POST => match others(call) {
            Ok(others) => follow::request(app, deadline, database, table, others).await,
            Err(answer) => return answer,
        },
        _ => {
            let text = format!("{} {} does not exist", call.method, call.path);
            return Answer::error(404, "UnknownRoute", text, "GET tells how far it is, POST begins");
        }
    };
    let status = if call.method == Method::POST { 202 } else { 200 };
    match asked {
        Ok(progress) => Answer::plain(status, Progress::to_json(&progress)),
        Err(RequestError::NoTable(name)) => Answer::error(
            404,
            "TableNotFound",
            format!("the catalog has no table {name}"),
            "create it in the catalog first",
        ),
        Err(RequestError::Refused(text)) => {
            Answer::error(422, "InvalidRequest", text, "correct the table in the catalog")
        }
        Err(RequestError::Failed(error)) => failed(&error),
    }
}

fn failed(error: &CommitError) -> Answer {
    Answer::no_verdict(error, None)
}

/// `{"exact": true}`: partitions that the log does not have go, whoever made them.
fn others(call: &Call) -> Result<Others, Answer> {
    let malformed =
        || Answer::error(400, "MalformedBody", "the body is not a JSON object", "send nothing, or {\"exact\": true}");
    if call.body.iter().all(u8::is_ascii_whitespace) {
        return Ok(Others::Stay);
    }
    let body: Value = serde_json::from_slice(&call.body).map_err(|_| malformed())?;
    match body.as_object().ok_or_else(malformed)?.get("exact") {
        None | Some(Value::Null | Value::Bool(false)) => Ok(Others::Stay),
        Some(Value::Bool(true)) => Ok(Others::Go),
        Some(_) => Err(Answer::error(422, "InvalidRequest", "`exact` is true or false", "correct the request")),
    }
}
