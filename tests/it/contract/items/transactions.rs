use futures::future::join_all;
use kit::values::{item, padded};
use lakewarden_core::limits;
use lakewarden_core::store::{
    CancelReason, Condition, Consistency, Item, ItemUsage, Key, StoreErrorKind, Table, TransactError, Value, Write,
};

use super::{Bench, beside, dynamodb, key, memory};

contract!(memory, dynamodb, beside =>
    a_transaction_happens_across_tables,
    a_cancelled_transaction_gives_its_reasons_in_order,
    a_token_is_carried_out_once,
    tokens_may_be_of_any_length,
    transactions_at_their_limits,
    one_of_many_transactions_wins,
);

fn put(at: &Key, item: Item, condition: Condition) -> Write {
    Write::Put { key: at.clone(), item, condition }
}

fn numbered(number: i64) -> Item {
    item([("number", Value::from(number))])
}

async fn a_transaction_happens_across_tables(bench: &Bench) {
    let (head, proposal) = (Key::new(Table::Commits, "t", "head"), Key::new(Table::Commits, "t", "proposal"));
    let (claim, lease) = (Key::new(Table::DeltaLog, "s3://b/t", "1.json"), key("lease"));
    bench.items.put(&head, padded(&head, numbered(1), 2048), Condition::Absent).await.unwrap();
    bench.items.put(&lease, padded(&lease, Item::new(), 1025), Condition::Absent).await.unwrap();
    let writes = [
        put(&head, numbered(2), Condition::equals("number", 1)),
        put(&proposal, numbered(2), Condition::Always),
        put(&claim, item([("complete", Value::from("false"))]), Condition::Absent),
        Write::Delete { key: lease.clone(), condition: Condition::Present },
        Write::Check { key: key("nobody"), condition: Condition::Absent },
        Write::Check { key: key("anything"), condition: Condition::Always },
    ];
    let mut mark = bench.items.item_usage();
    bench.items.transact(&writes, "token").await.unwrap();
    // Twice the units of each action: 2 KB replaced, two small puts, 1,025 bytes deleted, two checks of nothing.
    let used = ItemUsage { transactions: 1, write_units: 2 * (2 + 1 + 1 + 2 + 1 + 1), ..ItemUsage::default() };
    assert_eq!(bench.used_since(&mut mark), used);
    let get = async |at: &Key| bench.items.get(at, Consistency::Strong).await.unwrap();
    assert_eq!(get(&head).await, Some(numbered(2)));
    assert_eq!(get(&proposal).await, Some(numbered(2)));
    assert_eq!(get(&claim).await, Some(item([("complete", Value::from("false"))])));
    assert_eq!(get(&lease).await, None);
    assert_eq!(get(&key("nobody")).await, None);
}

async fn a_cancelled_transaction_gives_its_reasons_in_order(bench: &Bench) {
    let large = padded(&key("there"), numbered(1), 3000);
    bench.items.put(&key("there"), large.clone(), Condition::Absent).await.unwrap();
    let writes = [
        put(&key("new"), padded(&key("new"), Item::new(), 1500), Condition::Absent),
        put(&key("there"), numbered(2), Condition::Absent),
        Write::Delete { key: key("missing"), condition: Condition::equals("number", 1) },
        put(&key("newer"), numbered(3), Condition::Always),
        Write::Check { key: key("missing too"), condition: Condition::Present },
    ];
    let mut mark = bench.items.item_usage();
    let cancelled = bench.items.transact(&writes, "token").await;
    let reasons = vec![
        CancelReason::None,
        CancelReason::ConditionFailed { old: Some(large.clone()) },
        CancelReason::ConditionFailed { old: None },
        CancelReason::None,
        CancelReason::ConditionFailed { old: None },
    ];
    assert_eq!(cancelled, Err(TransactError::Cancelled { reasons }));
    let used = ItemUsage { transactions: 1, write_units: 2 * (2 + 3 + 1 + 1 + 1), ..ItemUsage::default() };
    assert_eq!(bench.used_since(&mut mark), used);
    for absent in ["new", "newer", "missing"] {
        assert_eq!(bench.items.get(&key(absent), Consistency::Strong).await.unwrap(), None, "{absent}");
    }
    assert_eq!(bench.items.get(&key("there"), Consistency::Strong).await.unwrap(), Some(large));

    for (check, expected) in [
        (Condition::equals("number", 1), None),
        (Condition::equals("number", 2), Some(0)),
        (Condition::All(vec![Condition::Present, Condition::AbsentOrAtMost { field: "number", value: 1 }]), None),
        (Condition::AbsentOrAtMost { field: "number", value: 0 }, Some(0)),
    ] {
        let write = Write::Check { key: key("there"), condition: check.clone() };
        let answer = bench.items.transact(&[write], &format!("{check:?}")).await;
        let failed = match answer {
            Ok(()) => None,
            Err(TransactError::Cancelled { reasons }) => {
                reasons.iter().position(|reason| matches!(reason, CancelReason::ConditionFailed { old: Some(_) }))
            }
            Err(error) => panic!("{error}"),
        };
        assert_eq!(failed, expected, "{check:?}");
    }
}

async fn a_token_is_carried_out_once(bench: &Bench) {
    let at = key("s");
    let stored = padded(&at, numbered(1), 5000);
    let writes = [put(&at, stored, Condition::Absent)];
    bench.items.transact(&writes, "token").await.unwrap();
    bench.items.delete(&at, Condition::Present).await.unwrap();
    let mut mark = bench.items.item_usage();
    bench.items.transact(&writes, "token").await.unwrap();
    assert_eq!(bench.items.get(&at, Consistency::Strong).await.unwrap(), None, "it was done before");
    // Doing nothing is charged as a transactional read of the item; the get of nothing is two half units more.
    let used = ItemUsage { transactions: 1, gets: 1, read_half_units: 2 * 4 + 2, ..ItemUsage::default() };
    assert_eq!(bench.used_since(&mut mark), used);
    let others = [put(&at, numbered(2), Condition::Absent)];
    let refused = bench.items.transact(&others, "token").await;
    assert!(matches!(refused, Err(TransactError::Store(error)) if error.kind == StoreErrorKind::Invalid));
    bench.items.transact(&writes, "another token").await.unwrap();
    assert!(bench.items.get(&at, Consistency::Strong).await.unwrap().is_some());
    // A transaction that was cancelled leaves its token free.
    let writes = [put(&key("t"), numbered(1), Condition::Present)];
    assert!(matches!(bench.items.transact(&writes, "free").await, Err(TransactError::Cancelled { .. })));
    bench.items.put(&key("t"), Item::new(), Condition::Absent).await.unwrap();
    bench.items.transact(&writes, "free").await.unwrap();
}

async fn tokens_may_be_of_any_length(bench: &Bench) {
    for length in [1, 36, 37, 1000] {
        let at = key(&length.to_string());
        let writes = [put(&at, numbered(1), Condition::Absent)];
        let token = "ü".repeat(length);
        bench.items.transact(&writes, &token).await.unwrap();
        bench.items.transact(&writes, &token).await.unwrap();
    }
}

async fn transactions_at_their_limits(bench: &Bench) {
    let refused = async |writes: &[Write], token: &str, expected: StoreErrorKind| {
        let answer = bench.items.transact(writes, token).await;
        assert!(matches!(&answer, Err(TransactError::Store(error)) if error.kind == expected), "{answer:?}");
    };
    refused(&[], "t", StoreErrorKind::Invalid).await;
    let one = put(&key("one"), Item::new(), Condition::Always);
    refused(std::slice::from_ref(&one), "", StoreErrorKind::Invalid).await;
    refused(&[one.clone(), one], "t", StoreErrorKind::Invalid).await;
    let many = |count: usize| -> Vec<Write> {
        (0..count).map(|number| put(&key(&format!("{number:03}")), Item::new(), Condition::Absent)).collect()
    };
    refused(&many(101), "t", StoreErrorKind::TooLarge).await;
    bench.items.transact(&many(100), "t").await.unwrap();
    bench.items.transact(&many(99), "t99").await.unwrap_err();

    let large = |total_bytes: usize| -> Vec<Write> {
        let count = 16;
        let sized = |number: usize| {
            let at = key(&format!("large {number:02}"));
            let size_bytes = total_bytes / count + if number == 0 { total_bytes % count } else { 0 };
            let stored = padded(&at, Item::new(), size_bytes);
            put(&at, stored, Condition::Always)
        };
        (0..count).map(sized).collect()
    };
    bench.items.transact(&large(limits::TRANSACTION_MAX_BYTES), "large").await.unwrap();
    refused(&large(limits::TRANSACTION_MAX_BYTES + 1), "larger", StoreErrorKind::TooLarge).await;
}

async fn one_of_many_transactions_wins(bench: &Bench) {
    let head = key("head");
    bench.items.put(&head, numbered(0), Condition::Absent).await.unwrap();
    for round in 0..5 {
        let claims = (0..16).map(|writer: i64| {
            let proposal = key(&format!("{round} {writer}"));
            let writes = [
                put(&head, numbered(round + 1), Condition::equals("number", round)),
                put(&proposal, numbered(writer), Condition::Absent),
            ];
            async move { bench.items.transact(&writes, &format!("{round} {writer}")).await }
        });
        let answers = join_all(claims).await;
        assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1, "{answers:?}");
        for (writer, answer) in answers.iter().enumerate() {
            let proposal = bench.items.get(&key(&format!("{round} {writer}")), Consistency::Strong).await.unwrap();
            assert_eq!(proposal.is_some(), answer.is_ok());
            let Err(error) = answer else { continue };
            let TransactError::Cancelled { reasons } = error else { panic!("{error}") };
            let lost = CancelReason::ConditionFailed { old: Some(numbered(round + 1)) };
            assert!(reasons[0] == lost || reasons[0] == CancelReason::Conflict, "{reasons:?}");
        }
    }
}
