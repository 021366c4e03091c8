use aws_sdk_s3::primitives::ByteStream;
use aws_sdk_s3::types::{ChecksumAlgorithm, ChecksumMode, ChecksumType, CompletedMultipartUpload, CompletedPart};

use super::{BUCKET, Server, refused};

const MIB: usize = 1024 * 1024;

impl Server {
    async fn begin(&self, key: &str) -> String {
        self.client.create_multipart_upload().bucket(BUCKET).key(key).send().await.unwrap().upload_id.unwrap()
    }

    async fn part(&self, key: &str, upload: &str, number: i32, body: Vec<u8>) -> CompletedPart {
        let part = self.client.upload_part().bucket(BUCKET).key(key).upload_id(upload).part_number(number);
        let sent = part.body(ByteStream::from(body)).send().await.unwrap();
        CompletedPart::builder().part_number(number).e_tag(sent.e_tag.unwrap()).build()
    }
}

fn of(parts: Vec<CompletedPart>) -> CompletedMultipartUpload {
    CompletedMultipartUpload::builder().set_parts(Some(parts)).build()
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_become_one_object() {
    let server = Server::start().await;
    let client = &server.client;
    let begin = client.create_multipart_upload().bucket(BUCKET).key("k").metadata("m", "v").tagging("t=1");
    let upload = begin.send().await.unwrap().upload_id.unwrap();
    let first = server.part("k", &upload, 1, vec![b'a'; 5 * MIB]).await;
    server.part("k", &upload, 3, b"wrong".to_vec()).await;
    let third = server.part("k", &upload, 3, b"tail".to_vec()).await;
    let copy = client.upload_part_copy().bucket(BUCKET).key("k").upload_id(&upload).part_number(4);
    server.put("src", "0123456789").await;
    let copy = copy.copy_source(format!("{BUCKET}/src")).copy_source_range("bytes=2-4");
    let copied = copy.send().await.unwrap().copy_part_result.unwrap().e_tag.unwrap();
    let fourth = CompletedPart::builder().part_number(4).e_tag(copied).build();
    let complete = || client.complete_multipart_upload().bucket(BUCKET).key("k").upload_id(&upload);
    let small = of(vec![first.clone(), third.clone(), fourth.clone()]);
    assert_eq!(refused(complete().multipart_upload(small).send()).await, "400 EntityTooSmall");
    let unordered = of(vec![third.clone(), first.clone()]);
    assert_eq!(refused(complete().multipart_upload(unordered).send()).await, "400 InvalidPartOrder");
    assert_eq!(refused(complete().multipart_upload(of(vec![])).send()).await, "400 MalformedXML");
    let done = complete().multipart_upload(of(vec![first, third])).send().await.unwrap();
    assert!(done.e_tag().unwrap().ends_with("-2\""));
    let head = client.head_object().bucket(BUCKET).key("k").send().await.unwrap();
    assert_eq!(head.content_length(), Some(5 * MIB as i64 + 4));
    assert_eq!(head.metadata().unwrap()["m"], "v");
    let part = client.get_object().bucket(BUCKET).key("k").part_number(2).send().await.unwrap();
    assert_eq!((part.parts_count(), part.content_range()), (Some(2), Some("bytes 5242880-5242883/5242884")));
    assert_eq!(part.body.collect().await.unwrap().to_vec(), b"tail");
    assert_eq!(refused(complete().multipart_upload(of(vec![])).send()).await, "404 NoSuchUpload");
    let names: Vec<_> = server.store.poll_events(Default::default(), 9).await.unwrap();
    assert_eq!(names.last().unwrap().name, "ObjectCreated:CompleteMultipartUpload");
}

#[tokio::test(flavor = "multi_thread")]
async fn uploads_and_parts_are_listed_in_pages() {
    let server = Server::start().await;
    let client = &server.client;
    let mut uploads = Vec::new();
    for key in ["u/a", "u/a", "u/b", "v/c"] {
        uploads.push(server.begin(key).await);
        server.clock.advance_ms(1);
    }
    for number in 1..=5 {
        server.part("u/b", &uploads[2], number, vec![b'x'; number as usize]).await;
    }
    let (mut found, mut key_marker, mut id_marker) = (Vec::new(), None, None);
    loop {
        let list = client.list_multipart_uploads().bucket(BUCKET).prefix("u/").max_uploads(1);
        let page = list.set_key_marker(key_marker).set_upload_id_marker(id_marker).send().await.unwrap();
        found.extend(page.uploads().iter().filter_map(|upload| upload.upload_id().map(str::to_owned)));
        (key_marker, id_marker) = (page.next_key_marker, page.next_upload_id_marker);
        if page.is_truncated != Some(true) {
            break;
        }
    }
    assert_eq!(found, uploads[..3]);
    let (mut sizes, mut marker) = (Vec::new(), None);
    loop {
        let list = client.list_parts().bucket(BUCKET).key("u/b").upload_id(&uploads[2]).max_parts(2);
        let page = list.set_part_number_marker(marker).send().await.unwrap();
        sizes.extend(page.parts().iter().filter_map(|part| part.size()));
        marker = page.next_part_number_marker;
        if page.is_truncated != Some(true) {
            break;
        }
    }
    assert_eq!(sizes, [1, 2, 3, 4, 5]);
    client.abort_multipart_upload().bucket(BUCKET).key("u/b").upload_id(&uploads[2]).send().await.unwrap();
    let parts = client.list_parts().bucket(BUCKET).key("u/b").upload_id(&uploads[2]);
    assert_eq!(refused(parts.send()).await, "404 NoSuchUpload");
    let again = client.abort_multipart_upload().bucket(BUCKET).key("u/b").upload_id(&uploads[2]);
    assert_eq!(refused(again.send()).await, "404 NoSuchUpload");
    client.delete_bucket().bucket(BUCKET).send().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn completing_keeps_its_condition() {
    let server = Server::start().await;
    let old = server.put("k", "exists").await;
    let upload = server.begin("k").await;
    let part = server.part("k", &upload, 1, b"new".to_vec()).await;
    let complete = || {
        let complete = server.client.complete_multipart_upload().bucket(BUCKET).key("k").upload_id(&upload);
        complete.multipart_upload(of(vec![part.clone()]))
    };
    assert_eq!(refused(complete().if_none_match("*").send()).await, "412 PreconditionFailed");
    assert_eq!(refused(complete().if_match("\"00\"").send()).await, "412 PreconditionFailed");
    let wrong = CompletedPart::builder().part_number(1).e_tag("\"00000000000000000000000000000000\"").build();
    let wrong = complete().multipart_upload(of(vec![wrong]));
    assert_eq!(refused(wrong.send()).await, "400 InvalidPart");
    assert_eq!(server.get("k").await, Ok(b"exists".to_vec()));
    complete().if_match(&old).send().await.unwrap();
    assert_eq!(server.get("k").await, Ok(b"new".to_vec()));
}

#[tokio::test(flavor = "multi_thread")]
async fn checksums_of_parts_make_the_checksum_of_the_object() {
    let server = Server::start().await;
    let client = &server.client;
    for (scope, algorithm, ends) in [
        (ChecksumType::Composite, ChecksumAlgorithm::Crc32, "-2"),
        (ChecksumType::FullObject, ChecksumAlgorithm::Crc32, "=="),
        (ChecksumType::FullObject, ChecksumAlgorithm::Crc64Nvme, "="),
    ] {
        let begin = client.create_multipart_upload().bucket(BUCKET).key("k");
        let begin = begin.checksum_algorithm(algorithm.clone()).checksum_type(scope.clone());
        let upload = begin.send().await.unwrap().upload_id.unwrap();
        let mut parts = Vec::new();
        for (number, body) in [(1, vec![b'a'; 5 * MIB]), (2, b"tail".to_vec())] {
            let part = client.upload_part().bucket(BUCKET).key("k").upload_id(&upload).part_number(number);
            let sent = part.checksum_algorithm(algorithm.clone()).body(ByteStream::from(body)).send().await.unwrap();
            let part = CompletedPart::builder().part_number(number).e_tag(sent.e_tag.unwrap());
            let part = part.set_checksum_crc32(sent.checksum_crc32).set_checksum_crc64_nvme(sent.checksum_crc64_nvme);
            parts.push(part.build());
        }
        let complete = client.complete_multipart_upload().bucket(BUCKET).key("k").upload_id(upload);
        let done = complete.multipart_upload(of(parts)).send().await.unwrap();
        let head = client.head_object().bucket(BUCKET).key("k").checksum_mode(ChecksumMode::Enabled);
        let head = head.send().await.unwrap();
        let told = (done.checksum_crc32().or(done.checksum_crc64_nvme()), done.checksum_type());
        assert_eq!(told, (head.checksum_crc32().or(head.checksum_crc64_nvme()), head.checksum_type()));
        assert_eq!(told.1, Some(&scope));
        assert!(told.0.unwrap().ends_with(ends), "{told:?}");
        let got =
            client.get_object().bucket(BUCKET).key("k").checksum_mode(ChecksumMode::Enabled).send().await.unwrap();
        assert_eq!(got.body.collect().await.unwrap().to_vec().len(), 5 * MIB + 4);
    }
}
