use kit::values::{item, padded};
use lakewarden_core::limits;
use lakewarden_core::store::{
    Condition, Consistency, Direction, Item, ItemUsage, Key, Query, Sort, SortRange, StoreErrorKind, Table, Value,
};

use super::{Bench, assert_kind, beside, beside_file, dynamodb, key, memory};

contract!(memory, dynamodb, beside, beside_file =>
    ranges_read_what_they_say,
    binary_ranges_go_by_bytes,
    text_goes_by_code_point,
    pages_end_at_the_limit_in_both_directions,
    pages_end_at_a_megabyte_in_both_directions,
    a_page_takes_a_megabyte_to_the_byte,
    reading_continues_behind_keys_that_are_gone,
    queries_cost_what_they_read,
    impossible_queries_are_refused,
);

const NAMES: [&str; 9] = ["a", "dt=1", "dt=10", "dt=2", "dt=2/h=1", "du", "m", "z", "zz"];

async fn fill(bench: &Bench) {
    for name in NAMES {
        bench.items.put(&key(name), item([("name", Value::from(name))]), Condition::Absent).await.unwrap();
        let neighbour = Key::new(Table::Catalog, "p2", name);
        bench.items.put(&neighbour, Item::new(), Condition::Absent).await.unwrap();
    }
}

fn query(range: SortRange) -> Query {
    Query::new(Table::Catalog, "p", range)
}

/// Range keys of one page.
async fn names(bench: &Bench, query: &Query) -> (Vec<String>, Option<Sort>) {
    let page = bench.items.query(query).await.unwrap();
    let names = page.items.iter().map(|(found, item)| {
        assert_eq!((found.table, found.pk.as_str()), (query.table, query.pk.as_str()));
        let Sort::Text(name) = &found.sk else { panic!("{found:?}") };
        assert_eq!(item.get("name"), Some(&Value::from(name.as_str())));
        name.clone()
    });
    (names.collect(), page.next)
}

async fn ranges_read_what_they_say(bench: &Bench) {
    fill(bench).await;
    let cases: [(SortRange, &[&str]); 12] = [
        (SortRange::All, &NAMES),
        (SortRange::Prefix("".into()), &NAMES),
        (SortRange::Prefix("dt=".into()), &["dt=1", "dt=10", "dt=2", "dt=2/h=1"]),
        (SortRange::Prefix("dt=2".into()), &["dt=2", "dt=2/h=1"]),
        (SortRange::Prefix("x".into()), &[]),
        (SortRange::Between("dt=10".into(), "m".into()), &["dt=10", "dt=2", "dt=2/h=1", "du", "m"]),
        (SortRange::Between("m".into(), "m".into()), &["m"]),
        (SortRange::Between("".into(), "dt=1".into()), &["a", "dt=1"]),
        (SortRange::AtLeast("m".into()), &["m", "z", "zz"]),
        (SortRange::AtLeast("".into()), &NAMES),
        (SortRange::AtMost("dt=1".into()), &["a", "dt=1"]),
        (SortRange::AtMost("Z".into()), &[]),
    ];
    for (range, expected) in cases {
        for consistency in [Consistency::Strong, Consistency::Eventual] {
            let mut ask = Query { consistency, ..query(range.clone()) };
            assert_eq!(names(bench, &ask).await, (to_owned(expected), None), "{range:?}");
            ask.direction = Direction::Descending;
            let mut reversed = to_owned(expected);
            reversed.reverse();
            assert_eq!(names(bench, &ask).await, (reversed, None), "{range:?} descending");
        }
    }
}

fn to_owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

async fn binary_ranges_go_by_bytes(bench: &Bench) {
    let sorts: [&[u8]; 7] = [&[0], &[0, 0], &[0, 255], &[1], &[127], &[128, 0], &[255, 255]];
    for sort in sorts {
        let at = Key::new(Table::Partitions, "p", sort.to_vec());
        bench.items.put(&at, Item::new(), Condition::Absent).await.unwrap();
    }
    let cases: [(SortRange, std::ops::Range<usize>); 6] = [
        (SortRange::All, 0..7),
        (SortRange::Prefix(vec![0u8].into()), 0..3),
        (SortRange::Prefix(vec![255u8].into()), 6..7),
        (SortRange::Between(vec![0u8, 1].into(), vec![128u8].into()), 2..5),
        (SortRange::AtLeast(vec![128u8].into()), 5..7),
        (SortRange::AtMost(vec![0u8, 0].into()), 0..2),
    ];
    for (range, expected) in cases {
        let ask = Query::new(Table::Partitions, "p", range.clone());
        let page = bench.items.query(&ask).await.unwrap();
        let found: Vec<&[u8]> = page.items.iter().map(|(at, _)| at.sk.as_bytes()).collect();
        assert_eq!(found, sorts[expected], "{range:?}");
    }
}

async fn text_goes_by_code_point(bench: &Bench) {
    let mut sorts = ["Z", "a", "z", "zé", "é", "ÿ", "中", "\u{ff5e}", "😀", "a\u{0}", "a "];
    for sort in sorts {
        bench.items.put(&key(sort), Item::new(), Condition::Absent).await.unwrap();
    }
    sorts.sort_unstable();
    let page = bench.items.query(&query(SortRange::All)).await.unwrap();
    let found: Vec<&[u8]> = page.items.iter().map(|(at, _)| at.sk.as_bytes()).collect();
    assert_eq!(found, sorts.map(str::as_bytes));
}

/// Pages until the end; the names on each.
async fn pages(bench: &Bench, mut query: Query) -> Vec<Vec<String>> {
    let mut pages = Vec::new();
    loop {
        let page = bench.items.query(&query).await.unwrap();
        let text = |sort: &Sort| String::from_utf8(sort.as_bytes().to_vec()).unwrap();
        pages.push(page.items.iter().map(|(at, _)| text(&at.sk)).collect());
        match page.next {
            None => return pages,
            next => query.start_after = next,
        }
    }
}

async fn pages_end_at_the_limit_in_both_directions(bench: &Bench) {
    fill(bench).await;
    let range = SortRange::Between("dt=1".into(), "z".into());
    let ascending = ["dt=1", "dt=10", "dt=2", "dt=2/h=1", "du", "m", "z"];
    for direction in [Direction::Ascending, Direction::Descending] {
        let mut expected = ascending;
        if direction == Direction::Descending {
            expected.reverse();
        }
        for limit in [1, 3, 6, 7, 8] {
            let ask = Query { limit: Some(limit), direction, ..query(range.clone()) };
            let pages = pages(bench, ask).await;
            assert_eq!(pages.concat(), expected, "{limit} {direction:?}");
            // A full page says that there may be more, even where nothing follows.
            assert_eq!(pages.len(), expected.len() / limit + 1, "{limit} {direction:?}");
            assert!(pages.iter().rev().skip(1).all(|page| page.len() == limit));
        }
    }
}

async fn pages_end_at_a_megabyte_in_both_directions(bench: &Bench) {
    let sorts = ["0", "1", "2", "3", "4", "5", "6", "7"];
    for sort in sorts {
        let at = key(sort);
        bench.items.put(&at, padded(&at, Item::new(), 300_000), Condition::Absent).await.unwrap();
    }
    let mut ask = query(SortRange::All);
    let mut mark = bench.items.item_usage();
    assert_eq!(pages(bench, ask.clone()).await, [&sorts[0..3], &sorts[3..6], &sorts[6..8]]);
    let used = bench.used_since(&mut mark);
    // 900,000 bytes are 220 units, 600,000 are 147.
    assert_eq!((used.queries, used.read_half_units), (3, 2 * (220 + 220 + 147)));
    ask.direction = Direction::Descending;
    assert_eq!(pages(bench, ask.clone()).await, [vec!["7", "6", "5"], vec!["4", "3", "2"], vec!["1", "0"]]);
    ask.limit = Some(2);
    assert_eq!(pages(bench, ask).await.len(), 5);
}

async fn a_page_takes_a_megabyte_to_the_byte(bench: &Bench) {
    let quarter = limits::QUERY_PAGE_MAX_BYTES / 4;
    for (pk, last_bytes, expected) in [("less", quarter - 1, 4), ("all", quarter, 4), ("more", quarter + 1, 3)] {
        for number in 0..4 {
            let at = Key::new(Table::Catalog, pk, number.to_string());
            let size_bytes = if number == 3 { last_bytes } else { quarter };
            bench.items.put(&at, padded(&at, Item::new(), size_bytes), Condition::Absent).await.unwrap();
        }
        let page = bench.items.query(&Query::new(Table::Catalog, pk, SortRange::All)).await.unwrap();
        assert_eq!(page.items.len(), expected, "{pk}");
        assert_eq!(page.next.is_some(), expected < 4, "{pk}");
    }
}

async fn reading_continues_behind_keys_that_are_gone(bench: &Bench) {
    fill(bench).await;
    let between = SortRange::Between("dt=2".into(), "m".into());
    let inside = ["dt=2", "dt=2/h=1", "du", "m"];
    let cases: [(&str, Direction, &[&str]); 8] = [
        ("dt=2/", Direction::Ascending, &inside[1..]),
        ("dt=2", Direction::Ascending, &inside[1..]),
        ("dt=2/h", Direction::Descending, &["dt=2"]),
        ("a", Direction::Ascending, &inside),
        ("m", Direction::Ascending, &[]),
        ("zzz", Direction::Ascending, &[]),
        ("zzz", Direction::Descending, &["m", "du", "dt=2/h=1", "dt=2"]),
        ("a", Direction::Descending, &[]),
    ];
    for (after, direction, expected) in cases {
        let ask = Query { start_after: Some(after.into()), direction, ..query(between.clone()) };
        assert_eq!(names(bench, &ask).await, (to_owned(expected), None), "{after} {direction:?}");
    }
    let before = bench.items.item_usage();
    let ask = Query { start_after: Some("zzz".into()), ..query(between) };
    bench.items.query(&ask).await.unwrap();
    assert_eq!(bench.items.item_usage(), before, "nothing is left: no request");
}

async fn queries_cost_what_they_read(bench: &Bench) {
    for number in 0..4 {
        let at = key(&number.to_string());
        bench.items.put(&at, padded(&at, Item::new(), 2000), Condition::Absent).await.unwrap();
    }
    let mut mark = bench.items.item_usage();
    let mut cost = async |ask: Query| {
        let items_read = bench.items.query(&ask).await.unwrap().items.len() as u64;
        let used = bench.used_since(&mut mark);
        let expected =
            ItemUsage { queries: 1, items_read, read_half_units: used.read_half_units, ..ItemUsage::default() };
        assert_eq!(used, expected);
        used.read_half_units
    };
    let eventual = Query { consistency: Consistency::Eventual, ..query(SortRange::All) };
    assert_eq!(cost(query(SortRange::All)).await, 4, "8,000 bytes together");
    assert_eq!(cost(eventual.clone()).await, 2);
    assert_eq!(cost(Query { limit: Some(2), ..query(SortRange::All) }).await, 2);
    assert_eq!(cost(Query { limit: Some(3), ..eventual.clone() }).await, 2);
    assert_eq!(cost(Query { pk: "nobody".to_owned(), ..query(SortRange::All) }).await, 2, "nothing costs 4 KB");
    assert_eq!(cost(Query { pk: "nobody".to_owned(), ..eventual }).await, 1);
}

async fn impossible_queries_are_refused(bench: &Bench) {
    let text = |range| query(range);
    for ask in [
        text(SortRange::Between("b".into(), "a".into())),
        text(SortRange::Between("".into(), "".into())),
        text(SortRange::AtMost("".into())),
        text(SortRange::Prefix(vec![1u8].into())),
        Query { limit: Some(0), ..text(SortRange::All) },
        Query { pk: String::new(), ..text(SortRange::All) },
        Query { start_after: Some(vec![1u8].into()), ..text(SortRange::All) },
        Query::new(Table::Partitions, "p", SortRange::AtLeast("text".into())),
    ] {
        assert_kind(bench.items.query(&ask).await, StoreErrorKind::Invalid);
    }
    let long = text(SortRange::AtLeast("x".repeat(1025).into()));
    assert_kind(bench.items.query(&long).await, StoreErrorKind::TooLarge);
    assert_eq!(bench.items.item_usage(), ItemUsage::default());
}
