use std::collections::BTreeMap;

use lakewarden_core::store::{
    ByteRange, GetOptions, ListRequest, ObjectError, ObjectUsage, PutOptions, StoreErrorKind,
};

use super::{Bench, NOW_MS, at, bytes, memory, s3, stale};

contract!(memory, s3 =>
    every_read_tells_the_same_of_an_object,
    a_later_put_replaces_everything,
    ranges_read_what_they_say,
    an_empty_object_has_no_ranges,
    a_get_obeys_its_condition,
    what_is_not_there_is_not_found,
    large_objects_survive,
    reads_are_counted,
);

async fn every_read_tells_the_same_of_an_object(bench: &Bench) {
    let options = PutOptions {
        metadata: BTreeMap::from([("Table-Id".to_owned(), "t 1".to_owned()), ("v".to_owned(), "2".to_owned())]),
        content_type: Some("application/json".to_owned()),
        ..PutOptions::default()
    };
    let tag = bench.objects.put(&at("a"), bytes("hello"), &options).await.unwrap();
    assert!(!tag.0.contains('"') && !tag.0.is_empty(), "{tag:?}");
    bench.clock.advance_ms(60_000);
    let head = bench.objects.head(&at("a")).await.unwrap();
    assert_eq!((&head.etag, head.size_bytes), (&tag, 5));
    assert_eq!(head.last_modified_ms, NOW_MS / 1000 * 1000, "whole seconds, by the store's clock");
    let lower = BTreeMap::from([("table-id".to_owned(), "t 1".to_owned()), ("v".to_owned(), "2".to_owned())]);
    assert_eq!(head.metadata, lower, "names in lower case");
    let object = bench.objects.get(&at("a"), &GetOptions::default()).await.unwrap();
    assert_eq!((&object.meta, object.bytes), (&head, bytes("hello")));
    let request = ListRequest { bucket: "lake".to_owned(), prefix: "a".to_owned(), start_after: None, max_keys: 10 };
    let page = bench.objects.list(&request).await.unwrap();
    assert!(!page.truncated);
    let [listed] = page.objects.as_slice() else { panic!("{page:?}") };
    assert_eq!((listed.key.as_str(), &listed.etag), ("a", &tag));
    assert_eq!((listed.size_bytes, listed.last_modified_ms), (5, head.last_modified_ms));
}

async fn a_later_put_replaces_everything(bench: &Bench) {
    let metadata = BTreeMap::from([("a".to_owned(), "1".to_owned())]);
    let options = PutOptions { metadata, ..PutOptions::default() };
    let first = bench.objects.put(&at("a"), bytes("one"), &options).await.unwrap();
    bench.clock.advance_ms(1_000);
    let second = bench.put("a", "two").await;
    assert_ne!(first, second);
    let object = bench.objects.get(&at("a"), &GetOptions::default()).await.unwrap();
    assert_eq!((object.bytes, object.meta.etag), (bytes("two"), second));
    assert_eq!(object.meta.metadata, BTreeMap::new());
    assert_eq!(object.meta.last_modified_ms, (NOW_MS + 1_000) / 1000 * 1000);
}

async fn ranges_read_what_they_say(bench: &Bench) {
    let tag = bench.put("r", "0123456789").await;
    let from = |start, length| ByteRange::From { start, length };
    let suffix = |length| ByteRange::Suffix { length };
    for (range, expected) in [
        (from(0, 1), Some("0")),
        (from(0, 10), Some("0123456789")),
        (from(0, 11), Some("0123456789")),
        (from(2, 3), Some("234")),
        (from(9, 1), Some("9")),
        (from(9, u64::MAX), Some("9")),
        (from(10, 1), None),
        (from(11, 5), None),
        (from(u64::MAX, u64::MAX), None),
        (from(3, 0), None),
        (suffix(1), Some("9")),
        (suffix(8), Some("23456789")),
        (suffix(10), Some("0123456789")),
        (suffix(11), Some("0123456789")),
        (suffix(u64::MAX), Some("0123456789")),
        (suffix(0), None),
    ] {
        let answer = bench.objects.get(&at("r"), &GetOptions { range: Some(range), if_match: None }).await;
        let Some(expected) = expected else {
            assert_eq!(answer, Err(ObjectError::InvalidRange(at("r"))), "{range:?}");
            continue;
        };
        let object = answer.unwrap();
        assert_eq!(object.bytes, bytes(expected), "{range:?}");
        assert_eq!((object.meta.size_bytes, &object.meta.etag), (10, &tag), "{range:?}: of the whole object");
    }
}

async fn an_empty_object_has_no_ranges(bench: &Bench) {
    bench.put("empty", "").await;
    let object = bench.objects.get(&at("empty"), &GetOptions::default()).await.unwrap();
    assert_eq!((object.bytes.len(), object.meta.size_bytes), (0, 0));
    for range in [ByteRange::From { start: 0, length: 1 }, ByteRange::Suffix { length: 1 }] {
        let answer = bench.objects.get(&at("empty"), &GetOptions { range: Some(range), if_match: None }).await;
        assert_eq!(answer, Err(ObjectError::InvalidRange(at("empty"))), "{range:?}");
    }
}

async fn a_get_obeys_its_condition(bench: &Bench) {
    let tag = bench.put("a", "0123456789").await;
    let range = Some(ByteRange::Suffix { length: 2 });
    for range in [None, range] {
        let object = bench.objects.get(&at("a"), &GetOptions { range, if_match: Some(tag.clone()) }).await.unwrap();
        assert_eq!(object.bytes, bytes(if range.is_some() { "89" } else { "0123456789" }));
        let refused = bench.objects.get(&at("a"), &GetOptions { range, if_match: Some(stale()) }).await;
        assert_eq!(refused, Err(ObjectError::PreconditionFailed(at("a"))));
    }
    let missing = bench.objects.get(&at("b"), &GetOptions { range: None, if_match: Some(tag) }).await;
    assert_eq!(missing, Err(ObjectError::NotFound(at("b"))));
}

async fn what_is_not_there_is_not_found(bench: &Bench) {
    bench.put("a/b", "body").await;
    for key in ["missing", "a", "a/", "A/b"] {
        assert_eq!(bench.objects.head(&at(key)).await, Err(ObjectError::NotFound(at(key))));
        let answer = bench.objects.get(&at(key), &GetOptions::default()).await;
        assert_eq!(answer, Err(ObjectError::NotFound(at(key))));
    }
    let kind = |error| match error {
        ObjectError::Store(error) => Some(error.kind),
        _ => None,
    };
    assert_eq!(kind(bench.objects.head(&at("")).await.unwrap_err()), Some(StoreErrorKind::Invalid));
    let long = at(&"k".repeat(1025));
    let answer = bench.objects.get(&long, &GetOptions::default()).await;
    assert_eq!(kind(answer.unwrap_err()), Some(StoreErrorKind::Invalid));
}

/// Above 64 KiB the embedded store keeps bodies in files.
async fn large_objects_survive(bench: &Bench) {
    let body: String = (0..40_000).map(|number| format!("{number:05}")).collect();
    bench.put("large", &body).await;
    assert_eq!(bench.body("large").await.as_ref(), Some(&body));
    let range = Some(ByteRange::From { start: 100_000, length: 5 });
    let object = bench.objects.get(&at("large"), &GetOptions { range, if_match: None }).await.unwrap();
    assert_eq!((object.bytes, object.meta.size_bytes), (bytes("20000"), 200_000));
}

async fn reads_are_counted(bench: &Bench) {
    bench.put("a", "0123456789").await;
    let none = ObjectUsage::default();
    let mut mark = bench.objects.object_usage();
    let mut expect = |expected: ObjectUsage, what: &str| assert_eq!(bench.used_since(&mut mark), expected, "{what}");
    let get = async |range| bench.objects.get(&at("a"), &GetOptions { range, if_match: None }).await;
    get(None).await.unwrap();
    expect(ObjectUsage { gets: 1, bytes_read: 10, ..none }, "get");
    get(Some(ByteRange::Suffix { length: 3 })).await.unwrap();
    expect(ObjectUsage { gets: 1, bytes_read: 3, ..none }, "a range costs its bytes");
    get(Some(ByteRange::From { start: 10, length: 1 })).await.unwrap_err();
    expect(ObjectUsage { gets: 1, ..none }, "a range outside");
    get(Some(ByteRange::Suffix { length: 0 })).await.unwrap_err();
    expect(none, "an empty range is no request");
    bench.objects.head(&at("a")).await.unwrap();
    bench.objects.head(&at("b")).await.unwrap_err();
    expect(ObjectUsage { heads: 2, ..none }, "heads, found or not");
    let request = ListRequest { bucket: "lake".to_owned(), prefix: String::new(), start_after: None, max_keys: 1 };
    bench.objects.list(&request).await.unwrap();
    expect(ObjectUsage { lists: 1, ..none }, "list");
}
