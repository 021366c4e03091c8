//! Filtered listings against evaluation over all rows: whatever the way, the segments, the pages and the budget.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::{put, remove, table_with};
use crate::catalog::{CatalogError, TableRef};
use crate::partition::{
    self, Indexes, Irregular, KeyType, Listing, Position, ScanBudget, Segment, encode_key, shard_of,
};
use crate::predicate::tests::random::{World, any_world};
use crate::predicate::{Compiled, Limits, Mode, compile, compile_within};
use crate::store::memory::MemoryWorld;

const NAMES: [&str; 4] = ["k0", "k1", "k2", "k3"];

fn texts(values: &[&str]) -> Vec<String> {
    values.iter().map(|value| (*value).to_owned()).collect()
}

/// Everything that a walk answers, and on how many pages.
async fn walk(
    world: &MemoryWorld,
    table: &TableRef,
    listing: Listing,
) -> Result<(Vec<Vec<String>>, usize), CatalogError> {
    let (mut listing, mut seen, mut pages) = (listing, Vec::new(), 0);
    loop {
        let page = partition::list(&world.ports, table, &listing).await?;
        assert!(page.partitions.len() <= listing.limit);
        let is_cut = listing.budget != ScanBudget::default();
        assert!(is_cut || page.next.is_none() || !page.partitions.is_empty(), "an empty page that is not the last");
        pages += 1;
        let values = |(key, partition): &(Vec<u8>, partition::Partition)| {
            assert_eq!(*key, encode_key(&table.epoch_types, partition.values()));
            partition.values().to_vec()
        };
        seen.extend(page.partitions.iter().map(values));
        let Some(next) = page.next else { return Ok((seen, pages)) };
        assert!(listing.start < next, "a page gets on");
        listing.start = next;
        listing.indexes = page.indexes;
    }
}

/// What is asked for of a segment, in key order; none if the answer for some row is open.
fn model(
    table: &TableRef,
    rows: &BTreeSet<Vec<String>>,
    filter: &Compiled,
    segment: Segment,
) -> Option<Vec<Vec<String>>> {
    let own = rows.iter().filter(|row| shard_of(row, table.shards) % segment.total == segment.number);
    let mut wanted = BTreeMap::new();
    for row in own {
        if filter.evaluate(row).ok()? {
            wanted.insert(encode_key(&table.epoch_types, row), row.clone());
        }
    }
    Some(wanted.into_values().collect())
}

#[derive(Clone, Debug)]
struct Case {
    world: World,
    older: Vec<Vec<KeyType>>,
    /// For each row, in which epoch it is (0: the current one), and whether it was deleted under an index that kept it.
    places: Vec<usize>,
    indexes: usize,
    shards: u16,
    total: u16,
    limit: usize,
    items: u64,
    /// Whether the table says which irregular values it holds.
    is_told: bool,
}

fn any_case() -> impl Strategy<Value = Case> {
    use KeyType::{Date, Decimal, Integer, Text};
    let older = prop::sample::select(vec![
        vec![],
        vec![],
        vec![vec![Integer, Text, Date, Text]],
        vec![vec![Text, Text], vec![Decimal, Integer, Text, Text]],
    ]);
    let sizes = (0_usize..4, prop::sample::select(vec![1_u16, 3, 16]), 1_u16..4, 1_usize..8);
    let budget = prop::sample::select(vec![u64::MAX, u64::MAX, 1, 5]);
    (any_world(), older, prop::collection::vec(0_usize..3, 30), sizes, budget, any::<bool>()).prop_map(
        |(world, older, places, (indexes, shards, total, limit), items, is_told)| Case {
            world,
            older,
            places,
            indexes,
            shards,
            total,
            limit,
            items,
            is_told,
        },
    )
}

async fn check(case: Case) {
    let Case { world: sample, older, places, indexes, shards, total, limit, items, is_told } = case;
    let keys: Vec<(&str, &str)> = NAMES.into_iter().zip(sample.type_names.iter().copied()).collect();
    let order: Vec<&str> = sample.order.iter().map(|at| NAMES[*at]).collect();
    let older: Vec<&[KeyType]> = older.iter().map(Vec::as_slice).collect();
    let lists: [&[&str]; 3] = [&order[..1], &order[1..3], &order[..]];
    let mut table = table_with(&keys, &older, &lists[..indexes]);
    table.shards = shards;
    let world = MemoryWorld::new(0);
    let mut rows = BTreeSet::new();
    let mut all = sample.rows.clone();
    // Of another number of values: no filter finds them.
    all.extend([texts(&["1", "2", "3"]), texts(&["1", "2", "3", "4", "5"])]);
    for (row, place) in all.iter().zip(places.iter().cycle()) {
        if rows.insert(row.clone()) {
            let older = place.checked_sub(1).and_then(|at| table.older_epochs.get(at));
            put(&world, &table, older, row).await;
        }
    }
    if is_told {
        let kinds = rows.iter().map(|row| Irregular::of(&table.epoch_types, row));
        table.irregular = kinds.fold(Irregular::NONE, Irregular::union);
    }
    let expression = sample.expression();
    let limits = Limits { length: 100_000, depth: 300 };
    let filter = compile_within(&expression, &table.keys, sample.mode, limits).unwrap();
    for number in 0..total {
        let segment = Segment { number, total };
        let expected = model(&table, &rows, &filter, segment);
        let budget = if items == u64::MAX { ScanBudget::default() } else { ScanBudget { items, time_ms: i64::MAX } };
        let listing = Listing { segment, filter: Some(filter.clone()), budget, ..Listing::of_all(limit) };
        let found = walk(&world, &table, listing.clone()).await;
        match (&expected, &found) {
            (Some(expected), Ok((found, _))) => assert_eq!(found, expected, "{expression}"),
            (None, Err(CatalogError::StoredValue(_))) => {}
            _ => panic!("{expression}: {found:?} instead of {expected:?}"),
        }
        // No filter: all of them.
        let all = Listing { filter: None, ..listing };
        let (found, _) = walk(&world, &table, all).await.unwrap();
        let own = rows.iter().filter(|row| shard_of(row, table.shards) % total == number);
        assert_eq!(found.iter().collect::<BTreeSet<_>>(), own.collect::<BTreeSet<_>>());
        assert!(found.is_sorted_by_key(|row| encode_key(&table.epoch_types, row)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn listings_are_evaluation_over_all_rows(case in any_case()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(check(case));
    }
}

/// `a` in 0..10, `b` in 0..10.
async fn grid(indexes: &[&[&str]]) -> (MemoryWorld, TableRef) {
    let world = MemoryWorld::new(0);
    let table = table_with(&[("a", "int"), ("b", "int")], &[], indexes);
    for n in 0..100 {
        put(&world, &table, None, &texts(&[&(n / 10).to_string(), &(n % 10).to_string()])).await;
    }
    (world, table)
}

fn filtered(table: &TableRef, expression: &str, limit: usize) -> Listing {
    let filter = compile(expression, &table.keys, Mode::Lenient).unwrap();
    Listing { filter: Some(filter), ..Listing::of_all(limit) }
}

/// Deletes what it lists, page by page, and creates elsewhere.
#[tokio::test]
async fn a_walk_that_deletes_what_it_lists_meets_everything_once() {
    for (expression, indexes) in
        [("b in (3, 4)", &[][..]), ("b in (3, 4)", &[&["b"][..]]), ("a in (3, 4)", &[]), ("a >= 0 and b > 7", &[])]
    {
        for (limit, irregular) in [(1, Irregular::ANY), (3, Irregular::ANY), (1, Irregular::NONE), (3, Irregular::NONE)]
        {
            let (world, table) = grid(indexes).await;
            let table = TableRef { irregular, ..table };
            let mut listing = filtered(&table, expression, limit);
            let mut seen = BTreeSet::new();
            loop {
                let page = partition::list(&world.ports, &table, &listing).await.unwrap();
                for (_, partition) in &page.partitions {
                    assert!(seen.insert(partition.values().to_vec()));
                    remove(&world, &table, partition.values()).await;
                }
                put(&world, &table, None, &texts(&["-1", &(seen.len() % 3).to_string()])).await;
                let Some(next) = page.next else { break };
                (listing.start, listing.indexes) = (next, page.indexes);
            }
            assert_eq!(seen.len(), 20, "{expression} {limit}");
        }
    }
}

#[tokio::test]
async fn a_walk_goes_on_when_its_index_goes_or_comes() {
    let (world, indexed) = grid(&[&["b"]]).await;
    let bare = TableRef { indexes: Vec::new(), ..indexed.clone() };
    let mut listing = filtered(&indexed, "b = 3", 3);
    let mut seen = Vec::new();
    let mut ways = Vec::new();
    for table in [&indexed, &bare, &indexed, &bare] {
        let page = partition::list(&world.ports, table, &listing).await.unwrap();
        ways.push(page.explained.way);
        seen.extend(page.partitions.iter().map(|(_, partition)| partition.values()[0].clone()));
        let Some(next) = page.next else { break };
        listing.start = next;
    }
    assert_eq!(seen, (0..10).map(|n| n.to_string()).collect::<Vec<_>>());
    assert_eq!(ways, ["index", "ranges", "index", "ranges"]);
}

#[tokio::test]
async fn entries_that_point_nowhere_do_no_harm() {
    let (world, table) = grid(&[&["b"]]).await;
    // Readable and not.
    for values in [texts(&["77", "3"]), texts(&["77", "x"])] {
        put(&world, &table, None, &values).await;
        let at = crate::partition::item::key(&table, &values);
        world.ports.items.delete(&at, crate::store::Condition::Always).await.unwrap();
    }
    for irregular in [Irregular::ANY, Irregular::NONE] {
        let table = TableRef { irregular, ..table.clone() };
        let (seen, pages) = walk(&world, &table, filtered(&table, "b = 3", 4)).await.unwrap();
        assert_eq!((seen.len(), pages), (10, 3));
    }
}

#[tokio::test]
async fn an_unreadable_value_is_an_error_on_the_first_page_where_its_key_is_narrowed() {
    for indexes in [&[][..], &[&["b"][..]]] {
        let (world, table) = grid(indexes).await;
        put(&world, &table, None, &texts(&["9", "x"])).await;
        let page = |expression: &str| {
            let listing = filtered(&table, expression, 1);
            let (world, table) = (world.clone(), table.clone());
            async move { partition::list(&world.ports, &table, &listing).await.map(|page| page.partitions.len()) }
        };
        for expression in ["a = 9 and b = 1", "a = 9 and b > 1"] {
            let error = page(expression).await.unwrap_err();
            assert_eq!(
                error.to_string(),
                "For input string: \"x\" is not an integer. (stored value of partition key b)"
            );
        }
        // Other keys exclude it, or the row is asked for anyway.
        assert_eq!(page("a = 8 and b = 1").await, Ok(1));
        assert_eq!(page("a = 9").await, Ok(1));
        // Nothing narrows it: where the walk meets it.
        assert!(walk(&world, &table, filtered(&table, "b = 1 or a = 1", 5)).await.is_err());
    }
}

#[tokio::test]
async fn a_budget_cuts_pages_and_the_walk_gets_on() {
    let (world, table) = grid(&[]).await;
    let budget = ScanBudget { items: 5, time_ms: i64::MAX };
    let listing = Listing { budget, ..filtered(&table, "a <> 5 and b in (2, 9)", 1000) };
    let (seen, pages) = walk(&world, &table, listing).await.unwrap();
    assert_eq!(seen.len(), 18);
    assert!(pages > 2, "{pages}");
    let no_time = ScanBudget { items: u64::MAX, time_ms: 0 };
    let (seen, _) = walk(&world, &table, Listing { budget: no_time, ..filtered(&table, "b = 2", 10) }).await.unwrap();
    assert_eq!(seen.len(), 10);
}

/// Partitions that still lie under earlier keys count, too: a page ends where the earlier order allows it.
#[tokio::test]
async fn what_lies_under_earlier_keys_is_read_within_the_budget() {
    use KeyType::{Integer, Text};
    let filled = async |older: &[KeyType]| {
        let world = MemoryWorld::new(0);
        let mut table = table_with(&[("a", "string"), ("b", "int")], &[older], &[]);
        table.shards = 2;
        for n in 0..20_000 {
            let older = (n % 5 != 0).then(|| &table.older_epochs[0]);
            put(&world, &table, older, &texts(&[&format!("{:03}", n / 100), &(n % 100).to_string()])).await;
        }
        (world, table)
    };
    let (world, table) = filled(&[Text, Text]).await;
    let budget = ScanBudget { items: 1, time_ms: i64::MAX };
    let listing = Listing { budget, ..Listing::of_all(1000) };
    let first = partition::list(&world.ports, &table, &listing).await.unwrap();
    assert!(first.explained.items_read <= 6000, "{}", first.explained.items_read);
    let (seen, pages) = walk(&world, &table, listing.clone()).await.unwrap();
    assert_eq!(seen.len(), 20_000);
    assert!(pages >= 20, "{pages}");
    // Nothing of the earlier order helps: all of it, or nothing when that takes too long.
    let (world, table) = filled(&[Integer, Integer]).await;
    assert_eq!(walk(&world, &table, Listing { ..listing.clone() }).await.unwrap().0.len(), 20_000);
    let budget = ScanBudget { items: u64::MAX, time_ms: 0 };
    let error = walk(&world, &table, Listing { budget, ..listing }).await.unwrap_err();
    assert_eq!(error, CatalogError::OutOfTime);
}

#[tokio::test]
async fn an_index_with_too_many_entries_is_given_up_for_the_walk() {
    let world = MemoryWorld::new(0);
    let table = table_with(&[("a", "int"), ("b", "int")], &[], &[&["b"]]);
    for n in 0..10_300 {
        put(&world, &table, None, &texts(&[&n.to_string(), "1"])).await;
    }
    let mut listing = filtered(&table, "b = 1", 100);
    let first = partition::list(&world.ports, &table, &listing).await.unwrap();
    assert_eq!((first.partitions.len(), first.indexes, first.explained.way), (100, Indexes::GivenUp, "ranges"));
    listing.start = first.next.unwrap();
    listing.indexes = first.indexes;
    let second = partition::list(&world.ports, &table, &listing).await.unwrap();
    assert_eq!(second.partitions.len(), 100);
    assert!(second.explained.items_read < 500, "{}", second.explained.items_read);
    assert!(second.next > Some(Position::BEGINNING));
}

/// Their ranges are too many to be kept apart, but no range is read.
#[tokio::test]
async fn partitions_that_are_got_by_their_values_are_not_judged_again() {
    let world = MemoryWorld::new(0);
    let table = table_with(&[("a", "string"), ("b", "string")], &[], &[]);
    for n in 0..100 {
        put(&world, &table, None, &texts(&[&(n / 10).to_string(), &(n % 10).to_string()])).await;
    }
    let pairs: Vec<String> = (0..40).map(|n| format!("(a = '{}' and b = '{}')", n / 4, n % 4)).collect();
    let page = partition::list(&world.ports, &table, &filtered(&table, &pairs.join(" or "), 1000)).await.unwrap();
    let explained = page.explained;
    assert_eq!((explained.way, explained.values, explained.has_residual), ("values", 40, false));
    assert_eq!((page.partitions.len(), explained.items_read), (40, 40));
}
