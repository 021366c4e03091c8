use std::collections::BTreeMap;

use futures::future::join_all;
use lakewarden_core::limits;
use lakewarden_core::store::{
    Deleted, Doomed, ETag, GetOptions, ObjectError, ObjectKey, ObjectUsage, PutCondition, PutOptions, StoreErrorKind,
};

use super::{Bench, at, bytes, memory, only_if, s3, stale};

contract!(memory, s3 =>
    puts_obey_their_condition,
    copies_obey_their_condition,
    a_copy_takes_bytes_and_metadata_along,
    deletes_obey_their_condition,
    a_batch_delete_answers_each_key_in_order,
    a_batch_delete_takes_a_thousand_keys,
    writes_are_counted,
    one_of_many_first_puts_wins,
    one_of_many_replacing_puts_wins,
    one_of_many_conditional_deletes_wins,
);

/// What a conditional write does to `key`, which holds `before` (if anything) with this tag.
fn expected(key: &ObjectKey, before: Option<&ETag>, condition: &PutCondition) -> Result<(), ObjectError> {
    match (condition, before) {
        (PutCondition::Always, _) | (PutCondition::Absent, None) => Ok(()),
        (PutCondition::Matches(tag), Some(before)) if tag == before => Ok(()),
        (PutCondition::Matches(_), None) => Err(ObjectError::NotFound(key.clone())),
        (PutCondition::Absent | PutCondition::Matches(_), Some(_)) => Err(ObjectError::PreconditionFailed(key.clone())),
    }
}

/// Every condition on a key that is free and on one that is taken.
async fn each_condition(bench: &Bench, write: impl AsyncFn(&ObjectKey, &PutCondition) -> Result<ETag, ObjectError>) {
    for taken in [false, true] {
        for condition in 0..4 {
            let key = format!("{taken} {condition}");
            let before = if taken { Some(bench.put(&key, "before").await) } else { None };
            let condition = match condition {
                0 => PutCondition::Always,
                1 => PutCondition::Absent,
                2 => PutCondition::Matches(stale()),
                _ => PutCondition::Matches(before.clone().unwrap_or_else(stale)),
            };
            let expected = expected(&at(&key), before.as_ref(), &condition);
            let answer = write(&at(&key), &condition).await;
            assert_eq!(answer.clone().map(|_| ()), expected, "{condition:?} on {before:?}");
            let after = if expected.is_ok() { Some("after") } else { before.as_ref().map(|_| "before") };
            assert_eq!(bench.body(&key).await.as_deref(), after, "{condition:?} on {before:?}");
            if let Some(tag) = answer.ok().or(before) {
                assert_eq!(bench.objects.head(&at(&key)).await.unwrap().etag, tag);
            }
        }
    }
}

async fn puts_obey_their_condition(bench: &Bench) {
    each_condition(bench, async |key: &ObjectKey, condition: &PutCondition| {
        bench.objects.put(key, bytes("after"), &only_if(condition.clone())).await
    })
    .await;
}

async fn copies_obey_their_condition(bench: &Bench) {
    bench.put("source", "after").await;
    each_condition(bench, async |key: &ObjectKey, condition: &PutCondition| {
        bench.objects.copy(&at("source"), key, condition).await
    })
    .await;
}

async fn a_copy_takes_bytes_and_metadata_along(bench: &Bench) {
    let metadata = BTreeMap::from([("table-id".to_owned(), "t 1".to_owned())]);
    let options = PutOptions { metadata: metadata.clone(), ..PutOptions::default() };
    let tag = bench.objects.put(&at("from"), bytes("body"), &options).await.unwrap();
    bench.clock.advance_ms(5_000);
    let elsewhere = ObjectKey::new("pond", "to");
    assert_eq!(bench.objects.copy(&at("from"), &elsewhere, &PutCondition::Always).await, Ok(tag.clone()));
    let copied = bench.objects.get(&elsewhere, &GetOptions::default()).await.unwrap();
    assert_eq!((copied.bytes, copied.meta.metadata, copied.meta.etag), (bytes("body"), metadata, tag));
    let original = bench.objects.head(&at("from")).await.unwrap();
    assert_eq!(copied.meta.last_modified_ms, original.last_modified_ms + 5_000);

    for condition in [PutCondition::Always, PutCondition::Absent] {
        let answer = bench.objects.copy(&at("missing"), &at("to"), &condition).await;
        assert_eq!(answer, Err(ObjectError::NotFound(at("missing"))), "{condition:?}");
    }
    assert_eq!(bench.body("to").await, None);
}

async fn deletes_obey_their_condition(bench: &Bench) {
    let tag = bench.put("key", "body").await;
    let refused = Err(ObjectError::PreconditionFailed(at("key")));
    assert_eq!(bench.objects.delete(&at("key"), Some(&stale())).await, refused);
    assert_eq!(bench.body("key").await.as_deref(), Some("body"));
    assert_eq!(bench.objects.delete(&at("key"), Some(&tag)).await, Ok(()));
    assert_eq!(bench.body("key").await, None);
    assert_eq!(bench.objects.delete(&at("key"), Some(&tag)).await, Err(ObjectError::NotFound(at("key"))));
    assert_eq!(bench.objects.delete(&at("key"), None).await, Ok(()));
    bench.put("key", "body").await;
    assert_eq!(bench.objects.delete(&at("key"), None).await, Ok(()));
    assert_eq!(bench.body("key").await, None);
}

fn doomed(key: &str, if_match: Option<&ETag>) -> Doomed {
    Doomed { key: key.to_owned(), if_match: if_match.cloned() }
}

async fn a_batch_delete_answers_each_key_in_order(bench: &Bench) {
    let mut tags = Vec::new();
    for key in ["z", "y", "x", "w"] {
        tags.push(bench.put(key, key).await);
    }
    let batch = [
        doomed("z", Some(&tags[0])),
        doomed("y", Some(&tags[0])),
        doomed("missing", None),
        doomed("x", None),
        doomed("missing too", Some(&tags[0])),
        doomed("w", Some(&stale())),
    ];
    let answer = bench.objects.delete_batch("lake", &batch).await.unwrap();
    let expected = [Deleted::Gone, Deleted::Changed, Deleted::Gone, Deleted::Gone, Deleted::Changed, Deleted::Changed];
    assert_eq!(answer, expected);
    for (key, left) in [("z", false), ("y", true), ("x", false), ("w", true)] {
        assert_eq!(bench.body(key).await.is_some(), left, "{key}");
    }
}

async fn a_batch_delete_takes_a_thousand_keys(bench: &Bench) {
    bench.put("000", "body").await;
    let batch: Vec<Doomed> = (0..=limits::DELETE_BATCH_MAX_KEYS).map(|n| doomed(&format!("{n:03}"), None)).collect();
    let kind = |answer: Result<Vec<Deleted>, ObjectError>| match answer {
        Err(ObjectError::Store(error)) => Some(error.kind),
        _ => None,
    };
    assert_eq!(kind(bench.objects.delete_batch("lake", &batch).await), Some(StoreErrorKind::TooLarge));
    assert_eq!(kind(bench.objects.delete_batch("lake", &[]).await), Some(StoreErrorKind::Invalid));
    let twice = [doomed("a", None), doomed("a", Some(&stale()))];
    assert_eq!(kind(bench.objects.delete_batch("lake", &twice).await), Some(StoreErrorKind::Invalid));
    assert!(bench.body("000").await.is_some());
    for count in [limits::DELETE_BATCH_MAX_KEYS - 1, limits::DELETE_BATCH_MAX_KEYS] {
        let answer = bench.objects.delete_batch("lake", &batch[..count]).await.unwrap();
        assert_eq!(answer, vec![Deleted::Gone; count]);
    }
    assert_eq!(bench.body("000").await, None);
}

async fn writes_are_counted(bench: &Bench) {
    let (objects, none) = (&bench.objects, ObjectUsage::default());
    let mut mark = objects.object_usage();
    let mut expect = |expected: ObjectUsage, what: &str| assert_eq!(bench.used_since(&mut mark), expected, "{what}");
    let absent = only_if(PutCondition::Absent);
    objects.put(&at("a"), bytes("12345"), &absent).await.unwrap();
    expect(ObjectUsage { puts: 1, bytes_written: 5, ..none }, "put");
    objects.put(&at("a"), bytes("12345"), &absent).await.unwrap_err();
    expect(ObjectUsage { puts: 1, ..none }, "a refused put writes nothing");
    objects.copy(&at("a"), &at("b"), &PutCondition::Absent).await.unwrap();
    objects.copy(&at("a"), &at("b"), &PutCondition::Absent).await.unwrap_err();
    expect(ObjectUsage { copies: 2, ..none }, "copies move no bytes through us");
    objects.delete(&at("b"), Some(&stale())).await.unwrap_err();
    objects.delete(&at("b"), None).await.unwrap();
    expect(ObjectUsage { deletes: 2, ..none }, "deletes");
    objects.delete_batch("lake", &[doomed("a", None), doomed("c", None)]).await.unwrap();
    expect(ObjectUsage { batch_deletes: 1, ..none }, "one request whatever it deletes");
    objects.put(&at(""), bytes("x"), &absent).await.unwrap_err();
    objects.delete_batch("lake", &[]).await.unwrap_err();
    expect(none, "what is refused at once is no request");
}

/// A writer may be told to try again; the others have lost.
fn has_lost<T>(answer: &Result<T, ObjectError>) -> bool {
    matches!(
        answer,
        Err(ObjectError::PreconditionFailed(_) | ObjectError::ConditionalConflict(_) | ObjectError::NotFound(_))
    )
}

async fn one_of_many_first_puts_wins(bench: &Bench) {
    for round in 0..5 {
        let key = format!("_delta_log/{round:020}.json");
        let absent = only_if(PutCondition::Absent);
        let target = at(&key);
        let puts = (0..16).map(|writer| bench.objects.put(&target, bytes(&format!("writer {writer}")), &absent));
        let answers = join_all(puts).await;
        let winners: Vec<usize> = (0..16).filter(|writer| answers[*writer].is_ok()).collect();
        assert_eq!(winners.len(), 1, "{answers:?}");
        assert_eq!(answers.iter().filter(|answer| has_lost(answer)).count(), 15, "{answers:?}");
        assert_eq!(bench.body(&key).await, Some(format!("writer {}", winners[0])));
    }
}

async fn one_of_many_replacing_puts_wins(bench: &Bench) {
    let target = at("head");
    let mut tag = bench.put("head", "start").await;
    for round in 0..5 {
        let matching = only_if(PutCondition::Matches(tag.clone()));
        let puts = (0..16)
            .map(|writer| bench.objects.put(&target, bytes(&format!("round {round} writer {writer}")), &matching));
        let answers = join_all(puts).await;
        assert_eq!(answers.iter().filter(|answer| has_lost(answer)).count(), 15, "{answers:?}");
        tag = answers.into_iter().find_map(Result::ok).unwrap();
        assert_eq!(bench.objects.head(&at("head")).await.unwrap().etag, tag);
    }
}

async fn one_of_many_conditional_deletes_wins(bench: &Bench) {
    let tag = bench.put("key", "body").await;
    let target = at("key");
    let answers = join_all((0..16).map(|_| bench.objects.delete(&target, Some(&tag)))).await;
    assert_eq!(answers.iter().filter(|answer| has_lost(answer)).count(), 15, "{answers:?}");
    assert_eq!(bench.body("key").await, None);
}
