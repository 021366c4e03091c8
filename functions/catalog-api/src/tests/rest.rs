//! Statuses, bodies and conditions of REST.

use serde_json::{Value, json};

use super::Front;

const TABLE: &str = "/v1/databases/sales/tables/a%2Fb%20c";

#[tokio::test]
async fn a_database_and_its_tables_are_made_changed_and_removed() {
    let front = Front::new();
    let table = json!({ "TableInput": { "Name": "t", "Parameters": { "n": "1" } } });
    let changed = json!({ "TableInput": { "Name": "t", "Parameters": { "n": "2" } } });
    for (request, body, status) in [
        ("POST /v1/databases", json!({ "DatabaseInput": { "Name": "x/y" } }), 201),
        ("POST /v1/databases", json!({ "DatabaseInput": { "Name": "x/y" } }), 409),
        ("GET /v1/databases/x%2Fy", Value::Null, 200),
        ("HEAD /v1/databases/x%2Fy", Value::Null, 200),
        ("HEAD /v1/databases/y", Value::Null, 404),
        ("POST /v1/databases/x%2Fy/tables", table.clone(), 201),
        ("POST /v1/databases/x%2Fy/tables", table.clone(), 409),
        ("POST /v1/databases/nope/tables", table.clone(), 404),
        ("POST /v1/databases/x%2Fy/tables", json!({ "TableInput": {} }), 422),
        ("POST /v1/databases/x%2Fy/tables", json!({ "DatabaseName": "other", "TableInput": { "Name": "t" } }), 422),
        ("POST /v1/databases/x%2Fy/tables", json!([]), 400),
        ("PUT /v1/databases/x%2Fy/tables/t", changed, 200),
        ("PATCH /v1/databases/x%2Fy/tables/t", Value::Null, 405),
        ("DELETE /v1/databases/x%2Fy/tables/t", Value::Null, 204),
        ("DELETE /v1/databases/x%2Fy/tables/t", Value::Null, 404),
        ("DELETE /v1/databases/x%2Fy", json!({ "a": 1 }), 422),
        ("DELETE /v1/databases/x%2Fy", Value::Null, 204),
        ("GET /v1/databases/x%2Fy", Value::Null, 404),
    ] {
        let answer = front.rest(request, &[], body.clone()).await;
        assert_eq!(answer.status, status, "{request} {body}: {}", answer.body);
        let has_body = status != 204 && !request.starts_with("HEAD");
        assert_eq!(answer.body.is_object(), has_body, "{request}");
        assert_eq!(answer.headers.contains_key("content-type"), status != 204, "{request}");
    }
}

#[tokio::test]
async fn another_method_is_told_which_there_are() {
    let front = Front::with_data().await;
    let answer = front.rest("PATCH /v1/databases/sales", &[], Value::Null).await;
    assert_eq!((answer.status, &answer.headers["allow"]), (405, &"GET, PUT, DELETE, HEAD".parse().unwrap()));
    assert!(answer.body["Message"].as_str().unwrap().contains("GET, PUT, DELETE, HEAD"), "{}", answer.body);
    assert_eq!(front.rest("PATCH /v1/databases/sales", &[("if-match", "x")], Value::Null).await.status, 405);
}

#[tokio::test]
async fn any_value_of_a_partition_has_an_address() {
    let front = Front::new();
    front.rest("POST /v1/databases", &[], json!({ "DatabaseInput": { "Name": "d" } })).await;
    let keys = json!([{ "Name": "a", "Type": "string" }, { "Name": "b", "Type": "string" }]);
    let table = json!({ "TableInput": { "Name": "t", "PartitionKeys": keys } });
    assert_eq!(front.rest("POST /v1/databases/d/tables", &[], table).await.status, 201);
    for (values, query) in [
        (["a/b", "/"], "value=a%2Fb&value=/"),
        (["100%", "%2F"], "value=100%25&value=%252F"),
        (["..", "."], "value=..&value=."),
        ([" ", "\n"], "value=+&value=%0A"),
        (["ü😀", "a+b&c=d#e?f"], "value=%C3%BC%F0%9F%98%80&value=a%2Bb%26c%3Dd%23e%3Ff"),
        (["a,b", "\u{0}"], "value=a,b&value=%00"),
    ] {
        let body = json!({ "PartitionInput": { "Values": values } });
        assert_eq!(front.rest("POST /v1/databases/d/tables/t/partitions", &[], body).await.status, 201, "{values:?}");
        let found = front.rest(&format!("GET /v1/databases/d/tables/t/partition?{query}"), &[], Value::Null).await;
        assert_eq!((found.status, &found.body["Partition"]["Values"]), (200, &json!(values)));
        let gone = front.rest(&format!("DELETE /v1/databases/d/tables/t/partition?{query}"), &[], Value::Null).await;
        assert_eq!(gone.status, 204);
        let found = front.rest(&format!("GET /v1/databases/d/tables/t/partition?{query}"), &[], Value::Null).await;
        assert_eq!(found.status, 404);
    }
    for query in ["", "?value=", "?value=a", "?value=a&value="] {
        let found = front.rest(&format!("GET /v1/databases/d/tables/t/partition{query}"), &[], Value::Null).await;
        assert!(matches!(found.status, 404 | 422), "{query}: {}", found.body);
    }
}

#[tokio::test]
async fn reads_are_conditional_on_the_tag() {
    let front = Front::with_data().await;
    for (address, tag) in [(TABLE.to_owned(), Some("\"0\"")), (format!("{TABLE}/partition?value=1"), None)] {
        let get = format!("GET {address}");
        let first = front.rest(&get, &[], Value::Null).await;
        let found = first.headers["etag"].to_str().unwrap().to_owned();
        assert!(tag.is_none_or(|tag| tag == found), "{found}");
        let weak = format!("W/{found}");
        let list = format!("\"zz\", {found}");
        for (name, value, status) in [
            ("if-none-match", found.as_str(), 304),
            ("if-none-match", "*", 304),
            ("if-none-match", &weak, 304),
            ("if-none-match", &list, 304),
            ("if-none-match", "\"zz\"", 200),
            ("if-match", &found, 200),
            ("if-match", &list, 200),
            ("if-match", "*", 200),
            ("if-match", &weak, 412),
            ("if-match", "\"zz\"", 412),
            ("if-match", "zz", 422),
        ] {
            let answer = front.rest(&get, &[(name, value)], Value::Null).await;
            assert_eq!(answer.status, status, "{get} {name}: {value}");
            assert_eq!(answer.body.is_null(), status == 304);
            if matches!(status, 200 | 304) {
                assert_eq!(answer.headers["etag"], found.as_str());
            }
        }
        let missing = address.replace("value=1", "value=7").replace("c", "d");
        let answer = front.rest(&format!("GET {missing}"), &[("if-none-match", "*")], Value::Null).await;
        assert_eq!(answer.status, 404);
    }
    let names = front.rest(&format!("GET {TABLE}?attribute=NAME"), &[], Value::Null).await;
    assert_eq!((names.status, names.headers.get("etag")), (200, None));
    let names = front.rest(&format!("GET {TABLE}?attribute=NAME"), &[("if-match", "*")], Value::Null).await;
    assert_eq!(names.status, 422);
}

#[tokio::test]
async fn updates_of_a_table_are_conditional_on_its_version() {
    let front = Front::with_data().await;
    let put = format!("PUT {TABLE}");
    let update = |version: Option<&str>| {
        let mut body = json!({ "TableInput": { "Name": "a/b c", "PartitionKeys": [{ "Name": "n", "Type": "int" }] } });
        if let Some(version) = version {
            body["VersionId"] = json!(version);
        }
        body
    };
    for (headers, body, status) in [
        (vec![("if-match", "\"0\"")], update(None), 200),
        (vec![("if-match", "\"0\"")], update(None), 412),
        (vec![("if-match", "W/\"1\"")], update(None), 412),
        (vec![("if-match", "\"0\", \"1\"")], update(None), 200),
        (vec![("if-match", "*")], update(None), 200),
        (vec![("if-none-match", "*")], update(None), 412),
        (vec![("if-none-match", "\"3\"")], update(None), 412),
        (vec![("if-none-match", "\"2\"")], update(None), 200),
        (vec![("if-match", "\"4\"")], update(Some("3")), 422),
        (vec![("if-match", "\"4\"")], update(Some("4")), 200),
        (vec![], update(Some("4")), 412),
        (vec![], update(None), 200),
    ] {
        let answer = front.rest(&put, &headers, body.clone()).await;
        assert_eq!(answer.status, status, "{headers:?} {body}: {}", answer.body);
    }
    let other = json!({ "TableInput": { "Name": "z" } });
    let missing = front.rest("PUT /v1/databases/sales/tables/z", &[("if-match", "\"0\"")], other.clone()).await;
    assert_eq!(missing.status, 404, "{}", missing.body);
    let misnamed = front.rest(&put, &[], other).await;
    assert_eq!(misnamed.status, 422, "{}", misnamed.body);
}

#[tokio::test]
async fn writes_of_a_partition_are_conditional_on_its_revision() {
    let front = Front::with_data().await;
    let address = format!("{TABLE}/partition?value=1");
    let tag = || async {
        let found = front.rest(&format!("GET {address}"), &[], Value::Null).await;
        found.headers["etag"].to_str().unwrap().to_owned()
    };
    let (put, body) = (format!("PUT {address}"), json!({ "PartitionInput": { "Parameters": { "a": "b" } } }));
    let first = tag().await;
    assert_eq!(front.rest(&put, &[("if-match", &first)], body.clone()).await.status, 200);
    let second = tag().await;
    assert_ne!(first, second);
    let (weak, list) = (format!("W/{second}"), format!("{first}, {second}"));
    for (name, value, status) in [
        ("if-match", first.as_str(), 412),
        ("if-match", &weak, 412),
        ("if-none-match", &second, 412),
        ("if-none-match", "*", 412),
        ("if-match", "zz", 422),
        ("if-match", &list, 200),
        ("if-none-match", &second, 200),
        ("if-match", "*", 200),
    ] {
        assert_eq!(front.rest(&put, &[(name, value)], body.clone()).await.status, status, "{name}: {value}");
    }
    let delete = format!("DELETE {address}");
    let stale = front.rest(&delete, &[("if-match", &second)], Value::Null).await;
    assert_eq!((stale.status, &stale.body["__type"]), (412, &json!("ConcurrentModificationException")));
    assert_eq!(front.rest(&delete, &[("if-match", &tag().await)], Value::Null).await.status, 204);
    assert_eq!(front.rest(&delete, &[("if-match", "*")], Value::Null).await.status, 404);
    assert_eq!(front.rest(&put, &[("if-match", &second)], body.clone()).await.status, 404);
    // Values of a body other than those of the address move the partition.
    let moved = json!({ "PartitionInput": { "Values": ["3"] } });
    assert_eq!(front.rest(&format!("PUT {TABLE}/partition?value=2"), &[], moved.clone()).await.status, 200);
    assert_eq!(front.rest(&format!("PUT {TABLE}/partition?value=10"), &[], moved).await.status, 409);
}

#[tokio::test]
async fn entries_of_a_batch_state_what_was_read() {
    let front = Front::with_data().await;
    let revision = |value: &'static str| {
        let front = &front;
        async move {
            let found = front.rest(&format!("GET {TABLE}/partition?value={value}"), &[], Value::Null).await;
            found.body["Partition"]["Revision"].clone()
        }
    };
    let (one, two) = (revision("1").await, revision("2").await);
    let entry = |value: &str, expected: &Value| json!({ "PartitionValueList": [value], "PartitionInput": { "Values": [value] }, "ExpectedRevision": expected });
    let entries = json!({ "Entries": [entry("1", &one), entry("2", &one), entry("10", &Value::Null)] });
    let answer = front.rest(&format!("POST {TABLE}/batch-update-partitions"), &[], entries).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.body["Errors"].as_array().unwrap().len(), 1, "{}", answer.body);
    assert_eq!(answer.body["Errors"][0]["PartitionValueList"], json!(["2"]));
    assert_eq!(answer.body["Errors"][0]["ErrorDetail"]["ErrorCode"], "ConcurrentModificationException");
    assert_ne!(revision("1").await, one);
    assert_eq!(revision("2").await, two);
    let entries = json!({ "PartitionsToDelete": [{ "Values": ["1"], "ExpectedRevision": one },
        { "Values": ["2"], "ExpectedRevision": two }, { "Values": ["10"] }] });
    let answer = front.rest(&format!("POST {TABLE}/batch-delete-partitions"), &[], entries).await;
    assert_eq!(answer.body["Errors"].as_array().unwrap().len(), 1, "{}", answer.body);
    assert_eq!(answer.body["Errors"][0]["PartitionValues"], json!(["1"]));
    let listed = front.rest(&format!("GET {TABLE}/partitions"), &[], Value::Null).await;
    assert_eq!(listed.body["Partitions"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_condition_that_would_be_ignored_is_refused() {
    let front = Front::with_data().await;
    let body = json!({ "PartitionInput": { "Values": ["7"] } });
    for (request, headers, body) in [
        ("DELETE /v1/databases/sales".to_owned(), ("if-match", "*"), Value::Null),
        (format!("DELETE {TABLE}"), ("if-match", "\"0\""), Value::Null),
        (format!("POST {TABLE}/partitions"), ("if-none-match", "*"), body.clone()),
        (format!("POST {TABLE}/batch-delete-partitions"), ("if-match", "\"0\""), json!({ "PartitionsToDelete": [] })),
        (format!("GET {TABLE}/partition?value=1"), ("x-lakewarden-if-revision", "0"), Value::Null),
    ] {
        let answer = front.rest(&request, &[headers], body).await;
        assert_eq!((answer.status, &answer.body["__type"]), (422, &json!("InvalidInputException")), "{request}");
    }
    let wrong = json!({ "PartitionsToDelete": [{ "Values": ["1"], "ExpectedRevision": 1 }] });
    let answer = front.rest(&format!("POST {TABLE}/batch-delete-partitions"), &[], wrong).await;
    assert_eq!(answer.status, 422);
}

#[tokio::test]
async fn specs_are_paged_like_partitions() {
    let front = Front::new();
    front.rest("POST /v1/databases", &[], json!({ "DatabaseInput": { "Name": "d" } })).await;
    let table = json!({ "TableInput": { "Name": "T", "PartitionKeys": [{ "Name": "n", "Type": "int" }],
        "StorageDescriptor": { "Location": "s3://lake/t" } } });
    assert_eq!(front.rest("POST /v1/databases/d/tables", &[], table).await.status, 201);
    let inputs: Vec<Value> = (0..5)
        .map(|n| {
            let location = if n == 3 { "s3://lake/elsewhere".to_owned() } else { format!("s3://lake/t/n={n}") };
            let columns = json!([{ "Name": "a", "Type": "int" }]);
            json!({ "Values": [n.to_string()], "StorageDescriptor": { "Location": location, "Columns": columns } })
        })
        .collect();
    let batch = front
        .rest("POST /v1/databases/d/tables/T/batch-create-partitions", &[], json!({ "PartitionInputList": inputs }))
        .await;
    assert_eq!((batch.status, &batch.body["Errors"]), (200, &json!([])));
    let address = "GET /v1/databases/d/tables/T/partition-specs";
    let whole = front.rest(address, &[], Value::Null).await;
    let specs = whole.body["PartitionSpecs"].as_array().unwrap();
    assert_eq!(specs.len(), 2);
    assert_eq!(specs[0]["RootPath"], "s3://lake/t");
    assert_eq!(specs[0]["PartitionSpecWithSharedSD"]["Partitions"].as_array().unwrap().len(), 4);
    assert_eq!(specs[1]["PartitionListComposingSpec"]["Partitions"][0]["Values"], json!(["3"]));
    assert!(whole.body.get("NextToken").is_none());
    let mut token = String::new();
    let mut seen = Vec::new();
    loop {
        let page = front
            .rest(&format!("{address}?max_results=2&next_token={token}&exclude_column_schema"), &[], Value::Null)
            .await;
        assert_eq!(page.status, 200, "{}", page.body);
        for spec in page.body["PartitionSpecs"].as_array().unwrap() {
            let shared = &spec["PartitionSpecWithSharedSD"];
            assert!(shared["StorageDescriptor"].get("Columns").is_none());
            let form = if shared.is_object() { shared } else { &spec["PartitionListComposingSpec"] };
            seen.extend(form["Partitions"].as_array().unwrap().iter().map(|found| found["Values"][0].clone()));
        }
        match page.body.get("NextToken") {
            Some(next) => token = next.as_str().unwrap().to_owned(),
            None => break,
        }
    }
    seen.sort_by_key(|value| value.as_str().unwrap().to_owned());
    assert_eq!(json!(seen), json!(["0", "1", "2", "3", "4"]));
    let missing = front.rest("GET /v1/databases/d/tables/u/partition-specs", &[], Value::Null).await;
    assert_eq!(missing.status, 404);
}

#[tokio::test]
async fn everything_else_has_an_address_and_its_statuses() {
    let front = Front::with_data().await;
    let arn = format!("arn:aws:glue:us-east-1:{}:database/sales", front.app.settings.account_id);
    let arn = arn.replace(':', "%3A");
    let function = json!({ "FunctionInput": { "FunctionName": "F", "ClassName": "c" } });
    let statistics = json!({ "ColumnStatisticsList": [{ "ColumnName": "c", "ColumnType": "int", "AnalyzedTime": 1,
        "StatisticsData": { "Type": "LONG", "LongColumnStatisticsData": { "NumberOfNulls": 1, "NumberOfDistinctValues": 2 } } }] });
    let update = json!({ "TableInput": { "Name": "A/B c", "PartitionKeys": [{ "Name": "n", "Type": "int" }] } });
    let database = json!({ "DatabaseInput": { "Name": "sales", "Description": "x" } });
    let index = json!({ "PartitionIndex": { "IndexName": "i", "Keys": ["n"] } });
    let none = Value::Null;
    for (request, body, status) in [
        ("PUT /v1/databases/sales".to_owned(), database, 200),
        (format!("PUT {TABLE}"), update, 200),
        (format!("GET {TABLE}/versions"), none.clone(), 200),
        (format!("GET {TABLE}/versions/0"), none.clone(), 200),
        (format!("GET {TABLE}/versions/7"), none.clone(), 404),
        (format!("DELETE {TABLE}/versions/1"), none.clone(), 422),
        (format!("DELETE {TABLE}/versions/0"), none.clone(), 204),
        (format!("DELETE {TABLE}/versions/0"), none.clone(), 404),
        (format!("POST {TABLE}/batch-delete-versions"), json!({ "VersionIds": ["0"] }), 200),
        (format!("PUT {TABLE}/statistics"), statistics.clone(), 200),
        (format!("GET {TABLE}/statistics?column=c&column=d"), none.clone(), 200),
        (format!("GET {TABLE}/statistics"), none.clone(), 422),
        (format!("DELETE {TABLE}/statistics?column=c"), none.clone(), 204),
        (format!("PUT {TABLE}/partition/statistics?value=1"), statistics.clone(), 200),
        (format!("PUT {TABLE}/partition/statistics?value=7"), statistics, 404),
        (format!("GET {TABLE}/partition/statistics?value=1&column=c"), none.clone(), 200),
        (format!("DELETE {TABLE}/partition/statistics?value=1&column=c"), none.clone(), 204),
        (format!("POST {TABLE}/indexes"), index.clone(), 201),
        // One at a time.
        (format!("POST {TABLE}/indexes"), index, 422),
        (format!("GET {TABLE}/indexes"), none.clone(), 200),
        (format!("DELETE {TABLE}/indexes/j"), none.clone(), 404),
        ("POST /v1/databases/sales/functions".to_owned(), function.clone(), 201),
        ("POST /v1/databases/sales/functions".to_owned(), function.clone(), 409),
        ("GET /v1/databases/sales/functions/f".to_owned(), none.clone(), 200),
        ("PUT /v1/databases/sales/functions/f".to_owned(), function, 200),
        ("GET /v1/databases/sales/functions?pattern=.*".to_owned(), none.clone(), 200),
        ("GET /v1/functions?pattern=*".to_owned(), none.clone(), 200),
        ("DELETE /v1/databases/sales/functions/f".to_owned(), none.clone(), 204),
        ("GET /v1/databases/sales/functions/f".to_owned(), none.clone(), 404),
        (format!("POST /v1/tags?arn={arn}"), json!({ "TagsToAdd": { "a": "b" } }), 200),
        (format!("GET /v1/tags?arn={arn}"), none.clone(), 200),
        (format!("DELETE /v1/tags?arn={arn}&key=a&key=b"), none.clone(), 204),
        ("GET /v1/tags?arn=x".to_owned(), none.clone(), 422),
        ("POST /v1/search-tables".to_owned(), json!({ "SearchText": "a/b" }), 200),
        ("GET /v1/import-status".to_owned(), none.clone(), 200),
        ("GET /v1/catalogs".to_owned(), none.clone(), 200),
        (format!("GET {TABLE}/optimizers/orphan_file_deletion"), none.clone(), 404),
        ("POST /v1/batch-get-optimizers".to_owned(), json!({ "Entries": [] }), 200),
        ("POST /v1/databases/sales/batch-delete-tables".to_owned(), json!({ "TablesToDelete": ["a/b c", "z"] }), 200),
        ("POST /v1/databases/sales/batch-delete-tables".to_owned(), json!({}), 422),
    ] {
        let answer = front.rest(&request, &[], body.clone()).await;
        assert_eq!(answer.status, status, "{request} {body}: {}", answer.body);
        assert_eq!(answer.body.is_object(), status != 204, "{request}");
    }
}
