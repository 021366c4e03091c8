//! Winners with transactions of an application that the candidate wrote or looked up.

use super::{Check, Conflict};
use crate::commit::candidate::Candidate;
use crate::commit::table_state::{AppIds, LastVersion};
use crate::commit::verdict::{Exception, Refusal};

/// Refuses a transaction that the table holds already, and one below what it holds of its application. Winners are judged by
/// themselves; this is about what the candidate could have read: a batch that is proposed once more, under another id, would
/// be there twice. Of applications beyond those that the head remembers only winners tell.
pub fn check_progress(candidate: &Candidate, last: &AppIds) -> Result<(), Refusal> {
    for mine in &candidate.actions.txns {
        let (app, version) = (&mine.app_id, mine.version);
        match last.last(app) {
            LastVersion::Is(theirs) if theirs == version => {
                return Err(already_applied("the table", app, version));
            }
            // Whether it was ever there, the log does not say.
            LastVersion::Is(theirs) if theirs > version => {
                let text = format!(
                    "the table holds transaction {theirs} of the application `{app}`, which is above {version}"
                );
                let advice =
                    "find out whether its rows are there; if not, propose them under a version above the table's";
                let exception = Exception::ConcurrentTransactionException;
                return Err(Refusal::new(exception, "SAME_APPLICATION", text, advice));
            }
            LastVersion::Is(_) | LastVersion::Never | LastVersion::Unknown => {}
        }
    }
    Ok(())
}

fn already_applied(holder: &str, app: &str, version: i64) -> Refusal {
    let text = format!("{holder} holds transaction {version} of the application `{app}` already; skip it");
    Refusal::new(Exception::ConcurrentTransactionException, "ALREADY_APPLIED", text, "nothing: it is in the table")
}

impl Check<'_> {
    /// Two commits of one application are never both right: one of them did not know of the other. A sink that finds its
    /// own batch wants to skip it, so that has a reason of its own.
    pub(super) fn applications(&self) -> Result<(), Conflict> {
        let candidate = self.inputs.candidate;
        let version = self.version();
        let theirs = self.winner.commit.actions.txns.iter().find(|txn| candidate.app_ids.contains(&txn.app_id));
        let Some(theirs) = theirs else { return Ok(()) };
        let mine = candidate.actions.txns.iter().find(|txn| txn.app_id == theirs.app_id);
        if let Some(mine) = mine {
            // A later winner may be the one that brought the batch.
            let is_theirs = theirs.version == mine.version;
            if is_theirs || self.inputs.app_ids.last(&mine.app_id) == LastVersion::Is(mine.version) {
                let holder = if is_theirs { format!("version {version}") } else { "the table".to_owned() };
                let refusal = already_applied(&holder, &theirs.app_id, mine.version);
                return Err(Conflict::Refused(refusal.won_by(version, self.winner.commit.actions.operation())));
            }
        }
        let text = format!("version {version} holds a transaction of the application `{}`", theirs.app_id);
        self.refuse(Exception::ConcurrentTransactionException, "SAME_APPLICATION", text)
    }
}
