//! The conflict check at file level: one candidate against one winner, check by check. Pure.
//!
//! Thin where it may be: any protocol or metadata action of a winner conflicts (no allow-list of harmless changes), a
//! predicate on data columns excludes nothing, deletion vectors are not looked into.

use std::collections::{BTreeMap, BTreeSet};

use super::candidate::Candidate;
use super::read_set;
use super::table_facts::{FileValues, TableFacts};
use super::verdict::{Exception, Refusal};
use crate::delta::snapshot::{LoggedCommit, key_of_add, key_of_remove};
use crate::delta::{Metadata, PartitionValues, PathError};
use crate::location::Location;
use crate::ports::IsolationLevel;
use crate::store::ObjectKey;

/// What the candidate is checked under; decided once, before the fold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    Serializable,
    WriteSerializable,
    /// For commits that change no data and nothing else.
    Snapshot,
}

/// What the fold found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// The candidate cannot follow this winner.
    Refused(Refusal),
    /// The winner did the candidate's work, or made it pointless (J5, J6).
    Superseded(Refusal),
}

const RETRY: &str = "read the table again, redo the operation on its new state, and propose it under a new id";

/// The level that the table asks for, else the deployment's default; and whether the candidate may be judged more
/// mildly (section 4).
pub fn isolation_of(
    candidate: &Candidate,
    metadata: Option<&Metadata>,
    default: IsolationLevel,
    warnings: &mut Vec<String>,
) -> Isolation {
    let property = metadata.and_then(|metadata| metadata.property("delta.isolationLevel"));
    let level = match property {
        Some(name) if name.eq_ignore_ascii_case("WriteSerializable") => IsolationLevel::WriteSerializable,
        Some(name) if name.eq_ignore_ascii_case("Serializable") => IsolationLevel::Serializable,
        Some(other) => {
            warnings.push(super::verdict::clip(&format!(
                "delta.isolationLevel is not a level that is known; judged as Serializable: `{other}`"
            )));
            IsolationLevel::Serializable
        }
        None => default,
    };
    let actions = &candidate.actions;
    let has_files = !(actions.adds.is_empty() && actions.removes.is_empty() && actions.cdc.is_empty());
    let only_files = actions.protocol.is_none()
        && actions.metadata.is_none()
        && actions.txns.is_empty()
        && actions.domains.iter().all(|domain| domain.domain == "delta.rowTracking");
    let moves_only = if has_files { candidate.is_rearrangement() } else { level == IsolationLevel::Serializable };
    match level {
        _ if moves_only && only_files => Isolation::Snapshot,
        IsolationLevel::Serializable => Isolation::Serializable,
        IsolationLevel::WriteSerializable => Isolation::WriteSerializable,
    }
}

/// Checks the candidate against one winner.
pub fn check_winner(
    candidate: &Candidate,
    isolation: Isolation,
    table: TableFacts<'_>,
    winner: &LoggedCommit,
) -> Result<(), Conflict> {
    let check = Check { candidate, isolation, table, winner };
    check.protocol()?;
    check.metadata()?;
    check.unknown_actions()?;
    check.domains()?;
    check.applications()?;
    let files = WinnerFiles::of(table.root, winner).map_err(|error| check.damaged(&error))?;
    check.added_files(&files)?;
    check.removed_files(&files)?;
    check.added_twice(&files)
}

/// The files of a winner, by object.
struct WinnerFiles<'a> {
    adds: Vec<(ObjectKey, &'a crate::delta::AddFile)>,
    /// Partition values where the remove tells them.
    removes: BTreeMap<ObjectKey, (Option<&'a PartitionValues>, bool)>,
    is_blind: bool,
}

impl<'a> WinnerFiles<'a> {
    fn of(root: &Location, winner: &'a LoggedCommit) -> Result<WinnerFiles<'a>, PathError> {
        let actions = &winner.actions;
        let adds = actions
            .adds
            .iter()
            .map(|add| Ok((key_of_add(root, add)?.at, add)))
            .collect::<Result<Vec<_>, PathError>>()?;
        let removes = actions
            .removes
            .iter()
            .map(|remove| {
                let key = key_of_remove(root, remove)?.at;
                Ok((key, (remove.partition_values.as_ref(), remove.data_change)))
            })
            .collect::<Result<BTreeMap<_, _>, PathError>>()?;
        let declared = read_set::declared(actions).ok().flatten();
        let is_blind = read_set::is_blind_append(actions, declared.as_ref());
        Ok(WinnerFiles { adds, removes, is_blind })
    }
}

struct Check<'a> {
    candidate: &'a Candidate,
    isolation: Isolation,
    table: TableFacts<'a>,
    winner: &'a LoggedCommit,
}

impl Check<'_> {
    fn refusal(&self, exception: Exception, reason: &str, message: String) -> Refusal {
        Refusal::new(exception, reason, message, RETRY).won_by(self.winner.version, self.winner.actions.operation())
    }

    fn refuse(&self, exception: Exception, reason: &str, message: String) -> Result<(), Conflict> {
        Err(Conflict::Refused(self.refusal(exception, reason, message)))
    }

    fn damaged(&self, error: &PathError) -> Conflict {
        let text = format!("version {}: {error}", self.winner.version);
        Conflict::Refused(self.refusal(Exception::DamagedLogException, "LOG_PATH", text))
    }

    fn protocol(&self) -> Result<(), Conflict> {
        if self.winner.actions.protocol.is_none() {
            return Ok(());
        }
        let text = format!("version {} changed the table's protocol", self.winner.version);
        self.refuse(Exception::ProtocolChangedException, "PROTOCOL_CHANGE", text)
    }

    fn metadata(&self) -> Result<(), Conflict> {
        if self.winner.actions.metadata.is_none() {
            return Ok(());
        }
        let text = format!(
            "version {} changed the table's metadata (schema, partitioning or properties)",
            self.winner.version
        );
        self.refuse(Exception::MetadataChangedException, "METADATA_CHANGE", text)
    }

    fn unknown_actions(&self) -> Result<(), Conflict> {
        match self.winner.actions.unknown.first() {
            None => Ok(()),
            Some(name) => {
                let text =
                    format!("version {} has the action `{name}`, whose effect is not known", self.winner.version);
                self.refuse(Exception::ConcurrentWriteException, "UNKNOWN_ACTION", text)
            }
        }
    }

    fn domains(&self) -> Result<(), Conflict> {
        let theirs: BTreeSet<&str> = self.winner.actions.domains.iter().map(|domain| domain.domain.as_str()).collect();
        let common = self.candidate.actions.domains.iter().find(|domain| theirs.contains(domain.domain.as_str()));
        match common {
            None => Ok(()),
            Some(domain) => {
                let text =
                    format!("version {} wrote the metadata domain `{}` as well", self.winner.version, domain.domain);
                self.refuse(Exception::ConcurrentTransactionException, "METADATA_DOMAIN", text)
            }
        }
    }

    fn applications(&self) -> Result<(), Conflict> {
        let mine =
            |app_id: &str| self.candidate.actions.txns.iter().find(|txn| txn.app_id == app_id).map(|txn| txn.version);
        for theirs in &self.winner.actions.txns {
            if !self.candidate.app_ids.contains(&theirs.app_id) {
                continue;
            }
            let version = self.winner.version;
            return if mine(&theirs.app_id) == Some(theirs.version) {
                let text = format!(
                    "version {version} holds transaction {} of the application `{}` already; skip it",
                    theirs.version, theirs.app_id
                );
                self.refuse(Exception::ConcurrentTransactionException, "ALREADY_APPLIED", text)
            } else {
                let text = format!("version {version} holds a transaction of the application `{}`", theirs.app_id);
                self.refuse(Exception::ConcurrentTransactionException, "SAME_APPLICATION", text)
            };
        }
        Ok(())
    }

    fn may_have_read(&self, file: FileValues<'_>) -> Option<&'static str> {
        self.candidate.reads.touches(self.table, file)
    }

    /// Files that the candidate should have read.
    fn added_files(&self, files: &WinnerFiles<'_>) -> Result<(), Conflict> {
        let ignores_blind = self.isolation == Isolation::WriteSerializable && self.candidate.actions.metadata.is_none();
        if self.isolation == Isolation::Snapshot || self.candidate.is_blind() || (ignores_blind && files.is_blind) {
            return Ok(());
        }
        for (_, add) in files.adds.iter().filter(|(_, add)| add.data_change) {
            if let Some(reason) = self.may_have_read(FileValues {
                partition_values: Some(&add.partition_values),
                stats: add.stats.as_deref(),
            }) {
                let text = format!("version {} added a file that this commit should have read", self.winner.version);
                let refusal = self.refusal(Exception::ConcurrentAppendException, reason, text).file(&add.path);
                return Err(Conflict::Refused(refusal));
            }
        }
        Ok(())
    }

    /// Files that the candidate read or removed and that the winner removed.
    fn removed_files(&self, files: &WinnerFiles<'_>) -> Result<(), Conflict> {
        for (key, (values, data_change)) in &files.removes {
            let removed_by_both = self.candidate.removed.contains(key);
            // Two rearrangements of one file meet in what they remove, not in what they read.
            if removed_by_both && self.candidate.is_rearrangement() && !data_change {
                return self.removed_twice(key);
            }
            let reason = if self.candidate.read_files.contains(key) {
                Some("SAME_FILE")
            } else if self.candidate.is_blind() {
                None
            } else {
                self.may_have_read(FileValues { partition_values: *values, stats: None })
            };
            if let Some(reason) = reason {
                let text = format!("version {} removed a file that this commit read: {}", self.winner.version, key.key);
                let refusal = self.refusal(Exception::ConcurrentDeleteReadException, reason, text).file(&key.key);
                return Err(self.or_superseded(refusal));
            }
        }
        Ok(())
    }

    fn removed_twice(&self, key: &ObjectKey) -> Result<(), Conflict> {
        let text = format!("version {} removed a file that this commit removes too: {}", self.winner.version, key.key);
        let refusal = self.refusal(Exception::ConcurrentDeleteDeleteException, "SAME_FILE", text).file(&key.key);
        Err(self.or_superseded(refusal))
    }

    /// On tables with deletion vectors a rearrangement that lost its input is not needed any more, unless it
    /// clusters: then it is a conflict like any other.
    fn or_superseded(&self, refusal: Refusal) -> Conflict {
        let infos = [&self.candidate.actions.commit_info, &self.winner.actions.commit_info];
        let clusters = infos
            .into_iter()
            .flatten()
            .any(|info| ["zOrderBy", "clusterBy"].iter().any(|name| is_given(info.parameter(name))));
        if self.candidate.is_rearrangement() && self.table.has_deletion_vectors && !clusters {
            Conflict::Superseded(refusal)
        } else {
            Conflict::Refused(refusal)
        }
    }

    fn added_twice(&self, files: &WinnerFiles<'_>) -> Result<(), Conflict> {
        match files.adds.iter().find(|(key, _)| self.candidate.added.contains(key)) {
            None => Ok(()),
            Some((_, add)) => {
                let text = format!("version {} added the same file", self.winner.version);
                let refusal = self
                    .refusal(Exception::ConcurrentWriteException, "FILE_ALREADY_ADDED", text)
                    .class("DELTA_DUPLICATE_ACTIONS_FOUND")
                    .file(&add.path);
                Err(Conflict::Refused(refusal))
            }
        }
    }
}

fn is_given(parameter: Option<String>) -> bool {
    parameter.is_some_and(|text| !matches!(text.trim(), "" | "[]"))
}
