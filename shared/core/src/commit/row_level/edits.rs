//! What the row-level rules change in a commit, and what has to be there before it is published.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use serde_json::{Value, json};
use uuid::Uuid;

use super::facts::{RowFacts, RowNeeds};
use crate::commit::candidate::Candidate;
use crate::commit::conflict::RETRY;
use crate::commit::context::{CLAIM_MS, Context};
use crate::commit::error::CommitError;
use crate::commit::facts::FileFacts;
use crate::commit::files::FileError;
use crate::commit::isolation::ROW_TRACKING_DOMAIN;
use crate::commit::keys::content_hash;
use crate::commit::rebase::{FileEdit, Member, Rebase};
use crate::commit::sanity::row_count;
use crate::commit::verdict::{Exception, Refusal};
use crate::delta::deletion_vector::{Place, RowSet, encode_file, locate, write_file};
use crate::delta::json::set_path;
use crate::delta::path::Reach;
use crate::delta::{AddFile, DeletionVector, Version};
use crate::location::Location;
use crate::store::{ObjectError, ObjectKey};

/// Members of `commitInfo.tags` that say what was done to a commit. The first one holds the hash of the proposed bytes, so
/// that the proposal is recognised in the log.
pub const TAG_PROPOSAL: &str = "lakewarden.proposal";
/// The hash of the proposed actions, where the commit has a `txnId`: a retry says the same at another time.
pub const TAG_ACTIONS: &str = "lakewarden.actions";
const TAG_READ: &str = "lakewarden.readVersion";
const TAG_MERGED: &str = "lakewarden.mergedFiles";
const TAG_UNDONE: &str = "lakewarden.undoneVersions";
const TAG_DROPPED: &str = "lakewarden.droppedFiles";
/// The one of the members that only writers know which a remove has as well.
const TAGS: &str = "tags";
/// Paths that a tag names.
const PATHS_MAX: usize = 20;

/// A file that the candidate and winners changed rows of.
#[derive(Clone, Debug)]
pub struct Merge {
    /// What the file is live as.
    pub add: AddFile,
    /// The `add` action of the winner, with all its members.
    pub line: Value,
    pub deleted: Deleted,
}

/// Rows that are deleted once the candidate is committed.
#[derive(Clone, Debug, PartialEq)]
pub enum Deleted {
    /// As the candidate says: winners only wrote other statistics or tags.
    AsProposed,
    /// The vectors were not read yet.
    NotLoaded,
    Rows(RowSet),
}

/// Rearrangements that the candidate takes back, since it changed rows where they were before.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Undone {
    pub bins: Vec<UndoneBin>,
}

/// Files that were moved together, by one rearrangement or by several, the later ones of what the earlier ones left.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UndoneBin {
    /// Files that go: as the winners added them.
    pub outputs: BTreeMap<ObjectKey, AddFile>,
    /// Files that come back: as they were.
    pub inputs: BTreeMap<ObjectKey, AddFile>,
    /// Inputs that the candidate itself brings back or rewrites.
    pub own: BTreeSet<ObjectKey>,
    pub versions: BTreeSet<Version>,
}

impl Undone {
    pub fn outputs(&self) -> BTreeMap<&ObjectKey, &AddFile> {
        self.bins.iter().flat_map(|bin| &bin.outputs).collect()
    }

    pub fn inputs(&self) -> BTreeMap<&ObjectKey, &AddFile> {
        self.bins.iter().flat_map(|bin| &bin.inputs).collect()
    }

    pub fn own(&self) -> BTreeSet<&ObjectKey> {
        self.bins.iter().flat_map(|bin| &bin.own).collect()
    }

    pub fn is_own(&self, key: &ObjectKey) -> bool {
        self.bins.iter().any(|bin| bin.own.contains(key))
    }

    pub fn output(&self, key: &ObjectKey) -> Option<&AddFile> {
        self.bins.iter().find_map(|bin| bin.outputs.get(key))
    }

    fn versions(&self) -> BTreeSet<Version> {
        self.bins.iter().flat_map(|bin| &bin.versions).copied().collect()
    }
}

/// What the fold found out about rows.
#[derive(Clone, Debug, Default)]
pub struct RowFold {
    pub needs: RowNeeds,
    pub merges: BTreeMap<ObjectKey, Merge>,
    pub undone: Undone,
}

impl RowFold {
    pub fn is_empty(&self) -> bool {
        self.merges.is_empty() && self.undone.bins.is_empty()
    }

    /// Files that the candidate names as they were and not as they are.
    pub fn reconciled(&self) -> BTreeSet<ObjectKey> {
        self.merges.keys().chain(self.undone.own()).cloned().collect()
    }

    /// Files of which must be known how they are live.
    pub fn files(&self) -> impl Iterator<Item = &ObjectKey> {
        let undone = self.undone.bins.iter();
        let moved = undone.flat_map(|bin| bin.outputs.keys().chain(bin.inputs.keys()).chain(&bin.own));
        self.merges.keys().chain(moved)
    }
}

/// What must be done before the commit is published.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Publication {
    /// To be written: the name, and the bytes.
    pub vectors: Option<(Uuid, Bytes)>,
    /// Files that come back; they must still exist, and so must their vectors.
    pub returning: Vec<(ObjectKey, AddFile)>,
}

/// Adds the edits to `rebase`.
pub fn edit(
    candidate: &Candidate,
    rows: &RowFold,
    facts: &RowFacts,
    files: &FileFacts,
    rebase: &mut Rebase,
) -> Result<Publication, Refusal> {
    check_live(rows, files)?;
    let places = Places::of(candidate);
    let mut publication = Publication::default();
    let sets: Vec<(&ObjectKey, &RowSet)> = rows
        .merges
        .iter()
        .filter_map(|(key, merge)| match &merge.deleted {
            Deleted::Rows(rows) if !places.is_whole(key, rows) => Some((key, rows)),
            _ => None,
        })
        .collect();
    let (bytes, vectors) = encode_file(facts.new_file, &sets.iter().map(|(_, rows)| *rows).collect::<Vec<_>>());
    let vectors: BTreeMap<&ObjectKey, DeletionVector> = sets.iter().map(|(key, _)| *key).zip(vectors).collect();
    if !vectors.is_empty() {
        publication.vectors = Some((facts.new_file, bytes.into()));
    }
    for (key, merge) in &rows.merges {
        edit_pair(&places, key, merge, vectors.get(key), facts.now_ms, rebase)?;
    }
    undo(&rows.undone, facts.now_ms, rebase);
    publication.returning = rows.undone.inputs().into_iter().map(|(key, add)| (key.clone(), add.clone())).collect();
    if candidate.actions.commit_info.is_some() {
        tag(candidate, rows, rebase);
    }
    Ok(publication)
}

/// Says in the commit what bins were left out of it.
pub fn tag_dropped(candidate: &Candidate, dropped: &BTreeSet<ObjectKey>, rebase: &mut Rebase) {
    let removes = candidate.actions.removes.iter().zip(&candidate.remove_keys);
    let paths: Vec<&str> =
        removes.filter(|(_, key)| dropped.contains(*key)).map(|(remove, _)| remove.path.as_str()).collect();
    if candidate.actions.commit_info.is_some() && !paths.is_empty() {
        tag_proposal(candidate, rebase);
        rebase.tags.insert(TAG_DROPPED.to_owned(), shown(&paths));
    }
}

fn shown(paths: &[&str]) -> String {
    json!({"count": paths.len(), "first": paths.iter().take(PATHS_MAX).collect::<Vec<_>>()}).to_string()
}

fn tag(candidate: &Candidate, rows: &RowFold, rebase: &mut Rebase) {
    tag_proposal(candidate, rebase);
    let mut set = |name: &str, value: String| rebase.tags.insert(name.to_owned(), value);
    set(TAG_READ, candidate.read_version.to_string());
    let merged: Vec<&str> = rows.merges.values().map(|merge| merge.add.path.as_str()).collect();
    if !merged.is_empty() {
        set(TAG_MERGED, shown(&merged));
    }
    let versions: Vec<i64> = rows.undone.versions().iter().map(|version| version.0).collect();
    if !versions.is_empty() {
        set(TAG_UNDONE, json!(versions).to_string());
    }
}

fn tag_proposal(candidate: &Candidate, rebase: &mut Rebase) {
    rebase.tags.insert(TAG_PROPOSAL.to_owned(), candidate.sha256.clone());
    if candidate.txn_id().is_some() {
        rebase.tags.insert(TAG_ACTIONS.to_owned(), actions_hash(&candidate.bytes));
    }
}

/// Members that a retry of the same work may write anew, or that depend on the version.
const VOLATILE: [&str; 6] =
    ["deletionTimestamp", "modificationTime", "lastUpdated", "baseRowId", "defaultRowCommitVersion", "createdTime"];

/// A hash of what a commit does: of its actions in any order, without provenance, times, and what depends on the version.
pub fn actions_hash(bytes: &[u8]) -> String {
    let text = std::str::from_utf8(bytes).unwrap_or_default();
    let mut lines: Vec<String> =
        text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).filter_map(canonical).collect();
    lines.sort();
    content_hash(lines.join("\n").as_bytes())
}

/// One action; nothing where it says nothing of what the commit does.
fn canonical(mut line: Value) -> Option<String> {
    let (name, action) = line.as_object_mut()?.iter_mut().next()?;
    let is_mark = action.get("domain").and_then(Value::as_str) == Some(ROW_TRACKING_DOMAIN);
    if name == "commitInfo" || is_mark {
        return None;
    }
    if let Some(members) = action.as_object_mut() {
        members.retain(|member, value| !VOLATILE.contains(&member.as_str()) && !value.is_null());
        if let Some(configuration) = members.get_mut("configuration").and_then(Value::as_object_mut) {
            configuration.retain(|property, _| !property.starts_with("delta.inCommitTimestampEnablement"));
        }
    }
    line.sort_all_objects();
    Some(line.to_string())
}

/// Where the candidate names files.
struct Places<'a> {
    candidate: &'a Candidate,
    adds: BTreeMap<&'a ObjectKey, usize>,
    removes: BTreeMap<&'a ObjectKey, usize>,
}

impl<'a> Places<'a> {
    fn of(candidate: &'a Candidate) -> Places<'a> {
        let places = |keys: &'a [ObjectKey]| keys.iter().enumerate().map(|(at, key)| (key, at)).collect();
        Places { candidate, adds: places(&candidate.add_keys), removes: places(&candidate.remove_keys) }
    }

    /// Places of the two actions that replace the file's vector.
    fn pair(&self, key: &ObjectKey) -> Option<(usize, usize, &'a AddFile)> {
        let added = *self.adds.get(key)?;
        Some((*self.removes.get(key)?, added, self.candidate.actions.adds.get(added)?))
    }

    /// Whether no row of the file is left.
    fn is_whole(&self, key: &ObjectKey, rows: &RowSet) -> bool {
        let count = self.pair(key).and_then(|(_, _, add)| row_count(add).ok().flatten());
        count.is_some_and(|count| rows.len() >= count)
    }
}

fn edit_pair(
    places: &Places<'_>,
    key: &ObjectKey,
    merge: &Merge,
    vector: Option<&DeletionVector>,
    now_ms: i64,
    rebase: &mut Rebase,
) -> Result<(), Refusal> {
    let Some((removed, added, add)) = places.pair(key) else { return Ok(()) };
    let told = |name: &'static str| {
        let value = merge.line.get(name).filter(|value| !value.is_null())?;
        Some((Cow::Borrowed(name), value.clone()))
    };
    let others = merge.add.others.members().into_iter();
    let mut changes: Vec<Member> = others.map(|(name, value)| (name.into(), value)).collect();
    changes.push(("stats".into(), json!(wide_statistics(add, &merge.add)?)));
    if merge.deleted == Deleted::AsProposed {
        rebase.changed_adds.insert(added, changes);
        return Ok(());
    }
    match vector {
        None => {
            rebase.adds.insert(added, FileEdit::Drop);
        }
        Some(vector) => {
            changes.push(("deletionVector".into(), json!(vector)));
            changes.extend(["baseRowId", "defaultRowCommitVersion"].into_iter().filter_map(told));
            rebase.changed_adds.insert(added, changes);
        }
    }
    let mut gone: Vec<Member> =
        vec![("deletionTimestamp".into(), json!(now_ms)), ("extendedFileMetadata".into(), json!(true))];
    // Nothing that spoke of the logical file that was read stays behind.
    gone.push(told("deletionVector").unwrap_or(("deletionVector".into(), Value::Null)));
    let members = ["partitionValues", "size", "tags", "stats", "baseRowId", "defaultRowCommitVersion"];
    gone.extend(members.into_iter().filter_map(told));
    rebase.changed_removes.insert(removed, gone);
    Ok(())
}

/// Statistics of the file as the winner left them, or as proposed where those do not count its rows. Bounds are wide.
fn wide_statistics(proposed: &AddFile, winner: &AddFile) -> Result<String, Refusal> {
    let count = row_count(proposed)?;
    let source = if row_count(winner).ok().flatten() == count { winner } else { proposed };
    let text = source.stats.as_deref().unwrap_or("{}");
    set_path(text, &["tightBounds"], &Value::Bool(false))
        .map_err(|error| Refusal::invalid("STATS", format!("add.stats: {error}")).file(&proposed.path))
}

fn undo(undone: &Undone, now_ms: i64, rebase: &mut Rebase) {
    for add in undone.outputs().values() {
        let mut line = json!({"path": add.path, "deletionTimestamp": now_ms, "dataChange": false,
            "extendedFileMetadata": true, "partitionValues": add.partition_values, "size": add.size});
        common_members(&mut line, add);
        if let (Some(line), Some(tags)) = (line.as_object_mut(), add.others.members().remove(TAGS)) {
            line.insert(TAGS.to_owned(), tags);
        }
        rebase.appended.push(json!({ "remove": line }).to_string());
    }
    for add in undone.inputs().values() {
        let mut line = json!({"path": add.path, "partitionValues": add.partition_values, "size": add.size,
            "modificationTime": add.modification_time, "dataChange": false});
        common_members(&mut line, add);
        if let Some(line) = line.as_object_mut() {
            line.extend(add.others.members());
        }
        rebase.appended.push(json!({ "add": line }).to_string());
    }
}

fn common_members(line: &mut Value, add: &AddFile) {
    let members = [
        ("stats", add.stats.as_ref().map(|stats| json!(stats))),
        ("deletionVector", add.deletion_vector.as_ref().map(|vector| json!(vector))),
        ("baseRowId", add.base_row_id.map(Value::from)),
        ("defaultRowCommitVersion", add.default_row_commit_version.map(Value::from)),
    ];
    let Some(found) = line.as_object_mut() else { return };
    found.extend(members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
}

/// What is replaced is live exactly as it is named, and what comes back is not live: else the log is not what the fold
/// took it for, and nothing is published.
fn check_live(rows: &RowFold, files: &FileFacts) -> Result<(), Refusal> {
    let id = |add: &AddFile| add.deletion_vector.as_ref().map(DeletionVector::id);
    let is_live = |key: &ObjectKey, add: &AddFile| {
        let live = files.live(key);
        matches!(live.as_slice(), [(found, _)] if found.dv_id == id(add))
    };
    let undone = &rows.undone;
    let merged = rows.merges.iter().filter(|(key, _)| !undone.is_own(key));
    let mut named = merged.map(|(key, merge)| (key, &merge.add)).chain(undone.outputs());
    if let Some((key, _)) = named.find(|(key, add)| !is_live(key, add)) {
        return Err(odd(key, "is not live as the winners left it"));
    }
    match undone.inputs().into_keys().chain(undone.own()).find(|key| !files.live(key).is_empty()) {
        Some(key) => Err(odd(key, "is live although its rows were moved")),
        None => Ok(()),
    }
}

/// Makes sure that what comes back is still there, then writes the vectors: one HEAD for each file, one PUT. Done for every
/// attempt at a claim; what an attempt that was lost has written nobody names, so that sweeps take it.
pub async fn prepare(ctx: Context<'_>, root: &Location, publication: &Publication) -> Result<(), FileError> {
    for (key, add) in &publication.returning {
        let size = u64::try_from(add.size).ok();
        check_there(ctx, key, size, &add.path).await?;
        if let Some(vector) = &add.deletion_vector
            && let Ok(Place::File { at, .. }) = locate(root, vector, Reach::Anywhere)
        {
            check_there(ctx, &at, None, &add.path).await?;
        }
    }
    let Some((id, bytes)) = &publication.vectors else { return Ok(()) };
    ctx.check_time("writing deletion vectors", CLAIM_MS)?;
    write_file(&*ctx.ports().objects, root, *id, bytes.clone()).await.map_err(CommitError::from)?;
    Ok(())
}

async fn check_there(ctx: Context<'_>, key: &ObjectKey, size: Option<u64>, path: &str) -> Result<(), FileError> {
    ctx.check_time("looking at files that come back", CLAIM_MS)?;
    match ctx.ports().objects.head(key).await {
        Ok(meta) if size.is_none_or(|size| size == meta.size_bytes) => Ok(()),
        Ok(_) | Err(ObjectError::NotFound(_)) => {
            let text =
                format!("rows of this file were moved, and it is gone, so that they cannot be moved back: {path}");
            let exception = Exception::ConcurrentDeleteReadException;
            Err(Refusal::new(exception, "SAME_FILE", text, RETRY).file(path).into())
        }
        Err(error) => Err(CommitError::from(error).into()),
    }
}

fn odd(key: &ObjectKey, what: &str) -> Refusal {
    Refusal::new(Exception::ConcurrentDeleteReadException, "SAME_FILE", format!("the file {key} {what}"), RETRY)
}
