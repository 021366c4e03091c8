//! SearchTables.

use serde_json::{Value, json};

use super::Wire;

async fn lake() -> Wire {
    let wire = Wire::new();
    for name in ["sales", "raw", "empty"] {
        wire.ok("CreateDatabase", json!({ "DatabaseInput": { "Name": name } })).await;
    }
    for (database, name, extra) in [
        (
            "sales",
            "orders",
            json!({ "Description": "All orders, daily", "Owner": "anna", "Parameters": { "classification": "parquet" } }),
        ),
        ("sales", "customer-link", json!({ "TableType": "VIRTUAL_VIEW" })),
        ("raw", "orders_2024", json!({ "Owner": "bob", "Parameters": { "classification": "csv" } })),
        (
            "raw",
            "clicks",
            json!({ "StorageDescriptor": { "Columns": [{ "Name": "order_id", "Comment": "The Order" }], "Location": "s3://lake/raw/clicks" } }),
        ),
    ] {
        let mut input = extra;
        input["Name"] = json!(name);
        wire.ok("CreateTable", json!({ "DatabaseName": database, "TableInput": input })).await;
        wire.world.clock.advance_ms(1_000);
    }
    wire
}

async fn found(wire: &Wire, mut input: Value) -> Vec<String> {
    let mut all = Vec::new();
    loop {
        let page = wire.ok("SearchTables", input.clone()).await;
        for table in page["TableList"].as_array().unwrap() {
            all.push(format!("{}.{}", table["DatabaseName"].as_str().unwrap(), table["Name"].as_str().unwrap()));
        }
        input["NextToken"] = page["NextToken"].clone();
        if input["NextToken"].is_null() {
            return all;
        }
    }
}

const ALL: [&str; 4] = ["raw.clicks", "raw.orders_2024", "sales.customer-link", "sales.orders"];

#[tokio::test]
async fn tables_are_found_by_text_and_by_property() {
    let wire = lake().await;
    let filter = |key: &str, value: &str| json!({ "Filters": [{ "Key": key, "Value": value }] });
    for (input, expected) in [
        (json!({}), &ALL[..]),
        (json!({ "ResourceShareType": "ALL" }), &ALL),
        (json!({ "ResourceShareType": "FOREIGN" }), &[]),
        (json!({ "SearchText": "order" }), &["raw.clicks", "raw.orders_2024", "sales.orders"]),
        (json!({ "SearchText": "ORDER sales" }), &["sales.orders"]),
        (json!({ "SearchText": "\"Orders\"" }), &["sales.orders"]),
        (json!({ "SearchText": "parquet" }), &["sales.orders"]),
        (json!({ "SearchText": "s3://lake" }), &["raw.clicks"]),
        (json!({ "SearchText": "nothing" }), &[]),
        (filter("Name", "link"), &["sales.customer-link"]),
        (filter("Name", "orders"), &["sales.orders"]),
        (filter("DatabaseName", "RAW"), &["raw.clicks", "raw.orders_2024"]),
        (filter("DatabaseName", "empty"), &[]),
        (filter("Description", "daily"), &["sales.orders"]),
        (filter("TableType", "VIRTUAL_VIEW"), &["sales.customer-link"]),
        (filter("classification", "csv"), &["raw.orders_2024"]),
        (
            json!({ "Filters": [{ "Key": "DatabaseName", "Value": "sales" }], "SearchText": "orders" }),
            &["sales.orders"],
        ),
        (
            json!({ "Filters": [{ "Key": "CreateTime", "Value": "1700000001.2", "Comparator": "GREATER_THAN" }] }),
            &["raw.clicks", "raw.orders_2024"],
        ),
        (
            json!({ "Filters": [{ "Key": "UpdateTime", "Value": "2023-11-14T22:13:21Z", "Comparator": "LESS_THAN" }] }),
            &["sales.orders"],
        ),
    ] {
        for limit in [1, 3, 1000] {
            let mut input = input.clone();
            input["MaxResults"] = json!(limit);
            assert_eq!(found(&wire, input.clone()).await, expected, "{input}");
        }
    }
}

#[tokio::test]
async fn results_are_sorted_if_asked_for() {
    let wire = lake().await;
    let sort = |field: &str, order: &str| json!({ "SortCriteria": [{ "FieldName": field, "Sort": order }] });
    for (input, expected) in [
        (sort("Name", "ASC"), ["raw.clicks", "sales.customer-link", "sales.orders", "raw.orders_2024"]),
        (sort("Name", "DESC"), ["raw.orders_2024", "sales.orders", "sales.customer-link", "raw.clicks"]),
        (sort("CreateTime", "DESC"), ["raw.clicks", "raw.orders_2024", "sales.customer-link", "sales.orders"]),
        (sort("Owner", "ASC"), ["raw.clicks", "sales.customer-link", "sales.orders", "raw.orders_2024"]),
    ] {
        for limit in [1, 2, 4, 1000] {
            let mut input = input.clone();
            input["MaxResults"] = json!(limit);
            assert_eq!(found(&wire, input.clone()).await, expected, "{input}");
        }
    }
}

#[tokio::test]
async fn a_search_without_meaning_is_refused_and_tokens_belong_to_their_search() {
    let wire = lake().await;
    for input in [
        json!({ "Filters": [{ "Key": "Name" }] }),
        json!({ "Filters": [{ "Key": "UpdateTime", "Value": "soon" }] }),
        json!({ "Filters": [{ "Key": "Name", "Value": "a", "Comparator": "GREATER_THAN" }] }),
        json!({ "SortCriteria": [{ "FieldName": "Colour" }] }),
    ] {
        assert_eq!(wire.fails("SearchTables", input.clone()).await.0, "InvalidInputException", "{input}");
    }
    let page = wire.ok("SearchTables", json!({ "MaxResults": 1 })).await;
    let other = json!({ "MaxResults": 1, "SearchText": "x", "NextToken": page["NextToken"] });
    assert_eq!(wire.fails("SearchTables", other).await.0, "InvalidInputException");
}

#[tokio::test]
async fn a_walk_over_many_databases_ends() {
    let wire = Wire::new();
    for n in 0..230 {
        wire.ok("CreateDatabase", json!({ "DatabaseInput": { "Name": format!("d{n:03}") } })).await;
        if n % 50 == 0 {
            wire.ok("CreateTable", json!({ "DatabaseName": format!("d{n:03}"), "TableInput": { "Name": "t" } })).await;
        }
    }
    assert_eq!(found(&wire, json!({})).await, ["d000.t", "d050.t", "d100.t", "d150.t", "d200.t"]);
    let last = json!({ "Filters": [{ "Key": "DatabaseName", "Value": "d200" }] });
    assert_eq!(found(&wire, last).await, ["d200.t"]);
}
