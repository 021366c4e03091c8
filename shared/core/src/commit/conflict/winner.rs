//! A commit that won, as the checks look at it.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

use crate::commit::read_set;
use crate::commit::version_record::Blindness;
use crate::delta::json::{only_member, parse_strict};
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
    /// Places in `adds` of files that are removed as well: they got another deletion vector.
    replaced: BTreeMap<ObjectKey, usize>,
    /// A file is added twice, which no sound log has.
    pub has_doubles: bool,
    lines: OnceCell<Vec<&'a str>>,
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
        let (replaced, has_doubles) = replaced(&adds, &removes);
        Ok(Winner {
            commit,
            adds,
            removes,
            is_blind: is_blind(actions, recorded),
            replaced,
            has_doubles,
            lines: OnceCell::new(),
        })
    }

    /// The entry that took the place of a removed one of the same file.
    pub fn replaced(&self, key: &ObjectKey) -> Option<&Added<'a>> {
        self.adds.get(*self.replaced.get(key)?)
    }

    /// All members of an add action.
    pub fn line(&self, added: &Added<'_>) -> serde_json::Value {
        let lines = self.lines.get_or_init(|| {
            let text = std::str::from_utf8(&self.commit.bytes).unwrap_or_default();
            text.lines().filter(|line| only_member(line).as_deref() == Some("add")).collect()
        });
        let parsed = lines.get(added.index).and_then(|line| parse_strict(line).ok());
        parsed.and_then(|mut value| value.get_mut("add").map(serde_json::Value::take)).unwrap_or_default()
    }

    /// An added file with rows that were nowhere before: not another deletion vector of a file that was there.
    pub fn brings_rows(&self, file: &Added<'_>) -> bool {
        file.add.data_change && !self.removes.contains_key(&file.key.at)
    }
}

/// A file that is added twice in one commit, which no sound log has, is left out.
fn replaced(adds: &[Added<'_>], removes: &BTreeMap<ObjectKey, &RemoveFile>) -> (BTreeMap<ObjectKey, usize>, bool) {
    let (mut found, mut twice) = (BTreeMap::new(), BTreeSet::new());
    for (at, added) in adds.iter().enumerate().filter(|(_, added)| removes.contains_key(&added.key.at)) {
        if found.insert(added.key.at.clone(), at).is_some() {
            twice.insert(added.key.at.clone());
        }
    }
    found.retain(|key, _| !twice.contains(key));
    (found, !twice.is_empty())
}

/// For commits that we admitted, as we judged them then; else inferred as for a candidate. A claim that the actions
/// contradict does not count.
fn is_blind(actions: &Actions, recorded: Option<Blindness>) -> bool {
    let only_appends = !actions.adds.is_empty() && actions.removes.is_empty() && actions.cdc.is_empty();
    match recorded {
        Some(Blindness::Reading) => false,
        Some(Blindness::Blind) => only_appends && actions.adds.iter().all(|add| add.data_change),
        // A declaration that is not understood may say anything.
        None => read_set::declared(actions).is_ok_and(|declared| read_set::is_blind_append(actions, declared.as_ref())),
    }
}
