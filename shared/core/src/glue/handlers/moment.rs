//! The moment that a request asks for: `QueryAsOfTime`, `TransactionId`, or now.

use serde_json::{Number, Value};

use super::super::GlueException;
use super::super::GlueExceptionName as Name;
use super::super::input::{Members, Read};
use crate::catalog::TableRef;
use crate::catalog::tables::read_definition;
use crate::commit::error::CommitError;
use crate::commit::follow::{self, Cursor};
use crate::commit::keys::ProposalId;
use crate::commit::proposal::{Proposal, Status, SyncState};
use crate::commit::proposals;
use crate::delta::Version;
use crate::partition::View;
use crate::ports::App;
use crate::store::Consistency;

/// Changes take effect some time after the moment that is written on them: machines' clocks differ, and a write may have to
/// be sent again. What is older than this does not change any more; what is not is asked for as the latest state.
const SETTLED_AFTER_MS: i64 = 5_000;

/// What a request says of the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Latest,
    Time { at_ms: i64 },
    Transaction(String),
}

/// Milliseconds of a number of seconds, which clients write as a decimal fraction: cut, but not for what a binary fraction
/// lacks. The model holds it within the years 1 to 9999.
fn ms_of(seconds: &Number) -> Option<i64> {
    if let Some(seconds) = seconds.as_i64() {
        return seconds.checked_mul(1000);
    }
    let us = (seconds.as_f64()? * 1e6).round();
    (us.abs() < 1e18).then_some((us / 1000.0).floor() as i64)
}

/// A moment as the wire has it.
fn seconds(ms: i64) -> String {
    super::super::render::seconds(ms).to_string()
}

impl Asked {
    pub(super) fn of(input: &Members) -> Result<Self, GlueException> {
        let time = match input.get("QueryAsOfTime") {
            None | Some(Value::Null) => None,
            Some(Value::Number(seconds)) => Some(ms_of(seconds)),
            Some(_) => Some(None),
        };
        match (input.text("TransactionId"), time) {
            (Some(_), Some(_)) => {
                Err(GlueException::invalid_input("TransactionId and QueryAsOfTime cannot be combined."))
            }
            (Some(id), None) => Ok(Self::Transaction(id.to_owned())),
            (None, Some(Some(at_ms))) => Ok(Self::Time { at_ms }),
            (None, Some(None)) => Err(GlueException::invalid_input("QueryAsOfTime is no time.")),
            (None, None) => Ok(Self::Latest),
        }
    }

    /// What all pages of a listing have in common.
    pub(super) fn scope(&self) -> String {
        match self {
            Self::Latest => String::new(),
            Self::Time { at_ms } => format!("time {at_ms}"),
            Self::Transaction(id) => format!("transaction {id}"),
        }
    }

    /// The moment in the past; none for the latest state.
    pub(super) async fn moment(&self, app: &App, table: &TableRef) -> Result<Option<i64>, GlueException> {
        let at_ms = match self {
            Self::Latest => return Ok(None),
            Self::Time { at_ms } => *at_ms,
            Self::Transaction(id) => match synced_ms(app, table, id).await? {
                // What follows the log never writes before a moment that it has recorded.
                Synced::Recorded(at_ms) => return Ok(Some(at_ms)),
                Synced::AtLeast(at_ms) => at_ms,
            },
        };
        let is_settled = at_ms < app.ports.clock.now_ms().saturating_sub(SETTLED_AFTER_MS);
        Ok(is_settled.then_some(at_ms))
    }

    /// The state of a table's partitions that this asks for; fixed by the first page of a listing.
    pub(super) async fn view(&self, app: &App, table: &TableRef) -> Result<View, GlueException> {
        Ok(self.moment(app, table).await?.map_or(View::Latest, |at_ms| View::AsOf { at_ms }))
    }
}

/// Refuses a state that is not, or no longer, kept. To be asked before and after reading it: the history may expire in
/// between.
pub(super) fn check_kept(app: &App, table: &TableRef, view: View) -> Result<(), GlueException> {
    let View::AsOf { at_ms } = view else { return Ok(()) };
    check_created(table, at_ms)?;
    let kept_ms = app.settings.history_retention_ms.max(0);
    let now_ms = app.ports.clock.now_ms();
    let from_ms = now_ms.saturating_sub(kept_ms);
    let told_from_ms = table.history.map_or(from_ms, |history| history.from_ms(now_ms)).min(now_ms);
    if at_ms < told_from_ms && from_ms < told_from_ms {
        let text = format!(
            "Partitions cannot be read as of {}: what was changed before {} was kept for less than the {} seconds of today. \
             Ask for a later moment.",
            seconds(at_ms),
            seconds(told_from_ms),
            seconds(kept_ms),
        );
        return Err(GlueException::invalid_input(text));
    }
    if at_ms < from_ms {
        let text = format!(
            "Partitions cannot be read as of {}: changes are kept for {} seconds, since {}. Ask for a later moment.",
            seconds(at_ms),
            seconds(kept_ms),
            seconds(from_ms),
        );
        return Err(GlueException::invalid_input(text));
    }
    Ok(())
}

/// Refuses a moment at which the table was not there.
pub(super) fn check_created(table: &TableRef, at_ms: i64) -> Result<(), GlueException> {
    if at_ms >= table.created_ms {
        return Ok(());
    }
    let (at, created) = (seconds(at_ms), seconds(table.created_ms));
    let text = format!("Table {} cannot be read as of {at}: it was created at {created}.", table.name);
    Err(GlueException::invalid_input(text))
}

fn told(error: CommitError) -> GlueException {
    match error {
        CommitError::Store(error) => error.into(),
        CommitError::Item(error) => error.into(),
        other => GlueException::internal(other),
    }
}

/// When a commit's partitions were in the catalog.
enum Synced {
    /// All of them, and none of a later commit.
    Recorded(i64),
    /// All of them.
    AtLeast(i64),
}

/// When the catalog had the last partition of a commit: `id` is that of its proposal.
async fn synced_ms(app: &App, table: &TableRef, id: &str) -> Result<Synced, GlueException> {
    let unknown = || GlueException::not_found(format!("Transaction {id} not found."));
    let proposal_id = ProposalId(uuid::Uuid::try_parse(id).map_err(|_| unknown())?);
    let definition = read_definition(&app.ports, &table.table_id).await?;
    let is_on = definition.as_ref().is_none_or(follow::is_on);
    let root = definition.and_then(|definition| definition.location().ok().flatten()).ok_or_else(unknown)?;
    let found = proposals::by_id(app.ports.items.as_ref(), proposal_id).await.map_err(told)?;
    let proposal = found.into_iter().filter(|proposal| proposal.root == root).max_by_key(|one| one.generation);
    let proposal = proposal.ok_or_else(unknown)?;
    let cursor = follow::load(&app.ports, &table.table_id).await.map_err(told)?;
    match (proposal.status.version_in_log(), cursor) {
        (Some(version), Some(cursor)) => {
            let follows = if is_on { Follows::Yes } else { Follows::No };
            recorded(app, table, &proposal, version, (&cursor, follows)).await
        }
        _ => moment_of(&proposal).ok_or_else(unknown)?.map(Synced::AtLeast),
    }
}

/// Whether a table follows its log now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Follows {
    Yes,
    No,
}

/// Of a table that follows its log, or did.
async fn recorded(
    app: &App,
    table: &TableRef,
    proposal: &Proposal,
    version: Version,
    (cursor, follows): (&Cursor, Follows),
) -> Result<Synced, GlueException> {
    let (id, generation) = (proposal.id, proposal.generation);
    let key = follow::synced_key(&table.table_id, generation, version);
    if let Some(item) = app.ports.items.get(&key, Consistency::Strong).await? {
        return Ok(Synced::Recorded(follow::decode_synced(&item)?));
    }
    let is_behind = (generation, version) > (cursor.generation, cursor.version);
    if is_behind && follows == Follows::No {
        let text = format!(
            "The catalog does not have the partitions of transaction {id}: the table does not follow its log ({} is off).",
            follow::SETTING
        );
        return Err(GlueException::invalid_input(text));
    }
    if is_behind {
        let text = format!("Transaction {id} is committed, and its partitions are not in the catalog yet. Try again.");
        return Err(GlueException::new(Name::ResourceNotReady, text));
    }
    let text = format!(
        "The catalog does not have the partitions as transaction {id} left them: it began to follow the table later, \
         was made from the whole log, or forgot."
    );
    Err(GlueException::invalid_input(text))
}

/// None if it never became a commit.
fn moment_of(proposal: &Proposal) -> Option<Result<i64, GlueException>> {
    let id = proposal.id;
    let not_ready = |why: &str| GlueException::new(Name::ResourceNotReady, format!("Transaction {id} {why}"));
    match (proposal.status, &proposal.sync, proposal.synced_ms) {
        (Status::Rejected | Status::Superseded | Status::Expired, _, _) => None,
        (Status::Committed { .. } | Status::AlreadyVisible { .. }, _, Some(synced_ms)) => Some(Ok(synced_ms)),
        (Status::AlreadyVisible { .. }, _, None) => {
            let text = format!("Transaction {id} was not made here: the catalog keeps no moment of its partitions.");
            Some(Err(GlueException::invalid_input(text)))
        }
        (Status::Committed { .. }, SyncState::Done(why), None) => {
            let text = format!("The catalog never had the partitions of transaction {id}: {why}.");
            Some(Err(GlueException::invalid_input(text)))
        }
        (Status::Committed { .. }, _, None) => {
            Some(Err(not_ready("is committed, and its partitions are not in the catalog yet. Try again.")))
        }
        (status, _, _) => Some(Err(not_ready(&format!("is {}, not committed. Try again.", status.name())))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn asked(input: Value) -> Result<Asked, GlueException> {
        Asked::of(input.as_object().unwrap())
    }

    #[test]
    fn times_are_read_to_the_millisecond() {
        for (seconds, at_ms) in [
            (json!(0), 0),
            (json!(1_704_164_645), 1_704_164_645_000),
            (json!(1_704_164_645.678), 1_704_164_645_678),
            (json!(1_704_164_645.678_901), 1_704_164_645_678),
            (json!(1_704_164_645.999_9), 1_704_164_645_999),
            (json!(-86_400), -86_400_000),
            (json!(-0.000_5), -1),
            (json!(1.708699485E9), 1_708_699_485_000),
            (json!(253_402_300_799.999), 253_402_300_799_999),
        ] {
            assert_eq!(asked(json!({ "QueryAsOfTime": seconds })), Ok(Asked::Time { at_ms }), "{seconds}");
        }
        for ms in (1_700_000_000_000_i64..).step_by(7).take(3_000) {
            let time = super::super::super::render::seconds(ms);
            assert_eq!(asked(json!({ "QueryAsOfTime": time })), Ok(Asked::Time { at_ms: ms }));
        }
    }

    #[test]
    fn one_of_both_and_absent_is_now() {
        assert_eq!(asked(json!({})), Ok(Asked::Latest));
        assert_eq!(asked(json!({ "QueryAsOfTime": null })), Ok(Asked::Latest));
        assert_eq!(asked(json!({ "TransactionId": "x" })), Ok(Asked::Transaction("x".to_owned())));
        assert!(asked(json!({ "TransactionId": "x", "QueryAsOfTime": 1 })).is_err());
        let scopes: std::collections::BTreeSet<String> =
            [Asked::Latest, Asked::Time { at_ms: 1 }, Asked::Time { at_ms: 2 }, Asked::Transaction("1".to_owned())]
                .iter()
                .map(Asked::scope)
                .collect();
        assert_eq!(scopes.len(), 4);
    }
}
