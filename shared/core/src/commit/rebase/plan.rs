//! Which edits a commit needs at the version that it will become.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{FileEdit, Rebase, RowIds};
use crate::commit::candidate::Candidate;
use crate::commit::facts::{AtRead, FileFacts};
use crate::commit::isolation::ROW_TRACKING_DOMAIN;
use crate::commit::sanity::row_count;
use crate::commit::verdict::{Exception, Refusal};
use crate::delta::json::{parse_strict, set_path};
use crate::delta::{AddFile, DomainMetadata, Metadata, Protocol, Version, features};
use crate::store::ObjectKey;

/// The member of the domain's configuration.
const HIGH_WATER_MARK: &str = "rowIdHighWaterMark";
/// Ids that a commit may use up, with those that it skips; a writer's own numbers beyond that are given anew.
const IDS_PER_COMMIT_MAX: i64 = 1 << 40;
/// Says in `commitInfo.tags` whether rows kept their ids.
const PRESERVED_TAG: &str = "delta.rowTracking.preserved";

/// What the edits depend on.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    pub candidate: &'a Candidate,
    /// The version that the commit will become.
    pub version: Version,
    /// In force after the commit.
    pub protocol: &'a Protocol,
    pub metadata: &'a Metadata,
    /// In force before it; `None` where it creates the table.
    pub metadata_before: Option<&'a Metadata>,
    /// Highest row id at the version that was read, and at the latest; -1 where there is none.
    pub mark_at_read: i64,
    pub mark: i64,
    pub files: Option<&'a FileFacts>,
    /// Row ids that a backfill among the winners gave to files that the commit names.
    pub backfilled: &'a BTreeMap<ObjectKey, RowIds>,
    /// Files of a (un)backfill, or of a rearrangement, that a winner took on or away.
    pub dropped: &'a std::collections::BTreeSet<ObjectKey>,
    /// Lines that an unbackfill adds for files of winners.
    pub stripped: &'a [String],
    /// Domains that winners created and a replaced table does not have.
    pub tombstones: &'a [DomainMetadata],
    /// A winner switched row tracking on.
    pub ids_not_preserved: bool,
}

/// Highest row id that a table's domain names; -1 where nothing was numbered yet.
pub fn high_water_mark(domain: Option<&DomainMetadata>) -> Result<i64, Refusal> {
    let Some(domain) = domain else { return Ok(-1) };
    let mark = parse_strict(&domain.configuration).ok().and_then(|value| value.get(HIGH_WATER_MARK)?.as_i64());
    mark.filter(|mark| *mark >= -1).ok_or_else(|| {
        Refusal::new(
            Exception::DamagedLogException,
            "ROW_ID_HIGH_WATER_MARK",
            format!("the domain {ROW_TRACKING_DOMAIN} does not name a {HIGH_WATER_MARK}: {}", domain.configuration),
            "repair the domain's metadata: row ids cannot be given without it",
        )
    })
}

/// Decides the edits. Refuses where a rule needs what the commit does not tell.
pub fn plan(inputs: Plan<'_>) -> Result<Rebase, Refusal> {
    let mut rebase = Rebase::default();
    drop_files(inputs, &mut rebase);
    copy_ids(inputs, &mut rebase);
    assign_ids(inputs, &mut rebase)?;
    rebase.appended.extend(inputs.stripped.iter().cloned());
    rebase.appended.extend(inputs.tombstones.iter().map(tombstone));
    if inputs.ids_not_preserved && inputs.candidate.actions.commit_info.is_some() {
        rebase.tags.insert(PRESERVED_TAG.to_owned(), "false".to_owned());
    }
    rebase.timestamps_start_at = starts_timestamps(inputs).then_some(inputs.version);
    Ok(rebase)
}

/// Only where earlier versions have none must it be said since when there are timestamps.
fn starts_timestamps(inputs: Plan<'_>) -> bool {
    inputs.candidate.actions.metadata.is_some()
        && features::has_in_commit_timestamps_on(inputs.metadata)
        && inputs.metadata_before.is_some_and(|before| !features::has_in_commit_timestamps_on(before))
}

fn tombstone(domain: &DomainMetadata) -> String {
    json!({"domainMetadata": {"domain": domain.domain, "configuration": domain.configuration, "removed": true}})
        .to_string()
}

/// What a winner took on or away is not touched again by a (un)backfill, nor moved by a rearrangement.
fn drop_files(inputs: Plan<'_>, rebase: &mut Rebase) {
    for (index, key) in inputs.candidate.add_keys.iter().enumerate() {
        if inputs.dropped.contains(key) {
            rebase.adds.insert(index, FileEdit::Drop);
        }
    }
    for (index, key) in inputs.candidate.remove_keys.iter().enumerate() {
        if inputs.dropped.contains(key) {
            rebase.removes.insert(index, FileEdit::Drop);
        }
    }
}

fn copy_ids(inputs: Plan<'_>, rebase: &mut Rebase) {
    for (keys, edits) in
        [(&inputs.candidate.add_keys, &mut rebase.adds), (&inputs.candidate.remove_keys, &mut rebase.removes)]
    {
        for (index, key) in keys.iter().enumerate() {
            if let Some(ids) = inputs.backfilled.get(key) {
                edits.entry(index).or_insert(FileEdit::Set(*ids));
            }
        }
    }
}

/// Whether new files need row ids: the feature is supported, and not on its way out.
pub fn numbers_rows(protocol: &Protocol, metadata: &Metadata) -> bool {
    features::lists(protocol, "rowTracking") && !metadata.is_on("delta.rowTrackingSuspended")
}

fn assign_ids(inputs: Plan<'_>, rebase: &mut Rebase) -> Result<(), Refusal> {
    if !numbers_rows(inputs.protocol, inputs.metadata) {
        return check_own_mark(inputs);
    }
    if own_domain(inputs.candidate).is_some_and(|(_, domain)| domain.removed) {
        return Err(Refusal::new(
            Exception::InvalidCommitException,
            "ROW_ID_MARK_REMOVED",
            format!(
                "the table numbers its rows, and the commit removes the domain {ROW_TRACKING_DOMAIN}: ids would be given twice"
            ),
            "leave the domain out, or suspend row tracking (delta.rowTrackingSuspended) first",
        ));
    }
    let mut fresh = Vec::new();
    for (index, (add, key)) in inputs.candidate.actions.adds.iter().zip(&inputs.candidate.add_keys).enumerate() {
        if rebase.adds.contains_key(&index) {
            continue;
        }
        match ids_it_had(inputs, add, key)? {
            Some(had) => set_ids(rebase, index, add, had),
            None => fresh.push((index, add)),
        }
    }
    let keeps_ids = inputs.mark == inputs.mark_at_read && are_well_numbered(inputs, &fresh)?;
    let mut mark = inputs.mark;
    for (index, add) in &fresh {
        let version = new_commit_version(inputs, add)?;
        if keeps_ids {
            set_ids(rebase, *index, add, RowIds { base_row_id: None, default_row_commit_version: version });
            continue;
        }
        let first = mark.checked_add(1).ok_or_else(|| too_many_rows(add))?;
        mark = mark.checked_add(rows_of(add)?).ok_or_else(|| too_many_rows(add))?;
        set_ids(rebase, *index, add, RowIds { base_row_id: Some(first), default_row_commit_version: version });
    }
    if !keeps_ids && (!fresh.is_empty() || own_domain(inputs.candidate).is_some()) {
        set_mark(inputs.candidate, mark, rebase);
    }
    Ok(())
}

/// Row ids of a file that is no new one: it has ids from before the read version, or the log has it. What the log lacks
/// is supplied.
fn ids_it_had(inputs: Plan<'_>, add: &AddFile, key: &ObjectKey) -> Result<Option<RowIds>, Refusal> {
    let had = inputs.files.and_then(|files| match files.at_read(key) {
        AtRead::Live(adds) => adds.first().copied(),
        AtRead::Absent => None,
        AtRead::Unknown => files.live(key).first().map(|(_, add)| *add),
    });
    if let Some(had) = had.filter(|had| had.base_row_id.is_some()) {
        let version = match had.default_row_commit_version {
            Some(version) => Some(version),
            None => new_commit_version(inputs, add)?,
        };
        return Ok(Some(RowIds { base_row_id: had.base_row_id, default_row_commit_version: version }));
    }
    match add.base_row_id {
        Some(id) if id < 0 => {
            let text = format!("add.baseRowId is {id}; row ids begin at 0");
            Err(Refusal::invalid("ROW_ID", text).file(&add.path))
        }
        Some(id) if id <= inputs.mark_at_read => {
            let default_row_commit_version = new_commit_version(inputs, add)?;
            Ok(Some(RowIds { base_row_id: None, default_row_commit_version }))
        }
        _ => Ok(None),
    }
}

/// Leaves out what the action says already.
fn set_ids(rebase: &mut Rebase, index: usize, add: &AddFile, ids: RowIds) {
    let ids = RowIds {
        base_row_id: ids.base_row_id.filter(|id| add.base_row_id != Some(*id)),
        default_row_commit_version: ids
            .default_row_commit_version
            .filter(|version| add.default_row_commit_version != Some(*version)),
    };
    if ids != RowIds::default() {
        rebase.adds.insert(index, FileEdit::Set(ids));
    }
}

/// Whether the writer numbered its new files itself, and as we might have.
fn are_well_numbered(inputs: Plan<'_>, fresh: &[(usize, &AddFile)]) -> Result<bool, Refusal> {
    let mut ranges = Vec::new();
    for (_, add) in fresh {
        let rows = rows_of(add)?;
        let Some(first) = add.base_row_id else { return Ok(false) };
        let Some(end) = first.checked_add(rows) else { return Ok(false) };
        ranges.push((first, end));
    }
    ranges.sort_unstable();
    let disjoint = ranges.windows(2).all(|pair| matches!(pair, [(_, end), (first, _)] if end <= first));
    let highest = ranges.iter().map(|(_, end)| end - 1).max().unwrap_or(inputs.mark).max(inputs.mark);
    let said = match own_domain(inputs.candidate) {
        Some((_, domain)) => match high_water_mark(Some(domain)) {
            Ok(said) => said,
            Err(_) => return Ok(false),
        },
        None => inputs.mark,
    };
    // Ids may be skipped, but a mark near the last one there is would leave none for those who come later.
    Ok(disjoint && said >= highest && said.saturating_sub(inputs.mark) <= IDS_PER_COMMIT_MAX)
}

/// Numbers that stand for "this very commit" move with it; others are of files that came earlier.
fn new_commit_version(inputs: Plan<'_>, add: &AddFile) -> Result<Option<i64>, Refusal> {
    match add.default_row_commit_version {
        Some(version) if version < 0 => {
            let text = format!("add.defaultRowCommitVersion is {version}; versions begin at 0");
            Err(Refusal::invalid("ROW_COMMIT_VERSION", text).file(&add.path))
        }
        Some(version) if version <= inputs.candidate.read_version.0 => Ok(None),
        Some(version) if version > inputs.version.0 => {
            let text =
                format!("add.defaultRowCommitVersion is {version}; the table gets to version {}", inputs.version);
            Err(Refusal::invalid("ROW_COMMIT_VERSION", text).file(&add.path))
        }
        _ => Ok(Some(inputs.version.0)),
    }
}

fn rows_of(add: &AddFile) -> Result<i64, Refusal> {
    match row_count(add)? {
        Some(rows) => i64::try_from(rows).map_err(|_| too_many_rows(add)),
        None => Err(Refusal::invalid(
            "ROW_IDS_NEED_ROW_COUNT",
            "the table numbers its rows, and the commit does not say how many the file has (stats.numRecords)",
        )
        .file(&add.path)),
    }
}

fn too_many_rows(add: &AddFile) -> Refusal {
    Refusal::invalid("ROW_IDS_EXHAUSTED", "the table's row ids do not suffice for the rows of this file")
        .file(&add.path)
}

/// What will be the mark once rows are numbered (again): one that nobody can read would stop every commit then, a lower
/// one would have ids given twice. Where rows are numbered now it is written anew.
fn check_own_mark(inputs: Plan<'_>) -> Result<(), Refusal> {
    let Some((_, domain)) = own_domain(inputs.candidate).filter(|(_, domain)| !domain.removed) else { return Ok(()) };
    let refuse = |reason: &str, text: String| Err(Refusal::invalid(reason, text));
    match high_water_mark(Some(domain)) {
        Err(refusal) => refuse("ROW_ID_HIGH_WATER_MARK", refusal.message.clone()),
        Ok(mark) if mark < inputs.mark => {
            refuse("ROW_ID_HIGH_WATER_MARK", format!("{HIGH_WATER_MARK} falls from {} to {mark}", inputs.mark))
        }
        Ok(_) => Ok(()),
    }
}

fn own_domain(candidate: &Candidate) -> Option<(usize, &DomainMetadata)> {
    candidate.actions.domains.iter().enumerate().find(|(_, domain)| domain.domain == ROW_TRACKING_DOMAIN)
}

/// Other members of the domain's configuration stay. A text that readers might take differently, or not at all, is
/// written anew.
fn set_mark(candidate: &Candidate, mark: i64, rebase: &mut Rebase) {
    let anew = || json!({ HIGH_WATER_MARK: mark }).to_string();
    match own_domain(candidate) {
        Some((index, domain)) => {
            if high_water_mark(Some(domain)).ok() != Some(mark) {
                let is_sound = parse_strict(&domain.configuration).is_ok_and(|found| found.is_object());
                let edited = set_path(&domain.configuration, &[HIGH_WATER_MARK], &Value::from(mark));
                rebase.domains.insert(index, edited.ok().filter(|_| is_sound).unwrap_or_else(anew));
            }
        }
        None => {
            let line =
                json!({"domainMetadata": {"domain": ROW_TRACKING_DOMAIN, "configuration": anew(), "removed": false}});
            rebase.appended.push(line.to_string());
        }
    }
}
