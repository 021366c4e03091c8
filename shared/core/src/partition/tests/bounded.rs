//! What a filter may cost at most: by the rows of the table, not by what its lists multiply to.

use std::collections::BTreeSet;

use super::{put, remove, table_with};
use crate::catalog::TableRef;
use crate::partition::{self, Irregular, Listing, Segment, View};
use crate::predicate::{Compiled, Layout, Mode, compile, plan, plan_within};
use crate::store::memory::MemoryWorld;

/// `n` numbers from `first` on, as a list of literals.
fn list(first: usize, n: usize) -> String {
    (first..first + n).map(|n| n.to_string()).collect::<Vec<_>>().join(",")
}

/// Filters that say very many ranges or values; none longer than an expression may be.
fn hostile() -> Vec<String> {
    let pairs = |n: usize| {
        let pairs: Vec<String> = (0..n).map(|n| format!("(a={n} and b={})", n % 7)).collect();
        pairs.join(" or ")
    };
    let gaps: Vec<String> = (0..75).map(|n| format!("a between {} and {}", 4 * n, 4 * n + 1)).collect();
    let mut filters = vec![
        format!("a in ({}) and b in ({})", list(0, 400), list(0, 30)),
        format!("a in ({}) and b in ({}) and c in ({})", list(0, 400), list(0, 30), list(0, 8)),
        format!("a in ({}) and b in ({}) and c in ({})", list(0, 80), list(0, 16), list(0, 6)),
        format!("a in ({}) and b in ({}) and c in ({})", list(0, 20), list(0, 20), list(0, 20)),
        format!("a in ({}) and b in ({}) and c = 1", list(0, 400), list(0, 15)),
        format!("b in ({}) and c in ({})", list(0, 400), list(0, 30)),
        format!("c in ({})", list(0, 450)),
        format!("not (a in ({}) or b in ({}))", list(0, 300), list(0, 100)),
        format!("a in ({}) and b not in ({})", list(0, 200), list(0, 200)),
        format!("{} and c in ({})", pairs(90), list(0, 4)),
        pairs(100),
        gaps.join(" or "),
        format!("({}) and b in ({})", gaps[..60].join(" or "), list(0, 80)),
    ];
    filters.retain(|filter| filter.chars().count() <= 2048);
    assert_eq!(filters.len(), 13);
    filters
}

async fn filled(kind: &str, rows: usize, shards: u16, irregular: Irregular) -> (MemoryWorld, TableRef) {
    let mut table = table_with(&[("a", kind), ("b", kind), ("c", kind)], &[], &[]);
    (table.irregular, table.shards) = (irregular, shards);
    let world = MemoryWorld::new(0);
    for n in 0..rows {
        put(&world, &table, None, &[n * 3, n % 30, n % 4].map(|value| value.to_string())).await;
    }
    (world, table)
}

fn filter_of(table: &TableRef, expression: &str) -> Compiled {
    compile(expression, &table.keys, Mode::Lenient).unwrap()
}

/// A page of everything, and then a walk of small pages: what they find, and what the first costs.
async fn costs(world: &MemoryWorld, table: &TableRef, expression: &str, view: View) -> (usize, u64, u64) {
    let filter = filter_of(table, expression);
    let before = world.ports.items.item_usage();
    let listing = Listing { filter: Some(filter), view, ..Listing::of_all(1000) };
    let page = partition::list(&world.ports, table, &listing).await.unwrap();
    let usage = world.ports.items.item_usage().since(&before);
    assert!(page.next.is_none());
    (page.partitions.len(), usage.queries + usage.gets + usage.batch_gets, usage.read_half_units.div_ceil(2))
}

#[tokio::test]
async fn lists_that_multiply_cost_a_small_table_little() {
    for kind in ["int", "string"] {
        for (shards, irregular) in [(16, Irregular::NONE), (16, Irregular::ANY), (1, Irregular::ANY)] {
            for rows in [0, 10, 300] {
                let (world, table) = filled(kind, rows, shards, irregular).await;
                for expression in hostile() {
                    let filter = filter_of(&table, &expression);
                    let matches = |n: &usize| {
                        let row = [n * 3, n % 30, n % 4].map(|value| value.to_string());
                        filter.evaluate(&row).unwrap()
                    };
                    let wanted = (0..rows).filter(matches).count();
                    let (found, requests, units) = costs(&world, &table, &expression, View::Latest).await;
                    assert_eq!(found, wanted, "{expression}");
                    // Once for the rows, once for unreadable values, and where there are more than a step has.
                    let most = 4 * u64::from(shards) + 8 + rows as u64 / 10;
                    assert!(requests <= most, "{kind} {shards} {rows} {irregular:?} {requests} > {most}: {expression}");
                    assert!(units <= 350 + most + rows as u64, "{kind} {shards} {rows} {units}: {expression}");
                }
            }
        }
    }
}

#[tokio::test]
async fn the_same_holds_for_the_past() {
    for rows in [0, 10, 100] {
        let (world, table) = filled("string", rows, 16, Irregular::NONE).await;
        for expression in hostile() {
            let (_, requests, _) = costs(&world, &table, &expression, View::AsOf { at_ms: 1 }).await;
            assert!(requests <= 300 + rows as u64, "{rows} {requests}: {expression}");
        }
    }
}

/// Whatever the pages, the answers are the same.
#[tokio::test]
async fn lists_that_multiply_find_what_they_ask_for() {
    for (kind, rows, shards) in [("int", 300, 3), ("string", 900, 16), ("string", 900, 1)] {
        let (world, table) = filled(kind, rows, shards, Irregular::ANY).await;
        for gone in (0..rows).step_by(7) {
            remove(&world, &table, &[gone * 3, gone % 30, gone % 4].map(|value| value.to_string())).await;
        }
        for expression in hostile() {
            let filter = filter_of(&table, &expression);
            let all = (0..rows).filter(|n| n % 7 != 0).map(|n| [n * 3, n % 30, n % 4].map(|value| value.to_string()));
            let wanted: BTreeSet<Vec<String>> =
                all.filter(|row| filter.evaluate(row).unwrap()).map(|row| row.to_vec()).collect();
            for (total, limit) in [(1, 1000), (1, 7), (2, 20)] {
                let mut seen = BTreeSet::new();
                for number in 0..total {
                    let segment = Segment { number, total };
                    let mut listing = Listing { filter: Some(filter.clone()), segment, ..Listing::of_all(limit) };
                    loop {
                        let page = partition::list(&world.ports, &table, &listing).await.unwrap();
                        assert!(page.next.is_none() || page.partitions.len() == limit);
                        for (_, partition) in page.partitions {
                            assert!(seen.insert(partition.values().to_vec()), "{expression}");
                        }
                        let Some(next) = page.next else { break };
                        (listing.start, listing.indexes) = (next, page.indexes);
                    }
                }
                assert_eq!(seen, wanted, "{expression} {total} {limit}");
            }
        }
    }
}

/// Plans of a page once, plans of what follows a row again and again.
#[test]
fn planning_is_bounded() {
    for kind in ["int", "string"] {
        let table = table_with(&[("a", kind), ("b", kind), ("c", kind)], &[], &[]);
        let layout = Layout::of_table(&table.epoch_types, 3);
        let mut most = (0, 0);
        for expression in hostile() {
            let filter = filter_of(&table, &expression);
            for max in [1, 16, 256] {
                let plan = plan(&filter, &layout, max);
                assert!(plan.ranges.len() + plan.probes.len() <= max);
                most.0 = most.0.max(plan.steps);
            }
            for leading in [&["1"][..], &["1", "2"]] {
                let plan = plan_within(&filter, &layout, leading, 32);
                assert!(plan.ranges.len() + plan.probes.len() <= 32);
                most.1 = most.1.max(plan.steps);
            }
        }
        assert!(most.0 <= 10_000 && most.1 <= 300, "{most:?}");
    }
}
