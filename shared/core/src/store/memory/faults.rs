use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::lock;
use crate::store::{StoreError, StoreErrorKind};

/// What goes wrong with one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call has no effect and fails.
    Before(StoreErrorKind),
    /// The call has its effect, but its answer is lost.
    After(StoreErrorKind),
}

#[derive(Debug)]
struct Rule {
    operation: String,
    skip: u64,
    fault: Fault,
}

/// A plan of faults, shared by the ports of one world. Operations are named `<verb> <table, object or queue>`:
/// `get catalog`, `transact commits`, `put s3://bucket/key`, `send sweeps`.
#[derive(Debug, Default)]
pub struct Faults {
    rules: Mutex<Vec<Rule>>,
    standing: Mutex<Vec<(String, StoreErrorKind)>>,
    calls: Mutex<Vec<String>>,
    crash_at: AtomicU64,
    count: AtomicU64,
    stale_reads: AtomicBool,
}

impl Faults {
    /// The call after `skip` more calls whose name starts with `operation` meets `fault`, once.
    pub fn inject(&self, operation: &str, skip: u64, fault: Fault) {
        lock(&self.rules).push(Rule { operation: operation.to_owned(), skip, fault });
    }

    /// Every call whose name starts with `operation` fails, without effect, until [`Faults::mend`].
    pub fn fail_all(&self, operation: &str, kind: StoreErrorKind) {
        lock(&self.standing).push((operation.to_owned(), kind));
    }

    /// Takes back every [`Faults::fail_all`], and every [`Faults::inject`] that has not happened yet.
    pub fn mend(&self) {
        lock(&self.standing).clear();
        lock(&self.rules).clear();
    }

    /// The process dies after `calls` more calls: every later call fails until [`Faults::revive`].
    pub fn crash_after(&self, calls: u64) {
        self.crash_at.store(self.count.load(Ordering::SeqCst) + calls + 1, Ordering::SeqCst);
    }

    /// A new process starts.
    pub fn revive(&self) {
        self.crash_at.store(0, Ordering::SeqCst);
    }

    /// Eventually consistent reads answer what was there before the last write.
    pub fn set_stale_reads(&self, stale: bool) {
        self.stale_reads.store(stale, Ordering::SeqCst);
    }

    pub fn stale_reads(&self) -> bool {
        self.stale_reads.load(Ordering::SeqCst)
    }

    /// Names of all calls so far, in order.
    pub fn calls(&self) -> Vec<String> {
        lock(&self.calls).clone()
    }

    pub fn forget_calls(&self) {
        lock(&self.calls).clear();
    }

    /// Registers a call and answers its fate.
    pub(crate) fn enter(&self, operation: &str) -> Result<Option<StoreError>, StoreError> {
        lock(&self.calls).push(operation.to_owned());
        let count = self.count.fetch_add(1, Ordering::SeqCst) + 1;
        let crash_at = self.crash_at.load(Ordering::SeqCst);
        if crash_at != 0 && count >= crash_at {
            return Err(StoreError::new(StoreErrorKind::Unavailable, operation, "the process has crashed (injected)"));
        }
        if let Some((_, kind)) = lock(&self.standing).iter().find(|(standing, _)| operation.starts_with(standing)) {
            return Err(StoreError::new(*kind, operation, "it always fails (injected)"));
        }
        let mut rules = lock(&self.rules);
        let mut hit = None;
        for (index, rule) in rules.iter_mut().enumerate() {
            if !operation.starts_with(&rule.operation) {
                continue;
            }
            if rule.skip == 0 && hit.is_none() {
                hit = Some(index);
            } else {
                rule.skip = rule.skip.saturating_sub(1);
            }
        }
        match hit.map(|index| rules.remove(index).fault) {
            None => Ok(None),
            Some(Fault::Before(kind)) => Err(StoreError::new(kind, operation, "injected before the call")),
            Some(Fault::After(kind)) => Ok(Some(StoreError::new(kind, operation, "injected after the call"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::store::memory::MemoryWorld;
    use crate::store::{
        Condition, Consistency, GetOptions, Item, Key, ObjectError, ObjectKey, PutOptions, Query, Queue, QueueName,
        SortRange, Table, TransactError, Value, Write, WriteError,
    };

    fn key(sk: &str) -> Key {
        Key::new(Table::Catalog, "p", sk)
    }

    fn numbered(number: i64) -> Item {
        Item::from([("number".to_owned(), Value::from(number))])
    }

    fn kind(answer: Result<(), WriteError>) -> Option<StoreErrorKind> {
        match answer {
            Err(WriteError::Store(error)) => Some(error.kind),
            _ => None,
        }
    }

    #[tokio::test]
    async fn a_fault_before_a_call_leaves_nothing_behind() {
        let world = MemoryWorld::new(0);
        let items = &world.ports.items;
        world.faults.inject("put catalog", 0, Fault::Before(StoreErrorKind::Throttled));
        let answer = items.put(&key("a"), Item::new(), Condition::Absent).await;
        assert_eq!(kind(answer), Some(StoreErrorKind::Throttled));
        assert_eq!(items.get(&key("a"), Consistency::Strong).await, Ok(None));
        assert_eq!(items.item_usage().puts, 0);
        items.put(&key("a"), Item::new(), Condition::Absent).await.unwrap();
        assert_eq!(world.faults.calls(), ["put catalog", "get catalog", "put catalog"]);
    }

    #[tokio::test]
    async fn a_lost_answer_hides_what_was_done() {
        let world = MemoryWorld::new(0);
        let ports = &world.ports;
        let lost = Fault::After(StoreErrorKind::Unavailable);
        for operation in ["put catalog", "delete catalog", "transact catalog", "put s3://b/k", "send sweeps"] {
            world.faults.inject(operation, 0, lost);
        }
        let unavailable = Some(StoreErrorKind::Unavailable);
        assert_eq!(kind(ports.items.put(&key("a"), Item::new(), Condition::Absent).await), unavailable);
        assert!(ports.items.get(&key("a"), Consistency::Strong).await.unwrap().is_some());
        assert_eq!(kind(ports.items.delete(&key("a"), Condition::Present).await), unavailable);
        assert!(ports.items.get(&key("a"), Consistency::Strong).await.unwrap().is_none());

        let writes = [Write::Put { key: key("b"), item: numbered(1), condition: Condition::Absent }];
        let answer = ports.items.transact(&writes, "token").await;
        assert!(matches!(answer, Err(TransactError::Store(error)) if Some(error.kind) == unavailable));
        assert_eq!(ports.items.transact(&writes, "token").await, Ok(()), "the token makes it happen once");

        let at = ObjectKey::new("b", "k");
        let answer = ports.objects.put(&at, Bytes::from_static(b"x"), &PutOptions::default()).await;
        assert!(matches!(answer, Err(ObjectError::Store(error)) if Some(error.kind) == unavailable));
        assert!(ports.objects.get(&at, &GetOptions::default()).await.is_ok());

        assert!(world.queue.send(QueueName::Sweeps, "m".to_owned(), 0).await.is_err());
        assert_eq!(world.queue.take(QueueName::Sweeps).as_deref(), Some("m"));
    }

    #[tokio::test]
    async fn a_failed_condition_is_no_lost_answer() {
        let world = MemoryWorld::new(0);
        world.faults.inject("put catalog", 0, Fault::After(StoreErrorKind::Unavailable));
        let answer = world.ports.items.put(&key("a"), Item::new(), Condition::Present).await;
        assert_eq!(answer, Err(WriteError::ConditionFailed { old: None }));
    }

    #[tokio::test]
    async fn faults_hit_the_calls_they_were_meant_for() {
        let world = MemoryWorld::new(0);
        let items = &world.ports.items;
        world.faults.inject("put", 2, Fault::Before(StoreErrorKind::Throttled));
        world.faults.inject("put commits", 0, Fault::Before(StoreErrorKind::Conflict));
        let commits = Key::new(Table::Commits, "p", "s");
        let mut kinds = Vec::new();
        for at in [&key("a"), &key("b"), &commits, &commits, &key("c")] {
            kinds.push(kind(items.put(at, Item::new(), Condition::Always).await));
        }
        // The third put meets the older fault; the one for commits waits for the next put there.
        let (throttled, conflict) = (Some(StoreErrorKind::Throttled), Some(StoreErrorKind::Conflict));
        assert_eq!(kinds, [None, None, throttled, conflict, None]);
    }

    #[tokio::test]
    async fn a_crashed_process_does_nothing_until_it_starts_again() {
        let world = MemoryWorld::new(0);
        let items = &world.ports.items;
        world.faults.crash_after(2);
        for name in ["a", "b"] {
            items.put(&key(name), Item::new(), Condition::Absent).await.unwrap();
        }
        for name in ["c", "d"] {
            let answer = items.put(&key(name), Item::new(), Condition::Absent).await;
            assert_eq!(kind(answer), Some(StoreErrorKind::Unavailable));
        }
        assert!(world.ports.objects.head(&ObjectKey::new("b", "k")).await.is_err());
        assert!(world.queue.send(QueueName::Sweeps, "m".to_owned(), 0).await.is_err());
        world.faults.revive();
        let page = items.query(&Query::new(Table::Catalog, "p", SortRange::All)).await.unwrap();
        assert_eq!(page.items.into_iter().map(|(at, _)| at).collect::<Vec<_>>(), [key("a"), key("b")]);
        assert_eq!(world.queue.len(QueueName::Sweeps), 0);
    }

    #[tokio::test]
    async fn stale_reads_answer_what_was_there_before() {
        let world = MemoryWorld::new(0);
        let items = &world.ports.items;
        for number in [1, 2] {
            items.put(&key("changed"), numbered(number), Condition::Always).await.unwrap();
            items.put(&key("gone"), numbered(number), Condition::Always).await.unwrap();
        }
        items.put(&key("new"), numbered(1), Condition::Absent).await.unwrap();
        items.delete(&key("gone"), Condition::Present).await.unwrap();
        let keys = [key("changed"), key("gone"), key("new")];
        let fresh = vec![(keys[0].clone(), numbered(2)), (keys[2].clone(), numbered(1))];
        let stale = vec![(keys[0].clone(), numbered(1)), (keys[1].clone(), numbered(2))];
        for (stale_reads, consistency, expected) in [
            (false, Consistency::Eventual, &fresh),
            (true, Consistency::Strong, &fresh),
            (true, Consistency::Eventual, &stale),
        ] {
            world.faults.set_stale_reads(stale_reads);
            let query = Query { consistency, ..Query::new(Table::Catalog, "p", SortRange::All) };
            assert_eq!(&items.query(&query).await.unwrap().items, expected);
            assert_eq!(&items.batch_get(&keys, consistency).await.unwrap().found, expected);
            for at in &keys {
                let item = expected.iter().find(|(found, _)| found == at).map(|(_, item)| item.clone());
                assert_eq!(items.get(at, consistency).await, Ok(item));
            }
        }
        // Conditions never look at stale items.
        items.put(&key("changed"), numbered(3), Condition::equals("number", 2)).await.unwrap();
    }
}
