//! What is asked of DynamoDB, seen on the wire: the embedded server cannot tell consistent reads from others.

use std::time::Duration;

use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use kit::fake::FakeService;
use lakewarden_aws::{DynamoItems, TableNames};
use lakewarden_core::store::{
    Condition, Consistency, Item, Items, Key, Query, ReadItems, SortRange, StoreErrorKind, Table, Write, WriteError,
};
use serde_json::{Value as Json, json};

use super::{assert_kind, key};

/// Items on a service that answers every request alike; repeats come without a pause.
fn items_on(service: &FakeService) -> DynamoItems {
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("test", "test-secret", None, None, "test"))
        .endpoint_url(service.url())
        .retry_config(RetryConfig::standard().with_initial_backoff(Duration::from_millis(1)))
        .build();
    let client = aws_sdk_dynamodb::Client::from_conf(config);
    DynamoItems::new(client, TableNames::new("x-").with_delta_log("shared_log"))
}

fn answering(status: u16, body: &'static str) -> FakeService {
    FakeService::answering(status, "application/x-amz-json-1.0", body)
}

fn bodies(service: &FakeService) -> Vec<Json> {
    service.seen().iter().map(|request| serde_json::from_slice(&request.body).unwrap()).collect()
}

#[tokio::test]
async fn every_read_states_its_consistency() {
    let service = answering(200, "{}");
    let items = items_on(&service);
    let keys = [key("a"), Key::new(Table::DeltaLog, "p", "s")];
    for consistency in [Consistency::Strong, Consistency::Eventual] {
        items.get(&keys[0], consistency).await.unwrap();
        items.batch_get(&keys, consistency).await.unwrap();
        items.query(&Query { consistency, ..Query::new(Table::Catalog, "p", SortRange::All) }).await.unwrap();
    }
    let stated: Vec<(Json, bool)> = bodies(&service)
        .into_iter()
        .flat_map(|body| {
            assert_eq!(body["ReturnConsumedCapacity"], "TOTAL");
            match body["RequestItems"].as_object() {
                None => vec![(body["TableName"].clone(), body["ConsistentRead"].as_bool().unwrap())],
                Some(tables) => {
                    let mut stated: Vec<_> = tables
                        .iter()
                        .map(|(table, request)| (json!(table), request["ConsistentRead"].as_bool().unwrap()))
                        .collect();
                    stated.sort_by_key(|(table, _)| table.to_string());
                    stated
                }
            }
        })
        .collect();
    let tables = ["x-catalog", "shared_log", "x-catalog", "x-catalog"];
    let expected: Vec<(Json, bool)> =
        [true, false].into_iter().flat_map(|strong| tables.map(|table| (json!(table), strong))).collect();
    assert_eq!(stated, expected);
}

#[tokio::test]
async fn every_write_asks_for_what_was_there_and_what_it_cost() {
    let service = answering(200, "{}");
    let items = items_on(&service);
    items.put(&key("a"), Item::new(), Condition::Absent).await.unwrap();
    items.delete(&key("a"), Condition::Present).await.unwrap();
    items.batch_delete(&[key("a")]).await.unwrap();
    let writes = [
        Write::Put { key: key("a"), item: Item::new(), condition: Condition::Absent },
        Write::Delete { key: key("b"), condition: Condition::Present },
        Write::Check { key: key("c"), condition: Condition::Absent },
    ];
    items.transact(&writes, "token").await.unwrap();
    let bodies = bodies(&service);
    assert!(bodies.iter().all(|body| body["ReturnConsumedCapacity"] == "TOTAL"));
    let all_old = "ReturnValuesOnConditionCheckFailure";
    assert_eq!((&bodies[0][all_old], &bodies[1][all_old]), (&json!("ALL_OLD"), &json!("ALL_OLD")));
    assert_eq!(bodies[3]["ClientRequestToken"], "token");
    for (number, action) in ["Put", "Delete", "ConditionCheck"].into_iter().enumerate() {
        assert_eq!(bodies[3]["TransactItems"][number][action][all_old], "ALL_OLD", "{action}");
    }
}

const LOST: &str = r#"{"__type":"com.amazonaws.dynamodb.v20120810#InternalServerError","message":"lost"}"#;
const SLOWER: &str = r#"{"__type":"com.amazonaws.dynamodb.v20120810#ThrottlingException","message":"slower"}"#;

fn kind(answer: Result<(), WriteError>) -> Option<StoreErrorKind> {
    match answer {
        Err(WriteError::Store(error)) => Some(error.kind),
        _ => None,
    }
}

#[tokio::test]
async fn a_conditional_write_is_repeated_only_where_it_was_refused() {
    let cases = [
        (500, LOST, Condition::Absent, 1, StoreErrorKind::Unavailable),
        (500, LOST, Condition::Always, 3, StoreErrorKind::Unavailable),
        (400, SLOWER, Condition::Absent, 3, StoreErrorKind::Throttled),
        (400, SLOWER, Condition::Always, 3, StoreErrorKind::Throttled),
    ];
    for (status, body, condition, attempts, expected) in cases {
        let service = answering(status, body);
        let items = items_on(&service);
        assert_eq!(kind(items.put(&key("a"), Item::new(), condition.clone()).await), Some(expected));
        assert_eq!(service.seen().len(), attempts, "put {condition:?} {status}");
        assert_eq!(kind(items.delete(&key("a"), condition.clone()).await), Some(expected));
        assert_eq!(service.seen().len(), 2 * attempts, "delete {condition:?} {status}");
        assert_eq!(items.item_usage().puts, 1, "a call is counted once");
    }
}

#[tokio::test]
async fn reads_and_transactions_are_repeated() {
    let service = answering(500, LOST);
    let items = items_on(&service);
    assert_kind(items.get(&key("a"), Consistency::Strong).await, StoreErrorKind::Unavailable);
    assert_eq!(service.seen().len(), 3);
    let write = Write::Put { key: key("a"), item: Item::new(), condition: Condition::Absent };
    items.transact(&[write], "token").await.unwrap_err();
    let tokens: Vec<Json> = bodies(&service)[3..].iter().map(|body| body["ClientRequestToken"].clone()).collect();
    assert_eq!(tokens, ["token", "token", "token"]);
}

#[tokio::test]
async fn a_missing_table_is_named() {
    let missing = r#"{"__type":"com.amazonaws.dynamodb.v20120810#ResourceNotFoundException","message":"not found"}"#;
    let service = answering(400, missing);
    let error = items_on(&service).get(&key("a"), Consistency::Strong).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Missing);
    assert!(error.to_string().contains("x-catalog"), "{error}");
}

#[tokio::test]
async fn nobody_listening_is_unavailable() {
    let service = answering(200, "{}");
    let items = items_on(&service);
    drop(service);
    assert_kind(items.get(&key("a"), Consistency::Strong).await, StoreErrorKind::Unavailable);
    let put = items.put(&key("a"), Item::new(), Condition::Absent).await;
    assert_eq!(kind(put), Some(StoreErrorKind::Unavailable));
}

#[tokio::test]
async fn an_attribute_that_is_no_integer_is_a_clear_error() {
    let foreign = r#"{"Item":{"tablePath":{"S":"p"},"fileName":{"S":"s"},"expireTime":{"N":"1.5"}}}"#;
    let service = answering(200, foreign);
    let at = Key::new(Table::DeltaLog, "p", "s");
    let error = items_on(&service).get(&at, Consistency::Strong).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Invalid);
    assert!(error.to_string().contains("`expireTime` holds the number 1.5"), "{error}");
}

#[tokio::test]
async fn leftovers_of_batches_come_back_as_keys() {
    let left = r#"{"UnprocessedKeys":{"x-partitions":{"Keys":[{"pk":{"S":"p"},"sk":{"B":"AAE="}}]}},
        "UnprocessedItems":{"x-catalog":[{"DeleteRequest":{"Key":{"pk":{"S":"p"},"sk":{"S":"a"}}}}]}}"#;
    let service = answering(200, left);
    let items = items_on(&service);
    let at = Key::new(Table::Partitions, "p", vec![0u8, 1]);
    assert_eq!(items.batch_get(std::slice::from_ref(&at), Consistency::Strong).await.unwrap().unprocessed, [at]);
    assert_eq!(items.batch_delete(&[key("a")]).await.unwrap(), [key("a")]);
}

#[tokio::test]
async fn reasons_of_a_cancelled_transaction_are_told_apart() {
    use lakewarden_core::store::{CancelReason, TransactError};
    let cancelled = r#"{"__type":"com.amazonaws.dynamodb.v20120810#TransactionCanceledException","Message":"x",
        "CancellationReasons":[{"Code":"None"},{"Code":"TransactionConflict","Message":"busy"},
        {"Code":"ConditionalCheckFailed","Item":{"pk":{"S":"p"},"sk":{"S":"c"},"number":{"N":"7"}}},
        {"Code":"ValidationError","Message":"odd"}]}"#;
    let service = answering(400, cancelled);
    let writes: Vec<Write> = ["a", "b", "c", "d"]
        .map(|sk| Write::Put { key: key(sk), item: Item::new(), condition: Condition::Absent })
        .to_vec();
    let answer = items_on(&service).transact(&writes, "token").await;
    let old = Some(kit::values::item([("number", 7.into())]));
    let reasons = vec![
        CancelReason::None,
        CancelReason::Conflict,
        CancelReason::ConditionFailed { old },
        CancelReason::Other("ValidationError: odd".to_owned()),
    ];
    assert_eq!(answer, Err(TransactError::Cancelled { reasons }));

    let throttled = r#"{"__type":"com.amazonaws.dynamodb.v20120810#TransactionCanceledException","Message":"x",
        "CancellationReasons":[{"Code":"None"},{"Code":"ProvisionedThroughputExceeded","Message":"slower"}]}"#;
    let service = answering(400, throttled);
    let answer = items_on(&service).transact(&writes[..2], "token").await;
    assert!(matches!(answer, Err(TransactError::Store(error)) if error.kind == StoreErrorKind::Throttled));
}
