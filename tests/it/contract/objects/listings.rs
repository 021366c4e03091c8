use futures::StreamExt;
use futures::stream;
use lakewarden_core::store::{ListPage, ListRequest, list_every};

use super::{Bench, memory, s3};

contract!(memory, s3 =>
    listings_go_by_bytes,
    prefixes_and_starting_keys,
    more_than_a_thousand_keys_come_in_pages,
);

fn request(prefix: &str, start_after: Option<&str>, max_keys: usize) -> ListRequest {
    let (bucket, prefix) = ("lake".to_owned(), prefix.to_owned());
    ListRequest { bucket, prefix, start_after: start_after.map(str::to_owned), max_keys }
}

fn names(page: &ListPage) -> Vec<&str> {
    page.objects.iter().map(|object| object.key.as_str()).collect()
}

async fn listings_go_by_bytes(bench: &Bench) {
    let mut keys =
        ["l/a", "l/a/1", "l/a-1", "l/a.b", "l/a0", "l/B", "l/é", "l/c d", "l/z/", "l/中", "l/\u{ff5e}", "l/😀"];
    for key in keys {
        bench.put(key, "").await;
    }
    keys.sort_unstable();
    let page = bench.objects.list(&request("l/", None, 1000)).await.unwrap();
    assert_eq!((names(&page), page.truncated), (keys.to_vec(), false));
    for max_keys in [1, 2, 5, 11, 12] {
        let mut found = Vec::new();
        let mut ask = request("l/", None, max_keys);
        loop {
            let page = bench.objects.list(&ask).await.unwrap();
            assert!(page.objects.len() == max_keys || !page.truncated);
            ask.start_after = page.objects.last().map(|last| last.key.clone());
            found.extend(page.objects.into_iter().map(|object| object.key));
            if !page.truncated {
                break;
            }
        }
        assert_eq!(found, keys, "{max_keys} at a time");
    }
}

async fn prefixes_and_starting_keys(bench: &Bench) {
    for key in ["a", "t/1", "t/2", "t/2/x", "t/3", "t_v2/1", "z"] {
        bench.put(key, "").await;
    }
    let cases: [(&str, Option<&str>, &[&str]); 12] = [
        ("", None, &["a", "t/1", "t/2", "t/2/x", "t/3", "t_v2/1", "z"]),
        ("", Some("t/2/x"), &["t/3", "t_v2/1", "z"]),
        ("t/", None, &["t/1", "t/2", "t/2/x", "t/3"]),
        ("t/", Some(""), &["t/1", "t/2", "t/2/x", "t/3"]),
        ("t/", Some("a"), &["t/1", "t/2", "t/2/x", "t/3"]),
        ("t/", Some("t/"), &["t/1", "t/2", "t/2/x", "t/3"]),
        ("t/", Some("t/2"), &["t/2/x", "t/3"]),
        ("t/", Some("t/2/gone"), &["t/2/x", "t/3"]),
        ("t/", Some("t/3"), &[]),
        ("t/", Some("z"), &[]),
        ("t/2", None, &["t/2", "t/2/x"]),
        ("x", None, &[]),
    ];
    for (prefix, start_after, expected) in cases {
        let page = bench.objects.list(&request(prefix, start_after, 1000)).await.unwrap();
        assert_eq!((names(&page), page.truncated), (expected.to_vec(), false), "{prefix} {start_after:?}");
    }
    let page = bench.objects.list(&request("t/", None, 0)).await.unwrap();
    assert_eq!((names(&page), page.truncated), (vec!["t/1"], true), "at least one key a page");
}

async fn more_than_a_thousand_keys_come_in_pages(bench: &Bench) {
    let keys: Vec<String> = (0..1203).map(|number| format!("big/dt={number:04}/part 0+{number}.parquet")).collect();
    stream::iter(&keys).for_each_concurrent(16, async |key| _ = bench.put(key, "").await).await;
    let before = bench.objects.object_usage();
    let all = list_every(bench.objects.as_ref(), "lake", "big/").await.unwrap();
    assert_eq!(all.into_iter().map(|object| object.key).collect::<Vec<_>>(), keys);
    assert_eq!(bench.objects.object_usage().since(&before).lists, 2);
    for (max_keys, expected) in [(999, 999), (1000, 1000), (1001, 1000)] {
        let page = bench.objects.list(&request("big/", None, max_keys)).await.unwrap();
        assert_eq!((page.objects.len(), page.truncated), (expected, true));
    }
    let page = bench.objects.list(&request("big/", Some(&keys[202]), 1000)).await.unwrap();
    assert_eq!((page.objects.len(), page.truncated), (1000, false), "exactly full, nothing behind it");
}
