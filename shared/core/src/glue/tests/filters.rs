//! Expressions over the wire.

use serde_json::{Value, json};

use super::{Wire, in_table, values_of};
use crate::predicate::Mode;

async fn found(wire: &Wire, expression: &str) -> Vec<String> {
    let answer = wire.ok("GetPartitions", in_table(json!({ "Expression": expression }))).await;
    values_of(&answer["Partitions"]).into_iter().map(|values| values.join("/")).collect()
}

async fn days() -> Wire {
    let wire = Wire::with_table(&[("dt", "string"), ("region", "string"), ("n", "int")]).await;
    for values in
        [["2024-01-01", "eu", "1"], ["2024-01-01", "us", "02"], ["2024-01-02", "eu", "3"], ["2024-02-01", "eu", "10"]]
    {
        wire.create(&values).await;
    }
    wire
}

#[tokio::test]
async fn what_engines_send_is_answered() {
    let wire = days().await;
    for (expression, expected) in [
        ("dt = '2024-01-01'", &["2024-01-01/eu/1", "2024-01-01/us/02"][..]),
        (
            "(dt='2024-01-01' and region='us') or (dt='2024-02-01' and region='eu')",
            &["2024-01-01/us/02", "2024-02-01/eu/10"],
        ),
        ("((region = 'eu')) AND ((n >= 1 AND n <= 3) OR (n in (7, 9)))", &["2024-01-01/eu/1", "2024-01-02/eu/3"]),
        ("((region) NOT IN ('us')) and n > 2", &["2024-01-02/eu/3", "2024-02-01/eu/10"]),
        ("dt like '2024-01%' and n = 2", &["2024-01-01/us/02"]),
        ("dt = '2024-01-01' and region = 'us' and n = '2'", &["2024-01-01/us/02"]),
        ("REGION != 'eu'", &["2024-01-01/us/02"]),
        ("dt = '1999-01-01'", &[]),
        (" \n", &["2024-01-01/eu/1", "2024-01-01/us/02", "2024-01-02/eu/3", "2024-02-01/eu/10"]),
    ] {
        assert_eq!(found(&wire, expression).await, expected, "{expression}");
    }
}

#[tokio::test]
async fn errors_have_the_names_and_texts_of_the_service() {
    let wire = days().await;
    for (expression, name, text) in [
        ("dt = 2021-01-01", "InvalidInputException", "Unsupported expression"),
        ("dt = ", "InvalidInputException", "Unsupported expression"),
        ("n = 'x'", "InvalidInputException", "is not an integer."),
        ("n like '1%'", "InvalidInputException", "Integral data type doesn't support operation 'LIKE'"),
        (&"(".repeat(2049), "ValidationException", "'expression' failed to satisfy constraint"),
        (&"(".repeat(2048), "InvalidInputException", "Unsupported expression"),
    ] {
        let (found, message) = wire.fails("GetPartitions", in_table(json!({ "Expression": expression }))).await;
        assert_eq!(found, name, "{expression}");
        assert!(message.contains(text), "{message}");
    }
    // Compared as a whole by clients' suites: what helps a person stands beside it.
    let (_, refusal) = wire.send("GetPartitions", in_table(json!({ "Expression": "nosuch = 1" }))).await;
    let body = json!({
        "__type": "InvalidInputException",
        "Message": "Invalid partition expression!",
        "Hint": "At character 1: nosuch is no partition key; these are: dt, region, n",
    });
    assert_eq!(refusal, body);
    wire.create(&["2024-03-01", "eu", "null"]).await;
    let input = |expression: &str| in_table(json!({ "Expression": expression, "MaxResults": 1 }));
    let (name, message) = wire.fails("GetPartitions", input("dt = '2024-03-01' and n = 1")).await;
    assert_eq!(name, "InvalidStateException");
    assert!(message.starts_with("For input string: \"null\" is not an integer."), "{message}");
    wire.ok("GetPartitions", input("dt = '2024-01-01' and n = 1")).await;
}

#[tokio::test]
async fn the_default_marker_is_null_unless_the_deployment_is_strict() {
    let mut wire = days().await;
    wire.create(&["2024-03-01", "eu", "__HIVE_DEFAULT_PARTITION__"]).await;
    assert_eq!(found(&wire, "n is null").await, ["2024-03-01/eu/__HIVE_DEFAULT_PARTITION__"]);
    assert_eq!(found(&wire, "n > 3").await, ["2024-02-01/eu/10"]);
    wire.app.settings.default_partition = Mode::Strict;
    let (name, _) = wire.fails("GetPartitions", in_table(json!({ "Expression": "n > 3" }))).await;
    assert_eq!(name, "InvalidStateException");
}

#[tokio::test]
async fn a_token_belongs_to_its_filter_and_changes_on_every_page() {
    let wire = days().await;
    let page = |expression: &str, token: &Value| {
        in_table(json!({ "Expression": expression, "MaxResults": 1, "NextToken": token }))
    };
    let expression = "region = 'eu' and n > 0";
    let mut tokens: Vec<Value> = Vec::new();
    let mut seen = Vec::new();
    let mut token = Value::Null;
    loop {
        let answer = wire.ok("GetPartitions", page(expression, &token)).await;
        seen.extend(values_of(&answer["Partitions"]));
        token = answer["NextToken"].clone();
        if token.is_null() {
            break;
        }
        assert!(!tokens.contains(&token));
        tokens.push(token.clone());
    }
    assert_eq!((seen.len(), tokens.len()), (3, 2));
    for other in ["", "region = 'eu'", "region = 'eu' and n > 1"] {
        let (name, message) = wire.fails("GetPartitions", page(other, &tokens[0])).await;
        assert_eq!(name, "InvalidInputException", "{message}");
    }
    // Blanks around it are no part of it.
    wire.ok("GetPartitions", page(&format!(" {expression}\n"), &tokens[0])).await;
}
