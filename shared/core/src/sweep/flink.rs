//! Flink's sink writes a manifest for each checkpoint before it commits: until then only that file names the data, and
//! no metadata names that file. It is an ordinary manifest with a name of its own.

use crate::iceberg::FlinkCommit;

/// Digits of a Flink id.
const ID_LETTERS: usize = 32;
/// A temporary manifest of a job that no snapshot speaks of counts as pending for so long.
pub const UNKNOWN_JOB_MS: i64 = 14 * 86_400_000;

/// What the name of a temporary manifest says:
/// `<job id>-<operator>-<subtask>-<attempt>-<checkpoint>-<number>.avro`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TempManifest {
    pub job: String,
    pub operator: String,
    pub checkpoint: i64,
}

impl TempManifest {
    pub fn parse(name: &str) -> Option<Self> {
        let stem = name.strip_suffix(".avro")?;
        let mut parts = stem.rsplitn(5, '-');
        let mut number = || parts.next().filter(|part| !part.is_empty())?.parse::<u64>().ok();
        let (_, checkpoint, _, _) = (number()?, number()?, number()?, number()?);
        let rest = parts.next()?;
        let (job, operator) = rest.split_once('-')?;
        let is_id = job.len() == ID_LETTERS && job.bytes().all(|byte| byte.is_ascii_hexdigit());
        (is_id && !operator.is_empty()).then_some(Self {
            job: job.to_ascii_lowercase(),
            operator: operator.to_ascii_lowercase(),
            checkpoint: i64::try_from(checkpoint).ok()?,
        })
    }

    /// Whether its checkpoint may still be committed, by what the table's snapshots say of its job.
    pub fn is_pending(&self, commits: &[FlinkCommit], age_ms: i64) -> bool {
        let mut of_job = commits.iter().filter(|commit| commit.job == self.job).peekable();
        if of_job.peek().is_none() {
            return age_ms < UNKNOWN_JOB_MS;
        }
        let ours = |commit: &&FlinkCommit| commit.operator.as_ref().is_none_or(|operator| *operator == self.operator);
        let committed = of_job.filter(ours).map(|commit| commit.checkpoint).max();
        committed.is_none_or(|committed| self.checkpoint > committed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoints_behind_the_last_committed_one_are_over() {
        let job = "0123456789abcdef0123456789ABCDEF";
        let operator = "cafebabecafebabecafebabecafebabe";
        let name = |checkpoint: i64| format!("{job}-{operator}-00003-0-{checkpoint}-00012.avro");
        let commit = |operator: Option<&str>, checkpoint| FlinkCommit {
            job: job.to_ascii_lowercase(),
            operator: operator.map(str::to_owned),
            checkpoint,
        };
        let pending = |checkpoint, commits: &[FlinkCommit]| {
            TempManifest::parse(&name(checkpoint)).unwrap().is_pending(commits, UNKNOWN_JOB_MS * 3)
        };
        assert!(pending(8, &[commit(None, 7)]) && !pending(7, &[commit(None, 7)]));
        assert!(!pending(7, &[commit(Some(operator), 9), commit(Some(operator), 5)]));
        assert!(pending(7, &[commit(Some("another"), 9)]), "the same job has several sinks");
        assert!(!pending(7, &[]), "a job that no snapshot speaks of, long ago");
        assert!(TempManifest::parse(&name(7)).unwrap().is_pending(&[], 1));
        for other in ["80a083e8-7026-4e79-81be-64bd76c43a11-m0.avro", "snap-1-1-80a083e8.avro", "x.avro", ".avro"] {
            assert_eq!(TempManifest::parse(other), None, "{other}");
        }
        assert_eq!(TempManifest::parse(&name(7).replace(".avro", ".parquet")), None);
    }
}
