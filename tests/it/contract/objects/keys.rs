use lakewarden_core::store::{Deleted, Doomed, ListRequest, ObjectKey, PutCondition};

use super::{Bench, at, memory, s3};

contract!(memory, s3 =>
    odd_keys_survive_every_operation,
    neighbours_are_not_confused,
);

fn odd_keys() -> Vec<String> {
    let keys = [
        "plain",
        "a b/c  d",
        " leading and trailing ",
        "dt=2026-01-01/h=1",
        "ts=2026-01-01 00%3A00%3A00/x",
        "percent%20literal",
        "percent%",
        "percent%zz%2",
        "percent%2525",
        "plus+plus/+",
        "double//slash///x",
        "/leading slash",
        "//",
        "trailing slash/",
        "dot/./dot",
        "..hidden/..x",
        "ü/中/😀/é/e\u{301}",
        "amp&lt<gt>quot\"apos'",
        "&amp;&#38;]]>",
        "question?query=1&x#fragment",
        "back\\slash",
        "new\nline",
        "tab\ttab",
        "punctuation !*()[]{}|^`~@:,;$",
        "__HIVE_DEFAULT_PARTITION__",
        "_delta_log/_staged_commits/00000000000000000001.00000000-0000-4000-8000-000000000000.json",
    ];
    let mut keys: Vec<String> = keys.map(str::to_owned).to_vec();
    keys.push("k".repeat(1024));
    keys.push(format!("{}{}", "seg ment/".repeat(100), "ü".repeat(62)));
    keys
}

async fn odd_keys_survive_every_operation(bench: &Bench) {
    for key in odd_keys() {
        let tag = bench.put(&key, &key).await;
        assert_eq!(bench.body(&key).await.as_ref(), Some(&key), "get {key:?}");
        assert_eq!(bench.objects.head(&at(&key)).await.unwrap().etag, tag, "head {key:?}");
        let refused = bench.objects.put(&at(&key), super::bytes("x"), &super::only_if(PutCondition::Absent)).await;
        refused.unwrap_err();
        let list = async |start_after: Option<String>| {
            let (bucket, prefix) = ("lake".to_owned(), key.clone());
            let page = bench.objects.list(&ListRequest { bucket, prefix, start_after, max_keys: 2 }).await.unwrap();
            page.objects.into_iter().map(|object| object.key).collect::<Vec<_>>()
        };
        assert_eq!(list(None).await, [key.as_str()], "list {key:?}");
        assert_eq!(list(Some(key.clone())).await, [""; 0], "list behind {key:?}");

        let elsewhere = ObjectKey::new("pond", key.clone());
        bench.objects.copy(&at(&key), &elsewhere, &PutCondition::Absent).await.unwrap();
        assert_eq!(bench.objects.head(&elsewhere).await.unwrap().etag, tag, "copy {key:?}");
        let doomed = Doomed { key: key.clone(), if_match: Some(tag.clone()) };
        let answer = bench.objects.delete_batch("pond", &[doomed]).await.unwrap();
        assert_eq!(answer, [Deleted::Gone], "batch delete {key:?}");
        bench.objects.head(&elsewhere).await.unwrap_err();
        bench.objects.delete(&at(&key), Some(&tag)).await.unwrap();
        assert_eq!(bench.body(&key).await, None, "delete {key:?}");
    }
}

/// Keys that a client or a server that decodes once too often, or tidies paths up, would take for one.
async fn neighbours_are_not_confused(bench: &Bench) {
    let keys =
        ["a b", "a+b", "a%20b", "a%2520b", "a%2Bb", "x/y", "x//y", "/x/y", "x/./y", "x%2Fy", "X/y", "é", "e\u{301}"];
    for key in keys {
        bench.put(key, key).await;
    }
    let mut sorted = keys.to_vec();
    sorted.sort_unstable();
    let all = lakewarden_core::store::list_every(bench.objects.as_ref(), "lake", "").await.unwrap();
    assert_eq!(all.iter().map(|object| object.key.as_str()).collect::<Vec<_>>(), sorted);
    for (number, key) in keys.iter().enumerate() {
        assert_eq!(bench.body(key).await.as_deref(), Some(*key));
        bench.objects.delete(&at(key), None).await.unwrap();
        let left = lakewarden_core::store::list_every(bench.objects.as_ref(), "lake", "").await.unwrap();
        assert_eq!(left.len(), keys.len() - number - 1, "only {key:?} was deleted");
    }
}
