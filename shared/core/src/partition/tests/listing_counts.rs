//! What listings of 100,000 partitions cost: queries, items and units for a page and for a whole walk.

use super::{item_of, table_with};
use crate::catalog::TableRef;
use crate::partition::item::key;
use crate::partition::{self, Irregular, IrregularKind, Listing, Segment, index_item};
use crate::predicate::{Mode, compile};
use crate::store::memory::MemoryWorld;
use crate::store::{ItemUsage, Value};

const COUNT: u32 = 100_000;

fn values(n: u32, is_typed: bool) -> Vec<String> {
    let (hour, day, month, year) = (n % 24, n / 24 % 28 + 1, n / 24 / 28 % 12 + 1, 2010 + n / 24 / 28 / 12);
    if is_typed {
        [year, month, day, hour].map(|value| value.to_string()).to_vec()
    } else {
        vec![year.to_string(), format!("{month:02}"), format!("{day:02}"), format!("{hour:02}")]
    }
}

fn filled(is_typed: bool, count: u32, indexes: &[&[&str]]) -> (MemoryWorld, TableRef) {
    let kind = if is_typed { "int" } else { "string" };
    let mut table = table_with(&[("year", kind), ("month", kind), ("day", kind), ("hour", kind)], &[], indexes);
    table.irregular = Irregular::NONE;
    let world = MemoryWorld::new(0);
    let template = item_of(&[]);
    for values in (0..count).map(|n| values(n, is_typed)) {
        let mut item = template.clone();
        item.insert("values".to_owned(), Value::List(values.iter().map(|value| value.as_str().into()).collect()));
        world.items.load([(key(&table, &values), item)]);
        world.items.load(index_item::keys(&table, &values).into_iter().map(|at| (at, index_item::encode(&values))));
    }
    (world, table)
}

/// How far a listing is followed.
#[derive(Clone, Copy, PartialEq)]
enum Extent {
    Page,
    Walk,
}
use Extent::{Page, Walk};

#[derive(Default)]
struct Cost {
    first: ItemUsage,
    all: ItemUsage,
    pages: usize,
    matches: usize,
}

async fn cost(world: &MemoryWorld, table: &TableRef, expression: &str, segment: Segment, extent: Extent) -> Cost {
    cost_of(world, table, expression, segment, extent, 1000).await
}

async fn cost_of(
    world: &MemoryWorld,
    table: &TableRef,
    expression: &str,
    segment: Segment,
    extent: Extent,
    limit: usize,
) -> Cost {
    let filter = (!expression.is_empty()).then(|| compile(expression, &table.keys, Mode::Lenient).unwrap());
    let mut listing = Listing { filter, segment, ..Listing::of_all(limit) };
    let before = world.ports.items.item_usage();
    let mut cost = Cost::default();
    loop {
        let page = partition::list(&world.ports, table, &listing).await.unwrap();
        cost.all = world.ports.items.item_usage().since(&before);
        cost.pages += 1;
        cost.matches += page.partitions.len();
        if cost.pages == 1 {
            cost.first = cost.all;
            let explained = (page.explained.queries, page.explained.items_read);
            assert_eq!(explained, (cost.first.queries, cost.first.items_read), "{expression}");
        }
        match page.next {
            Some(next) if extent == Walk => (listing.start, listing.indexes) = (next, page.indexes),
            _ => return cost,
        }
    }
}

/// Queries, gets and batch gets, items, units.
fn shown(usage: &ItemUsage) -> [u64; 4] {
    [usage.queries, usage.gets + usage.batch_gets, usage.items_read, usage.read_half_units.div_ceil(2)]
}

type Pinned = (&'static str, Extent, usize, [u64; 4], usize, [u64; 4]);

async fn check(world: &MemoryWorld, table: &TableRef, pinned: &[Pinned]) {
    let mut seen = Vec::new();
    for (expression, extent, ..) in pinned {
        let Cost { first, all, pages, matches } = cost(world, table, expression, Segment::WHOLE, *extent).await;
        seen.push((*expression, matches, shown(&first), pages, shown(&all)));
    }
    let lines: Vec<String> = seen.iter().map(|line| format!("{line:?}")).collect();
    let expected: Vec<String> = pinned
        .iter()
        .map(|(expression, _, matches, first, pages, all)| format!("{:?}", (expression, matches, first, pages, all)))
        .collect();
    assert_eq!(lines, expected, "{}", lines.join("\n"));
}

#[tokio::test]
async fn costs_of_filters_on_text() {
    let (world, table) = filled(false, COUNT, &[]);
    let pinned: &[Pinned] = &[
        ("", Page, 1000, [18, 0, 1156, 50], 1, [18, 0, 1156, 50]),
        ("year = '2015'", Walk, 8064, [18, 0, 1160, 50], 9, [162, 0, 9230, 409]),
        ("year = '2015' and month = '03'", Walk, 672, [16, 0, 672, 32], 1, [16, 0, 672, 32]),
        ("year = '2015' and month = '03' and day = '05'", Walk, 24, [16, 0, 24, 16], 1, [16, 0, 24, 16]),
        ("year = '2015' and month = '03' and day = '05' and hour = '07'", Walk, 1, [0, 1, 1, 1], 1, [0, 1, 1, 1]),
        (
            "year = '2015' and month = '03' and day in ('05', '06') and hour in ('07', '08')",
            Walk,
            4,
            [0, 1, 4, 4],
            1,
            [0, 1, 4, 4],
        ),
        ("year = '1999'", Walk, 0, [16, 0, 0, 16], 1, [16, 0, 0, 16]),
        (
            "year in ('2011', '2015', '2019') and month = '03' and day = '05'",
            Walk,
            72,
            [48, 0, 72, 48],
            1,
            [48, 0, 72, 48],
        ),
        ("year = '2015' and month between '03' and '04'", Walk, 1344, [17, 0, 1147, 49], 2, [33, 0, 1491, 65]),
        ("year >= '2021'", Page, 1000, [16, 0, 1136, 48], 1, [16, 0, 1136, 48]),
        ("year like '202%'", Page, 1000, [18, 0, 1156, 50], 1, [18, 0, 1156, 50]),
        ("month = '03'", Walk, 8736, [64, 0, 1545, 77], 9, [642, 0, 12526, 788]),
        ("month = '03' and day = '05'", Walk, 312, [432, 0, 2669, 480], 1, [432, 0, 2669, 480]),
        ("day = '05'", Page, 1000, [51, 0, 32782, 1009], 1, [51, 0, 32782, 1009]),
        ("hour like '%7'", Page, 1000, [34, 0, 14033, 435], 1, [34, 0, 14033, 435]),
    ];
    check(&world, &table, pinned).await;
    // At most 1.4 even shares. Of these totals 7 deals the shards out least evenly.
    let all = cost(&world, &table, "", Segment { number: 0, total: 7 }, Walk).await.all;
    assert_eq!(all.items_read, 19_700);
    assert!(all.items_read * 7 * 10 <= u64::from(COUNT) * 14);
}

#[tokio::test]
async fn costs_of_filters_on_numbers() {
    let (world, table) = filled(true, COUNT, &[]);
    let pinned: &[Pinned] = &[
        ("year = 2015", Page, 1000, [19, 0, 1167, 51], 1, [19, 0, 1167, 51]),
        ("year = 2015 and month = 3 and day = 5", Walk, 24, [16, 0, 24, 16], 1, [16, 0, 24, 16]),
        ("year = 2015 and month = 3 and day = 5 and hour = 7", Walk, 1, [0, 1, 1, 1], 1, [0, 1, 1, 1]),
        ("year = 2015 and month = 3 and day in (5, 6) and hour in (7, 8)", Walk, 4, [0, 1, 4, 4], 1, [0, 1, 4, 4]),
        ("year >= 2021", Page, 1000, [16, 0, 1136, 48], 1, [16, 0, 1136, 48]),
        ("month = 3", Page, 1000, [64, 0, 1546, 84], 1, [64, 0, 1546, 84]),
        ("month = 3 and day = 5", Walk, 312, [432, 0, 2666, 488], 1, [432, 0, 2666, 488]),
        ("hour = 7", Page, 1000, [36, 0, 27792, 940], 1, [36, 0, 27792, 940]),
    ];
    check(&world, &table, pinned).await;
}

/// Groups that are jumped over and groups that are read.
#[tokio::test]
async fn costs_of_free_leading_keys() {
    let (world, table) = filled(true, 20_000, &[]);
    let pinned: &[Pinned] = &[
        ("day = 11 and hour < 7", Walk, 210, [38, 0, 20000, 682], 1, [38, 0, 20000, 682]),
        ("month in (3, 5)", Walk, 4032, [49, 0, 1539, 69], 5, [244, 0, 5649, 313]),
        ("month in (3, 5) and day = 7", Walk, 144, [157, 0, 1139, 175], 1, [157, 0, 1139, 175]),
        ("day = 5", Walk, 720, [33, 0, 20000, 680], 1, [33, 0, 20000, 680]),
        ("hour = 30", Walk, 0, [64, 0, 20000, 695], 1, [64, 0, 20000, 695]),
        ("day = 30", Walk, 0, [64, 0, 20000, 695], 1, [64, 0, 20000, 695]),
        ("month = 13", Walk, 0, [115, 0, 1065, 135], 1, [115, 0, 1065, 135]),
    ];
    check(&world, &table, pinned).await;
}

#[tokio::test]
async fn costs_of_an_index() {
    let (world, table) = filled(false, 20_000, &[&["day", "hour"]]);
    let pinned: &[Pinned] = &[
        ("day = '05'", Walk, 720, [16, 8, 1440, 737], 1, [16, 8, 1440, 737]),
        ("day = '05' and hour = '07'", Walk, 30, [16, 1, 60, 46], 1, [16, 1, 60, 46]),
        ("day > '27'", Page, 696, [16, 7, 1392, 712], 1, [16, 7, 1392, 712]),
        ("year = '2011' and day = '05'", Page, 288, [37, 0, 8064, 260], 1, [37, 0, 8064, 260]),
    ];
    check(&world, &table, pinned).await;
}

/// What a table pays whose irregular values are not known, or known to be there.
#[tokio::test]
async fn costs_of_irregular_values() {
    let (world, mut table) = filled(true, 20_000, &[]);
    let full = "year = 2011 and month = 3 and day = 5 and hour = 7";
    let prefix = "year = 2011 and month = 3 and day = 5";
    use IrregularKind::{NullMarker, OtherSpelling, Unreadable};
    for (irregular, of_full, of_prefix) in [
        (Irregular::NONE, [0, 1, 1, 1], [16, 0, 24, 16]),
        (Irregular::NONE.with(NullMarker), [0, 1, 1, 1], [16, 0, 24, 16]),
        (Irregular::NONE.with(OtherSpelling), [16, 0, 1, 16], [16, 0, 24, 16]),
        (Irregular::NONE.with(Unreadable), [80, 0, 1, 80], [64, 0, 24, 64]),
        (Irregular::ANY, [80, 0, 1, 80], [64, 0, 24, 64]),
    ] {
        table.irregular = irregular;
        check(&world, &table, &[(full, Page, 1, of_full, 1, of_full), (prefix, Page, 24, of_prefix, 1, of_prefix)])
            .await;
    }
}

/// A request is worth a hundred items.
fn price(usage: &ItemUsage) -> u64 {
    usage.queries + usage.items_read / 100
}

/// Whatever the sizes of groups: about twice the better of reading everything and of jumping everywhere, and some requests
/// for each shard.
#[tokio::test]
async fn jumping_never_costs_much_more_than_reading_nor_the_other_way_round() {
    const SHARDS: u64 = 4;
    for (groups, parts, rows) in [
        (1, 4000, 1),
        (10, 400, 1),
        (40, 100, 1),
        (40, 10, 10),
        (100, 40, 1),
        (100, 4, 10),
        (400, 10, 1),
        (400, 2, 5),
        (2000, 2, 1),
        (4, 10, 100),
        (20, 20, 10),
        (1000, 1, 4),
        (100, 400, 1),
        (30, 2000, 1),
    ] {
        let mut table = table_with(&[("a", "int"), ("b", "int"), ("c", "int")], &[], &[]);
        (table.irregular, table.shards) = (Irregular::NONE, SHARDS as u16);
        let world = MemoryWorld::new(0);
        for (a, b, c) in (0..groups).flat_map(|a| (0..parts).flat_map(move |b| (0..rows).map(move |c| (a, b, c)))) {
            let values = [a, b, c].map(|value| value.to_string()).to_vec();
            world.items.load([(key(&table, &values), item_of(&values))]);
        }
        for (expression, wanted) in
            [("b = 0", groups * rows), ("b = 7", if parts > 7 { groups * rows } else { 0 }), ("b = -1", 0)]
        {
            let found = cost_of(&world, &table, expression, Segment::WHOLE, Page, 100_000).await;
            assert_eq!(found.matches as u64, wanted);
            let all = groups * parts * rows;
            let reading = all / 100 + SHARDS * (all / SHARDS).div_ceil(2000);
            // Groups that are in a shard at all.
            let met = groups.min(all / SHARDS);
            let jumping = SHARDS * met * (1 + u64::from(wanted > 0)) + wanted / 100;
            let best = reading.min(jumping);
            let paid = price(&found.all);
            assert!(
                paid <= 2 * best + 8 * SHARDS,
                "{groups} {parts} {rows} {expression}: {paid} of {reading} {jumping}"
            );
        }
    }
}

/// Items read for a page of so many partitions, and queries.
#[tokio::test]
async fn small_pages_read_little() {
    let (world, table) = filled(true, 20_000, &[]);
    let mut seen = Vec::new();
    for limit in [1, 2, 10, 16, 50, 100, 200, 500, 1000] {
        let usage = cost_of(&world, &table, "", Segment::WHOLE, Page, limit).await.all;
        seen.push((limit, usage.items_read, usage.queries));
    }
    let expected = [
        (1, 32, 16),
        (2, 32, 16),
        (10, 38, 19),
        (16, 53, 18),
        (50, 102, 18),
        (100, 170, 18),
        (200, 281, 17),
        (500, 627, 18),
        (1000, 1167, 18),
    ];
    assert_eq!(seen, expected);
}
