//! Winners that changed the protocol.

use std::collections::BTreeSet;

use super::{Before, Check, Conflict};
use crate::commit::evolution;
use crate::commit::judge::catalog_managed;
use crate::commit::verdict::Exception;
use crate::delta::{Protocol, features};

/// Features that do not touch what a writer has under way already; any other one that is added may forbid it.
const SAFE_FEATURES: [&str; 13] = [
    "appendOnly",
    "catalogManaged",
    "changeDataFeed",
    "columnMapping",
    "deletionVectors",
    "domainMetadata",
    "icebergCompatV1",
    "icebergCompatV2",
    "inCommitTimestamp",
    "rowTracking",
    "timestampNtz",
    "v2Checkpoint",
    "vacuumProtocolCheck",
];

/// Features that writer versions below 7 imply, and from which version on.
const IMPLIED_FEATURES: [(i64, &str); 7] = [
    (2, "appendOnly"),
    (2, "invariants"),
    (3, "checkConstraints"),
    (4, "changeDataFeed"),
    (4, "generatedColumns"),
    (5, "columnMapping"),
    (6, "identityColumns"),
];

impl Check<'_> {
    /// What the winner's protocol demands must be understood; nothing may be taken away, only harmless features added,
    /// and the candidate may not change the protocol itself. Then the candidate adopts it.
    pub(super) fn protocol(&mut self) -> Result<(), Conflict> {
        self.own_reorg()?;
        let Some(theirs) = &self.winner.commit.actions.protocol else { return Ok(()) };
        let (version, operation) = (self.version(), self.winner.commit.actions.operation());
        features::check_protocol(theirs).map_err(|error| evolution::unsupported(&error).won_by(version, operation))?;
        if features::is_catalog_managed(theirs) {
            return Err(catalog_managed().won_by(version, operation).into());
        }
        if is_upgrading_reorg(operation) {
            let text = format!("version {version} rewrote the whole table for another protocol");
            return self.refuse(Exception::ProtocolChangedException, "PROTOCOL_CHANGE", text);
        }
        if self.inputs.candidate.actions.protocol.is_some() {
            let text = format!("version {version} changed the table's protocol, and so does this commit");
            return self.refuse(Exception::ProtocolChangedException, "PROTOCOL_CHANGE", text);
        }
        if let Some(what) = self.unsafe_change(theirs) {
            let text = format!("version {version} changed the table's protocol: {what}");
            return self.refuse(Exception::ProtocolChangedException, "PROTOCOL_CHANGE", text);
        }
        self.folded.adopted = true;
        match &mut self.folded.before {
            Before::Known(table) => table.protocol = theirs.clone(),
            Before::NotLoaded => self.folded.needs_table = true,
            Before::Unknown => {}
        }
        Ok(())
    }

    fn own_reorg(&self) -> Result<(), Conflict> {
        let candidate = self.inputs.candidate;
        if candidate.actions.protocol.is_none() || !is_upgrading_reorg(candidate.operation()) {
            return Ok(());
        }
        let text = format!(
            "a REORG that upgrades the protocol admits no concurrent commits, and version {} was written meanwhile",
            self.version()
        );
        self.refuse(Exception::ProtocolChangedException, "PROTOCOL_CHANGE", text)
    }

    /// What of the change a writer that does not know of it could break.
    fn unsafe_change(&self, theirs: &Protocol) -> Option<String> {
        let ours = match &self.folded.before {
            Before::Known(table) => &table.protocol,
            Before::NotLoaded => return None,
            Before::Unknown => return Some("the log no longer tells what it was before".to_owned()),
        };
        let (before, after) = (features_of(ours), features_of(theirs));
        if let Some(lost) = before.difference(&after).next() {
            return Some(format!("it lacks the table feature `{lost}`"));
        }
        let added = after.difference(&before).find(|feature| !SAFE_FEATURES.contains(feature));
        added.map(|feature| format!("it has the table feature `{feature}`, which this commit was made without"))
    }
}

/// An operation that rewrites the whole table and upgrades it: nothing may happen beside it.
fn is_upgrading_reorg(operation: Option<&str>) -> bool {
    operation.is_some_and(|name| name.to_ascii_uppercase().starts_with("REORG"))
}

/// Listed features, and those that an older writer version implies.
pub(in crate::commit) fn features_of(protocol: &Protocol) -> BTreeSet<&str> {
    let writer = protocol.min_writer_version;
    let implied = IMPLIED_FEATURES.iter().filter(|(from, _)| (*from..7).contains(&writer)).map(|(_, name)| *name);
    let listed = [&protocol.reader_features, &protocol.writer_features].into_iter().flatten().flatten();
    implied.chain(listed.map(String::as_str)).collect()
}
