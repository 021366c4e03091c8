//! What listings of 100,000 partitions cost: queries, items and units for a page and for a whole walk.

use std::fmt::Write;

use super::{put, table_with};
use crate::catalog::TableRef;
use crate::partition::{self, Listing, Segment};
use crate::predicate::{Mode, compile};
use crate::store::ItemUsage;
use crate::store::memory::MemoryWorld;

const COUNT: u32 = 100_000;

fn values(n: u32, is_typed: bool) -> Vec<String> {
    let (hour, day, month, year) = (n % 24, n / 24 % 28 + 1, n / 24 / 28 % 12 + 1, 2010 + n / 24 / 28 / 12);
    if is_typed {
        [year, month, day, hour].map(|value| value.to_string()).to_vec()
    } else {
        vec![year.to_string(), format!("{month:02}"), format!("{day:02}"), format!("{hour:02}")]
    }
}

async fn filled(is_typed: bool, indexes: &[&[&str]]) -> (MemoryWorld, TableRef) {
    let kind = if is_typed { "int" } else { "string" };
    let table = table_with(&[("year", kind), ("month", kind), ("day", kind), ("hour", kind)], &[], indexes);
    let world = MemoryWorld::new(0);
    for n in 0..COUNT {
        put(&world, &table, None, &values(n, is_typed)).await;
    }
    (world, table)
}

struct Cost {
    first: ItemUsage,
    all: ItemUsage,
    pages: usize,
    matches: usize,
}

async fn cost(world: &MemoryWorld, table: &TableRef, expression: &str, segment: Segment) -> Cost {
    let filter = (!expression.is_empty()).then(|| compile(expression, &table.keys, Mode::Lenient).unwrap());
    let mut listing = Listing { filter, segment, ..Listing::of_all(1000) };
    let before = world.ports.items.item_usage();
    let mut cost = Cost { first: ItemUsage::default(), all: ItemUsage::default(), pages: 0, matches: 0 };
    loop {
        let page = partition::list(&world.ports, table, &listing).await.unwrap();
        let usage = world.ports.items.item_usage();
        cost.pages += 1;
        cost.matches += page.partitions.len();
        if cost.pages == 1 {
            cost.first = usage.since(&before);
            let requests = cost.first.queries + cost.first.gets + cost.first.batch_gets;
            assert_eq!(page.explained.queries, cost.first.queries, "{expression}: {requests}");
            assert_eq!(page.explained.items_read, cost.first.items_read, "{expression}");
        }
        let Some(next) = page.next else {
            cost.all = usage.since(&before);
            return cost;
        };
        (listing.start, listing.indexes) = (next, page.indexes);
    }
}

fn shown(usage: &ItemUsage) -> String {
    let units = usage.read_half_units as f64 / 2.0;
    format!("{}q {}g {}b {}i {units}u", usage.queries, usage.gets, usage.batch_gets, usage.items_read)
}

async fn lines(world: &MemoryWorld, table: &TableRef, expressions: &[&str]) -> String {
    let mut lines = String::new();
    for expression in expressions {
        let Cost { first, all, pages, matches } = cost(world, table, expression, Segment::WHOLE).await;
        writeln!(lines, "{expression} | {matches} | {} | {pages} | {}", shown(&first), shown(&all)).unwrap();
    }
    lines
}

#[tokio::test]
async fn costs_of_filters() {
    let (world, table) = filled(false, &[&["day", "hour"]]).await;
    let bare = TableRef { indexes: Vec::new(), ..table.clone() };
    let text = lines(
        &world,
        &bare,
        &[
            "",
            "year = '2015'",
            "year = '2015' and month = '03'",
            "year = '2015' and month = '03' and day = '05'",
            "year = '2015' and month = '03' and day = '05' and hour = '07'",
            "year = '2015' and month = '03' and day in ('05', '06') and hour in ('07', '08')",
            "year = '1999'",
            "year in ('2011', '2015', '2019') and month = '03' and day = '05'",
            "year >= '2021'",
            "year = '2015' and month between '03' and '04'",
            "year like '202%'",
            "month = '03'",
            "month = '03' and day = '05'",
            "day = '05'",
            "hour like '%7'",
            "hour = '07'",
            "year <> '2015' and day = '05' and hour = '07'",
        ],
    )
    .await;
    println!("{text}");
    println!("indexed\n{}", lines(&world, &table, &["day = '05'", "day = '05' and hour = '07'", "day > '27'"]).await);
    for total in [1, 3, 5, 7, 10] {
        let mut costs = Vec::new();
        for number in 0..total {
            costs.push(cost(&world, &table, "", Segment { number, total }).await.all.items_read);
        }
        println!("segments {total}: {costs:?}");
        let most = costs.into_iter().max().unwrap();
        assert!(most * u64::from(total) * 10 <= u64::from(COUNT) * 14, "{total}: {most}");
    }
    let (world, table) = filled(true, &[]).await;
    let typed = lines(
        &world,
        &table,
        &[
            "year = 2015",
            "year = 2015 and month = 3 and day = 5",
            "year = 2015 and month = 3 and day = 5 and hour = 7",
            "year >= 2021",
            "month = 3",
            "day = 5",
            "hour = 7",
        ],
    )
    .await;
    println!("{typed}");
}
