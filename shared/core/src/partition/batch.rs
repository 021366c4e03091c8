//! Many changes at once: those of the same partition one after the other, all others side by side.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;

use futures::StreamExt;

use super::item::{Current, key};
use crate::catalog::{CatalogError, TableRef};
use crate::ports::Ports;
use crate::store::{Consistency, Key, get_every};

/// Partitions of one batch that are written at once.
const WRITES_AT_ONCE: usize = 32;

type Answer = Result<(), CatalogError>;

/// Puts entries that name a partition in common into one group, in order. `touched` are the values of the partitions
/// that an entry names; the groups are in the order of their first entries.
pub(super) fn plan_groups(touched: &[Vec<&[String]>]) -> Vec<Vec<usize>> {
    let mut group_of: HashMap<&[String], usize> = HashMap::new();
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (at, names) in touched.iter().enumerate() {
        let mut met: Vec<usize> = names.iter().filter_map(|values| group_of.get(values).copied()).collect();
        met.sort_unstable();
        met.dedup();
        let into = met.first().copied().unwrap_or(groups.len());
        let mut merged = vec![at];
        for group in &met {
            if let Some(members) = groups.get_mut(*group) {
                merged.append(members);
            }
        }
        merged.sort_unstable();
        match groups.get_mut(into) {
            Some(group) => *group = merged,
            None => groups.push(merged),
        }
        for group in group_of.values_mut().filter(|group| met.contains(group)) {
            *group = into;
        }
        group_of.extend(names.iter().map(|values| (*values, into)));
    }
    groups.retain(|group| !group.is_empty());
    groups
}

/// Carries out `count` entries by groups; one answer per entry, in order.
pub(super) async fn apply_groups<F>(
    count: usize,
    groups: Vec<Vec<usize>>,
    apply: impl Fn(usize, Turn) -> F,
) -> Vec<Answer>
where
    F: Future<Output = Answer>,
{
    let apply = &apply;
    let work = groups.into_iter().map(|group| async move {
        let mut answers = Vec::with_capacity(group.len());
        for (turn, at) in group.into_iter().enumerate() {
            answers.push((at, apply(at, if turn == 0 { Turn::First } else { Turn::Later }).await));
        }
        answers
    });
    let mut done = futures::stream::iter(work).buffer_unordered(WRITES_AT_ONCE);
    let mut answers: Vec<Option<Answer>> = vec![None; count];
    while let Some(group) = done.next().await {
        for (at, answer) in group {
            if let Some(slot) = answers.get_mut(at) {
                *slot = Some(answer);
            }
        }
    }
    let unanswered = || CatalogError::Broken("an entry of a batch was not answered".to_owned());
    answers.into_iter().map(|answer| answer.unwrap_or_else(|| Err(unanswered()))).collect()
}

/// How many entries succeeded.
pub(super) fn succeeded(answers: &[Answer]) -> i64 {
    i64::try_from(answers.iter().filter(|answer| answer.is_ok()).count()).unwrap_or(i64::MAX)
}

/// Whether an entry is the first of its group, for which what was read before the batch still holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    First,
    Later,
}

/// What was read before a batch.
#[derive(Debug, Default)]
pub(super) struct Known(Option<BTreeMap<Key, Current>>);

/// What is known of one partition.
#[derive(Debug)]
pub(super) enum Knowledge {
    Present(Box<Current>),
    Absent,
    Unknown,
}

impl Knowledge {
    /// The partition to change, none if it has to be read first.
    pub(super) fn into_known(self) -> Result<Option<Current>, CatalogError> {
        match self {
            Self::Absent => Err(CatalogError::PartitionNotFound),
            Self::Present(known) => Ok(Some(*known)),
            Self::Unknown => Ok(None),
        }
    }
}

impl Known {
    /// Reads all partitions with these values in as few requests as possible. If they cannot be read now, each entry reads
    /// for itself, so that none fails for the others.
    pub(super) async fn read(
        ports: &Ports,
        table: &TableRef,
        values: impl Iterator<Item = &[String]>,
    ) -> Result<Self, CatalogError> {
        let keys: Vec<Key> = values.map(|values| key(table, values)).collect();
        let read = get_every(ports.items.as_ref(), ports.clock.as_ref(), &keys, Consistency::Strong).await;
        let found = match read {
            Err(error) if error.is_retryable() => return Ok(Self(None)),
            read => read?,
        };
        let mut known = BTreeMap::new();
        for (key, item) in found {
            known.insert(key.clone(), Current::read(key, item)?);
        }
        Ok(Self(Some(known)))
    }

    /// What is known of the partition with these values when it is an entry's turn.
    pub(super) fn of(&self, table: &TableRef, values: &[String], turn: Turn) -> Knowledge {
        match &self.0 {
            Some(known) if turn == Turn::First => match known.get(&key(table, values)) {
                Some(current) => Knowledge::Present(Box::new(current.clone())),
                // It may still be in an older epoch.
                None if !table.older_epochs.is_empty() => Knowledge::Unknown,
                None => Knowledge::Absent,
            },
            _ => Knowledge::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_one_partition_are_one_group() {
        let values = |name: &str| vec![name.to_owned()];
        let names: Vec<Vec<String>> = ["a", "b", "c", "d"].into_iter().map(values).collect();
        let [a, b, c, d] = [0, 1, 2, 3].map(|at| names[at].as_slice());
        let groups = plan_groups(&[vec![a], vec![b], vec![a], vec![c]]);
        assert_eq!(groups, [vec![0, 2], vec![1], vec![3]]);
        // a -> b joins what belonged to either, c -> d stays apart.
        let groups = plan_groups(&[vec![a], vec![b], vec![c, d], vec![a, b], vec![b], vec![d]]);
        assert_eq!(groups, [vec![0, 1, 3, 4], vec![2, 5]]);
        let groups = plan_groups(&[vec![a, b], vec![c, d], vec![b, c], vec![d]]);
        assert_eq!(groups, [vec![0, 1, 2, 3]]);
        assert!(plan_groups(&[]).is_empty());
    }

    #[tokio::test]
    async fn a_group_goes_in_order_and_every_entry_is_answered() {
        let log = std::sync::Mutex::new(Vec::new());
        let groups = vec![vec![0, 3], vec![1], vec![2]];
        let answers = apply_groups(4, groups, |at, turn| {
            log.lock().unwrap().push((at, turn));
            async move { if at == 2 { Err(CatalogError::PartitionNotFound) } else { Ok(()) } }
        })
        .await;
        assert_eq!(answers, [Ok(()), Ok(()), Err(CatalogError::PartitionNotFound), Ok(())]);
        let log = log.into_inner().unwrap();
        let turn_of = |wanted: usize| log.iter().position(|(at, _)| *at == wanted).unwrap();
        assert!(turn_of(0) < turn_of(3) && log.contains(&(3, Turn::Later)));
    }
}
