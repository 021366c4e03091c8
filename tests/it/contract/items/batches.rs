use std::collections::BTreeMap;

use kit::values::{item, padded};
use lakewarden_core::store::memory::ManualClock;
use lakewarden_core::store::{Condition, Consistency, Item, ItemUsage, Key, StoreErrorKind, Table, Value, get_every};

use super::{Bench, assert_kind, beside, dynamodb, key, memory};

contract!(memory, dynamodb, beside =>
    a_batch_get_reads_across_tables,
    a_batch_get_takes_a_hundred_keys,
    a_batch_get_of_more_than_sixteen_megabytes_has_leftovers,
    a_batch_delete_deletes_across_tables,
    a_batch_delete_takes_twenty_five_keys,
);

fn across_tables() -> [Key; 4] {
    [
        key("s"),
        Key::new(Table::Partitions, "p", vec![0u8, 1]),
        Key::new(Table::Commits, "p", "s"),
        Key::new(Table::DeltaLog, "p", "s"),
    ]
}

async fn a_batch_get_reads_across_tables(bench: &Bench) {
    let mut expected = BTreeMap::new();
    for at in across_tables() {
        let stored = padded(&at, item([("table", Value::from(at.table.as_str()))]), 4097);
        bench.items.put(&at, stored.clone(), Condition::Absent).await.unwrap();
        expected.insert(at, stored);
    }
    let mut keys = across_tables().to_vec();
    keys.extend([key("missing"), Key::new(Table::Partitions, "missing", vec![0u8])]);
    let mut mark = bench.items.item_usage();
    for (consistency, half_units) in [(Consistency::Strong, 4), (Consistency::Eventual, 2)] {
        let answer = bench.items.batch_get(&keys, consistency).await.unwrap();
        assert_eq!(answer.unprocessed, []);
        assert_eq!(BTreeMap::from_iter(answer.found), expected);
        // Every item is rounded up by itself; one that is not there costs as one of up to 4 KB.
        let read_half_units = 4 * half_units + 2 * (half_units / 2);
        let used = ItemUsage { batch_gets: 1, items_read: 4, read_half_units, ..ItemUsage::default() };
        assert_eq!(bench.used_since(&mut mark), used);
    }
}

async fn a_batch_get_takes_a_hundred_keys(bench: &Bench) {
    let keys: Vec<Key> = (0..101).map(|number| key(&format!("{number:03}"))).collect();
    bench.items.put(&keys[99], Item::new(), Condition::Absent).await.unwrap();
    for count in [99, 100] {
        let answer = bench.items.batch_get(&keys[..count], Consistency::Strong).await.unwrap();
        assert_eq!(answer.found.len(), count - 99);
    }
    let refused = bench.items.batch_get(&keys, Consistency::Strong).await;
    assert_kind(refused, StoreErrorKind::TooLarge);
    assert_kind(bench.items.batch_get(&[], Consistency::Strong).await, StoreErrorKind::Invalid);
    let twice = [key("a"), key("b"), key("a")];
    assert_kind(bench.items.batch_get(&twice, Consistency::Strong).await, StoreErrorKind::Invalid);
}

async fn a_batch_get_of_more_than_sixteen_megabytes_has_leftovers(bench: &Bench) {
    let keys: Vec<Key> = (0..45).map(|number| key(&format!("{number:02}"))).collect();
    for at in &keys {
        bench.items.put(at, padded(at, Item::new(), 400_000), Condition::Absent).await.unwrap();
    }
    let mut mark = bench.items.item_usage();
    let answer = bench.items.batch_get(&keys, Consistency::Eventual).await.unwrap();
    // 41 items of 400,000 bytes are the most that fit into 16 MiB; 98 half units each.
    assert_eq!((answer.found.len(), answer.unprocessed.len()), (41, 4));
    let used = ItemUsage { batch_gets: 1, items_read: 41, read_half_units: 41 * 98, ..ItemUsage::default() };
    assert_eq!(bench.used_since(&mut mark), used);
    let mut seen: Vec<Key> = answer.found.into_iter().map(|(at, _)| at).chain(answer.unprocessed).collect();
    seen.sort();
    assert_eq!(seen, keys);

    let clock = ManualClock::new(0);
    let all = get_every(bench.items.as_ref(), &clock, &keys, Consistency::Eventual).await.unwrap();
    assert_eq!(all.into_keys().collect::<Vec<_>>(), keys);
    assert_eq!(bench.used_since(&mut mark).batch_gets, 2);
}

async fn a_batch_delete_deletes_across_tables(bench: &Bench) {
    for at in across_tables() {
        bench.items.put(&at, padded(&at, Item::new(), 1025), Condition::Absent).await.unwrap();
    }
    let mut keys = across_tables().to_vec();
    keys.push(key("missing"));
    let mut mark = bench.items.item_usage();
    assert_eq!(bench.items.batch_delete(&keys).await.unwrap(), []);
    let used = ItemUsage { batch_deletes: 1, write_units: 4 * 2 + 1, ..ItemUsage::default() };
    assert_eq!(bench.used_since(&mut mark), used);
    assert_eq!(bench.items.batch_get(&keys, Consistency::Strong).await.unwrap().found, []);
}

async fn a_batch_delete_takes_twenty_five_keys(bench: &Bench) {
    let keys: Vec<Key> = (0..26).map(|number| key(&format!("{number:03}"))).collect();
    for at in &keys {
        bench.items.put(at, Item::new(), Condition::Absent).await.unwrap();
    }
    assert_kind(bench.items.batch_delete(&keys).await, StoreErrorKind::TooLarge);
    assert_kind(bench.items.batch_delete(&[]).await, StoreErrorKind::Invalid);
    assert_kind(bench.items.batch_delete(&[key("a"), key("a")]).await, StoreErrorKind::Invalid);
    assert_eq!(bench.items.batch_delete(&keys[1..]).await.unwrap(), []);
    let left = bench.items.batch_get(&keys, Consistency::Strong).await.unwrap().found;
    assert_eq!(left.into_iter().map(|(at, _)| at).collect::<Vec<_>>(), [key("000")]);
}
