use aws_sdk_s3::presigning::PresigningConfig;
use aws_sdk_s3::primitives::{ByteStream, DateTime};
use aws_sdk_s3::types::{
    ChecksumAlgorithm, ChecksumMode, Delete, MetadataDirective, ObjectIdentifier, Tag, Tagging, TaggingDirective,
};
use std::time::Duration;

use super::{BUCKET, NOW_S, Server, refused};

#[tokio::test(flavor = "multi_thread")]
async fn buckets_come_and_go() {
    let server = Server::start().await;
    let client = &server.client;
    assert_eq!(refused(client.create_bucket().bucket(BUCKET).send()).await, "409 BucketAlreadyOwnedByYou");
    assert_eq!(refused(client.head_bucket().bucket("nobody").send()).await, "404 NotFound");
    client.head_bucket().bucket(BUCKET).send().await.unwrap();
    client.get_bucket_location().bucket(BUCKET).send().await.unwrap();
    assert_eq!(client.get_bucket_versioning().bucket(BUCKET).send().await.unwrap().status, None);
    let listed = client.list_buckets().send().await.unwrap();
    assert_eq!(listed.buckets().iter().filter_map(|bucket| bucket.name()).collect::<Vec<_>>(), [BUCKET]);
    assert_eq!(listed.buckets()[0].creation_date(), Some(&DateTime::from_secs(NOW_S)));
    server.put("k", "v").await;
    assert_eq!(refused(client.delete_bucket().bucket(BUCKET).send()).await, "409 BucketNotEmpty");
    client.delete_object().bucket(BUCKET).key("k").send().await.unwrap();
    client.delete_bucket().bucket(BUCKET).send().await.unwrap();
    assert_eq!(refused(client.list_objects_v2().bucket(BUCKET).send()).await, "404 NoSuchBucket");
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_keep_their_conditions() {
    let server = Server::start().await;
    let put = || server.client.put_object().bucket(BUCKET).key("k").body(ByteStream::from_static(b"v"));
    assert_eq!(refused(put().if_match("\"00\"").send()).await, "404 NoSuchKey");
    let etag = put().if_none_match("*").send().await.unwrap().e_tag.unwrap();
    assert_eq!(refused(put().if_none_match("*").send()).await, "412 PreconditionFailed");
    assert_eq!(refused(put().if_match("\"00\"").send()).await, "412 PreconditionFailed");
    assert_eq!(refused(put().if_none_match("\"00\"").send()).await, "501 NotImplemented");
    put().if_match(&etag).send().await.unwrap();
    put().if_match("*").send().await.unwrap();
    let delete = || server.client.delete_object().bucket(BUCKET).key("k");
    assert_eq!(refused(delete().if_match("\"00\"").send()).await, "412 PreconditionFailed");
    delete().if_match(&etag).send().await.unwrap();
    assert_eq!(refused(delete().if_match(&etag).send()).await, "404 NoSuchKey");
    delete().send().await.unwrap();
    assert_eq!(server.get("k").await, Err("404 NoSuchKey".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_keep_their_conditions() {
    let server = Server::start().await;
    let etag = server.put("k", "v").await;
    let get = || server.client.get_object().bucket(BUCKET).key("k");
    let head = || server.client.head_object().bucket(BUCKET).key("k");
    let (before, at) = (DateTime::from_secs(NOW_S - 1), DateTime::from_secs(NOW_S));
    get().if_match(&etag).send().await.unwrap();
    assert_eq!(refused(get().if_match("\"00\"").send()).await, "412 PreconditionFailed");
    assert!(refused(get().if_none_match(&etag).send()).await.starts_with("304"));
    get().if_none_match("\"00\"").send().await.unwrap();
    assert!(refused(get().if_modified_since(at).send()).await.starts_with("304"));
    get().if_modified_since(before).send().await.unwrap();
    assert_eq!(refused(get().if_unmodified_since(before).send()).await, "412 PreconditionFailed");
    get().if_unmodified_since(at).send().await.unwrap();
    assert!(refused(head().if_none_match(&etag).send()).await.starts_with("304"));
    assert!(refused(head().if_match("\"00\"").send()).await.starts_with("412"));
    assert_eq!(head().send().await.unwrap().last_modified, Some(at));
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_are_those_of_http() {
    let server = Server::start().await;
    let large: Vec<u8> = (0..200_000u32).map(|n| (n % 251) as u8).collect();
    server.put("small", "0123456789").await;
    server.put("large", large.clone()).await;
    server.put("empty", "").await;
    for (range, body, content_range) in [
        ("bytes=0-0", "0", "bytes 0-0/10"),
        ("bytes=2-4", "234", "bytes 2-4/10"),
        ("bytes=7-", "789", "bytes 7-9/10"),
        ("bytes=8-99", "89", "bytes 8-9/10"),
        ("bytes=-3", "789", "bytes 7-9/10"),
        ("bytes=-99", "0123456789", "bytes 0-9/10"),
    ] {
        let got = server.client.get_object().bucket(BUCKET).key("small").range(range).send().await.unwrap();
        assert_eq!(got.content_range(), Some(content_range), "{range}");
        assert_eq!(got.body.collect().await.unwrap().to_vec(), body.as_bytes(), "{range}");
    }
    for (key, range) in [("small", "bytes=10-"), ("small", "bytes=-0"), ("empty", "bytes=0-"), ("empty", "bytes=-1")] {
        let got = server.client.get_object().bucket(BUCKET).key(key).range(range).send();
        assert_eq!(refused(got).await, "416 InvalidRange", "{key} {range}");
    }
    let got = server.client.get_object().bucket(BUCKET).key("large").range("bytes=100000-150000").send().await.unwrap();
    assert_eq!(got.body.collect().await.unwrap().to_vec(), &large[100_000..=150_000]);
    assert_eq!(server.get("empty").await, Ok(Vec::new()));
    assert_eq!(server.get("large").await, Ok(large));
}

#[tokio::test(flavor = "multi_thread")]
async fn any_key_comes_back_as_it_was() {
    let server = Server::start().await;
    let long = format!("{}ü", "x".repeat(1022));
    let keys = [
        "a b.txt",
        "ü中😀.txt",
        "dt=2026-01-01/x",
        "pct%20lit",
        "plus+plus",
        "amp&q?h#",
        "ts=2026-01-01 00%3A00/x",
        "..hidden/..x",
        "k//double",
        "k/./dot",
        "k/trail/",
        "quote'\"<>",
        "back\\slash",
        "/lead",
        "x",
        "x/y",
        &long,
    ];
    for key in keys {
        server.put(key, key).await;
    }
    for key in keys {
        assert_eq!(server.get(key).await, Ok(key.as_bytes().to_vec()), "{key}");
        let listed = server.client.list_objects_v2().bucket(BUCKET).prefix(key).send().await.unwrap();
        assert_eq!(listed.contents()[0].key(), Some(key));
    }
    let listed = server.client.list_objects_v2().bucket(BUCKET).send().await.unwrap();
    let mut sorted = keys.to_vec();
    sorted.sort_unstable();
    assert_eq!(listed.contents().iter().filter_map(|object| object.key()).collect::<Vec<_>>(), sorted);
    let put = server.client.put_object().bucket(BUCKET).key(format!("{long}x")).body(ByteStream::from_static(b"v"));
    assert_eq!(refused(put.send()).await, "400 KeyTooLongError");
}

#[tokio::test(flavor = "multi_thread")]
async fn metadata_and_tags_stay_with_the_object() {
    let server = Server::start().await;
    let client = &server.client;
    let put = client.put_object().bucket(BUCKET).key("k").body(ByteStream::from_static(b"v"));
    let put = put.metadata("Foo-Bar", "baz qux").content_type("application/json").content_encoding("gzip");
    put.cache_control("no-store").tagging("a=1&b%20c=2").expires(DateTime::from_secs(NOW_S)).send().await.unwrap();
    let head = client.head_object().bucket(BUCKET).key("k").send().await.unwrap();
    assert_eq!(head.metadata().unwrap()["foo-bar"], "baz qux");
    assert_eq!(head.content_type(), Some("application/json"));
    assert_eq!(head.content_encoding(), Some("gzip"));
    assert_eq!(head.cache_control(), Some("no-store"));
    assert_eq!(head.expires_string(), Some("Fri, 02 Jan 2026 03:04:05 GMT"));
    let tags = client.get_object_tagging().bucket(BUCKET).key("k").send().await.unwrap();
    assert_eq!(tags.tag_set().iter().map(Tag::key).collect::<Vec<_>>(), ["a", "b c"]);
    let tag = Tag::builder().key("x").value("y").build().unwrap();
    let tagging = Tagging::builder().tag_set(tag).build().unwrap();
    client.put_object_tagging().bucket(BUCKET).key("k").tagging(tagging).send().await.unwrap();
    let got = client.get_object().bucket(BUCKET).key("k").send().await.unwrap();
    assert_eq!(got.tag_count(), Some(1));
    client.delete_object_tagging().bucket(BUCKET).key("k").send().await.unwrap();
    assert!(client.get_object_tagging().bucket(BUCKET).key("k").send().await.unwrap().tag_set().is_empty());
    server.put("k", "w").await;
    let head = client.head_object().bucket(BUCKET).key("k").send().await.unwrap();
    assert!(head.metadata().is_none_or(|metadata| metadata.is_empty()));
    assert_eq!(head.content_type(), Some("application/octet-stream"));
    let put = client.put_object().bucket(BUCKET).key("k").metadata("m", "x".repeat(2048));
    assert_eq!(refused(put.send()).await, "400 MetadataTooLarge");
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_take_bytes_metadata_and_conditions() {
    let server = Server::start().await;
    let client = &server.client;
    let put = client.put_object().bucket(BUCKET).key("src a=1").body(ByteStream::from_static(b"copied"));
    let etag = put.metadata("a", "1").tagging("t=1").send().await.unwrap().e_tag.unwrap();
    let copy = || client.copy_object().bucket(BUCKET).key("dst").copy_source(format!("{BUCKET}/src%20a%3D1"));
    copy().if_none_match("*").send().await.unwrap();
    assert_eq!(server.get("dst").await, Ok(b"copied".to_vec()));
    let head = client.head_object().bucket(BUCKET).key("dst").send().await.unwrap();
    assert_eq!(head.metadata().unwrap()["a"], "1");
    assert_eq!(head.e_tag(), Some(etag.as_str()));
    assert_eq!(refused(copy().if_none_match("*").send()).await, "412 PreconditionFailed");
    assert_eq!(refused(copy().if_match("\"00\"").send()).await, "412 PreconditionFailed");
    assert_eq!(refused(copy().copy_source_if_match("\"00\"").send()).await, "412 PreconditionFailed");
    assert_eq!(refused(copy().copy_source_if_none_match(&etag).send()).await, "412 PreconditionFailed");
    copy().if_match(&etag).metadata_directive(MetadataDirective::Replace).metadata("b", "2").send().await.unwrap();
    let head = client.head_object().bucket(BUCKET).key("dst").send().await.unwrap();
    assert_eq!(head.metadata().unwrap().keys().collect::<Vec<_>>(), ["b"]);
    assert_eq!(client.get_object_tagging().bucket(BUCKET).key("dst").send().await.unwrap().tag_set().len(), 1);
    copy().tagging_directive(TaggingDirective::Replace).tagging("").send().await.unwrap();
    assert!(client.get_object_tagging().bucket(BUCKET).key("dst").send().await.unwrap().tag_set().is_empty());
    let missing = client.copy_object().bucket(BUCKET).key("dst").copy_source(format!("{BUCKET}/nope"));
    assert_eq!(refused(missing.send()).await, "404 NoSuchKey");
    let itself = client.copy_object().bucket(BUCKET).key("dst").copy_source(format!("{BUCKET}/dst"));
    assert_eq!(refused(itself.send()).await, "400 InvalidRequest");
}

#[tokio::test(flavor = "multi_thread")]
async fn batch_deletes_answer_for_each_key() {
    let server = Server::start().await;
    let first = server.put("d/1 é", "x").await;
    server.put("d/2", "x").await;
    server.put("d/3", "x").await;
    let named = |key: &str, etag: Option<&str>| {
        ObjectIdentifier::builder().key(key).set_e_tag(etag.map(str::to_owned)).build().unwrap()
    };
    let doomed = vec![
        named("d/1 é", Some(&first)),
        named("d/2", Some("\"00\"")),
        named("d/3", None),
        named("d/4", None),
        named("d/5", Some(&first)),
    ];
    let delete = |objects, quiet| {
        let delete = Delete::builder().set_objects(Some(objects)).quiet(quiet).build().unwrap();
        server.client.delete_objects().bucket(BUCKET).delete(delete).send()
    };
    let done = delete(doomed, false).await.unwrap();
    assert_eq!(done.deleted().iter().filter_map(|one| one.key()).collect::<Vec<_>>(), ["d/1 é", "d/3", "d/4"]);
    let errors: Vec<_> = done.errors().iter().map(|one| (one.key().unwrap(), one.code().unwrap())).collect();
    assert_eq!(errors, [("d/2", "PreconditionFailed"), ("d/5", "NoSuchKey")]);
    let many = |count| (0..count).map(|n| named(&format!("m/{n}"), None)).collect::<Vec<_>>();
    assert!(delete(many(1000), true).await.unwrap().deleted().is_empty());
    assert_eq!(refused(delete(many(1001), true)).await, "400 MalformedXML");
}

#[tokio::test(flavor = "multi_thread")]
async fn checksums_are_checked_and_kept() {
    let server = Server::start().await;
    let client = &server.client;
    let put = || client.put_object().bucket(BUCKET).key("k").body(ByteStream::from_static(b"data"));
    assert_eq!(refused(put().content_md5("AAAAAAAAAAAAAAAAAAAAAA==").send()).await, "400 BadDigest");
    assert_eq!(refused(put().content_md5("AAAA").send()).await, "400 InvalidDigest");
    assert_eq!(refused(put().checksum_crc32("AAAAAA==").send()).await, "400 BadDigest");
    assert_eq!(server.get("k").await, Err("404 NoSuchKey".into()));
    for algorithm in [
        ChecksumAlgorithm::Crc32,
        ChecksumAlgorithm::Crc32C,
        ChecksumAlgorithm::Crc64Nvme,
        ChecksumAlgorithm::Sha1,
        ChecksumAlgorithm::Sha256,
    ] {
        let sent = put().checksum_algorithm(algorithm.clone()).send().await.unwrap();
        let told = [
            (ChecksumAlgorithm::Crc32, sent.checksum_crc32),
            (ChecksumAlgorithm::Crc32C, sent.checksum_crc32_c),
            (ChecksumAlgorithm::Crc64Nvme, sent.checksum_crc64_nvme),
            (ChecksumAlgorithm::Sha1, sent.checksum_sha1),
            (ChecksumAlgorithm::Sha256, sent.checksum_sha256),
        ];
        assert!(told.iter().all(|(name, sum)| sum.is_some() == (*name == algorithm)), "{algorithm:?} {told:?}");
    }
    put().checksum_sha256("OCS5xfVl0rXFe0fDRh4WJVrT0+HkdDTHnbHT0xQNmTg=").send().await.unwrap_err();
    put().checksum_sha256("Om6weQ85rIfJTzhWst0sXREOaBFgImGpqSPTuyOtyLc=").send().await.unwrap();
    let head = client.head_object().bucket(BUCKET).key("k");
    let told = head.clone().checksum_mode(ChecksumMode::Enabled).send().await.unwrap();
    assert_eq!(told.checksum_sha256(), Some("Om6weQ85rIfJTzhWst0sXREOaBFgImGpqSPTuyOtyLc="));
    assert_eq!(head.send().await.unwrap().checksum_sha256(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn presigned_requests_are_served() {
    let server = Server::start().await;
    server.put("k a", "signed").await;
    let presigning = PresigningConfig::expires_in(Duration::from_secs(60)).unwrap();
    let request = server.client.get_object().bucket(BUCKET).key("k a").presigned(presigning).await.unwrap();
    let path = request.uri().split_once(&server.address.to_string()).unwrap().1;
    assert!(super::refusals::raw_get(server.address, path).await.ends_with("signed"));
    let tampered = path.replace("/k%20a", "/k%20b");
    assert!(super::refusals::raw_get(server.address, &tampered).await.contains("SignatureDoesNotMatch"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_breaks_off_leaves_nothing() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let server = Server::start().await;
    let before = server.put("k", "old").await;
    let presigning = PresigningConfig::expires_in(Duration::from_secs(60)).unwrap();
    let request = server.client.put_object().bucket(BUCKET).key("k").presigned(presigning).await.unwrap();
    let path = request.uri().split_once(&server.address.to_string()).unwrap().1;
    for sent in [10, 100_000] {
        let mut socket = tokio::net::TcpStream::connect(server.address).await.unwrap();
        let head = format!("PUT {path} HTTP/1.1\r\nHost: {}\r\nContent-Length: 200000\r\n\r\n", server.address);
        socket.write_all(head.as_bytes()).await.unwrap();
        socket.write_all(&vec![b'x'; sent]).await.unwrap();
        socket.shutdown().await.unwrap();
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer).await;
        assert!(!String::from_utf8_lossy(&answer).starts_with("HTTP/1.1 200"), "{sent}");
    }
    let head = server.client.head_object().bucket(BUCKET).key("k").send().await.unwrap();
    assert_eq!(head.e_tag(), Some(before.as_str()));
    assert_eq!(std::fs::read_dir(server.store.bodies().path_of("")).unwrap().count(), 0);
}
