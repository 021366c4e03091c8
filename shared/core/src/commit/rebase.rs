//! What a commit has to change when its version moves (section 9 of the protocol's rules for row tracking and in-commit
//! timestamps), and the bytes with these changes.

use bytes::Bytes;
use serde_json::Value;

use crate::delta::json::set_member;

/// Changes that follow from what won since the commit was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rebase {}

/// The bytes to publish: with an in-commit timestamp `commitInfo` comes first and holds it; every other byte stays.
pub fn render(bytes: &Bytes, _rebase: &Rebase, in_commit_timestamp_ms: Option<i64>) -> Bytes {
    match in_commit_timestamp_ms {
        Some(stamp_ms) => with_timestamp(bytes, stamp_ms),
        None => bytes.clone(),
    }
}

/// Puts `commitInfo` first, with the given in-commit timestamp; every other byte stays.
fn with_timestamp(bytes: &Bytes, stamp_ms: i64) -> Bytes {
    let Ok(text) = std::str::from_utf8(bytes) else { return bytes.clone() };
    let (mut info, mut others) = (None, Vec::new());
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let edited = if info.is_none() && line.trim_start().starts_with('{') && holds_commit_info(line) {
            set_member(line, "commitInfo", "inCommitTimestamp", &Value::from(stamp_ms)).ok()
        } else {
            None
        };
        match edited {
            Some(edited) => info = Some(edited),
            None => others.push(line.to_owned()),
        }
    }
    let lines: Vec<String> = info.into_iter().chain(others).collect();
    Bytes::from(lines.join("\n") + "\n")
}

fn holds_commit_info(line: &str) -> bool {
    serde_json::from_str::<Value>(line).is_ok_and(|value| value.get("commitInfo").is_some())
}
