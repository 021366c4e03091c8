//! The commit service: a proposal at exactly one version, and what became of it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use http_body_util::{BodyExt, Limited};
use lakewarden_core::commit::keys::ProposalId;
use lakewarden_core::limits::ANSWER_MAX_BYTES;
use lakewarden_core::store::Clock;
use s3s::Body;
use serde_json::{Map, Value, json};

use crate::connections::{Address, Connections};
use crate::names::LogFile;
use crate::sign::{self, Signed, Signer, sha256_hex};
use crate::told::{clause, piece};

/// How long a verdict is waited for. Writers give up after 30 seconds, mostly.
const PATIENCE_MS: i64 = 25_000;
const POLL_MS: u64 = 200;
/// What a call takes besides the commit.
const ENVELOPE_BYTES: usize = 16 * 1024;
/// Verdicts have a few kilobytes.
const VERDICT_MAX_BYTES: usize = 1024 * 1024;

/// What became of a proposal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is in the log, at the version that was proposed.
    Committed {
        /// It was there before this call.
        is_earlier: bool,
    },
    /// Another commit has the version.
    Taken { is_earlier: bool },
    /// Refused, for the reason that the text says.
    Refused { text: String, is_earlier: bool },
    /// Nothing is known yet; the same proposal again asks again.
    Undecided(String),
    /// There is no service, or none that can work now. Nothing was proposed by what was not reached.
    Unavailable(String),
    /// The service does not serve this gateway, or not this table.
    Denied(String),
}

/// The service, and how calls to it are signed.
pub struct Commits {
    pub address: Address,
    pub connections: Connections,
    /// None where nobody asks (a laptop).
    pub signer: Option<Signer>,
    pub clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for Commits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Commits").field("address", &self.address).finish_non_exhaustive()
    }
}

struct Reply {
    status: StatusCode,
    body: Value,
}

impl Commits {
    /// Proposes the content of a log file. The same call again (same `id`) is carried out once.
    pub async fn propose(&self, file: &LogFile, id: ProposalId, content: &Bytes) -> Answer {
        let until_ms = self.clock.now_ms().saturating_add(PATIENCE_MS);
        let Ok(text) = std::str::from_utf8(content) else {
            let text = refusal("InvalidCommitException (MALFORMED_COMMIT)", "the commit is not UTF-8", None);
            return Answer::Refused { text, is_earlier: false };
        };
        let called = async {
            let body = json!({
                "location": file.root.to_string(),
                "at_version": file.version.0,
                "proposal_id": id.to_string(),
                "content": text,
            });
            let body = Bytes::from(body.to_string());
            let mut reply = if body.len() + ENVELOPE_BYTES > ANSWER_MAX_BYTES {
                self.upload(file, id, content, until_ms).await?
            } else {
                self.call(Method::POST, "/v1/commits", &[], body, until_ms).await?
            };
            while reply.status == StatusCode::ACCEPTED && self.clock.now_ms() < until_ms {
                self.clock.sleep_ms(POLL_MS).await;
                let query = [("location".to_owned(), file.root.to_string())];
                let path = format!("/v1/commits/{id}");
                let asked = self.call(Method::GET, &path, &query, Bytes::new(), until_ms).await?;
                if asked.status == StatusCode::OK && is_final(&asked.body) {
                    reply = asked;
                }
            }
            Ok::<_, Answer>(reply)
        };
        match called.await {
            Ok(reply) => read(&reply, file),
            Err(answer) => answer,
        }
    }

    /// A commit that is too large for a call is put where the service says; then it is called.
    async fn upload(&self, file: &LogFile, id: ProposalId, content: &Bytes, until_ms: i64) -> Result<Reply, Answer> {
        let location = file.root.to_string();
        let asked = json!({
            "location": location,
            "read_version": file.version.previous().0,
            "proposal_id": id.to_string(),
        });
        let offer = self.call(Method::POST, "/v1/commits/uploads", &[], asked.to_string().into(), until_ms).await?;
        let wrong = || Answer::Unavailable("the commit service gave no address for a large commit".to_owned());
        if !offer.status.is_success() {
            return Ok(offer);
        }
        let url = offer.body.pointer("/upload/url").and_then(Value::as_str).ok_or_else(wrong)?;
        let headers = offer.body.pointer("/upload/headers").and_then(Value::as_object).ok_or_else(wrong)?;
        let put = presigned(url, headers, content.clone()).ok_or_else(wrong)?;
        let sent = self.connections.send(put).await;
        let status = sent.map_err(|error| Answer::Unavailable(crate::chain(&error)))?.status();
        // Already there: the id says that it is the same content.
        if !status.is_success() && status != StatusCode::PRECONDITION_FAILED {
            return Err(Answer::Unavailable(format!("S3 answered {status} to the upload of a large commit")));
        }
        let mut body = offer.body.pointer("/then/body").cloned().ok_or_else(wrong)?;
        if let Some(members) = body.as_object_mut() {
            members.insert("at_version".to_owned(), file.version.0.into());
        }
        self.call(Method::POST, "/v1/commits", &[], body.to_string().into(), until_ms).await
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        query: &[(String, String)],
        body: Bytes,
        until_ms: i64,
    ) -> Result<Reply, Answer> {
        let unavailable = |cause: String| {
            Answer::Unavailable(format!("the commit service at {} does not answer: {cause}", self.address))
        };
        let left_ms = u64::try_from(until_ms.saturating_sub(self.clock.now_ms())).unwrap_or(0);
        let sent = tokio::time::timeout(Duration::from_millis(left_ms), self.send(method, path, query, body));
        match sent.await {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(cause)) => Err(unavailable(cause)),
            Err(_) => Err(Answer::Undecided(format!("the commit service at {} has not decided yet", self.address))),
        }
    }

    async fn send(&self, method: Method, path: &str, query: &[(String, String)], body: Bytes) -> Result<Reply, String> {
        let path = self.address.path(&sign::encode_path(path));
        let uri = self.address.uri(&path, &sign::encode_query(query)).map_err(|error| error.to_string())?;
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(signer) = &self.signer {
            let payload = sha256_hex(&body);
            let signed = Signed { method: &method, path: &path, query, host: self.address.host(), payload: &payload };
            let signing = signer.sign(&mut headers, signed, self.clock.now_ms());
            signing.await.map_err(|error| error.to_string())?;
        }
        let request = http::Request::builder().method(method).uri(uri).body(Body::from(body));
        let mut request = request.map_err(|error| error.to_string())?;
        *request.headers_mut() = headers;
        let response = self.connections.send(request).await.map_err(|error| crate::chain(&error))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), VERDICT_MAX_BYTES).collect().await;
        let body = body.map_err(|error| format!("the answer could not be read: {error}"))?.to_bytes();
        Ok(Reply { status, body: serde_json::from_slice(&body).unwrap_or_default() })
    }
}

fn presigned(url: &str, headers: &Map<String, Value>, content: Bytes) -> Option<http::Request<Body>> {
    let mut request = http::Request::builder().method(Method::PUT).uri(url).body(Body::from(content)).ok()?;
    for (name, value) in headers {
        let name = name.parse::<HeaderName>().ok()?;
        request.headers_mut().insert(name, HeaderValue::from_str(value.as_str()?).ok()?);
    }
    Some(request)
}

fn is_final(verdict: &Value) -> bool {
    verdict.get("final").and_then(Value::as_bool).unwrap_or_default()
}

fn text<'a>(body: &'a Value, name: &str) -> Option<&'a str> {
    body.get(name).and_then(Value::as_str).filter(|text| !text.is_empty())
}

/// What a person is told.
fn refusal(name: &str, message: &str, advice: Option<&str>) -> String {
    let advice = advice.map(|advice| format!(" What to do: {}.", here(&piece(clause(advice))))).unwrap_or_default();
    format!("{}: {}.{advice}", piece(name), piece(clause(message)))
}

/// The service speaks to writers that stage commits; those behind a gateway commit.
fn here(advice: &str) -> String {
    const OTHERWISE: [(&str, &str); 5] = [
        ("correct the commit and stage it under a new id", "correct what is written, and commit again"),
        ("and propose it under a new id", "and commit again"),
        ("stage it again under a new id", "commit it again"),
        ("stage it under a new id", "commit it again"),
        ("propose it under a new id", "commit it again"),
    ];
    OTHERWISE.iter().fold(advice.to_owned(), |text, (staged, put)| text.replace(staged, put))
}

/// Which file and column the verdict is about, ` (file a.parquet, column id)`.
fn place(body: &Value) -> String {
    let member = |name: &str| {
        let value = body.pointer(&format!("/place/{name}"))?.as_str().filter(|text| !text.is_empty())?;
        Some(format!("{name} {}", piece(value)))
    };
    let rows = ["first", "last"].map(|end| body.pointer(&format!("/place/rows/{end}")).and_then(Value::as_u64));
    let rows = match rows {
        [Some(first), Some(last)] if first == last => Some(format!("row {first}")),
        [Some(first), Some(last)] => Some(format!("rows {first} to {last}")),
        _ => None,
    };
    let members: Vec<String> = [member("file"), member("column"), rows].into_iter().flatten().collect();
    if members.is_empty() { String::new() } else { format!(" ({})", members.join(", ")) }
}

fn read(reply: &Reply, file: &LogFile) -> Answer {
    let body = &reply.body;
    let is_earlier = body.get("earlier").and_then(Value::as_bool).unwrap_or_default();
    let message = format!("{}{}", clause(&piece(text(body, "message").unwrap_or("no reason was given"))), place(body));
    let message = message.as_str();
    let advice = text(body, "advice");
    match (reply.status.as_u16(), text(body, "status"), text(body, "exception"), text(body, "error")) {
        (200, Some("committed"), ..) if body.get("version").and_then(Value::as_i64) == Some(file.version.0) => {
            Answer::Committed { is_earlier }
        }
        (200 | 409 | 422, Some(_), Some(exception), _) => match text(body, "reason") {
            Some("VERSION_TAKEN") => Answer::Taken { is_earlier },
            reason => {
                let name = reason.map_or_else(|| exception.to_owned(), |reason| format!("{exception} ({reason})"));
                Answer::Refused { text: refusal(&name, message, advice), is_earlier }
            }
        },
        (202, ..) => Answer::Undecided("the commit service has not decided yet".to_owned()),
        (401 | 403, _, _, error) => {
            Answer::Denied(refusal(error.unwrap_or("the commit service refuses the gateway"), message, advice))
        }
        (404, _, _, Some(error)) => Answer::Denied(refusal(error, message, advice)),
        (400 | 409 | 413 | 422, _, _, Some(error)) => {
            let name = match text(body, "reason") {
                Some(reason) => format!("{error} ({reason})"),
                None => error.to_owned(),
            };
            Answer::Refused { text: refusal(&name, message, advice), is_earlier: false }
        }
        (status, _, _, error) => {
            let name = error.map_or_else(|| format!("the commit service answered {status}"), str::to_owned);
            Answer::Unavailable(refusal(&name, message, None))
        }
    }
}

#[cfg(test)]
mod tests {
    use lakewarden_core::delta::Version;
    use lakewarden_core::location::Location;

    use super::*;

    #[test]
    fn advice_is_for_writers_that_do_not_stage() {
        // As the service's source has them.
        for advice in [
            "correct the commit and stage it under a new id",
            "read the table again, redo the operation on its new state, and propose it under a new id",
            "if it was made for the new table, stage it again under a new id; a commit that says",
            "stage it under a new id, and leave it where it is until there is a verdict",
        ] {
            let told = here(advice);
            assert!(!told.contains("stage") && !told.contains("new id") && told.contains("commit"), "{told}");
        }
    }

    #[test]
    fn answers_are_told_apart() {
        let file = LogFile { root: Location::new("lake", "t"), version: Version(7) };
        let answer =
            |status: u16, body: Value| read(&Reply { status: StatusCode::from_u16(status).unwrap(), body }, &file);
        let committed = |version: i64| json!({"status": "committed", "final": true, "version": version});
        assert_eq!(answer(200, committed(7)), Answer::Committed { is_earlier: false });
        assert!(matches!(answer(200, committed(8)), Answer::Unavailable(_)), "nobody proposed that");
        let mut earlier = committed(7);
        earlier["earlier"] = json!(true);
        assert_eq!(answer(200, earlier), Answer::Committed { is_earlier: true });
        let rejected = |reason: &str| json!({"status": "rejected", "exception": "SomeException", "reason": reason, "message": "m", "advice": "a"});
        assert_eq!(answer(409, rejected("VERSION_TAKEN")), Answer::Taken { is_earlier: false });
        let text = "SomeException (WHY): m. What to do: a.".to_owned();
        assert_eq!(answer(422, rejected("WHY")), Answer::Refused { text, is_earlier: false });
        let mut placed = rejected("WHY");
        placed["place"] = json!({"file": "a.parquet", "column": "id", "rows": {"first": 3, "last": 5}});
        placed["message"] = json!("m.");
        placed["advice"] = json!("correct the commit and stage it under a new id.");
        let text =
            "SomeException (WHY): m (file a.parquet, column id, rows 3 to 5). What to do: correct what is written, \
                    and commit again."
                .to_owned();
        assert_eq!(answer(422, placed), Answer::Refused { text, is_earlier: false });
        let mut long = rejected("WHY");
        long["message"] = json!("x".repeat(200_000));
        let Answer::Refused { text, .. } = answer(422, long) else { panic!("refused") };
        assert!(text.len() < 2000 && text.ends_with("What to do: a."), "the advice is not cut off");
        let error = json!({"error": "E", "message": "m", "advice": "a"});
        assert!(matches!(answer(422, error.clone()), Answer::Refused { .. }));
        assert!(matches!(answer(202, json!({"status": "received"})), Answer::Undecided(_)));
        for status in [401, 403, 404] {
            assert!(matches!(answer(status, error.clone()), Answer::Denied(_)), "{status}");
        }
        for status in [429, 500, 502, 503] {
            assert!(matches!(answer(status, error.clone()), Answer::Unavailable(_)), "{status}");
        }
        assert!(matches!(answer(404, Value::Null), Answer::Unavailable(_)), "no Lakewarden");
        assert!(matches!(answer(200, Value::Null), Answer::Unavailable(_)), "no Lakewarden");
    }
}
