//! Rearrangements (OPTIMIZE) on tables with deletion vectors, on either side: they never stand in the way of a change.
//!
//! A candidate that moves rows leaves out the bins whose inputs are gone; where nothing is left it is superseded. A
//! candidate that changes rows takes a winner's bin back: the output goes, the inputs come back as they were, and the
//! candidate's own actions stay what they are. Where a later winner moved that output on, its bin is taken back as well;
//! where one took the same move back, nothing is left to do. Bins are those that statistics prove; else the commit is one
//! bin.

use std::collections::{BTreeMap, BTreeSet};

use super::{Check, Conflict};
use crate::commit::facts::AtRead;
use crate::commit::read_set;
use crate::commit::row_level::bins::{Bin, bins};
use crate::commit::row_level::edits::UndoneBin;
use crate::commit::verdict::Refusal;
use crate::delta::snapshot::{LoggedCommit, key_of_add};
use crate::delta::{Actions, AddFile, DeletionVector, RemoveFile};
use crate::location::Location;
use crate::store::ObjectKey;

/// What a winner removed that the candidate changed rows of.
pub(super) enum Undoing {
    /// Settled, or more has to be known first.
    Done,
    /// It cannot be taken back.
    No,
}

/// Inputs as they were, as far as that is known.
pub(super) enum Inputs {
    Known(Vec<(ObjectKey, AddFile)>),
    NotLoaded,
    Unknown,
}

fn id_of(vector: &Option<DeletionVector>) -> Option<String> {
    vector.as_ref().map(DeletionVector::id)
}

impl Check<'_> {
    /// On tables with deletion vectors a rearrangement leaves out what lost its input, unless it or the winner clusters:
    /// then it is a conflict like any other.
    pub(super) fn drop_bin(&mut self, key: &ObjectKey, refusal: Refusal) -> Result<(), Conflict> {
        let candidate = self.inputs.candidate;
        let clusters = clusters(&candidate.actions) || self.winner_clusters();
        let moves_rows = candidate.is_rearrangement() && !candidate.removed.is_empty();
        if !moves_rows || !self.inputs.table.has_deletion_vectors || clusters {
            return Err(Conflict::Refused(refusal));
        }
        let own: Vec<(&ObjectKey, &RemoveFile)> =
            candidate.remove_keys.iter().zip(&candidate.actions.removes).collect();
        let outputs: Vec<AddFile> = candidate.actions.adds.clone();
        let is_plain = candidate.added.is_disjoint(&candidate.removed);
        let inputs = match self.inputs_of(&own, &[]) {
            Inputs::NotLoaded => return Ok(()),
            Inputs::Unknown => Vec::new(),
            Inputs::Known(inputs) => inputs,
        };
        let files: Vec<AddFile> = inputs.iter().map(|(_, add)| add.clone()).collect();
        let found = if is_plain { bins(self.inputs.table, &files, &outputs) } else { None };
        let holds = |bin: &Bin| bin.inputs.iter().any(|at| inputs.get(*at).is_some_and(|(input, _)| input == key));
        let Some(bin) = found.iter().flatten().find(|bin| holds(bin)) else {
            return Err(superseded(refusal));
        };
        let dropped = bin.inputs.iter().filter_map(|at| inputs.get(*at)).map(|(input, _)| input.clone());
        self.folded.dropped.extend(dropped);
        let dropped = bin.outputs.iter().filter_map(|at| candidate.add_keys.get(*at)).cloned();
        self.folded.dropped.extend(dropped);
        if candidate.removed.iter().all(|input| self.folded.dropped.contains(input)) {
            return Err(superseded(refusal));
        }
        Ok(())
    }

    /// Forgets moves that the winner took back itself: their outputs are gone as they were, and every input is there again, or
    /// what the winner made of it. From here on it is judged by what it did to the inputs.
    pub(super) fn take_back(&mut self) {
        let bins = std::mem::take(&mut self.folded.rows.undone.bins);
        for bin in bins {
            if self.is_taken_back(&bin) {
                self.taken_back.extend(bin.outputs.into_keys());
                self.came_back.extend(bin.inputs.into_keys().chain(bin.own));
            } else {
                self.folded.rows.undone.bins.push(bin);
            }
        }
    }

    fn is_taken_back(&self, bin: &UndoneBin) -> bool {
        let winner = self.winner;
        let is_added = |key: &ObjectKey| winner.adds.iter().find(|added| added.key.at == *key);
        let is_gone = |key: &ObjectKey, id: Option<String>| {
            winner.removes.get(key).is_some_and(|remove| id_of(&remove.deletion_vector) == id)
        };
        let goes =
            |(key, add): (&ObjectKey, &AddFile)| is_gone(key, id_of(&add.deletion_vector)) && is_added(key).is_none();
        let is_back = |key: &ObjectKey, id: Option<String>| match winner.removes.contains_key(key) {
            true => is_gone(key, id),
            false => is_added(key).is_some_and(|added| added.key.dv_id == id),
        };
        !winner.has_doubles
            && bin.outputs.iter().all(goes)
            && bin.inputs.iter().all(|(key, add)| is_back(key, id_of(&add.deletion_vector)))
            && bin.own.iter().all(|key| is_back(key, self.live_vector(key)))
    }

    /// Takes back the part of a winning rearrangement that moved rows of a file that the candidate changes, or that would go
    /// with the moves that it takes back.
    pub(super) fn undo(&mut self, key: &ObjectKey, remove: &RemoveFile) -> Undoing {
        let (candidate, winner) = (self.inputs.candidate, self.winner);
        let moves = read_set::is_rearrangement(&winner.commit.actions);
        let output = self.folded.rows.undone.output(key).map(|add| id_of(&add.deletion_vector));
        let changes = !candidate.is_rearrangement() && (candidate.removed.contains(key) || output.is_some());
        if !moves || !changes || !self.inputs.table.has_deletion_vectors || self.winner_clusters() {
            return Undoing::No;
        }
        if self.folded.rows.undone.is_own(key) {
            return Undoing::Done;
        }
        // The winner moved exactly what the candidate replaces.
        if output.unwrap_or_else(|| self.live_vector(key)) != id_of(&remove.deletion_vector) {
            return Undoing::No;
        }
        let removed: Vec<(&ObjectKey, &RemoveFile)> =
            winner.removes.iter().map(|(key, remove)| (key, *remove)).collect();
        // A rearrangement that keeps a file under another vector moved only some of its rows.
        let is_plain = winner.adds.iter().all(|added| !winner.removes.contains_key(&added.key.at));
        let inputs = match self.inputs_of(&removed, self.earlier) {
            Inputs::NotLoaded => return Undoing::Done,
            Inputs::Unknown => return Undoing::No,
            Inputs::Known(_) if !is_plain => return Undoing::No,
            Inputs::Known(inputs) => inputs,
        };
        let files: Vec<AddFile> = inputs.iter().map(|(_, add)| add.clone()).collect();
        let outputs: Vec<AddFile> = winner.adds.iter().map(|added| added.add.clone()).collect();
        let whole = Bin { inputs: (0..inputs.len()).collect(), outputs: (0..outputs.len()).collect() };
        let found = bins(self.inputs.table, &files, &outputs).unwrap_or_default();
        let holds = |bin: &&Bin| bin.inputs.iter().any(|at| inputs.get(*at).is_some_and(|(input, _)| input == key));
        let bin = found.iter().find(holds).unwrap_or(&whole);
        let moved = bin.inputs.iter().filter_map(|at| inputs.get(*at));
        let outputs = bin.outputs.iter().filter_map(|at| winner.adds.get(*at));
        let outputs = outputs.map(|added| (added.key.at.clone(), added.add.clone())).collect();
        self.undo_bin(moved, outputs)
    }

    fn undo_bin<'i>(
        &mut self,
        moved: impl Iterator<Item = &'i (ObjectKey, AddFile)>,
        outputs: BTreeMap<ObjectKey, AddFile>,
    ) -> Undoing {
        let candidate = self.inputs.candidate;
        let versions = [self.winner.commit.version].into();
        let mut bin = UndoneBin { outputs, versions, ..UndoneBin::default() };
        // Outputs of moves that are taken back anyway: they are gone, and stay so.
        let mut gone = BTreeSet::new();
        for (input, add) in moved {
            if self.folded.rows.undone.output(input).is_some() {
                gone.insert(input.clone());
            } else if candidate.removed.contains(input) {
                bin.own.insert(input.clone());
            } else if candidate.added.contains(input) {
                // What the candidate adds by itself cannot come back as well.
                return Undoing::No;
            } else {
                bin.inputs.insert(input.clone(), add.clone());
            }
        }
        let known = std::mem::take(&mut self.folded.rows.undone.bins);
        for mut earlier in known {
            if earlier.outputs.keys().any(|output| gone.contains(output)) {
                earlier.outputs.retain(|output, _| !gone.contains(output));
                bin.outputs.append(&mut earlier.outputs);
                bin.inputs.append(&mut earlier.inputs);
                bin.own.append(&mut earlier.own);
                bin.versions.append(&mut earlier.versions);
            } else {
                self.folded.rows.undone.bins.push(earlier);
            }
        }
        self.folded.rows.undone.bins.push(bin);
        Undoing::Done
    }

    /// The vector under which a file that the candidate removes is live by now.
    fn live_vector(&self, key: &ObjectKey) -> Option<String> {
        if let Some(merge) = self.folded.rows.merges.get(key) {
            return id_of(&merge.add.deletion_vector);
        }
        let candidate = self.inputs.candidate;
        let at = candidate.remove_keys.iter().position(|removed| removed == key);
        at.and_then(|at| candidate.actions.removes.get(at)).and_then(|remove| id_of(&remove.deletion_vector))
    }

    /// The entries that removes took away: brought by earlier winners, or there when the candidate read.
    pub(super) fn inputs_of(&mut self, removes: &[(&ObjectKey, &RemoveFile)], earlier: &[&LoggedCommit]) -> Inputs {
        let mut found = Vec::with_capacity(removes.len());
        let (mut is_loaded, mut is_known) = (true, true);
        let brought = brought(self.inputs.table.root, earlier, removes);
        for (key, remove) in removes {
            let id = id_of(&remove.deletion_vector);
            if let Some(add) = brought.get(key) {
                is_known &= id_of(&add.deletion_vector) == id;
                found.push(((*key).clone(), (*add).clone()));
                continue;
            }
            let Some(files) = self.inputs.files.filter(|files| files.knows(key)) else {
                self.folded.needs_files.insert((*key).clone());
                is_loaded = false;
                continue;
            };
            let live = match files.at_read(key) {
                AtRead::Live(adds) => adds.into_iter().find(|add| id_of(&add.deletion_vector) == id),
                AtRead::Absent | AtRead::Unknown => None,
            };
            match live {
                Some(add) => found.push(((*key).clone(), add.clone())),
                None => is_known = false,
            }
        }
        match (is_loaded, is_known) {
            (false, _) => Inputs::NotLoaded,
            (true, false) => Inputs::Unknown,
            (true, true) => Inputs::Known(found),
        }
    }

    pub(super) fn winner_clusters(&self) -> bool {
        clusters(&self.winner.commit.actions)
    }
}

fn superseded(mut refusal: Refusal) -> Conflict {
    refusal.advice =
        "nothing: others changed or moved what this commit was to move; what is left, the next one takes".to_owned();
    Conflict::Superseded(refusal)
}

/// The last entries that commits added of the files that are removed.
fn brought<'a>(
    root: &Location,
    commits: &[&'a LoggedCommit],
    removes: &[(&ObjectKey, &RemoveFile)],
) -> BTreeMap<ObjectKey, &'a AddFile> {
    let wanted: BTreeSet<&ObjectKey> = removes.iter().map(|(key, _)| *key).collect();
    let adds = commits.iter().flat_map(|commit| &commit.actions.adds);
    let keyed = adds.filter_map(|add| Some((key_of_add(root, add).ok()?.at, add)));
    keyed.filter(|(key, _)| wanted.contains(key)).collect()
}

/// Whether a commit sorts rows by columns (ZORDER, clustering), so that none keeps its place.
fn clusters(actions: &Actions) -> bool {
    let Some(info) = &actions.commit_info else { return false };
    ["zOrderBy", "clusterBy"].iter().any(|name| is_given(info.parameter(name)))
}

fn is_given(parameter: Option<String>) -> bool {
    parameter.is_some_and(|text| !matches!(text.trim(), "" | "[]"))
}
