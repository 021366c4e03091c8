//! Why a commit of a catalog-managed table is refused, beyond what the judge finds.

use super::state::Ratified;
use crate::commit::conflict;
use crate::commit::rebase::Rebase;
use crate::commit::verdict::{Exception, Refusal};
use crate::delta::Version;

const LOG_ADVICE: &str = "somebody changed the table's log by other means: restore it";

pub(super) fn log_behind(published: Version) -> Refusal {
    let text = format!("version {published} was published, and is no longer in the log");
    Refusal::new(Exception::DamagedLogException, "LOG_BEHIND_HEAD", text, LOG_ADVICE)
}

pub(super) fn log_rewritten(published: Version) -> Refusal {
    let text = format!("version {published} holds other content than was published");
    Refusal::new(Exception::DamagedLogException, "LOG_REWRITTEN", text, LOG_ADVICE)
}

pub(super) fn bytes_missing(ratified: &Ratified) -> Refusal {
    let text = format!(
        "version {} was ratified as {}, which is gone, or holds something else by now",
        ratified.version,
        ratified.file_name()
    );
    Refusal::new(Exception::DamagedLogException, "RATIFIED_BYTES_MISSING", text, "restore the staged file as it was")
}

/// The version is taken, or not next.
pub(super) fn not_next(asked: Version, latest: Version) -> Refusal {
    let (reason, text) = if asked <= latest {
        ("VERSION_TAKEN", format!("version {asked} is taken: the table is at version {latest}"))
    } else {
        ("VERSION_AHEAD", format!("version {asked} is not next: the table is at version {latest}"))
    };
    Refusal::new(Exception::ConcurrentWriteException, reason, text, conflict::RETRY)
}

/// Somebody put the version into the log without asking.
pub(super) fn unratified(version: Version) -> Refusal {
    let text = format!("the log has a version {version} that was never ratified");
    let advice = "find out who writes to the log by other means, and remove that file";
    Refusal::new(Exception::DamagedLogException, "NOT_RATIFIED", text, advice)
}

pub(super) fn other_table_id(property: &str, table_id: &str) -> Refusal {
    let text = format!("the commit changes the property {property}: the catalog knows the table as {table_id}");
    Refusal::invalid("TABLE_ID", text)
}

pub(super) fn timestamp(text: impl Into<String>) -> Refusal {
    Refusal::invalid("IN_COMMIT_TIMESTAMP", text)
}

pub(super) fn commit_info_first() -> Refusal {
    Refusal::invalid("COMMIT_INFO_FIRST", "the first action of a commit with an in-commit timestamp must be commitInfo")
}

pub(super) fn txn_id_missing() -> Refusal {
    Refusal::invalid("TXN_ID_MISSING", "commits of a catalog-managed table need commitInfo.txnId")
}

pub(super) fn left_the_catalog() -> Refusal {
    Refusal::new(
        Exception::UnsupportedTableException,
        "CATALOG_MANAGED",
        "the commit takes the feature catalogManaged away, or the in-commit timestamps that it needs",
        "leave both on: a table cannot be taken back from its catalog here",
    )
}

pub(super) fn landed(version: Version) -> Refusal {
    let text = format!("the same commit (by content or txnId) is version {version} already");
    Refusal::new(Exception::ConcurrentTransactionException, "ALREADY_APPLIED", text, "nothing: it is in the table")
}

/// The commit could only be taken with changes, which a catalog does not make.
pub(super) fn needs_changes(rebase: &Rebase) -> Refusal {
    let mut what = Vec::new();
    if !rebase.adds.is_empty() || !rebase.removes.is_empty() {
        what.push("row ids or commit versions of its files");
    }
    if !rebase.domains.is_empty() {
        what.push("metadata domains");
    }
    if rebase.timestamps_start_at.is_some() {
        what.push("the properties that say since when there are in-commit timestamps");
    }
    if !rebase.appended.is_empty() || what.is_empty() {
        what.push("its actions");
    }
    let text = format!("the commit would have to be changed to fit the table: {}", what.join(", "));
    let advice = "read the table again, and write the commit upon its latest version";
    Refusal::new(Exception::InvalidCommitException, "NEEDS_CHANGES", text, advice)
}
