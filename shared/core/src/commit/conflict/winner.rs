//! A commit that won, as the checks look at it.

use std::collections::BTreeMap;

use crate::commit::read_set;
use crate::commit::version_record::Blindness;
use crate::delta::snapshot::{FileKey, LoggedCommit, key_of_add, key_of_remove};
use crate::delta::{Actions, AddFile, PathError, RemoveFile};
use crate::location::Location;
use crate::store::ObjectKey;

/// A winner's added file.
pub(super) struct Added<'a> {
    pub key: FileKey,
    pub add: &'a AddFile,
    /// Place among the adds of the commit.
    pub index: usize,
}

pub(super) struct Winner<'a> {
    pub commit: &'a LoggedCommit,
    pub adds: Vec<Added<'a>>,
    /// By object: the deletion vector does not matter for what was removed.
    pub removes: BTreeMap<ObjectKey, &'a RemoveFile>,
    pub is_blind: bool,
}

impl<'a> Winner<'a> {
    pub fn of(root: &Location, commit: &'a LoggedCommit, recorded: Option<Blindness>) -> Result<Winner<'a>, PathError> {
        let actions = &commit.actions;
        let adds = actions
            .adds
            .iter()
            .enumerate()
            .map(|(index, add)| Ok(Added { key: key_of_add(root, add)?, add, index }))
            .collect::<Result<Vec<_>, PathError>>()?;
        let removes = actions
            .removes
            .iter()
            .map(|remove| Ok((key_of_remove(root, remove)?.at, remove)))
            .collect::<Result<BTreeMap<_, _>, PathError>>()?;
        Ok(Winner { commit, adds, removes, is_blind: is_blind(actions, recorded) })
    }

    /// An added file with rows that were nowhere before: not another deletion vector of a file that was there.
    pub fn brings_rows(&self, file: &Added<'_>) -> bool {
        file.add.data_change && !self.removes.contains_key(&file.key.at)
    }
}

/// For commits that we admitted, as we judged them then; else inferred as for a candidate. A claim that the actions
/// contradict does not count.
fn is_blind(actions: &Actions, recorded: Option<Blindness>) -> bool {
    let only_appends = !actions.adds.is_empty() && actions.removes.is_empty() && actions.cdc.is_empty();
    match recorded {
        Some(Blindness::Reading) => false,
        Some(Blindness::Blind) => only_appends && actions.adds.iter().all(|add| add.data_change),
        None => {
            let declared = read_set::declared(actions).ok().flatten();
            read_set::is_blind_append(actions, declared.as_ref())
        }
    }
}
