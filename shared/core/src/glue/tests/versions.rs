//! Versions of tables.

use serde_json::{Value, json};

use super::{Wire, table_input};
use crate::store::{Condition, Key, Table};

fn described(text: &str) -> Value {
    let mut input = table_input("t", &[]);
    input["Description"] = json!(text);
    input
}

async fn update(wire: &Wire, text: &str, skip: bool) {
    wire.ok("UpdateTable", json!({ "DatabaseName": "d", "TableInput": described(text), "SkipArchive": skip })).await;
}

fn at(version: Value) -> Value {
    json!({ "DatabaseName": "D", "TableName": "T", "VersionId": version })
}

async fn versions(wire: &Wire) -> Vec<(String, String)> {
    let mut all = Vec::new();
    let mut token = Value::Null;
    loop {
        let input = json!({ "DatabaseName": "d", "TableName": "t", "MaxResults": 2, "NextToken": token });
        let page = wire.ok("GetTableVersions", input).await;
        for version in page["TableVersions"].as_array().unwrap() {
            assert_eq!(version["VersionId"], version["Table"]["VersionId"]);
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            all.push((text(&version["VersionId"]), text(&version["Table"]["Description"])));
        }
        token = page["NextToken"].clone();
        if token.is_null() {
            return all;
        }
    }
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(version, text)| ((*version).to_owned(), (*text).to_owned())).collect()
}

#[tokio::test]
async fn updates_keep_what_they_replace_unless_told_otherwise() {
    let wire = Wire::with_table(&[]).await;
    assert_eq!(versions(&wire).await, pairs(&[("0", "")]));
    update(&wire, "one", false).await;
    update(&wire, "two", true).await;
    update(&wire, "three", false).await;
    update(&wire, "four", false).await;
    // What "two" replaced was not kept; the number grew all the same.
    assert_eq!(versions(&wire).await, pairs(&[("4", "four"), ("3", "three"), ("2", "two"), ("0", "")]));
    let current = wire.ok("GetTableVersion", json!({ "DatabaseName": "d", "TableName": "t" })).await;
    assert_eq!(current["TableVersion"]["VersionId"], "4");
    assert_eq!(
        current["TableVersion"]["Table"],
        wire.ok("GetTable", json!({ "DatabaseName": "d", "Name": "t" })).await["Table"]
    );
    let old = wire.ok("GetTableVersion", at(json!("3"))).await["TableVersion"].clone();
    assert_eq!((&old["VersionId"], &old["Table"]["Description"]), (&json!("3"), &json!("three")));
    for (version, name, text) in [
        ("1", "EntityNotFoundException", "Version not found."),
        ("99", "EntityNotFoundException", "Version not found."),
        ("-1", "EntityNotFoundException", "Version not found."),
        ("99999999999999999999999", "EntityNotFoundException", "Version not found."),
        ("latest", "InvalidInputException", "`latest` is not a version: versions are numbers from 0."),
    ] {
        assert_eq!(wire.fails("GetTableVersion", at(json!(version))).await, (name.to_owned(), text.to_owned()));
    }
    let (name, text) = wire.fails("GetTableVersions", json!({ "DatabaseName": "d", "TableName": "Nope" })).await;
    assert_eq!((name.as_str(), text.as_str()), ("EntityNotFoundException", "Table Nope not found."));
}

#[tokio::test]
async fn versions_are_deleted_one_by_one_and_the_current_one_never() {
    let wire = Wire::with_table(&[]).await;
    for n in 1..6 {
        update(&wire, &n.to_string(), false).await;
    }
    wire.ok("DeleteTableVersion", at(json!("2"))).await;
    assert_eq!(wire.fails("DeleteTableVersion", at(json!("2"))).await.0, "EntityNotFoundException");
    assert_eq!(wire.fails("DeleteTableVersion", at(json!("5"))).await.0, "InvalidInputException");
    assert_eq!(wire.fails("DeleteTableVersion", at(json!("x"))).await.0, "InvalidInputException");
    let batch = |versions: Value| json!({ "DatabaseName": "d", "TableName": "t", "VersionIds": versions });
    let answer = wire.ok("BatchDeleteTableVersion", batch(json!(["4", "5", "2", "4", "1", "y"]))).await;
    let errors: Vec<(&str, &str)> = answer["Errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|error| {
            assert_eq!(error["TableName"], "t");
            (error["VersionId"].as_str().unwrap(), error["ErrorDetail"]["ErrorCode"].as_str().unwrap())
        })
        .collect();
    let expected = [
        ("5", "InvalidInputException"),
        ("2", "EntityNotFoundException"),
        ("4", "EntityNotFoundException"),
        ("y", "InvalidInputException"),
    ];
    assert_eq!(errors, expected);
    assert_eq!(versions(&wire).await, pairs(&[("5", "5"), ("3", "3"), ("0", "")]));
    assert_eq!(wire.ok("BatchDeleteTableVersion", batch(json!(["0"]))).await, json!({}));
    // A number is never given out again.
    update(&wire, "6", false).await;
    assert_eq!(versions(&wire).await, pairs(&[("6", "6"), ("5", "5"), ("3", "3")]));
}

#[tokio::test]
async fn a_full_table_of_versions_refuses_to_keep_one_more() {
    let wire = Wire::with_table(&[]).await;
    update(&wire, "1", false).await;
    let table = crate::catalog::tables::find_table(&*wire.world.items, &*wire.world.clock, "d", "t").await.unwrap();
    let key = Key::new(Table::Catalog, format!("table#{}", table.table_id), "definition");
    let mut item = wire.world.items.dump().remove(&key).unwrap();
    item.insert("archived".to_owned(), 99_999.into());
    wire.app.ports.items.put(&key, item, Condition::Always).await.unwrap();
    let input = json!({ "DatabaseName": "d", "TableInput": described("2") });
    let (name, text) = wire.fails("UpdateTable", input.clone()).await;
    assert_eq!(name, "ResourceNumberLimitExceededException");
    assert_eq!(text, "Number of TABLE_VERSION resources exceeds the limit 100000 per TABLE");
    // Without keeping it goes on, and a deletion makes room for one.
    update(&wire, "2", true).await;
    wire.ok("DeleteTableVersion", at(json!("0"))).await;
    wire.ok("UpdateTable", input.clone()).await;
    assert_eq!(wire.fails("UpdateTable", input).await.0, "ResourceNumberLimitExceededException");
}

#[tokio::test]
async fn a_crash_in_an_update_leaves_both_or_neither() {
    for calls in 0..6 {
        let wire = Wire::with_table(&[]).await;
        wire.world.faults.crash_after(calls);
        let (status, _) =
            wire.send("UpdateTable", json!({ "DatabaseName": "d", "TableInput": described("one") })).await;
        wire.world.faults.revive();
        let found = versions(&wire).await;
        let whole = [pairs(&[("0", "")]), pairs(&[("1", "one"), ("0", "")])];
        assert!(whole.contains(&found), "{calls}: {found:?}");
        assert!(status != 200 || found == whole[1], "{calls}");
    }
}

#[tokio::test]
async fn large_versions_are_kept_apart_and_pages_end_in_time() {
    let wire = Wire::with_table(&[]).await;
    let noise = super::noise(1_000_000, 1);
    for n in 0..5 {
        let mut input = described(&n.to_string());
        input["ViewOriginalText"] = json!(&noise[n..409_600 + n]);
        input["Parameters"] = json!({ "a": &noise[..500_000 + n], "b": &noise[n..500_000] });
        wire.ok("UpdateTable", json!({ "DatabaseName": "d", "TableInput": input })).await;
    }
    let first = wire.ok("GetTableVersions", json!({ "DatabaseName": "d", "TableName": "t" })).await;
    assert!(crate::catalog::escaped_len(&first.to_string()) <= crate::limits::ANSWER_MAX_BYTES);
    assert!(first["TableVersions"].as_array().unwrap().len() < 5);
    let found: Vec<String> = versions(&wire).await.into_iter().map(|(version, _)| version).collect();
    assert_eq!(found, ["5", "4", "3", "2", "1", "0"]);
    let third = wire.ok("GetTableVersion", at(json!("3"))).await["TableVersion"]["Table"].clone();
    assert_eq!(third["ViewOriginalText"], json!(&noise[2..409_602]));
}

#[tokio::test]
async fn many_updates_without_a_version_all_get_through() {
    let wire = Wire::with_table(&[]).await;
    let updates = (0..32).map(|n| {
        let wire = wire.clone();
        tokio::spawn(async move { update(&wire, &n.to_string(), false).await })
    });
    futures::future::try_join_all(updates).await.unwrap();
    let found: Vec<i64> = versions(&wire).await.into_iter().map(|(version, _)| version.parse().unwrap()).collect();
    assert_eq!(found, (0..=32).rev().collect::<Vec<i64>>());
    // Of many with the same version one gets through.
    let commits = (0..16).map(|n| {
        let wire = wire.clone();
        tokio::spawn(async move {
            let input = json!({ "DatabaseName": "d", "TableInput": described(&n.to_string()), "VersionId": "32" });
            wire.send("UpdateTable", input).await.0
        })
    });
    let statuses = futures::future::try_join_all(commits).await.unwrap();
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1);
}
