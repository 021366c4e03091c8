//! Lines of a commit with the edits of a rebase.

use bytes::Bytes;
use serde_json::Value;

use super::{FileEdit, Member, Rebase, RowIds};
use crate::delta::json::{JsonError, only_member, set_path};

/// The property that names the first version with in-commit timestamps, and the one that names its timestamp; both are
/// needed where the first version of the table has none.
const TIMESTAMPS_SINCE_VERSION: &str = "delta.inCommitTimestampEnablementVersion";
const TIMESTAMPS_SINCE_MS: &str = "delta.inCommitTimestampEnablementTimestamp";

/// The bytes to publish. With an in-commit timestamp `commitInfo` comes first and holds it. A text that is not a commit,
/// which no admitted one is, comes back as it was.
pub fn render(bytes: &Bytes, rebase: &Rebase, in_commit_timestamp_ms: Option<i64>) -> Bytes {
    if rebase.is_empty() && in_commit_timestamp_ms.is_none() {
        return bytes.clone();
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return bytes.clone() };
    let mut lines =
        Lines { rebase, in_commit_timestamp_ms, counts: Counts::default(), first: None, rest: String::new() };
    for line in text.split_inclusive('\n') {
        if lines.take(line).is_err() {
            return bytes.clone();
        }
    }
    lines.finish()
}

/// Actions of each kind that were passed.
#[derive(Default)]
struct Counts {
    adds: usize,
    removes: usize,
    domains: usize,
}

struct Lines<'a> {
    rebase: &'a Rebase,
    in_commit_timestamp_ms: Option<i64>,
    counts: Counts,
    /// The commitInfo that moves to the front.
    first: Option<String>,
    rest: String,
}

impl Lines<'_> {
    fn take(&mut self, line: &str) -> Result<(), JsonError> {
        let body = line.strip_suffix('\n').map_or(line, |body| body.strip_suffix('\r').unwrap_or(body));
        let end = line.strip_prefix(body).unwrap_or_default();
        let kind = if body.trim().is_empty() { None } else { only_member(body) };
        let edited = match kind.as_deref() {
            Some("add") => {
                let at = next(&mut self.counts.adds);
                file(body, "add", self.rebase.adds.get(&at), self.rebase.changed_adds.get(&at))?
            }
            Some("remove") => {
                let at = next(&mut self.counts.removes);
                file(body, "remove", self.rebase.removes.get(&at), self.rebase.changed_removes.get(&at))?
            }
            Some("domainMetadata") => match self.rebase.domains.get(&next(&mut self.counts.domains)) {
                Some(text) => set(body, &["domainMetadata", "configuration"], text.as_str())?.into(),
                None => Edited::Same,
            },
            Some("metaData") => self.metadata(body)?,
            Some("commitInfo") => return self.info(body, end),
            _ => Edited::Same,
        };
        match edited {
            Edited::Same => self.rest.push_str(line),
            Edited::Gone => {}
            Edited::Other(text) => self.push(&text, end),
        }
        Ok(())
    }

    fn push(&mut self, body: &str, end: &str) {
        self.rest.push_str(body);
        self.rest.push_str(end);
    }

    fn metadata(&self, body: &str) -> Result<Edited, JsonError> {
        let (Some(version), Some(stamp_ms)) = (self.rebase.timestamps_start_at, self.in_commit_timestamp_ms) else {
            return Ok(Edited::Same);
        };
        let body = set(body, &["metaData", "configuration", TIMESTAMPS_SINCE_VERSION], version.0.to_string())?;
        Ok(set(&body, &["metaData", "configuration", TIMESTAMPS_SINCE_MS], stamp_ms.to_string())?.into())
    }

    fn info(&mut self, body: &str, end: &str) -> Result<(), JsonError> {
        let mut edited = body.to_owned();
        for (name, value) in &self.rebase.tags {
            edited = set(&edited, &["commitInfo", "tags", name], value.as_str())?;
        }
        match self.in_commit_timestamp_ms {
            Some(stamp_ms) => self.first = Some(set(&edited, &["commitInfo", "inCommitTimestamp"], stamp_ms)?),
            None => self.push(&edited, end),
        }
        Ok(())
    }

    fn finish(mut self) -> Bytes {
        for line in &self.rebase.appended {
            if !self.rest.is_empty() && !self.rest.ends_with('\n') {
                self.rest.push('\n');
            }
            self.rest.push_str(line);
            self.rest.push('\n');
        }
        match self.first {
            Some(first) => Bytes::from(format!("{first}\n{}", self.rest)),
            None => Bytes::from(self.rest),
        }
    }
}

enum Edited {
    Same,
    Gone,
    Other(String),
}

impl From<String> for Edited {
    fn from(text: String) -> Self {
        Edited::Other(text)
    }
}

/// Counts, and answers the place before.
fn next(count: &mut usize) -> usize {
    *count += 1;
    *count - 1
}

fn set(body: &str, path: &[&str], value: impl Into<Value>) -> Result<String, JsonError> {
    set_path(body, path, &value.into())
}

fn file(body: &str, action: &str, edit: Option<&FileEdit>, changes: Option<&Vec<Member>>) -> Result<Edited, JsonError> {
    let ids = match (edit, changes) {
        (Some(FileEdit::Drop), _) => return Ok(Edited::Gone),
        (None, None) => return Ok(Edited::Same),
        (Some(FileEdit::Set(ids)), _) => *ids,
        (None, Some(_)) => RowIds::default(),
    };
    let mut edited = body.to_owned();
    for (name, value) in [("baseRowId", ids.base_row_id), ("defaultRowCommitVersion", ids.default_row_commit_version)] {
        if let Some(value) = value {
            edited = set(&edited, &[action, name], value)?;
        }
    }
    for (name, value) in changes.into_iter().flatten() {
        edited = set(&edited, &[action, name], value.clone())?;
    }
    Ok(edited.into())
}
