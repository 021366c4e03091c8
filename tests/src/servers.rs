//! The embedded servers, each on a thread and a runtime of its own (their calls block), ended when dropped.

use std::future::Future;
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;
use std::thread::JoinHandle;

use lakewarden_aws::{Clients, Connection, TableNames, create_tables};
use lakewarden_core::store::{Clock, SystemClock};
use lakewarden_local::dynamodb::{Storage, Tables};
use lakewarden_local::s3::{Credentials, Store};
use tokio::sync::oneshot;

/// A server's work: serves on the listener until the signal.
type Serve =
    Box<dyn FnOnce(tokio::net::TcpListener, oneshot::Receiver<()>) -> Pin<Box<dyn Future<Output = ()>>> + Send>;

/// A server on a loopback port, ended and waited for when dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub fn start(serve: Serve) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                serve(listener, stopped).await;
            });
        });
        Self { address, stop: Some(stop), thread: Some(thread) }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // Nobody listens any more if the server ended by itself.
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            if !std::thread::panicking() {
                ended.expect("the embedded server panicked");
            }
        }
    }
}

/// An embedded DynamoDB in memory.
pub fn dynamodb() -> Server {
    dynamodb_beside(None).0
}

/// The same with its tables, to be read without the wire; in a file of this folder, if there is one, which is removed with it.
pub fn dynamodb_beside(folder: Option<tempfile::TempDir>) -> (Server, Tables) {
    let (tell, told) = std::sync::mpsc::channel();
    let path = folder.as_ref().map(|folder| folder.path().join("dynamodb.sqlite"));
    let storage = path.map_or(Storage::Memory, Storage::File);
    let server = Server::start(Box::new(move |listener, stopped| {
        Box::pin(async move {
            let stop = async {
                // The sender is gone where the test panicked: the end as well.
                let _ = stopped.await;
            };
            let running = lakewarden_local::dynamodb::start(storage, listener.into_std().unwrap(), stop);
            let running = running.unwrap();
            tell.send(running.tables()).unwrap();
            running.join().await.unwrap();
            drop(folder);
        })
    }));
    (server, told.recv().unwrap())
}

/// An embedded S3 in memory, with `clock` behind its LastModified. It has no buckets.
pub fn s3(clock: Arc<dyn Clock>) -> Server {
    Server::start(Box::new(|listener, stopped| {
        Box::pin(async move {
            let stop = async {
                let _ = stopped.await;
            };
            let keys = Credentials { access_key: ACCESS_KEY.to_owned(), secret_key: SECRET_KEY.to_owned() };
            lakewarden_local::s3::serve(listener, Store::ephemeral(clock).unwrap(), keys, stop).await;
        })
    }))
}

/// A connection to embedded servers; keys as the embedded S3 knows them.
pub fn connection(dynamodb_url: Option<String>, s3_url: Option<String>) -> Connection {
    Connection {
        region: "us-east-1".to_owned(),
        access_key_id: ACCESS_KEY.to_owned(),
        secret_access_key: SECRET_KEY.to_owned(),
        dynamodb_url,
        s3_url,
        sqs_url: None,
    }
}

pub const ACCESS_KEY: &str = "test";
pub const SECRET_KEY: &str = "test-secret";

/// The four tables on an embedded DynamoDB.
pub async fn tables(clients: &Clients) -> TableNames {
    let names = TableNames::new("t-");
    create_tables(&clients.dynamodb, &names, &SystemClock).await.unwrap();
    names
}
