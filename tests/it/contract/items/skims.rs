//! Queries of partitions, by which listings read them: in full, and skimmed for their values.

use kit::values::{item, padded};
use lakewarden_core::store::{
    Condition, Consistency, Direction, Item, ItemUsage, Key, LateItem, Query, Sort, SortRange, Table, Value,
};

use super::{Bench, beside, beside_file, dynamodb, memory};

contract!(memory, dynamodb, beside, beside_file =>
    every_kind_of_value_comes_back,
    texts_are_what_was_written,
    what_is_not_skimmed_is_told,
    pages_of_partitions_end_where_they_should,
    a_page_of_partitions_takes_a_megabyte_to_the_byte,
    partitions_cost_what_they_read,
    what_was_written_is_read_at_once,
);

fn at(sk: &[u8]) -> Key {
    Key::new(Table::Partitions, "p#1", sk.to_vec())
}

fn texts(values: &[&str]) -> Value {
    Value::List(values.iter().map(|value| Value::from(*value)).collect())
}

async fn put(bench: &Bench, sk: &[u8], item: Item) {
    bench.items.put(&at(sk), item, Condition::Always).await.unwrap();
}

fn all() -> Query {
    Query::new(Table::Partitions, "p#1", SortRange::All)
}

/// The only item, read in full and skimmed.
async fn read_both(bench: &Bench) -> (Item, LateItem) {
    let mut page = bench.items.query(&all()).await.unwrap();
    let mut late = bench.items.skim(&all(), "values").await.unwrap();
    assert_eq!((page.items.len(), late.items.len()), (1, 1));
    let ((key, item), (sk, late)) = (page.items.remove(0), late.items.remove(0));
    assert_eq!((&key.sk, key.pk.as_str()), (&sk, "p#1"));
    assert_eq!(late.clone().decode().unwrap(), item);
    (item, late)
}

async fn every_kind_of_value_comes_back(bench: &Bench) {
    let map = item([("sk", Value::from("inner")), ("l", Value::List(vec![Value::Null, Value::Map(Item::new())]))]);
    let written = item([
        ("values", texts(&["2024", "é😀"])),
        ("empty", texts(&[])),
        ("text", Value::from("a \"quoted\" \\ one\n\u{1}\u{2028}, {\"S\":[")),
        ("none", Value::from("")),
        ("least", Value::Int(i64::MIN)),
        ("most", Value::Int(i64::MAX)),
        ("bytes", Value::Bytes((0..=255).collect())),
        ("yes", Value::Bool(true)),
        ("no", Value::Bool(false)),
        ("null", Value::Null),
        ("map", Value::Map(map)),
        ("an odd \"name\" é", Value::Int(0)),
    ]);
    put(bench, &[0, 255, 7], written.clone()).await;
    assert_eq!(read_both(bench).await.0, written);
}

async fn texts_are_what_was_written(bench: &Bench) {
    let odd = ["", "a", "\"", "\\", "\\\"", "],[", "\n\0", "é", "😀", "{\"S\":\"x\"}", "a\\u0041", "values"];
    for values in [&odd[..], &["2024", "01"], &[], &["\\"], &["\""], &[""]] {
        // Attributes are in no order, so it is found behind some and before others.
        let others = item([("sk2", texts(&["other"])), ("a", Value::from("\\\"values\":{")), ("z", Value::Int(3))]);
        let mut written = others.clone();
        written.insert("values".to_owned(), texts(values));
        let inner = item([("values", texts(&["inner"]))]);
        written.insert("m".to_owned(), Value::Map(inner));
        put(bench, &[1], written.clone()).await;
        let (item, late) = read_both(bench).await;
        assert_eq!((late.texts("values"), item), (Some(values.to_vec()), written));
    }
}

async fn what_is_not_skimmed_is_told(bench: &Bench) {
    let no_texts = [texts(&["a"]), Value::List(vec!["a".into(), Value::Int(1)]), "a".into(), Value::Map(Item::new())];
    for (number, value) in no_texts.into_iter().enumerate() {
        let name = if number == 0 { "other" } else { "values" };
        put(bench, &[1], item([(name, value.clone()), ("b", Value::Int(1))])).await;
        let (read, late) = read_both(bench).await;
        assert_eq!((late.texts("values"), read.get(name)), (None, Some(&value)));
    }
}

/// Range keys page by page, the same in full and skimmed, and what both cost.
async fn pages(bench: &Bench, mut query: Query) -> Vec<Vec<Vec<u8>>> {
    let mut pages = Vec::new();
    loop {
        let mut usage = bench.items.item_usage();
        let page = bench.items.query(&query).await.unwrap();
        let in_full = bench.used_since(&mut usage);
        let late = bench.items.skim(&query, "values").await.unwrap();
        assert_eq!(bench.used_since(&mut usage), in_full);
        let sorts = page.items.iter().map(|(key, _)| &key.sk);
        assert!(sorts.clone().eq(late.items.iter().map(|(sk, _)| sk)));
        assert_eq!(page.next, late.next);
        pages.push(sorts.map(|sk| sk.as_bytes().to_vec()).collect());
        match page.next {
            None => return pages,
            next => query.start_after = next,
        }
    }
}

async fn pages_of_partitions_end_where_they_should(bench: &Bench) {
    let sorts: [&[u8]; 9] = [&[0], &[0, 0], &[0, 255], &[1], &[15, 16], &[127], &[128, 0], &[255], &[255, 255, 255]];
    for sort in sorts {
        put(bench, sort, item([("values", texts(&["a"]))])).await;
        let neighbour = Key::new(Table::Partitions, "p#10", sort.to_vec());
        bench.items.put(&neighbour, Item::new(), Condition::Absent).await.unwrap();
    }
    let bytes = |bytes: &[u8]| Sort::Bytes(bytes.to_vec());
    for (range, expected) in [
        (SortRange::All, 0..9),
        (SortRange::Prefix(bytes(&[])), 0..9),
        (SortRange::Prefix(bytes(&[0])), 0..3),
        (SortRange::Prefix(bytes(&[255])), 7..9),
        (SortRange::Prefix(bytes(&[15])), 4..5),
        (SortRange::Prefix(bytes(&[2])), 0..0),
        (SortRange::Between(bytes(&[]), bytes(&[1])), 0..4),
        (SortRange::Between(bytes(&[0, 1]), bytes(&[128])), 2..6),
        (SortRange::AtLeast(bytes(&[127])), 5..9),
        (SortRange::AtMost(bytes(&[0, 255])), 0..3),
    ] {
        for direction in [Direction::Ascending, Direction::Descending] {
            for limit in [None, Some(1), Some(2), Some(9)] {
                let query = Query { range: range.clone(), limit, direction, ..all() };
                let mut found = pages(bench, query).await;
                let most = limit.unwrap_or(usize::MAX);
                assert!(found.iter().rev().skip(1).all(|page| page.len() == most), "{range:?} {limit:?}");
                if direction == Direction::Descending {
                    found.iter_mut().for_each(|page| page.reverse());
                    found.reverse();
                }
                let wanted: Vec<Vec<u8>> = sorts[expected.clone()].iter().map(|sort| sort.to_vec()).collect();
                assert_eq!(found.concat(), wanted, "{range:?} {direction:?} {limit:?}");
                assert!(limit.is_some() || found.len() == 1);
            }
        }
        // Behind keys that are not there, before, inside and after the range.
        for after in [&[0, 0, 0][..], &[0, 254], &[2], &[128], &[255, 255, 255, 0]] {
            let query = Query { range: range.clone(), start_after: Some(bytes(after)), ..all() };
            let left = sorts[expected.clone()].iter().filter(|sort| **sort > after);
            let wanted: Vec<Vec<u8>> = left.map(|sort| sort.to_vec()).collect();
            assert_eq!(pages(bench, query).await.concat(), wanted, "{range:?} behind {after:?}");
        }
    }
}

async fn a_page_of_partitions_takes_a_megabyte_to_the_byte(bench: &Bench) {
    for (sizes, expected) in [
        ([300_000, 300_000, 300_000, 148_576], &[4][..]),
        ([300_000, 300_000, 300_000, 148_577], &[3, 1]),
        ([400_000, 400_000, 300_000, 400_000], &[2, 2]),
    ] {
        for (number, size_bytes) in (1..).zip(sizes) {
            let whole = padded(&at(&[number]), item([("values", texts(&["a"]))]), size_bytes);
            put(bench, &[number], whole).await;
        }
        let lengths: Vec<usize> = pages(bench, all()).await.iter().map(Vec::len).collect();
        assert_eq!(lengths, expected, "{sizes:?}");
    }
}

async fn partitions_cost_what_they_read(bench: &Bench) {
    for number in 1..=4 {
        put(bench, &[number], padded(&at(&[number]), item([("values", texts(&["a"]))]), 1500)).await;
    }
    for (limit, consistency, items, half_units) in [
        (None, Consistency::Strong, 4, 4),
        (None, Consistency::Eventual, 4, 2),
        (Some(2), Consistency::Strong, 2, 2),
        (Some(3), Consistency::Strong, 3, 4),
        (Some(3), Consistency::Eventual, 3, 2),
    ] {
        let expected = ItemUsage { queries: 1, items_read: items, read_half_units: half_units, ..ItemUsage::default() };
        let mut usage = bench.items.item_usage();
        let query = Query { limit, consistency, ..all() };
        bench.items.query(&query).await.unwrap();
        assert_eq!(bench.used_since(&mut usage), expected, "{limit:?}");
        bench.items.skim(&query, "values").await.unwrap();
        assert_eq!(bench.used_since(&mut usage), expected, "{limit:?}, skimmed");
    }
    let nothing = ItemUsage { queries: 1, read_half_units: 2, ..ItemUsage::default() };
    let mut usage = bench.items.item_usage();
    bench.items.skim(&Query { range: SortRange::AtLeast(vec![9].into()), ..all() }, "values").await.unwrap();
    assert_eq!(bench.used_since(&mut usage), nothing);
}

async fn what_was_written_is_read_at_once(bench: &Bench) {
    for number in 0..100_u8 {
        put(bench, &[number + 1], item([("values", texts(&["a"])), ("n", Value::Int(number.into()))])).await;
        let page = bench.items.skim(&all(), "values").await.unwrap();
        let (_, last) = page.items.last().unwrap();
        assert_eq!(page.items.len(), usize::from(number) + 1);
        assert_eq!(last.clone().decode().unwrap().get("n"), Some(&Value::Int(number.into())));
        if number % 10 == 9 {
            bench.items.delete(&at(&[number + 1]), Condition::Present).await.unwrap();
            assert_eq!(bench.items.query(&all()).await.unwrap().items.len(), usize::from(number));
            put(bench, &[number + 1], item([("values", texts(&[]))])).await;
        }
    }
}
