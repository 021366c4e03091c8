//! The conflict check: a left fold of the candidate over the commits that won since it was read, oldest first. Pure.
//!
//! Each winner is met by the same checks in the same order, each in a function of its own: protocol, metadata, metadata
//! domains, application ids, row tracking, added files, removed files. What a winner changed without conflict the candidate
//! adopts, and the next winner is compared with that. The first refusal is final: more winners never admit what fewer
//! refused.
//!
//! The order of the checks, their exceptions and their allow-lists are those of the Delta transaction protocol as its
//! reference implementation has it; where the product decides otherwise (which added files count, what rearrangements may
//! meet, who is blind), the check says so.

mod added;
mod applications;
mod domains;
#[cfg(test)]
mod laws;
mod metadata;
mod moves;
mod own;
mod protocol;
mod removed;
mod row_tracking;
mod rows;
#[cfg(test)]
mod tests;
mod winner;

use std::collections::{BTreeMap, BTreeSet};

use super::candidate::Candidate;
use super::facts::{FileFacts, TableAtRead};
use super::isolation::Isolation;
use super::read_set::BoundReads;
use super::rebase::RowIds;
use super::row_level::{self, RowFacts, RowFold, Statement};
use super::table_facts::{FileValues, TableFacts};
use super::table_state::AppIds;
use super::verdict::{Exception, Refusal};
use super::version_record::Blindness;
use crate::delta::snapshot::{FileKey, LoggedCommit};
use crate::delta::{DomainMetadata, PathError, Version};
use crate::ports::IdentityWriters;
use crate::store::ObjectKey;
pub use applications::check_progress;
pub(super) use own::as_proposed;
pub use own::landed;
pub(super) use protocol::features_of;
use rows::Ready;
use winner::Winner;

/// What the fold found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// The candidate cannot follow this winner.
    Refused(Refusal),
    /// The winner did the candidate's work, or made it pointless: no version, no failure.
    Superseded(Refusal),
}

impl From<Refusal> for Conflict {
    fn from(refusal: Refusal) -> Self {
        Conflict::Refused(refusal)
    }
}

pub(in crate::commit) const RETRY: &str =
    "read the table again, redo the operation on its new state, and propose it under a new id";

/// What is known of the table as the candidate read it.
#[derive(Clone, Debug, PartialEq)]
pub enum Before {
    /// It was not asked for yet.
    NotLoaded,
    /// The log no longer tells; whatever changed since, conflicts.
    Unknown,
    Known(Box<TableAtRead>),
}

/// What the fold depends on.
#[derive(Clone, Copy, Debug)]
pub struct FoldInputs<'a> {
    pub candidate: &'a Candidate,
    pub isolation: Isolation,
    /// As the candidate would find it: at the latest version.
    pub table: TableFacts<'a>,
    /// What the table holds of applications, at the latest version.
    pub app_ids: &'a AppIds,
    pub files: Option<&'a FileFacts>,
    /// What was read of vectors and rows.
    pub rows: Option<&'a RowFacts>,
    /// What was recorded of winners that we admitted.
    pub blindness: &'a BTreeMap<Version, Blindness>,
    pub identity_writers: IdentityWriters,
}

/// What the candidate has to take over from the winners, and what could not be decided yet.
#[derive(Clone, Debug)]
pub struct Folded {
    /// The table that the candidate read, with what it adopted since.
    pub before: Before,
    /// A winner changed the protocol or the metadata.
    adopted: bool,
    /// The state at the read version is needed.
    pub needs_table: bool,
    /// Files that must be known to exclude a conflict; until then they were taken to be harmless.
    pub needs_files: BTreeSet<ObjectKey>,
    /// Files that winners brought, so that the candidate cannot have read them.
    fresh: BTreeSet<ObjectKey>,
    /// Files with rows that the candidate read where they were before.
    moved: BTreeSet<ObjectKey>,
    pub backfilled: BTreeMap<ObjectKey, RowIds>,
    pub dropped: BTreeSet<ObjectKey>,
    /// Adds of winners that an unbackfill strips of their row ids, as lines.
    stripped: BTreeMap<FileKey, String>,
    /// Domains that winners wrote and that live, for a candidate that replaces the table.
    tombstones: BTreeMap<String, DomainMetadata>,
    /// A winner switched row tracking on.
    pub ids_not_preserved: bool,
    /// Files whose rows both sides changed or moved.
    pub rows: RowFold,
}

impl Folded {
    fn new(before: Before) -> Folded {
        Folded {
            before,
            adopted: false,
            needs_table: false,
            needs_files: BTreeSet::new(),
            fresh: BTreeSet::new(),
            moved: BTreeSet::new(),
            backfilled: BTreeMap::new(),
            dropped: BTreeSet::new(),
            stripped: BTreeMap::new(),
            tombstones: BTreeMap::new(),
            ids_not_preserved: false,
            rows: RowFold::default(),
        }
    }

    /// Whether later winners are compared with something that came from these: then they cannot be checked in a part of
    /// their own.
    pub fn carries_over(&self) -> bool {
        self.adopted
            || !self.moved.is_empty()
            || !self.backfilled.is_empty()
            || !self.dropped.is_empty()
            || !self.stripped.is_empty()
            || !self.tombstones.is_empty()
            || !self.rows.is_empty()
    }

    /// Lines that an unbackfill adds.
    pub fn stripped(&self) -> Vec<String> {
        self.stripped.values().cloned().collect()
    }

    /// Domains that a replaced table must not keep.
    pub fn tombstones(&self) -> Vec<DomainMetadata> {
        self.tombstones.values().cloned().collect()
    }
}

/// Checks the candidate against all winners, oldest first.
pub fn fold<'a>(
    inputs: FoldInputs<'_>,
    before: Before,
    winners: impl IntoIterator<Item = &'a LoggedCommit>,
) -> Result<Folded, Conflict> {
    let mut folded = Folded::new(before);
    let reads = inputs.candidate.reads.bind(inputs.table);
    let statement = row_level::eligible(inputs.candidate, inputs.table, &reads);
    let pairs = rows::pairs_of(inputs.candidate);
    let commits: Vec<&LoggedCommit> = winners.into_iter().collect();
    for (index, commit) in commits.iter().copied().enumerate() {
        let earlier = commits.get(..index).unwrap_or_default();
        let winner = Winner::of(inputs.table.root, commit, inputs.blindness.get(&commit.version).copied())
            .map_err(|error| damaged(commit, &error))?;
        Check {
            inputs,
            reads: &reads,
            statement,
            pairs: &pairs,
            earlier,
            winner: &winner,
            folded: &mut folded,
            merged: rows::Keys::new(),
            taken_back: rows::Keys::new(),
            came_back: rows::Keys::new(),
            why_by_file: BTreeMap::new(),
        }
        .run()?;
    }
    Ok(folded)
}

fn damaged(commit: &LoggedCommit, error: &PathError) -> Conflict {
    let text = format!("version {}: {error}", commit.version);
    let refusal = Refusal::new(Exception::DamagedLogException, "LOG_PATH", text, RETRY);
    refusal.won_by(commit.version, commit.actions.operation()).into()
}

/// One winner.
struct Check<'a> {
    inputs: FoldInputs<'a>,
    reads: &'a BoundReads,
    /// What row-level rules assume of the candidate, or why they do not hold for it.
    statement: Result<Statement, &'static str>,
    /// Files that the candidate gives another deletion vector: places of its removes and adds.
    pairs: &'a BTreeMap<ObjectKey, (usize, usize)>,
    /// Winners before this one.
    earlier: &'a [&'a LoggedCommit],
    winner: &'a Winner<'a>,
    folded: &'a mut Folded,
    /// Files that were merged with this winner.
    merged: rows::Keys,
    /// Files with moved rows that this winner removed, since it moved the rows back as the candidate would have.
    taken_back: rows::Keys,
    /// Files that are where they were again.
    came_back: rows::Keys,
    /// Why files that the winner took rows of are judged as a whole.
    why_by_file: BTreeMap<ObjectKey, rows::ByFile>,
}

impl Check<'_> {
    fn run(&mut self) -> Result<(), Conflict> {
        self.protocol()?;
        self.metadata()?;
        self.unknown_actions()?;
        self.domains()?;
        self.applications()?;
        self.backfills()?;
        self.take_back();
        if self.merge_rows()? == Ready::Yes && self.added_files()? == Ready::Yes {
            self.removed_files()?;
        }
        self.added_twice()?;
        self.remember();
        Ok(())
    }

    fn refusal(&self, exception: Exception, reason: &str, message: String) -> Refusal {
        let commit = self.winner.commit;
        Refusal::new(exception, reason, message, RETRY).won_by(commit.version, commit.actions.operation())
    }

    fn refuse(&self, exception: Exception, reason: &str, message: String) -> Result<(), Conflict> {
        Err(Conflict::Refused(self.refusal(exception, reason, message)))
    }

    fn version(&self) -> Version {
        self.winner.commit.version
    }

    fn may_have_read(&self, file: FileValues<'_>) -> Option<&'static str> {
        self.reads.touches(file)
    }

    /// An action whose effect is not known may do anything.
    fn unknown_actions(&self) -> Result<(), Conflict> {
        match self.winner.commit.actions.unknown.first() {
            None => Ok(()),
            Some(name) => {
                let text = format!("version {} has the action `{name}`, whose effect is not known", self.version());
                self.refuse(Exception::ConcurrentWriteException, "UNKNOWN_ACTION", text)
            }
        }
    }

    /// Files that the winner brought can be nothing that the candidate read, whatever becomes of them.
    fn remember(&mut self) {
        let rearranges = !self.winner.removes.is_empty();
        for file in &self.winner.adds {
            let is_new = !self.winner.removes.contains_key(&file.key.at) && !self.came_back.contains(&file.key.at);
            if is_new && (file.add.data_change || rearranges) {
                self.folded.fresh.insert(file.key.at.clone());
            }
        }
    }
}
