use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_s3::primitives::ByteStream;
use lakewarden_core::store::memory::ManualClock;

use super::{BUCKET, Folder, NOW_MS, Server, refused};
use crate::s3::{EventId, OpenError, Store};

async fn open(folder: &Path) -> Server {
    let clock = Arc::new(ManualClock::new(NOW_MS));
    Server::serve(Store::open(folder, clock.clone()).unwrap(), clock).await
}

fn body_files(folder: &Path) -> usize {
    std::fs::read_dir(folder.join("bodies")).unwrap().count()
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_is_there_after_a_restart() {
    let folder = Folder::new();
    let server = open(&folder.0).await;
    server.client.create_bucket().bucket(BUCKET).send().await.unwrap();
    server.put("small", "s").await;
    server.put("large", vec![b'l'; 100_000]).await;
    server.put("large", vec![b'm'; 100_001]).await;
    server.client.delete_object().bucket(BUCKET).key("small").send().await.unwrap();
    let begun = server.client.create_multipart_upload().bucket(BUCKET).key("u").send().await.unwrap();
    let before = server.store.poll_events(EventId(0), 100).await.unwrap();
    server.stop().await;
    std::fs::write(folder.0.join("bodies/leftover"), "of a crash").unwrap();

    let server = open(&folder.0).await;
    assert_eq!(body_files(&folder.0), 1);
    assert_eq!(server.get("large").await, Ok(vec![b'm'; 100_001]));
    assert_eq!(server.get("small").await, Err("404 NoSuchKey".into()));
    assert_eq!(server.store.poll_events(EventId(0), 100).await.unwrap(), before);
    let uploads = server.client.list_multipart_uploads().bucket(BUCKET).send().await.unwrap();
    assert_eq!(uploads.uploads()[0].upload_id(), begun.upload_id());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_stay_until_acknowledged_and_never_share_an_id() {
    let folder = Folder::new();
    let server = open(&folder.0).await;
    server.client.create_bucket().bucket(BUCKET).send().await.unwrap();
    let etag = server.put("a b", "12").await;
    server.client.copy_object().bucket(BUCKET).key("c").copy_source(format!("{BUCKET}/a%20b")).send().await.unwrap();
    server.client.delete_object().bucket(BUCKET).key("c").send().await.unwrap();
    server.client.delete_object().bucket(BUCKET).key("c").send().await.unwrap();
    let put = server.client.put_object().bucket(BUCKET).key("a b").if_none_match("*");
    assert_eq!(refused(put.send()).await, "412 PreconditionFailed");
    let events = server.store.poll_events(EventId(0), 100).await.unwrap();
    let told: Vec<_> = events.iter().map(|event| (event.name.as_str(), event.key.as_str(), event.size_bytes)).collect();
    assert_eq!(
        told,
        [
            ("ObjectCreated:Put", "a b", Some(2)),
            ("ObjectCreated:Copy", "c", Some(2)),
            ("ObjectRemoved:Delete", "c", None)
        ]
    );
    assert_eq!(events[0].etag.as_deref(), Some(etag.trim_matches('"')));
    assert_eq!((events[0].time_ms, events[0].bucket.as_str()), (NOW_MS, BUCKET));
    assert!(events.is_sorted_by(|a, b| a.id < b.id && a.sequencer < b.sequencer));
    server.store.acknowledge_events(vec![events[1].id, EventId(99)]).await.unwrap();
    assert_eq!(server.store.poll_events(EventId(0), 1).await.unwrap(), events[..1]);
    assert_eq!(server.store.poll_events(events[0].id, 9).await.unwrap(), events[2..]);
    server.store.acknowledge_events_through(events[2].id).await.unwrap();
    assert_eq!(server.store.count_events().await.unwrap(), 0);
    server.stop().await;

    let server = open(&folder.0).await;
    let last = events[2].id;
    server.store.wait_for_event(EventId(last.0 - 1)).await;
    let store = server.store.clone();
    let waiting = tokio::spawn(async move { store.wait_for_event(last).await });
    server.put("later", "x").await;
    tokio::time::timeout(Duration::from_secs(10), waiting).await.unwrap().unwrap();
    assert!(server.store.poll_events(EventId(0), 9).await.unwrap()[0].id > last);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_sixteen_creators_one_wins() {
    let server = Server::start().await;
    for round in 0..20 {
        let mut writers = tokio::task::JoinSet::new();
        for writer in 0..16 {
            let key = format!("race/{round}");
            // Bodies on both sides of the limit for inline storage.
            let body = format!("{writer:02}{}", "z".repeat(if writer % 2 == 0 { 10 } else { 70_000 }));
            let put = server.client.put_object().bucket(BUCKET).key(key).if_none_match("*");
            let put = put.body(ByteStream::from(body.into_bytes()));
            writers.spawn(async move { (writer, refused(put.send()).await) });
        }
        let outcomes = writers.join_all().await;
        let winners: Vec<_> = outcomes.iter().filter(|(_, outcome)| outcome == "accepted").collect();
        assert_eq!(winners.len(), 1, "{outcomes:?}");
        assert!(outcomes.iter().all(|(_, outcome)| outcome == "accepted" || outcome == "412 PreconditionFailed"));
        let body = server.get(&format!("race/{round}")).await.unwrap();
        assert!(body.starts_with(format!("{:02}", winners[0].0).as_bytes()));
    }
    assert_eq!(server.store.count_events().await.unwrap(), 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_never_see_half_of_an_overwrite() {
    let server = Server::start().await;
    server.put("torn", "aaaaaaaaaa").await;
    let client = server.client.clone();
    let writer = tokio::spawn(async move {
        for n in 0..100 {
            let body = if n % 2 == 0 { vec![b'b'; 200_000] } else { vec![b'a'; 10] };
            client.put_object().bucket(BUCKET).key("torn").body(ByteStream::from(body)).send().await.unwrap();
        }
    });
    while !writer.is_finished() {
        let got = server.client.get_object().bucket(BUCKET).key("torn").send().await.unwrap();
        let is_small = got.e_tag() == Some("\"e09c80c42fda55f9d992e59ca6b3307d\"");
        let body = got.body.collect().await.unwrap().to_vec();
        assert_eq!(body.len(), if is_small { 10 } else { 200_000 });
    }
    writer.await.unwrap();
}

#[tokio::test]
async fn a_folder_belongs_to_one_store_and_one_schema() {
    let folder = Folder::new();
    let open = || Store::open(&folder.0, Arc::new(ManualClock::new(NOW_MS)));
    let store = open().unwrap();
    let error = open().unwrap_err();
    assert!(error.to_string().contains("in use by another process"), "{error}");
    drop(store);
    drop(open().unwrap());
    let database = rusqlite::Connection::open(folder.0.join("s3.sqlite")).unwrap();
    database.execute("UPDATE meta SET value = '3'", []).unwrap();
    let error = open().unwrap_err();
    assert!(matches!(error, OpenError::SchemaVersion { ref found, known: 2, .. } if found == "3"), "{error}");
    database.execute("DROP TABLE meta", []).unwrap();
    assert!(matches!(open().unwrap_err(), OpenError::Foreign { .. }));
    drop(database);
    for file in ["s3.sqlite", "s3.sqlite-wal", "s3.sqlite-shm"] {
        let _ = std::fs::remove_file(folder.0.join(file));
    }
    std::fs::write(folder.0.join("s3.sqlite"), "no database at all, certainly").unwrap();
    assert!(matches!(open().unwrap_err(), OpenError::Database { .. }));
    let below_a_file = Store::open(&folder.0.join("s3.sqlite/x"), Arc::new(ManualClock::new(NOW_MS))).unwrap_err();
    assert!(below_a_file.to_string().contains("cannot create or write"), "{below_a_file}");
}

#[tokio::test]
async fn an_ephemeral_folder_goes_away() {
    let store = Store::ephemeral(Arc::new(ManualClock::new(NOW_MS))).unwrap();
    let path = store.bodies().path_of("");
    assert!(path.exists());
    drop(store);
    assert!(!path.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_under_way_end_before_the_server_does() {
    let server = Server::start().await;
    server.put("large", vec![b'x'; 8_000_000]).await;
    let got = server.client.get_object().bucket(BUCKET).key("large").send().await.unwrap();
    let stopping = tokio::spawn(server.stop());
    assert_eq!(got.body.collect().await.unwrap().to_vec().len(), 8_000_000);
    tokio::time::timeout(Duration::from_secs(25), stopping).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_dawdles_is_cut_off() {
    use tokio::io::AsyncWriteExt;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let store = Store::ephemeral(Arc::new(ManualClock::new(NOW_MS))).unwrap();
    let keys = crate::s3::Credentials { access_key: "test".into(), secret_key: "testsecret".into() };
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let shutdown = async {
        let _ = stopped.await;
    };
    let drain = Duration::from_millis(200);
    let server = tokio::spawn(crate::s3::server::serve_with_drain(listener, store, keys, shutdown, drain));
    let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
    socket.write_all(b"PUT /lake/k HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n1").await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    stop.send(()).unwrap();
    tokio::time::timeout(Duration::from_secs(10), server).await.unwrap().unwrap();
}

/// Started by `acknowledged_writes_survive_a_kill` as a process of its own; does nothing otherwise.
#[tokio::test(flavor = "multi_thread")]
async fn victim() {
    let Ok(folder) = std::env::var("LAKEWARDEN_TEST_VICTIM") else { return };
    let server = open(Path::new(&folder)).await;
    if server.client.head_bucket().bucket(BUCKET).send().await.is_err() {
        server.client.create_bucket().bucket(BUCKET).send().await.unwrap();
    }
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..4u64 {
        let client = server.client.clone();
        writers.spawn(async move {
            for n in 0u64.. {
                let key = format!("{}-{writer}-{n}", std::process::id());
                let size = if n % 3 == 0 { 80_000 } else { 20 };
                let put = client.put_object().bucket(BUCKET).key(&key).body(ByteStream::from(vec![b'v'; size]));
                let etag = put.send().await.unwrap().e_tag.unwrap();
                println!("ACK {key} {etag}");
            }
        });
    }
    writers.join_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_writes_survive_a_kill() {
    use tokio::io::{AsyncBufReadExt, BufReader};
    let folder = Folder::new();
    let mut acknowledged = BTreeMap::new();
    for _ in 0..3 {
        let mut victim = tokio::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "s3::tests::durability::victim", "--nocapture"])
            .env("LAKEWARDEN_TEST_VICTIM", &folder.0)
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(victim.stdout.take().unwrap()).lines();
        let mut count = 0;
        while let Some(line) = lines.next_line().await.unwrap() {
            // The first line shares its line with the test harness's own words.
            let Some((_, said)) = line.split_once("ACK ") else { continue };
            let (key, etag) = said.split_once(' ').unwrap();
            acknowledged.insert(key.to_owned(), etag.to_owned());
            count += 1;
            if count == 40 {
                victim.start_kill().unwrap();
            }
        }
        victim.wait().await.unwrap();
        assert!(count >= 40, "the victim ended early");
    }
    let server = open(&folder.0).await;
    let listed = server.client.list_objects_v2().bucket(BUCKET).send().await.unwrap();
    let events = server.store.poll_events(EventId(0), 100_000).await.unwrap();
    assert_eq!(events.len(), listed.contents().len(), "one event for each object, none without");
    for (key, etag) in &acknowledged {
        let head = server.client.head_object().bucket(BUCKET).key(key).send().await.unwrap();
        assert_eq!(head.e_tag(), Some(etag.as_str()));
        let size = head.content_length().unwrap();
        assert_eq!(server.get(key).await.unwrap().len() as i64, size);
        assert!(events.iter().any(|event| event.key == *key));
    }
    let in_files = listed.contents().iter().filter(|object| object.size() > Some(65_536)).count();
    assert_eq!(body_files(&folder.0), in_files);
    server.stop().await;
}
