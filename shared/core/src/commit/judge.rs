//! The judge: decides on a candidate from what was loaded. Pure; reading and writing are the caller's business.

use std::collections::BTreeSet;

use super::candidate::Candidate;
use super::conflict::{Conflict, check_winner, isolation_of};
use super::evolution::{self, Evolution};
use super::facts::FileFacts;
use super::keys::content_hash;
use super::rebase::Rebase;
use super::sanity;
use super::table_facts::TableFacts;
use super::table_state::TableState;
use super::verdict::{Exception, Refusal};
use super::version_record::Blindness;
use crate::delta::features;
use crate::delta::schema::Schema;
use crate::delta::snapshot::LoggedCommit;
use crate::delta::{Metadata, Protocol, Version};
use crate::location::Location;
use crate::ports::IsolationLevel;
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
    pub default_isolation: IsolationLevel,
}

/// What must hold of the files, and what is to be published.
#[derive(Clone, Debug, PartialEq)]
pub struct Admission {
    pub version: Version,
    /// In force after the commit.
    pub metadata: Metadata,
    pub schema: Schema,
    pub blindness: Blindness,
    pub warnings: Vec<String>,
    /// The table has in-commit timestamps: the new one must be later than this.
    pub timestamp_after_ms: Option<i64>,
    /// What else changes because the version moved.
    pub rebase: Rebase,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Judgement {
    Admit(Box<Admission>),
    Refuse(Refusal),
    /// Not needed any more: no version, no failure.
    Supersede(Refusal),
    /// Whether and how these files are live is needed to decide.
    NeedsFiles(BTreeSet<ObjectKey>),
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
    if let Some(version) = landed(inputs)? {
        return Ok(Judgement::Landed { version });
    }
    let mut warnings = candidate.warnings.clone();
    if let Some(state) = inputs.state {
        if is_creation(candidate) {
            return Err(two_creators(inputs));
        }
        features::check_protocol(&state.protocol).map_err(|error| evolution::unsupported(&error))?;
        let schema = parse_schema(&state.metadata)?;
        features::check_in_use(&state.metadata, &schema).map_err(|error| evolution::unsupported(&error))?;
        let facts = TableFacts {
            root: inputs.root,
            metadata: &state.metadata,
            schema: &schema,
            has_deletion_vectors: features::has_deletion_vectors_on(&state.protocol, &state.metadata),
        };
        let isolation = isolation_of(candidate, Some(&state.metadata), inputs.default_isolation, &mut warnings);
        for winner in inputs.winners {
            match check_winner(candidate, isolation, facts, winner) {
                Ok(()) => {}
                Err(Conflict::Refused(refusal)) => return Err(refusal),
                Err(Conflict::Superseded(refusal)) => return Ok(Judgement::Supersede(refusal)),
            }
        }
    }
    let (metadata, schema, evolution) = effective_table(inputs)?;
    warnings.extend(evolution.explained.iter().cloned());
    sanity::check_append_only(candidate, &metadata)?;
    sanity::check_added_files(candidate, &metadata, &schema)?;
    if let Some(state) = inputs.state {
        let wanted = sanity::needed_files(candidate, state.paths.as_ref());
        if !wanted.is_empty() || evolution.needs_full_overwrite {
            match inputs.files.filter(|files| wanted.iter().all(|key| files.knows(key))) {
                Some(files) => {
                    sanity::check_live_files(candidate, files)?;
                    evolution.check_overwrite(candidate, files)?;
                }
                None => return Ok(Judgement::NeedsFiles(wanted)),
            }
        }
    } else if !candidate.remove_keys.is_empty() {
        return Err(Refusal::invalid("REMOVE_OF_UNKNOWN_FILE", "the commit creates a table and removes files from it"));
    }
    Ok(Judgement::Admit(Box::new(Admission {
        version: inputs.latest.next(),
        timestamp_after_ms: timestamp_after(inputs, &metadata)?,
        metadata,
        schema,
        blindness: if candidate.is_blind() { Blindness::Blind } else { Blindness::Reading },
        warnings,
        rebase: Rebase::default(),
    })))
}

/// An earlier attempt of the same content, or of the same transaction, may have landed anywhere since (J8). A transaction
/// id alone proves nothing: under one id with other actions, the candidate's own rows are nowhere yet.
fn landed(inputs: Inputs<'_>) -> Result<Option<Version>, Refusal> {
    let candidate = inputs.candidate;
    for winner in inputs.winners {
        if winner.bytes.len() == candidate.bytes.len() && content_hash(&winner.bytes) == candidate.sha256 {
            return Ok(Some(winner.version));
        }
        let txn_id = winner.actions.commit_info.as_ref().and_then(|info| info.text("txnId"));
        if candidate.txn_id().is_none() || candidate.txn_id() != txn_id {
            continue;
        }
        if candidate.actions.same_but_for_info(&winner.actions) {
            return Ok(Some(winner.version));
        }
        return Err(Refusal::new(
            Exception::ConcurrentTransactionException,
            "TXN_ID_REUSED",
            format!("version {} has the same txnId and does something else", winner.version),
            "give every transaction a txnId of its own",
        )
        .won_by(winner.version, winner.actions.operation()));
    }
    Ok(None)
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
        check_protocol(old.map(|state| &state.protocol), protocol, inputs)?;
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
    let protocol = actions.protocol.as_ref().or(old.map(|state| &state.protocol));
    if let Some(protocol) = protocol.filter(|_| actions.protocol.is_some() || actions.metadata.is_some()) {
        features::check_features_of(protocol, metadata, &schema).map_err(|error| evolution::unsupported(&error))?;
    }
    let mut change_of = Evolution::default();
    if let Some(new) = &actions.metadata {
        evolution::check_new_metadata(new, &schema)?;
        if let Some(state) = old {
            let old_schema = parse_schema(&state.metadata)?;
            let change = evolution::TableChange {
                old: (&state.metadata, &old_schema),
                new: (new, &schema),
                protocol: actions.protocol.as_ref().unwrap_or(&state.protocol),
                mode: evolution::mode_of(inputs.candidate),
            };
            change_of = evolution::check_metadata_change(change, Some(inputs.candidate))?;
        }
        features::check_in_use(new, &schema).map_err(|error| evolution::unsupported(&error))?;
    }
    Ok((metadata.clone(), schema, change_of))
}

fn check_protocol(old: Option<&Protocol>, new: &Protocol, inputs: Inputs<'_>) -> Result<(), Refusal> {
    features::check_protocol(new).map_err(|error| evolution::unsupported(&error))?;
    let Some(old) = old else {
        return if features::is_catalog_managed(new) { Err(catalog_managed()) } else { Ok(()) };
    };
    // An upgrading REORG rewrites the whole table: nothing may have happened beside it (J7).
    let is_reorg = inputs.candidate.operation().is_some_and(|name| name.to_ascii_uppercase().starts_with("REORG"));
    if let Some(winner) = inputs.winners.first().filter(|_| is_reorg) {
        return Err(Refusal::new(
            Exception::ProtocolChangedException,
            "PROTOCOL_CHANGE",
            "a REORG that upgrades the protocol admits no concurrent commits",
            "run it again while nobody else writes",
        )
        .won_by(winner.version, winner.actions.operation()));
    }
    evolution::check_protocol_change(old, new)
}

/// Catalog-managed tables are ratified by their catalog alone (K7).
pub fn catalog_managed() -> Refusal {
    Refusal::new(
        Exception::UnsupportedTableException,
        "CATALOG_MANAGED",
        "the table is catalog-managed: its commits are ratified by the catalog's commit call, not here",
        "commit through the table's catalog",
    )
}

fn timestamp_after(inputs: Inputs<'_>, metadata: &Metadata) -> Result<Option<i64>, Refusal> {
    if !features::has_in_commit_timestamps_on(metadata) {
        return Ok(None);
    }
    if inputs.candidate.actions.commit_info.is_none() {
        let text = "the table has in-commit timestamps, and the commit has no commitInfo to hold one";
        return Err(Refusal::invalid("IN_COMMIT_TIMESTAMP", text));
    }
    match inputs.state {
        None => Ok(Some(0)),
        Some(state) => match state.in_commit_timestamp_ms {
            Some(last_ms) => Ok(Some(last_ms)),
            None => Err(Refusal::new(
                Exception::DamagedLogException,
                "IN_COMMIT_TIMESTAMP",
                format!("version {} lacks the in-commit timestamp that the table demands", inputs.latest),
                "repair the table: its last commit was written by a writer that does not know the feature",
            )),
        },
    }
}
