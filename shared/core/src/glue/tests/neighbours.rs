//! What clients call beside tables and partitions: databases' updates, tags, functions, batches, search, the catalog.

use serde_json::{Value, json};

use super::{NOW_MS, Wire, table_input};
use crate::catalog::purge::{Outcome, carry_out, list_work};
use crate::ports::Deadline;

fn names<'a>(list: &'a Value, member: &str) -> Vec<&'a str> {
    list.as_array().unwrap().iter().map(|entry| entry[member].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_database_is_replaced_and_not_renamed() {
    let wire = Wire::with_table(&[]).await;
    wire.world.clock.advance_ms(5_000);
    let input = json!({ "Name": "D", "Description": "new", "Parameters": { "a": "b" } });
    wire.ok("UpdateDatabase", json!({ "Name": "d", "DatabaseInput": input })).await;
    let found = wire.ok("GetDatabase", json!({ "Name": "d" })).await["Database"].clone();
    assert_eq!((&found["Description"], &found["Parameters"]), (&json!("new"), &json!({ "a": "b" })));
    assert_eq!(found["CreateTime"], json!(NOW_MS as f64 / 1000.0));
    wire.ok("UpdateDatabase", json!({ "Name": "d", "DatabaseInput": { "Name": "d" } })).await;
    let bare = wire.ok("GetDatabase", json!({ "Name": "d" })).await["Database"].clone();
    assert!(bare.get("Description").is_none(), "replaced, not merged");
    wire.ok("GetTable", json!({ "DatabaseName": "d", "Name": "t" })).await;
    let (name, text) = wire.fails("UpdateDatabase", json!({ "Name": "d", "DatabaseInput": { "Name": "e" } })).await;
    assert_eq!((name.as_str(), text.as_str()), ("InvalidInputException", "Database cannot be renamed"));
    let (name, text) = wire.fails("UpdateDatabase", json!({ "Name": "Q", "DatabaseInput": { "Name": "Q" } })).await;
    assert_eq!((name.as_str(), text.as_str()), ("EntityNotFoundException", "Database Q not found."));
    let only_names = wire.ok("GetDatabases", json!({ "AttributesToGet": ["NAME"] })).await;
    assert_eq!(only_names["DatabaseList"], json!([{ "Name": "d" }]));
    wire.ok("CreateTable", json!({ "DatabaseName": "d", "TableInput": { "Name": "after" } })).await;
}

#[tokio::test]
async fn a_batch_drops_what_is_there_and_names_the_rest() {
    let wire = Wire::with_table(&[]).await;
    for name in ["a", "b"] {
        wire.ok("CreateTable", json!({ "DatabaseName": "d", "TableInput": { "Name": name } })).await;
    }
    let batch = json!({ "DatabaseName": "d", "TablesToDelete": ["A", "missing", "b", "a"] });
    let answer = wire.ok("BatchDeleteTable", batch).await;
    let error = |name: &str| {
        json!({ "TableName": name, "ErrorDetail": { "ErrorCode": "EntityNotFoundException",
            "ErrorMessage": format!("Table {name} not found") } })
    };
    assert_eq!(answer, json!({ "Errors": [error("missing"), error("a")] }));
    assert_eq!(names(&wire.ok("GetTables", json!({ "DatabaseName": "d" })).await["TableList"], "Name"), ["t"]);
    assert_eq!(wire.ok("BatchDeleteTable", json!({ "DatabaseName": "d", "TablesToDelete": ["t"] })).await, json!({}));
    let (name, text) = wire.fails("BatchDeleteTable", json!({ "DatabaseName": "q", "TablesToDelete": ["t"] })).await;
    assert_eq!((name.as_str(), text.as_str()), ("EntityNotFoundException", "Database q not found."));
}

#[tokio::test]
async fn tags_hang_on_databases_and_tables_by_arn() {
    let wire = Wire::with_table(&[]).await;
    let input = json!({ "DatabaseInput": { "Name": "Tagged" }, "Tags": { "team": "a", "empty": "" } });
    wire.ok("CreateDatabase", input).await;
    let arn = |resource: &str| format!("arn:aws:glue:eu-west-1:000000000000:{resource}");
    let get = async |arn: &str| wire.ok("GetTags", json!({ "ResourceArn": arn })).await["Tags"].clone();
    let database = arn("database/TAGGED");
    assert_eq!(get(&database).await, json!({ "team": "a", "empty": "" }));
    wire.ok("TagResource", json!({ "ResourceArn": database, "TagsToAdd": { "team": "b", "cost": "1" } })).await;
    wire.ok("UntagResource", json!({ "ResourceArn": database, "TagsToRemove": ["empty", "never"] })).await;
    assert_eq!(get(&database).await, json!({ "cost": "1", "team": "b" }));
    let table = arn("table/d/T");
    assert_eq!(get(&table).await, json!({}));
    wire.ok("TagResource", json!({ "ResourceArn": table, "TagsToAdd": { "x": "y" } })).await;
    wire.ok("UpdateTable", json!({ "DatabaseName": "d", "TableInput": table_input("t", &[]) })).await;
    assert_eq!(get(&table).await, json!({ "x": "y" }));
    let many = |from: usize, to: usize| {
        let tags: serde_json::Map<String, Value> = (from..to).map(|n| (format!("k{n}"), json!("v"))).collect();
        json!({ "ResourceArn": table, "TagsToAdd": tags })
    };
    wire.ok("TagResource", many(0, 49)).await;
    assert_eq!(wire.fails("TagResource", many(49, 50)).await.0, "InvalidInputException");
    let reserved = json!({ "ResourceArn": table, "TagsToAdd": { "AWS:x": "v" } });
    assert_eq!(wire.fails("TagResource", reserved).await.0, "InvalidInputException");
    for (resource, name) in [
        ("database/none", "EntityNotFoundException"),
        ("table/d/none", "EntityNotFoundException"),
        ("table/d", "EntityNotFoundException"),
        ("job/x", "EntityNotFoundException"),
        ("catalog", "EntityNotFoundException"),
    ] {
        assert_eq!(wire.fails("GetTags", json!({ "ResourceArn": arn(resource) })).await.0, name, "{resource}");
    }
    for odd in ["arn:aws:glue:", "arn:aws:glue:r:1", "arn:aws:glue:eu-west-1:999999999999:database/tagged"] {
        let (status, _) = wire.send("GetTags", json!({ "ResourceArn": odd })).await;
        assert_eq!(status, 400, "{odd}");
    }
    // A successor begins without.
    wire.ok("DeleteDatabase", json!({ "Name": "tagged" })).await;
    wire.ok("CreateDatabase", json!({ "DatabaseInput": { "Name": "tagged" } })).await;
    assert_eq!(get(&database).await, json!({}));
}

fn function(name: &str, kind: &str) -> Value {
    json!({ "FunctionName": name, "ClassName": "org.x.F", "OwnerName": "me", "OwnerType": "USER", "FunctionType": kind,
        "ResourceUris": [{ "ResourceType": "JAR", "Uri": "s3://b/f.jar" }] })
}

#[tokio::test]
async fn functions_live_in_their_database() {
    let wire = Wire::with_table(&[]).await;
    let at = |name: &str| json!({ "DatabaseName": "D", "FunctionName": name });
    let create = |name: &str| json!({ "DatabaseName": "d", "FunctionInput": function(name, "REGULAR_FUNCTION") });
    wire.ok("CreateUserDefinedFunction", create("Twice")).await;
    let (name, _) = wire.fails("CreateUserDefinedFunction", create("TWICE")).await;
    assert_eq!(name, "AlreadyExistsException");
    let mut expected = function("twice", "REGULAR_FUNCTION");
    expected["DatabaseName"] = json!("d");
    expected["CreateTime"] = json!(NOW_MS as f64 / 1000.0);
    expected["CatalogId"] = json!("000000000000");
    let found = wire.ok("GetUserDefinedFunction", at("tWICE")).await;
    assert_eq!(found, json!({ "UserDefinedFunction": expected }));
    let (name, text) = wire.fails("GetUserDefinedFunction", at("none")).await;
    assert_eq!((name.as_str(), text.as_str()), ("EntityNotFoundException", "Cannot find function."));
    wire.world.clock.advance_ms(1000);
    let mut update = at("twice");
    update["FunctionInput"] = json!({ "ClassName": "org.x.G" });
    wire.ok("UpdateUserDefinedFunction", update.clone()).await;
    let found = wire.ok("GetUserDefinedFunction", at("twice")).await["UserDefinedFunction"].clone();
    assert_eq!((&found["ClassName"], found.get("OwnerName")), (&json!("org.x.G"), None));
    assert_eq!(found["CreateTime"], json!(NOW_MS as f64 / 1000.0));
    // Another name renames; a taken one is refused.
    wire.ok("CreateUserDefinedFunction", create("other")).await;
    update["FunctionInput"] = json!({ "FunctionName": "Other" });
    assert_eq!(wire.fails("UpdateUserDefinedFunction", update.clone()).await.0, "AlreadyExistsException");
    update["FunctionInput"] = json!({ "FunctionName": "Thrice" });
    wire.ok("UpdateUserDefinedFunction", update.clone()).await;
    assert_eq!(wire.fails("UpdateUserDefinedFunction", update).await.0, "EntityNotFoundException");
    wire.ok("DeleteUserDefinedFunction", at("thrice")).await;
    assert_eq!(wire.fails("DeleteUserDefinedFunction", at("thrice")).await.0, "EntityNotFoundException");
    let nameless = json!({ "DatabaseName": "d", "FunctionInput": {} });
    assert_eq!(wire.fails("CreateUserDefinedFunction", nameless).await.0, "InvalidInputException");
    let nowhere = json!({ "DatabaseName": "q", "FunctionInput": function("f", "REGULAR_FUNCTION") });
    assert_eq!(wire.fails("CreateUserDefinedFunction", nowhere).await.0, "EntityNotFoundException");
}

#[tokio::test]
async fn functions_are_listed_by_pattern_over_one_database_or_all() {
    let wire = Wire::with_table(&[]).await;
    for (database, name, kind) in [
        ("a", "f1", "REGULAR_FUNCTION"),
        ("a", "f2", "AGGREGATE_FUNCTION"),
        ("b", "g1", "REGULAR_FUNCTION"),
        ("c", "f1", "REGULAR_FUNCTION"),
    ] {
        wire.send("CreateDatabase", json!({ "DatabaseInput": { "Name": database } })).await;
        let input = json!({ "DatabaseName": database, "FunctionInput": function(name, kind) });
        wire.ok("CreateUserDefinedFunction", input).await;
    }
    for (input, expected) in [
        (json!({ "Pattern": ".*" }), vec!["a.f1", "a.f2", "b.g1", "c.f1"]),
        (json!({ "Pattern": "*" }), vec!["a.f1", "a.f2", "b.g1", "c.f1"]),
        (json!({ "Pattern": "F*", "DatabaseName": "A" }), vec!["a.f1", "a.f2"]),
        (json!({ "Pattern": "f1|g1" }), vec!["a.f1", "b.g1", "c.f1"]),
        (json!({ "Pattern": ".*", "FunctionType": "AGGREGATE_FUNCTION" }), vec!["a.f2"]),
        (json!({ "Pattern": "nothing" }), vec![]),
    ] {
        for limit in [1, 2, 100] {
            let mut seen = Vec::new();
            let mut input = input.clone();
            input["MaxResults"] = json!(limit);
            loop {
                let page = wire.ok("GetUserDefinedFunctions", input.clone()).await;
                for found in page["UserDefinedFunctions"].as_array().unwrap() {
                    let text = |member: &str| found[member].as_str().unwrap().to_owned();
                    seen.push(format!("{}.{}", text("DatabaseName"), text("FunctionName")));
                }
                input["NextToken"] = page["NextToken"].clone();
                if input["NextToken"].is_null() {
                    break;
                }
            }
            assert_eq!(seen, expected, "{input} {limit}");
        }
    }
    let (name, _) = wire.fails("GetUserDefinedFunctions", json!({ "DatabaseName": "q", "Pattern": ".*" })).await;
    assert_eq!(name, "EntityNotFoundException");
}

#[tokio::test]
async fn the_catalog_says_what_it_is() {
    let wire = Wire::with_table(&[]).await;
    let catalog = wire.ok("GetCatalog", json!({ "CatalogId": "000000000000" })).await["Catalog"].clone();
    assert_eq!(catalog["ResourceArn"], "arn:aws:glue:us-east-1:000000000000:catalog");
    assert_eq!(wire.fails("GetCatalog", json!({ "CatalogId": "x" })).await.0, "EntityNotFoundException");
    for (input, count) in [
        (json!({}), 1),
        (json!({ "IncludeRoot": true, "Recursive": true }), 1),
        (json!({ "IncludeRoot": false }), 0),
        (json!({ "HasDatabases": true }), 1),
        (json!({ "HasDatabases": false }), 0),
        (json!({ "ParentCatalogId": "000000000000" }), 1),
    ] {
        let list = wire.ok("GetCatalogs", input.clone()).await["CatalogList"].clone();
        assert_eq!(list.as_array().unwrap().len(), count, "{input}");
    }
    assert_eq!(wire.fails("GetCatalogs", json!({ "ParentCatalogId": "x" })).await.0, "EntityNotFoundException");
    let status = wire.ok("GetCatalogImportStatus", json!({})).await;
    assert_eq!(status, json!({ "ImportStatus": { "ImportCompleted": true } }));
}

#[tokio::test]
async fn everything_of_a_dropped_database_is_removed_in_the_end() {
    let wire = Wire::with_table(&[("n", "int")]).await;
    let noise = super::noise(1_000_000, 1);
    let large = json!({ "a": &noise[..500_000], "b": &noise[500_000..1_000_000] });
    let input = json!({ "Name": "d", "Parameters": large });
    wire.ok("UpdateDatabase", json!({ "Name": "d", "DatabaseInput": input })).await;
    let mut table = table_input("t", &[("n", "int")]);
    table["Parameters"] = large;
    wire.ok("UpdateTable", json!({ "DatabaseName": "d", "TableInput": table })).await;
    wire.ok("UpdateTable", json!({ "DatabaseName": "d", "TableInput": table_input("t", &[("n", "int")]) })).await;
    for arn in ["database/d", "table/d/t"] {
        let arn = format!("arn:aws:glue:us-east-1:000000000000:{arn}");
        wire.ok("TagResource", json!({ "ResourceArn": arn, "TagsToAdd": { "a": "b" } })).await;
    }
    let mut function = function("f", "REGULAR_FUNCTION");
    let uris: Vec<Value> = (0..900).map(|n| json!({ "Uri": &noise[n * 1000..n * 1000 + 1000] })).collect();
    function["ResourceUris"] = uris.into();
    wire.ok("CreateUserDefinedFunction", json!({ "DatabaseName": "d", "FunctionInput": function })).await;
    wire.create(&["1"]).await;
    assert_eq!(wire.world.objects.keys("lakewarden-reports").len(), 3);
    wire.ok("DeleteDatabase", json!({ "Name": "d" })).await;
    for _ in 0..8 {
        wire.world.clock.advance_ms(16 * 60 * 1000);
        for work in list_work(&*wire.world.items, &*wire.world.clock).await.unwrap() {
            let deadline = Deadline::in_ms(&*wire.world.clock, 900_000);
            let outcome = carry_out(&wire.app.ports, &work, deadline).await.unwrap();
            assert!(matches!(outcome, Outcome::Done | Outcome::Continued));
        }
    }
    let left: Vec<String> = wire.world.items.dump().into_keys().map(|key| key.pk).collect();
    assert_eq!(left, ["dropped-tables"], "where its files are");
    assert_eq!(wire.world.objects.keys("lakewarden-reports").len(), 0);
}
