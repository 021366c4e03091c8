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
        ("", Walk, 100000, [18, 0, 1156, 50], 100, [1828, 0, 116116, 5017]),
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
        (
            "(year = '2011' and month = '03' and day = '05') or (year = '2015' and month = '07' and day = '09')",
            Walk,
            48,
            [32, 0, 48, 32],
            1,
            [32, 0, 48, 32],
        ),
        ("year = '2015' and month between '03' and '04'", Walk, 1344, [17, 0, 1147, 49], 2, [33, 0, 1491, 65]),
        (
            "year = '2015' and month = '03' and day not in ('05', '06')",
            Walk,
            624,
            [48, 0, 624, 56],
            1,
            [48, 0, 624, 56],
        ),
        ("year >= '2021'", Walk, 11296, [16, 0, 1136, 48], 12, [218, 0, 13064, 569]),
        ("year < '2011'", Walk, 8064, [18, 0, 1156, 50], 9, [165, 0, 9305, 414]),
        ("year like '202%'", Walk, 19360, [18, 0, 1156, 50], 20, [368, 0, 22468, 975]),
        ("year = '2015' and day = '05'", Walk, 288, [37, 0, 8064, 259], 1, [37, 0, 8064, 259]),
        ("year = '2015' and hour = '07'", Walk, 336, [38, 0, 8064, 255], 1, [38, 0, 8064, 255]),
        ("month = '03'", Walk, 8736, [64, 0, 1545, 77], 9, [641, 0, 12524, 787]),
        ("month = '03' and day = '05'", Walk, 312, [432, 0, 2669, 480], 1, [432, 0, 2669, 480]),
        ("day = '05'", Walk, 3576, [51, 0, 32782, 1009], 4, [457, 0, 120816, 3755]),
        ("hour = '07'", Walk, 4167, [35, 0, 27978, 856], 5, [337, 0, 120121, 3733]),
        ("hour like '%7'", Walk, 8333, [34, 0, 14033, 435], 9, [1316, 0, 127367, 4577]),
        ("year is null", Walk, 0, [0, 0, 0, 0], 1, [0, 0, 0, 0]),
    ];
    check(&world, &table, pinned).await;
}

#[tokio::test]
async fn costs_of_filters_on_numbers() {
    let (world, table) = filled(true, COUNT, &[]);
    let pinned: &[Pinned] = &[
        ("", Walk, 100000, [18, 0, 1167, 50], 100, [1840, 0, 116232, 5035]),
        ("year = 2015", Walk, 8064, [19, 0, 1167, 51], 9, [162, 0, 9222, 415]),
        ("year = 2015 and month = 3", Walk, 672, [16, 0, 672, 32], 1, [16, 0, 672, 32]),
        ("year = 2015 and month = 3 and day = 5", Walk, 24, [16, 0, 24, 16], 1, [16, 0, 24, 16]),
        ("year = 2015 and month = 3 and day = 5 and hour = 7", Walk, 1, [0, 1, 1, 1], 1, [0, 1, 1, 1]),
        ("year = 2015 and month = 3 and day in (5, 6) and hour in (7, 8)", Walk, 4, [0, 1, 4, 4], 1, [0, 1, 4, 4]),
        ("year = 1999", Walk, 0, [16, 0, 0, 16], 1, [16, 0, 0, 16]),
        ("year in (2011, 2015, 2019) and month = 3 and day = 5", Walk, 72, [48, 0, 72, 48], 1, [48, 0, 72, 48]),
        (
            "(year = 2011 and month = 3 and day = 5) or (year = 2015 and month = 7 and day = 9)",
            Walk,
            48,
            [32, 0, 48, 32],
            1,
            [32, 0, 48, 32],
        ),
        ("year = 2015 and month between 3 and 4", Walk, 1344, [16, 0, 1136, 48], 2, [32, 0, 1480, 67]),
        ("year = 2015 and month = 3 and day not in (5, 6)", Walk, 624, [48, 0, 624, 58], 1, [48, 0, 624, 58]),
        ("year >= 2021", Walk, 11296, [16, 0, 1136, 48], 12, [211, 0, 13011, 563]),
        ("year < 2011", Walk, 8064, [18, 0, 1167, 50], 9, [164, 0, 9264, 416]),
        ("year = 2015 and day = 5", Walk, 288, [33, 0, 8064, 279], 1, [33, 0, 8064, 279]),
        ("year = 2015 and hour = 7", Walk, 336, [35, 0, 8064, 281], 1, [35, 0, 8064, 281]),
        ("month = 3", Walk, 8736, [64, 0, 1546, 84], 9, [628, 0, 12527, 796]),
        ("month = 3 and day = 5", Walk, 312, [432, 0, 2666, 488], 1, [432, 0, 2666, 488]),
        ("day = 5", Walk, 3576, [258, 0, 38552, 1313], 4, [698, 0, 127683, 4352]),
        ("hour = 7", Walk, 4167, [36, 0, 27792, 940], 5, [594, 0, 123122, 4259]),
        ("year is null", Walk, 0, [16, 0, 0, 16], 1, [16, 0, 0, 16]),
    ];
    check(&world, &table, pinned).await;
}

/// Pages of a prefix: what they answer, and of each shard one row more than an even share and its root, since nobody knows
/// beforehand which shards the next rows are in and another round of requests costs more than these rows. What fits a page
/// is read once, and nothing else.
#[tokio::test]
async fn a_prefix_reads_its_matches_and_little_more() {
    let (world, table) = filled(false, COUNT, &[]);
    for (expression, matches) in [
        ("year = '2015'", 8064),
        ("year = '2015' and month = '03'", 672),
        ("year = '2015' and month = '03' and day = '05'", 24),
        ("year = '1999'", 0),
    ] {
        for limit in [1, 10, 100, 1000, 10_000] {
            let found = cost_of(&world, &table, expression, Segment::WHOLE, Walk, limit).await;
            assert_eq!(found.matches, matches);
            // A page of one reads the first of each shard, and that is all.
            let ahead = if limit == 1 { 15 } else { 16 * ((limit / 16).isqrt() + 1).min(8) + 2 * 16 };
            let more = if found.pages == 1 { 0 } else { ahead * (found.pages - 1) };
            let read = usize::try_from(found.all.items_read).unwrap();
            assert!(read <= matches + more, "{expression} {limit}: {read}, {matches} + {more}");
            let first = usize::try_from(found.first.items_read).unwrap();
            assert!(first <= matches.min(limit + ahead), "{expression} {limit}: {first}");
        }
    }
}

/// Whatever the number of segments: each partition in exactly one, and none costs more than 1.4 even shares.
#[tokio::test]
async fn segments_are_disjoint_complete_and_even() {
    const ROWS: u32 = 50_000;
    let (world, table) = filled(false, ROWS, &[]);
    let mut worst = Vec::new();
    for total in 1..=10 {
        let (mut matches, mut items, mut half_units) = (0, Vec::new(), Vec::new());
        for number in 0..total {
            let found = cost(&world, &table, "", Segment { number, total }, Walk).await;
            matches += found.matches;
            items.push(found.all.items_read);
            half_units.push(found.all.read_half_units);
        }
        assert_eq!(matches, ROWS as usize);
        let most = items.iter().max().copied().unwrap();
        assert!(most * u64::from(total) * 10 <= u64::from(ROWS) * 14, "{total}: {items:?}");
        let (most_units, all_units) = (half_units.iter().max().copied().unwrap(), half_units.iter().sum::<u64>());
        assert!(most_units * u64::from(total) * 10 <= all_units * 14, "{total}: {half_units:?}");
        worst.push((total, most));
    }
    let expected = [
        (1, 57955),
        (2, 27273),
        (3, 19940),
        (4, 13168),
        (5, 13061),
        (6, 9782),
        (7, 9757),
        (8, 6495),
        (9, 6499),
        (10, 6477),
    ];
    assert_eq!(worst, expected);
}

/// No row is in two segments, and every row in one.
#[tokio::test]
async fn segments_deal_out_every_row_once() {
    let (world, table) = filled(true, 2000, &[]);
    for total in 1..=10 {
        let mut seen = std::collections::BTreeSet::new();
        for number in 0..total {
            let listing = Listing { segment: Segment { number, total }, ..Listing::of_all(10_000) };
            let page = partition::list(&world.ports, &table, &listing).await.unwrap();
            assert_eq!(page.next, None);
            assert!(page.partitions.into_iter().all(|(key, _)| seen.insert(key)), "{total}");
        }
        assert_eq!(seen.len(), 2000);
    }
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
        // All entries of the day and a look before, instead of all partitions of the year.
        ("year = '2011' and day = '05'", Page, 288, [20, 3, 1305, 315], 1, [20, 3, 1305, 315]),
    ];
    check(&world, &table, pinned).await;
}

/// Where the filter says single values of its keys, a walk through an index reads each entry once, each partition once and one
/// more for each page, and of each shard and page a little ahead, as any walk does.
#[tokio::test]
async fn a_walk_through_an_index_reads_its_entries_once() {
    let (world, table) = filled(false, 20_000, &[&["day"]]);
    for (expression, matches, entries, values) in [
        ("day = '05'", 720, 720, 1),
        ("day in ('05', '06', '07')", 2160, 2160, 3),
        ("day = '05' and hour > '20'", 90, 720, 1),
        ("day = '05' and month >= '07'", 288, 720, 1),
        ("day = '31'", 0, 0, 1),
    ] {
        for limit in [10, 100, 1000] {
            let found = cost_of(&world, &table, expression, Segment::WHOLE, Walk, limit).await;
            assert_eq!(found.matches, matches, "{expression}");
            assert_eq!(found.pages, matches.div_ceil(limit).max(1), "{expression}");
            let streams = 16 * values;
            let spread = ((limit / streams).isqrt() + 1).min(8) + 2;
            // Where entries are judged, the last steps of a page are as large as the share of those that are wanted.
            let ahead = if entries == matches { streams * spread + 1 } else { 3 * streams * spread };
            let read = usize::try_from(found.all.items_read).unwrap();
            assert!(read <= entries + matches + found.pages * ahead, "{expression} {limit}: {read} in {}", found.pages);
            let first = usize::try_from(found.first.items_read).unwrap();
            let is_all = entries == matches;
            assert!(!is_all || first <= 2 * limit.min(matches) + ahead, "{expression} {limit}: {first}");
        }
    }
}

/// The way with the least to read, whatever the number of keys that are bound.
#[tokio::test]
async fn the_way_goes_by_what_it_costs() {
    const ROWS: u32 = 6000;
    let keys = [("n", "int"), ("kind", "string"), ("zone", "string")];
    let indexes: [&[&str]; 3] = [&["kind", "zone"], &["zone"], &["n", "zone"]];
    let mut table = table_with(&keys, &[], &indexes);
    table.irregular = Irregular::NONE;
    let world = MemoryWorld::new(0);
    for n in 0..ROWS {
        // Two of a kind for each zone, and a kind that is rare.
        let kind = if n % 1000 == 0 { "rare".to_owned() } else { format!("k{}", n % 2) };
        let values = vec![n.to_string(), kind, format!("z{}", n / 2 % 3)];
        world.items.load([(key(&table, &values), item_of(&values))]);
        world.items.load(index_item::keys(&table, &values).into_iter().map(|at| (at, index_item::encode(&values))));
    }
    for (expression, expected_way, matches) in [
        // More keys are bound by the index, and the range of keys is narrow.
        ("n between 100 and 120 and kind = 'k1' and zone > 'a'", "ranges", 10),
        ("n between 100 and 120 and kind >= 'k' and zone = 'z1'", "ranges", 6),
        // The index is narrow.
        ("n > 10 and kind = 'rare' and zone >= 'z'", "by_kind_zone", 5),
        // To get a third of them by their keys costs more than to read all.
        ("n > 10 and n < 5990 and kind = 'k1' and zone = 'z2'", "ranges", 997),
        ("n > 4000 and zone = 'z2'", "ranges", 667),
        // Nothing is narrow: in order.
        ("n > 10 and kind >= 'k' and zone >= 'z'", "ranges", 5989),
        // No other way.
        ("kind = 'k1' and zone = 'z1'", "by_kind_zone", 1000),
        ("zone = 'z1'", "by_zone", 2000),
        ("kind = 'rare'", "by_kind_zone", 6),
        ("kind > 'q' and zone = 'z1'", "by_kind_zone", 2),
        ("n = 7 and zone >= 'z1'", "ranges", 0),
        ("n in (7, 9, 11) and zone >= 'z1' and kind like '%1'", "ranges", 2),
    ] {
        let filter = compile(expression, &table.keys, Mode::Lenient).unwrap();
        let listing = Listing { filter: Some(filter), ..Listing::of_all(10_000) };
        let page = partition::list(&world.ports, &table, &listing).await.unwrap();
        let way = page.explained.index.unwrap_or_else(|| page.explained.way.to_owned());
        assert!(page.explained.items_read < 2 * u64::from(ROWS) + 600, "{expression}");
        assert_eq!((way.as_str(), page.partitions.len()), (expected_way, matches), "{expression}");
    }
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
        (1, 16, 16),
        (2, 32, 16),
        (10, 38, 19),
        (16, 51, 17),
        (50, 102, 18),
        (100, 170, 18),
        (200, 281, 17),
        (500, 627, 18),
        (1000, 1167, 18),
    ];
    assert_eq!(seen, expected);
}

/// The same where the filter is answered by ranges of keys, and by those of an index: entries, and the partitions themselves
/// with one more.
#[tokio::test]
async fn small_pages_of_ranges_read_little() {
    let (world, table) = filled(false, 20_000, &[&["day"]]);
    let mut seen = Vec::new();
    for expression in ["year = '2011'", "day = '05'"] {
        for limit in [1, 2, 3, 10] {
            let usage = cost_of(&world, &table, expression, Segment::WHOLE, Page, limit).await.all;
            let read = usize::try_from(usage.items_read).unwrap();
            assert!(read <= 2 * (limit + 1) + 2 * 16, "{expression} {limit}: {read}");
            seen.push((expression, limit, usage.items_read, usage.queries));
        }
    }
    let expected = [
        ("year = '2011'", 1, 16, 16),
        ("year = '2011'", 2, 32, 16),
        ("year = '2011'", 3, 32, 16),
        ("year = '2011'", 10, 34, 17),
        ("day = '05'", 1, 20, 17),
        ("day = '05'", 2, 35, 16),
        ("day = '05'", 3, 36, 16),
        ("day = '05'", 10, 47, 18),
    ];
    assert_eq!(seen, expected);
}
