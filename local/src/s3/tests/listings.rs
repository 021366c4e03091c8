use aws_sdk_s3::operation::list_objects_v2::builders::ListObjectsV2FluentBuilder;
use aws_sdk_s3::types::EncodingType;

use futures::StreamExt;

use super::{BUCKET, NOW_S, Server, refused};

const KEYS: [&str; 12] =
    ["l/B", "l/a", "l/a-1", "l/a.b", "l/a/1", "l/a/2", "l/a0", "l/b", "l/c d", "l/z/", "l/z/q/w", "l/é"];

async fn filled() -> Server {
    let server = Server::start().await;
    for key in KEYS {
        server.put(key, "x").await;
    }
    server.put("other", "x").await;
    server
}

/// Keys and common prefixes of every page.
async fn every_page(request: ListObjectsV2FluentBuilder) -> Vec<String> {
    let mut all = Vec::new();
    let mut token = None;
    loop {
        let page = request.clone().set_continuation_token(token).send().await.unwrap();
        assert_eq!(page.key_count(), Some((page.contents().len() + page.common_prefixes().len()) as i32));
        all.extend(page.contents().iter().filter_map(|object| object.key().map(str::to_owned)));
        all.extend(page.common_prefixes().iter().filter_map(|prefix| prefix.prefix().map(str::to_owned)));
        token = page.next_continuation_token().map(str::to_owned);
        assert_eq!(token.is_some(), page.is_truncated() == Some(true));
        if token.is_none() {
            return all;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_are_in_byte_order_and_complete() {
    let server = filled().await;
    let list = || server.client.list_objects_v2().bucket(BUCKET).prefix("l/");
    for size in [1, 2, 3, 11, 12, 13, 5000] {
        assert_eq!(every_page(list().max_keys(size)).await, KEYS, "{size}");
    }
    let grouped = ["l/B", "l/a", "l/a-1", "l/a.b", "l/a/", "l/a0", "l/b", "l/c d", "l/z/", "l/é"];
    assert_eq!(every_page(list().delimiter("/").max_keys(1)).await, grouped);
    let mut at_once = every_page(list().delimiter("/")).await;
    at_once.sort();
    assert_eq!(at_once, grouped);
    assert_eq!(every_page(server.client.list_objects_v2().bucket(BUCKET).delimiter("/")).await, ["other", "l/"]);
    assert!(every_page(list().max_keys(0)).await.is_empty());
    assert_eq!(every_page(list().start_after("l/a/1")).await, KEYS[5..]);
    assert_eq!(every_page(list().start_after("a")).await, KEYS);
    assert!(every_page(list().start_after("zzz")).await.is_empty());
    assert_eq!(refused(list().continuation_token("zz").send()).await, "400 InvalidArgument");
    assert_eq!(refused(list().max_keys(-1).send()).await, "400 InvalidArgument");
    let first = list().send().await.unwrap().contents()[0].clone();
    assert_eq!(first.last_modified().map(|at| at.secs()), Some(NOW_S));
    assert_eq!((first.size(), first.e_tag().is_some()), (Some(1), true));
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_encoded_on_request() {
    let server = filled().await;
    let list = server.client.list_objects_v2().bucket(BUCKET).prefix("l/c").encoding_type(EncodingType::Url);
    assert_eq!(list.send().await.unwrap().contents()[0].key(), Some("l/c+d"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_old_listing_pages_by_marker() {
    let server = filled().await;
    for delimiter in [None, Some("/".to_owned())] {
        let mut all = Vec::new();
        let mut marker = None;
        loop {
            let list = server.client.list_objects().bucket(BUCKET).prefix("l/").max_keys(1);
            let page = list.set_delimiter(delimiter.clone()).set_marker(marker).send().await.unwrap();
            let keys = page.contents().iter().filter_map(|object| object.key());
            let prefixes = page.common_prefixes().iter().filter_map(|prefix| prefix.prefix());
            all.extend(keys.chain(prefixes).map(str::to_owned));
            assert_eq!(page.next_marker().is_some(), delimiter.is_some() && page.is_truncated() == Some(true));
            marker = all.last().cloned();
            if page.is_truncated() != Some(true) {
                break;
            }
        }
        assert_eq!(all.len(), if delimiter.is_some() { 10 } else { 12 }, "{all:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_keys_make_a_page() {
    let server = Server::start().await;
    futures::stream::iter(0..1001)
        .for_each_concurrent(8, |n| {
            let put = server.client.put_object().bucket(BUCKET).key(format!("p/{n:04}"));
            async move { drop(put.send().await.unwrap()) }
        })
        .await;
    let page = server.client.list_objects_v2().bucket(BUCKET).prefix("p/").max_keys(5000).send().await.unwrap();
    assert_eq!((page.contents().len(), page.is_truncated(), page.max_keys()), (1000, Some(true), Some(1000)));
}
