//! What is asked of S3, seen on the wire, and what unusual answers become.

use std::time::Duration;

use aws_sdk_s3::config::retry::RetryConfig;
use aws_sdk_s3::config::{BehaviorVersion, Credentials, Region};
use kit::fake::FakeService;
use kit::servers;
use lakewarden_aws::{Clients, S3Objects};
use lakewarden_core::store::{
    ByteRange, Deleted, Doomed, ETag, GetOptions, ListRequest, ObjectError, Objects, PutCondition, PutOptions,
    ReadObjects, StoreErrorKind, SystemClock,
};

use super::{at, bytes, only_if, stale};

/// Objects on a service that answers every request alike; repeats come without a pause.
fn objects_on(service: &FakeService) -> S3Objects {
    let config = aws_sdk_s3::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("test", "test-secret", None, None, "test"))
        .endpoint_url(service.url())
        .force_path_style(true)
        .retry_config(RetryConfig::standard().with_initial_backoff(Duration::from_millis(1)))
        .build();
    S3Objects::new(aws_sdk_s3::Client::from_conf(config))
}

fn answering(status: u16, body: &'static str) -> FakeService {
    FakeService::answering(status, "application/xml", body)
}

const INTERNAL: &str = "<Error><Code>InternalError</Code><Message>lost</Message></Error>";
const SLOW_DOWN: &str = "<Error><Code>SlowDown</Code><Message>slower</Message></Error>";

fn kind<T>(answer: Result<T, ObjectError>) -> Option<StoreErrorKind> {
    match answer {
        Err(ObjectError::Store(error)) => Some(error.kind),
        _ => None,
    }
}

#[tokio::test]
async fn a_conditional_write_is_repeated_only_where_it_was_refused() {
    let always = PutCondition::Always;
    let cases = [
        (500, INTERNAL, PutCondition::Absent, 1, StoreErrorKind::Unavailable),
        (500, INTERNAL, PutCondition::Matches(stale()), 1, StoreErrorKind::Unavailable),
        (500, INTERNAL, always.clone(), 3, StoreErrorKind::Unavailable),
        (503, SLOW_DOWN, PutCondition::Absent, 3, StoreErrorKind::Throttled),
        (503, SLOW_DOWN, always, 3, StoreErrorKind::Throttled),
        (200, INTERNAL, PutCondition::Absent, 1, StoreErrorKind::Unavailable),
    ];
    for (status, body, condition, attempts, expected) in cases {
        let service = answering(status, body);
        let objects = objects_on(&service);
        let case = format!("{condition:?} {status}");
        let copied = objects.copy(&at("a"), &at("b"), &condition).await;
        assert_eq!((kind(copied), service.seen().len()), (Some(expected), attempts), "copy {case}");
        let put = objects.put(&at("a"), bytes("x"), &only_if(condition.clone())).await;
        assert_eq!((kind(put), service.seen().len()), (Some(expected), 2 * attempts), "put {case}");
        if status != 200 {
            let tag = (condition != PutCondition::Always).then(stale);
            let deleted = objects.delete(&at("a"), tag.as_ref()).await;
            assert_eq!((kind(deleted), service.seen().len()), (Some(expected), 3 * attempts), "delete {case}");
        }
        assert_eq!(objects.object_usage().puts, 1, "a call is counted once");
    }
}

#[tokio::test]
async fn conditions_go_into_their_headers() {
    let service = answering(200, "");
    let objects = objects_on(&service);
    let tag = ETag("abc".to_owned());
    let absent = PutOptions { content_type: Some("application/json".to_owned()), ..only_if(PutCondition::Absent) };
    // The answers lack what they should have; only the requests matter here.
    let _ = objects.put(&at("k"), bytes("x"), &absent).await;
    let _ = objects.put(&at("k"), bytes("x"), &only_if(PutCondition::Matches(tag.clone()))).await;
    let _ = objects.copy(&at("a b/=+%ü"), &at("k"), &PutCondition::Matches(tag.clone())).await;
    let _ = objects.copy(&at("a"), &at("k"), &PutCondition::Absent).await;
    let _ = objects.delete(&at("k"), Some(&tag)).await;
    let range = Some(ByteRange::From { start: 4, length: 4 });
    let _ = objects.get(&at("k"), &GetOptions { range, if_match: Some(tag) }).await;
    let request = ListRequest { bucket: "lake".to_owned(), prefix: "p".to_owned(), start_after: None, max_keys: 5000 };
    let _ = objects.list(&request).await;
    let seen = service.seen();
    let headers = |number: usize| (seen[number].header("if-none-match"), seen[number].header("if-match"));
    assert!(seen[0].line.starts_with("PUT /lake/k"), "{}: by path", seen[0].line);
    assert_eq!(headers(0), (Some("*"), None));
    assert_eq!(seen[0].header("content-type"), Some("application/json"));
    assert_eq!(headers(1), (None, Some("\"abc\"")));
    assert_eq!(headers(2), (None, Some("\"abc\"")));
    assert_eq!(seen[2].header("x-amz-copy-source"), Some("lake/a%20b/%3D%2B%25%C3%BC"));
    assert_eq!(headers(3), (Some("*"), None));
    assert_eq!(headers(4), (None, Some("\"abc\"")));
    assert_eq!((headers(5), seen[5].header("range")), ((None, Some("\"abc\"")), Some("bytes=4-7")));
    let line = &seen[6].line;
    assert!(line.contains("encoding-type=url") && line.contains("max-keys=1000"), "{line}");
}

#[tokio::test]
async fn a_conflict_is_told_from_a_failed_condition() {
    let conflict = "<Error><Code>ConditionalRequestConflict</Code><Message>x</Message></Error>";
    let service = answering(409, conflict);
    let answer = objects_on(&service).put(&at("k"), bytes("x"), &only_if(PutCondition::Absent)).await;
    assert_eq!(answer, Err(ObjectError::ConditionalConflict(at("k"))));
    assert_eq!(service.seen().len(), 1);
    let failed = "<Error><Code>PreconditionFailed</Code><Message>x</Message></Error>";
    let service = answering(412, failed);
    let answer = objects_on(&service).put(&at("k"), bytes("x"), &only_if(PutCondition::Absent)).await;
    assert_eq!(answer, Err(ObjectError::PreconditionFailed(at("k"))));
}

#[tokio::test]
async fn entries_of_a_batch_delete_fail_one_by_one() {
    let mixed = r#"<DeleteResult><Error><Key>d</Key><Code>InternalError</Code><Message>lost</Message></Error>
        <Error><Key>c</Key><Code>AccessDenied</Code><Message>no</Message></Error><Deleted><Key>a</Key></Deleted>
        <Error><Key>b</Key><Code>PreconditionFailed</Code><Message>x</Message></Error></DeleteResult>"#;
    let service = answering(200, mixed);
    let doomed: Vec<Doomed> =
        ["a", "b", "c", "d", "e"].map(|key| Doomed { key: key.to_owned(), if_match: Some(stale()) }).to_vec();
    let answer = objects_on(&service).delete_batch("lake", &doomed).await.unwrap();
    assert_eq!(answer[..2], [Deleted::Gone, Deleted::Changed]);
    let kinds: Vec<StoreErrorKind> = answer[2..]
        .iter()
        .map(|one| match one {
            Deleted::Failed(error) => error.kind,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(kinds, [StoreErrorKind::AccessDenied, StoreErrorKind::Unavailable, StoreErrorKind::Unavailable]);
}

#[tokio::test]
async fn a_listing_is_decoded_only_where_it_is_encoded() {
    let contents = "<Contents><Key>a%2Bb+c</Key><ETag>&quot;t&quot;</ETag><Size>1</Size>\
        <LastModified>2026-01-01T00:00:00.999Z</LastModified></Contents><IsTruncated>false</IsTruncated>";
    let bodies = [
        (format!("<ListBucketResult><EncodingType>url</EncodingType>{contents}</ListBucketResult>"), "a+b c"),
        (format!("<ListBucketResult>{contents}</ListBucketResult>"), "a%2Bb+c"),
    ];
    for (body, key) in bodies {
        let service = answering(200, Box::leak(body.into_boxed_str()));
        let request = ListRequest { bucket: "lake".to_owned(), prefix: String::new(), start_after: None, max_keys: 9 };
        let page = objects_on(&service).list(&request).await.unwrap();
        assert_eq!((page.objects[0].key.as_str(), page.objects[0].etag.0.as_str()), (key, "t"));
        assert_eq!(page.objects[0].last_modified_ms, 1_767_225_600_000);
    }
}

#[tokio::test]
async fn a_missing_bucket_is_no_missing_object() {
    let server = servers::s3(std::sync::Arc::new(SystemClock));
    let objects = S3Objects::new(Clients::connect(&servers::connection(None, Some(server.url()))).s3);
    assert_eq!(kind(objects.get(&at("k"), &GetOptions::default()).await), Some(StoreErrorKind::Missing));
    let put = objects.put(&at("k"), bytes("x"), &PutOptions::default()).await;
    assert_eq!(kind(put), Some(StoreErrorKind::Missing));
    let request = ListRequest { bucket: "lake".to_owned(), prefix: String::new(), start_after: None, max_keys: 9 };
    assert_eq!(kind(objects.list(&request).await), Some(StoreErrorKind::Missing));
    let doomed = Doomed { key: "k".to_owned(), if_match: None };
    assert_eq!(kind(objects.delete_batch("lake", &[doomed]).await), Some(StoreErrorKind::Missing));
}

#[tokio::test]
async fn wrong_keys_are_denied() {
    let server = servers::s3(std::sync::Arc::new(SystemClock));
    let mut connection = servers::connection(None, Some(server.url()));
    connection.secret_access_key = "wrong".to_owned();
    let objects = S3Objects::new(Clients::connect(&connection).s3);
    assert_eq!(kind(objects.get(&at("k"), &GetOptions::default()).await), Some(StoreErrorKind::AccessDenied));
}
