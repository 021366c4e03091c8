//! An app built from explicit parts, and the tables it needs.

use aws_sdk_dynamodb::types::{AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType};
use bytes::Bytes;
use kit::servers;
use kit::world::EmbeddedWorld;
use lakewarden_aws::{Clients, TableNames, create_tables};
use lakewarden_core::store::{
    Condition, Consistency, GetOptions, Item, Key, PutOptions, QueueName, StoreErrorKind, SystemClock, Table,
};

#[tokio::test]
async fn an_app_works_on_the_embedded_servers() {
    let world = EmbeddedWorld::start(1_000, &["lake"]).await;
    let ports = &world.app.ports;
    let key = Key::new(Table::Commits, "t", "head");
    ports.items.put(&key, Item::new(), Condition::Absent).await.unwrap();
    assert_eq!(ports.items.get(&key, Consistency::Strong).await, Ok(Some(Item::new())));
    let at = world.app.settings.reports.object("run.jsonl");
    assert!(ports.objects.put(&at, Bytes::new(), &PutOptions::default()).await.is_err(), "no such bucket");
    let at = lakewarden_core::store::ObjectKey::new("lake", at.key);
    ports.objects.put(&at, Bytes::new(), &PutOptions::default()).await.unwrap();
    let object = ports.objects.get(&at, &GetOptions::default()).await.unwrap();
    assert_eq!(object.meta.last_modified_ms, ports.clock.now_ms());
    ports.queue.send(QueueName::Sweeps, "{}".to_owned(), 0).await.unwrap();
    assert_eq!(world.queue.len(QueueName::Sweeps), 1);
}

#[tokio::test]
async fn tables_are_created_once_and_checked() {
    let server = servers::dynamodb();
    let client = Clients::connect(&servers::connection(Some(server.url()), None)).dynamodb;
    let names = TableNames::new("lakewarden-").with_delta_log("delta_log");
    let created = create_tables(&client, &names, &SystemClock).await.unwrap();
    assert_eq!(created, ["lakewarden-catalog", "lakewarden-partitions", "lakewarden-commits", "delta_log"]);
    assert_eq!(create_tables(&client, &names, &SystemClock).await.unwrap(), [""; 0]);
    for (name, expected) in [("lakewarden-partitions", "ttl"), ("delta_log", "expireTime")] {
        let answer = client.describe_time_to_live().table_name(name).send().await.unwrap();
        let found = answer.time_to_live_description().and_then(|found| found.attribute_name());
        assert_eq!(found, Some(expected));
    }

    let key = KeySchemaElement::builder().attribute_name("pk").key_type(KeyType::Hash).build().unwrap();
    let kind = AttributeDefinition::builder().attribute_name("pk").attribute_type(ScalarAttributeType::S);
    let request = client.create_table().table_name("other-commits").billing_mode(BillingMode::PayPerRequest);
    request.key_schema(key).attribute_definitions(kind.build().unwrap()).send().await.unwrap();
    let refused = create_tables(&client, &TableNames::new("other-"), &SystemClock).await.unwrap_err();
    assert_eq!(refused.kind, StoreErrorKind::Invalid);
    assert!(refused.to_string().contains("`other-commits` is another one"), "{refused}");
}

/// Runs [`child`] in a process with this environment and nothing else of AWS; answers whether it passed and what it
/// logged.
fn run_child(variables: &[(&str, &str)]) -> (bool, String) {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "contract::app::child", "--nocapture"]);
    command.env_clear().envs(variables.iter().copied());
    let output = command.output().unwrap();
    (output.status.success(), String::from_utf8(output.stderr).unwrap())
}

#[tokio::test]
async fn an_app_is_built_from_the_environment() {
    let world = EmbeddedWorld::start(1_000, &["lake"]).await;
    let (dynamodb, s3) = (world.dynamodb.url(), world.s3.url());
    let mut variables = vec![
        ("AWS_REGION", "eu-west-1"),
        ("AWS_ACCESS_KEY_ID", servers::ACCESS_KEY),
        ("AWS_SECRET_ACCESS_KEY", servers::SECRET_KEY),
        ("AWS_ENDPOINT_URL_DYNAMODB", dynamodb.as_str()),
        ("AWS_ENDPOINT_URL_S3", s3.as_str()),
        ("LAKEWARDEN_TABLE_PREFIX", "t-"),
        ("LAKEWARDEN_ACCOUNT_ID", "123456789012"),
        ("RUST_LOG", "trace"),
    ];
    let (passed, readable) = run_child(&variables);
    assert!(passed, "{readable}");
    assert!(readable.contains("INFO the child is done objects=1"), "{readable}");

    variables.push(("AWS_LAMBDA_FUNCTION_NAME", "catalog-api"));
    let (passed, lines) = run_child(&variables);
    assert!(passed, "{lines}");
    let lines: Vec<serde_json::Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let done = lines.iter().find(|line| line["message"] == "the child is done").unwrap();
    assert_eq!((&done["level"], &done["objects"]), (&serde_json::json!("INFO"), &serde_json::json!(1)));

    for logged in [readable, serde_json::to_string(&lines).unwrap()] {
        // The last two begin messages of the SDK that show identities, headers and bodies.
        for secret in [servers::SECRET_KEY, "AWS4-HMAC-SHA256", "resolved identity", "transmitting request"] {
            assert!(!logged.contains(secret), "{secret} is in the log: {logged}");
        }
    }
}

#[test]
fn a_bad_environment_is_named() {
    let (passed, logged) = run_child(&[("AWS_REGION", "eu-west-1"), ("LAKEWARDEN_ACCOUNT_ID", "12")]);
    assert!(!passed && logged.contains("LAKEWARDEN_ACCOUNT_ID is `12`; allowed is a number of twelve digits"));
}

/// What a function does when it starts; run by the tests above in a process of its own.
#[tokio::test]
#[ignore = "needs the environment that other tests give it"]
async fn child() {
    lakewarden_aws::init_logs();
    let cell = lakewarden_aws::AppCell::from_env().await.unwrap_or_else(|error| panic!("{error}"));
    let app = cell.for_arn("arn:aws:lambda:eu-west-1:999999999999:function:x");
    assert_eq!((app.settings.region.as_str(), app.settings.account_id.as_str()), ("eu-west-1", "123456789012"));
    let key = Key::new(Table::Catalog, "p", "s");
    app.ports.items.put(&key, Item::new(), Condition::Always).await.unwrap();
    let at = lakewarden_core::store::ObjectKey::new("lake", "from env");
    app.ports.objects.put(&at, Bytes::from_static(b"x"), &PutOptions::default()).await.unwrap();
    app.ports.objects.get(&at, &GetOptions::default()).await.unwrap();
    tracing::info!(objects = 1, "the child is done");
}
