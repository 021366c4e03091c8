use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region, timeout::TimeoutConfig};
use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
};
use lakewarden_core::store::{Ids, Query, RandomIds, SortRange, Table};
use tokio::sync::oneshot;

use super::*;

struct Server {
    running: Running,
    client: Client,
    stop: oneshot::Sender<()>,
}

fn begin(storage: Storage) -> Result<Server, StartError> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let shutdown = async {
        let _ = stopped.await;
    };
    let running = start_with_drain(storage, listener, shutdown, Duration::from_millis(300))?;
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .endpoint_url(format!("http://{}", running.address()))
        .credentials_provider(Credentials::new("test", "testsecret", None, None, "test"))
        .timeout_config(TimeoutConfig::builder().connect_timeout(Duration::from_secs(30)).build())
        .build();
    Ok(Server { running, client: Client::from_conf(config), stop })
}

impl Server {
    async fn end(self) {
        self.stop.send(()).unwrap();
        tokio::time::timeout(Duration::from_secs(30), self.running.join()).await.unwrap().unwrap();
    }

    async fn create_table(&self) {
        let key = KeySchemaElement::builder().attribute_name("pk").key_type(KeyType::Hash).build().unwrap();
        let definition =
            AttributeDefinition::builder().attribute_name("pk").attribute_type(ScalarAttributeType::S).build().unwrap();
        let create = self.client.create_table().table_name("keys").key_schema(key).attribute_definitions(definition);
        create.billing_mode(BillingMode::PayPerRequest).send().await.unwrap();
    }

    async fn has(&self, key: &str) -> bool {
        let get = self.client.get_item().table_name("keys").key("pk", AttributeValue::S(key.into()));
        get.consistent_read(true).send().await.unwrap().item.is_some()
    }
}

async fn put(client: &Client, key: &str) {
    let put = client.put_item().table_name("keys").item("pk", AttributeValue::S(key.into()));
    put.condition_expression("attribute_not_exists(pk)").send().await.unwrap();
}

struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        Self(std::env::temp_dir().join(format!("lakewarden-test-{}", RandomIds.uuid().simple())))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_are_there_after_a_restart() {
    let folder = Folder::new();
    let file = Storage::File(folder.0.join("deep/dynamodb.sqlite"));
    let server = begin(file.clone()).unwrap();
    server.create_table().await;
    put(&server.client, "a").await;
    server.end().await;
    let server = begin(file).unwrap();
    assert!(server.has("a").await);
    assert!(!server.has("b").await);
    server.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_is_forgotten() {
    let server = begin(Storage::Memory).unwrap();
    server.create_table().await;
    put(&server.client, "a").await;
    server.end().await;
    let server = begin(Storage::Memory).unwrap();
    assert!(server.client.describe_table().table_name("keys").send().await.is_err());
    server.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_cannot_be_used_is_explained() {
    let folder = Folder::new();
    let file = folder.0.join("dynamodb.sqlite");
    let server = begin(Storage::File(file.clone())).unwrap();
    let error = begin(Storage::File(file.clone())).err().unwrap();
    assert!(error.to_string().contains("in use by another process"), "{error}");
    server.end().await;
    let below_a_file = begin(Storage::File(file.join("x"))).err().unwrap();
    assert!(below_a_file.to_string().contains("cannot create or write"), "{below_a_file}");
    let folder_at = folder.0.join("folder");
    std::fs::create_dir(&folder_at).unwrap();
    let a_folder = begin(Storage::File(folder_at)).err().unwrap();
    assert!(a_folder.to_string().contains("cannot write"), "{a_folder}");
    let other = folder.0.join("other");
    std::fs::write(&other, "no database at all, certainly").unwrap();
    let foreign = begin(Storage::File(other)).err().unwrap();
    assert!(matches!(foreign, StartError::Open { .. }), "{foreign}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_dawdles_does_not_hold_up_the_end() {
    use tokio::io::AsyncWriteExt;
    let server = begin(Storage::Memory).unwrap();
    let mut socket = tokio::net::TcpStream::connect(server.running.address()).await.unwrap();
    socket.write_all(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{").await.unwrap();
    server.end().await;
}

/// Started by `acknowledged_writes_survive_a_kill` as a process of its own; does nothing otherwise.
#[tokio::test(flavor = "multi_thread")]
async fn victim() {
    let Ok(file) = std::env::var("LAKEWARDEN_TEST_DYNAMODB_VICTIM") else { return };
    let server = begin(Storage::File(file.into())).unwrap();
    if server.client.describe_table().table_name("keys").send().await.is_err() {
        server.create_table().await;
    }
    for n in 0u64.. {
        let key = format!("{}-{n}", std::process::id());
        put(&server.client, &key).await;
        println!("ACK {key}");
    }
}

async fn write_and_kill(file: &Path, acknowledged: &mut BTreeSet<String>) {
    use tokio::io::{AsyncBufReadExt, BufReader};
    let mut victim = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "dynamodb::tests::victim", "--nocapture"])
        .env("LAKEWARDEN_TEST_DYNAMODB_VICTIM", file)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(victim.stdout.take().unwrap()).lines();
    let mut count = 0;
    while let Some(line) = lines.next_line().await.unwrap() {
        let Some((_, key)) = line.split_once("ACK ") else { continue };
        acknowledged.insert(key.to_owned());
        count += 1;
        if count == 50 {
            victim.start_kill().unwrap();
        }
    }
    victim.wait().await.unwrap();
    assert!(count >= 50, "the victim ended early");
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_writes_survive_a_kill() {
    let folder = Folder::new();
    let file = folder.0.join("dynamodb.sqlite");
    let mut acknowledged = BTreeSet::new();
    write_and_kill(&file, &mut acknowledged).await;
    write_and_kill(&file, &mut acknowledged).await;
    let server = begin(Storage::File(file)).unwrap();
    for key in &acknowledged {
        assert!(server.has(key).await, "{key} was acknowledged");
    }
    server.end().await;
}

/// A file with one item in the table `partitions`, and its server.
async fn with_an_item(file: &Path) -> Server {
    let server = begin(Storage::File(file.to_path_buf())).unwrap();
    let key =
        |name: &str, key_type| KeySchemaElement::builder().attribute_name(name).key_type(key_type).build().unwrap();
    let definition =
        |name: &str, kind| AttributeDefinition::builder().attribute_name(name).attribute_type(kind).build().unwrap();
    let create = server.client.create_table().table_name("partitions").billing_mode(BillingMode::PayPerRequest);
    let create = create.key_schema(key("pk", KeyType::Hash)).key_schema(key("sk", KeyType::Range));
    let create = create.attribute_definitions(definition("pk", ScalarAttributeType::S));
    create.attribute_definitions(definition("sk", ScalarAttributeType::B)).send().await.unwrap();
    let put = server.client.put_item().table_name("partitions").item("pk", AttributeValue::S("p".into()));
    let put = put.item("sk", AttributeValue::B(vec![1, 171].into())).item("a", AttributeValue::S("é".into()));
    put.send().await.unwrap();
    server
}

fn all_of_p() -> Query {
    Query::new(Table::Partitions, "p", SortRange::All)
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_read_beside_the_crate_while_it_writes() {
    let folder = Folder::new();
    let file = folder.0.join("dynamodb.sqlite");
    let server = with_an_item(&file).await;
    let readers = std::sync::Arc::new(readers::Readers::open(&file).unwrap());
    let rows = readers.clone().read(|connection| readers::read_page(connection, "partitions", &all_of_p()));
    let rows = rows.await.unwrap();
    assert_eq!((rows.rows.len(), rows.read_half_units, rows.next.is_none()), (1, 2, true));
    assert_eq!(rows.rows[0].sk, [1, 171]);
    let item = stored::decode(Table::Partitions, rows.json(&rows.rows[0]).unwrap()).unwrap();
    assert_eq!(item.get("a"), Some(&"é".into()));
    // Many at once, while rows come and go.
    let writes = async {
        for n in 0..50_u8 {
            let put = server.client.put_item().table_name("partitions").item("pk", AttributeValue::S("p".into()));
            put.item("sk", AttributeValue::B(vec![2, n].into())).send().await.unwrap();
            let count = |connection: &rusqlite::Connection| {
                readers::read_page(connection, "partitions", &all_of_p()).map(|rows| rows.rows.len())
            };
            let counts = futures::future::join_all((0..20).map(|_| readers.clone().read(count))).await;
            assert!(counts.into_iter().all(|count| count.unwrap() == usize::from(n) + 2));
        }
    };
    writes.await;
    // Whoever reads holds up neither the end nor the next start.
    server.end().await;
    drop(readers);
    let again = begin(Storage::File(file)).unwrap();
    again.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_layout_of_the_file_is_not_read() {
    let folder = Folder::new();
    let file = folder.0.join("dynamodb.sqlite");
    with_an_item(&file).await.end().await;
    assert!(readers::Readers::open(&file).is_ok());
    let connection = rusqlite::Connection::open(&file).unwrap();
    connection.execute("UPDATE _config SET value = '12' WHERE key = 'schema_version'", []).unwrap();
    let refused = readers::Readers::open(&file).unwrap_err();
    assert_eq!(refused.to_string(), "the layout of the file is 12");
    assert!(readers::Readers::open(&folder.0.join("none")).is_err());
}
