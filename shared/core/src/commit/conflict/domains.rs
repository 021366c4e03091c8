//! Winners that wrote metadata domains.

use super::{Check, Conflict};
use crate::commit::isolation::ROW_TRACKING_DOMAIN;
use crate::commit::verdict::Exception;
use crate::delta::DomainMetadata;

impl Check<'_> {
    /// A domain that both wrote is a conflict, except the one whose content is computed anew. A candidate that replaces the
    /// table takes back what winners put beside it.
    pub(super) fn domains(&mut self) -> Result<(), Conflict> {
        let mine = &self.inputs.candidate.actions.domains;
        for theirs in &self.winner.commit.actions.domains {
            let Some(own) = mine.iter().find(|own| own.domain == theirs.domain) else {
                self.note_tombstone(theirs);
                continue;
            };
            if own.domain == ROW_TRACKING_DOMAIN && !own.removed && !theirs.removed {
                continue;
            }
            let text = format!("version {} wrote the metadata domain `{}` as well", self.version(), theirs.domain);
            return self.refuse(Exception::ConcurrentTransactionException, "METADATA_DOMAIN", text);
        }
        Ok(())
    }

    fn note_tombstone(&mut self, theirs: &DomainMetadata) {
        if theirs.domain == ROW_TRACKING_DOMAIN || !replaces_table(self.inputs.candidate.operation()) {
            return;
        }
        if theirs.removed {
            self.folded.tombstones.remove(&theirs.domain);
        } else {
            self.folded.tombstones.insert(theirs.domain.clone(), theirs.clone());
        }
    }
}

/// `REPLACE TABLE`, `CREATE OR REPLACE TABLE`, both also `… AS SELECT`.
fn replaces_table(operation: Option<&str>) -> bool {
    operation.is_some_and(|name| name.to_ascii_uppercase().contains("REPLACE TABLE"))
}
