use futures::future::join_all;
use kit::values::{item, padded};
use lakewarden_core::limits;
use lakewarden_core::store::{
    Condition, Consistency, Item, ItemUsage, Key, StoreErrorKind, Table, Value, WriteError, item_size_bytes,
};

use super::{Bench, assert_kind, beside, dynamodb, key, memory};

contract!(memory, dynamodb, beside =>
    every_condition_holds_or_answers_what_was_there,
    every_kind_of_value_survives,
    every_table_takes_its_keys,
    keys_and_items_at_their_limits,
    what_dynamodb_refuses_is_refused,
    sizes_are_counted_to_the_byte,
    writes_and_reads_cost_what_they_cost,
    one_of_many_conditional_puts_wins,
    one_of_many_conditional_deletes_wins,
);

/// What is stored before the write.
fn states() -> [Option<Item>; 5] {
    [
        None,
        Some(Item::new()),
        Some(item([("revision", Value::from("r1")), ("ends_ms", Value::from(5))])),
        Some(item([("revision", Value::from("r2")), ("ends_ms", Value::from(6))])),
        Some(item([("revision", Value::Null), ("ends_ms", Value::from("5"))])),
    ]
}

/// Conditions and whether they hold in each of the states.
fn cases() -> Vec<(Condition, [bool; 5])> {
    let at_most = |value| Condition::AbsentOrAtMost { field: "ends_ms", value };
    let both = |conditions: &[Condition]| Condition::All(conditions.to_vec());
    vec![
        (Condition::Always, [true, true, true, true, true]),
        (Condition::Absent, [true, false, false, false, false]),
        (Condition::Present, [false, true, true, true, true]),
        (Condition::equals("revision", "r1"), [false, false, true, false, false]),
        (Condition::equals("revision", Value::Null), [false, false, false, false, true]),
        (Condition::equals("ends_ms", 5), [false, false, true, false, false]),
        (Condition::equals("ends_ms", "5"), [false, false, false, false, true]),
        (at_most(4), [true, false, false, false, false]),
        (at_most(5), [true, false, true, false, false]),
        (at_most(6), [true, false, true, true, false]),
        (both(&[]), [true, true, true, true, true]),
        (both(&[Condition::Always, Condition::Present]), [false, true, true, true, true]),
        (
            both(&[Condition::equals("revision", "r1"), Condition::equals("ends_ms", 5)]),
            [false, false, true, false, false],
        ),
        (both(&[Condition::equals("revision", "r1"), at_most(4)]), [false, false, false, false, false]),
        (both(&[Condition::Absent, both(&[Condition::Present])]), [false, false, false, false, false]),
    ]
}

async fn every_condition_holds_or_answers_what_was_there(bench: &Bench) {
    let items = &bench.items;
    let new = item([("written", Value::from(true))]);
    for (number, (condition, expected)) in cases().into_iter().enumerate() {
        for (state, (stored, holds)) in states().into_iter().zip(expected).enumerate() {
            let context = format!("{condition:?} on {stored:?}");
            let (put, delete) = (key(&format!("put {number} {state}")), key(&format!("delete {number} {state}")));
            if let Some(stored) = &stored {
                items.put(&put, stored.clone(), Condition::Always).await.unwrap();
                items.put(&delete, stored.clone(), Condition::Always).await.unwrap();
            }
            let refused = Err(WriteError::ConditionFailed { old: stored.clone() });
            let answer = items.put(&put, new.clone(), condition.clone()).await;
            assert_eq!(answer, if holds { Ok(()) } else { refused.clone() }, "put: {context}");
            let found = items.get(&put, Consistency::Strong).await.unwrap();
            assert_eq!(found, if holds { Some(new.clone()) } else { stored.clone() }, "put: {context}");
            let answer = items.delete(&delete, condition.clone()).await;
            assert_eq!(answer, if holds { Ok(()) } else { refused }, "delete: {context}");
            let found = items.get(&delete, Consistency::Strong).await.unwrap();
            assert_eq!(found, if holds { None } else { stored }, "delete: {context}");
        }
    }
}

/// One item of every kind of value, edges included.
fn all_kinds() -> Item {
    item([
        ("text", Value::from("ü 中 😀 \u{0} \n \"")),
        ("empty_text", Value::from("")),
        ("most", Value::from(i64::MAX)),
        ("least", Value::from(i64::MIN)),
        ("zero", Value::from(0)),
        ("round", Value::from(-1_200_000)),
        ("bytes", Value::from(vec![0u8, 127, 128, 255])),
        ("empty_bytes", Value::from(Vec::new())),
        ("yes", Value::from(true)),
        ("nothing", Value::Null),
        ("list", Value::List(vec![Value::from(1), Value::List(vec![]), Value::Map(Item::new())])),
        ("map", Value::Map(item([("a.b", Value::from(1)), ("c", Value::Map(item([("d", Value::Null)])))]))),
        ("ü:#name with blanks", Value::from("x")),
    ])
}

async fn every_kind_of_value_survives(bench: &Bench) {
    let (at, stored) = (key("kinds"), all_kinds());
    bench.items.put(&at, stored.clone(), Condition::Absent).await.unwrap();
    for consistency in [Consistency::Strong, Consistency::Eventual] {
        assert_eq!(bench.items.get(&at, consistency).await.unwrap().as_ref(), Some(&stored));
    }
    let refused = bench.items.put(&at, Item::new(), Condition::Absent).await;
    assert_eq!(refused, Err(WriteError::ConditionFailed { old: Some(stored.clone()) }));
    for (name, value) in &stored {
        // Names of conditions are fixed in the product; leaking those of a test is how it gets them from a map.
        let field: &'static str = Box::leak(name.clone().into_boxed_str());
        let condition = Condition::Equals { field, value: value.clone() };
        bench.items.put(&at, stored.clone(), condition).await.unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

async fn every_table_takes_its_keys(bench: &Bench) {
    let keys = [
        Key::new(Table::Catalog, "p", "s"),
        Key::new(Table::Partitions, "p", vec![0u8, 255, 1]),
        Key::new(Table::Commits, "s3://b/t#1", "head"),
        Key::new(Table::DeltaLog, "s3a://b/t", "00000000000000000001.json"),
    ];
    for at in &keys {
        let stored = item([("table", Value::from(at.table.as_str()))]);
        bench.items.put(at, stored.clone(), Condition::Absent).await.unwrap();
        assert!(matches!(
            bench.items.put(at, Item::new(), Condition::Absent).await,
            Err(WriteError::ConditionFailed { old: Some(old) }) if old == stored
        ));
        assert_eq!(bench.items.get(at, Consistency::Strong).await.unwrap(), Some(stored));
        bench.items.delete(at, Condition::Present).await.unwrap();
        assert_eq!(bench.items.get(at, Consistency::Strong).await.unwrap(), None);
        let refused = bench.items.delete(at, Condition::Present).await;
        assert_eq!(refused, Err(WriteError::ConditionFailed { old: None }));
        bench.items.delete(at, Condition::Always).await.unwrap();
    }
}

async fn keys_and_items_at_their_limits(bench: &Bench) {
    let items = &bench.items;
    for (at, allowed) in [
        (Key::new(Table::Catalog, "p", "s".repeat(1023)), true),
        (Key::new(Table::Catalog, "p", "s".repeat(1024)), true),
        (Key::new(Table::Catalog, "p", "s".repeat(1025)), false),
        (Key::new(Table::Partitions, "p", vec![255u8; 1024]), true),
        (Key::new(Table::Partitions, "p", vec![255u8; 1025]), false),
        (Key::new(Table::Catalog, "p".repeat(2048), "s"), true),
        (Key::new(Table::Catalog, "p".repeat(2049), "s"), false),
    ] {
        match items.put(&at, Item::new(), Condition::Absent).await {
            Ok(()) => assert!(allowed, "{at:?}"),
            Err(WriteError::Store(error)) => assert!(!allowed && error.kind == StoreErrorKind::TooLarge, "{error}"),
            Err(error) => panic!("{error}"),
        }
        assert_eq!(items.get(&at, Consistency::Strong).await.is_ok(), allowed);
    }
    let at = key("large");
    for (size_bytes, allowed) in
        [(limits::ITEM_MAX_BYTES - 1, true), (limits::ITEM_MAX_BYTES, true), (limits::ITEM_MAX_BYTES + 1, false)]
    {
        let answer = items.put(&at, padded(&at, all_kinds(), size_bytes), Condition::Always).await;
        assert_eq!(answer.is_ok(), allowed, "{size_bytes}: {answer:?}");
        if let Err(error) = answer {
            assert!(matches!(error, WriteError::Store(error) if error.kind == StoreErrorKind::TooLarge));
        }
    }
}

async fn what_dynamodb_refuses_is_refused(bench: &Bench) {
    let invalid = StoreErrorKind::Invalid;
    for at in [
        Key::new(Table::Catalog, "", "s"),
        Key::new(Table::Catalog, "p", ""),
        Key::new(Table::Catalog, "p", vec![1u8]),
        Key::new(Table::Partitions, "p", "text"),
    ] {
        assert_kind(bench.items.get(&at, Consistency::Strong).await, invalid);
        let put = bench.items.put(&at, Item::new(), Condition::Always).await;
        assert!(matches!(put, Err(WriteError::Store(error)) if error.kind == invalid));
        let delete = bench.items.delete(&at, Condition::Always).await;
        assert!(matches!(delete, Err(WriteError::Store(error)) if error.kind == invalid));
    }
    let put = bench.items.put(&key("s"), item([("sk", Value::from("x"))]), Condition::Always).await;
    assert!(matches!(put, Err(WriteError::Store(error)) if error.kind == invalid));
    let delete = bench.items.delete(&key("s"), Condition::equals("pk", "p")).await;
    assert!(matches!(delete, Err(WriteError::Store(error)) if error.kind == invalid));
    assert_eq!(bench.items.item_usage(), ItemUsage::default(), "what is refused at once is no request");
}

/// A kilobyte is one unit, a byte more is two: so both sides count the same size for every kind of value.
async fn sizes_are_counted_to_the_byte(bench: &Bench) {
    let mut mark = ItemUsage::default();
    for (name, value) in all_kinds() {
        let at = key(&name);
        let alone = Item::from([(name.clone(), value)]);
        let whole = item_size_bytes(&at, &alone) + "pad".len();
        for (size_bytes, write_units) in [(whole.next_multiple_of(1024), 1), (whole.next_multiple_of(1024) + 1, 2)] {
            bench.items.put(&at, padded(&at, alone.clone(), size_bytes), Condition::Always).await.unwrap();
            let expected = ItemUsage { puts: 1, write_units, ..ItemUsage::default() };
            assert_eq!(bench.used_since(&mut mark), expected, "{name} of {size_bytes} bytes");
        }
        bench.items.delete(&at, Condition::Always).await.unwrap();
        bench.used_since(&mut mark);
    }
}

async fn writes_and_reads_cost_what_they_cost(bench: &Bench) {
    let (items, at) = (&bench.items, key("s"));
    let of_size = |size_bytes| padded(&at, Item::new(), size_bytes);
    let mut mark = ItemUsage::default();
    let none = ItemUsage::default();
    let mut expect = |expected: ItemUsage, what: &str| assert_eq!(bench.used_since(&mut mark), expected, "{what}");

    items.get(&at, Consistency::Eventual).await.unwrap();
    expect(ItemUsage { gets: 1, read_half_units: 1, ..none }, "eventual get of nothing");
    items.get(&at, Consistency::Strong).await.unwrap();
    expect(ItemUsage { gets: 1, read_half_units: 2, ..none }, "strong get of nothing");
    items.put(&at, of_size(4096), Condition::Absent).await.unwrap();
    expect(ItemUsage { puts: 1, write_units: 4, ..none }, "put of 4 KB");
    items.get(&at, Consistency::Strong).await.unwrap();
    expect(ItemUsage { gets: 1, items_read: 1, read_half_units: 2, ..none }, "strong get of 4 KB");
    items.put(&at, of_size(4097), Condition::Present).await.unwrap();
    expect(ItemUsage { puts: 1, write_units: 5, ..none }, "put of a byte more");
    items.get(&at, Consistency::Strong).await.unwrap();
    expect(ItemUsage { gets: 1, items_read: 1, read_half_units: 4, ..none }, "strong get of a byte more");
    items.get(&at, Consistency::Eventual).await.unwrap();
    expect(ItemUsage { gets: 1, items_read: 1, read_half_units: 2, ..none }, "eventual get of a byte more");
    items.put(&at, of_size(100), Condition::Absent).await.unwrap_err();
    expect(ItemUsage { puts: 1, write_units: 5, ..none }, "a failed put costs the larger item");
    items.put(&at, of_size(9000), Condition::Absent).await.unwrap_err();
    expect(ItemUsage { puts: 1, write_units: 9, ..none }, "a failed put of a larger item");
    items.put(&at, of_size(100), Condition::Always).await.unwrap();
    expect(ItemUsage { puts: 1, write_units: 5, ..none }, "a put that shrinks");
    items.delete(&at, Condition::Absent).await.unwrap_err();
    expect(ItemUsage { deletes: 1, write_units: 1, ..none }, "a failed delete");
    items.put(&at, of_size(3000), Condition::Always).await.unwrap();
    expect(ItemUsage { puts: 1, write_units: 3, ..none }, "a put that grows");
    items.delete(&at, Condition::Present).await.unwrap();
    expect(ItemUsage { deletes: 1, write_units: 3, ..none }, "a delete costs what it removes");
    items.delete(&at, Condition::Always).await.unwrap();
    expect(ItemUsage { deletes: 1, write_units: 1, ..none }, "a delete of nothing");
    items.delete(&at, Condition::Present).await.unwrap_err();
    expect(ItemUsage { deletes: 1, write_units: 1, ..none }, "a failed delete of nothing");
}

async fn one_of_many_conditional_puts_wins(bench: &Bench) {
    for round in 0..5 {
        let at = key(&format!("race {round}"));
        let put = |writer: i64| bench.items.put(&at, item([("writer", Value::from(writer))]), Condition::Absent);
        let answers = join_all((0..16).map(put)).await;
        let winners: Vec<usize> = (0..16).filter(|writer| answers[*writer].is_ok()).collect();
        assert_eq!(winners.len(), 1, "{answers:?}");
        let stored = item([("writer", Value::from(i64::try_from(winners[0]).unwrap()))]);
        for lost in answers.into_iter().filter_map(Result::err) {
            assert_eq!(lost, WriteError::ConditionFailed { old: Some(stored.clone()) });
        }
        assert_eq!(bench.items.get(&at, Consistency::Strong).await.unwrap(), Some(stored));
    }
}

async fn one_of_many_conditional_deletes_wins(bench: &Bench) {
    let at = key("race");
    bench.items.put(&at, Item::new(), Condition::Absent).await.unwrap();
    let answers = join_all((0..16).map(|_| bench.items.delete(&at, Condition::Present))).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1, "{answers:?}");
    let lost = WriteError::ConditionFailed { old: None };
    assert!(answers.into_iter().filter_map(Result::err).all(|error| error == lost));
}
