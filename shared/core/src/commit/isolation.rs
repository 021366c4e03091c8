//! Under which isolation level a candidate is judged; decided once, from its own actions, before the fold.
//!
//! Serializable > WriteSerializable > Snapshot. The table's property decides, else the deployment's setting; what a writer
//! says of itself (`commitInfo.isolationLevel`) never counts.

use super::candidate::Candidate;
use super::verdict::Refusal;
use crate::delta::{Actions, Metadata};
use crate::ports::IsolationLevel;

/// What the candidate is checked under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    Serializable,
    /// Blind appends that won are ignored: the candidate may be ordered before them.
    WriteSerializable,
    /// For commits that change no data and nothing else: files that were added meanwhile do not matter.
    Snapshot,
}

const PROPERTY: &str = "delta.isolationLevel";

/// The domain that only holds bookkeeping of row ids.
pub const ROW_TRACKING_DOMAIN: &str = "delta.rowTracking";

/// Operations that never change data. Any other one, also one that is not known, may.
const MOVING_OPERATIONS: [&str; 7] = [
    "COMPUTE STATS",
    "OPTIMIZE",
    "REORG",
    "ROW TRACKING BACKFILL",
    "ROW TRACKING UNBACKFILL",
    "VACUUM END",
    "VACUUM START",
];

/// The level that the table asks for, else the deployment's default.
pub fn level_of(metadata: Option<&Metadata>, default: IsolationLevel, warnings: &mut Vec<String>) -> IsolationLevel {
    let Some(name) = metadata.and_then(|metadata| metadata.property(PROPERTY)) else { return default };
    known(name).unwrap_or_else(|| {
        warnings.push(super::verdict::clip(&format!(
            "{PROPERTY} is not a level that is known; judged as Serializable: `{name}`"
        )));
        IsolationLevel::Serializable
    })
}

/// Refuses a level that a commit sets and that no table can have: readers and writers would not agree on what it means, and
/// snapshot isolation is for commits that change no data. One that the table has already may stay.
pub fn check_level(before: Option<&Metadata>, after: &Metadata) -> Result<(), Refusal> {
    let had = before.and_then(|before| before.property(PROPERTY));
    match after.property(PROPERTY).filter(|name| had != Some(*name) && known(name).is_none()) {
        Some(name) => {
            let text =
                format!("the table property {PROPERTY} is `{name}`; it must be Serializable or WriteSerializable");
            Err(Refusal::invalid("PROPERTY_VALUE", super::verdict::clip(&text)))
        }
        None => Ok(()),
    }
}

fn known(name: &str) -> Option<IsolationLevel> {
    match name {
        _ if name.eq_ignore_ascii_case("WriteSerializable") => Some(IsolationLevel::WriteSerializable),
        _ if name.eq_ignore_ascii_case("Serializable") => Some(IsolationLevel::Serializable),
        _ => None,
    }
}

/// The level for this candidate: milder than the table's only where it changes nothing but the place of rows.
pub fn isolation_of(candidate: &Candidate, level: IsolationLevel) -> Isolation {
    let actions = &candidate.actions;
    if changes_nothing(actions) && (level == IsolationLevel::Serializable || !may_change_data(actions)) {
        return Isolation::Snapshot;
    }
    match level {
        IsolationLevel::Serializable => Isolation::Serializable,
        IsolationLevel::WriteSerializable => Isolation::WriteSerializable,
    }
}

/// Whether no action changes data, schema, protocol, application state or domains.
fn changes_nothing(actions: &Actions) -> bool {
    actions.adds.iter().all(|add| !add.data_change)
        && actions.removes.iter().all(|remove| !remove.data_change)
        && actions.cdc.is_empty()
        && actions.protocol.is_none()
        && actions.metadata.is_none()
        && actions.txns.is_empty()
        && actions.domains.iter().all(|domain| domain.domain == ROW_TRACKING_DOMAIN)
}

/// Whether the operation is one that changes data, by its name. A DELETE that matched nothing still read.
fn may_change_data(actions: &Actions) -> bool {
    !actions.operation().is_some_and(|name| MOVING_OPERATIONS.contains(&name.to_ascii_uppercase().as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delta::Version;
    use crate::delta::testkit::{add_line, text};
    use crate::location::Location;
    use serde_json::{Value, json};

    fn isolation(lines: &[Value], level: IsolationLevel) -> Isolation {
        let candidate = Candidate::parse(&Location::new("b", "t"), Version(1), text(lines).into()).unwrap();
        isolation_of(&candidate, level)
    }

    #[test]
    fn the_table_decides_then_the_setting() {
        let with = |value: &str| Metadata {
            configuration: [("delta.isolationLevel".to_owned(), Some(value.to_owned()))].into(),
            ..Metadata::default()
        };
        use IsolationLevel::{Serializable, WriteSerializable};
        for (metadata, default, expected, warned) in [
            (Some(with("writeserializable")), Serializable, WriteSerializable, 0),
            (Some(with("Serializable")), WriteSerializable, Serializable, 0),
            (Some(with("SnapshotIsolation")), WriteSerializable, Serializable, 1),
            (Some(Metadata::default()), WriteSerializable, WriteSerializable, 0),
            (None, Serializable, Serializable, 0),
        ] {
            let mut warnings = Vec::new();
            assert_eq!(level_of(metadata.as_ref(), default, &mut warnings), expected);
            assert_eq!(warnings.len(), warned);
        }
    }

    #[test]
    fn only_what_changes_nothing_is_judged_more_mildly() {
        let info =
            |operation: &str| json!({"commitInfo": {"operation": operation, "isolationLevel": "SnapshotIsolation"}});
        let moved = |data_change: bool| {
            let mut add = add_line("a", 1);
            add["add"]["dataChange"] = json!(data_change);
            add
        };
        let domain = |name: &str| json!({"domainMetadata": {"domain": name, "configuration": "{}", "removed": false}});
        let txn = json!({"txn": {"appId": "a", "version": 1}});
        use Isolation::{Serializable, Snapshot, WriteSerializable};
        use IsolationLevel::{Serializable as S, WriteSerializable as WS};
        for (lines, under_s, under_ws) in [
            (vec![moved(true), info("OPTIMIZE")], Serializable, WriteSerializable),
            (vec![moved(false), info("OPTIMIZE")], Snapshot, Snapshot),
            (vec![moved(false), info("optimize")], Snapshot, Snapshot),
            (vec![moved(false), info("WRITE")], Snapshot, WriteSerializable),
            (vec![moved(false)], Snapshot, WriteSerializable),
            (vec![moved(false), info("OPTIMIZE"), txn.clone()], Serializable, WriteSerializable),
            (vec![moved(false), info("OPTIMIZE"), domain("d")], Serializable, WriteSerializable),
            (vec![moved(false), info("OPTIMIZE"), domain(ROW_TRACKING_DOMAIN)], Snapshot, Snapshot),
            // A DELETE that matched nothing.
            (vec![info("DELETE")], Snapshot, WriteSerializable),
            (vec![txn], Serializable, WriteSerializable),
        ] {
            assert_eq!(isolation(&lines, S), under_s, "{lines:?}");
            assert_eq!(isolation(&lines, WS), under_ws, "{lines:?}");
        }
    }

    #[test]
    fn a_commit_sets_a_level_that_tables_can_have() {
        let with = |level: &str| Metadata {
            configuration: [(PROPERTY.to_owned(), Some(level.to_owned()))].into(),
            ..Metadata::default()
        };
        for (level, is_taken) in
            [("Serializable", true), ("writeserializable", true), ("SnapshotIsolation", false), ("", false)]
        {
            let new = with(level);
            assert_eq!(check_level(None, &new).is_ok(), is_taken, "{level}");
            assert_eq!(check_level(Some(&Metadata::default()), &new).is_ok(), is_taken, "{level}");
            assert_eq!(check_level(Some(&new), &new), Ok(()), "{level}");
        }
        assert_eq!(check_level(Some(&with("x")), &with("y")).unwrap_err().reason, "PROPERTY_VALUE");
    }
}
