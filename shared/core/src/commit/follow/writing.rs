//! One step of following: some partitions, their numbers and the cursor, in one transaction.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json};

use super::Counts;
use super::cursor::{Cursor, write_synced};
use super::tally::{Kept, Part, Parts, Tally};
use super::trouble::Trouble;
use crate::catalog::TableRef;
use crate::commit::context::{CLAIM_MS, Context, Transacted};
use crate::delta::Version;
use crate::location::Location;
use crate::partition::{Effect, FollowPlan, FollowedLocation, FollowedPartition, Target, after_follow, plan_follow};
use crate::store::{Consistency, Key, Write, get_every, item_size_bytes};

/// Partitions that are planned together. A change of one is three writes, and DynamoDB takes 100 in a transaction.
const PLANNED_AT_ONCE: usize = 30;
const WRITES_MAX: usize = 96;
/// A transaction takes 4 MB.
const WRITES_MAX_BYTES: usize = 3_500_000;

/// What a part is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// What a commit changes of the numbers.
    Change,
    /// The numbers.
    Whole,
}

/// How a step ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stepped {
    Done,
    /// Somebody else was at the cursor, or at a partition: read everything again.
    Moved,
    /// The numbers that are kept do not go with the log: begin with the whole log.
    Inconsistent,
}

/// What a step is made for.
pub(super) struct Writing<'a> {
    pub ctx: Context<'a>,
    pub root: &'a Location,
    pub table: &'a TableRef,
    /// The table's StorageDescriptor, for partitions that appear.
    pub descriptor: &'a Map<String, Json>,
}

/// What the parts are written for.
#[derive(Clone, Debug)]
pub(super) enum Goal {
    /// A version: the cursor as it is once all parts are written.
    Version(Box<Cursor>),
    /// The partitions of a rebuild, in order.
    Rebuild,
    /// Those that a rebuild takes away.
    Removal,
}

impl Goal {
    fn after(&self, cursor: &Cursor, values: &[String]) -> Cursor {
        let mut next = cursor.clone();
        match self {
            Goal::Version(_) => next.progress = Some(values.to_vec()),
            Goal::Rebuild => {
                if let Some(rebuild) = &mut next.rebuild {
                    rebuild.after = Some(values.to_vec());
                }
            }
            Goal::Removal => {}
        }
        next
    }
}

impl Writing<'_> {
    /// Carries out all parts, in order. The cursor moves with each transaction; with the last one to its end.
    pub async fn carry_out(
        &self,
        cursor: &mut Cursor,
        parts: &Parts,
        meaning: Meaning,
        goal: &Goal,
        counts: &mut Counts,
    ) -> Result<Stepped, Trouble> {
        let all: Vec<(&Vec<String>, &Part)> = parts.iter().collect();
        let mut rest = all.as_slice();
        loop {
            let (chunk, later) = rest.split_at(rest.len().min(PLANNED_AT_ONCE));
            self.ctx.check_time("following the log", CLAIM_MS)?;
            let changed_ms = self.moment(cursor);
            let planned = match self.plan(chunk, meaning, changed_ms).await? {
                Some(planned) => planned,
                None => return Ok(Stepped::Inconsistent),
            };
            let taken = fitting(&planned);
            let is_last = later.is_empty() && taken == planned.len();
            let planned = planned.get(..taken).unwrap_or_default();
            let values = chunk.get(..taken).unwrap_or_default().last().map(|(values, _)| values.as_slice());
            let last_ms = planned.iter().map(|one| one.plan.changed_ms).max().unwrap_or(changed_ms);
            let has_writes = planned.iter().any(|one| !one.writes.is_empty());
            let end = match goal {
                Goal::Version(next) if is_last => Some((**next).clone()),
                _ => None,
            };
            let next = match (&end, values) {
                (Some(next), _) => next.clone(),
                (None, Some(values)) => goal.after(cursor, values),
                (None, None) => return Ok(Stepped::Done),
            };
            // A rebuild that finds everything as it should be leaves no trace but its end.
            if has_writes || end.is_some() {
                let next = Cursor { last_ms: last_ms.max(cursor.last_ms), ..next };
                let synced = end.map(|next| next.version);
                if !self.write(cursor, next, planned, synced, counts).await? {
                    return Ok(Stepped::Moved);
                }
            }
            if is_last {
                return Ok(Stepped::Done);
            }
            rest = rest.get(taken..).unwrap_or_default();
        }
    }

    /// Later than everything that was written for earlier versions.
    fn moment(&self, cursor: &Cursor) -> i64 {
        let begins = cursor.progress.is_none() && cursor.rebuild.as_ref().is_none_or(|rebuild| rebuild.after.is_none());
        self.ctx.now_ms().max(cursor.last_ms.saturating_add(i64::from(begins)))
    }

    /// `None`: the numbers do not go together.
    async fn plan(
        &self,
        chunk: &[(&Vec<String>, &Part)],
        meaning: Meaning,
        changed_ms: i64,
    ) -> Result<Option<Vec<Planned>>, Trouble> {
        let ports = self.ctx.ports();
        let keys: Vec<Key> = chunk.iter().map(|(values, _)| Kept::key_of(self.table, values)).collect();
        let found = get_every(&*ports.items, &*ports.clock, &keys, Consistency::Strong).await?;
        let mut kept = BTreeMap::new();
        for (key, item) in &found {
            kept.insert(key, Kept::decode(item)?);
        }
        let (mut wanted, mut notes) = (Vec::new(), Vec::new());
        for ((values, part), key) in chunk.iter().zip(&keys) {
            let old = kept.get(key);
            let before = match meaning {
                Meaning::Change => old.map(|old| old.tally).unwrap_or_default(),
                Meaning::Whole => Tally::default(),
            };
            let tally = before.plus(part.tally);
            if tally.files < 0 || tally.bytes < 0 || tally.rows < 0 || tally.without_rows < 0 {
                return Ok(None);
            }
            let location = self.location(old, part);
            let is_gone = tally.files == 0;
            let target = if is_gone {
                Target::Gone
            } else {
                let location = FollowedLocation { now: location.clone(), before: old.map(|old| old.location.clone()) };
                Target::Present { location, parameters: tally.parameters() }
            };
            wanted.push(FollowedPartition { values: (*values).clone(), target });
            let next = Kept { values: (*values).clone(), tally, location };
            notes.push(match (is_gone, old) {
                (true, None) => None,
                (true, Some(_)) => Some(Kept::forget(self.table, values)),
                (false, Some(old)) if *old == next => None,
                (false, _) => Some(next.write(self.table)),
            });
        }
        let settings = &self.ctx.app.settings;
        let plans = plan_follow(ports, settings, self.table, self.descriptor, &wanted, changed_ms).await?;
        let planned = plans.into_iter().zip(notes).map(|(plan, note)| {
            let writes = plan.writes.iter().cloned().chain(note).collect();
            Planned { plan, writes }
        });
        Ok(Some(planned.collect()))
    }

    /// Files of one partition in two places have no common folder but the table's.
    fn location(&self, old: Option<&Kept>, part: &Part) -> String {
        let folder = part.folder.as_ref().unwrap_or(self.root).to_string();
        match old {
            None => folder,
            Some(old) if !part.has_added || old.location == folder => old.location.clone(),
            Some(_) => self.root.to_string(),
        }
    }

    /// False: a condition did not hold, nothing was written.
    async fn write(
        &self,
        cursor: &mut Cursor,
        next: Cursor,
        planned: &[Planned],
        synced: Option<Version>,
        counts: &mut Counts,
    ) -> Result<bool, Trouble> {
        let (ctx, table) = (self.ctx, &self.table.table_id);
        let next = Cursor { revision: ctx.new_revision(), updated_ms: ctx.now_ms(), ..next };
        let mut writes = vec![cursor.write(table, &next)];
        writes.extend(planned.iter().flat_map(|one| one.writes.iter().cloned()));
        if let Some(version) = synced {
            let kept_for_ms = ctx.app.settings.history_retention_ms;
            writes.push(write_synced(table, next.generation, version, next.last_ms, kept_for_ms));
        }
        if ctx.transact(&writes).await? != Transacted::Done {
            return Ok(false);
        }
        *cursor = next;
        let effects: Vec<Effect> = planned.iter().map(|one| one.plan.effect.clone()).collect();
        counts.count(&effects);
        after_follow(ctx.ports(), self.table, &effects).await;
        Ok(true)
    }
}

struct Planned {
    plan: FollowPlan,
    /// Those of the plan, and that of the numbers.
    writes: Vec<Write>,
}

/// How many of them go into one transaction; at least one.
fn fitting(planned: &[Planned]) -> usize {
    let (mut count, mut bytes) = (0, 0);
    for (at, one) in planned.iter().enumerate() {
        count += one.writes.len();
        bytes += one.writes.iter().map(size_bytes).sum::<usize>();
        if at > 0 && (count > WRITES_MAX || bytes > WRITES_MAX_BYTES) {
            return at;
        }
    }
    planned.len()
}

fn size_bytes(write: &Write) -> usize {
    match write {
        Write::Put { key, item, .. } => item_size_bytes(key, item),
        _ => 0,
    }
}
