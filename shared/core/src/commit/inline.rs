//! Proposals whose actions come with the call: the server stages them itself, so that everything after is one path.

use bytes::Bytes;
use serde_json::Value;
use serde_json::value::RawValue;
use thiserror::Error;

use super::context::Context;
use super::error::CommitError;
use super::keys::ProposalId;
use super::run::Staged;
use crate::delta::Version;
use crate::delta::json::{JsonError, compact, set_member};
use crate::delta::log::StagedKey;
use crate::location::Location;
use crate::store::{GetOptions, ObjectError, PutCondition, PutOptions};

/// A commit as a caller hands it over.
#[derive(Clone, Debug)]
pub struct InlineCommit {
    pub root: Location,
    /// [`Version::NONE`] to create a table.
    pub read_version: Version,
    pub id: ProposalId,
    /// One action each, spelled as they will stand in the log.
    pub actions: Vec<Box<RawValue>>,
    /// `commitInfo.readSet`, where the actions do not hold it.
    pub read_set: Option<Value>,
}

#[derive(Clone, Debug, PartialEq, Error)]
pub enum InlineError {
    #[error("read_version must be -1 (to create a table) or more, not {0}")]
    ReadVersion(i64),
    #[error("`actions`: {0}")]
    Action(#[from] JsonError),
    #[error("the read set is given twice: in `read_set` and in commitInfo.readSet")]
    ReadSetTwice,
    /// Something else was staged under this id.
    #[error("the proposal id {0} was used for other content before; give every proposal an id of its own")]
    Reused(ProposalId),
    #[error(transparent)]
    Failed(#[from] CommitError),
}

/// The lines of the commit file.
pub fn plan_lines(commit: &InlineCommit) -> Result<Bytes, InlineError> {
    let mut lines: Vec<String> = commit.actions.iter().map(|action| compact(action.get())).collect();
    if let Some(read_set) = &commit.read_set {
        let place = lines.iter_mut().find(|line| line.starts_with("{\"commitInfo\":{"));
        match place {
            Some(line) => {
                let value: Value = serde_json::from_str(line).map_err(|error| JsonError::Syntax(error.to_string()))?;
                if value.pointer("/commitInfo/readSet").is_some() {
                    return Err(InlineError::ReadSetTwice);
                }
                *line = set_member(line, "commitInfo", "readSet", read_set)?;
            }
            None => lines.insert(0, serde_json::json!({"commitInfo": {"readSet": read_set}}).to_string()),
        }
    }
    Ok(Bytes::from(lines.join("\n") + "\n"))
}

/// Stages the commit. The same call again finds what it staged before.
pub async fn stage(ctx: Context<'_>, commit: &InlineCommit) -> Result<Staged, InlineError> {
    if commit.read_version < Version::NONE {
        return Err(InlineError::ReadVersion(commit.read_version.0));
    }
    let bytes = plan_lines(commit)?;
    let key = StagedKey { root: commit.root.clone(), version: commit.read_version.next(), id: commit.id.0 };
    stage_bytes(ctx, key, bytes).await
}

/// Stages bytes as they are. The same call again finds what it staged before.
pub async fn stage_bytes(ctx: Context<'_>, key: StagedKey, bytes: Bytes) -> Result<Staged, InlineError> {
    let at = key.key();
    let options = PutOptions { condition: PutCondition::Absent, ..PutOptions::default() };
    let etag = match ctx.ports().objects.put(&at, bytes.clone(), &options).await {
        Ok(etag) => etag,
        // The answer to an earlier try may have been lost: what is there decides.
        Err(put_error) => match ctx.ports().objects.get(&at, &GetOptions::default()).await {
            Ok(object) if object.bytes == bytes => object.meta.etag,
            Ok(_) => return Err(InlineError::Reused(ProposalId(key.id))),
            Err(ObjectError::NotFound(_)) => return Err(CommitError::from(put_error).into()),
            Err(error) => return Err(CommitError::from(error).into()),
        },
    };
    Ok(Staged { key, etag: Some(etag) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit(actions: &str, read_set: Option<Value>) -> InlineCommit {
        InlineCommit {
            root: Location::new("b", "t"),
            read_version: Version(3),
            id: ProposalId(uuid::Uuid::from_u128(1)),
            actions: serde_json::from_str(actions).unwrap(),
            read_set,
        }
    }

    #[test]
    fn actions_keep_their_spelling() {
        let lines =
            plan_lines(&commit("[ {\n \"add\": {\"n\": 1.50,\n\"big\": 123456789012345678901}} ]", None)).unwrap();
        assert_eq!(lines, "{\"add\":{\"n\":1.50,\"big\":123456789012345678901}}\n");
    }

    #[test]
    fn the_read_set_goes_into_commit_info() {
        let set = serde_json::json!({"v": 1});
        let lines = plan_lines(&commit(r#"[{"commitInfo": {"a": 1}}]"#, Some(set.clone()))).unwrap();
        assert_eq!(lines, "{\"commitInfo\":{\"a\":1,\"readSet\":{\"v\":1}}}\n");
        let lines = plan_lines(&commit("[]", Some(set.clone()))).unwrap();
        assert_eq!(lines, "{\"commitInfo\":{\"readSet\":{\"v\":1}}}\n");
        let twice = plan_lines(&commit(r#"[{"commitInfo":{"readSet":{}}}]"#, Some(set)));
        assert_eq!(twice, Err(InlineError::ReadSetTwice));
    }
}
