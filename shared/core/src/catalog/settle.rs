//! Making the items of a table what its head says: one step after the other, each decided by the head and the clock.
//!
//! Requests act on the head they read, for as long as a function can run. So what an older head still relies on (rows in
//! an earlier epoch, entries of an index) stays where it is until every request that read such a head has ended, and what
//! an older head leaves out (entries of a new index) is written when nobody can write by such a head any more. That takes
//! less: only functions that write partitions count, and no long one does. The worker itself moves partitions of earlier
//! epochs, by an old head perhaps; but entries are looked for when those are gone, and a move needs its partition there.
//!
//! Every step can be done again and by several workers at once. Progress is kept in the item of open work; whoever wrote
//! that last goes on, the others stop.

use super::purge::{LONGEST_FUNCTION_MS, LONGEST_WRITER_MS, Outcome, SETTLED_MS, is_short, remove_page, send_on};
use super::rounds::Rounds;
use super::tables::find_table;
use super::work::CatalogWork;
use super::work_item::{self, GRACE_MS, OpenWork, Pass};
use super::writes::{Refused, put};
use super::{CatalogError, IndexRef, IndexState, Revision, TableId, TableRef, table_head_item};
use crate::limits::GATEWAY_TIMEOUT_MS;
use crate::partition::{self, Rows};
use crate::ports::{Deadline, Ports};
use crate::store::{Condition, Consistency, Query, Sort, SortRange, Table, WriteError};

/// Items of one page: so many are worked on between two looks at the clock.
const PAGE_ITEMS: usize = 256;

/// What is to be done next.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// Indexes that are being deleted are gone for callers.
    Hide,
    /// Entries of an index, by number, for the partitions of the current epoch.
    Backfill(u32),
    /// Everything in earlier epochs goes to the current one.
    Rekey,
    /// Entries of an index that is gone, by number.
    Sweep(u32),
    /// Nothing before this moment.
    Wait(i64),
    Done,
}

impl Step {
    /// A name for the pass that carries it out: one for the same step of another epoch is another pass.
    fn id(&self, table: &TableRef) -> String {
        format!("{self:?} in epoch {}", table.epoch)
    }
}

/// When requests that knew the table without what happened at `changed_ms` have ended.
fn ended_ms(changed_ms: i64) -> i64 {
    changed_ms.saturating_add(LONGEST_FUNCTION_MS)
}

/// When writers that knew the table without this index have ended. The worker saw the index at `seen_ms`, so nobody has read
/// such a head since; nor has anybody after the request that made the index was over.
fn writers_ended_ms(index: &IndexRef, seen_ms: i64) -> i64 {
    let request_ms = i64::try_from(GATEWAY_TIMEOUT_MS).unwrap_or(i64::MAX);
    let read_ms = seen_ms.min(index.since_ms.saturating_add(request_ms));
    read_ms.saturating_add(LONGEST_WRITER_MS).saturating_add(SETTLED_MS)
}

fn plan_step(table: &TableRef, now_ms: i64) -> Step {
    let mut wait_until_ms: Option<i64> = None;
    let mut wait = |until_ms: i64| wait_until_ms = Some(wait_until_ms.map_or(until_ms, |other| other.min(until_ms)));
    if table.indexes.iter().any(|index| index.state == IndexState::Deleting) {
        return Step::Hide;
    }
    // Not before the latest change of keys has settled: a request that knows an earlier head looks for partitions in the
    // epochs that this names, and nowhere else.
    if let Some(newest) = table.older_epochs.first() {
        let due_ms = ended_ms(newest.replaced_ms);
        if now_ms >= due_ms {
            return Step::Rekey;
        }
        wait(due_ms);
    } else if let Some(index) = table.indexes.iter().find(|index| index.is_being_filled()) {
        return Step::Backfill(index.number);
    }
    for index in table.indexes.iter().filter(|index| index.state == IndexState::Removed) {
        let due_ms = ended_ms(index.since_ms);
        if now_ms >= due_ms {
            return Step::Sweep(index.number);
        }
        wait(due_ms);
    }
    wait_until_ms.map_or(Step::Done, Step::Wait)
}

/// When a step may begin that was first planned at `planned_ms`.
fn begins_ms(table: &TableRef, step: &Step, planned_ms: i64) -> i64 {
    match step {
        Step::Backfill(number) => {
            let index = table.indexes.iter().find(|index| index.number == *number);
            index.map_or(planned_ms, |index| writers_ended_ms(index, planned_ms))
        }
        _ => planned_ms,
    }
}

/// Does what is open for a table, as far as the time allows.
pub(super) async fn settle_table(ports: &Ports, id: &TableId, deadline: Deadline) -> Result<Outcome, CatalogError> {
    let item = ports.items.get(&work_item::key(id), Consistency::Strong).await?;
    let Some(item) = item else { return Ok(Outcome::NothingToDo) };
    let mut settling = Settling { ports, deadline, open: work_item::decode(&item)? };
    let pass = settling.open.pass.take();
    if !settling.save(deadline.0, pass.clone()).await? {
        return Ok(Outcome::TakenOver);
    }
    settling.run(pass).await
}

/// A worker at the work of one table.
struct Settling<'a> {
    ports: &'a Ports,
    deadline: Deadline,
    open: OpenWork,
}

enum Passed {
    Finished(Pass),
    Stopped(Pass),
}

impl Settling<'_> {
    fn now_ms(&self) -> i64 {
        self.ports.clock.now_ms()
    }

    /// Writes down how far the work is; `false` if somebody else has taken it over.
    async fn save(&mut self, expected_ms: i64, pass: Option<Pass>) -> Result<bool, CatalogError> {
        let revision = Revision::fresh(self.ports.ids.as_ref());
        let next = OpenWork { revision, expected_ms, pass, ..self.open.clone() };
        let condition = Condition::equals("revision", self.open.revision.as_str());
        match put(self.ports, &work_item::key(&next.table_id), &work_item::encode(&next), &condition).await {
            Ok(()) => self.open = next,
            Err(Refused::Condition(_)) => return Ok(false),
            Err(Refused::Store(error)) => return Err(error.into()),
        }
        Ok(true)
    }

    /// Forgets the work, unless more was recorded meanwhile.
    async fn forget(&self) -> Result<Outcome, CatalogError> {
        let condition = Condition::equals("revision", self.open.revision.as_str());
        match self.ports.items.delete(&work_item::key(&self.open.table_id), condition).await {
            Ok(()) => Ok(Outcome::Done),
            Err(WriteError::ConditionFailed { .. }) => Ok(Outcome::TakenOver),
            Err(WriteError::Store(error)) => Err(error.into()),
        }
    }

    /// Leaves the rest to a message that arrives at `resume_ms`.
    async fn leave(&mut self, resume_ms: i64, pass: Option<Pass>) -> Result<Outcome, CatalogError> {
        if !self.save(resume_ms.saturating_add(GRACE_MS), pass).await? {
            return Ok(Outcome::TakenOver);
        }
        let delay_ms = u64::try_from(resume_ms.saturating_sub(self.now_ms())).unwrap_or(0);
        send_on(self.ports, &CatalogWork::SettleTable(self.open.table_id.clone()), delay_ms).await
    }

    /// The table; none if it has been dropped (then a tombstone has all further work).
    async fn table(&self) -> Result<Option<TableRef>, CatalogError> {
        let (items, clock) = (self.ports.items.as_ref(), self.ports.clock.as_ref());
        match find_table(items, clock, &self.open.database, &self.open.table).await {
            Ok(table) => Ok(Some(table).filter(|table| table.table_id == self.open.table_id)),
            Err(CatalogError::DatabaseNotFound(_) | CatalogError::TableNotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn run(&mut self, mut saved: Option<Pass>) -> Result<Outcome, CatalogError> {
        loop {
            let Some(table) = self.table().await? else { return self.forget().await };
            let step = plan_step(&table, self.now_ms());
            match step {
                Step::Done => return self.forget().await,
                Step::Wait(until_ms) => return self.leave(until_ms, None).await,
                Step::Hide => self.change_head(hide).await?,
                step => {
                    let id = step.id(&table);
                    let pass = saved.take().filter(|pass| pass.step == id);
                    let fresh = Pass { step: id, planned_ms: self.now_ms(), changed: 0, at: None };
                    let pass = pass.unwrap_or(fresh);
                    let begins_ms = begins_ms(&table, &step, pass.planned_ms);
                    if self.now_ms() < begins_ms {
                        return self.leave(begins_ms, Some(pass)).await;
                    }
                    match self.pass(&table, &step, pass).await? {
                        Passed::Stopped(pass) => return self.leave(self.now_ms(), Some(pass)).await,
                        Passed::Finished(pass) => {
                            self.change_head(|now| after_pass(now, &table, &step, &pass)).await?;
                        }
                    }
                }
            }
        }
    }

    /// Changes the table's head as `plan` says of what it is now; nothing to change, or no table, is fine.
    async fn change_head(&self, plan: impl Fn(&TableRef) -> Option<TableRef>) -> Result<(), CatalogError> {
        let mut rounds = Rounds::default();
        loop {
            let Some(current) = self.table().await? else { return Ok(()) };
            let Some(next) = plan(&current) else { return Ok(()) };
            let next = TableRef { revision: Revision::fresh(self.ports.ids.as_ref()), ..next };
            let key = table_head_item::key(&next.database, &next.name);
            let condition = Condition::equals("revision", current.revision.as_str());
            match put(self.ports, &key, &table_head_item::encode(&next), &condition).await {
                Ok(()) => return Ok(()),
                Err(Refused::Condition(_)) => {}
                Err(Refused::Store(error)) => return Err(error.into()),
            }
            if !rounds.again(self.ports).await {
                return Err(CatalogError::OutOfTime);
            }
        }
    }

    async fn pass(&self, table: &TableRef, step: &Step, mut pass: Pass) -> Result<Passed, CatalogError> {
        let places = places(table, step);
        // A place that is not among them is one of an earlier plan: from the beginning.
        let first = pass.at.as_ref().and_then(|(at, _)| places.iter().position(|place| place.pk == *at));
        let mut after = pass.at.take().filter(|_| first.is_some()).and_then(|(_, after)| after);
        for place in places.iter().skip(first.unwrap_or(0)) {
            loop {
                if is_short(self.deadline, self.ports.clock.as_ref()) {
                    pass.at = Some((place.pk.clone(), after));
                    return Ok(Passed::Stopped(pass));
                }
                let mut query = Query::new(Table::Partitions, place.pk.clone(), SortRange::All);
                query.start_after = after.take().map(Sort::Bytes);
                query.limit = Some(PAGE_ITEMS);
                let page = self.ports.items.query(&query).await?;
                let changed = match &place.work {
                    Work::Remove => remove_page(self.ports, page.items).await?,
                    Work::Move(rows) => partition::rekey_page(self.ports, table, *rows, page.items).await?,
                    Work::Enter(number) => partition::backfill_page(self.ports, table, *number, page.items).await?,
                };
                pass.changed = pass.changed.saturating_add(i64::try_from(changed).unwrap_or(i64::MAX));
                match page.next {
                    Some(Sort::Bytes(next)) => after = Some(next),
                    _ => break,
                }
            }
        }
        Ok(Passed::Finished(pass))
    }
}

/// What is done with the items of a place.
enum Work {
    Move(Rows),
    Enter(u32),
    Remove,
}

struct Place {
    pk: String,
    work: Work,
}

/// The places that a step goes through, in order.
fn places(table: &TableRef, step: &Step) -> Vec<Place> {
    let (id, shards) = (&table.table_id, table.shards);
    let mut places = Vec::new();
    let mut add = |pks: Vec<String>, work: fn() -> Work| {
        places.extend(pks.into_iter().map(|pk| Place { pk, work: work() }));
    };
    match step {
        Step::Backfill(number) => {
            let number = *number;
            let pks = partition::places_of(id, table.epoch, shards);
            return pks.map(|(_, pk)| Place { pk, work: Work::Enter(number) }).collect();
        }
        Step::Sweep(number) => {
            for epoch in table.older_epochs.iter().map(|older| older.epoch).chain([table.epoch]) {
                add(partition::index_places_of(id, epoch, *number, shards).collect(), || Work::Remove);
            }
        }
        Step::Rekey => {
            // Oldest first, as readers do: a row is met where it is or where it has gone to.
            for epoch in table.older_epochs.iter().rev().map(|older| older.epoch) {
                let rows = partition::places_of(id, epoch, shards).map(|(_, pk)| pk);
                add(rows.collect(), || Work::Move(Rows::Current));
                let history = partition::history_places_of(id, epoch, shards).map(|(_, pk)| pk);
                add(history.collect(), || Work::Move(Rows::History));
                for number in 1..table.next_index {
                    add(partition::index_places_of(id, epoch, number, shards).collect(), || Work::Remove);
                }
            }
        }
        Step::Hide | Step::Wait(_) | Step::Done => {}
    }
    places
}

fn hide(table: &TableRef) -> Option<TableRef> {
    let mut next = table.clone();
    for index in next.indexes.iter_mut().filter(|index| index.state == IndexState::Deleting) {
        index.state = IndexState::Removed;
    }
    (next != *table).then_some(next)
}

/// The head after a pass that began on `then`; none if the pass changes nothing, or is about something that is no more.
fn after_pass(now: &TableRef, then: &TableRef, step: &Step, pass: &Pass) -> Option<TableRef> {
    let mut next = now.clone();
    match step {
        Step::Rekey if pass.changed == 0 => {
            let emptied = |epoch: u32| then.older_epochs.iter().any(|older| older.epoch == epoch);
            next.older_epochs.retain(|older| !emptied(older.epoch));
        }
        Step::Backfill(number) => {
            let known = then.indexes.iter().find(|index| index.number == *number)?;
            let is_same_epoch = now.epoch == then.epoch && then.older_epochs.is_empty();
            let index = next.indexes.iter_mut().find(|index| index.number == *number)?;
            if index.since_ms != known.since_ms {
                return None;
            }
            if index.is_being_filled() && is_same_epoch {
                (index.state, index.is_complete) = (IndexState::Active, true);
            }
        }
        Step::Sweep(number) if pass.changed == 0 => {
            next.indexes.retain(|index| index.number != *number || index.state != IndexState::Removed);
        }
        _ => {}
    }
    (next != *now).then_some(next)
}
