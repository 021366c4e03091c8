//! The judge: decides on a candidate from what was loaded. Pure; reading and writing are the caller's business.

use std::collections::{BTreeMap, BTreeSet};

use super::candidate::Candidate;
use super::conflict::{self, Before, Conflict, FoldInputs, Folded};
use super::evolution::{self, Evolution};
use super::facts::{FileFacts, TableAtRead};
use super::files::{Standing, known_files};
use super::identity::{self, Numbers};
use super::isolation::{self, ROW_TRACKING_DOMAIN};
use super::rebase::{self, Rebase};
use super::row_level::{self, Publication, RowFacts, RowNeeds};
use super::sanity;
use super::table_facts::TableFacts;
use super::table_state::TableState;
use super::verdict::{Exception, Refusal};
use super::version_record::Blindness;
use crate::delta::features;
use crate::delta::schema::Schema;
use crate::delta::snapshot::LoggedCommit;
use crate::delta::{DomainMetadata, Metadata, Protocol, Version};
use crate::location::Location;
use crate::ports::{IdentityWriters, IsolationLevel};
use crate::store::ObjectKey;

/// Everything a decision depends on.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    pub root: &'a Location,
    pub candidate: &'a Candidate,
    /// Latest version of the log; [`Version::NONE`] where there is no table.
    pub latest: Version,
    /// The table at `latest`; `None` only where there is no table.
    pub state: Option<&'a TableState>,
    /// What became versions since the candidate read; for the creator of a table only version 0.
    pub winners: &'a [std::sync::Arc<LoggedCommit>],
    /// About the files that were asked for.
    pub files: Option<&'a FileFacts>,
    /// Vectors and rows that were asked for.
    pub rows: Option<&'a RowFacts>,
    pub default_isolation: IsolationLevel,
    pub identity_writers: IdentityWriters,
    /// What was recorded of winners that we admitted; of others it is inferred.
    pub blindness: &'a BTreeMap<Version, Blindness>,
}

/// What must hold of the files, and what is to be published.
#[derive(Clone, Debug, PartialEq)]
pub struct Admission {
    pub version: Version,
    /// In force after the commit.
    pub metadata: Metadata,
    pub schema: Schema,
    pub blindness: Blindness,
    /// The added files that the table has already.
    pub known: BTreeMap<ObjectKey, Standing>,
    /// What the files may have in identity columns.
    pub numbers: Vec<Numbers>,
    pub warnings: Vec<String>,
    /// The table has in-commit timestamps: the new one must be later than this.
    pub timestamp_after_ms: Option<i64>,
    /// What else changes because the version moved.
    pub rebase: Rebase,
    /// Winners after these must be judged together with them, not in a part of their own.
    pub carries_over: bool,
    /// What must be done before it is published, where rows of files were merged or moved back.
    pub publication: Publication,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Judgement {
    Admit(Box<Admission>),
    Refuse(Refusal),
    /// Not needed any more: no version, no failure.
    Supersede(Refusal),
    /// Whether and how these files are live is needed to decide.
    NeedsFiles(BTreeSet<ObjectKey>),
    /// Which rows are deleted, or may have been read, is needed to decide.
    NeedsRows(RowNeeds),
    /// The candidate is in the log already.
    Landed {
        version: Version,
    },
}

/// Whether the candidate means to create the table.
pub fn is_creation(candidate: &Candidate) -> bool {
    candidate.read_version == Version::NONE
        && candidate.actions.protocol.is_some()
        && candidate.actions.metadata.is_some()
}

/// Refuses a read version that the log cannot serve; done before winners are read.
pub fn check_read_version(candidate: &Candidate, latest: Version) -> Result<(), Refusal> {
    if candidate.read_version > latest {
        let text = format!("the commit read version {}, the table is at {latest}", candidate.read_version);
        return Err(Refusal::invalid("READ_VERSION_AHEAD", text));
    }
    if latest == Version::NONE && !is_creation(candidate) {
        let text =
            "there is no table here, and the commit does not create one (it needs protocol and metaData actions)";
        return Err(Refusal::invalid("NO_TABLE", text));
    }
    Ok(())
}

/// Decides.
pub fn judge(inputs: Inputs<'_>) -> Judgement {
    match try_judge(inputs) {
        Ok(judgement) => judgement,
        Err(refusal) => Judgement::Refuse(refusal),
    }
}

fn try_judge(inputs: Inputs<'_>) -> Result<Judgement, Refusal> {
    let candidate = inputs.candidate;
    check_read_version(candidate, inputs.latest)?;
    if let Some(version) = conflict::landed(candidate, inputs.winners.iter().map(|winner| &**winner))? {
        return Ok(Judgement::Landed { version });
    }
    let mut needed = Needed::default();
    let mut warnings = candidate.warnings.clone();
    let folded = match inputs.state {
        None => None,
        Some(_) if is_creation(candidate) => return Err(two_creators(inputs)),
        Some(state) => match fold_winners(inputs, state, &mut warnings)? {
            Ok(folded) => {
                conflict::check_progress(candidate, &state.app_ids)?;
                Some(folded)
            }
            Err(superseded) => return Ok(Judgement::Supersede(superseded)),
        },
    };
    let (metadata, schema, evolution) = effective_table(inputs)?;
    warnings.extend(evolution.explained.iter().cloned());
    // Whether a file stays can only be told from all that are live.
    needed.table |= evolution.needs_full_overwrite;
    if let Some(folded) = &folded {
        needed.take(folded);
    }
    let mut rebase = match rebase_of(inputs, folded.as_ref(), &metadata, &mut needed)? {
        Some(rebase) => rebase,
        None => return Ok(Judgement::NeedsFiles(needed.files)),
    };
    let reconciled = folded.as_ref().map(|folded| folded.rows.reconciled()).unwrap_or_default();
    let sane = check_sanity(inputs, &rebase, (&metadata, &schema), &reconciled, &mut needed);
    // Where rows have to be looked at first, a winner may turn out to be in the way, and that is the better answer.
    if folded.as_ref().is_none_or(|folded| folded.rows.needs.is_empty()) {
        sane?;
    }
    if needed.is_open(inputs.files) {
        return Ok(Judgement::NeedsFiles(needed.files));
    }
    let publication = match &folded {
        Some(folded) if needs_rows(inputs, folded)? => return Ok(Judgement::NeedsRows(folded.rows.needs.clone())),
        Some(folded) => merge_rows(inputs, folded, &mut rebase, &mut warnings)?,
        None => Publication::default(),
    };
    if let Some(files) = inputs.files {
        evolution.check_overwrite(candidate, files)?;
    }
    Ok(Judgement::Admit(Box::new(Admission {
        version: inputs.latest.next(),
        timestamp_after_ms: timestamp_after(inputs, &metadata)?,
        known: known_files(candidate, inputs.files),
        numbers: numbers_of(inputs, &schema),
        metadata,
        schema,
        blindness: if candidate.is_blind() { Blindness::Blind } else { Blindness::Reading },
        warnings,
        carries_over: !rebase.is_empty() || folded.is_some_and(|folded| folded.carries_over()),
        rebase,
        publication,
    })))
}

/// Whether something about rows is still to be read; refuses where that is too much.
fn needs_rows(inputs: Inputs<'_>, folded: &Folded) -> Result<bool, Refusal> {
    if folded.rows.needs.is_empty() {
        // The edits need the time and a name.
        return Ok(!folded.rows.is_empty() && inputs.rows.is_none());
    }
    if inputs.rows.is_some_and(|rows| rows.too_much) {
        let text = "the deletion vectors of the files that others changed meanwhile are too large to be compared";
        let exception = Exception::ConcurrentDeleteReadException;
        return Err(Refusal::new(exception, "ALLOTTED_TIME_EXCEEDED", text, conflict::RETRY));
    }
    Ok(true)
}

/// The edits that follow from what was merged, moved back, or left out.
fn merge_rows(
    inputs: Inputs<'_>,
    folded: &Folded,
    rebase: &mut Rebase,
    warnings: &mut Vec<String>,
) -> Result<Publication, Refusal> {
    let candidate = inputs.candidate;
    if candidate.is_rearrangement() && !folded.dropped.is_empty() {
        row_level::edits::tag_dropped(candidate, &folded.dropped, rebase);
        let count = candidate.removed.iter().filter(|key| folded.dropped.contains(*key)).count();
        warnings.push(format!("{count} files that others changed meanwhile were left as they are"));
    }
    match inputs.rows.zip(inputs.files).filter(|_| !folded.rows.is_empty()) {
        Some((rows, files)) => row_level::edits::edit(candidate, &folded.rows, rows, files, rebase),
        None => Ok(Publication::default()),
    }
}

/// What must be loaded before a candidate can be admitted. Refusals need not wait for it.
#[derive(Default)]
struct Needed {
    table: bool,
    files: BTreeSet<ObjectKey>,
}

impl Needed {
    fn take(&mut self, folded: &Folded) {
        self.table |= folded.needs_table;
        self.files.extend(folded.needs_files.iter().chain(folded.rows.files()).cloned());
    }

    fn is_open(&self, files: Option<&FileFacts>) -> bool {
        match files {
            None => self.table || !self.files.is_empty(),
            Some(files) => self.files.iter().any(|key| !files.knows(key)),
        }
    }
}

/// The candidate against all winners; the inner error is what supersedes it.
fn fold_winners(
    inputs: Inputs<'_>,
    state: &TableState,
    warnings: &mut Vec<String>,
) -> Result<Result<Folded, Refusal>, Refusal> {
    let schema = parse_schema(&state.metadata)?;
    let table = TableFacts {
        root: inputs.root,
        metadata: &state.metadata,
        schema: &schema,
        has_deletion_vectors: features::has_deletion_vectors_on(&state.protocol, &state.metadata),
    };
    let level = isolation::level_of(Some(&state.metadata), inputs.default_isolation, warnings);
    let fold_inputs = FoldInputs {
        candidate: inputs.candidate,
        isolation: isolation::isolation_of(inputs.candidate, level),
        table,
        app_ids: &state.app_ids,
        files: inputs.files,
        rows: inputs.rows,
        blindness: inputs.blindness,
        identity_writers: inputs.identity_writers,
    };
    let winners = inputs.winners.iter().map(|winner| &**winner);
    let folded = match conflict::fold(fold_inputs, table_before(inputs, state), winners) {
        Ok(folded) => folded,
        Err(Conflict::Refused(refusal)) => return Err(refusal),
        Err(Conflict::Superseded(refusal)) => return Ok(Err(refusal)),
    };
    // After the fold, so that a winner that brought it is named.
    features::check_protocol(&state.protocol).map_err(|error| evolution::unsupported(&error))?;
    features::check_in_use(&state.metadata).map_err(|error| evolution::unsupported(&error))?;
    Ok(Ok(folded))
}

/// The table as the candidate read it: as it is now, unless a winner changed it.
fn table_before(inputs: Inputs<'_>, state: &TableState) -> Before {
    let changed = inputs.winners.iter().any(|winner| {
        let actions = &winner.actions;
        actions.protocol.is_some() || actions.metadata.is_some() || !actions.domains.is_empty()
    });
    match (changed, inputs.files) {
        (false, _) => Before::Known(Box::new(TableAtRead {
            protocol: state.protocol.clone(),
            metadata: state.metadata.clone(),
            domains: state.domains.clone(),
        })),
        (true, None) => Before::NotLoaded,
        (true, Some(files)) => {
            files.table_at_read().map_or(Before::Unknown, |table| Before::Known(Box::new(table.clone())))
        }
    }
}

/// What changes because the version moved. `None`: that hangs on what is not loaded yet.
fn rebase_of(
    inputs: Inputs<'_>,
    folded: Option<&Folded>,
    metadata: &Metadata,
    needed: &mut Needed,
) -> Result<Option<Rebase>, Refusal> {
    let candidate = inputs.candidate;
    let actions = &candidate.actions;
    let Some(protocol) = actions.protocol.as_ref().or(inputs.state.map(|state| &state.protocol)) else {
        return Err(Refusal::invalid("NO_TABLE", "the commit has no protocol action"));
    };
    let numbers_rows = rebase::numbers_rows(protocol, metadata);
    let domain = inputs.state.and_then(|state| state.domains.get(ROW_TRACKING_DOMAIN));
    let mark = match rebase::high_water_mark(domain) {
        // Nobody needs it now.
        Err(_) if !numbers_rows => -1,
        mark => mark?,
    };
    let mut mark_at_read = mark;
    let moved =
        |winner: &LoggedCommit| winner.actions.domains.iter().any(|domain| domain.domain == ROW_TRACKING_DOMAIN);
    if numbers_rows && inputs.winners.iter().any(|winner| moved(winner)) {
        match inputs.files {
            None => needed.table = true,
            Some(files) => match files.table_at_read() {
                Some(table) => mark_at_read = rebase::high_water_mark(table.domains.get(ROW_TRACKING_DOMAIN))?,
                None => return Err(numbers_unknown(candidate)),
            },
        }
    }
    if numbers_rows && inputs.state.is_some() {
        // A file that is added once more keeps its ids.
        needed.files.extend(candidate.add_keys.iter().filter(|key| candidate.removed.contains(*key)).cloned());
    }
    if needed.is_open(inputs.files) {
        needed.files.extend(sanity_files(inputs, candidate));
        return Ok(None);
    }
    let nothing = Default::default();
    let plan = rebase::Plan {
        candidate,
        version: inputs.latest.next(),
        protocol,
        metadata,
        metadata_before: inputs.state.map(|state| &state.metadata),
        mark_at_read,
        mark,
        files: inputs.files,
        backfilled: folded.map_or(&nothing, |folded| &folded.backfilled),
        dropped: folded.map_or(const { &BTreeSet::new() }, |folded| &folded.dropped),
        stripped: &folded.map(Folded::stripped).unwrap_or_default(),
        tombstones: &folded.map(Folded::tombstones).unwrap_or_default(),
        ids_not_preserved: folded.is_some_and(|folded| folded.ids_not_preserved),
    };
    rebase::plan(plan).map(Some)
}

fn numbers_unknown(candidate: &Candidate) -> Refusal {
    let text = format!(
        "the log no longer tells how far rows were numbered at version {}, which the commit read",
        candidate.read_version
    );
    Refusal::new(Exception::ConcurrentWriteException, "READ_VERSION_TOO_OLD", text, conflict::RETRY)
}

/// The rules of the table, held against the commit as it would be published, but for the files whose rows are merged
/// or moved back (`reconciled`): those are held against what the candidate read.
fn check_sanity(
    inputs: Inputs<'_>,
    rebase: &Rebase,
    (metadata, schema): (&Metadata, &Schema),
    reconciled: &BTreeSet<ObjectKey>,
    needed: &mut Needed,
) -> Result<(), Refusal> {
    let rebased = if rebase.is_empty() { None } else { Some(rebased(inputs, rebase)?) };
    let candidate = rebased.as_ref().unwrap_or(inputs.candidate);
    let protocol = candidate.actions.protocol.as_ref().or(inputs.state.map(|state| &state.protocol));
    let vectors_on = protocol.is_some_and(|protocol| features::has_deletion_vectors_on(protocol, metadata));
    protocol.map_or(Ok(()), |protocol| sanity::check_features(candidate, protocol))?;
    sanity::check_append_only(candidate, metadata)?;
    sanity::check_added_files(candidate, metadata, schema)?;
    if inputs.state.is_none() {
        sanity::check_deletion_vectors(candidate, vectors_on, None)?;
        return if candidate.remove_keys.is_empty() { Ok(()) } else { Err(removes_of_nothing()) };
    }
    let wanted = sanity_files(inputs, candidate);
    if wanted.is_empty() {
        return Ok(());
    }
    match inputs.files.filter(|files| wanted.iter().all(|key| files.knows(key))) {
        Some(files) => {
            sanity::check_live_files(candidate, files, reconciled)?;
            sanity::check_deletion_vectors(candidate, vectors_on, Some(files))
        }
        None => {
            needed.files.extend(wanted);
            Ok(())
        }
    }
}

fn removes_of_nothing() -> Refusal {
    Refusal::invalid("REMOVE_OF_UNKNOWN_FILE", "the commit creates a table and removes files from it")
}

fn sanity_files(inputs: Inputs<'_>, candidate: &Candidate) -> BTreeSet<ObjectKey> {
    inputs.state.map(|state| sanity::needed_files(candidate, state.paths.as_ref())).unwrap_or_default()
}

/// The candidate as it would be published, but for its timestamp.
fn rebased(inputs: Inputs<'_>, rebase: &Rebase) -> Result<Candidate, Refusal> {
    let candidate = inputs.candidate;
    let bytes = rebase::render(&candidate.bytes, rebase, None);
    Candidate::parse(inputs.root, candidate.read_version.next(), bytes)
}

fn two_creators(inputs: Inputs<'_>) -> Refusal {
    let operation = inputs.winners.first().and_then(|winner| winner.actions.operation());
    Refusal::new(
        Exception::ProtocolChangedException,
        "TABLE_EXISTS",
        "the commit creates the table, but somebody else created it first",
        "read the table and append to it",
    )
    .won_by(Version(0), operation)
}

fn parse_schema(metadata: &Metadata) -> Result<Schema, Refusal> {
    Schema::parse(&metadata.schema_string).map_err(|error| evolution::bad_schema(&error))
}

/// Metadata and schema after the commit; checks what the commit changes of them.
fn effective_table(inputs: Inputs<'_>) -> Result<(Metadata, Schema, Evolution), Refusal> {
    let actions = &inputs.candidate.actions;
    let old = inputs.state;
    if let Some(protocol) = &actions.protocol {
        check_protocol(old.map(|state| &state.protocol), protocol)?;
    }
    let Some(metadata) = actions.metadata.as_ref().or(old.map(|state| &state.metadata)) else {
        return Err(Refusal::invalid("NO_TABLE", "the commit has no metaData action"));
    };
    let schema = match &actions.metadata {
        // A commit may repeat the schema that the table has, however that is written.
        Some(new) if old.is_none_or(|state| state.metadata.schema_string != new.schema_string) => {
            Schema::parse_new(&new.schema_string).map_err(|error| evolution::bad_schema(&error))?
        }
        _ => parse_schema(metadata)?,
    };
    if let (Some(state), Some(protocol)) = (old, &actions.protocol) {
        let domains = domains_after(state, inputs.candidate);
        let after = evolution::TableAfter { metadata, schema: &schema, domains: &domains };
        evolution::check_protocol_change(&state.protocol, protocol, after)?;
    }
    let protocol = actions.protocol.as_ref().or(old.map(|state| &state.protocol));
    if let Some(protocol) = protocol.filter(|_| actions.protocol.is_some() || actions.metadata.is_some()) {
        features::check_features_of(protocol, metadata, &schema).map_err(|error| evolution::unsupported(&error))?;
    }
    let mut change_of = Evolution::default();
    if let Some(new) = &actions.metadata {
        let old_schema = old.map(|state| parse_schema(&state.metadata)).transpose()?;
        evolution::check_new_metadata(new, &schema, old.map(|state| &state.metadata).zip(old_schema.as_ref()))?;
        let is_replaced = evolution::mode_of(inputs.candidate) == evolution::Mode::Replace;
        identity::check_schema(old_schema.as_ref(), &schema, is_replaced)?;
        if let (Some(state), Some(old_schema)) = (old, old_schema) {
            let change = evolution::TableChange {
                old: (&state.metadata, &old_schema),
                new: (new, &schema),
                protocol: actions.protocol.as_ref().unwrap_or(&state.protocol),
                mode: evolution::mode_of(inputs.candidate),
            };
            change_of = evolution::check_metadata_change(change, Some(inputs.candidate))?;
        }
        features::check_in_use(new).map_err(|error| evolution::unsupported(&error))?;
    }
    Ok((metadata.clone(), schema, change_of))
}

fn check_protocol(old: Option<&Protocol>, new: &Protocol) -> Result<(), Refusal> {
    features::check_protocol(new).map_err(|error| evolution::unsupported(&error))?;
    if old.is_none() && features::is_catalog_managed(new) { Err(catalog_managed()) } else { Ok(()) }
}

fn domains_after(state: &TableState, candidate: &Candidate) -> BTreeMap<String, DomainMetadata> {
    let mut domains = state.domains.clone();
    for domain in &candidate.actions.domains {
        if domain.removed {
            domains.remove(&domain.domain);
        } else {
            domains.insert(domain.domain.clone(), domain.clone());
        }
    }
    domains
}

/// Catalog-managed tables are ratified by their catalog alone.
pub fn catalog_managed() -> Refusal {
    Refusal::new(
        Exception::UnsupportedTableException,
        "CATALOG_MANAGED",
        "the table is catalog-managed: its commits are ratified by the catalog's commit call, not here",
        "commit through the table's catalog",
    )
}

fn numbers_of(inputs: Inputs<'_>, schema: &Schema) -> Vec<Numbers> {
    let old = inputs.state.and_then(|state| parse_schema(&state.metadata).ok());
    identity::numbers(old.as_ref(), schema, inputs.candidate.actions.removes.is_empty())
}

fn timestamp_after(inputs: Inputs<'_>, metadata: &Metadata) -> Result<Option<i64>, Refusal> {
    if !features::has_in_commit_timestamps_on(metadata) {
        return Ok(None);
    }
    if inputs.candidate.actions.commit_info.is_none() {
        let text = "the table has in-commit timestamps, and the commit has no commitInfo to hold one";
        return Err(Refusal::invalid("IN_COMMIT_TIMESTAMP", text));
    }
    let last_ms = match inputs.state {
        None => 0,
        // The first commit with a timestamp comes after the time of the last one without.
        Some(state) if !features::has_in_commit_timestamps_on(&state.metadata) => {
            inputs.winners.last().map_or(0, |winner| winner.last_modified_ms)
        }
        Some(state) => state.in_commit_timestamp_ms.unwrap_or(0),
    };
    if last_ms == i64::MAX {
        return Err(Refusal::new(
            Exception::DamagedLogException,
            "IN_COMMIT_TIMESTAMP",
            format!("version {} has the in-commit timestamp {last_ms}, after which there is none", inputs.latest),
            "write the table anew: its last commit was written by a writer with a wrong clock",
        ));
    }
    Ok(Some(last_ms))
}
